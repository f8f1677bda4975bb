"""Which devices there are, which is the default, and where a launch runs.

The process has one backend per device, made when it is first asked for and kept. A device made with
options is a backend of its own, which lives as long as the `Device` or an array on it does.
"""

from __future__ import annotations

import importlib
import os
import threading
import weakref
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from tack.errors import did_you_mean
from tack.runtime import native
from tack.runtime.array import Array
from tack.runtime.backend import Backend
from tack.runtime.device import Device, as_device, entered_device
from tack.runtime.settings import bad_value

__all__ = [
    "DeviceStatus",
    "backend_type",
    "backends",
    "default_backend",
    "default_device",
    "device",
    "device_types",
    "devices",
    "launch_backend",
    "register_type",
    "resolve_backend",
    "set_default_device",
    "sync",
    "tell_native",
    "wait",
]

# Device types in the order in which `devices` lists them, and what brings each.
_INSTALL: Final[dict[str, str]] = {
    "cpu": 'pip install "tack-core[cpu]"',
    "cuda": 'pip install "tack-core[cuda]"',
    "hip": 'pip install "tack-core[hip]"',
    "level_zero": "install Intel's GPU driver with the Level Zero loader",
    "metal": 'pip install "tack-core[metal]"',
}

_modules: Final[dict[str, str]] = {}  # of types that `register_type` added

# Seconds between two looks of `wait`, which become longer.
_SHORTEST_PAUSE: Final = 20e-6
_LONGEST_PAUSE: Final = 2e-3

_devices: Final[dict[tuple[str, int], Device]] = {}
_optioned: Final[weakref.WeakSet[Backend]] = weakref.WeakSet()
_default: Device | None = None  # what set_default_device chose
_initial: Device | None = None  # what TACK_DEVICE said, once it was needed
_lock = threading.RLock()


def _renew_lock() -> None:
    global _lock
    _lock = threading.RLock()


if hasattr(os, "register_at_fork"):  # a thread of the parent may have held it
    os.register_at_fork(after_in_child=_renew_lock)


class DeviceStatus(NamedTuple):
    """One line of ``tack.devices()``: ``device`` is None where it cannot start, and ``reason`` says why."""

    spec: str
    device: Device | None
    reason: str | None


def device(spec: str | Device, **options: Any) -> Device:
    """The device that ``spec`` names: ``"cpu"``, ``"cuda"``, ``"cuda:1"``, …, or a `Device`.

    Without options it is the same `Device` each time. With options it is a new one, with its own
    compiled kernels, which lives as long as it or an array on it does. ``"cpu"`` takes ``num_threads``.

    Raises:
        TypeError: ``spec`` is neither.
        ValueError: there is no such device type or option, or an option has a bad value.
        RuntimeError: the device cannot start here; the cause is chained.
    """
    if isinstance(spec, Device):
        if not options:
            return spec
        name, ordinal = spec.name, spec.index
    else:
        name, ordinal = _parse(spec)
    if options:
        backend = _start(name, ordinal, options)
        _optioned.add(backend)
        return as_device(backend)
    found = _devices.get((name, ordinal))
    if found is None:
        with _lock:
            found = _devices.get((name, ordinal))
            if found is None:
                found = _devices[name, ordinal] = as_device(_start(name, ordinal, {}))
    return found


def _parse(spec: object) -> tuple[str, int]:
    if not isinstance(spec, str):
        raise TypeError(
            f"a device is a string such as 'cpu' or 'cuda:1', or a Device, not {type(spec).__name__}"
        )
    name, colon, index = spec.partition(":")
    if name not in _INSTALL or (colon and not (index.isascii() and index.isdigit() and len(index) <= 4)):
        hint = did_you_mean(spec, _INSTALL)
        raise ValueError(
            f"unknown device {spec!r}; device types are {', '.join(_INSTALL)}, "
            f"with an index such as 'cuda:1' where there are several{f'; {hint}' if hint else ''}"
        )
    return name, int(index or 0)


def _start(name: str, ordinal: int, options: dict[str, Any]) -> Backend:
    """A new backend; see `device` for what it raises."""
    try:
        kind = backend_type(name)
        unknown = [key for key in options if key not in kind.device_options]
        if unknown:
            known = ", ".join(kind.device_options) or "none"
            raise ValueError(f"device {name!r} has no option {unknown[0]!r}; it accepts: {known}")
        return kind(ordinal, **options)
    except (TypeError, ValueError):
        raise
    except Exception as error:
        import platform

        system = f"{platform.system()} {platform.machine()}, Python {platform.python_version()}"
        raise RuntimeError(
            f"device {name!r} cannot start on {system}: {_reason(name, error)}\n  help: {_INSTALL[name]}"
        ) from error


def register_type(name: str, module: str, install: str) -> None:
    """Adds a device type that is not in this package: the module has its class as ``BACKEND``.

    ``install`` is what a message tells whom it does not start for.
    """
    _modules[name], _INSTALL[name] = module, install


def device_types() -> tuple[str, ...]:
    """The device types, in the order of `devices`."""
    return tuple(_INSTALL)


def backend_type(name: str) -> type[Backend]:
    """The class of a device type. Importing it starts nothing."""
    module = importlib.import_module(_modules.get(name, f"tack.runtime.{name}.backend"))
    backend: type[Backend] = module.BACKEND
    return backend


def _reason(name: str, error: Exception) -> str:
    if isinstance(error, ModuleNotFoundError) and (error.name or "").startswith(f"tack.runtime.{name}"):
        return f"this version of Tack has no {name} backend"
    return str(error) or type(error).__name__


