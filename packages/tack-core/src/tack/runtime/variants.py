"""Variants: the compiled forms of a kernel, and how a call finds its own.

`resolve_variant` is the one way to a variant on every backend. Its key names, in the order of the
reference, all that is baked into the code: the parameters' types, vector widths, template
structure, the extents that the code uses, and whether the written arrays are disjoint.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tack.dtypes import DType, f32, f64, i64, integer_dtype_of
from tack.errors import diagnostic
from tack.lang.device_class import Token, on_retire
from tack.lang.kernel import Elements
from tack.runtime import debug, settings
from tack.runtime.array import Array
from tack.runtime.expand import Expanded, expand, tokens_in
from tack.runtime.facts import TemplateFacts
from tack.runtime.garbage import uncollected
from tack.runtime.profile import note_seconds, note_variant
from tack.runtime.texture import Texture3D
from tack.runtime.workgroups import check_workgroup_support

if TYPE_CHECKING:
    from tack._native import Table
    from tack.ir import nodes as ir
    from tack.lang.kernel import Kernel
    from tack.runtime.backend import Backend
    from tack.runtime.bounds import Bounds, LaunchRange
    from tack.runtime.facts import TemplateParam

__all__ = ["ParamType", "Slot", "Variant", "resolve_variant"]


class ParamType(NamedTuple):
    """One element of a key's ``params``: what a parameter is in this variant."""

    dtype: DType
    is_array: bool
    is_texture: bool = False
    texture_shape: tuple[int, int, int] | None = None


class Key(NamedTuple):
    """The key of a variant among those of its kernel and backend."""

    params: tuple[ParamType, ...]
    vectors: Elements
    template: Any
    shapes: tuple[int, ...]
    disjoint: bool


# Of a typed kernel, what `Variant` calls written, aligned and requires_full_workgroups.
VariantFacts = tuple[tuple[tuple[int, str], ...], tuple[tuple[int, str, int], ...], bool]


class Variant:
    """One compiled form of a kernel.

    Attributes:
        key: what it was compiled for.
        ir: the typed kernel.
        payload: what the backend's build function made of it.
        written: position and name of each array parameter that it may store to.
        aligned: position, name and alignment of each array parameter that it updates atomically.
        bounds: gives the launch range for a call's arguments.
        requires_full_workgroups: whether the iterations of every launch must be a multiple of 256.
        from_disk: whether it was read from the disk cache.
        seconds: what it took to compile or read it, lowering its template included if that was needed.
    """

    __slots__ = (
        *("_ir", "_read", "aligned", "bounds", "from_disk", "key", "payload", "requires_full_workgroups"),
        *("seconds", "written"),
    )

    def __init__(
        self,
        key: Key,
        payload: Any,
        bounds: Bounds,
        facts: VariantFacts,
        kernel: ir.Kernel | None = None,
        read: Callable[[], ir.Kernel] | None = None,
        from_disk: bool = False,
    ) -> None:
        """With the typed kernel, or with what reads it when it is first asked for."""
        self.key = key
        self.payload = payload
        self.bounds = bounds
        self.written, self.aligned, self.requires_full_workgroups = facts
        self._ir = kernel
        self._read = read
        self.from_disk = from_disk
        self.seconds = 0.0

    @property
    def ir(self) -> ir.Kernel:
        if self._ir is None:
            assert self._read is not None
            self._ir, self._read = self._read(), None
        return self._ir

    def launch_range(self, args: Sequence[Any]) -> LaunchRange:
        """Start, step and count of each dimension of the parallel loop.

        Raises:
            TypeError: an extent in the bound that this call's array does not have.
            ValueError: a step that is not positive.
            ZeroDivisionError: the bound divides by zero.
        """
        try:
            return self.bounds(args)
        except IndexError:
            from tack.ir import nodes as ir
            from tack.runtime.bounds import check_bound_types

            types = {
                p.name: ir.Array(a.scalar, len(a.shape)) if type(a) is Array else p.type
                for p, a in zip(self.ir.params, args, strict=True)
            }
            check_bound_types(self.ir, types)
            raise


class Slot:
    """A backend's variants of one kernel, and its template's facts.

    ``lock`` is held while a variant is built, so that of threads that miss at once one compiles.
    """

    __slots__ = ("facts", "lock", "signatures", "table", "variants")

    def __init__(self) -> None:
        self.lock = threading.RLock()  # a signal handler may call the kernel that it interrupted
        self.facts: dict[tuple[Elements, Any], TemplateFacts] = {}
        self.variants: dict[Key, Variant] = {}
        # Call signatures that were seen, with the variants they resolved to, by disjointness.
        self.signatures: dict[Any, list[Variant | None]] = {}
        self.table: Table | None = None  # the same for the native dispatcher, once it learned a call


