"""What only a GPU can show: run by hand with ``--target``, recorded in docs/hardware-validation.md."""
