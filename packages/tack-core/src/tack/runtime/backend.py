"""What a backend is: the contract between the host API and the code for one kind of device.

A backend subclasses `Backend` and implements `allocate_array`, `wrap_ptr` and `execute`. Everything
else has a default that suits a device without the feature. What a device can do is declared in
attributes; callers read these, and never probe with ``hasattr`` or compare names. What follows from
a declared attribute is a property here, so that nothing has to be kept in step.

The module ``tack.runtime.<type>.backend`` of a device type defines its class under the name
``BACKEND``; ``dispatch`` starts it as ``BACKEND(ordinal, **options)``. Starting raises ``ValueError``
or ``TypeError`` for a bad ordinal or option, and anything else for a device that cannot start.
"""

from __future__ import annotations

import functools
import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from time import perf_counter
from typing import TYPE_CHECKING, Any, ClassVar, Protocol
from weakref import WeakKeyDictionary

import numpy as np

from tack.dtypes import DType, ElementType, f64

if TYPE_CHECKING:
    from weakref import ReferenceType

    from numpy.typing import NDArray

    from tack.lang.kernel import Kernel
    from tack.runtime.array import Array
    from tack.runtime.device import Device
    from tack.runtime.dlpack import Import
    from tack.runtime.graph import Step
    from tack.runtime.learn import Plan
    from tack.runtime.sharing import SharedMemory
    from tack.runtime.variants import Slot, Variant

__all__ = ["Backend", "Buffer", "Number", "TextureImage"]

Number = int | float

_FILL_CHUNK = 1 << 20  # bytes
_serials = itertools.count()
_domains: dict[tuple[object, ...], int] = {}


