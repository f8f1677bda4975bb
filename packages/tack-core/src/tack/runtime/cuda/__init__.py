"""CUDA devices: compiling with NVRTC, and memory and launches through the driver."""
