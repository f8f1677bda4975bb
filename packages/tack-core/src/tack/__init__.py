"""Tack: Python functions compiled to fast parallel kernels.

Everything public is a name of this module. The other imports (with an underscore) are of what every call
needs, so that a first call has to load only the compiler, or, of a kernel in the disk cache, nothing.
"""

import os as _os
import sys as _sys
from typing import TYPE_CHECKING

from tack.constants import constant as constant
from tack.dtypes import DType as DType
from tack.dtypes import VectorType as VectorType
from tack.dtypes import dvec2 as dvec2
from tack.dtypes import dvec3 as dvec3
from tack.dtypes import dvec4 as dvec4
from tack.dtypes import f32 as f32
from tack.dtypes import f64 as f64
from tack.dtypes import i8 as i8
from tack.dtypes import i16 as i16
from tack.dtypes import i32 as i32
from tack.dtypes import i64 as i64
from tack.dtypes import ivec2 as ivec2
from tack.dtypes import ivec3 as ivec3
from tack.dtypes import ivec4 as ivec4
from tack.dtypes import mat2 as mat2
from tack.dtypes import mat3 as mat3
from tack.dtypes import mat4 as mat4
from tack.dtypes import matrix as matrix
from tack.dtypes import u8 as u8
from tack.dtypes import u16 as u16
from tack.dtypes import u32 as u32
from tack.dtypes import u64 as u64
from tack.dtypes import vec2 as vec2
from tack.dtypes import vec3 as vec3
from tack.dtypes import vec4 as vec4
from tack.dtypes import vector as vector
from tack.errors import CacheWarning as CacheWarning
from tack.errors import UnsupportedSyntaxError as UnsupportedSyntaxError
from tack.lang.builtins import BUILTINS, CONSTRUCTS
from tack.lang.device_class import device_class as device_class
from tack.lang.kernel import Func as Func
from tack.lang.kernel import Kernel as Kernel
from tack.lang.kernel import func as func
from tack.lang.kernel import kernel as kernel
from tack.runtime import launch as _launch  # noqa: F401
from tack.runtime.array import Array as Array
from tack.runtime.cpu import backend as _backend  # noqa: F401
from tack.runtime.creation import arange as arange
from tack.runtime.creation import asarray as asarray
from tack.runtime.creation import concat as concat
from tack.runtime.creation import copyto as copyto
from tack.runtime.creation import empty as empty
from tack.runtime.creation import empty_like as empty_like
from tack.runtime.creation import full as full
from tack.runtime.creation import full_like as full_like
from tack.runtime.creation import linspace as linspace
from tack.runtime.creation import ones as ones
from tack.runtime.creation import ones_like as ones_like
from tack.runtime.creation import zeros as zeros
from tack.runtime.creation import zeros_like as zeros_like
from tack.runtime.device import Device as Device
from tack.runtime.disk import templates as _templates  # noqa: F401
from tack.runtime.disk import variants as _variants  # noqa: F401
from tack.runtime.dispatch import DeviceStatus as DeviceStatus
from tack.runtime.dispatch import default_device as default_device
from tack.runtime.dispatch import device as device
from tack.runtime.dispatch import devices as devices
from tack.runtime.dispatch import set_default_device as set_default_device
from tack.runtime.dispatch import sync as sync
from tack.runtime.dispatch import wait as wait
from tack.runtime.interop import array_from_ptr as array_from_ptr
from tack.runtime.interop import from_dlpack as from_dlpack
from tack.runtime.interop import memory_space as memory_space
from tack.runtime.texture import Texture3D as Texture3D

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from tack import algorithms as algorithms
    from tack import cache as cache
    from tack import math as math
    from tack import random as random
    from tack.runtime.graph import Graph
    from tack.runtime.profile import Profile
    from tack.runtime.sharing import SharedMemory as SharedMemory
else:

    def __getattr__(name):
        """Imports a part that only some programs need, when it is first named."""
        import importlib

        if name == "SharedMemory":
            return importlib.import_module("tack.runtime.sharing").SharedMemory
        if name not in ("algorithms", "cache", "math", "random"):
            raise AttributeError(f"module 'tack' has no attribute {name!r}")
        return importlib.import_module(f"tack.{name}")


# Parts of other distributions, such as tack.vis, whose folder is elsewhere on the path if they are installed
# editable. What pkgutil.extend_path does takes 0.5 ms more.
_folders = [_os.path.join(_entry, "tack") for _entry in _sys.path if _entry]
__path__ += [_folder for _folder in _folders if _folder not in __path__ and _os.path.isdir(_folder)]
__version__ = "0.1.0"

