"""Level Zero: on a GPU with ``--target level_zero``, on the emulated loader with an emulation's name."""
