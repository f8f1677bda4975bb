"""Backends on drivers with streams: what CUDA's and HIP's have in common."""
