"""Images: machine code that is linked without LLVM and loaded without it."""

from __future__ import annotations

import ctypes
import gc
import os
import re
import struct
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest

from codegen.harness import Compiled
from codegen.test_jit import scale
from tack.codegen.llvm import generate, image, jit
from tack.ir.parser import parse
from tack.runtime import native
from tack.runtime.cpu import code
from tack.runtime.cpu import program as cpu_program

needs_images = pytest.mark.skipif(not code.loads_images(), reason="no images on this platform")

CALLS = """kernel calls(x: f64[], y: f64[]) {
  local i: i64
  local t: f64
  parallel i in (0:i64, dim(x, 0), 1:i64) {
    %t = add(call.erf(x[%i]), call.erfc(x[%i]))
    y[%i] = add(%t, call.sin(x[%i]))
  }
}"""
TABLE = """
@numbers = internal constant [4 x i32] [i32 10, i32 20, i32 30, i32 40]
define i32 @launch(i32 %k) {
  %p = getelementptr [4 x i32], ptr @numbers, i32 0, i32 %k
  %v = load i32, ptr %p
  ret i32 %v
}
"""
SWITCH = "define i32 @launch(i32 %k) {\nentry:\n  switch i32 %k, label %rest ["
SWITCH += "".join(f"\n    i32 {k}, label %case{k}" for k in range(12)) + "\n  ]\n"
SWITCH += "".join(f"case{k}:\n  call void @abort()\n  ret i32 {k * k + 5}\n" for k in range(12))
SWITCH = SWITCH.replace("  call void @abort()\n", "") + "rest:\n  ret i32 -1\n}\n"


def emitted(text: str) -> bytes:
    """The object of a module in LLVM's text, generated as kernels are."""
    from llvmlite import binding

    with binding.create_context() as context, binding.parse_assembly(text, context) as module:
        module.triple, module.data_layout = jit._host().machine.triple, jit._host().layout
        data: bytes = jit._host().machine.emit_object(module)
    return data


def made(text: str) -> code.Code:
    linked = image.link(emitted(text))
    assert linked is not None
    return code.load(*linked)


