"""`tack.kernel` and `tack.func`: the objects that the decorators make."""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable, Mapping
from types import FunctionType
from typing import TYPE_CHECKING, Any, overload

from tack.lang.portable import Portable
from tack.lang.source import Source
from tack.runtime.native import KernelBase

if TYPE_CHECKING:
    from tack.dtypes import VectorType
    from tack.ir import nodes as ir
    from tack.lang.device_class import Layout
    from tack.lang.lowered import Lowered
    from tack.runtime.device import Device
    from tack.runtime.variant_list import VariantList

__all__ = ["Elements", "Func", "Kernel", "func", "kernel"]

# Names of array parameters, with the shape of their elements.
Elements = tuple[tuple[str, tuple[int, ...]], ...]


def _plain_function(function: object, kind: str) -> FunctionType:
    """The function written with ``def`` under any wrappers, or TypeError."""
    inner = inspect.unwrap(function) if callable(function) else function
    if not isinstance(inner, FunctionType) or inner.__name__ == "<lambda>":
        what = "a lambda" if isinstance(inner, FunctionType) else f"{type(function).__name__} {function!r}"
        raise TypeError(f"@tack.{kind} takes a function defined with def, not {what}")
    if inner.__code__.co_flags & (inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR):
        raise TypeError(f"@tack.{kind} takes a function defined with def, not async def {inner.__name__!r}")
    return inner


class Kernel(Portable, KernelBase):
    """A function compiled for each combination of argument types it is called with.

    Call it with arrays and numbers. It returns None, or a Python number if the function ends in
    ``return``. Decorating is cheap: the source is parsed at the first call or inspection.
    """

    __name__: str
    __qualname__: str
    __module__: str

    def __init__(self, function: Callable[..., Any], *, fastmath: bool = False) -> None:
        plain = _plain_function(function, "kernel")
        self._adopt(plain, Source(plain, "kernel"), {"fastmath": fastmath})

    def _adopt(self, function: FunctionType, source: Source, options: dict[str, Any]) -> None:
        super()._adopt(function, source, options)
        functools.update_wrapper(self, function)
        code = function.__code__
        self.fastmath: bool = options["fastmath"]
        self.params: tuple[str, ...] = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        # The number of arguments that need no binding; none does where some go by keyword only.
        self._positional = -1 if code.co_kwonlyargcount else code.co_argcount
        self._signature: inspect.Signature | None = None
        self._templates: dict[tuple[Elements, Any], Lowered] = {}
        self._vectors: dict[str, VectorType] | None = None
        self._lock = threading.Lock()
        self._set_params(self.params, self._positional)

    def _call(self, *args: Any, **kwargs: Any) -> Any:
        """What a call does. `KernelBase` comes here with every call that it does not run by itself."""
        if kwargs or len(args) != self._positional:
            args = self.bind(args, kwargs)
        try:
            return _launch(self, args)
        except Exception as error:
            if not getattr(error, "is_diagnostic", False):
                raise
            raise error.with_traceback(None) from None  # the place in the kernel says all

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        """The arguments in parameter order, defaults filled in.

        Raises:
            TypeError: a missing, surplus or unknown argument, named.
            UnsupportedSyntaxError: the kernel takes ``*args`` or ``**kwargs``.
        """
        if self.function.__code__.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS):
            self.template()  # rejects them, with their place
        if self._signature is None:
            self._signature = inspect.signature(self.function)
            self._tell_defaults(self._signature)
        try:
            bound = self._signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"kernel '{self.__name__}': {error}") from None
        bound.apply_defaults()
        return tuple(bound.arguments[name] for name in self.params)

    def _tell_defaults(self, signature: inspect.Signature) -> None:
        from tack.runtime.learn import MISSING

        found = list(signature.parameters.values())
        if tuple(p.name for p in found) == self.params:
            defaults = tuple(MISSING if p.default is p.empty else p.default for p in found)
            only = sum(p.kind is p.POSITIONAL_ONLY for p in found)
            self._set_defaults(defaults, only, sum(p.kind is not p.KEYWORD_ONLY for p in found))

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Compiles the kernel for a call with these arguments, and launches nothing.

        In place of an array, ``(shape, dtype)`` will do: ``saxpy.compile((1000, tack.f32), 2.0)``. What
        is compiled also goes to the disk cache, so a warm-up needs no data.

        Raises:
            TypeError, ValueError, UnsupportedSyntaxError, NameError: as a call would.
        """
        from tack.runtime.ahead import compile_ahead

        compile_ahead(self, args, kwargs)

    def variants(self, device: str | Device | None = None) -> VariantList:
        """What the kernel is compiled for so far, and for each variant why there is one more.

        Args:
            device: list this device's only. It chooses among what there is, so None is every device, not
                the default one.

        Returns:
            A tuple of `VariantInfo`, which is a table when it is printed.

        Raises:
            TypeError, ValueError, RuntimeError: as ``tack.device`` does.
        """
        from tack.runtime.variant_list import list_variants

        return list_variants(self, device)

    @property
    def vector_params(self) -> dict[str, VectorType]:
        """The parameters that are annotated with a vector type: they take tuples and 1-D arrays."""
        if self._vectors is None:
            from tack.lang.annotations import vector_params

            self._vectors = vector_params(self)
        return self._vectors

    def template(
        self, elements: Elements = (), key: Any = None, layouts: Mapping[str, Layout] | None = None
    ) -> ir.Kernel:
        """The kernel's IR before it is specialized; made once for each kind of arguments.

        Args:
            elements: the array parameters whose elements are vectors or matrices, with their shape.
            key: what of the arguments that are instances of device classes the IR depends on, and
            layouts: these instances' layouts, by parameter.

        Raises:
            UnsupportedSyntaxError, NameError, TypeError, ValueError: the source is not a kernel;
                the same again at every later call.
        """
        return self.lowered(elements, key, layouts).ir

    def lowered(
        self, elements: Elements = (), key: Any = None, layouts: Mapping[str, Layout] | None = None
    ) -> Lowered:
        """As `template`, but the IR of a kernel from the disk cache stays unread until it is needed."""
        found = self._templates.get((elements, key))
        if found is None:
            from tack.runtime.disk.templates import lowered

            with self._lock:
                found = self._templates.get((elements, key))
                if found is None:
                    found = self._templates[elements, key] = lowered(self, elements, layouts or {})
        return found

    def templates(self) -> list[ir.Kernel]:
        """The IR templates made so far: one for each kind of elements and of device classes."""
        return [lowered.ir for lowered in list(self._templates.values())]

    def drop_templates(self, is_stale: Callable[[Any], bool]) -> None:
        """Forgets the templates whose device classes' key is stale."""
        for elements, key in [k for k in list(self._templates) if k[1] is not None and is_stale(k[1])]:
            self._templates.pop((elements, key), None)

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        """A kernel in a class binds the instance that it is called on, as a method does."""
        return self if instance is None else functools.partial(self, instance)

    def __repr__(self) -> str:
        return f"<tack.kernel {self.__module__}.{self.__qualname__}>"

    def _options(self) -> dict[str, Any]:
        return {"fastmath": self.fastmath}


