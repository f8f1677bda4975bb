"""What the fake of Metal refuses, and that what it and the backend call is in PyObjC's metadata."""

from __future__ import annotations

import ast
import ctypes
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import emulated
import numpy as np
import pytest
from emulated.metal_driver import CONTROL, Misuse

import tack
from tack.runtime.metal import api

FAKE = Path(emulated.__file__).parent / "metal"
METADATA = json.loads((FAKE / "metadata.json").read_text())
SOURCES = [ast.parse(path.read_text()) for path in Path(api.__file__).parent.glob("*.py")]


def names_in(trees: list[ast.Module]) -> set[str]:
    """The attributes that are read in sources, and the strings that name one."""
    nodes = [node for tree in trees for node in ast.walk(tree)]
    found = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    return found | {str(node.value) for node in nodes if isinstance(node, ast.Constant)}


def test_what_the_backend_calls_exists() -> None:
    names = names_in(SOURCES)
    calls = {name for name in names if name.endswith("_") and name.isidentifier() and name[0] != "_"}
    # One is put together of two strings.
    calls -= {"toTexture_destinationSlice_destinationLevel_destinationOrigin_"}
    calls -= {"copyFromBuffer_sourceOffset_sourceBytesPerRow_sourceBytesPerImage_sourceSize_"}
    assert len(calls) > 20
    assert calls <= {*METADATA["selectors"], *METADATA["classes"]}
    constants = {name for name in names if name.startswith("MTL") and not hasattr(api.metal, name)}
    assert not constants


def test_the_fake_has_the_constants_of_pyobjc() -> None:
    assert len(METADATA["constants"]) > 15
    for name, value in METADATA["constants"].items():
        assert getattr(api.metal, name) == value, name
    own = {name for name, value in vars(api.metal).items() if isinstance(value, int)}
    assert {name for name in own if name.startswith("MTL")} == METADATA["constants"].keys()


def test_the_fake_has_selectors_that_pyobjc_has() -> None:
    tree = ast.parse((FAKE / "Metal.py").read_text())
    methods = [
        (node.name, len(node.args.args) - 1)
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
        and any(isinstance(d, ast.Call) and ast.unparse(d.func) == "selector" for d in node.decorator_list)
    ]
    assert len(methods) > 30
    for name, count in methods:
        assert count == name.count("_") == len(METADATA["selectors"][name]) - 1, name


class Calls:
    """A queue with a buffer of 1,000 bytes, a pipeline that writes 1 to its first element, and a texture."""

    def __init__(self) -> None:
        self.device: Any = api.metal.MTLCreateSystemDefaultDevice()
        self.queue = self.device.newCommandQueue()
        self.buffer = self.device.newBufferWithLength_options_(1000, 0)
        self.commands = self.queue.commandBuffer()
        options = api.metal.MTLCompileOptions.alloc().init()
        options.setLanguageVersion_(api.metal.MTLLanguageVersion3_2)
        options.setMathMode_(api.metal.MTLMathModeSafe)
        library, error = self.device.newLibraryWithSource_options_error_(SOURCE, options, None)
        assert error is None
        function = library.newFunctionWithName_("one")
        self.pipeline, error = self.device.newComputePipelineStateWithFunction_error_(function, None)
        assert error is None

    def encode(self, *, resident: bool = True, at: int = 0, threads: int = 1) -> Any:
        """An encoder with a launch; ``at`` is where the argument lies in the buffer."""
        address = np.array([self.buffer.gpuAddress()], np.uint64)
        self.buffer.contents().as_buffer(1000)[at : at + 8] = address.tobytes()
        encoder = self.commands.computeCommandEncoder()
        encoder.setComputePipelineState_(self.pipeline)
        encoder.setBuffer_offset_atIndex_(self.buffer, at, 0)
        if resident:
            encoder.useResource_usage_(self.buffer, 3)
        encoder.dispatchThreadgroups_threadsPerThreadgroup_(
            api.metal.MTLSize(1, 1, 1), api.metal.MTLSize(threads, 1, 1)
        )
        return encoder

    def finish(self) -> int:
        self.commands.commit()
        self.commands.waitUntilCompleted()
        status: int = self.commands.status()
        return status


SOURCE = """\
#include <metal_stdlib>
using namespace metal;

struct tack_one_arguments {
    alignas(8) device int *x;
};

[[kernel, max_total_threads_per_threadgroup(4)]] void one(
    constant tack_one_arguments &tack_arguments [[buffer(0)]],
    uint3 tack_group [[threadgroup_position_in_grid]],
    uint3 tack_thread [[thread_position_in_threadgroup]],
    uint3 tack_size [[threads_per_threadgroup]],
    uint3 tack_groups [[threadgroups_per_grid]]) {
    tack_arguments.x[0] = 1;
}
"""


@pytest.fixture
def calls() -> Any:
    with api.objc.autorelease_pool():
        yield Calls()


