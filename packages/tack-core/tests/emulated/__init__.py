"""The emulated CUDA device: generated CUDA C, compiled by the system's C++ compiler and run on the CPU."""
