"""AMD GPUs: compiling with hipRTC, and memory and launches through HIP."""