def test_a_launch_by_hand(calls: Calls) -> None:
    calls.encode(at=256).endEncoding()
    assert calls.finish() == api.metal.MTLCommandBufferStatusCompleted
    assert bytes(calls.buffer.contents().as_buffer(4)) == b"\1\0\0\0"


def test_what_is_not_resident_is_a_fault(calls: Calls) -> None:
    calls.encode(at=256, resident=False).endEncoding()
    assert calls.finish() == api.metal.MTLCommandBufferStatusError
    assert "in no buffer that is resident" in calls.commands.error().localizedDescription()


def test_what_is_freed_before_it_is_used_is_a_fault(calls: Calls) -> None:
    with CONTROL.held():
        with api.objc.autorelease_pool():  # an encoder keeps what it is given while it is there
            calls.encode(at=256).endEncoding()
        calls.commands.commit()
        del calls.buffer
    calls.commands.waitUntilCompleted()
    assert "freed before they were used" in calls.commands.error().localizedDescription()


def twice(action: Callable[[], Any]) -> None:
    action()
    action()


MISUSE: dict[str, tuple[Callable[[Calls], Any], str]] = {
    "a second commit": (lambda c: twice(c.commands.commit), "has been committed"),
    "a commit with an open encoder": (lambda c: (c.encode(), c.commands.commit()), "another encoder is open"),
    "a second encoder": (lambda c: (c.encode(), c.commands.blitCommandEncoder()), "another encoder is open"),
    "an encoder after the commit": (
        lambda c: (c.commands.commit(), c.commands.computeCommandEncoder()),
        "has been committed",
    ),
    "a wait before the commit": (lambda c: c.commands.waitUntilCompleted(), "was not committed"),
    "an encoder that has ended": (
        lambda c: twice(c.commands.blitCommandEncoder().endEncoding),
        "endEncoding has been called",
    ),
    "an alignment": (lambda c: c.encode(at=8), "no multiple of 256"),
    "an offset": (
        lambda c: c.commands.computeCommandEncoder().setBuffer_offset_atIndex_(c.buffer, 1024, 0),
        "offset 1024 of 1000 bytes",
    ),
    "too many threads": (lambda c: c.encode(threads=5), "5 threads, of at most 4"),
    "no arguments": (
        lambda c: c.commands.computeCommandEncoder().dispatchThreadgroups_threadsPerThreadgroup_(
            api.metal.MTLSize(1, 1, 1), api.metal.MTLSize(1, 1, 1)
        ),
        "no pipeline",
    ),
    "a part of a fill": (
        lambda c: c.commands.blitCommandEncoder().fillBuffer_range_value_(c.buffer, (2, 8), 0),
        "both are multiples of 4",
    ),
    "a range": (
        lambda c: c.commands.blitCommandEncoder().fillBuffer_range_value_(c.buffer, (996, 8), 0),
        "8 bytes at 996 of 1000",
    ),
    "an overlap": (
        lambda c: (
            c.commands.blitCommandEncoder().copyFromBuffer_sourceOffset_toBuffer_destinationOffset_size_(
                c.buffer, 0, c.buffer, 4, 8
            )
        ),
        "parts that overlap",
    ),
    "a byte that PyObjC does not take": (
        lambda c: c.commands.blitCommandEncoder().fillBuffer_range_value_(c.buffer, (0, 8), 128),
        "argument 2 of fillBuffer_range_value_ is 128, no z",
    ),
    "a number that is NumPy's": (
        lambda c: c.device.newBufferWithLength_options_(np.int64(8), 0),
        "argument 0 of newBufferWithLength_options_",
    ),
    "an argument too few": (lambda c: c.device.newBufferWithLength_options_(8), "takes 2 arguments"),
}


@pytest.mark.parametrize("name", MISUSE)
def test_misuse_is_found(calls: Calls, name: str) -> None:
    action, text = MISUSE[name]
    with pytest.raises(Misuse, match=text):
        action(calls)
    encoder = None if calls.commands.encoder is None else calls.commands.encoder()
    if encoder is not None:
        encoder.endEncoding()


def test_an_encoder_that_goes_while_it_is_open_is_found() -> None:
    with api.objc.autorelease_pool():
        Calls().commands.blitCommandEncoder()
    assert CONTROL.misuse == ["an encoder went without endEncoding"]
    CONTROL.misuse.clear()


def test_an_autoreleased_object_needs_a_pool() -> None:
    queue = api.metal.MTLCreateSystemDefaultDevice().newCommandQueue()
    with pytest.raises(AssertionError, match="no pool is open"):
        queue.commandBuffer()


def test_addresses_of_objects_are_those_of_ctypes() -> None:
    """Only that is in the bridge's documentation."""
    x = tack.ones(3)
    memory = x.share().handle
    assert api.objc.objc_object(c_void_p=ctypes.c_void_p(api.objc.pyobjc_id(memory))) is memory
    with pytest.raises(AttributeError):
        api.objc.objc_object(c_void_p=api.objc.pyobjc_id(memory))
