"""Keeps compiled libraries from one program to the next.

An entry is one file: a line of JSON that says what it was made of, then the library. Its name is a digest of all that
is known before compiling; the files that the author's includes are known only afterwards, so the entry lists them with
their digests, and counts only while they are the same, and while no other file has appeared that the compiler would
find first. Everything else follows from that:

- A writer renames a complete file into place, so a reader sees one entry or another, never a mixture; and the line has
  a digest of the library, in case the file system keeps no such promise.
- Who compiles holds a lock, so that others wait for the result instead of compiling the same. It is a ``flock``, which
  ends with the process that holds it, however that ends.
- Whatever goes wrong here (no home, a full disk, a folder that others may write to) is no error: the library is
  compiled, used, and not kept.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import stat
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

MOST_BYTES = 256 << 20
_FORMAT = 2


def digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()


_digests: dict[str, tuple[tuple[int, ...], str]] = {}


def file_digest(path: str) -> str:
    """The digest of a file, read once as long as it looks the same: an env includes 200 of them."""
    found = os.stat(path)
    look = found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
    known = _digests.get(path)
    if known is None or known[0] != look:
        known = _digests[path] = look, digest(Path(path).read_bytes())
    return known[1]


def namesakes(folder: str, files: Iterable[str]) -> list[str]:
    """The files in a folder that an include which found one of these may mean, too, whether it was used or not."""
    try:
        names = set(os.listdir(folder))
    except OSError:
        return []
    found = set()
    for file in files:
        parts = file.split("/")
        for i, first in enumerate(parts):  # whatever of the end of the path the include says
            if first in names:
                found.add(os.path.join(folder, *parts[i:]))
    return sorted(filter(os.path.isfile, found))


@dataclass(frozen=True)
class Entry:
    """A library, and what it was made of."""

    library: bytes
    files: dict[str, str]  # the digest of every file, by its path
    command: list[str]  # that was run
    seconds: float  # of processor time, which that took
    warnings: str  # what the compiler said
    beside: dict[str, list[str]] = field(default_factory=dict)  # `namesakes` of the files, by folder


class Cache:
    """A folder of entries, or none if there is no folder that can be trusted."""

    def __init__(self) -> None:
        self.folder = _trusted_folder()

    def find(self, key: str) -> Entry | None:
        """The entry of a key, if it is whole and its files are as they were."""
        if self.folder is None:
            return None
        try:
            path = self.folder / key
            head, _, library = path.read_bytes().partition(b"\n")
            said = json.loads(head)
            if said["format"] != _FORMAT or said["library"] != digest(library):
                return None
            if any(file_digest(file) != wanted for file, wanted in said["made"]["files"].items()):
                return None
            if any(namesakes(folder, said["made"]["files"]) != seen for folder, seen in said["made"]["beside"].items()):
                return None
            os.utime(path)  # the least recently used ones go first
            return Entry(library, **said["made"])
        except (OSError, ValueError, LookupError, TypeError, AttributeError):
            return None

    @contextlib.contextmanager
    def find_or_lock(self, key: str) -> Iterator[Entry | None]:
        """The entry of a key; None, with the lock held, if it has to be made."""
        entry = self.find(key)
        if entry is not None:
            yield entry
            return
        with self.lock(key):
            yield self.find(key)  # another process may have compiled it while this one waited

    def keep(self, key: str, entry: Entry) -> None:
        """Writes an entry, if that is possible, and removes old ones if there are too many."""
        if self.folder is None:
            return
        made = {name: value for name, value in vars(entry).items() if name != "library"}
        said = {"format": _FORMAT, "library": digest(entry.library), "made": made}
        name = None
        try:
            descriptor, name = tempfile.mkstemp(prefix="new-", dir=self.folder)
            with os.fdopen(descriptor, "wb") as file:
                file.write(json.dumps(said).encode() + b"\n" + entry.library)
            os.replace(name, self.folder / key)
            name = None
            self._remove_old()
        except OSError:
            pass
        finally:
            if name is not None:
                with contextlib.suppress(OSError):
                    os.unlink(name)

    @contextlib.contextmanager
    def lock(self, key: str) -> Iterator[None]:
        """Held while one process compiles what others may want too; where nothing can be locked, by nobody."""
        descriptor = None
        try:
            if self.folder is not None:
                with contextlib.suppress(OSError):
                    # Few, and never removed: one that is removed may still be waited for.
                    descriptor = os.open(self.folder / f"lock-{key[:2]}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
                    fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            if descriptor is not None:
                # Not only closed: a child that another thread has forked meanwhile has a copy of it.
                fcntl.flock(descriptor, fcntl.LOCK_UN)
                os.close(descriptor)

    def _remove_old(self) -> None:
        assert self.folder is not None
        entries = []
        for path in self.folder.iterdir():
            with contextlib.suppress(OSError):  # removed by another process meanwhile
                found = path.stat()
                if not path.name.startswith("lock-"):
                    entries.append((found.st_mtime, found.st_size, path))
        total = sum(size for _, size, _ in entries)
        for _, size, path in sorted(entries):
            if total <= MOST_BYTES:
                break
            with contextlib.suppress(OSError):
                path.unlink()
            total -= size


def key_of(facts: Mapping[str, Any]) -> str:
    """The name of an entry, from all that is known before compiling."""
    return digest(json.dumps(facts, sort_keys=True).encode())


def _trusted_folder() -> Path | None:
    """A folder that only this user can write to. What it holds is code that will run."""
    home = os.path.expanduser("~")
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(home, ".cache")
    if not os.path.isabs(base) or (home == "/" and base == "/.cache"):  # there is no home
        return None
    folder = Path(base) / "stepmill" / "compiled"
    try:
        # The one above as well: who may write to it can put another in the place of the folder.
        for one in (folder.parent, folder):
            one.mkdir(mode=0o700, parents=True, exist_ok=True)
            found = one.stat()
            if found.st_uid != os.geteuid() or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
                return None
    except OSError:
        return None
    return folder
