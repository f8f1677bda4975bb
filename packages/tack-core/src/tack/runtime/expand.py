"""Taking a call's arguments apart: vectors into numbers, instances of device classes into attributes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tack.lang.device_class import Layout, Token, describe, is_instance
from tack.record import Record
from tack.runtime.array import Array
from tack.runtime.texture import Texture3D

if TYPE_CHECKING:
    from tack.lang.kernel import Elements, Kernel

__all__ = ["Expanded", "expand"]

ACCEPTED = "tack.Array, NumPy arrays, int, float, bool, textures and instances of device classes"


class Expanded(Record):
    """A call's arguments as a kernel's IR takes them.

    ``elements``, ``key`` and ``layouts`` are what `Kernel.template` takes.
    """

    args: Sequence[Any]
    elements: Elements
    key: Any
    layouts: dict[str, Layout]


def expand(kernel: Kernel, args: Sequence[Any]) -> Expanded:
    """The arguments with vectors and instances replaced by what they are made of.

    Raises:
        TypeError: what is passed for a vector is no sequence of that many numbers, an instance
            contains itself, or no parameter can take an argument.
    """
    elements = []
    vectors = kernel.vector_params
    special = bool(vectors)
    for name, arg in zip(kernel.params, args, strict=True):
        kind = type(arg)
        if kind is Array:
            if arg.components:
                elements.append((name, arg.components))
        elif kind is int or kind is float:
            continue
        elif is_instance(arg):
            special = True
        elif name not in vectors:
            _check_plain(kernel, name, arg)
    if not special:
        return Expanded(args, tuple(elements), None, {})
    return _taken_apart(kernel, args)


def _check_plain(kernel: Kernel, name: str, arg: Any) -> None:
    """TypeError for what is no number, array, texture or instance of a device class.

    A template that treats it as an array would only confuse, so this comes before lowering.
    """
    kind = type(arg)
    if isinstance(arg, (int, float, np.generic, np.ndarray, Texture3D)) or hasattr(kind, "__dlpack__"):
        return
    if hasattr(kind, "__cuda_array_interface__"):
        return
    hint = f"kernels take {ACCEPTED}"
    if isinstance(arg, (tuple, list)):
        vector = f"tack.vec{min(max(len(arg), 2), 4)}"
        hint = f"to pass a vector, annotate the parameter with its type, such as {name}: {vector}"
    elif not isinstance(arg, type) and type(arg).__module__ != "builtins":
        hint += f"; is {kind.__name__} a class to decorate with @tack.device_class?"
    raise TypeError(f"kernel '{kernel.__name__}': argument '{name}' is {kind.__name__}; {hint}")


def _taken_apart(kernel: Kernel, args: Sequence[Any]) -> Expanded:
    flat: list[Any] = []
    elements = []
    keys = []
    layouts: dict[str, Layout] = {}
    for position, (name, arg) in enumerate(zip(kernel.params, args, strict=True)):
        kind = kernel.vector_params.get(name)
        if kind is not None:
            flat += _components(kernel, name, arg, kind)
        elif is_instance(arg):
            try:
                layouts[name], key, parts = describe(name, arg)
            except TypeError as error:
                raise TypeError(f"kernel '{kernel.__name__}': {error}") from None
            for token in tokens_in(key):
                token.kernels.add(kernel)
            keys.append((position, key))
            flat += [value for _, value in parts]
        else:
            flat.append(arg)
            if isinstance(arg, Array) and arg.components:
                elements.append((name, arg.components))
    return Expanded(flat, tuple(elements), tuple(keys) or None, layouts)


def tokens_in(key: Any) -> list[Token]:
    """The tokens of the classes and functions that a key names."""
    if isinstance(key, Token):
        return [key]
    return [token for part in key for token in tokens_in(part)] if isinstance(key, tuple) else []


def _components(kernel: Kernel, name: str, arg: Any, kind: Any) -> list[int | float]:
    """The numbers of a vector argument."""
    try:
        values = np.asarray(arg)
    except ValueError:  # a ragged sequence
        values = np.empty(0, object)
    if values.shape != kind.shape or values.dtype.kind not in "iufb":
        given = type(arg).__name__ + (f" of shape {values.shape}" if values.dtype.kind in "iufb" else "")
        raise TypeError(
            f"kernel '{kernel.__name__}': argument '{name}' is annotated {kind} and takes numbers "
            f"of shape {kind.shape}, not {given}"
        )
    if isinstance(arg, (tuple, list)):  # each number by itself: (1, 0.5) has an int and a float
        values = np.asarray(arg, object)
    found: list[int | float] = values.ravel().tolist()
    return found
