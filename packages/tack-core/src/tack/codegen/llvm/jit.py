"""LLVM modules to machine code in this process.

A module is optimized and emitted as an object file, of which `image` makes what is loaded and kept on disk.
Where it cannot, LLVM loads the object. llvmlite takes tens of milliseconds to load, so it is imported when
first used.
"""

from __future__ import annotations

import contextlib
import ctypes
import sys
import threading
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias, final

from tack.runtime.cpu.code import CODEGEN, PASSES, TUNING, loads_images

if TYPE_CHECKING:
    from tack.codegen.llvm import ir

    # What `generate` made, or its text.
    Module: TypeAlias = ir.Module | str

__all__ = [
    "Code",
    "assembly",
    "compile_object",
    "compile_quickly",
    "has_streaming_stores",
    "host_cpu",
    "llvm_version",
    "load_object",
    "optimized_ir",
    "vector_bits",
]

_MATH = '@"tack.math.'  # in a text with functions of `vector_math`


@final
class Code:
    """Machine code in memory, which is freed with this object."""

    __slots__ = ("_engine",)

    def __init__(self, engine: Any) -> None:
        self._engine = engine

    def address(self, name: str) -> int:
        """The address of an exported function.

        Raises:
            KeyError: the code has no function of this name.
        """
        address: int = self._engine.get_function_address(name)
        if not address:
            raise KeyError(name)
        return address


class _Host:
    """What compiles for this machine: made once, when first needed."""

    def __init__(self) -> None:
        from llvmlite import binding

        binding.initialize_native_target()
        binding.initialize_native_asmprinter()
        if sys.platform == "linux":
            # Otherwise `sinf` and the like are found only if the program itself links libm.
            with contextlib.suppress(RuntimeError):
                binding.load_library_permanently("libm.so.6")
        self.cpu: str = binding.get_host_cpu_name()
        self.features: str = binding.get_host_cpu_features().flatten()
        self.target = binding.Target.from_default_triple()

        self._own = threading.local()

    @property
    def machine(self) -> Any:
        """What code is generated for; loading code needs none of it. Each thread has one of its own."""
        found = getattr(self._own, "machine", None)
        if found is None:
            found = self._own.machine = self._new_machine(CODEGEN)
        return found

    @property
    def quick_machine(self) -> Any:
        """The same, which generates plain code in a fifth of the time."""
        found = getattr(self._own, "quick_machine", None)
        if found is None:
            found = self._own.quick_machine = self._new_machine(0)
        return found

    @property
    def far_machine(self) -> Any:
        """What emits code for `load_object`, which is seldom needed."""
        return self._new_machine(CODEGEN, far=True)

    def _new_machine(self, level: int, *, far: bool = False) -> Any:
        # Images are small code. MCJIT may put constants more than 2 GiB from the code, and of small code it
        # then ends the process. Its default, the large model, loads each constant's address.
        model = {"jit": True} if far or not loads_images() else {"reloc": "pic", "codemodel": "small"}
        return self.target.create_target_machine(cpu=self.cpu, features=self.features, opt=level, **model)

    @cached_property
    def triple(self) -> str:
        return str(self.machine.triple)

    @cached_property
    def layout(self) -> str:
        return str(self.machine.target_data)


_lock = threading.Lock()
_host_or_none: _Host | None = None


def _host() -> _Host:
    global _host_or_none
    if _host_or_none is None:
        with _lock:
            if _host_or_none is None:
                _host_or_none = _Host()
    return _host_or_none


@contextlib.contextmanager
def _parsed(text: str) -> Iterator[tuple[Any, Any]]:
    """The module with this text, and its context, which it has for itself so that all of it is freed.

    A context goes with its last module. Closed here, it could go before one that Ctrl-C left open.
    """
    from llvmlite import binding

    from tack.stages import stage

    context = binding.create_context()
    with stage("LLVM optimize"):
        parsed = binding.parse_assembly(text, context)
    with parsed:
        # The optimizer's knowledge of the machine and of the C library hangs on these.
        parsed.triple, parsed.data_layout = _host().triple, _host().layout
        yield parsed, context


@contextlib.contextmanager
def _pass_builder(machine: Any, **tuning: bool) -> Iterator[Any]:
    from llvmlite import binding

    with binding.create_pipeline_tuning_options(speed_level=PASSES) as options:
        for name, value in tuning.items():
            setattr(options, name, value)
        with binding.create_pass_builder(machine, options) as builder:
            yield builder


def _run(passes: Any, module: Any, builder: Any) -> None:
    """Runs a pass manager and frees it. Its close() frees nothing: llvmlite hides the method that would."""
    from llvmlite.binding.newpassmanagers import NewPassManager

    try:
        _unlocked("LLVMPY_RunNewModulePassManager")(passes, module, builder)
    finally:
        NewPassManager._dispose(passes)


