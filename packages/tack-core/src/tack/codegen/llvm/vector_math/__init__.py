"""Functions such as ``sin`` as LLVM IR that vectorizes: for the host's vector registers and for one number.

A kernel's module declares the scalar function, with an attribute that names its vector forms; LLVM's loop
vectorizer calls those (`declare`). What the optimized module calls is then linked in (`called`, `library`).
A function leaves some arguments, such as huge ones of ``sin``, to the C library: its rule marks them as rare.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from tack.codegen.llvm import ir
from tack.codegen.llvm.types import FLAG, LLVM_TYPES
from tack.codegen.llvm.vector_math import algebraic, error_function, exponentials, powers, trigonometry
from tack.codegen.llvm.vector_math.lanes import Lanes
from tack.dtypes import DType, f32, f64

__all__ = ["Form", "called", "declare", "has", "keep", "library", "vector_forms"]

# A rule gives the result, and which lanes it is not right for, if there can be any.
Rule = Callable[..., Any]

_RULES: Final[dict[str, Rule]] = {
    "acos": trigonometry.acos,
    "asin": trigonometry.asin,
    "atan": trigonometry.atan,
    "atan2": trigonometry.atan2,
    "cbrt": algebraic.cbrt,
    "cos": trigonometry.cos,
    "cosh": exponentials.cosh,
    "erf": error_function.erf,
    "erfc": error_function.erfc,
    "exp": exponentials.exp,
    "exp2": exponentials.exp2,
    "expm1": exponentials.expm1,
    "fmod": algebraic.fmod,
    "hypot": algebraic.hypot,
    "log": exponentials.log,
    "log10": exponentials.log10,
    "log1p": exponentials.log1p,
    "log2": exponentials.log2,
    "pow": powers.pow,
    "sin": trigonometry.sin,
    "sinh": exponentials.sinh,
    "tan": trigonometry.tan,
    "tanh": exponentials.tanh,
}
_PREFIX: Final = "tack.math."
_TWO_ARGUMENTS: Final = {"atan2", "fmod", "hypot", "pow"}


def has(name: str) -> bool:
    """Whether ``name`` is a function of this library."""
    return name in _RULES


class Form(NamedTuple):
    """A function for one number (``width`` 1) or a vector; ``masked`` with an argument of active lanes."""

    name: str
    dtype: DType
    width: int = 1
    masked: bool = False

    @property
    def symbol(self) -> str:
        base = f"{_PREFIX}{self.name}.{self.dtype}"
        return base if self.width == 1 else f"{base}.x{self.width}{'m' if self.masked else ''}"

    @property
    def type(self) -> ir.FunctionType:
        kind = LLVM_TYPES[self.dtype]
        args = [kind] * (2 if self.name in _TWO_ARGUMENTS else 1)
        if self.width == 1:
            return ir.FunctionType(kind, args)
        vectors: list[ir.Type] = [ir.VectorType(kind, self.width) for _ in args]
        result = vectors[0]
        if self.masked:
            vectors.append(ir.VectorType(FLAG, self.width))
        return ir.FunctionType(result, vectors)


def vector_forms(name: str, dtype: DType, register_bits: int) -> list[Form]:
    """The forms for a machine with vector registers of this many bits.

    In a loop that also works on wider or narrower numbers the vectors are a part of the register, or several.
    """
    widths = [w for w in (2, 4, 8, 16) if 64 <= w * dtype.bits <= register_bits]
    return [Form(name, dtype, w, masked) for w in widths for masked in (False, True)]


def _mapping(form: Form) -> str:
    """The form in the syntax of LLVM's ``vector-function-abi-variant``."""
    parameters = "v" * len(Form(form.name, form.dtype).type.args)
    mask = "M" if form.masked else "N"
    return f"_ZGV_LLVM_{mask}{form.width}{parameters}_{Form(form.name, form.dtype).symbol}({form.symbol})"


