"""What the native dispatcher learns from the calls that the Python path ran.

C asks `learn` to look at a call whose signature it does not know. That works out once more, with the
functions that define it, what the call resolved to, and hands it over as a lesson: data that C can
follow. C reads the arguments itself, and takes the lesson only if it would pack the same bytes for the
launch.
"""

from __future__ import annotations

import os
from types import FunctionType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tack.dtypes import ALL_DTYPES
from tack.lang.device_class import Layout
from tack.lang.kernel import Func, Kernel
from tack.runtime import debug, native
from tack.runtime.array import Array
from tack.runtime.dispatch import default_backend, tell_native
from tack.runtime.expand import expand
from tack.runtime.launch import backend_of
from tack.runtime.slots import MAX_ITERATIONS
from tack.runtime.texture import Texture3D
from tack.runtime.variants import Key, accept, arrays_disjoint, facts_of, key_of, slot_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tack.runtime.backend import Backend
    from tack.runtime.facts import TemplateFacts
    from tack.runtime.variants import Slot, Variant

__all__ = ["MISSING", "Plan", "learn", "unused_because"]

MISSING = object()  # in place of the default of a parameter that has none
_HEAP_TYPE = 1 << 9  # a type's flag: made at run time, so that its attributes can change

_problem: str | None = None
_started = False


class Plan(NamedTuple):
    """How to run a variant: see ``Plan`` in native.h. ``packed`` and ``total`` are those of the call."""

    launch: int
    result: int
    result_dtype: int
    bounded: bool
    cost: float
    group: int
    packed: bytes
    total: int
    gpu: tuple[int, ...] | None = None
    large: int = MAX_ITERATIONS


class Unteachable(Exception):
    """The native dispatcher has no words for a call."""


# --- turning it on ------------------------------------------------------------------------------


def _configure() -> bool:
    """Turns native dispatch on if it works; whether it does."""
    global _problem, _started
    assert native.module is not None
    if not _started:
        native.module.start(_config())
        tell_native()
        _problem = _self_check()
        _started = True
        native.works = _problem is None
        native.start()
    return _problem is None


def unused_because() -> str | None:
    """Why the native dispatcher is not in use, or None if it is. Raises as `native.start` does."""
    if not native.is_wanted():
        return "TACK_DISPATCH is python"
    if native.module is None:
        return native.missing
    return None if _configure() else f"its self-check failed: {_problem}"


def _config() -> dict[str, Any]:
    signed = (np.int8, np.int16, np.int32, np.int64, np.longlong)
    unsigned = (np.uint8, np.uint16, np.uint32, np.uint64, np.ulonglong)
    plain = (
        FunctionType,
        str,
        type(None),
        property,
        classmethod,
        staticmethod,
        tuple,
        list,
        dict,
        Func,
        Kernel,
    )
    environ: Any = os.environ
    return {
        "array": Array,
        "texture": Texture3D,
        "ndarray": np.ndarray,
        "func": Func,
        "number": np.number,
        "bool": np.bool_,
        "scalars": (
            *((kind, "i") for kind in dict.fromkeys(signed + unsigned)),
            *((kind, "f") for kind in (np.float64, np.float32, np.float16)),
            (np.bool_, "b"),
        ),
        # By NumPy's number: dtypes that compare equal may be several objects, and have several numbers.
        "dtypes": tuple(
            (np.dtype(code).num, number)
            for code in "bBhHiIlLqQfd"
            for number, dtype in enumerate(ALL_DTYPES)
            if dtype.numpy == np.dtype(code)
        ),
        "plain": (*(kind for kind in plain if kind is not Func), np.ndarray),
        "missing": MISSING,
        "default_backend": lambda: default_backend().serial,
        "fan_out": _fan_out,
        "launch_failed": _launch_failed,
        "environ": environ._data,
        "debug_variable": environ.encodekey("TACK_DEBUG"),
        "debug_enabled": debug.enabled,
    }


def _self_check() -> str | None:
    """What is wrong with what C reads of objects whose layout it takes for granted, or None."""
    assert native.module is not None

    class Sample:
        constant = 1

    if set(native.module.class_attributes(Sample)) != set(vars(Sample)):
        return "a class has other attributes than expected"
    for number, dtype in enumerate(ALL_DTYPES):
        values = np.zeros((2, 3), dtype.numpy)
        values.flags.writeable = number % 2 == 0
        for given, want in ((values, True), (values.T, False), (values[:1], True), (values[:, 1:], False)):
            shape, writable = given.shape, given.flags.writeable
            expected = (given.ctypes.data, number, shape, writable) if want else None
            if native.module.read_back(given) != expected:
                return f"a NumPy array of {dtype} is laid out in another way than expected"
    return None


