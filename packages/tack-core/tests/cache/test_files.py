"""Damage, wrong owners, places that cannot be written: compiled and right, with one warning at most."""

from __future__ import annotations

import os
import random
import stat
import subprocess
from collections.abc import Callable, Iterator
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


def _ranges(data: bytes) -> dict[str, tuple[int, int]]:
    """The parts of an entry: where each starts and ends."""
    found = {"magic": (0, 8), "checksum": (8, 40)}
    at = 40
    for name in ("key", "facts", "text", "places", "artifact"):
        if at < len(data):
            end = at + 8 + int.from_bytes(data[at : at + 8], "little")
            found |= {f"length of {name}": (at, at + 8), name: (at + 8, end)}
            at = end
    assert at == len(data)
    return found


PARTS = ("magic", "checksum", *(p for n in ("key", "facts", "text", "places") for p in (f"length of {n}", n)))


def test_every_byte_of_real_entries_counts(project: Project) -> None:
    project.run()
    for path in project.entries():
        data = path.read_bytes()
        assert set(_ranges(data)) - {"length of artifact", "artifact"} == set(PARTS)
        step = max(1, len(data) // 2000)
        for at in {*range(0, len(data), step), *range(200), *range(len(data) - 200, len(data))}:
            assert read_entry(data[:at]) is None
            assert read_entry(data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :]) is None


@pytest.mark.parametrize("cut", [False, True], ids=["flipped", "cut"])
def test_damage_to_each_part_of_an_entry(project: Project, cut: bool) -> None:
    project.run()
    for part in (*PARTS, "length of artifact", "artifact"):
        count = 0
        for path in project.entries():
            data = path.read_bytes()
            if part in (ranges := _ranges(data)):
                start, end = ranges[part]
                flipped = bytes(b ^ 0xFF for b in data[start:end])
                middle = (start + end) // 2
                path.write_bytes(data[:middle] if cut else data[:start] + flipped + data[end:])
                count += 1
        report = project.run()  # which also repairs them
        assert_miss(report, expected(), misses=count)
        assert report["bad"] == count == (2 if "artifact" in part else 4)


def test_a_valid_checksum_over_nonsense_is_compiled_anew(project: Project) -> None:
    project.run()
    for path in project.entries():
        text, facts, sections = read_entry(path.read_bytes()) or ("", {}, [])
        broken = [b"kernel nonsense", b"{}", b"\x08\x00\x00\x00{"][: len(sections)]
        path.write_bytes(pack_entry(text, facts, broken if path.suffix == ".variant" else sections))
    report = project.run()
    assert (report["results"], report["warnings"]) == (expected(), [])
    assert (report["hits"], report["misses"]) == (2, 2)
    assert_hit(project.run(), expected())


def test_entries_of_two_levels_swapped_are_not_used(project: Project) -> None:
    project.run()
    pairs = list(zip(project.entries(".ir"), project.entries(".variant"), strict=True))
    for one, other in pairs:
        first, second = one.read_bytes(), other.read_bytes()
        one.write_bytes(second)
        other.write_bytes(first)
    report = project.run()
    assert_miss(report, expected(), misses=4)
    assert report["bad"] == 4


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes here")
def test_an_entry_that_is_a_pipe_does_not_hang(project: Project) -> None:
    project.run()
    for path in project.entries():
        path.unlink()
        os.mkfifo(path, 0o600)
    assert_miss(project.run(), expected(), misses=4)
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


@pytest.mark.parametrize("inner", [False, True])
def test_a_directory_given_to_another_user_is_refused(project: Project, inner: bool) -> None:
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        pytest.skip("only root can give a directory away; this runs in CI")
    project.run()
    path = next(project.cache.glob("v*-*")) if inner else project.cache
    os.chown(path, 12345, -1)
    report = project.run()
    assert (report["results"], report["hits"], report["stored"]) == (expected(), 0, 0)
    ((kind, message),) = report["warnings"]
    assert kind == "CacheWarning"
    assert "it belongs to another user" in message


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


@pytest.fixture
def mount(project: Project) -> Iterator[Callable[[str], None]]:
    """Mounts a file system in memory, with these options, where the project's cache is."""

    def mount(options: str) -> None:
        project.cache.mkdir(exist_ok=True)
        command = ["mount", "-t", "tmpfs", "-o", f"mode=700,{options}", "tack-test", str(project.cache)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            reason = done.stderr.strip()
        except FileNotFoundError:
            reason = "there is no mount command"
        if not os.path.ismount(project.cache):
            pytest.skip(f"a tmpfs cannot be mounted here, which needs root: {reason}; this runs in CI")

    yield mount
    while os.path.ismount(project.cache):
        subprocess.run(["umount", str(project.cache)], check=True)


@pytest.mark.parametrize("size", ["size=4k", "size=8k", "size=12k", "size=1m,nr_inodes=4"])
def test_a_really_full_disk(project: Project, mount: Callable[[str], None], size: str) -> None:
    mount(size)
    for _ in range(2):
        report = project.run()
        assert report["results"] == expected()
        assert report["failed"] > 0
        ((kind, message),) = report["warnings"]
        assert kind == "CacheWarning"
        assert "No space left on device" in message
        assert report["hits"] + report["misses"] == 4
        found = project.entries()
        assert report["hits"] + report["stored"] == len(found) < 4
        assert all(read_entry(path.read_bytes()) is not None for path in found)
        assert not list(project.cache.glob("v*/*.tmp"))


def test_a_disk_that_gets_full_and_empty_again(project: Project, mount: Callable[[str], None]) -> None:
    mount("size=1m")
    project.run()
    filler = project.cache / "filler"
    with pytest.raises(OSError, match="No space"):
        filler.write_bytes(bytes(1 << 20))
    assert_hit(project.run(), expected())
    project.edit("deep", "constant(3)", "constant(4)")
    report = project.run()
    assert (report["results"], report["failed"], len(report["warnings"])) == (expected(scale=4), 4, 1)
    filler.unlink()
    assert_miss(project.run(), expected(scale=4))
    assert_hit(project.run(), expected(scale=4))


def test_a_directory_on_a_read_only_disk(project: Project, mount: Callable[[str], None]) -> None:
    mount("size=1m")
    project.run()
    subprocess.run(["mount", "-o", "remount,ro", str(project.cache)], check=True)
    for path in (project.cache, project.entries()[0]):
        with pytest.raises(OSError, match="Read-only"):
            os.utime(path)
    assert_hit(project.run(), expected())
    project.edit("deep", "constant(3)", "constant(4)")
    report = project.run()
    assert (report["results"], report["stored"]) == (expected(scale=4), 0)
    ((kind, message),) = report["warnings"]
    assert kind == "CacheWarning"
    assert "Read-only file system" in message
    assert project.run(TACK_CACHE="read")["warnings"] == []


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
    before = "import os, pwd\nos.environ.pop('HOME', None)\n"
    before += "def nobody(uid):\n    raise KeyError(uid)\npwd.getpwuid = nobody"
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