def declare(module: ir.Module, name: str, dtype: DType, register_bits: int) -> ir.Function:
    """The function for one number, with its vector forms for registers of this many bits."""
    scalar = Form(name, dtype)
    found = module.globals.get(scalar.symbol)
    if found is None:
        vectors = vector_forms(name, dtype, register_bits)
        for form in vectors:
            _function(module, form.type, form.symbol)
        mappings = ",".join(map(_mapping, vectors))
        attributes = (f'"vector-function-abi-variant"="{mappings}"',) if vectors else ()
        found = _function(module, scalar.type, scalar.symbol, *attributes)
    return found


def keep(module: ir.Module) -> None:
    """Keeps the declared vector forms, which nothing calls yet, until the vectorizer has run."""
    forms = [f for name, f in module.globals.items() if name.startswith(_PREFIX)]
    if forms:
        used = ir.Constant(ir.ArrayType(ir.PointerType(), len(forms)), forms)
        definition = f'appending global {used.operand}, section "llvm.metadata"'
        module.add_global("llvm.compiler.used", definition)


def called(optimized: str) -> list[Form]:
    """The functions of this library that a module, as text, calls."""
    return [
        Form(name, _DTYPES[dtype], int(width or 1), bool(masked))
        for name, dtype, width, masked in sorted(set(_CALL.findall(optimized)))
    ]


_DTYPES: Final = {"f32": f32, "f64": f64}
_CALL: Final = re.compile(r"call [^@\n]*@\"?tack\.math\.(\w+)\.(f32|f64)(?:\.x(\d+)(m?))?\"?\(")


def library(wanted: list[Form]) -> ir.Module:
    """A module with these functions. The vector forms are for inlining into the loops that call them."""
    module = ir.Module(name="tack.math")
    for form in wanted:
        _define(module, form)
    return module


def _function(module: ir.Module, kind: ir.FunctionType, name: str, *attributes: str) -> ir.Function:
    """The function ``name``, made if need be, which reads and writes no memory and returns."""
    found = module.globals.get(name)
    if found is None:
        found = ir.Function(module, kind, name)
        found.attributes |= dict.fromkeys(("nounwind", "readnone", "willreturn", *attributes))
    return found


def _define(module: ir.Module, form: Form) -> None:
    inlined = "noinline" if form.width == 1 else "alwaysinline"
    function = _function(module, form.type, form.symbol, inlined)
    v = Lanes(ir.IRBuilder(function.append_basic_block()), form.dtype, form.width)
    args = function.args[:-1] if form.masked else function.args
    found = _RULES[form.name](v, *args)
    if not isinstance(found, tuple):
        v.builder.ret(found)
        return
    result, rare = found
    if form.masked:
        rare = v.both(rare, function.args[-1])
    slow, done = function.append_basic_block("slow"), function.append_basic_block("done")
    fast = v.builder.block
    v.builder.cbranch(v.any(rare), slow, done).set_weights([1, 100_000])
    v.builder.position_at_end(slow)
    corrected = v.builder.call(_corrected(module, form), [result, rare, *args])
    v.builder.branch(done)
    v.builder.position_at_end(done)
    phi = v.builder.phi(v.kind)
    phi.add_incoming(result, fast)
    phi.add_incoming(corrected, slow)
    v.builder.ret(phi)


def _corrected(module: ir.Module, form: Form) -> ir.Function:
    """``(result, rare, *args)`` to the result with the C library's value in the rare lanes."""
    kind, flags = form.type.return_type, FLAG if form.width == 1 else ir.VectorType(FLAG, form.width)
    plain = Form(form.name, form.dtype, form.width)
    name = f"{plain.symbol}.rare"
    if name in module.globals:
        return module.globals[name]
    function = _function(
        module, ir.FunctionType(kind, [kind, flags, *plain.type.args]), name, "noinline", "cold"
    )
    function.linkage = "internal"
    result, rare, *args = function.args
    v = Lanes(ir.IRBuilder(function.append_basic_block()), form.dtype, form.width)
    libm = form.name if form.dtype is f64 else f"{form.name}f"
    exact = v.each(_function(module, Form(form.name, form.dtype).type, libm), args)
    v.builder.ret(v.select(rare, exact, result))
    return function
