"""The builtin functions of the kernel language: their names, arities and result types.

This table is the one place that lists them. Lowering checks arity with it, type inference takes
the result type from it, and each code generator and the interpreter registers a rule for each
name; a test fails for a name that one of them lacks.
"""

from __future__ import annotations

import builtins
import math
from typing import Any

import numpy as np

__all__ = [
    "ATOMICS",
    "BARE",
    "BUILTINS",
    "CONSTRUCTS",
    "NUMBERS",
    "WORKGROUP",
    "Builtin",
    "Construct",
    "meaning_of",
]

WORKGROUP = 256  # iterations, whose lanes ``thread_id`` numbers


class Builtin:
    """A builtin function.

    ``rule`` says how arguments and result are typed:

    - ``"float"``: all arguments become f64 if one is f64, else f32; so does the result.
    - ``"promote"``: the promotion of all arguments (min, max, abs).
    - ``"keep"``: like ``"float"``, but an integer stays as it is, and the function is the identity
      on it (floor, ceil, round, trunc) or its integer meaning (sign).
    - ``"test"``: arguments as ``"float"``; the result is i32 0 or 1 (isnan, isinf, isfinite).
    - ``"truth"``: any scalar; the result is i32 0 or 1 (any, all).
    - ``"bits"``: an integer; the result is i32 (popcount, clz, ctz).
    - ``"where"``: a condition and two arms, which promote.
    """

    __slots__ = ("max_args", "min_args", "name", "rule")

    def __init__(self, name: str, rule: str, min_args: int, max_args: int | None) -> None:
        self.name = name
        self.rule = rule
        self.min_args = min_args
        self.max_args = max_args  # None: any number

    def __repr__(self) -> str:
        return f"tack.{self.name}"

    def __call__(self, *_: Any) -> Any:
        raise RuntimeError(f"tack.{self.name} is a function of the kernel language; use NumPy's on the host")

    def __reduce__(self) -> Any:
        return _builtin, (self.name,)


def _builtin(name: str) -> Builtin:
    return BUILTINS[name]


def _table() -> dict[str, Builtin]:
    table = {}

    def add(rule: str, min_args: int, max_args: int | None, names: str) -> None:
        for name in names.split():
            table[name] = Builtin(name, rule, min_args, max_args)

    add("float", 1, 1, "sqrt rsqrt cbrt sin cos tan asin acos atan sinh cosh tanh")
    add("float", 1, 1, "exp exp2 expm1 log log2 log10 log1p erf erfc")
    add("float", 2, 2, "atan2 hypot fmod copysign")
    add("float", 3, 3, "fma")
    add("keep", 1, 1, "floor ceil round trunc sign")
    add("promote", 1, 1, "abs")
    add("promote", 2, None, "min max")
    add("test", 1, 1, "isnan isinf isfinite")
    add("truth", 1, 1, "any all")
    add("bits", 1, 1, "popcount clz ctz")
    add("where", 3, 3, "where")
    return table


BUILTINS: dict[str, Builtin] = _table()


class Construct:
    """A word of the kernel language that is not a function of scalars: ``tack.ndindex`` and others."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"tack.{self.name}"

    def __call__(self, *_: Any) -> Any:
        raise RuntimeError(f"tack.{self.name} has a meaning inside kernels only")

    def __reduce__(self) -> Any:
        return _construct, (self.name,)


def _construct(name: str) -> Construct:
    return CONSTRUCTS[name]


# The operand count of each atomic operation, after the array and the index. ``load`` is for our own kernels.
ATOMICS: dict[str, int] = dict.fromkeys(["add", "sub", "min", "max", "and", "or", "xor", "exchange"], 1) | {
    "cas": 2,
    "load": 0,
}

# Functions of vectors and matrices, which are methods too. min, max and sum have other entries.
VECTOR_NAMES = (
    *("cross", "determinant", "distance", "dot", "inverse", "length", "length_sq", "normalized"),
    *("outer", "trace", "transpose"),
)

CONSTRUCTS: dict[str, Construct] = {
    name: Construct(name)
    for name in (
        "ndindex",
        "local_array",
        "shared",
        "barrier",
        "thread_id",
        *(f"block_{op}" for op in ("sum", "min", "max")),
        "bitcast",
        "pow",
        *VECTOR_NAMES,
        *(f"atomic_{op}" for op in ATOMICS),
        "shared_add",  # an atomic on a workgroup's array, also for our own kernels
    )
}
# The ones that kernels may name without an import, as they do the builtins.
BARE: dict[str, Builtin | Construct] = {**BUILTINS, **{n: CONSTRUCTS[n] for n in ("bitcast", *VECTOR_NAMES)}}

# Host functions that mean a builtin under another name. NumPy's reductions (np.min, np.any, ...)
# take arrays and mean nothing here.
_ALIASES: dict[str, tuple[Any, ...]] = {
    "asin": (np.arcsin,),
    "acos": (np.arccos,),
    "atan": (np.arctan,),
    "atan2": (np.arctan2,),
    "round": (np.rint, np.round),
    "abs": (np.abs,),
    "min": (np.minimum, np.fmin),
    "max": (np.maximum, np.fmax),
}
_SKIPPED = {(np, name) for name in ("any", "all", "min", "max", "round")}


def _meanings() -> dict[int, Builtin | Construct]:
    """What the host's functions mean in a kernel, by identity."""
    found: dict[int, Builtin | Construct] = {}
    for name, builtin in BUILTINS.items():
        candidates = [getattr(m, name, None) for m in (builtins, math, np) if (m, name) not in _SKIPPED]
        for candidate in (*candidates, *_ALIASES.get(name, ()), builtin):
            if candidate is not None:
                found[id(candidate)] = builtin
    for construct in CONSTRUCTS.values():
        found[id(construct)] = construct
    for power in (builtins.pow, math.pow, np.power):
        found[id(power)] = CONSTRUCTS["pow"]
    return found


_MEANINGS = _meanings()

# Numbers that read as literals where the math module or NumPy names them.
NUMBERS: dict[str, float] = {
    "pi": math.pi,
    "e": math.e,
    "tau": math.tau,
    "inf": math.inf,
    "nan": math.nan,
}


def meaning_of(value: object) -> Builtin | Construct | None:
    """What a host object means in a kernel: ``tack.sin``, ``math.sin``, ``np.sin``, ``abs``."""
    return _MEANINGS.get(id(value))
