"""C-family code for typed kernels: one generator, and a dialect for each vendor's language."""

from __future__ import annotations

from tack.codegen.c.cuda import CUDA
from tack.codegen.c.hip import HIP
from tack.codegen.c.metal import MSL
from tack.codegen.c.module import generate
from tack.codegen.c.opencl import OPENCL, OPENCL_WITHOUT_F64
from tack.codegen.c.source import Geometry, Source

__all__ = ["CUDA", "HIP", "MSL", "OPENCL", "OPENCL_WITHOUT_F64", "Geometry", "Source", "generate"]
