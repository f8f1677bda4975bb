"""The files of the cache. Whatever fails here is a miss, and never an error of the program.

There are no locks: an entry is written to a temporary file and renamed, and writers of one entry
write the same bytes. A bundle, read whole and once, stands before the files.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import threading
import time
from collections.abc import Iterator
from typing import Any, Final

from tack.runtime.disk import config
from tack.runtime.disk.entry import Key, key_name, key_text, pack_entry, read_bundle, read_entry

__all__ = ["BUNDLE", "TEMPORARY", "Store", "cached", "check_private", "is_version", "load_bytes", "store"]

BUNDLE: Final = ".bundle"
TEMPORARY: Final = ".tmp"
SUFFIXES: Final = (".ir", ".variant")
MARK: Final = ".pruned"
_HOUR: Final = 3600
_KEPT: Final = 0.9  # how much of the limit pruning leaves
# Not to wait: what is no file, such as a pipe, is no entry.
_READING: Final = os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0)
_VERSION: Final = r"v\d+-[0-9a-f]{32}"
_TEMPORARY: Final = r"[0-9a-f]+-[0-9a-f]{12}\.tmp"  # as `put_file` names them


def is_version(name: str) -> bool:
    """Whether a directory of this name is a version's."""
    return re.fullmatch(_VERSION, name) is not None


def check_private(about: os.stat_result) -> str | None:
    """Why what this describes may not be trusted: it holds code that will run."""
    if not hasattr(os, "geteuid"):
        return None
    if about.st_uid != os.geteuid():
        return "it belongs to another user"
    return "others may write to it" if about.st_mode & 0o022 else None


class Store:
    """One process's view of the cache directory.

    ``counts`` says what happened: hits, misses, bad (damaged entries, which count as misses too),
    stored and failed.
    """

    def __init__(self, settings: config.Config) -> None:
        self.settings = settings
        rank = config.mpi_rank()
        self.writes = settings.mode == "write" and rank in (None, 0)
        self.counts = dict.fromkeys(("hits", "misses", "bad", "stored", "failed"), 0)
        self.bundle: dict[str, memoryview] | None = None  # None: not looked for yet
        self.usable = settings.mode != "off"
        self.path = ""
        self._made = False
        self._next_prune = 0.0
        if self.usable:
            self._open()

    def _open(self) -> None:
        directory, version = self.settings.directory, config.version_name()
        if directory is None:
            self._refuse("there is no home directory for it; set TACK_CACHE_DIR")
        elif version is None:
            self._refuse("Tack's own files cannot be read, so its version is unknown")
        else:
            self.path = os.path.join(directory, version)
            if self.settings.mode != "bundle":
                self._made = self._check(directory) and self._check(self.path)

    def _refuse(self, reason: str) -> None:
        self.usable = False
        where = self.settings.directory or "the kernel cache"
        config.warn_once("directory", f"kernels compile without the disk cache {where}: {reason}")

    def _check(self, path: str) -> bool:
        """Whether a directory of the cache is there; refuses the cache if others may write to it."""
        try:
            about = os.stat(path)
        except FileNotFoundError:
            return False
        except OSError as error:
            self._refuse(error.strerror or str(error))
            return False
        reason = "it is no directory" if not stat.S_ISDIR(about.st_mode) else check_private(about)
        if reason is not None:
            self._refuse(reason)
        return reason is None

    def _open_bundle(self) -> None:
        """Reads the directory's bundle; a job without one compiles in memory."""
        path = self.path + BUNDLE
        data = None
        try:
            data = load_bytes(path)
        except FileNotFoundError:
            pass
        except (OSError, ValueError) as error:
            config.warn_once("bundle", f"the bundle {path} is not used: {error_text(error)}")
        self.use_bundle(data, path)

    def use_bundle(self, data: bytes | None, path: str) -> int:
        """Puts a bundle's entries before the files; their number, 0 if there is none or it is damaged."""
        found: dict[str, memoryview] = {}
        if data is not None:
            try:
                found = read_bundle(data)
            except ValueError as error:
                config.warn_once("bundle", f"the bundle {path} is not used: {error}")
        self.bundle = found  # last: another thread must not see a bundle that is still empty
        return len(found)

    # --- reading ---

    def read(self, key: Key, suffix: str) -> tuple[dict[str, Any], list[memoryview]] | None:
        """The facts and sections of the entry with this key, or None."""
        if not self.usable:
            return None
        text = key_text(key)
        name = key_name(text) + suffix
        data = self._bytes(name)
        found = None if data is None else read_entry(data, text)
        if found is None:
            self.counts["misses"] += 1
            self.counts["bad"] += data is not None
            return None
        self.counts["hits"] += 1
        return found[1], found[2]

    def outdated(self) -> None:
        """Counts the entry that was read last as a miss."""
        self.counts["hits"] -= 1
        self.counts["misses"] += 1

    def peek(self, key: Key, suffix: str) -> tuple[dict[str, Any], list[memoryview]] | None:
        """As `read`, but counts nothing."""
        counts = dict(self.counts)
        found = self.read(key, suffix)
        self.counts = counts
        return found

    def forget_directory(self) -> None:
        """Looks at the directory anew: it may be gone."""
        self._made = self._made and os.path.isdir(self.path)

    def _bytes(self, name: str) -> bytes | None:
        if self.bundle is None and self.settings.mode == "bundle":
            with _lock:
                if self.bundle is None:
                    self._open_bundle()
        if self.bundle is not None and name in self.bundle:
            return bytes(self.bundle[name])
        if not self._made:
            return None
        try:
            descriptor = os.open(os.path.join(self.path, name), _READING)
        except OSError:
            return None
        try:
            about = os.fstat(descriptor)
            data = _read_all(descriptor, about.st_size)
            if self.writes and time.time() - about.st_mtime > _HOUR:
                os.utime(descriptor if os.utime in os.supports_fd else os.path.join(self.path, name))
        except (OSError, MemoryError):
            return None
        finally:
            os.close(descriptor)
        return data

    # --- writing ---

    def write(self, key: Key, suffix: str, facts: dict[str, Any], sections: list[bytes]) -> bool:
        """Stores an entry; whether that worked."""
        if not (self.usable and self.writes):
            return False
        text = key_text(key)
        try:
            self._make()
            if not self.usable:
                return False
            put_file(self.path, key_name(text) + suffix, pack_entry(text, facts, sections))
        except OSError as error:
            self.counts["failed"] += 1
            config.warn_once(
                "write", f"a kernel was not kept in the disk cache {self.path}: {error_text(error)}"
            )
            return False
        self.counts["stored"] += 1
        self._prune_sometimes()
        return True

    def _make(self) -> None:
        """Makes the directories at the first store."""
        if not self._made:
            assert self.settings.directory is not None
            for path in (self.settings.directory, self.path):
                os.makedirs(path, mode=0o700, exist_ok=True)
                if not self._check(path):
                    return
            self._made = True

    def _prune_sometimes(self) -> None:
        """Prunes at most once an hour, across processes: the age of a mark says when that was last."""
        now = time.time()
        if now < self._next_prune:
            return
        self._next_prune = now + _HOUR
        assert self.settings.directory is not None
        mark = os.path.join(self.settings.directory, MARK)
        with contextlib.suppress(OSError):
            age = now - os.stat(mark).st_mtime
            if 0 <= age < _HOUR:
                self._next_prune = now + _HOUR - age
                return
        with contextlib.suppress(OSError):
            os.close(os.open(mark, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600))
            os.utime(mark)
            prune(self.settings.directory, self.settings.max_size)