class Func(Portable):
    """A device function: inlined wherever a kernel or another device function calls it."""

    __name__: str
    __qualname__: str
    __module__: str

    def __init__(self, function: Callable[..., Any]) -> None:
        plain = _plain_function(function, "func")
        self._adopt(plain, Source(plain, "func"), {})

    def _adopt(self, function: FunctionType, source: Source, options: dict[str, Any]) -> None:
        super()._adopt(function, source, options)
        functools.update_wrapper(self, function)

    def __call__(self, *_: Any, **__: Any) -> Any:
        raise RuntimeError(
            f"'{self.__name__}' is a device function: call it from a @tack.kernel or another @tack.func; "
            f"'{self.__name__}.__wrapped__' is the Python function"
        )

    def __repr__(self) -> str:
        return f"<tack.func {self.__module__}.{self.__qualname__}>"


def _launch(kernel: Kernel, args: tuple[Any, ...]) -> Any:
    """Imports the runtime at the first launch, and puts its function in this one's place."""
    global _launch
    from tack.runtime.launch import launch
    from tack.runtime.native import start

    start()  # a bad setting raises at every call
    _launch = launch
    return launch(kernel, args)


@overload
def kernel(function: Callable[..., Any], /) -> Kernel: ...
@overload
def kernel(*, fastmath: bool = False) -> Callable[[Callable[..., Any]], Kernel]: ...
def kernel(function: Callable[..., Any] | None = None, /, *, fastmath: bool = False) -> Any:
    """Makes a kernel of a function, as ``@tack.kernel`` or ``@tack.kernel(fastmath=True)``.

    Args:
        fastmath: lets the compiler reorder, contract and approximate this kernel's floating-point
            arithmetic. NaN and infinity tests stay honest.

    Raises:
        TypeError: not a function defined with ``def``.
        RuntimeError: its source text cannot be found.
    """
    if function is None:
        return functools.partial(Kernel, fastmath=fastmath)
    return Kernel(function)


def func(function: Callable[..., Any], /) -> Func:
    """Makes a device function, as ``@tack.func``.

    Raises:
        TypeError: not a function defined with ``def``.
        RuntimeError: its source text cannot be found.
    """
    return Func(function)
