"""CUDA's runtime: on a GPU with ``--target cuda``, on the emulated driver with ``--target cuda-emu``."""
