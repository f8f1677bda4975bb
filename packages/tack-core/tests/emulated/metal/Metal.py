"""What of Metal the runtime calls, on the CPU, with the rules that Apple's validation layer checks.

Command buffers run in a thread of their queue. Memory lies between pages that nobody may touch, at other
addresses for the GPU than for the host, and is overwritten when its buffer goes: nothing here keeps a buffer
that work still needs. Names and values are those of PyObjC's metadata.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import queue
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import Any, NamedTuple

from emulated import msl
from emulated.metal_driver import CONTROL, Misuse
from objc import error as objc_error  # the fake beside this file
from objc import retain, varlist

MTLResourceStorageModeShared = 0
MTLStorageModeShared = 0
MTLStorageModePrivate = 2
MTLResourceUsageRead = 1
MTLResourceUsageWrite = 2
MTLGPUFamilyMetal3 = 5001
MTLLanguageVersion3_0 = 196608
MTLLanguageVersion3_2 = 196610
MTLMathModeSafe = 0
MTLMathModeRelaxed = 1
MTLBarrierScopeBuffers = 1
MTLCommandBufferStatusNotEnqueued = 0
MTLCommandBufferStatusCommitted = 2
MTLCommandBufferStatusCompleted = 4
MTLCommandBufferStatusError = 5
MTLTextureType3D = 7
MTLPixelFormatR32Float = 55
MTLTextureUsageShaderRead = 1

# Of each selector: the types of its result and arguments (tools/metal_metadata.py).
_SELECTORS = json.loads(Path(__file__).with_name("metadata.json").read_text())["selectors"]
# The objects that stand for Python's in each type of Objective-C.
_TYPES: dict[str, Callable[[Any], bool]] = {
    "@": lambda x: x is None or isinstance(x, str | _Object | MTLCompileOptions | MTLTextureDescriptor),
    "Q": lambda x: type(x) is int and 0 <= x < 1 << 64,
    "q": lambda x: type(x) is int and -(1 << 63) <= x < 1 << 63,
    "z": lambda x: type(x) is int and -128 <= x < 128,  # a char, and so is an unsigned one
    "^v": lambda x: isinstance(x, bytes),
    "^@": lambda x: x is None,  # where the bridge puts what it returns beside the result
    "{MTLSize=QQQ}": lambda x: isinstance(x, MTLSize) and all(map(_TYPES["Q"], x)),
    "{MTLOrigin=QQQ}": lambda x: isinstance(x, MTLOrigin) and all(map(_TYPES["Q"], x)),
    "{_NSRange=QQ}": lambda x: isinstance(x, tuple) and len(x) == 2 and all(map(_TYPES["Q"], x)),
}

_MAX_BUFFER = 1 << 34
_GPU = 1 << 56  # what is added to the host's address
_CONSTANT_ALIGNMENT = 256
_FREED = 0xDB
_OVERWRITTEN = 1 << 20


class MTLSize(NamedTuple):
    width: int
    height: int
    depth: int


class MTLOrigin(NamedTuple):
    x: int
    y: int
    z: int


def selector(nil: bool = False, error: bool = False) -> Callable[[Any], Any]:
    """A method as PyObjC names it. A planned failure gives nil, nil with an error, or an exception."""

    def decorate(method: Any) -> Any:
        name = method.__name__
        _, *types = _SELECTORS[name]

        @wraps(method)
        def call(self: Any, *args: Any) -> Any:
            expect(len(args) == len(types), f"{name} takes {len(types)} arguments")
            for number, (type_, value) in enumerate(zip(types, args, strict=True)):
                expect(_TYPES[type_](value), f"argument {number} of {name} is {value!r}, no {type_}")
            if CONTROL.begin(name):
                if error:
                    return None, NSError(f"{name} was made to fail")
                if nil:
                    return None
                raise objc_error(f"NSGenericException - {name} was made to fail")
            return method(self, *args)

        return call

    return decorate


def expect(condition: object, message: str) -> None:
    if not condition:
        raise Misuse(message)


class NSError:
    def __init__(self, text: str) -> None:
        self._text = text

    def localizedDescription(self) -> str:
        return self._text


class _Object:
    def __init__(self) -> None:
        CONTROL.track(self)


# --- the device and its memory ---


class MTLDevice(_Object):
    def __init__(self) -> None:
        super().__init__()
        self.used = 0

    @selector()
    def name(self) -> str:
        return CONTROL.name

    @selector()
    def registryID(self) -> int:
        return 0x1234_5678_9ABC

    @selector()
    def supportsFamily_(self, family: int) -> bool:
        return family == MTLGPUFamilyMetal3 and CONTROL.system >= 13

    @selector()
    def supports32BitFloatFiltering(self) -> bool:
        return CONTROL.filters

    @selector()
    def maxBufferLength(self) -> int:
        return _MAX_BUFFER

    @selector()
    def recommendedMaxWorkingSetSize(self) -> int:
        return CONTROL.memory

    @selector()
    def currentAllocatedSize(self) -> int:
        return self.used

    @selector(nil=True)
    def newCommandQueue(self) -> Any:
        return MTLCommandQueue(self)

    @selector(nil=True)
    def newBufferWithLength_options_(self, length: int, options: int) -> Any:
        expect(0 < length <= _MAX_BUFFER, f"a buffer of {length} bytes")
        expect(options == MTLResourceStorageModeShared, "options of a buffer")
        return None if self.used + length > CONTROL.memory else MTLBuffer(self, length)

    @selector(nil=True)
    def newBufferWithBytes_length_options_(self, data: bytes, length: int, options: int) -> Any:
        expect(0 < length == len(data), "the length is not that of the bytes")
        found = self.newBufferWithLength_options_(length, options)
        if found is not None:
            found.contents().as_buffer(length)[:] = data
        return found

    @selector(error=True)
    def newLibraryWithSource_options_error_(self, source: str, options: Any, out: None) -> Any:
        expect(out is None, "an out-parameter is None")
        newest = MTLLanguageVersion3_2 if CONTROL.system >= 15 else MTLLanguageVersion3_0
        expect(options.version == newest, "the language version")
        expect(options.math in (MTLMathModeSafe, MTLMathModeRelaxed), "fast math is on by default")
        try:
            image = msl.compile(source)
        except msl.MslError as error:
            return None, NSError(str(error))
        return MTLLibrary(source, image, options), None

    @selector(error=True)
    def newComputePipelineStateWithFunction_error_(self, function: Any, out: None) -> Any:
        expect(out is None, "an out-parameter is None")
        return MTLComputePipelineState(function), None

    @selector(nil=True)
    def newTextureWithDescriptor_(self, about: Any) -> Any:
        return None if self.used + 4 * about.texels > CONTROL.memory else MTLTexture(self, about)


_libc = ctypes.CDLL(None, use_errno=True)


class _Memory:
    """Bytes whose end is at a page that nobody may touch, and whose start is after one, or nearly."""

    def __init__(self, nbytes: int) -> None:
        page = mmap.PAGESIZE
        inside = -(-nbytes // page) * page
        self.map = mmap.mmap(-1, inside + 2 * page, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        base = ctypes.addressof(ctypes.c_char.from_buffer(self.map))
        for at in (base, base + page + inside):
            if _libc.mprotect(ctypes.c_void_p(at), ctypes.c_size_t(page), 0):
                raise OSError(ctypes.get_errno(), "mprotect")
        start = page + (inside - nbytes) // _CONSTANT_ALIGNMENT * _CONSTANT_ALIGNMENT
        self.bytes = memoryview(self.map)[start : start + nbytes]
        self.address = base + start

    def overwrite(self) -> None:
        """What is done to freed memory: only to the ends of a large one, most of which may be untouched."""
        size = min(len(self.bytes), _OVERWRITTEN)
        ctypes.memset(self.address, _FREED, size)
        ctypes.memset(self.address + len(self.bytes) - size, _FREED, size)


class MTLBuffer(_Object):
    def __init__(self, device: MTLDevice, length: int) -> None:
        super().__init__()
        self._device = device
        self._memory = _Memory(length)
        self._length = length
        device.used += length

    def __del__(self) -> None:
        if hasattr(self, "_length"):
            self._device.used -= self._length
            self._memory.overwrite()

    @selector()
    def length(self) -> int:
        return self._length

    @selector()
    def storageMode(self) -> int:
        return MTLStorageModeShared

    @selector()
    def gpuAddress(self) -> int:
        return self._memory.address + _GPU

    @selector()
    def contents(self) -> varlist:
        return varlist(self._memory.bytes, self._length)

    # For the fake alone.

    @property
    def host(self) -> int:
        return self._memory.address

    def holds(self, address: int) -> bool:
        return self.host + _GPU <= address <= self.host + _GPU + self._length

    def check_range(self, at: int, size: int) -> None:
        expect(at >= 0 and size > 0 and at + size <= self._length, f"{size} bytes at {at} of {self._length}")
        expect(at % 4 == 0 and size % 4 == 0, f"{size} bytes at {at}: on macOS both are multiples of 4")


class MTLTextureDescriptor:
    @classmethod
    def alloc(cls) -> MTLTextureDescriptor:
        return cls()

    def init(self) -> MTLTextureDescriptor:
        self.kind = self.format = self.usage = -1
        self.mode = MTLStorageModeShared
        self.extents = [1, 1, 1]
        return self

    def setTextureType_(self, kind: int) -> None:
        self.kind = kind

    def setPixelFormat_(self, kind: int) -> None:
        self.format = kind

    def setWidth_(self, extent: int) -> None:
        self.extents[0] = extent

    def setHeight_(self, extent: int) -> None:
        self.extents[1] = extent

    def setDepth_(self, extent: int) -> None:
        self.extents[2] = extent

    def setStorageMode_(self, mode: int) -> None:
        self.mode = mode

    def setUsage_(self, usage: int) -> None:
        self.usage = usage

    @property
    def texels(self) -> int:
        return self.extents[0] * self.extents[1] * self.extents[2]


class _Texture(ctypes.Structure):
    """``tack_texture`` of msl.h."""

    _fields_ = (
        ("texels", ctypes.c_void_p),
        *((name, ctypes.c_uint) for name in ("width", "height", "depth")),
    )


class MTLTexture(_Object):
    def __init__(self, device: MTLDevice, about: MTLTextureDescriptor) -> None:
        super().__init__()
        expect(about.kind == MTLTextureType3D and about.format == MTLPixelFormatR32Float, "a volume of f32")
        expect(about.usage == MTLTextureUsageShaderRead, "kernels read it")
        expect(all(1 <= n <= 2048 for n in about.extents), f"extents {about.extents}")
        self._device = device
        self.extents = tuple(about.extents)
        self.size = 4 * about.texels
        self.memory = _Memory(self.size)
        self.image = _Texture(self.memory.address, *self.extents)
        device.used += self.size

    def __del__(self) -> None:
        if hasattr(self, "image"):
            self._device.used -= self.size
            self.memory.overwrite()


# --- code ---


class MTLCompileOptions:
    @classmethod
    def alloc(cls) -> MTLCompileOptions:
        return _MathModeOptions() if CONTROL.system >= 15 else cls()

    def init(self) -> MTLCompileOptions:
        self.version, self.math = -1, 2  # the fast mode
        return self

    def setLanguageVersion_(self, version: int) -> None:
        self.version = version

    def setFastMathEnabled_(self, on: bool) -> None:
        self.math = 2 if on else MTLMathModeSafe


class _MathModeOptions(MTLCompileOptions):
    """Those of macOS 15 and later."""

    def setMathMode_(self, mode: int) -> None:
        self.math = mode


class MTLLibrary(_Object):
    def __init__(self, source: str, image: bytes, options: MTLCompileOptions) -> None:
        super().__init__()
        self.options = options
        self.functions = {function.name: function for function in msl.functions(source)}
        with tempfile.NamedTemporaryFile(suffix=".so") as file:
            Path(file.name).write_bytes(image)
            self.code = ctypes.CDLL(file.name)

    @selector(nil=True)
    def newFunctionWithName_(self, name: str) -> Any:
        return MTLFunction(self, self.functions[name]) if name in self.functions else None


class MTLFunction(_Object):
    def __init__(self, library: MTLLibrary, about: msl.Function) -> None:
        super().__init__()
        self.about = about
        self.code = library.code
        self.run = getattr(library.code, f"emulate_{about.name}")


class MTLComputePipelineState(_Object):
    def __init__(self, function: MTLFunction) -> None:
        super().__init__()
        self.about, self.code, self.run = function.about, function.code, function.run

    @selector()
    def maxTotalThreadsPerThreadgroup(self) -> int:
        return self.about.max_threads


# --- queues ---


class MTLCommandQueue(_Object):
    def __init__(self, device: MTLDevice) -> None:
        super().__init__()
        self.committed: queue.SimpleQueue[Any] = queue.SimpleQueue()
        threading.Thread(target=_run_queue, args=(self.committed,), daemon=True).start()

    def __del__(self) -> None:
        self.committed.put(None)

    @selector(nil=True)
    def commandBuffer(self) -> Any:
        return retain(MTLCommandBuffer(self.committed))


def _run_queue(committed: queue.SimpleQueue[Any]) -> None:
    while True:
        job = committed.get()
        if job is None:
            return
        CONTROL.gate.wait()
        job.run()
        del job


class _Job:
    """The work of a command buffer: what it has when it is committed. It keeps nothing of what that uses."""

    def __init__(self) -> None:
        self.work: list[Callable[[], None]] = []
        self.status = MTLCommandBufferStatusNotEnqueued
        self.error: NSError | None = None
        self.done = threading.Event()
        self.times = (0.0, 0.0)

    def run(self) -> None:
        start = time.perf_counter()
        try:
            for step in self.work:
                step()
            status = MTLCommandBufferStatusCompleted
        except Fault as fault:
            self.error = NSError(str(fault))
            status = MTLCommandBufferStatusError
        except BaseException as error:  # the thread has to go on
            CONTROL.misuse.append(repr(error))
            self.error = NSError(f"the emulation failed: {error!r}")
            status = MTLCommandBufferStatusError
        self.times = start, time.perf_counter()
        self.work = []
        self.status = status
        self.done.set()


class Fault(Exception):
    """What happens on the GPU and ends a command buffer."""


class MTLCommandBuffer(_Object):
    def __init__(self, committed: queue.SimpleQueue[Any]) -> None:
        super().__init__()
        self._committed = committed
        self._job = _Job()
        self.encoder: Any = None

    def _check_open(self) -> None:
        expect(self._job.status == MTLCommandBufferStatusNotEnqueued, "the command buffer has been committed")
        expect(self.encoder is None or self.encoder() is None, "another encoder is open")

    @selector(nil=True)
    def computeCommandEncoder(self) -> Any:
        self._check_open()
        return retain(MTLComputeCommandEncoder(self, self._job))

    @selector(nil=True)
    def blitCommandEncoder(self) -> Any:
        self._check_open()
        return retain(MTLBlitCommandEncoder(self, self._job))

    @selector()
    def commit(self) -> None:
        self._check_open()
        self._job.status = MTLCommandBufferStatusCommitted
        self._committed.put(self._job)

    @selector()
    def waitUntilCompleted(self) -> None:
        expect(self._job.status != MTLCommandBufferStatusNotEnqueued, "a wait for what was not committed")
        expect(self._job.done.wait(300), "a command buffer did not end in five minutes")

    @selector()
    def status(self) -> int:
        return self._job.status

    @selector()
    def error(self) -> NSError | None:
        return self._job.error

    @selector()
    def GPUStartTime(self) -> float:
        return self._job.times[0]

    @selector()
    def GPUEndTime(self) -> float:
        return self._job.times[1]


class _Encoder(_Object):
    def __init__(self, commands: MTLCommandBuffer, job: _Job) -> None:
        super().__init__()
        self._commands: MTLCommandBuffer | None = commands
        self._job = job
        commands.encoder = weakref.ref(self)

    def __del__(self) -> None:
        if getattr(self, "_commands", None) is not None:
            CONTROL.misuse.append("an encoder went without endEncoding")

    @selector()
    def endEncoding(self) -> None:
        self.check_open()
        assert self._commands is not None
        self._commands.encoder = None
        self._commands = None

    def check_open(self) -> None:
        expect(self._commands is not None, "endEncoding has been called")

    def add(self, step: Callable[[], None]) -> None:
        self._job.work.append(step)


class MTLComputeCommandEncoder(_Encoder):
    def __init__(self, commands: MTLCommandBuffer, job: _Job) -> None:
        super().__init__(commands, job)
        self.pipeline: MTLComputePipelineState | None = None
        self.arguments: tuple[MTLBuffer, int] | None = None
        self.textures: dict[int, MTLTexture] = {}
        self.resident: list[weakref.ref[MTLBuffer]] = []

    @selector()
    def setComputePipelineState_(self, pipeline: MTLComputePipelineState) -> None:
        self.check_open()
        self.pipeline = pipeline

    @selector()
    def setBuffer_offset_atIndex_(self, buffer: MTLBuffer, offset: int, index: int) -> None:
        self.check_open()
        expect(index == 0, f"no function has a buffer at index {index}")
        expect(0 <= offset < buffer.length(), f"offset {offset} of {buffer.length()} bytes")
        expect(offset % _CONSTANT_ALIGNMENT == 0, f"offset {offset} is no multiple of {_CONSTANT_ALIGNMENT}")
        self.arguments = buffer, offset

    @selector()
    def useResource_usage_(self, buffer: MTLBuffer, usage: int) -> None:
        self.check_open()
        expect(isinstance(buffer, MTLBuffer), "a buffer")
        expect(usage == MTLResourceUsageRead | MTLResourceUsageWrite, f"usage {usage}")
        self.resident.append(weakref.ref(buffer))

    @selector()
    def setTexture_atIndex_(self, texture: MTLTexture, index: int) -> None:
        self.check_open()
        expect(0 <= index < 128, f"texture index {index}")
        self.textures[index] = texture

    @selector()
    def dispatchThreadgroups_threadsPerThreadgroup_(self, grid: MTLSize, block: MTLSize) -> None:
        self.check_open()
        expect(self.pipeline is not None and self.arguments is not None, "no pipeline, or no arguments")
        pipeline, (page, offset) = self.pipeline, self.arguments  # type: ignore[misc]
        about = pipeline.about  # type: ignore[union-attr]
        expect(min(grid) > 0 and max(grid) < 1 << 32, f"a grid of {grid}")
        threads = block.width * block.height * block.depth
        expect(0 < threads <= about.max_threads, f"{threads} threads, of at most {about.max_threads}")
        expect(offset + 8 * len(about.pointers) <= page.length(), "the arguments go past their buffer")
        used = [self.textures.get(k) for k in range(about.textures)]
        expect(None not in used, "a texture is not bound")
        self.add(
            _Launch(
                weakref.ref(pipeline),
                weakref.ref(page),
                offset,
                [weakref.ref(texture) for texture in used],
                list(self.resident),
                grid,
                block,
            )
        )

    @selector()
    def memoryBarrierWithScope_(self, scope: int) -> None:
        self.check_open()
        expect(scope == MTLBarrierScopeBuffers, f"scope {scope}")


class _Launch(NamedTuple):
    pipeline: weakref.ref[MTLComputePipelineState]
    page: weakref.ref[MTLBuffer]
    offset: int
    textures: Sequence[weakref.ref[MTLTexture]]
    resident: Sequence[weakref.ref[MTLBuffer]]
    grid: MTLSize
    block: MTLSize

    def __call__(self) -> None:
        if CONTROL.begin("run"):
            raise Fault("the execution of a kernel was made to fail")
        pipeline, page = self.pipeline(), self.page()
        if pipeline is None or page is None:
            raise Fault("a pipeline or its arguments were freed before they were used")
        about = pipeline.about
        words = (ctypes.c_uint64 * len(about.pointers)).from_buffer_copy(
            ctypes.string_at(page.host + self.offset, 8 * len(about.pointers))
        )
        held = [found for found in (item() for item in self.resident) if found is not None]
        for k, is_pointer in enumerate(about.pointers):
            if is_pointer and words[k]:
                if not any(buffer.holds(words[k]) for buffer in held):
                    raise Fault(f"argument {k} is at {words[k]:#x}, in no buffer that is resident and alive")
                words[k] -= _GPU
        textures = [item() for item in self.textures]
        if None in textures:
            raise Fault("a texture was freed before it was used")
        addresses = [ctypes.addressof(words), *(ctypes.addressof(t.image) for t in textures if t is not None)]
        parameters = (ctypes.c_void_p * len(addresses))(*addresses)
        pipeline.run(parameters, (ctypes.c_uint * 3)(*self.grid), (ctypes.c_uint * 3)(*self.block))


class MTLBlitCommandEncoder(_Encoder):
    @selector()
    def copyFromBuffer_sourceOffset_toBuffer_destinationOffset_size_(
        self, source: MTLBuffer, of: int, target: MTLBuffer, to: int, size: int
    ) -> None:
        self.check_open()
        source.check_range(of, size)
        target.check_range(to, size)
        overlap = source is target and to < of + size and of < to + size
        expect(not overlap, "a copy between parts that overlap")
        self._queue_move(source, of, target, to, size)

    @selector()
    def fillBuffer_range_value_(self, buffer: MTLBuffer, span: tuple[int, int], value: int) -> None:
        self.check_open()
        at, size = span
        buffer.check_range(at, size)
        expect(0 <= value < 256, f"a byte of {value}")
        found = weakref.ref(buffer)

        def fill() -> None:
            ctypes.memset(_alive(found).host + at, value, size)

        self.add(fill)

    @selector()
    def copyFromBuffer_sourceOffset_sourceBytesPerRow_sourceBytesPerImage_sourceSize_toTexture_destinationSlice_destinationLevel_destinationOrigin_(  # noqa: E501
        self,
        source: MTLBuffer,
        of: int,
        row: int,
        image: int,
        size: MTLSize,
        texture: MTLTexture,
        slice_: int,
        level: int,
        origin: MTLOrigin,
    ) -> None:
        self.check_open()
        expect(tuple(size) == texture.extents, "the whole texture")
        expect(row == 4 * size.width and image == row * size.height, "bytes of a row and of an image")
        expect((slice_, level, tuple(origin)) == (0, 0, (0, 0, 0)), "slice, level and origin")
        source.check_range(of, texture.size)
        given, found = weakref.ref(source), weakref.ref(texture)

        def copy() -> None:
            ctypes.memmove(_alive(found).memory.address, _alive(given).host + of, _alive(found).size)

        self.add(copy)

    def _queue_move(self, source: MTLBuffer, of: int, target: MTLBuffer, to: int, size: int) -> None:
        given, found = weakref.ref(source), weakref.ref(target)
        self.add(lambda: ctypes.memmove(_alive(found).host + to, _alive(given).host + of, size) and None)


def _alive(found: Any) -> Any:
    item = found()
    if item is None:
        raise Fault("a buffer or a texture was freed before it was used")
    return item


_device: list[MTLDevice] = []


def MTLCreateSystemDefaultDevice() -> MTLDevice | None:
    """The one device."""
    if CONTROL.begin("MTLCreateSystemDefaultDevice"):
        return None
    if not _device:
        _device.append(MTLDevice())
    return _device[0]
