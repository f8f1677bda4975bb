"""Damage, wrong owners, places that cannot be written: compiled and right, with one warning at most."""

from __future__ import annotations

import os
import random
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from project import Project, assert_hit, assert_miss, expected

from tack.runtime.disk import config, store
from tack.runtime.disk.entry import key_name, key_text, pack_bundle, pack_entry, read_bundle, read_entry

KEY = [("tack", "v1"), ("module", "m"), ("number", 3)]
ENTRY = pack_entry(key_text(KEY), {"facts": [1, 2]}, [b"text", bytes(range(64))])


# --- the format -------------------------------------------------------------------------------


def test_an_entry_reads_back() -> None:
    assert read_entry(ENTRY, key_text(KEY)) == (key_text(KEY), {"facts": [1, 2]}, [b"text", bytes(range(64))])
    assert read_entry(ENTRY, key_text([("other", 1)])) is None


def test_every_truncation_is_found() -> None:
    assert all(read_entry(ENTRY[:n]) is None for n in range(len(ENTRY)))
    assert read_entry(ENTRY + b"\0") is None


def test_every_flipped_bit_is_found() -> None:
    for at in range(len(ENTRY)):
        for bit in (1, 0x80):
            damaged = bytearray(ENTRY)
            damaged[at] ^= bit
            assert read_entry(bytes(damaged)) is None


def test_a_damaged_bundle_is_refused_and_a_damaged_entry_in_it_is_a_miss() -> None:
    bundle = pack_bundle({"a.ir": ENTRY, "b.ir": ENTRY[:-5]})
    found = read_bundle(bundle)
    assert bytes(found["a.ir"]) == ENTRY
    assert read_entry(bytes(found["b.ir"])) is None
    for n in range(len(bundle)):
        with pytest.raises(ValueError, match=r"damaged|cut short|not a bundle"):
            read_bundle(bundle[:n])


# --- entries of a program ---------------------------------------------------------------------

Damage = Callable[[bytes, random.Random], bytes]


def _flip(data: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(data) - 8)
    return data[:at] + bytes(b ^ 0xFF for b in data[at : at + 8]) + data[at + 8 :]


DAMAGES: dict[str, Damage] = {
    "truncated": lambda data, rng: data[: rng.randrange(len(data))],
    "flipped": _flip,
    "empty": lambda data, rng: b"",
    "wrong magic": lambda data, rng: b"TACK" + data[4:],
    "huge length": lambda data, rng: data[:40] + b"\xff" * 8 + data[48:],
    "other text": lambda data, rng: b"not an entry",
}


@pytest.mark.parametrize("name", DAMAGES)
def test_damaged_entries_are_compiled_anew(project: Project, name: str) -> None:
    project.run()
    rng = random.Random(7)
    for path in project.entries():
        path.write_bytes(DAMAGES[name](path.read_bytes(), rng))
    report = project.run()
    assert_miss(report, expected(), misses=4)
    assert report["bad"] == 4
    assert_hit(project.run(), expected())


@pytest.mark.parametrize("suffix", [".ir", ".variant"])
def test_swapped_entries_are_not_used(project: Project, suffix: str) -> None:
    project.run()
    first, second = project.entries(suffix)
    one, other = first.read_bytes(), second.read_bytes()
    first.write_bytes(other)
    second.write_bytes(one)
    report = project.run()
    assert report["results"] == expected()
    assert report["bad"] == 2
    assert_hit(project.run(), expected())


def test_an_entry_that_is_a_directory_is_a_miss(project: Project) -> None:
    project.run()
    path = project.entries(".variant")[0]
    path.unlink()
    path.mkdir()
    report = project.run()
    assert report["results"] == expected()
    assert (report["misses"], report["stored"], report["failed"]) == (1, 0, 1)
    assert len(report["warnings"]) == 1


# --- the directory ----------------------------------------------------------------------------