def set_default_device(spec: str | Device | None) -> None:
    """Make ``spec`` the default device of the process; None returns to ``TACK_DEVICE`` or the CPU.

    Arrays stay where they are, and compiled kernels stay compiled. If the device cannot start, the
    default is unchanged. Raises as `device` does.
    """
    global _default, _initial
    chosen = None if spec is None else device(spec)
    _default = chosen
    if chosen is None:
        _initial = None
    tell_native()


def default_device() -> Device:
    """Where arrays are made and kernels run unless told otherwise.

    That is the device of the innermost ``with`` block of this thread or task, else the one that
    `set_default_device` chose, else ``TACK_DEVICE``, else the CPU.

    Raises:
        ValueError: ``TACK_DEVICE`` names no device.
        RuntimeError: the device that it names cannot start.
    """
    return entered_device() or _default or _initial or _from_environment()


def _from_environment() -> Device:
    global _initial
    value = os.environ.get("TACK_DEVICE", "").strip()
    try:
        found = device(value or "cpu")
    except ValueError as error:
        accepted = (*_INSTALL, "or one of them with an index (cuda:1)")
        raise bad_value("TACK_DEVICE", value, accepted) from error
    except RuntimeError as error:
        raise RuntimeError(f"TACK_DEVICE={value!r}: {error}") from error
    _initial = found
    tell_native()
    return found


def tell_native() -> None:
    """Tells the native dispatcher which backend is the process's default."""
    chosen = _default or _initial
    native.set_default(-1 if chosen is None else chosen._backend.serial)


def default_backend() -> Backend:
    """The backend of `default_device`."""
    return default_device()._backend


def resolve_backend(spec: object) -> Backend:
    """The backend of a ``device=`` argument, which is as `device` takes it, or None for the default."""
    return default_backend() if spec is None else device(spec)._backend  # type: ignore[arg-type]


def devices() -> list[DeviceStatus]:
    """Every device that this machine can start, and for each other type the reason why not."""
    return [status for name in _INSTALL for status in _statuses(name)]


def _statuses(name: str) -> list[DeviceStatus]:
    try:
        count = max(1, backend_type(name).device_count())
    except Exception as error:  # a broken driver library may raise anything
        return [DeviceStatus(name, None, _reason(name, error))]
    found = []
    for ordinal in range(count):
        spec = name if ordinal == 0 else f"{name}:{ordinal}"
        try:
            found.append(DeviceStatus(spec, device(spec), None))
        except Exception as error:
            found.append(DeviceStatus(spec, None, _reason(name, _cause(error))))
    return found


def _cause(error: Exception) -> Exception:
    return error.__cause__ if isinstance(error.__cause__, Exception) else error


def backends() -> list[Backend]:
    """The backends that are alive."""
    return [*(found._backend for found in list(_devices.values())), *_optioned]


def sync() -> None:
    """Wait for the launches queued on every device; raises the error of the first that failed."""
    failed: Exception | None = None
    for backend in backends():
        try:
            backend.synchronize()
        except Exception as error:  # the other devices are waited for all the same
            failed = failed or error
    try:
        if failed is not None:
            raise failed
    finally:
        failed = None  # or the error and this frame would hold each other


async def wait(device: str | Device | None = None) -> None:
    """Waits for what is queued by now on ``device``, or on every device, while the event loop goes on.

    Raises:
        RuntimeError: a launch failed; with several devices it is the error of the first.
    """
    import asyncio

    failed: Exception | None = None
    for backend in backends() if device is None else [resolve_backend(device)]:
        pause = 0.0
        try:
            is_done = backend.completion()
            while not is_done():
                await asyncio.sleep(pause)
                pause = min(_LONGEST_PAUSE, 2 * pause or _SHORTEST_PAUSE)
        except Exception as error:  # the other devices are waited for all the same
            failed = failed or error
    try:
        if failed is not None:
            raise failed
    finally:
        failed = None  # or the error and this frame would hold each other


def launch_backend(args: Sequence[object], names: Sequence[str] = ()) -> Backend:
    """Where a launch with these arguments runs: on the default device if it can address the arrays,
    else on the arrays' own.

    Raises:
        ValueError: the arrays live in two memory domains. It names the parameters, by ``names``.
    """
    backend = default_backend()
    for arg in args:
        kind = type(arg)
        if kind is Array:
            other = arg._backend  # type: ignore[attr-defined]
            if other is not backend and other.memory_domain != backend.memory_domain:
                return _common_backend(args, names)
        elif kind is int or kind is float:
            continue
        elif kind is np.ndarray:
            if not backend.wraps_host_memory:
                return _common_backend(args, names)
        elif hasattr(kind, "__dlpack_device__") or hasattr(kind, "__cuda_array_interface__"):
            return _common_backend(args, names)
    return backend


def _common_backend(args: Sequence[object], names: Sequence[str]) -> Backend:
    """`launch_backend` when some array is not, or may not be, in the default device's memory."""
    from tack.runtime.interop import backend_of

    default = default_backend()
    found: list[tuple[int, Backend]] = []
    for i, arg in enumerate(args):
        own = backend_of(arg)
        if own is not None:
            found.append((i, own))
    if not found or all(own.memory_domain == default.memory_domain for _, own in found):
        return default
    first = found[0][1]
    if all(own.memory_domain == first.memory_domain for _, own in found):
        return first
    places = ", ".join(
        f"{repr(names[i]) if i < len(names) else f'argument {i + 1}'} on {own.label}" for i, own in found
    )
    raise ValueError(
        f"the arrays of one launch must share a device: {places}; "
        f"move them with arr.to(device) or tack.asarray(x, device=...)"
    )
