"""Our declarations of the Level Zero API against its header, as a C compiler reads that."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tack.runtime.level_zero import api as ze

HEADER = Path("/usr/include/level_zero/ze_api.h")

# What the header calls our structures. The one of a later version than Debian's header is not in there.
NAMES = {
    ze.DriverProperties: "driver_properties",
    ze.DeviceProperties: "device_properties",
    ze.ComputeProperties: "device_compute_properties",
    ze.ModuleProperties: "device_module_properties",
    ze.ImageProperties: "device_image_properties",
    ze.MemoryProperties: "device_memory_properties",
    ze.QueueGroupProperties: "command_queue_group_properties",
    ze.AllocationProperties: "memory_allocation_properties",
    ze.ContextDesc: "context_desc",
    ze.QueueDesc: "command_queue_desc",
    ze.EventPoolDesc: "event_pool_desc",
    ze.EventDesc: "event_desc",
    ze.DeviceMemoryDesc: "device_mem_alloc_desc",
    ze.HostMemoryDesc: "host_mem_alloc_desc",
    ze.RelaxedLimitsDesc: "relaxed_allocation_limits_exp_desc",
    ze.ModuleDesc: "module_desc",
    ze.KernelDesc: "kernel_desc",
    ze.ImageFormat: "image_format",
    ze.ImageDesc: "image_desc",
    ze.GroupCount: "group_count",
    ze.TimestampData: "kernel_timestamp_data",
    ze.TimestampResult: "kernel_timestamp_result",
    ze.Uuid: "device_uuid",
}
NEWER = {ze.DeviceIpVersion}
PREFIXES = (
    *("INIT_", "DEVICE_", "COMMAND_", "EVENT_", "MODULE_FORMAT", "MEMORY_TYPE", "RELAXED_", "IMAGE_"),
    "STRUCTURE_TYPE_",
)


@pytest.fixture(scope="module")
def compiler() -> str:
    found = shutil.which("gcc") or shutil.which("cc")
    if found is None or not HEADER.exists():
        pytest.skip("it needs a C compiler and ze_api.h (package libze-dev)")
    return found


def numbers(compiler: str, folder: Path, expressions: list[str]) -> list[int]:
    """What C makes of constant expressions over the header's declarations."""
    lines = "".join(f'printf("%llu\\n", (unsigned long long)({e}));' for e in expressions)
    text = (
        f"#include <stddef.h>\n#include <stdio.h>\n#include <level_zero/ze_api.h>\nint main(void){{{lines}}}"
    )
    (folder / "header.c").write_text(text)
    program = folder / "header"
    subprocess.run([compiler, "-w", "-o", str(program), str(folder / "header.c")], check=True)
    done = subprocess.run([program], capture_output=True, text=True, check=True)
    return [int(line) for line in done.stdout.split()]


def structures() -> set[type[ctypes.Structure]]:
    return {
        kind
        for kind in vars(ze).values()
        if isinstance(kind, type) and issubclass(kind, ctypes.Structure) and kind.__module__ == ze.__name__
    }


def test_every_structure_is_compared() -> None:
    assert structures() == {*NAMES, *NEWER}
    assert {*ze.STRUCTURES} <= structures()


@pytest.mark.parametrize("kind", NAMES, ids=lambda kind: kind.__name__)
def test_structure(kind: type[ctypes.Structure], compiler: str, tmp_path: Path) -> None:
    name = f"ze_{NAMES[kind]}_t"
    fields = [field for field, *_ in kind._fields_]
    expressions = [f"sizeof({name})"]
    for field in fields:
        given = field.rstrip("_")
        expressions += [f"offsetof({name}, {given})", f"sizeof((({name} *)0)->{given})"]
    expected = [ctypes.sizeof(kind)]
    for field in fields:
        at = getattr(kind, field)
        expected += [at.offset, at.size]
    assert numbers(compiler, tmp_path, expressions) == expected


def test_structure_types(compiler: str, tmp_path: Path) -> None:
    known = {kind: number for kind, number in ze.STRUCTURES.items() if kind not in NEWER}
    names = [f"ZE_STRUCTURE_TYPE_{NAMES[kind].upper()}" for kind in known]
    assert numbers(compiler, tmp_path, names) == list(known.values())


def test_constants(compiler: str, tmp_path: Path) -> None:
    ours = {name: value for name, value in vars(ze).items() if name.isupper() and isinstance(value, int)}
    names = [
        f"ZE_{name}" if name.startswith(PREFIXES) and name != "DEVICE_LOST" else _result(name)
        for name in ours
        if not name.startswith("_")
    ]
    assert numbers(compiler, tmp_path, names) == [v for n, v in ours.items() if not n.startswith("_")]


def _result(name: str) -> str:
    return f"ZE_RESULT_{name}" if name == "NOT_READY" else f"ZE_RESULT_ERROR_{name}"


def test_results(compiler: str, tmp_path: Path) -> None:
    names = [f"ZE_RESULT_{name}" for name in ze.RESULTS.values()]
    assert numbers(compiler, tmp_path, names) == list(ze.RESULTS)


@pytest.mark.parametrize("name", ze.FUNCTIONS)
def test_function(name: str, compiler: str) -> None:
    """The number and the kinds of the parameters: pointers and handles, and integers of which size."""
    text = HEADER.read_text()
    found = re.search(rf"\nze{name}\(\n(.*?)\n    \);", text, re.DOTALL)
    assert found is not None
    lines = re.sub(r"///<.*", "", found[1]).split(",")
    declared = [_kind_of(line.strip()) for line in lines]
    assert [_kind(p) for p in ze.FUNCTIONS[name]] == declared


def _kind_of(parameter: str) -> str:
    kind = parameter.rsplit(None, 1)[0]
    if kind.endswith(("*", "_handle_t")):
        return "pointer"
    if kind.endswith("_flags_t"):
        return "uint32_t"
    assert kind in ("uint32_t", "uint64_t", "size_t"), parameter
    return "uint64_t" if kind == "size_t" else kind


def _kind(parameter: object) -> str:
    sizes = {ctypes.c_uint32: "uint32_t", ctypes.c_uint64: "uint64_t", ctypes.c_size_t: "uint64_t"}
    return sizes.get(parameter, "pointer")  # type: ignore[call-overload, no-any-return]
