"""Tests of LLVM code generation, on typed IR."""
