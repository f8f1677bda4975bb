"""Devices, arrays, and what runs kernels on them."""