def test_directories_are_the_users_alone(project: Project) -> None:
    previous = os.umask(0o002)
    try:
        project.run()
    finally:
        os.umask(previous)
    for path in (project.cache, *project.cache.glob("v*")):
        if path.is_dir():
            assert stat.S_IMODE(path.stat().st_mode) == 0o700
    assert_hit(project.run(), expected())


@pytest.mark.parametrize("inner", [False, True])
def test_a_directory_that_others_may_write_to_is_refused(project: Project, inner: bool) -> None:
    project.run()
    path = next(project.cache.glob("v*-*")) if inner else project.cache
    path.chmod(0o770)
    report = project.run()
    assert report["results"] == expected()
    assert report["hits"] == report["stored"] == 0
    ((kind, message),) = report["warnings"]
    assert kind == "CacheWarning"
    assert "others may write to it" in message
    path.chmod(0o700)
    assert_hit(project.run(), expected())


def test_a_link_to_a_directory_is_judged_by_its_target(project: Project, tmp_path: Path) -> None:
    project.run()
    target = project.cache.rename(tmp_path / "elsewhere")
    project.cache.symlink_to(target)
    assert_hit(project.run(), expected())
    target.chmod(0o777)
    assert len(project.run()["warnings"]) == 1


def test_another_users_directory_is_refused(project: Project) -> None:
    project.run()
    report = project.run(before="import os\nown = os.geteuid()\nos.geteuid = lambda: own + 1")
    assert report["results"] == expected()
    assert report["hits"] == 0
    assert "another user" in report["warnings"][0][1]
    assert len(report["warnings"]) == 1


def test_a_path_with_spaces_and_unicode(project: Project, tmp_path: Path) -> None:
    project.cache = tmp_path / "Zwischen speicher" / "кэш ñandú" / ("x" * 100) / ("y" * 100)
    assert_miss(project.run(), expected(), misses=4)
    assert_hit(project.run(), expected())


