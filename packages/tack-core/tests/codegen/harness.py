"""Runs a typed kernel's compiled code as the runtime does, without the runtime."""

from __future__ import annotations

import ctypes
import itertools
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
from llvmlite import binding

from tack.codegen.llvm import generate, jit, print_sites
from tack.codegen.llvm.image import link
from tack.dtypes import DType
from tack.ir import nodes as ir
from tack.ir.parser import parse
from tack.runtime.cpu import code

LAUNCH = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
RESULT = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)
PRINT = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.POINTER(ctypes.c_uint64))

Launch = Sequence[tuple[int, int, int]]
Printed = tuple[int, list[int | float]]


def scalar_bits(value: int | float, dtype: DType) -> int:
    """The 8-byte slot that holds a scalar."""
    raw = np.asarray(value, dtype.numpy).tobytes()
    return int.from_bytes(raw.ljust(8, b"\0"), "little")


def slot_value(slot: int, dtype: DType) -> int | float:
    """The scalar at the start of an 8-byte slot."""
    number: int | float = np.frombuffer(struct.pack("<Q", slot), dtype.numpy, 1)[0].item()
    return number


def loaded(compiled: bytes) -> code.Code:
    """An object file in memory, as an image where there are images."""
    if not code.loads_images():
        return code.load(compiled, None)
    linked = link(compiled)
    assert linked is not None
    return code.load(*linked)


class Compiled:
    """A compiled kernel; a call runs it over ``splits`` of the iterations and gives its result."""

    def __init__(self, kernel: ir.Kernel | str, *, disjoint: bool = False, streaming: bool = False) -> None:
        self.kernel = parse(kernel) if isinstance(kernel, str) else kernel
        self.module = generate(self.kernel, disjoint=disjoint, streaming=streaming)
        binding.parse_assembly(str(self.module)).verify()
        self.code = loaded(jit.compile_object(self.module))
        self.launch = LAUNCH(self.code.address("launch"))

    def slots(self, args: dict[str, Any], launch: Launch, callback: Any = None) -> Any:
        """The argument slots of a launch, as a ctypes array."""
        values = []
        for parameter in self.kernel.params:
            argument = args[parameter.name]
            if isinstance(parameter.type, ir.Array):
                assert argument.dtype == parameter.type.dtype.numpy
                values.append(argument.ctypes.data)
            else:
                values.append(scalar_bits(argument, parameter.type))
        for bounds in launch:
            values += [bound & 0xFFFF_FFFF_FFFF_FFFF for bound in bounds]
        if callback is not None:
            values.append(ctypes.cast(callback, ctypes.c_void_p).value)
        return (ctypes.c_uint64 * len(values))(*values)

    def __call__(
        self,
        args: dict[str, Any],
        launch: Launch,
        splits: Sequence[int] | None = None,
        printed: list[Printed] | None = None,
    ) -> int | float | None:
        sites = print_sites(self.kernel)

        def on_print(site: int, values: Any) -> None:
            parts = [p for p in sites[site].parts if isinstance(p, ir.Expr)]
            assert printed is not None
            printed.append((site, [slot_value(values[i], p.type) for i, p in enumerate(parts)]))

        callback = PRINT(on_print) if sites else None
        slots = self.slots(args, launch, callback)
        if splits is None:
            total = 1
            for _, _, count in launch:
                total *= count
            splits = (0, total)
        for low, high in itertools.pairwise(splits):
            self.launch(ctypes.addressof(slots), low, high)
        if self.kernel.result_type is None:
            return None
        out = ctypes.c_uint64(0)
        RESULT(self.code.address("result"))(ctypes.addressof(slots), ctypes.addressof(out))
        return slot_value(out.value, self.kernel.result_type)
