"""`GpuBackend`: what the backends of GPUs do alike. Each says how it compiles and how it launches."""

from __future__ import annotations

import contextlib
import operator
from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from tack.runtime.backend import Backend
from tack.runtime.convert import is_integer

if TYPE_CHECKING:
    from tack.dtypes import DType
    from tack.lang.kernel import Kernel
    from tack.runtime.array import Array
    from tack.runtime.backend import Number
    from tack.runtime.gpu.program import Program

__all__ = ["GpuBackend", "device_address"]


class GpuBackend(Backend):
    """A GPU whose kernels are made from source of the C family.

    Attributes:
        compiler: the name of what compiles that, for people.
    """

    supports_device_reductions = True
    supports_workgroups = True
    specializes_disjoint = True
    queues_launches = True
    compiler: str

    # What a backend says.

    @property
    @abstractmethod
    def dialect(self) -> Any:
        """The `tack.codegen.c.Dialect` of its source."""

    @abstractmethod
    def compile_source(self, name: str, source: Any) -> bytes:
        """The artifact of a kernel's `tack.codegen.c.Source`; ``name`` is the kernel's.

        Raises:
            RuntimeError: it does not compile; with the compiler's errors.
        """

    @abstractmethod
    def make_program(self, about: dict[str, Any], artifact: bytes, checks: Sequence[Any]) -> Program:
        """Loads an artifact."""

    def among(self, arrays: Iterable[Array]) -> contextlib.AbstractContextManager[None]:
        """Orders what is queued in a ``with`` block after what others have queued on the arrays, and what
        they queue afterwards after it, also if it fails on the way.
        """
        return contextlib.nullcontext()

    # What follows.

    def execute(self, kernel: Kernel, args: tuple[Any, ...]) -> Any:
        from tack.runtime.gpu import launch

        return launch.execute(self, kernel, args)

    def compile(self, kernel: Kernel, args: tuple[Any, ...]) -> None:
        from tack.runtime.gpu import launch

        launch.prepare(self, kernel, args)

    def reduce_array(self, array: Array, op: str, deterministic: bool) -> Number:
        """See `Backend.reduce_array`; always deterministic."""
        from tack.runtime.device_reductions import reduce_on_device

        return reduce_on_device(array, op)

    def variant_artifact(self, payload: Any) -> bytes | None:
        from tack.runtime.gpu import launch

        data = launch.save(payload)
        payload.artifact = None  # the code itself stays loaded
        return data

    def load_variant(self, read: Callable[[], Any], artifact: bytes, args: tuple[Any, ...]) -> Any:
        from tack.runtime.gpu import launch

        return launch.load(self, read, artifact)


def device_address(ptr: Any, dtype: DType, nbytes: int, api: str) -> int:
    """``ptr``, an address that the device uses, as an int: for `Backend.wrap_ptr`. ``api`` is for messages.

    Raises:
        TypeError: it is not an address.
        ValueError: it is null, negative, or not at a multiple of the element's size.
    """
    if isinstance(ptr, float) or not (is_integer(ptr) or hasattr(type(ptr), "__int__")):
        raise TypeError(f"a {api} pointer is a device address, not {type(ptr).__name__}")
    address = operator.index(ptr) if is_integer(ptr) else int(ptr)
    if not 0 <= address <= (1 << 64) - nbytes:
        raise ValueError(f"{address} is not an address of {nbytes} bytes")
    if address == 0 and nbytes:
        raise ValueError("the pointer is null")
    if address % dtype.itemsize:
        raise ValueError(
            f"the address {address:#x} is not a multiple of {dtype.itemsize}, the size of {dtype}, "
            f"as {api} needs; make a copy of the memory"
        )
    return address
