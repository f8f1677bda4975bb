"""How many threads a launch may use by default."""

from __future__ import annotations

import math
import os
from typing import Final

__all__ = ["default_threads"]

_MAX_THREADS: Final = 1024


def default_threads() -> int:
    """``TACK_CPU_THREADS``, or the number of physical cores that this process may use.

    The process's affinity and the quota of its control groups count.

    Raises:
        ValueError: ``TACK_CPU_THREADS`` is not an integer between 1 and 1024.
    """
    text = os.environ.get("TACK_CPU_THREADS", "")
    if text.strip():
        number = int(text) if text.strip().isdecimal() else 0
        if not 1 <= number <= _MAX_THREADS:
            raise ValueError(
                f"environment variable TACK_CPU_THREADS={text!r} is not accepted; "
                f"use an integer between 1 and {_MAX_THREADS}"
            )
        return number
    cores = min(_physical_cores("/"), _MAX_THREADS)
    return cores if cores == 1 else math.ceil(min(cores, _quota("/")))


def _physical_cores(root: str) -> int:
    """The cores among the processors that this process may run on; ``root`` is where /sys is."""
    try:
        processors = os.sched_getaffinity(0)
    except AttributeError:  # not on macOS and Windows
        return os.cpu_count() or 1
    cores = set()
    for number in processors:
        topology = os.path.join(root, f"sys/devices/system/cpu/cpu{number}/topology")
        # The processors of one core name the same list of siblings.
        cores.add(_text(topology, "core_cpus_list") or _text(topology, "thread_siblings_list") or str(number))
    return len(cores)


def _quota(root: str) -> float:
    """How many processors' worth of time the process's control groups grant it."""
    groups = {}  # each once, since reading a file of the kernel's takes 50 µs
    for line in _text(root, "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if not controllers:
            mounts, quota_of = ["sys/fs/cgroup"], _second_version
        elif "cpu" in controllers.split(","):
            mounts, quota_of = [f"sys/fs/cgroup/{controllers}", "sys/fs/cgroup/cpu"], _first_version
        else:
            continue
        names = [name for name in path.split("/") if name]
        for mount in mounts:
            # A limit of any group above counts too. Inside a container the path may not be visible.
            for depth in range(len(names) + 1):
                groups[os.path.join(root, mount, *names[:depth])] = quota_of
    return min([quota_of(directory) for directory, quota_of in groups.items()], default=math.inf)


def _second_version(directory: str) -> float:
    """The quota of one control group, infinite if it sets none."""
    limit, _, period = _text(directory, "cpu.max").partition(" ")  # "max 100000" if there is none
    return _ratio(limit, period)


def _first_version(directory: str) -> float:
    limit = _text(directory, "cpu.cfs_quota_us")  # -1 if there is none
    return _ratio(limit, _text(directory, "cpu.cfs_period_us")) if limit.isdecimal() else math.inf


def _ratio(limit: str, period: str) -> float:
    if limit.isdecimal() and period.isdecimal() and int(limit) and int(period):
        return int(limit) / int(period)
    return math.inf


def _text(folder: str, name: str) -> str:
    """The contents of a small system file, or nothing if it cannot be read."""
    try:
        with open(os.path.join(folder, name), "rb", buffering=0) as file:
            return file.read().decode().strip()
    except (OSError, ValueError):
        return ""