def mapped(address: int) -> str:
    """The permissions of the memory at an address; empty if there is none."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        span, permissions = line.split()[:2]
        low, high = (int(word, 16) for word in span.split("-"))
        if low <= address < high:
            return permissions
    return ""


@needs_images
def test_an_image_and_llvm_load_the_same_code() -> None:
    x, results = np.linspace(-2.0, 2.0, 37), []
    data = jit.compile_object(generate(parse(CALLS)))
    linked = image.link(data)
    assert linked is not None
    assert linked[1]["imports"], "it calls no function, and so shows nothing of slots"
    far = jit.compile_object(generate(parse(CALLS)), far=True)
    for loaded in (code.load(far, None), code.load(*linked)):
        compiled = Compiled.__new__(Compiled)
        compiled.kernel, compiled.code = parse(CALLS), loaded
        y = np.zeros_like(x)
        slots = compiled.slots({"x": x, "y": y}, [(0, 1, len(x))])
        ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(loaded.address("launch"))(
            ctypes.addressof(slots), 0, len(x)
        )
        results.append(y)
    assert results[0].tobytes() == results[1].tobytes()
    from math import erf, erfc

    assert np.allclose(results[0], [erf(v) + erfc(v) + np.sin(v) for v in x], rtol=1e-14)


@needs_images
@pytest.mark.parametrize(
    ("text", "values"), [(TABLE, [10, 20, 30, 40]), (SWITCH, [k * k + 5 for k in range(12)] + [-1])]
)
def test_constants_and_tables_of_jumps(text: str, values: list[int]) -> None:
    loaded = made(text)
    function = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int32)(loaded.address("launch"))
    assert [function(k) for k in range(len(values))] == values


@needs_images
def test_what_an_image_cannot_hold_is_left_to_llvm() -> None:
    for text in (
        "@state = global i32 5\ndefine i32 @launch() {\n  %v = load i32, ptr @state\n  ret i32 %v\n}",
        "@state = global i32 0\ndefine i32 @launch() {\n  %v = load i32, ptr @state\n  ret i32 %v\n}",
        "@t = internal constant [2 x ptr] [ptr @launch, ptr null]\n"
        "define ptr @launch(i64 %k) {\n  %p = getelementptr ptr, ptr @t, i64 %k\n"
        "  %v = load ptr, ptr %p\n  ret ptr %v\n}",
    ):
        assert image.link(emitted(text)) is None
    data = emitted(TABLE)
    assert image.link(b"") is None
    assert image.link(b"\x7fELF") is None
    assert image.link(data[:18] + struct.pack("<H", 183) + data[20:]) is None  # of AArch64


@needs_images
def test_a_function_that_only_llvm_has(monkeypatch: pytest.MonkeyPatch) -> None:
    def link(data: bytes) -> tuple[bytes, dict[str, object]]:
        found = image_link(data)
        assert found is not None
        return bytes(8) + found[0], {**found[1], "imports": ["no_such_function"]}

    image_link = image.link
    monkeypatch.setattr(image, "link", link)
    program = cpu_program.build(parse(scale(2)), False)
    assert program.about["image"] is None
    assert isinstance(program.functions.code, jit.Code)
    assert cpu_program.load(lambda: parse(scale(2)), cpu_program.save(program)).about["image"] is None


@needs_images
def test_code_in_memory_cannot_be_written_and_goes_with_its_object() -> None:
    loaded = made(TABLE)
    address = loaded.address("launch")
    with pytest.raises(KeyError, match="result"):
        loaded.address("result")
    assert mapped(address) == "r-xp"
    del loaded
    gc.collect()
    before = len(Path("/proc/self/maps").read_text().splitlines())
    many = [made(TABLE) for _ in range(3)]
    assert len({one.address("launch") for one in many}) == 3
    for _ in range(200):
        made(TABLE)
    many.clear()
    gc.collect()
    assert len(Path("/proc/self/maps").read_text().splitlines()) <= before + 5


@needs_images
def test_bad_images_are_refused() -> None:
    assert native.module is not None
    with pytest.raises(LookupError, match="no_such_function"):
        native.module.Code(bytes(64), ("no_such_function",))
    for data, imports in ((b"", ()), (bytes(15), ("sin", "cos"))):
        with pytest.raises(ValueError, match=r"empty|no room"):
            native.module.Code(data, imports)
    for data, imports in ((None, ()), (bytes(8), ["sin"]), (bytes(8), (1,))):
        with pytest.raises(TypeError):
            native.module.Code(data, imports)


@needs_images
@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="needs processor affinity")
def test_all_processors_of_a_machine_are_one_kind() -> None:
    assert native.module is not None
    allowed = os.sched_getaffinity(0)
    try:
        found = set()
        for number in allowed:
            os.sched_setaffinity(0, {number})
            found.add(native.module.processor())
    finally:
        os.sched_setaffinity(0, allowed)
    assert len(found) == 1
    eax = struct.unpack_from("<I", found.pop(), 16)[0]  # behind the vendor: family, model, stepping
    described = Path("/proc/cpuinfo").read_text()
    family, model = (
        int(m[1]) for m in (re.search(rf"{w}\s*: (\d+)", described) for w in ("cpu family", "model")) if m
    )
    base = eax >> 8 & 15
    assert family == (base + (eax >> 20 & 255) if base == 15 else base)
    assert model == (eax >> 4 & 15) + ((eax >> 16 & 15) << 4)


def test_llvm_is_known_by_what_pip_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    files = metadata.files("llvmlite") or []
    (library,) = (f for f in files if f.suffix in (".so", ".dylib", ".dll") and f.parent.name == "binding")
    assert library.hash is not None
    assert library.hash.value in code.llvm()

    def unreadable(path: str) -> list[str]:
        raise OSError(path)

    for listing in (unreadable, lambda _: [], lambda _: ["llvmlite-1.dist-info", "llvmlite-2.dist-info"]):
        monkeypatch.setattr(code.os, "listdir", listing)
        assert code.llvm() == jit.llvm_version()