class Buffer(ABC):
    """A contiguous range of a device's memory. Arrays that are views share one.

    Offsets and sizes are in bytes, and callers keep them inside the buffer.

    Attributes:
        address: device address of the first byte.
        nbytes: size.
        owned: whether the memory was allocated here and is freed with the buffer.
        owner: what keeps memory that is not owned alive, or None.
        foreign: one byte, which is not 0 once others than Tack may use the memory, so that launches on it
            have to be done when they return; None: they always are.
    """

    __slots__ = ("address", "foreign", "nbytes", "owned", "owner")

    # Whether all bytes are zero until somebody writes.
    starts_zeroed = False

    def __init__(self, address: int, nbytes: int, *, owned: bool, owner: object = None) -> None:
        self.foreign: bytearray | None = None
        self.address = address
        self.nbytes = nbytes
        self.owned = owned
        self.owner = owner

    @property
    def span(self) -> tuple[int, int]:
        """The addresses of the first byte and of the one past the last."""
        return self.address, self.address + self.nbytes

    @property
    def is_foreign(self) -> bool:
        """Whether others than Tack may use memory in which launches are not always done at once."""
        return bool(self.foreign and self.foreign[0])

    @abstractmethod
    def read(self, offset: int, out: NDArray[Any]) -> None:
        """Fill the C-contiguous ``out`` from ``offset`` on, after the launches queued so far."""

    @abstractmethod
    def write(self, offset: int, source: NDArray[Any]) -> None:
        """Copy the C-contiguous ``source`` to ``offset``, in order with the launches queued so far.

        The caller may change ``source`` as soon as this returns.
        """

    def copy(self, offset: int, source: Buffer, source_offset: int, nbytes: int) -> None:
        """Copy from a buffer of the same memory domain, or one that `copies_from` accepts.

        It is as if through a temporary.
        """
        staging = np.empty(nbytes, np.uint8)
        source.read(source_offset, staging)
        self.write(offset, staging)

    def copies_from(self, source: Buffer) -> bool:
        """Whether `copy` takes this buffer although it is in another memory domain."""
        return False

    def fill(self, offset: int, count: int, value: np.generic) -> None:
        """Write ``value`` ``count`` times from ``offset`` on."""
        chunk = np.full(min(count, max(1, _FILL_CHUNK // value.itemsize)), value)
        for start in range(0, count, chunk.size or 1):
            part = chunk[: count - start]
            self.write(offset + start * value.itemsize, part)

    def host_view(
        self, offset: int, dtype: np.dtype[Any], shape: tuple[int, ...], writable: bool
    ) -> NDArray[Any] | None:
        """A NumPy view of the memory, which keeps it alive; None if the host cannot address it."""
        return None


class TextureImage(Protocol):
    """A volume in the form that a device's texture units sample; ``handle`` is what kernels take."""

    handle: int

    def update(self, array: Array) -> None:
        """Copies a volume, in order with the launches queued so far."""


class Backend(ABC):
    """One device: its memory, its compiler and its launches.

    A subclass sets the attributes that differ from the defaults here, on the class or, where they
    depend on what the device reports, in ``__init__``.

    Attributes:
        name: the device type, as a spec writes it.
        display_name: how a message writes the device.
        ordinal: which of the type's devices.
        options: the keyword options it was started with; empty for the process-wide backend.
        supported_dtypes: element types that its arrays may have.
        supported_atomic_dtypes: element types that atomics may update.
        supports_device_reductions: whether `reduce_array` runs on the device.
        supports_workgroups: whether kernels may use shared memory, barriers and lane ids.
        shared_memory: bytes of shared arrays that a workgroup may have; 0: no limit.
        supports_print: whether ``print`` in kernels prints; otherwise it does nothing.
        specializes_disjoint: whether calls whose written arrays overlap no other have code of their own.
        wraps_host_memory: whether its kernels can use NumPy's memory where it is.
        iteration_cache: bytes of local arrays that each iteration has in a fast cache to itself; 0: few.
        forward_progress: whether a workgroup that has started goes on while others wait for it.
        device_memory_spaces: the spaces (`memory_space`) that `wrap_ptr` takes; empty: no check.
        device_options: the keyword options that ``tack.device`` passes on.
        varies: the attributes and methods of which a device may have less than its class declares.
        requires_alignment: whether elements must be at multiples of their size, which `wrap_ptr` checks.
        queues_launches: whether `execute` returns before a launch has run.
        dlpack_stream: what DLPack producers are told to order their work with; None: nothing.
    """

    name: ClassVar[str]
    display_name: str
    supported_dtypes: tuple[DType, ...]
    supported_atomic_dtypes: tuple[DType, ...] = ()
    supports_device_reductions: bool = False
    supports_workgroups: bool = False
    shared_memory: int = 0
    supports_print: bool = True
    specializes_disjoint: bool = False
    wraps_host_memory: bool = False
    iteration_cache: int = 0
    forward_progress: bool = False
    device_memory_spaces: tuple[str, ...] = ()
    device_options: ClassVar[tuple[str, ...]] = ()
    varies: ClassVar[tuple[str, ...]] = ()
    requires_alignment: bool = False
    queues_launches: bool = False
    dlpack_stream: int | None = None

    # The Device that users hold; weak, so that an optioned backend dies with it and its arrays.
    _device: ReferenceType[Device] | None = None

    def __init__(self, ordinal: int = 0, **options: object) -> None:
        self.ordinal = ordinal
        self.serial = next(_serials)  # names the backend where nothing may keep it alive
        self.options: Mapping[str, object] = options
        # Compiled variants of each kernel (`tack.runtime.variants`), which go with their kernel.
        self.cache: WeakKeyDictionary[Kernel, Slot] = WeakKeyDictionary()

    # Derived.

    @property
    def spec(self) -> str:
        """The device as ``tack.device`` takes it: ``"cpu"``, ``"cuda:1"``."""
        return self.name if self.ordinal == 0 else f"{self.name}:{self.ordinal}"

    @property
    def label(self) -> str:
        """How a message writes this device."""
        return self.display_name if self.ordinal == 0 else f"{self.display_name} {self.ordinal}"

    @property
    def supports_f64(self) -> bool:
        return f64 in self.supported_dtypes

    @classmethod
    def provides(cls, method: str) -> bool:
        """Whether an optional method is the backend's own, such as ``"graph"`` or ``"share"``."""
        return getattr(cls, method) is not getattr(Backend, method)

    @property
    def prefers_workgroups(self) -> bool:
        """Whether algorithms divide work among the lanes of workgroups rather than among iterations."""
        return self.supports_workgroups and not self.iteration_cache

    @functools.cached_property
    def dtype_set(self) -> frozenset[DType]:
        """`supported_dtypes`, to ask whether one is among them."""
        return frozenset(self.supported_dtypes)

    def check_dtype(self, dtype: ElementType) -> None:
        """Raise ``TypeError`` unless arrays of the device may have such elements."""
        if dtype.scalar not in self.dtype_set:
            raise TypeError(self.lacks(dtype.scalar, f", the scalar of {dtype}" if dtype.components else ""))

    def lacks(self, dtype: DType, use: str = "") -> str:
        """The message for a dtype that the device has not."""
        names = ", ".join(d.name for d in self.supported_dtypes)
        return f"{self.label} has no {dtype}{use}; it supports: {names}"

    @property
    def memory_domain(self) -> tuple[object, ...]:
        """Backends with equal domains can run kernels on each other's arrays."""
        return self.name, self.ordinal

    @functools.cached_property
    def domain_number(self) -> int:
        """A number for `memory_domain`."""
        return _domains.setdefault(self.memory_domain, len(_domains))

    @classmethod
    def device_count(cls) -> int:
        """How many devices of this type the machine has, as far as can be told without starting one."""
        return 1

    # Required.

    @abstractmethod
    def allocate_array(self, dtype: DType, shape: tuple[int, ...]) -> Buffer:
        """New memory for an array, its contents unspecified.

        Raises:
            MemoryError: with the size asked and the size free; the device stays usable.
        """

    @abstractmethod
    def wrap_ptr(self, ptr: Any, dtype: DType, shape: tuple[int, ...], owner: object = None) -> Buffer:
        """A buffer over foreign memory, which it does not free.

        ``ptr`` is an address (anything ``operator.index`` takes) or what the backend documents beyond
        that. The buffer keeps ``owner`` alive.

        Raises:
            TypeError: ``ptr`` is not an address.
            ValueError: it is null or negative, the object behind it is smaller than the array, or the
                elements are not aligned as the device needs.
        """

    @abstractmethod
    def execute(self, kernel: Kernel, args: tuple[Any, ...]) -> Any:
        """Launch ``kernel`` on ``args`` (one per parameter) and return its result, if it has one.

        A backend that queues launches returns once this one is queued in program order.
        """

    # Optional.

    @property
    def has_failed(self) -> bool:
        """Whether a failure has made the device unusable in this process; calls then say so."""
        return False

    def scratch(self, dtype: DType, count: int) -> Array:
        """An array for what a launch tells the host, which this thread's next call may give again."""
        from tack.runtime.array import new_array

        return new_array(self, dtype, (count,))

    def telling(self, scratch: Array) -> Callable[[], NDArray[Any]]:
        """A function that waits for the launches queued by now and gives what they wrote to `scratch`.

        What is queued before it is called need not be done by then.
        """
        return scratch.numpy

    def fill_array(self, array: Array, value: np.generic) -> bool:
        """Fill ``array`` on the device with ``value``, which has its dtype; False: not done here."""
        return False

    def synchronize(self) -> None:
        """Wait for every launch queued so far; raises the error of one that failed."""
        return

    def stamp(self) -> Any:
        """A point between the launches queued before and after, for `elapsed`."""
        return perf_counter()

    def elapsed(self, first: Any, last: Any) -> float:
        """The seconds between two stamps; waits for the second."""
        seconds: float = last - first
        return seconds

    def describe(self) -> dict[str, str]:
        """What ``python -m tack info`` shows of the device besides what is declared."""
        return {}

    def completion(self) -> Callable[[], bool]:
        """What tells whether the launches queued by now have finished; it raises as `synchronize` does."""
        return lambda: True

    def launch_step(self, kernel: Kernel, args: tuple[Any, ...]) -> Step:
        """A launch for `graph`, compiled and checked as `execute` would; nothing runs.

        Raises:
            NotImplementedError: the backend has no graphs.
            RuntimeError: the kernel has a result or prints.
        """
        raise NotImplementedError(f"{self.label} cannot capture launches")

    def fill_step(self, array: Array, element: NDArray[Any]) -> Any:
        """The work of a `Step` that sets every element of ``array``."""
        raise NotImplementedError(f"{self.label} cannot capture fills")

    def copy_step(self, target: Array, source: Array) -> Any:
        """The work of a `Step` that copies between arrays of this domain, as if through a temporary."""
        raise NotImplementedError(f"{self.label} cannot capture copies")

    def graph(self, steps: Sequence[Step]) -> Callable[[], None]:
        """What runs the steps in their order."""
        raise NotImplementedError(f"{self.label} cannot capture launches")

    def dlpack_data(self, array: Array) -> tuple[int, int]:
        """What DLPack calls the data of an array on this device, and where in it the array starts."""
        return array.address, 0

    def pointer(self, array: Array) -> Any:
        """What `wrap_ptr` takes for the memory that an array begins at; others use it from now on."""
        return array.address

    def wrap_dlpack(self, tensor: Import) -> Buffer:
        """`wrap_ptr` of a tensor on this device."""
        return self.wrap_ptr(tensor.address, tensor.dtype, tensor.shape, tensor.owner)

    def memory_space(self, ptr: int) -> str:
        """Where the address points: ``"cpu"``, or a space that the backend documents."""
        return "cpu"

    def reduce_array(self, array: Array, op: str, deterministic: bool) -> Number:
        """``"sum"``, ``"min"``, ``"max"`` or ``"mean"`` of an array with at least one element.

        The rules are those of ``tack.runtime.reductions``. Called if ``supports_device_reductions``.
        """
        raise NotImplementedError(f"{self.label} has no device reductions")

    def inspect(self, ir: Any, mode: str, disjoint: bool) -> str:
        """The text of a typed kernel as ``"source"``, ``"optimized"`` or ``"asm"``.

        Raises:
            NotImplementedError: the backend has no text of this kind.
        """
        raise NotImplementedError(f"{self.label} cannot show {mode!r}")

    def compile(self, kernel: Kernel, args: tuple[Any, ...]) -> None:
        """Compile what ``execute`` would run, unless it is compiled already, and launch nothing.

        Raises:
            NotImplementedError: the backend compiles at a launch only.
        """
        raise NotImplementedError(f"{self.label} does not compile ahead")

    def native_plan(self, kernel: Kernel, variant: Variant, args: Sequence[Any]) -> Plan | None:
        """How the native dispatcher runs calls like this one, or None: they are left to `execute`.

        ``args`` are the accepted arguments of a call that ran.
        """
        return None

    @property
    def native_pool(self) -> Any:
        """The ``tack._native.Pool`` that native launches fan out to, or None: `run_packed` does that."""
        return None

    def run_packed(self, variant: Variant, packed: bytes, total: int, used: object) -> None:
        """Runs a launch that the native dispatcher has packed and leaves to several threads."""
        raise NotImplementedError(f"{self.label} has no native plans")

    def cache_target(self) -> tuple[tuple[str, str], ...] | None:
        """Everything that a stored variant depends on besides the kernel and its argument types, by name.

        That is the device, the versions of compiler and driver, and the compiler's options. None:
        compiled variants are not stored.
        """
        return None

    def when_final(self, payload: Any, then: Callable[[float], None]) -> None:
        """Calls ``then`` when a payload that was built is what it will be, with the seconds that took since.

        That is now, unless the backend goes on compiling in the background.
        """
        then(0.0)

    def is_final(self, payload: Any) -> bool:
        """Whether the backend goes on compiling a payload no longer, so that `native_plan` may be asked."""
        return True

    def variant_artifact(self, payload: Any) -> bytes | None:
        """The compiled code of a variant, for the disk cache."""
        return None

    def load_variant(self, read: Callable[[], Any], artifact: bytes, args: tuple[Any, ...]) -> Any:
        """The payload of a variant from what `variant_artifact` gave, or None if it cannot be loaded.

        ``read`` gives the typed kernel.
        """
        raise NotImplementedError(f"{self.label} stores no variants")

    def hand_out(self, array: Array, stream: Any) -> None:
        """Lets other libraries use ``array``'s memory, where the host cannot address it.

        From now on launches on it are done when they return. ``stream`` is as ``__dlpack__`` takes it.

        Raises:
            BufferError: that cannot be done.
        """
        raise BufferError(f"arrays on {self.label} cannot be exported")

    def allocate_shareable(self, dtype: DType, shape: tuple[int, ...]) -> Buffer:
        """As `allocate_array`, of memory that `share` takes.

        Raises:
            RuntimeError: the device has no such memory.
        """
        raise RuntimeError(f"{self.label} has no memory that can be shared")

    def share(self, array: Array) -> SharedMemory:
        """The memory of an array that begins where its buffer does; see `Array.share`.

        Raises:
            RuntimeError: it cannot be shared.
        """
        raise RuntimeError(f"the memory of arrays on {self.label} cannot be shared")

    def cuda_array_interface(self, array: Array) -> dict[str, Any] | None:
        """The value of ``array.__cuda_array_interface__``; None if the memory is not CUDA's."""
        return None

    def texture_in_hardware(self, shape: tuple[int, int, int]) -> bool:
        """Whether a 3-D texture of these extents is sampled by the device's texture unit."""
        return False

    def create_texture_image(self, shape: tuple[int, int, int]) -> TextureImage:
        """Room for the texture unit's copy of a volume; called if `texture_in_hardware`.

        Raises:
            MemoryError: there is not enough memory.
        """
        raise NotImplementedError(f"{self.label} has no texture unit")
