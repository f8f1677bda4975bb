"""`Queue`: the command queue of a backend, and the command buffer that launches are encoded into.

Launches, copies and fills go into the open command buffer, which is committed every 64 launches and when
somebody waits. Command buffers of a queue run one after the other, and so do the commands of one.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tack.runtime.gpu.failures import failure_message
from tack.runtime.metal import api

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tack.runtime.metal.buffer import MetalBuffer

__all__ = ["Queue", "Stamp", "host_bytes"]

_LAUNCHES: Final = 64  # of a command buffer
_PAGE: Final = 64 << 10  # bytes of the buffer that holds its launches' arguments
_ALIGNMENT: Final = 256  # of what is bound as a constant
_USES: Final = 3  # MTLResourceUsageRead | MTLResourceUsageWrite


def host_bytes(buffer: Any) -> NDArray[np.uint8]:
    """The memory of an ``MTLBuffer`` that the host shares."""
    return np.frombuffer(buffer.contents().as_buffer(buffer.length()), np.uint8)


class Stamp:
    """A point between command buffers, and how long the GPU had been running them until then."""

    __slots__ = ("busy", "number")

    def __init__(self, number: int) -> None:
        self.number = number
        self.busy = 0.0


class _Page:
    """Memory for the arguments of launches; each has a part of its own, until the command buffer is done."""

    __slots__ = ("buffer", "bytes", "used")

    def __init__(self, device: Any, nbytes: int) -> None:
        self.buffer = device.newBufferWithLength_options_(nbytes, api.metal.MTLResourceStorageModeShared)
        if self.buffer is None:
            raise MemoryError("Metal has no memory for the arguments of a launch")
        self.bytes = host_bytes(self.buffer)
        self.used = 0

    def put(self, data: bytes) -> int | None:
        """Where ``data`` lies now; None: there is no room."""
        at = -(-self.used // _ALIGNMENT) * _ALIGNMENT
        if at + len(data) > len(self.bytes):
            return None
        self.bytes[at : at + len(data)] = np.frombuffer(data, np.uint8)
        self.used = at + len(data)
        return at


class _Batch:
    """A command buffer, and what it needs until it is done."""

    __slots__ = (
        "commands",
        "encoder",
        "is_blit",
        "kept",
        "launches",
        "names",
        "number",
        "pages",
        "resident",
        "stamps",
    )

    def __init__(self, commands: Any, number: int) -> None:
        self.commands = commands
        self.number = number
        self.encoder: Any = None  # the one that is open, for launches
        self.is_blit = False
        self.resident: set[int] = set()  # the resources that it has been told of
        self.launches = 0
        self.names: dict[str, None] = {}
        self.kept: dict[int, Any] = {}  # by their id
        self.pages: list[_Page] = []
        self.stamps: list[Stamp] = []

    def end_encoding(self) -> None:
        if self.encoder is not None:
            self.encoder.endEncoding()
            self.encoder, self.is_blit = None, False
            self.resident.clear()


class Queue:
    """A command queue.

    Attributes:
        device: the ``MTLDevice``.
        label: how messages write it.
        done: the number of the last command buffer that is done.
    """

    __slots__ = (
        *(
            "__weakref__",
            "_busy",
            "_errors",
            "_free",
            "_lock",
            "_number",
            "_open",
            "_queue",
            "_sent",
            "device",
        ),
        *("done", "label"),
    )

    def __init__(self, device: Any, label: str) -> None:
        self.device = device
        self.label = label
        self.done = 0
        self._lock = threading.RLock()
        self._number = 0
        self._open: _Batch | None = None
        self._sent: deque[_Batch] = deque()
        self._free: list[_Page] = []
        self._errors: list[str] = []
        self._busy = 0.0
        with api.pool():
            self._queue = device.newCommandQueue()
        if self._queue is None:
            raise RuntimeError("Metal gives no command queue")
        api.queues.add(self)

    def close(self) -> None:
        """Commits what is open and waits; errors are nobody's any more."""
        with self._lock, api.pool():
            if self._open is not None:
                self._commit(self._open)
            if self._sent:
                self._sent[-1].commands.waitUntilCompleted()

    # Encoding.

    @contextmanager
    def _encoding(self) -> Iterator[_Batch]:
        """The open command buffer, for one piece of work."""
        api.check_process()
        with self._lock, api.pool():
            if self._open is None:
                self._collect()
                commands = self._queue.commandBuffer()
                if commands is None:
                    raise RuntimeError(f"{self.label} gives no command buffer")
                self._number += 1
                self._open = _Batch(commands, self._number)
            yield self._open

    def launch(
        self,
        name: str,
        pipeline: Any,
        arguments: bytes,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        buffers: Iterable[MetalBuffer],
        textures: Sequence[Any] = (),
    ) -> None:
        """Encodes a launch of the kernel ``name``."""
        with self._encoding() as batch:
            page, at = self._place(batch, arguments)
            if batch.is_blit:  # one that did not end
                batch.end_encoding()
            if batch.encoder is None:
                batch.encoder = batch.commands.computeCommandEncoder()
                if batch.encoder is None:
                    raise RuntimeError(f"{self.label} gives no encoder")
            encoder = batch.encoder
            encoder.setComputePipelineState_(pipeline)
            encoder.setBuffer_offset_atIndex_(page.buffer, at, 0)
            for buffer in buffers:
                if buffer.memory is not None:
                    self._use(batch, buffer)
                    if id(buffer.memory) not in batch.resident:
                        encoder.useResource_usage_(buffer.memory, _USES)
                        batch.resident.add(id(buffer.memory))
            for index, texture in enumerate(textures):
                batch.kept[id(texture)] = texture
                encoder.setTexture_atIndex_(texture, index)
            size = api.metal.MTLSize
            batch.kept[id(pipeline)] = pipeline
            batch.names[name] = None
            batch.launches += 1
            encoder.dispatchThreadgroups_threadsPerThreadgroup_(size(*grid), size(*block))
            # Of what is reached through the arguments, Metal need not know what a launch writes.
            encoder.memoryBarrierWithScope_(api.metal.MTLBarrierScopeBuffers)
            if batch.launches >= _LAUNCHES:
                self._commit(batch)

    def blit(self, encode: Callable[[Any], None], buffers: Iterable[MetalBuffer], *kept: Any) -> None:
        """Encodes copies and fills, which ``encode`` gives to an ``MTLBlitCommandEncoder``."""
        with self._encoding() as batch:
            batch.end_encoding()
            encoder = batch.commands.blitCommandEncoder()
            if encoder is None:
                raise RuntimeError(f"{self.label} gives no encoder")
            batch.encoder, batch.is_blit = encoder, True
            for buffer in buffers:
                self._use(batch, buffer)
            for item in kept:
                batch.kept[id(item)] = item
            encode(encoder)
            batch.end_encoding()

    def _use(self, batch: _Batch, buffer: MetalBuffer) -> None:
        buffer.last_use = batch.number
        batch.kept[id(buffer.memory)] = buffer.memory

    def _place(self, batch: _Batch, arguments: bytes) -> tuple[_Page, int]:
        at = batch.pages[-1].put(arguments) if batch.pages else None
        if at is None:
            if len(arguments) > _PAGE or not self._free:
                batch.pages.append(_Page(self.device, max(_PAGE, len(arguments))))
            else:
                batch.pages.append(self._free.pop())
            at = batch.pages[-1].put(arguments)
            assert at is not None
        return batch.pages[-1], at

    def _commit(self, batch: _Batch) -> None:
        batch.end_encoding()
        batch.commands.commit()
        self._open = None
        self._sent.append(batch)

    # Waiting.

    def wait(self, number: int | None = None) -> None:
        """Waits for the command buffer ``number`` and those before it, or for all.

        Raises:
            RuntimeError: a launch in one of them failed.
        """
        api.check_process()
        with api.pool():
            with self._lock:
                if self._open is not None and (number is None or number >= self._open.number):
                    self._commit(self._open)
                waited = [b for b in self._sent if number is None or b.number <= number]
            if waited:
                waited[-1].commands.waitUntilCompleted()
            with self._lock:
                self._collect()
        self._raise_failure()

    def flush(self) -> int:
        """Commits what is open; the number of the last command buffer."""
        api.check_process()
        with self._lock, api.pool():
            if self._open is not None:
                self._commit(self._open)
            return self._number

    def is_done(self, number: int) -> bool:
        """Whether the command buffer ``number`` is done; it raises as `wait` does."""
        api.check_process()
        with self._lock, api.pool():
            self._collect()
        self._raise_failure()
        return self.done >= number

    def stamp(self) -> Stamp:
        """The point after what is queued by now."""
        number = self.flush()
        stamp = Stamp(number)
        with self._lock:
            if self._sent and self._sent[-1].number == number:
                self._sent[-1].stamps.append(stamp)
            else:
                stamp.busy = self._busy
        return stamp

    def elapsed(self, first: Stamp, last: Stamp) -> float:
        """The seconds for which the GPU ran command buffers between two stamps; waits for the second."""
        self.wait(last.number)
        return last.busy - first.busy

    def _collect(self) -> None:
        """Lets go of what command buffers needed that are done, and notes what failed."""
        metal = api.metal
        while self._sent and self._sent[0].commands.status() >= metal.MTLCommandBufferStatusCompleted:
            batch = self._sent[0]
            failed = batch.commands.status() == metal.MTLCommandBufferStatusError
            errors = [self._failure(batch)] if failed else []
            busy = batch.commands.GPUEndTime() - batch.commands.GPUStartTime()
            self._sent.popleft()  # no call that may fail follows
            self.done = batch.number
            self._errors += errors
            self._busy += busy
            for stamp in batch.stamps:
                stamp.busy = self._busy
            for page in batch.pages:
                if len(page.bytes) == _PAGE:
                    page.used = 0
                    self._free.append(page)

    def _failure(self, batch: _Batch) -> str:
        error = api.describe_error(batch.commands.error())
        return failure_message(list(batch.names), self.label, error, "debug mode")

    def _raise_failure(self) -> None:
        """Raises the first failure that nobody has been told of, and forgets those that came with it."""
        with self._lock:
            errors, self._errors = self._errors, []
        if errors:
            raise RuntimeError(errors[0])