# --- the whole directory ----------------------------------------------------------------------


def versions(directory: str) -> list[str]:
    """The paths of the directories of all versions."""
    try:
        with os.scandir(directory) as entries:
            return sorted(e.path for e in entries if is_version(e.name) and e.is_dir(follow_symlinks=False))
    except OSError:
        return []


def files(version: str) -> Iterator[os.DirEntry[str]]:
    """The entries and temporary files of a version's directory."""
    try:
        with os.scandir(version) as entries:
            yield from (e for e in entries if e.name.endswith((*SUFFIXES, TEMPORARY)))
    except OSError:
        return


def leftovers(directory: str) -> list[str]:
    """The paths of the temporary files beside the versions' directories, of bundles being made."""
    try:
        names = os.listdir(directory)
    except OSError:
        return []
    return [os.path.join(directory, name) for name in sorted(names) if re.fullmatch(_TEMPORARY, name)]


def prune(directory: str, max_size: int) -> tuple[int, int]:
    """Deletes the least recently used entries past the limit, until 90 % of it are left.

    Also temporary files that a killed process left an hour ago or longer. The number of entries
    deleted, and their bytes. A file that cannot be deleted is passed over.
    """
    found = []
    temporary = leftovers(directory)
    for version in versions(directory):
        for file in files(version):
            if file.name.endswith(TEMPORARY):
                temporary.append(file.path)
                continue
            with contextlib.suppress(OSError):
                about = file.stat(follow_symlinks=False)
                found.append((about.st_mtime, about.st_size, file.path))
    old = time.time() - _HOUR
    for path in temporary:
        with contextlib.suppress(OSError):
            if os.stat(path, follow_symlinks=False).st_mtime < old:
                os.unlink(path)
    total = sum(size for _, size, _ in found)
    if max_size == config.UNLIMITED or total <= max_size:
        return 0, 0
    deleted = freed = 0
    for _, size, path in sorted(found):
        if total - freed <= max_size * _KEPT:
            break
        with contextlib.suppress(OSError):
            os.unlink(path)
            deleted, freed = deleted + 1, freed + size
    return deleted, freed


def put_file(folder: str, name: str, data: bytes) -> None:
    """Writes a file so that a reader sees all of it or none."""
    temporary = os.path.join(folder, f"{os.getpid():x}-{os.urandom(6).hex()}{TEMPORARY}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    descriptor = os.open(temporary, flags, 0o600)
    try:
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(descriptor, view) :]
        finally:
            os.close(descriptor)
        os.replace(temporary, os.path.join(folder, name))
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def load_bytes(path: str) -> bytes:
    """The content of a bundle, which must be the user's own.

    Raises:
        OSError: it cannot be read.
        ValueError: others may have written it.
    """
    for place in (os.path.dirname(path), path):
        reason = check_private(os.stat(place))
        if reason is not None:
            raise ValueError(reason if place == path else f"of its directory, {reason}")
    with open(path, "rb", buffering=0) as file:
        return file.read()


def _read_all(descriptor: int, size: int) -> bytes:
    data = os.read(descriptor, size)
    while len(data) < size:
        more = os.read(descriptor, size - len(data))
        if not more:
            break
        data += more
    return data


def error_text(error: Exception) -> str:
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)


# --- this process's ---------------------------------------------------------------------------

_store: Store | None = None
_lock = threading.Lock()  # of threads that need the cache at once, one opens it


def _renew_lock() -> None:
    global _lock
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):  # a thread of the parent may have held it
    os.register_at_fork(after_in_child=_renew_lock)


def store() -> Store:
    """The process's store, opened at the first use; from then on the settings stay.

    Raises:
        ValueError: a variable has a bad value.
    """
    global _store
    if _store is None:
        with _lock:
            if _store is None:
                _store = Store(config.current())
    return _store


def cached() -> bool:
    """Whether kernels are looked up or stored at all."""
    return store().usable
