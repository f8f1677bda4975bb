"""How much memory this process may still take."""

from __future__ import annotations

import functools
import os

__all__ = ["format_size", "free_memory", "large_write"]

_CGROUPS = "/sys/fs/cgroup"
_CACHE = "/sys/devices/system/cpu/cpu0/cache/index3/size"
_USUAL_CACHE = 32 << 20


def free_memory() -> int | None:
    """Bytes that can be allocated within the limits of the machine and the cgroup; None: unknown.

    Linux promises memory that it does not have and kills the process that uses it, so a large
    allocation has to be compared with this first.
    """
    limits = [free for free in (_machine_free(), _cgroup_free()) if free is not None]
    return min(limits) if limits else None


@functools.cache
def large_write() -> int:
    """Bytes which, once written, are no longer in the caches: the size of the last level."""
    size = (_read(_CACHE) or "").strip()
    return int(size[:-1]) << 10 if size.endswith("K") and size[:-1].isdigit() else _USUAL_CACHE


def format_size(nbytes: int) -> str:
    """``nbytes`` in binary units: ``"1.50 GiB"``."""
    if nbytes < 1024:
        return f"{nbytes} bytes"
    size, units = float(nbytes), ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"]
    size /= 1024
    while size >= 1024 and len(units) > 1:
        size /= 1024
        units.pop(0)
    return f"{size:.2f} {units[0]}"


def _machine_free() -> int | None:
    """Memory that the machine has available, free swap included."""
    text = _read("/proc/meminfo")
    if text is not None:
        fields = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
        if "MemAvailable" in fields:
            names = ("MemAvailable", "SwapFree")
            return sum(int(fields[name].split()[0]) * 1024 for name in names if name in fields)
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return None


def _cgroup_free() -> int | None:
    """What the tightest memory limit of this process's cgroups (version 2) leaves."""
    lines = (_read("/proc/self/cgroup") or "").splitlines()
    group = next((line[3:] for line in lines if line.startswith("0::")), None)
    if group is None:
        return None
    found = []
    while True:
        free = _group_free(_CGROUPS + group)
        if free is not None:
            found.append(free)
        if group in ("/", ""):
            return min(found) if found else None
        group = os.path.dirname(group)


def _group_free(path: str) -> int | None:
    limit = (_read(f"{path}/memory.max") or "max").strip()
    used, stat = _read(f"{path}/memory.current"), _read(f"{path}/memory.stat")
    if limit == "max" or used is None or stat is None:
        return None
    # The page cache counts as used, but gives way.
    cache = next((line.split()[1] for line in stat.splitlines() if line.startswith("inactive_file ")), "0")
    return max(0, int(limit) - int(used) + int(cache))


def _read(path: str) -> str | None:
    try:
        with open(path, "rb", buffering=0) as file:  # a text file takes twice as long to open
            return file.read().decode()
    except OSError:
        return None
