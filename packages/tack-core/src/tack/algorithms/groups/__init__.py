"""Kernels of the algorithms for devices whose workgroups run their lanes at once, as GPUs do."""
