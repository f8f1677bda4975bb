"""The ten scalar types, how they promote, and how NumPy's names map to them; vectors and matrices of them."""

from __future__ import annotations

import math
import operator
from typing import Any, Final, SupportsIndex, TypeAlias, final

import numpy as np

__all__ = [
    "ALL_DTYPES",
    "DType",
    "ElementType",
    "VectorType",
    "as_dtype",
    "as_element_type",
    "dvec2",
    "dvec3",
    "dvec4",
    "f32",
    "f64",
    "i8",
    "i16",
    "i32",
    "i64",
    "integer_dtype_of",
    "ivec2",
    "ivec3",
    "ivec4",
    "mat2",
    "mat3",
    "mat4",
    "matrix",
    "promote",
    "u8",
    "u16",
    "u32",
    "u64",
    "vec2",
    "vec3",
    "vec4",
    "vector",
]


@final
class DType:
    """A scalar type. There is one object per type, so ``is`` compares them.

    Attributes:
        name: ``"f32"``, as written in ``tack.f32``.
        kind: ``"i"`` signed, ``"u"`` unsigned, ``"f"`` floating.
        bits: width in bits; ``itemsize`` is the same in bytes.
        numpy: the NumPy dtype with the same layout.
        min, max: the range of an integer type (0 for floats, which need none).
    """

    __slots__ = ("_hash", "bits", "is_float", "itemsize", "kind", "max", "min", "name", "numpy")

    def __init__(self, kind: str, bits: int) -> None:
        self.name = f"{kind}{bits}"
        self.kind = kind
        self.bits = bits
        self.itemsize = bits // 8
        self.is_float = kind == "f"
        self.numpy = np.dtype(f"{kind}{bits // 8}")
        self.min = -(1 << (bits - 1)) if kind == "i" else 0
        self.max = {"i": (1 << (bits - 1)) - 1, "u": (1 << bits) - 1, "f": 0}[kind]
        self._hash = hash(self.numpy)

    def __repr__(self) -> str:
        return f"tack.{self.name}"

    def __str__(self) -> str:
        return self.name

    def __eq__(self, other: object) -> bool:
        if isinstance(other, DType):
            return self is other
        if other is None:  # NumPy reads None as float64
            return False
        try:
            return bool(self.numpy == other)
        except TypeError:
            return False

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> str:
        return self.name

    def __call__(self, *_: object) -> Any:
        raise TypeError(
            f"{self!r}(...) converts values inside kernels; on the host use numpy.{self.numpy.name}(...)"
        )

    @property
    def scalar(self) -> DType:
        """The type of the components of an element: itself, as an element is one number."""
        return self

    @property
    def components(self) -> tuple[int, ...]:
        """The shape of an element, ``()``."""
        return ()

    @property
    def is_integer(self) -> bool:
        return not self.is_float

    @property
    def is_signed(self) -> bool:
        return self.kind == "i"

    def wrap(self, value: int) -> int:
        """The integer that this integer type stores for ``value``: its low bits, two's complement."""
        value &= (1 << self.bits) - 1
        return value - (1 << self.bits) if value > self.max else value

    def holds(self, value: int) -> bool:
        """Whether this integer type represents ``value`` exactly."""
        return self.min <= value <= self.max

    def saturate(self, value: float) -> int:
        """``value`` converted to this integer type: truncated, saturated, NaN gives 0."""
        if math.isnan(value):
            return 0
        if math.isinf(value):
            return self.max if value > 0 else self.min
        return max(self.min, min(self.max, int(value)))


i8: Final = DType("i", 8)
u8: Final = DType("u", 8)
i16: Final = DType("i", 16)
u16: Final = DType("u", 16)
i32: Final = DType("i", 32)
u32: Final = DType("u", 32)
i64: Final = DType("i", 64)
u64: Final = DType("u", 64)
f32: Final = DType("f", 32)
f64: Final = DType("f", 64)