# The functions and words of the kernel language.
abs = BUILTINS["abs"]
acos = BUILTINS["acos"]
all = BUILTINS["all"]
any = BUILTINS["any"]
asin = BUILTINS["asin"]
atan = BUILTINS["atan"]
atan2 = BUILTINS["atan2"]
cbrt = BUILTINS["cbrt"]
ceil = BUILTINS["ceil"]
clz = BUILTINS["clz"]
copysign = BUILTINS["copysign"]
cos = BUILTINS["cos"]
cosh = BUILTINS["cosh"]
ctz = BUILTINS["ctz"]
erf = BUILTINS["erf"]
erfc = BUILTINS["erfc"]
exp = BUILTINS["exp"]
exp2 = BUILTINS["exp2"]
expm1 = BUILTINS["expm1"]
floor = BUILTINS["floor"]
fma = BUILTINS["fma"]
fmod = BUILTINS["fmod"]
hypot = BUILTINS["hypot"]
isfinite = BUILTINS["isfinite"]
isinf = BUILTINS["isinf"]
isnan = BUILTINS["isnan"]
log = BUILTINS["log"]
log10 = BUILTINS["log10"]
log1p = BUILTINS["log1p"]
log2 = BUILTINS["log2"]
max = BUILTINS["max"]
min = BUILTINS["min"]
popcount = BUILTINS["popcount"]
round = BUILTINS["round"]
rsqrt = BUILTINS["rsqrt"]
sign = BUILTINS["sign"]
sin = BUILTINS["sin"]
sinh = BUILTINS["sinh"]
sqrt = BUILTINS["sqrt"]
tan = BUILTINS["tan"]
tanh = BUILTINS["tanh"]
trunc = BUILTINS["trunc"]
where = BUILTINS["where"]
atomic_add = CONSTRUCTS["atomic_add"]
atomic_and = CONSTRUCTS["atomic_and"]
atomic_cas = CONSTRUCTS["atomic_cas"]
atomic_exchange = CONSTRUCTS["atomic_exchange"]
atomic_max = CONSTRUCTS["atomic_max"]
atomic_min = CONSTRUCTS["atomic_min"]
atomic_or = CONSTRUCTS["atomic_or"]
atomic_sub = CONSTRUCTS["atomic_sub"]
atomic_xor = CONSTRUCTS["atomic_xor"]
bitcast = CONSTRUCTS["bitcast"]
cross = CONSTRUCTS["cross"]
determinant = CONSTRUCTS["determinant"]
distance = CONSTRUCTS["distance"]
dot = CONSTRUCTS["dot"]
inverse = CONSTRUCTS["inverse"]
length = CONSTRUCTS["length"]
length_sq = CONSTRUCTS["length_sq"]
normalized = CONSTRUCTS["normalized"]
outer = CONSTRUCTS["outer"]
trace = CONSTRUCTS["trace"]
transpose = CONSTRUCTS["transpose"]
barrier = CONSTRUCTS["barrier"]
block_max = CONSTRUCTS["block_max"]
block_min = CONSTRUCTS["block_min"]
block_sum = CONSTRUCTS["block_sum"]
local_array = CONSTRUCTS["local_array"]
ndindex = CONSTRUCTS["ndindex"]
pow = CONSTRUCTS["pow"]
shared = CONSTRUCTS["shared"]
thread_id = CONSTRUCTS["thread_id"]


def set_debug(on: bool = True, *, races: bool = False) -> None:
    """Switches debug mode for the process: launches check every index and every integer divisor.

    The first violation raises `IndexError` or `ZeroDivisionError` once the launch is done, naming the
    kernel, the place in the source, the array, the index, the extent and the iteration. A load out
    of range gives 0; a store or atomic out of range does nothing. ``TACK_DEBUG=1`` starts with it on.

    Args:
        races: also report two iterations that store to one element without an atomic, as
            `RuntimeError` naming both. It takes 8 bytes for each element of each array stored to.
    """
    from tack.runtime.debug import set_debug as switch

    switch(on, races=races)


def capture(device: "str | Device | None" = None) -> "Graph":
    """Records what a ``with`` block launches on a device (the default one), to run it again and again.

    After ``with tack.capture() as graph: ...``, ``graph.launch()`` runs the recorded launches, fills and
    copies between arrays in their order, without Python in between: as a CUDA graph, or on the CPU as a list
    that C goes through. In the block they are checked and compiled, and do not run; everything else acts at
    once. ``graph.calls[k].update(x=other, a=2.0)`` gives the k-th launch other arguments.

    Raises:
        RuntimeError: the device cannot start. In the block: a kernel has a result or prints.
        NotImplementedError: the device has no graphs; in the block.
    """
    from tack.runtime.dispatch import resolve_backend
    from tack.runtime.graph import Graph

    return Graph(resolve_backend(device))


def compile_all(calls: "Iterable[tuple[Any, ...]]") -> None:
    """Compiles kernels for several calls at once, on as many threads as launches on the CPU may use.

    Launches nothing; what is compiled also goes to the disk cache. Returns when all are compiled.

    Args:
        calls: tuples of a kernel and its arguments, which are such as `Kernel.compile` takes:
            ``[(saxpy, x, y, out, 2.0), (blur, ((480, 640), tack.f32), 3)]``.

    Raises:
        TypeError: something else than such a tuple, before anything is compiled.
        TypeError, ValueError, UnsupportedSyntaxError, NameError: as calls would; the first of them, after the
            others have been compiled.
    """
    from tack.runtime.ahead import compile_all as compile_calls

    compile_calls(calls)


def profile() -> "Profile":
    """What launches cost: a context manager that counts and times those inside its block.

    After ``with tack.profile() as p: ...``, ``print(p)`` gives a table with a line for each kernel: launches,
    the time that their code ran (by the clock of the CPU, or of the device that they are queued on), compiles
    and disk-cache hits with their times. ``p.kernels`` and ``p.to_dict()`` are the data. Calls take Python's
    path meanwhile, which is not timed.
    """
    from tack.runtime.profile import Profile

    return Profile()


def inspect(kernel: Kernel, *args: object, mode: str = "source", **kwargs: object) -> str:
    """The text of what a call of ``kernel`` with these arguments would run; nothing is launched.

    Args:
        mode: ``"ir"``, Tack's typed IR; ``"source"``, what the device's compiler is given (LLVM IR
            on the CPU); ``"optimized"`` and ``"asm"``, what that compiler makes of it.

    Raises:
        TypeError: ``kernel`` is not a kernel, or the arguments do not fit it.
        ValueError: an unknown mode.
        UnsupportedSyntaxError, NameError: as a call would.
    """
    from tack.runtime.inspection import inspect as show  # which imports the compiler

    return show(kernel, args, kwargs, mode)
