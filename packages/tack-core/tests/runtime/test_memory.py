"""How much memory may be taken, from files as Linux writes them."""

from __future__ import annotations

import pytest

from tack.runtime.cpu import memory

GIB = 1 << 30


@pytest.fixture
def files(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The files that the module sees: a machine with 3 GiB available and 1 GiB of free swap."""
    found = {
        "/proc/meminfo": f"MemTotal: {9 * GIB >> 10} kB\nMemAvailable: {3 * GIB >> 10} kB\n"
        f"SwapFree: {GIB >> 10} kB\nHugePages_Total: 0\n",
        "/proc/self/cgroup": "0::/user/job\n",
    }
    monkeypatch.setattr(memory, "_read", found.get)
    return found


def limit(files: dict[str, str], group: str, most: str, used: int, cache: int = 0) -> None:
    """Give the control group ``group`` a limit."""
    root = f"/sys/fs/cgroup{group}"
    files[f"{root}/memory.max"] = f"{most}\n"
    files[f"{root}/memory.current"] = f"{used}\n"
    files[f"{root}/memory.stat"] = f"anon 1\ninactive_file {cache}\nactive_file 5\n"


def test_machine(files: dict[str, str]) -> None:
    assert memory.free_memory() == 4 * GIB


def test_no_limit(files: dict[str, str]) -> None:
    limit(files, "/user/job", "max", GIB)
    assert memory.free_memory() == 4 * GIB


def test_cgroup_limit_counts_the_page_cache_as_free(files: dict[str, str]) -> None:
    limit(files, "/user/job", str(2 * GIB), GIB, cache=GIB // 2)
    assert memory.free_memory() == 3 * GIB // 2


def test_the_tightest_of_the_parents_counts(files: dict[str, str]) -> None:
    limit(files, "/user/job", str(8 * GIB), GIB)
    limit(files, "/user", str(2 * GIB), GIB)
    assert memory.free_memory() == GIB
    limit(files, "/", str(GIB), 2 * GIB)  # the root of a container, already past its limit
    assert memory.free_memory() == 0


def test_without_proc(files: dict[str, str]) -> None:
    files.clear()
    free = memory.free_memory()
    assert free is None or free > 0


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [
        (0, "0 bytes"),
        (1023, "1023 bytes"),
        (1024, "1.00 KiB"),
        (3 << 29, "1.50 GiB"),
        (1 << 42, "4.00 TiB"),
        (1 << 63, "8.00 EiB"),
    ],
)
def test_sizes(nbytes: int, text: str) -> None:
    assert memory.format_size(nbytes) == text