ALL_DTYPES: Final = (i8, u8, i16, u16, i32, u32, i64, u64, f32, f64)
_BY_NUMPY: Final = {(d.numpy.kind, d.itemsize): d for d in ALL_DTYPES}
_BY_NAME: Final = {d.name: d for d in ALL_DTYPES}
_SIGNED: Final = {d.bits: d for d in ALL_DTYPES if d.kind == "i"}
_ACCEPTED: Final = ", ".join(d.numpy.name for d in ALL_DTYPES)


def as_dtype(spec: object) -> DType:
    """The Tack dtype that ``spec`` names: a Tack dtype, a NumPy dtype or scalar type, or a name.

    Raises:
        TypeError: ``spec`` names no dtype, one that Tack lacks, or is ``"i8"``/``"u8"``, which
            mean 64 bits to NumPy and 8 bits here.
    """
    if isinstance(spec, DType):
        return spec
    if isinstance(spec, VectorType):
        raise TypeError(f"{spec!r} is a vector type; a scalar dtype is needed here, such as {spec.dtype!r}")
    if spec is None:
        raise TypeError(f"None is not a dtype; accepted: {_ACCEPTED}")
    if isinstance(spec, str):
        if spec in ("i8", "u8"):
            sign = "int" if spec == "i8" else "uint"
            raise TypeError(
                f'dtype "{spec}" is ambiguous: NumPy reads 64 bits, Tack 8; '
                f'write tack.{spec} or "{sign}8" for 8 bits, "{sign}64" for 64'
            )
        if spec in _BY_NAME:
            return _BY_NAME[spec]
    try:
        dtype = np.dtype(spec)  # type: ignore[call-overload]
    except (TypeError, ValueError):  # ValueError: an object whose attribute ``dtype`` is none
        raise TypeError(f"{spec!r} is not a dtype; accepted: {_ACCEPTED}") from None
    found = _BY_NUMPY.get((dtype.kind, dtype.itemsize))
    if found is None or dtype.subdtype is not None:
        raise TypeError(f"dtype {dtype} has no Tack type; accepted: {_ACCEPTED}")
    if not dtype.isnative:
        fix = f"convert with .astype({found.numpy.name!r})"
        raise TypeError(f"dtype {dtype.str} is not in this machine's byte order; {fix}")
    return found


def promote(a: DType, b: DType) -> DType | None:
    """The type that arithmetic on ``a`` and ``b`` takes, or None for a signed type beside u64."""
    if a is b:
        return a
    if a.is_float or b.is_float:
        return f64 if f64 in (a, b) else f32
    if a.kind == b.kind:
        return a if a.bits >= b.bits else b
    signed, unsigned = (a, b) if a.kind == "i" else (b, a)
    return _SIGNED.get(max(signed.bits, 2 * unsigned.bits))


def integer_dtype_of(value: int) -> DType | None:
    """The type of an int literal or scalar argument: the first of i32, i64, u64 that holds it."""
    for dtype in (i32, i64, u64):
        if dtype.holds(value):
            return dtype
    return None


@final
class VectorType:
    """A vector or matrix of scalars as an element type and, in kernels, a constructor.

    Made by `vector` and `matrix`, one object per type, so ``is`` compares them.

    Attributes:
        dtype: the scalar type of the components.
        shape: ``(n,)`` of a vector, ``(n, m)`` of a matrix of n rows.
        size: the number of components; ``itemsize`` is their size in bytes.
        numpy: the NumPy dtype with the same layout, a subarray dtype.
    """

    __slots__ = ("dtype", "itemsize", "name", "numpy", "shape", "size")

    def __init__(self, name: str, dtype: DType, shape: tuple[int, ...]) -> None:
        self.name = name
        self.dtype = dtype
        self.shape = shape
        self.size = math.prod(shape)
        self.itemsize = self.size * dtype.itemsize
        self.numpy = np.dtype((dtype.numpy, shape))

    def __repr__(self) -> str:
        return f"tack.{self.name}"

    def __str__(self) -> str:
        return self.name

    def __reduce__(self) -> Any:
        return (matrix if len(self.shape) == 2 else vector), (*self.shape, self.dtype)

    def __call__(self, *_: object) -> Any:
        raise TypeError(
            f"{self!r}(...) makes values inside kernels; on the host use a NumPy array of shape {self.shape}"
        )

    @property
    def scalar(self) -> DType:
        """The type of the components, as `DType.scalar`."""
        return self.dtype

    @property
    def components(self) -> tuple[int, ...]:
        """The shape of an element, as `DType.components`."""
        return self.shape

    def with_scalar(self, dtype: DType) -> VectorType:
        """The type of as many components of another scalar type."""
        return _vector_type(dtype, self.shape)

    def identity(self) -> Any:
        """The identity matrix, in kernels."""
        raise TypeError(
            f"{self!r}.identity() makes a value inside kernels; on the host use np.eye({self.shape[0]})"
        )


