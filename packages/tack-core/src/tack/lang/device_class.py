"""`tack.device_class`: classes whose instances kernels take apart.

An instance passed to a kernel becomes the parameters and constants that `describe` lists.
"""

from __future__ import annotations

import struct
import weakref
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import numpy as np

from tack.constants import ConstantFloat, ConstantInt
from tack.lang.kernel import Func, Kernel

__all__ = ["Layout", "Token", "describe", "device_class", "is_instance", "member", "on_retire", "token_of"]

C = TypeVar("C", bound=type)

_MARK = "__tack_device_class__"


def device_class(cls: C) -> C:
    """Marks a class whose instances kernels accept, as ``@tack.device_class``.

    Its ``int`` and ``float`` class attributes are constants in kernels, and so is an instance
    attribute that shadows one. Other instance attributes become parameters: numbers, arrays, and
    instances of device classes, which are taken apart in turn. Methods that are ``@tack.func`` are
    inlined. Names that start with an underscore, and attributes of other types, stay on the host.

    Raises:
        TypeError: not a class.
    """
    if not isinstance(cls, type):
        raise TypeError(f"@tack.device_class takes a class, not {type(cls).__name__}")
    setattr(cls, _MARK, True)
    return cls


def is_instance(value: object) -> bool:
    """Whether ``value`` is an instance of a device class."""
    return getattr(type(value), _MARK, False) is True


# --- identities that keep nothing alive --------------------------------------------------------


class Token:
    """Stands in a key for a class or a device function, and does not keep it alive."""

    __slots__ = ("__weakref__", "kernels", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self.kernels: weakref.WeakSet[Kernel] = weakref.WeakSet()

    def __repr__(self) -> str:
        return f"<token of {self.name}>"


_tokens: weakref.WeakKeyDictionary[Any, Token] = weakref.WeakKeyDictionary()
_retired: list[Callable[[Token], None]] = []


def on_retire(callback: Callable[[Token], None]) -> None:
    """Calls ``callback`` with the token of each class that has been collected."""
    _retired.append(callback)


def token_of(value: Any) -> Token:
    """The token of a class or function, made when first asked for."""
    token = _tokens.get(value)
    if token is None:
        token = _tokens.setdefault(value, Token(value.__qualname__))
        weakref.finalize(value, _retire, token)
    return token


def _retire(token: Token) -> None:
    for callback in _retired:
        callback(token)


# --- taking an instance apart ------------------------------------------------------------------


class Layout:
    """What an instance is to a kernel.

    ``constants``, ``scalars``, ``arrays`` (with the shape of their elements), ``parts`` (nested
    instances) and ``funcs`` are its attributes by name, sorted; ``owner`` is its class.
    """

    __slots__ = ("arrays", "constants", "funcs", "owner", "parts", "scalars")

    def __init__(self, owner: type) -> None:
        self.owner = owner
        self.constants: dict[str, Any] = {}
        self.scalars: list[str] = []
        self.arrays: dict[str, tuple[int, ...]] = {}
        self.parts: dict[str, Layout] = {}
        self.funcs: dict[str, Func] = {}


def describe(name: str, value: Any, outer: tuple[Any, ...] = ()) -> tuple[Layout, Any, list[tuple[str, Any]]]:
    """An instance's layout, its part of a template's key, and its parameters with their values.

    The parameters are named by path: ``grid.origin.x`` for the attribute x of grid's attribute origin.

    Raises:
        TypeError: the instance contains itself.
    """
    if any(value is seen for seen in outer):
        raise TypeError(f"argument '{name}' contains itself, so it cannot be taken apart")
    from tack.runtime.array import Array

    cls = type(value)
    layout = Layout(cls)
    constants = _class_numbers(cls)
    flat: list[tuple[str, Any]] = []
    arrays: list[Any] = []
    nested: list[Any] = []
    instance = dict(_instance_attributes(value))
    for attribute in sorted({*constants, *instance}):
        own = instance.get(attribute, constants.get(attribute))
        path = f"{name}.{attribute}"
        if attribute in constants:
            if not _is_number(own):
                raise TypeError(f"'{path}' shadows a constant and is {type(own).__name__}, not a number")
            layout.constants[attribute] = own
        elif _is_number(own):
            layout.scalars.append(attribute)
            flat.append((path, own))
        elif isinstance(own, Array):
            layout.arrays[attribute] = own.components
            arrays.append((attribute, own.dtype, own.shape))
            flat.append((path, own))
        elif isinstance(own, Func):
            layout.funcs[attribute] = own
        elif is_instance(own):
            layout.parts[attribute], key, inner = describe(path, own, (*outer, value))
            nested.append((attribute, key))
            flat += inner
    key = (
        token_of(cls),
        tuple((k, type(v), constant_dtype(v), _bits(v)) for k, v in layout.constants.items()),
        tuple(arrays),
        tuple(layout.scalars),
        tuple((k, token_of(f)) for k, f in layout.funcs.items()),
        tuple(nested),
    )
    return layout, key, flat


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float, np.number, np.bool_))


def _bits(value: Any) -> Any:
    """A constant for a key: -0.0 and 0.0 differ, and a NaN equals itself."""
    if isinstance(value, (float, np.floating)):
        return struct.pack("!d", value)
    return int(value)


def _class_numbers(cls: type) -> dict[str, int | float]:
    """The numeric class attributes, inherited ones included."""
    found: dict[str, int | float] = {}
    for base in reversed(cls.__mro__):
        for name, value in vars(base).items():
            if not name.startswith("_"):
                found.pop(name, None)
                if _is_number(value):
                    found[name] = value
    return found


def _instance_attributes(value: Any) -> Iterator[tuple[str, Any]]:
    for name, own in getattr(value, "__dict__", {}).items():
        if not name.startswith("_"):
            yield name, own
    for base in type(value).__mro__:
        slots = vars(base).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if not name.startswith("_") and hasattr(value, name):
                yield name, getattr(value, name)


def member(cls: type, name: str) -> Any:
    """The class attribute ``name``, by the method resolution order, without running any code; or None."""
    for base in cls.__mro__:
        if name in vars(base):
            return vars(base)[name]
    return None


def constant_dtype(value: Any) -> Any:
    """The dtype that a `tack.constant` among the class attributes was given."""
    return value.dtype if isinstance(value, (ConstantInt, ConstantFloat)) else None
