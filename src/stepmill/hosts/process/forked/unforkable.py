"""What a fork cannot copy of a process, found in /proc: what it shares with others, and other threads and processes."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import stat
from collections.abc import Collection, Iterator

from stepmill.errors import StateError
from stepmill.system.guardian import children

# Their content is always the same, or random.
_HARMLESS_DEVICES = {"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"}
_STANDARD_STREAMS = (0, 1, 2)
_MOST_SHOWN = 3

Identity = tuple[int, int]  # of a file: device and inode


def check_forkable(own_fds: Collection[int], own_mappings: Collection[Identity]) -> None:
    """Raises ``StateError`` if a copy of this process would not be all of it, or would share something with it."""
    found = [*_threads(), *_children(), *_timers(), *_descriptors(own_fds), *_mappings(own_mappings)]
    if found:
        shown = ", ".join(found[:_MOST_SHOWN]) + (", and more" if len(found) > _MOST_SHOWN else "")
        raise StateError(
            f"its process cannot be saved by fork, as it has {shown}. Close it before save(), or write get_state() and "
            "set_state(state) (docs/environments.md)"
        )


def identity(fd: int) -> Identity:
    """Which file a descriptor is of."""
    status = os.fstat(fd)
    return status.st_dev, status.st_ino


def _threads() -> Iterator[str]:
    others = [task for task in os.listdir("/proc/self/task") if task != str(os.getpid())]
    if others:
        names = sorted({_read(f"/proc/self/task/{task}/comm").strip() for task in others})
        yield f"{len(others)} more thread{'s' if len(others) > 1 else ''} ({', '.join(names)})"


def _children() -> Iterator[str]:
    for pid in sorted(children()):
        yield f"a child process ({_read(f'/proc/{pid}/comm').strip()}, pid {pid})"


def _timers() -> Iterator[str]:
    for timer in (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF):
        if any(signal.getitimer(timer)):
            yield "a timer (setitimer, alarm)"


def _descriptors(own: Collection[int]) -> Iterator[str]:
    for name in os.listdir("/proc/self/fd"):
        fd = int(name)
        if fd in _STANDARD_STREAMS or fd in own:
            continue
        with contextlib.suppress(OSError):  # the one that we have just looked through
            path = os.readlink(f"/proc/self/fd/{fd}")
            mode = os.fstat(fd).st_mode
            is_place = fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_PATH  # which can be neither read nor written
            what = None if is_place else _kind_of(mode, path)
            if what is not None:
                yield f"{what} open (descriptor {fd}, {path})"


def _kind_of(mode: int, path: str) -> str | None:
    if stat.S_ISSOCK(mode):
        return "a socket"
    if stat.S_ISFIFO(mode):
        return "a pipe"
    if stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
        return None if path in _HARMLESS_DEVICES else "a device"
    if stat.S_ISREG(mode):
        return "a file, whose position would be shared,"
    if stat.S_ISDIR(mode):
        return "a folder, whose position would be shared,"
    if path == "anon_inode:[pidfd]":  # without anything that could change
        return None
    return "an epoll" if "eventpoll" in path else "an object of the kernel"


def _mappings(own: Collection[Identity]) -> Iterator[str]:
    with open("/proc/self/maps", "rb") as file:
        maps = file.read()
    for line in maps.splitlines():
        _, _, rest = line.partition(b" ")  # behind the addresses: "rw-s", offset, device, inode, path
        if rest[1:4:2] != b"ws":  # what can only be read is the same for all
            continue
        _, _, device, inode, *path = rest.split(maxsplit=4)
        major, minor = (int(part, 16) for part in device.split(b":"))
        if (os.makedev(major, minor), int(inode)) not in own:
            yield f"memory that it shares ({os.fsdecode(b''.join(path))})"


def _read(path: str) -> str:
    try:
        with open(path) as file:
            return file.read()
    except OSError:  # it has just ended
        return "?"