_MAX_SIGNATURES = 256
LONG_COMPILE = 2.0  # seconds, from which on a compile is logged in any case


# --- arguments --------------------------------------------------------------------------------


def accept(kernel: Kernel, facts: TemplateFacts, backend: Backend, args: Sequence[Any]) -> list[Any]:
    """The arguments as arrays of the backend and Python numbers.

    Raises:
        TypeError, ValueError: an argument that no parameter can take, named.
    """
    accepted: list[Any] = []
    for position, arg in enumerate(args):
        kind = type(arg)
        if (kind is Texture3D) is not facts.textures[position]:
            _check_texture(kernel, facts, position, arg)
        if kind is Texture3D:
            accepted.append(arg.storage)
        elif kind is Array or kind is float or kind is int:
            accepted.append(arg)
        elif isinstance(arg, (int, np.integer, np.bool_)):
            accepted.append(int(arg))
        elif isinstance(arg, (float, np.floating)):
            accepted.append(float(arg))
        elif isinstance(arg, np.ndarray) and arg.ndim == 0 and position not in facts.arrays:
            accepted += accept(kernel, facts, backend, [arg[()]])
        else:
            accepted.append(_as_array(kernel, facts.names[position], arg, backend))
    return accepted


def _check_texture(kernel: Kernel, facts: TemplateFacts, position: int, arg: Any) -> None:
    """TypeError if a texture is used as an array, or something else is sampled."""
    name = facts.names[position]
    if facts.textures[position]:
        message = f"argument '{name}' is sampled and must be a tack.Texture3D, not {type(arg).__name__}"
        raise TypeError(f"kernel '{kernel.__name__}': {message}")
    if position in facts.arrays:
        message = f"argument '{name}' is a texture, which is read with {name}.sample(u, v, w) only"
        raise TypeError(f"kernel '{kernel.__name__}': {message}")


def _as_array(kernel: Kernel, name: str, arg: Any, backend: Backend) -> Array:
    from tack.runtime.interop import as_argument

    try:
        array = as_argument(arg, backend)
    except (TypeError, ValueError) as error:
        raise type(error)(f"kernel '{kernel.__name__}': argument '{name}': {error}") from None
    if array is None:
        raise TypeError(
            f"kernel '{kernel.__name__}': argument '{name}' is {type(arg).__name__}; "
            "kernels take tack.Array, NumPy arrays, int, float and bool"
        )
    return array


def param_types(
    kernel: Kernel, facts: TemplateFacts, backend: Backend, args: Sequence[Any]
) -> tuple[ParamType, ...]:
    """The types that the arguments give the parameters.

    Raises:
        TypeError: an integer past u64, a dtype that the device lacks, or not what a pin asks for.
        OverflowError: an integer outside the range of a pinned dtype.
    """
    real = f64 if any(type(a) is Array and a.scalar is f64 for a in args) else f32
    types = []
    for param, arg in zip(facts.params, args, strict=True):
        if type(arg) is Array:
            dtype = arg.scalar
            if dtype not in backend.dtype_set:
                message = backend.lacks(dtype, f" for '{param.name}'")
                raise TypeError(f"kernel '{kernel.__name__}': {message}")
            if param.pinned is not None:
                message = (
                    f"'{param.name}' is annotated {param.pinned}, a number, and the call passes an array"
                )
                raise diagnostic(TypeError, message, param.loc)
            if facts.textures[param.position]:  # it is the storage, whose axes are in NumPy's order
                depth, height, width = arg.shape
                types.append(ParamType(dtype, True, True, (width, height, depth)))
            else:
                types.append(ParamType(dtype, True))
        elif param.pinned is not None:
            types.append(ParamType(_pinned(param, arg), False))
        elif type(arg) is int:
            found = integer_dtype_of(arg)
            if found is None:
                message = f"argument '{param.name}' is {arg}, which fits neither i64 nor u64"
                raise TypeError(f"kernel '{kernel.__name__}': {message}")
            types.append(ParamType(found, False))
        else:
            types.append(ParamType(real, False))
    return tuple(types)


def _pinned(param: TemplateParam, arg: int | float) -> DType:
    dtype = param.pinned
    assert dtype is not None
    if dtype.is_integer:
        if isinstance(arg, float):
            message = f"'{param.name}' is annotated {dtype}, and the call passes the float {arg!r}"
            raise diagnostic(TypeError, message, param.loc, hint="convert it: int(...)")
        if not dtype.holds(arg):
            message = (
                f"'{param.name}' is annotated {dtype} ({dtype.min} to {dtype.max}), and the call passes {arg}"
            )
            raise diagnostic(OverflowError, message, param.loc)
    return dtype


