"""The runtimes of CUDA and HIP: on a GPU with ``--target cuda`` or ``hip``, or on an emulated driver."""