# --- learning -----------------------------------------------------------------------------------


def learn(kernel: Kernel, args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> None:
    """Teaches the native dispatcher a call that the Python path ran without an error."""
    assert native.module is not None
    if not _configure() or debug.enabled():
        return
    tell_native()
    if kwargs or len(args) != kernel._positional:
        args = kernel.bind(args, kwargs or {})
    backend = backend_of(kernel, args)
    slot = slot_of(backend, kernel)
    if not all(backend.is_final(variant.payload) for variant in list(slot.variants.values())):
        return  # a plan has fixed addresses
    if slot.table is None:
        slot.table = native.module.Table(
            kernel,
            backend.serial,
            backend.domain_number,
            backend.wraps_host_memory,
            backend.native_pool,
        )
    key, lesson = _lesson(backend, kernel, slot, args)
    learned = native.module.teach(slot.table, args, lesson)
    # A class constant, which the packed bytes do not show, may have changed meanwhile.
    if learned and key is not None and key.template and _lesson(backend, kernel, slot, args)[0] != key:
        slot.table.clear()


def _lesson(
    backend: Backend, kernel: Kernel, slot: Slot, args: tuple[Any, ...]
) -> tuple[Key | None, tuple[Any, ...] | None]:
    """The key that the call has, and what C is to remember; None if it cannot."""
    if kernel.vector_params:
        return None, None
    call = expand(kernel, args)
    facts = facts_of(backend, slot, kernel, call)
    accepted = accept(kernel, facts, backend, call.args)
    disjoint = backend.specializes_disjoint and arrays_disjoint(facts.written, accepted)
    key = key_of(backend, kernel, facts, call, accepted, disjoint)
    variant = slot.variants.get(key)
    plan = None if variant is None else backend.native_plan(kernel, variant, accepted)
    if variant is None or plan is None:
        return key, None
    try:
        layouts = tuple(
            _layout(arg, call.layouts[name]) if name in call.layouts else None
            for name, arg in zip(kernel.params, args, strict=True)
        )
        form = _form(facts, backend.specializes_disjoint)
    except Unteachable:
        return key, None
    # Without the specialization nothing counts as written, and so every call as disjoint.
    told = disjoint or not backend.specializes_disjoint
    return key, (layouts, form, _plan(variant, plan), told, plan.packed, plan.total)


def _plan(variant: Variant, plan: Plan) -> tuple[Any, ...]:
    array_slot = 16
    slots = [array_slot if p.is_array else ALL_DTYPES.index(p.dtype) for p in variant.key.params]
    written = [position for position, _ in variant.written]
    aligned = [n for position, _, alignment in variant.aligned for n in (position, alignment)]
    full = variant.requires_full_workgroups
    about = (slots, written, aligned, full, plan.cost, plan.bounded, plan.group, plan.gpu, plan.large)
    return (variant, plan.launch, plan.result, plan.result_dtype, *about)


# --- what a template's calls have in common -----------------------------------------------------

_SIZE, _REST, _AXIS = range(3)


def _form(facts: TemplateFacts, specializes_disjoint: bool) -> tuple[Any, ...]:
    if facts.ranges is None:
        raise Unteachable
    needs = [n for k, (_, axis) in facts.needs if axis != "ndim" for n in (k, *_need(axis))]
    pinned = [
        n
        for position, p in facts.pinned
        if p.pinned is not None
        for n in (position, p.pinned.min, p.pinned.max)
    ]
    ranges = tuple((_program(start), _program(stop), step) for start, stop, step in facts.ranges)
    return needs, list(facts.written) if specializes_disjoint else [], pinned, ranges


def _need(axis: int | str) -> tuple[int, int]:
    """One element of `variants.shape_signature`."""
    if isinstance(axis, str) and axis.startswith("indices"):
        return _REST, 0
    if isinstance(axis, int):
        return _AXIS, axis
    return {"size": (_SIZE, 0), "len": (_AXIS, 0)}[axis]


_OPERATIONS = {
    name: code
    for code, name in enumerate(
        ("const", "arg", "dim", "size", "ndim", "neg", "add", "sub", "mul", "floordiv", "min", "max")
    )
}
_MAX_STACK = 16


def _program(data: Any) -> list[int]:
    """An expression of `tack.runtime.ranges` for a stack machine: operands before operations."""
    program: list[int] = []
    deepest = _compile(data, program, 0)
    if deepest > _MAX_STACK:
        raise Unteachable
    return program


def _compile(data: Any, program: list[int], depth: int) -> int:
    """Appends the code of an expression; returns how deep the stack gets."""
    if type(data) is int:
        if not -(1 << 63) < data < 1 << 63:
            raise Unteachable
        program += (_OPERATIONS["const"], data)
        return depth + 1
    op, *operands = data
    if op == "arg":
        program += (_OPERATIONS["arg"], operands[0])
        return depth + 1
    if op == "dim":
        position, axis = operands
        if axis in ("size", "ndim"):
            program += (_OPERATIONS[axis], position)
        else:
            program += (_OPERATIONS["dim"], position, axis)
        return depth + 1
    deepest = _compile(operands[0], program, depth)
    if op == "neg":
        program.append(_OPERATIONS[op])
    for operand in operands[1:]:  # min and max may have more than two
        deepest = max(deepest, _compile(operand, program, depth + 1))
        program.append(_OPERATIONS[op])
    return deepest


# --- instances of device classes ----------------------------------------------------------------


def _layout(value: Any, layout: Layout) -> tuple[Any, ...]:
    """The spec of a layout in layouts.c: class, bases, number of values, and attributes in order."""
    cls = type(value)
    if not _is_simple(cls):
        raise Unteachable
    parts: dict[str, tuple[Any, ...]] = {}
    positions: dict[str, int] = {}
    count = 0
    for name in sorted({*layout.scalars, *layout.arrays, *layout.parts}):
        positions[name] = count
        if name in layout.parts:
            parts[name] = _layout(getattr(value, name), layout.parts[name])
            count += parts[name][2]
        else:
            count += 1
    has_dict = hasattr(value, "__dict__")
    own = vars(value) if has_dict else {}
    attributes = tuple(
        (name, *_role(name, layout, positions, parts, attribute)) for name, attribute in own.items()
    )
    return cls, cls.__mro__, count, has_dict, attributes


def _role(
    name: str, layout: Layout, positions: dict[str, int], parts: dict[str, Any], value: Any
) -> tuple[str, int, Any]:
    if name.startswith("_"):
        return "skipped", 0, None
    if name in layout.constants:
        return "shadows", 0, value
    if name in parts:
        return "part", positions[name], parts[name]
    if name in positions:
        return "array" if name in layout.arrays else "scalar", positions[name], None
    if name in layout.funcs:
        return "func", 0, value
    return "host", 0, None


def _is_simple(cls: type) -> bool:
    """Whether the attributes of instances are what their dictionary holds, and no code has a say."""
    bases = cls.__mro__[:-1]
    if cls.__mro__[-1] is not object or not all(base.__flags__ & _HEAP_TYPE for base in bases):
        return False
    return not any(_has_public_slots(base) or _overrides_access(base) for base in bases)


def _has_public_slots(cls: type) -> bool:
    slots: Sequence[str] | str = vars(cls).get("__slots__", ())
    return any(not name.startswith("_") for name in ((slots,) if isinstance(slots, str) else slots))


def _overrides_access(cls: type) -> bool:
    """Whether the class has code of its own for reading attributes."""
    own = vars(cls)
    if any(name in own for name in ("__getattribute__", "__getattr__", "__class__")):
        return True
    return "__dict__" in own and type(own["__dict__"]) is not _GETSET


_GETSET: type = type(vars(type("Sample", (), {}))["__dict__"])


# --- launches that Python ends -----------------------------------------------------------------------------


def _fan_out(variant: Variant, packed: bytes, total: int, used: tuple[Any, ...]) -> None:
    """Runs a launch on the pool; ``used`` is what it keeps alive."""
    default_backend().run_packed(variant, packed, total, used)


def _launch_failed(variant: Variant, code: int) -> None:
    """Raises the error of a launch that a device's driver refused."""
    variant.payload.launch_failed(code)
