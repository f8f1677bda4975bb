"""Generated calls: what is passed to kernels, and what happens to it between the calls.

All arrays of a run are views of one block of memory, so that they overlap now and then, and so that a
call can be made twice with the same memory.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np

import tack

BYTES = 4096
DTYPES = (
    np.int8,
    np.uint8,
    np.int16,
    np.uint16,
    np.int32,
    np.uint32,
    np.int64,
    np.uint64,
    np.float32,
    np.float64,
)
OTHERS = (np.float16, np.bool_, np.complex64, np.dtype(">f4"), np.dtype(">i4"))
SHAPES = ((4,), (5,), (0,), (2, 3), (3, 2), (2, 0), (2, 3, 2), (1,), ())
INTEGERS = (
    0,
    1,
    -1,
    127,
    128,
    -129,
    2**15,
    2**31 - 1,
    2**31,
    -(2**31),
    -(2**31) - 1,
    2**40,
    2**63,
    2**64 - 1,
)
WIDE = (-(2**63), 2**64, -(2**63) - 1, 10**30)
FLOATS = (0.0, -0.0, 1.5, -2.25, float("nan"), float("inf"), 1e300, 1e-300)


@tack.device_class
class Part:
    """Instances of it change from call to call, and so do its constants."""

    SCALE = 2

    def __init__(self, x: Any, a: Any) -> None:
        self.x = x
        self.a = a


@tack.device_class
class Whole(Part):
    OFFSET = 0.5

    def __init__(self, x: Any, a: Any, part: Any) -> None:
        super().__init__(x, a)
        self.part = part
        self._hidden = "not looked at"


@tack.kernel
def add(x, out):
    for i in range(min(x.size, out.size)):
        out[i] = x[i] + out[i]


@tack.kernel
def scale(x, a, b=2, /, c=1.5, *, d=3):
    for i in range(x.size):
        x[i] = x[i] * a + b * c - d


@tack.kernel
def pinned(x, n: tack.i16, f: tack.f32):
    for i in range(min(x.size, 3)):
        x[i] = n + f


@tack.kernel
def extents(x, out):
    for i in range(min(x.size, out.size)):
        out[i] = x[i] + x.shape[-1] * 10 + x.ndim


@tack.kernel
def rows(x, out):
    for i, j in tack.ndindex(min(x.shape[0], out.size * 4), min(x.shape[1], 2)):
        out[0] = out[0] + x[i, j]


@tack.kernel
def bound(x, n, m):
    for i in range(max(n // m, 0) - min(n, -1) * 0 + 0 * m, min(x.size, n * m)):
        x[i] = x[i] + 1


@tack.kernel
def count(x, out):
    for i in range(x.size * min(out.size, 1)):
        tack.atomic_add(out, 0, x[i])


@tack.kernel
def total(x, a) -> tack.f64:
    for i in range(min(x.size, 1)):
        x[i] = a
    return a + x.ndim


@tack.kernel
def whole(x, a) -> tack.u16:
    for i in range(min(x.size, 1)):
        x[i] = 1
    return a


@tack.kernel
def attributes(p, out):
    for i in range(min(p.x.size, out.size)):
        out[i] = p.x[i] * p.a + p.SCALE


@tack.kernel
def nested(w, p, out):
    for i in range(min(w.part.x.size, out.size)):
        out[i] = w.part.x[i] * w.a + p.a * w.OFFSET + w.part.SCALE


@tack.kernel
def sampled(t, out):
    for i in range(min(out.size, 4)):
        out[i] = t.sample(0.25 * i, 0.5, 0.5)


@tack.kernel
def lengths(v, out):
    for i in range(min(v.size, out.size)):
        out[i] = v[i][0] + v[i][1]


@tack.kernel
def whole_groups(x, n):
    for i in range(n * 0 + x.size * 128):
        tack.barrier()
        if i < 1:
            x[0] = n


class Calls:
    """A reproducible sequence of calls."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.memory = np.zeros(BYTES, np.uint8)
        self.refill()
        self.textures = [tack.Texture3D(np.arange(n, dtype=np.float32).reshape(1, 2, n // 2)) for n in (4, 8)]
        self.arrays: list[Any] = [self.array() for _ in range(40)]
        self.vectors = [self.vector() for _ in range(6)]
        self.parts = [Part(self.any_array(), self.scalar()) for _ in range(3)]
        self.wholes = [Whole(self.any_array(), self.scalar(), p) for p in self.parts[:2]]

    def refill(self) -> None:
        self.memory[:] = np.frombuffer(self.random.randbytes(BYTES), np.uint8) & 0x3F

    def array(self) -> Any:
        """An array of one of many kinds; few of the odd ones."""
        choose = self.random.choice
        dtype = np.dtype(choose(DTYPES if self.random.random() < 0.93 else OTHERS))
        shape = choose(SHAPES)
        step = choose((8, 8, 8, 8, 4, 1))  # a multiple of 8 is aligned for every dtype
        values = np.ndarray(shape, dtype, self.memory, step * self.random.randrange(64))
        odd = self.random.random()
        if odd < 0.06:
            values = values.T if values.ndim != 1 else values[::2]
        elif odd < 0.12:
            values.flags.writeable = False
        if self.random.random() < 0.5 or odd < 0.02:
            return values
        try:
            return tack.asarray(values)
        except (TypeError, ValueError):
            return values

    def vector(self) -> tack.Array:
        """An array of vectors, over the same memory as the others."""
        kind = self.random.choice((tack.vec2, tack.vec3, tack.ivec2, tack.dvec2, tack.mat2))
        values = np.ndarray(
            (2, *kind.components), kind.scalar.numpy, self.memory, 8 * self.random.randrange(64)
        )
        return tack.asarray(values, dtype=kind)

    def any_array(self) -> Any:
        return self.random.choice([a for a in self.arrays if isinstance(a, tack.Array)])

    def scalar(self) -> Any:
        choose = self.random.choice
        kind = self.random.random()
        if kind < 0.35:
            return choose(INTEGERS)
        if kind < 0.65:
            return choose(FLOATS)
        if kind < 0.7:
            return choose((True, False))
        if kind < 0.95:
            with np.errstate(all="ignore"):
                return np.array(choose((0, 1, 100, 3.5))).astype(choose((*DTYPES, np.float16, np.bool_)))[()]
        return choose((*WIDE, None, "text", 1j, (1, 2), np.zeros(()), np.complex64(1), tack.constant(3)))

    def argument(self, wanted: str) -> Any:
        """What the kernel asks for, or now and then anything else."""
        kind = wanted if self.random.random() < 0.96 else self.random.choice("aspwtv")
        pools = {"a": self.arrays, "p": self.parts, "w": self.wholes, "t": self.textures, "v": self.vectors}
        return self.random.choice(pools[kind]) if kind in pools else self.scalar()

    def call(self) -> tuple[tack.Kernel, tuple[Any, ...], dict[str, Any]]:
        kernel, wanted = self.random.choice(KERNELS)
        args = [self.argument(kind) for kind in wanted]
        chance = self.random.random()
        if chance < 0.02:
            args = args[:-1]
        elif chance < 0.04:
            args.append(1)
        if kernel is scale:
            return kernel, (*args[:2], *args[2:3][: self.random.randrange(2)]), self.keywords()
        if chance < 0.1:
            named = dict(zip(kernel.params[1:], args[1:], strict=False))
            return kernel, tuple(args[:1]), named
        return kernel, tuple(args), {}

    def keywords(self) -> dict[str, Any]:
        found = {name: self.scalar() for name in "cd" if self.random.random() < 0.4}
        if self.random.random() < 0.05:
            found[self.random.choice(("a", "b", "x", "unknown"))] = 1
        return found

    def change(self) -> Callable[[], None] | None:
        """Something that happens between two calls; what it returns undoes it."""
        event = self.random.random()
        part = self.random.choice([*self.parts, *self.wholes])
        if event < 0.2:
            part.a = self.scalar() if self.random.random() < 0.9 else self.any_array()
        elif event < 0.3:
            part.x = self.any_array() if self.random.random() < 0.8 else self.scalar()
        elif event < 0.4:
            name = self.random.choice(("a", "extra", "note", "SCALE"))
            if self.random.random() < 0.5:
                setattr(part, name, self.random.choice((1, 2.5, "text", None)))
            elif name in vars(part):
                delattr(part, name)
        elif event < 0.45:
            self.random.choice((Part, Whole)).SCALE = self.random.choice((2, 3, 2.0, 0.5, True))  # type: ignore[misc]
        elif event < 0.48:
            Whole.OFFSET = self.random.choice((0.5, 1.5, -0.0, 0.0))
        elif event < 0.5 and "SCALE" in vars(Whole):
            del Whole.SCALE
        elif event < 0.52:
            self.random.choice(self.wholes).part = self.random.choice(self.parts)
        elif event < 0.54:
            tack.set_debug(True)
            return lambda: tack.set_debug(False)
        elif event < 0.56:
            device = tack.device("cpu", num_threads=1)
            device.__enter__()
            return lambda: device.__exit__(None, None, None)
        return None


KERNELS = (
    *((add, "aa"), (scale, "ass"), (pinned, "ass"), (extents, "aa"), (rows, "aa"), (bound, "ass")),
    *((count, "aa"), (total, "as"), (attributes, "pa"), (nested, "wpa"), (sampled, "ta"), (lengths, "va")),
    *((attributes, "wa"), (whole_groups, "as"), (whole, "as")),
)