def shape_signature(facts: TemplateFacts, args: Sequence[Any]) -> tuple[int, ...]:
    """The extents that generated code will hold, for this call's arrays.

    An access with several indices takes all extents but the first. A fact that the arrays do not
    have is left out: compiling reports it, with its place.
    """
    sizes: list[int] = []
    for position, (_, axis) in facts.needs:
        arg = args[position]
        if type(arg) is not Array:
            continue
        shape = arg.shape
        if axis == "size":
            sizes.append(arg.size)
        elif axis == "ndim" or (isinstance(axis, str) and axis.startswith("indices")):
            sizes.append(len(shape))
            if axis != "ndim":
                sizes.extend(shape[1:])
        else:
            axis = 0 if axis == "len" else axis
            assert isinstance(axis, int)
            sizes.append(shape[axis] if -len(shape) <= axis < len(shape) else -1)
    return tuple(sizes)


def arrays_disjoint(written: Sequence[int], args: Sequence[Any]) -> bool:
    """Whether no array that the kernel writes shares memory with another array of the call."""
    spans = [(a._span, k) for k, a in enumerate(args) if type(a) is Array]
    for k in written:
        if type(args[k]) is not Array:
            continue
        low, high = args[k]._span
        for (other_low, other_high), other in spans:
            if other != k and low < other_high and other_low < high:
                return False
    return True


# --- resolving --------------------------------------------------------------------------------

Build = Callable[["ir.Kernel", bool], Any]


def slot_of(backend: Backend, kernel: Kernel) -> Slot:
    """The backend's slot of a kernel, made at its first call."""
    slot = backend.cache.get(kernel)
    if slot is None:
        slot = backend.cache.setdefault(kernel, Slot())
    return slot


def facts_of(backend: Backend, slot: Slot, kernel: Kernel, call: Expanded) -> TemplateFacts:
    """The facts of the template for a call, which is made if need be."""
    key = (call.elements, call.key)
    facts = slot.facts.get(key)
    if facts is None:
        start = perf_counter()
        try:
            with uncollected():
                facts = TemplateFacts(kernel.lowered(call.elements, call.key, call.layouts))
        except Exception as error:
            _note_failure(backend, kernel, error)
            raise
        facts.seconds = perf_counter() - start
        slot.facts[key] = facts  # before it is logged, since a handler may call the kernel
        if facts.lowered.from_disk and settings.logs():
            from tack.runtime.compile_log import template_read

            template_read(kernel, facts.seconds)
    return facts


def _drop(token: Token) -> None:
    """Forgets what was compiled for a device class that has been collected."""
    from tack.runtime.dispatch import backends

    def stale(key: Any) -> bool:
        return token in tokens_in(key)

    for kernel in list(token.kernels):
        kernel.drop_templates(stale)
        for backend in backends():
            slot = backend.cache.get(kernel)
            if slot is not None:
                # Lists, since other threads may add to these meanwhile.
                slot.facts = {k: v for k, v in list(slot.facts.items()) if k[1] is None or not stale(k[1])}
                variants = list(slot.variants.items())
                slot.variants = {k: v for k, v in variants if not stale(k.template or ())}
                slot.signatures.clear()
                if slot.table is not None:
                    slot.table.clear()


on_retire(_drop)


def resolve_variant(
    backend: Backend,
    kernel: Kernel,
    args: Sequence[Any],
    build: Build,
) -> tuple[Variant, list[Any]]:
    """The variant for a call, built if it is the first of its kind, and the accepted arguments.

    ``build`` makes the payload from the typed kernel and the disjoint bit. Where the backend
    specializes on it, calls whose written arrays overlap no other get a variant of their own.
    """
    slot = slot_of(backend, kernel)
    call = expand(kernel, args)
    facts = facts_of(backend, slot, kernel, call)
    check_workgroup_support(kernel, facts.primitives, backend, RuntimeError)
    accepted = accept(kernel, facts, backend, call.args)
    for position, param in facts.pinned:  # the range counts, so no signature can vouch for it
        if type(accepted[position]) is not Array:
            _pinned(param, accepted[position])
    disjoint = backend.specializes_disjoint and arrays_disjoint(facts.written, accepted)
    checked = debug.enabled()
    signature = (debug.state(), call.key, *_signature(accepted))
    seen = slot.signatures.get(signature)
    variant = seen[disjoint] if seen is not None else None
    if variant is None:
        key = key_of(backend, kernel, facts, call, accepted, disjoint)
        variant = slot.variants.get(key)
        if variant is None:
            with slot.lock:
                variant = slot.variants.get(key)
                if variant is None:
                    variant = slot.variants[key] = _made(backend, kernel, facts, key, accepted, build)
        if len(slot.signatures) >= _MAX_SIGNATURES:
            slot.signatures.clear()
        slot.signatures.setdefault(signature, [None, None])[disjoint] = variant
    check_call(kernel, variant, accepted)
    if checked:
        accepted += debug.hidden_args(backend, accepted, [facts.positions[name] for name in facts.stored])
    return variant, accepted