def test_places_that_cannot_be_written(project: Project, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for place in (tmp_path / "file", tmp_path / "file" / "below", Path("/proc/tack")):
        project.cache = place
        report = project.run()
        assert report["results"] == expected()
        assert len(report["warnings"]) == 1
        assert report["warnings"][0][0] == "CacheWarning"


def test_a_full_disk(project: Project) -> None:
    limit = "import resource, signal\nsignal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
    report = project.run(limit + "resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))")
    assert report["results"] == expected()
    assert (report["stored"], report["failed"]) == (0, 4)
    assert len(report["warnings"]) == 1
    assert [p.name for p in project.cache.glob("v*/*")] == []
    assert_miss(project.run(), expected(), misses=4)


@pytest.mark.parametrize("call", ["open", "fstat", "read", "write", "replace", "makedirs", "stat", "utime"])
def test_every_failing_call_is_a_miss(project: Project, call: str) -> None:
    fail = "def fail(*args, **kwargs):\n    raise OSError(5, 'Input/output error')\n"
    patch = f"import os\nfrom tack.runtime.disk import store as s\n{fail}"
    patch += f"s.os = type('os', (), {{**vars(os), '{call}': staticmethod(fail)}})"
    project.run()
    report = project.run(patch)
    assert report["results"] == expected()
    assert len(report["warnings"]) <= 1


def test_a_home_that_cannot_be_made(project: Project, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")  # below it not even root can make a folder
    report = project.run(TACK_CACHE_DIR="", HOME=str(tmp_path / "file" / "home"))
    assert report["results"] == expected()
    assert (report["stored"], len(report["warnings"])) == (0, 1)


def test_no_home_and_no_entry_in_the_password_file(project: Project) -> None:
    before = "import os\nos.path.expanduser = lambda path: path"
    report = project.run(before, TACK_CACHE_DIR="")
    assert report["results"] == expected()
    assert report["stored"] == 0
    assert "no home directory" in report["warnings"][0][1]
    assert not (project.path / "~").exists()


def test_home_gives_the_place(project: Project, tmp_path: Path) -> None:
    project.run(TACK_CACHE_DIR="", HOME=str(tmp_path / "home"))
    assert len(list((tmp_path / "home" / ".cache" / "tack").glob("v*/*.ir"))) == 2
    project.run(TACK_CACHE_DIR="", HOME=str(tmp_path / "home"), XDG_CACHE_HOME=str(tmp_path / "xdg"))
    assert len(list((tmp_path / "xdg" / "tack").glob("v*/*.ir"))) == 2


# --- size -------------------------------------------------------------------------------------


def _fill(directory: Path, sizes: list[tuple[str, int, float]]) -> None:
    version = directory / f"v1-{'0' * 32}"
    version.mkdir(parents=True)
    for name, size, used in sizes:
        (version / name).write_bytes(b"x" * size)
        os.utime(version / name, (used, used))


def test_pruning_deletes_the_least_recently_used(tmp_path: Path) -> None:
    _fill(tmp_path, [(f"{k}.ir", 100, 1000.0 + k) for k in range(10)])
    (tmp_path / f"v1-{'0' * 32}.bundle").write_bytes(b"x" * 1000)
    assert store.prune(str(tmp_path), 1000) == (0, 0)
    assert store.prune(str(tmp_path), 500) == (6, 600)  # to 90 % of the limit: 450 bytes hold 4
    assert sorted(p.name for p in tmp_path.glob("v1-*/*")) == ["6.ir", "7.ir", "8.ir", "9.ir"]
    assert store.prune(str(tmp_path), config.UNLIMITED) == (0, 0)
    assert len(list(tmp_path.glob("*.bundle"))) == 1


def test_pruning_deletes_old_temporary_files_only(tmp_path: Path) -> None:
    import time

    _fill(tmp_path, [("old.tmp", 10, 1000.0), ("new.tmp", 10, time.time()), ("a.ir", 10, 1000.0)])
    store.prune(str(tmp_path), config.UNLIMITED)
    assert sorted(p.name for p in tmp_path.glob("v1-*/*")) == ["a.ir", "new.tmp"]


def test_a_writing_process_prunes_at_most_once_an_hour(project: Project) -> None:
    project.run()
    assert (project.cache / store.MARK).exists()
    project.edit("deep", "constant(3)", "constant(4)")
    project.run(TACK_CACHE_SIZE="1K")
    assert len(project.entries()) > 4  # the mark is fresh
    os.utime(project.cache / store.MARK, (1000, 1000))
    project.edit("deep", "constant(4)", "constant(5)")
    project.run(TACK_CACHE_SIZE="1K")
    assert len(project.entries()) < 4


def test_a_hit_refreshes_an_entrys_time(project: Project) -> None:
    project.run()
    for path in project.entries():
        os.utime(path, (1000, 1000))
    assert_hit(project.run(TACK_CACHE="read"), expected())
    assert all(p.stat().st_mtime == 1000 for p in project.entries())
    assert_hit(project.run(), expected())
    assert all(p.stat().st_mtime > 1000 for p in project.entries())


@pytest.mark.parametrize(
    ("text", "size"),
    [("500M", 500 << 20), ("2G", 2 << 30), ("1.5k", 1536), ("7", 7), ("unlimited", -1), ("1 GiB", 1 << 30)],
)
def test_sizes(text: str, size: int) -> None:
    assert config.parse_size(text) == size


@pytest.mark.parametrize("text", ["", "many", "-5", "1X", "G"])
def test_bad_sizes(text: str) -> None:
    with pytest.raises(ValueError, match="TACK_CACHE_SIZE"):
        config.parse_size(text)


def test_the_name_of_an_entry_is_the_digest_of_its_key(project: Project) -> None:
    project.run()
    for path in project.entries():
        entry: Any = read_entry(path.read_bytes())
        assert path.stem == key_name(entry[0])