_SHORT: dict[tuple[DType, tuple[int, ...]], str] = {
    **{(d, (n,)): f"{p}vec{n}" for p, d in (("", f32), ("i", i32), ("d", f64)) for n in (2, 3, 4)},
    **{(f32, (n, n)): f"mat{n}" for n in (2, 3, 4)},
}
_VECTOR_TYPES: dict[tuple[DType, tuple[int, ...]], VectorType] = {}


def _vector_type(dtype: DType, shape: tuple[int, ...]) -> VectorType:
    kind = "vector" if len(shape) == 1 else "matrix"
    name = _SHORT.get((dtype, shape)) or f"{kind}({', '.join(map(str, shape))}, {dtype})"
    return _VECTOR_TYPES.setdefault((dtype, shape), VectorType(name, dtype, shape))


def vector(n: SupportsIndex, dtype: object) -> VectorType:
    """The type of vectors of ``n`` components, 1 to 16, of a scalar ``dtype``.

    Raises:
        TypeError: ``n`` is not an integer, or ``dtype`` no scalar dtype.
        ValueError: ``n`` is out of range.
    """
    return _vector_type(as_dtype(dtype), (_extent(n, 16),))


def matrix(n: SupportsIndex, m: SupportsIndex, dtype: object) -> VectorType:
    """The type of matrices of ``n`` rows and ``m`` columns, 1 to 4 each, of a scalar ``dtype``.

    Raises:
        TypeError: ``n`` or ``m`` is not an integer, or ``dtype`` no scalar dtype.
        ValueError: ``n`` or ``m`` is out of range.
    """
    return _vector_type(as_dtype(dtype), (_extent(n, 4), _extent(m, 4)))


def _extent(n: object, most: int) -> int:
    try:
        extent = operator.index(n)  # type: ignore[arg-type]
    except TypeError:
        extent = None
    if extent is None or isinstance(n, bool):
        raise TypeError(f"the size of a vector or matrix is an int, not {type(n).__name__}")
    if not 1 <= extent <= most:
        raise ValueError(f"the size of a vector or matrix is between 1 and {most}, not {extent}")
    return extent


vec2: Final = vector(2, f32)
vec3: Final = vector(3, f32)
vec4: Final = vector(4, f32)
ivec2: Final = vector(2, i32)
ivec3: Final = vector(3, i32)
ivec4: Final = vector(4, i32)
dvec2: Final = vector(2, f64)
dvec3: Final = vector(3, f64)
dvec4: Final = vector(4, f64)
mat2: Final = matrix(2, 2, f32)
mat3: Final = matrix(3, 3, f32)
mat4: Final = matrix(4, 4, f32)

_SHORT_NAMES: Final = {kind.name: kind for kind in _VECTOR_TYPES.values()}

ElementType: TypeAlias = DType | VectorType


def as_element_type(spec: object) -> ElementType:
    """The type of array elements that ``spec`` names: all that `as_dtype` takes, or a vector or matrix type.

    The short names of vector types, such as ``"vec3"``, count as names. Raises as `as_dtype` does.
    """
    if isinstance(spec, VectorType):
        return spec
    if isinstance(spec, str) and spec in _SHORT_NAMES:
        return _SHORT_NAMES[spec]
    return as_dtype(spec)
