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
    return math.ceil(min(_physical_cores("/"), _quota("/"), _MAX_THREADS))


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
    quota = math.inf
    for line in _text(root, "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if not controllers:  # version 2
            mounts = ["sys/fs/cgroup"]
        elif "cpu" in controllers.split(","):
            mounts = [f"sys/fs/cgroup/{controllers}", "sys/fs/cgroup/cpu"]
        else:
            continue
        for mount in mounts:
            # A limit of any group above counts too. Inside a container the path may not be visible.
            groups = path.strip("/").split("/")
            for depth in range(len(groups) + 1):
                quota = min(quota, _group_quota(os.path.join(root, mount, *groups[:depth])))
    return quota


def _group_quota(directory: str) -> float:
    """The quota of one control group, infinite if it sets none."""
    text = _text(directory, "cpu.max") or " ".join(
        (_text(directory, "cpu.cfs_quota_us"), _text(directory, "cpu.cfs_period_us"))
    )
    try:
        limit, period = (int(word) for word in text.split())
    except ValueError:  # "max", or nothing there
        return math.inf
    return limit / period if limit > 0 and period > 0 else math.inf


def _text(folder: str, name: str) -> str:
    """The contents of a small system file, or nothing if it cannot be read."""
    try:
        with open(os.path.join(folder, name), encoding="utf-8") as file:
            return file.read().strip()
    except (OSError, ValueError):
        return ""