def key_of(
    backend: Backend,
    kernel: Kernel,
    facts: TemplateFacts,
    call: Expanded,
    accepted: Sequence[Any],
    disjoint: bool,
) -> Key:
    """The key of the variant for a call. Raises as `param_types` does."""
    types = param_types(kernel, facts, backend, accepted)
    shapes = shape_signature(facts, accepted)
    if debug.enabled():  # hidden parameters, and where the checks find an array's extents in them
        types = (*types, *(ParamType(i64, True) for _ in debug.hidden_names(facts.stored)))
        shapes += tuple(len(a.shape) for a in accepted if type(a) is Array)
    return Key(types, call.elements, call.key, shapes, disjoint)


def _made(
    backend: Backend, kernel: Kernel, facts: TemplateFacts, key: Key, args: Sequence[Any], build: Build
) -> Variant:
    """The variant from the disk cache, or built and stored there; logged if it is to be."""
    from tack.runtime.disk import variants as stored

    logs = settings.logs()  # a bad setting raises before anything is compiled
    start = perf_counter()
    variant = stored.load(backend, facts, key, args)
    times = {"front end": facts.seconds}
    if variant is None:
        try:
            with uncollected():
                variant = _built(backend, kernel, facts, key, args, build, times)
        except Exception as error:
            _note_failure(backend, kernel, error)
            raise
    variant.seconds = perf_counter() - start + facts.seconds
    facts.seconds = 0.0
    note_variant(kernel, backend, variant)
    if logs or (variant.seconds > LONG_COMPILE and not variant.from_disk):
        from tack.runtime.compile_log import report

        report(backend, kernel, facts, variant, times, logs)
    if not variant.from_disk:
        backend.when_final(variant.payload, partial(_finished, backend, kernel, facts, variant))
    return variant


def _finished(
    backend: Backend, kernel: Kernel, facts: TemplateFacts, variant: Variant, seconds: float
) -> None:
    """Stores a variant that was built, after the backend compiled ``seconds`` more in the background."""
    from tack.runtime.disk import variants as stored

    stored.save(backend, facts, variant)
    if not seconds:
        return
    variant.seconds += seconds
    note_seconds(kernel, backend, seconds)
    if settings.logs() or seconds > LONG_COMPILE:
        from tack.runtime.compile_log import optimized

        optimized(backend, kernel, seconds)


def _note_failure(backend: Backend, kernel: Kernel, error: Exception) -> None:
    if settings.logs():
        from tack.runtime.compile_log import failed

        failed(backend, kernel, error)


def _built(
    backend: Backend,
    kernel: Kernel,
    facts: TemplateFacts,
    key: Key,
    args: Sequence[Any],
    build: Build,
    times: dict[str, float],
) -> Variant:
    """A variant, compiled; ``times`` gets the seconds of each stage."""
    from tack.ir.workgroups import requires_full_workgroups
    from tack.runtime.facts import atomic_params, written_params
    from tack.runtime.prepare import prepare
    from tack.stages import collect, stage

    types = key.params[: len(facts.params)]  # without debug mode's hidden ones
    with collect(times):
        with stage("front end"):
            template = facts.lowered.ir
        with stage("passes"):
            typed = prepare(kernel, template, backend, types, args, debug.enabled())
            about = (written_params(typed), atomic_params(typed), requires_full_workgroups(typed))
        return Variant(key, build(typed, key.disjoint), facts.bounds, about, typed)


def _signature(args: Sequence[Any]) -> tuple[Any, ...]:
    """What of the arguments decides the variant, besides disjointness."""
    parts: list[Any] = []
    for arg in args:
        if type(arg) is Array:
            parts.append(arg._sig)
        elif type(arg) is float:
            parts.append("f")
        else:  # past u64 there is no type, and no entry is ever made
            parts.append("i32" if -0x80000000 <= arg <= 0x7FFFFFFF else _wide(arg))
    return tuple(parts)


def _wide(value: int) -> str:
    dtype = integer_dtype_of(value)
    return "none" if dtype is None else dtype.name


def check_call(kernel: Kernel, variant: Variant, args: Sequence[Any]) -> None:
    """What every call must satisfy before anything runs.

    Raises:
        ValueError: a read-only array would be written, or an atomic's array is misaligned.
    """
    for position, name in variant.written:
        if not args[position]._writable:
            raise ValueError(
                f"kernel '{kernel.__name__}': argument '{name}' is read-only, and the kernel stores to it; "
                "pass a writable copy"
            )
    for position, name, alignment in variant.aligned:
        if args[position]._address % alignment:
            raise ValueError(
                f"kernel '{kernel.__name__}': argument '{name}' is not aligned to {alignment} bytes, "
                "which its atomic updates need; pass a copy"
            )
