"""The kernel language: from a Python function's source to an IR template."""