@contextlib.contextmanager
def _optimized(module: Module) -> Iterator[Any]:
    """A parsed and optimized copy of ``module``."""
    from tack.stages import stage

    with stage("code generation"):
        text = str(module)
    with _parsed(text) as (parsed, context), _pass_builder(_host().machine, **TUNING) as builder:
        with stage("LLVM optimize"):
            _run(builder.getModulePassManager(), parsed, builder)
            if _MATH in text:
                _link_math(parsed, context, builder, str(parsed))
        yield parsed


def _link_math(parsed: Any, context: Any, builder: Any, text: str) -> None:
    """Adds the functions of `vector_math` that a module with this text calls, its vector forms inlined."""
    from llvmlite import binding

    from tack.codegen.llvm import vector_math

    library = binding.parse_assembly(str(vector_math.library(vector_math.called(text))), context)
    library.triple, library.data_layout = parsed.triple, _host().layout
    parsed.link_in(library)
    passes = binding.create_new_module_pass_manager()
    passes.add_always_inliner_pass()
    passes.add_global_dead_code_eliminate_pass()
    _run(passes, parsed, builder)


def compile_object(module: Module, *, far: bool = False) -> bytes:
    """The object file of ``module``, optimized for this machine.

    It becomes an image, or, with ``far`` and where there are no images, is for `load_object`.
    """
    from tack.stages import stage

    with _optimized(module) as optimized, stage("emit"):
        return _emitted(optimized, _host().far_machine if far else _host().machine)


def compile_quickly(text: str) -> bytes:
    """The object file of the module with this text, in a sixth of the time, and several times slower.

    It computes the same, unless the module lets LLVM choose, as with fast-math flags.
    """
    from llvmlite import binding

    from tack.stages import stage

    machine = _host().quick_machine
    with _parsed(text) as (parsed, context), _pass_builder(machine) as builder:
        with stage("LLVM optimize"):
            # Locals become registers, which saves as much in emission.
            passes = binding.create_new_module_pass_manager()
            passes.add_sroa_pass()
            _run(passes, parsed, builder)
            if _MATH in text:
                _link_math(parsed, context, builder, text)
        with stage("emit"):
            return _emitted(parsed, machine)


def _unlocked(name: str) -> Callable[..., Any]:
    """A function of LLVM's without llvmlite's lock around it, which would let one thread compile at a time.

    LLVM asks for none as long as threads share nothing: each compile has a context and passes of its own, and
    each thread a machine.
    """
    from llvmlite.binding import ffi

    function: Callable[..., Any] = getattr(ffi.lib, name)
    return getattr(function, "_cfn", function)


def _emitted(module: Any, machine: Any) -> bytes:
    """What `TargetMachine.emit_object` does."""
    from llvmlite.binding import ffi

    with ffi.OutputString() as error:
        buffer = _unlocked("LLVMPY_TargetMachineEmitToMemory")(machine, module, 1, error)
        if not buffer:
            raise RuntimeError(str(error))
    try:
        return ctypes.string_at(ffi.lib.LLVMPY_GetBufferStart(buffer), ffi.lib.LLVMPY_GetBufferSize(buffer))
    finally:
        ffi.lib.LLVMPY_DisposeMemoryBuffer(buffer)


def load_object(data: bytes) -> Code:
    """Links an object file into memory.

    LLVM trusts its input: ``data`` must be what `compile_object` made for this, as a digest can tell.
    """
    from llvmlite import binding

    # The engine owns a machine of its own, but with the object given it only asks it for the data
    # layout. Nor is there anything to generate from the module that an engine has to start with.
    machine = _host().target.create_target_machine()
    empty = binding.parse_assembly("")
    engine = binding.create_mcjit_compiler(empty, machine)
    engine.remove_module(empty)
    empty.close()
    engine.add_object_file(binding.ObjectFileRef.from_data(data))
    engine.finalize_object()
    return Code(engine)


def optimized_ir(module: Module) -> str:
    """The text of ``module`` after optimization."""
    with _optimized(module) as optimized:
        return str(optimized)


def assembly(module: Module) -> str:
    """The assembly text of ``module`` for this machine."""
    with _optimized(module) as optimized:
        text: str = _host().machine.emit_assembly(optimized)
    return text


def llvm_version() -> str:
    """The version of LLVM, as in ``"22.1.0"``."""
    from llvmlite import binding

    return ".".join(map(str, binding.llvm_version_info))


def host_cpu() -> str:
    """The processor and the features that code is generated for, as LLVM names them."""
    host = _host()
    return f"{host.cpu} {host.features}"


def vector_bits() -> int:
    """The bits of the vector registers that `vector_math` uses; 0 without fused multiply and add."""
    host = _host()
    if host.triple.startswith(("aarch64", "arm64")):
        return 128
    features = f"{host.features},"
    if "+fma," not in features:
        return 0
    return 512 if "+avx512f," in features else 256


def has_streaming_stores() -> bool:
    """Whether code may store past the caches: x86, where that was measured to pay."""
    return bool(vector_bits()) and _host().triple.startswith("x86_64")
