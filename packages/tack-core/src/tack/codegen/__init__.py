"""Code generation: typed IR to LLVM for the CPU (later to CUDA C, HIP C, OpenCL C and MSL)."""
