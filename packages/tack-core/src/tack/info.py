"""What ``python -m tack info`` shows: versions, devices, threads, settings and what is wrong with them."""

from __future__ import annotations

import importlib.util
import os
import platform
from collections.abc import Callable
from importlib import metadata
from typing import Any

import numpy as np

import tack
from tack.runtime import settings
from tack.runtime.device import Device
from tack.runtime.dispatch import DeviceStatus, default_device, devices

__all__ = ["about_device", "collect", "render", "versions"]

_SETTINGS = ("TACK_DEVICE", "TACK_CPU_THREADS", "TACK_DISPATCH", "TACK_VERIFY", "TACK_LOG")


def collect() -> dict[str, Any]:
    """All facts, as JSON values. A device that does not start or a bad setting is one of them."""
    problems: list[str] = []

    def checked(read: Callable[[], Any]) -> Any:
        try:
            return read()
        except (ValueError, RuntimeError) as error:
            problems.append(str(error))
            return None

    facts = {
        "versions": versions(),
        "devices": [_device(status) for status in devices()],
        "default_device": checked(lambda: str(default_device())),
        "cpu_threads": checked(_threads),
        "native_dispatcher": checked(_native_dispatcher),
        "math_functions": _math(),
        "verify": checked(settings.verify),
        "log_compiles": checked(settings.log_compiles),
        "settings": {name: os.environ.get(name) for name in _SETTINGS},
    }
    return {**facts, "problems": problems}


def render(facts: dict[str, Any]) -> str:
    """``collect``'s facts as a table for people."""
    sections = [("Versions", list(facts["versions"].items()))]
    for about in facts["devices"]:
        if about["available"]:
            sections += [(f"Device {about['spec']}", _device_rows(about))]
    missing = [(about["spec"], about["reason"]) for about in facts["devices"] if not about["available"]]
    sections += [("Devices that do not start", missing)] if missing else []
    in_use = (
        "default_device",
        "cpu_threads",
        "native_dispatcher",
        "math_functions",
        "verify",
        "log_compiles",
    )
    sections += [("In use", [(name.replace("_", " "), _word(facts[name])) for name in in_use])]
    values = [
        (name, "not set" if value is None else repr(value)) for name, value in facts["settings"].items()
    ]
    sections += [("Environment", values)]
    width = max(len(name) for _, rows in sections for name, _ in rows)
    blocks = ["\n".join([title, *(f"  {n:<{width}}  {v}" for n, v in rows)]) for title, rows in sections]
    if facts["problems"]:
        blocks.append("\n".join(["Problems", *(f"  {text}" for text in facts["problems"])]))
    return "\n\n".join(blocks)


def _word(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return "yes" if value["in_use"] else f"no: {value['reason']}"
    return "unknown, see Problems" if value is None else str(value)


def versions() -> dict[str, str]:
    """Of Tack and what it runs on."""
    return {
        "tack": tack.__version__,
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "platform": platform.platform(),
        "numpy": np.__version__,
        "llvmlite": _llvm(),
    }


def _llvm() -> str:
    if importlib.util.find_spec("llvmlite") is None:
        return 'not installed; kernels need it: pip install "tack-core[cpu]"'
    try:
        import llvmlite.binding
    except Exception as error:  # a broken shared library may raise anything
        return f"does not load: {error}"
    version = ".".join(map(str, llvmlite.binding.llvm_version_info))
    return f"{metadata.version('llvmlite')} (LLVM {version}, {llvmlite.binding.get_host_cpu_name()})"


def _threads() -> int:
    from tack.runtime.cpu.cores import default_threads

    return default_threads()


def _math() -> str:
    """Where the CPU's ``sin`` and the like come from."""
    if importlib.util.find_spec("llvmlite") is None:
        return "none without llvmlite"
    from tack.codegen.llvm.jit import vector_bits

    bits = vector_bits()
    return f"vectorized for {bits}-bit registers" if bits else "the C library's: no fused multiply-add here"


def _native_dispatcher() -> dict[str, Any]:
    from tack.runtime.learn import unused_because

    reason = unused_because()
    return {"in_use": reason is None, "reason": reason}


def _device(status: DeviceStatus) -> dict[str, Any]:
    if status.device is None:
        return {"spec": status.spec, "available": False, "reason": status.reason}
    return {"spec": status.spec, "available": True, **about_device(status.device)}


def about_device(device: Device) -> dict[str, Any]:
    """What a device is and can do."""
    found = device._backend
    return {
        "label": found.label,
        "about": found.describe(),
        "dtypes": [dtype.name for dtype in found.supported_dtypes],
        "atomic_dtypes": [dtype.name for dtype in found.supported_atomic_dtypes],
        "workgroups": found.supports_workgroups,
        "device_reductions": found.supports_device_reductions,
        "memory_spaces": list(found.device_memory_spaces),
        "options": list(found.device_options),
    }


def _device_rows(about: dict[str, Any]) -> list[tuple[str, str]]:
    atomics = about["atomic_dtypes"]
    rows = [
        ("label", about["label"]),
        *about["about"].items(),
        ("dtypes", " ".join(about["dtypes"])),
        ("atomics", "all of these" if atomics == about["dtypes"] else " ".join(atomics) or "none"),
        ("workgroups", _word(about["workgroups"])),
        ("reductions", "on the device" if about["device_reductions"] else "in NumPy"),
    ]
    lists = ("memory_spaces", "options")
    return rows + [(name.replace("_", " "), " ".join(about[name])) for name in lists if about[name]]
