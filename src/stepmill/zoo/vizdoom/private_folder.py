"""Where a game runs: in a folder of its own, which is gone as soon as the game has started.

A game of ViZDoom makes a folder and a file in its working directory, and three names in ``/dev/shm``. Once it runs,
neither it nor its controller needs them. So they are removed at once, and nothing is left behind, however either of the
two ends. ``cpp/programs/start_game.cpp`` does the rest, in the process that becomes the game.

A process that is killed while its game starts leaves the folder. The next process that starts a game finds it by its
lock, which nobody holds any more, and removes it.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

__all__ = ["SHARED", "START", "private_folder"]

START = "start"  # in the folder: what ViZDoom takes for the game's program
_PREFIX = "stepmill-doom-"
_LOCK = "lock"
_STARTER = Path(__file__).parent / "start_game"
SHARED = Path("/dev/shm")  # where a game and its controller meet
_SHARED_NAMES = ("ViZDoomSM", "ViZDoomMQCtr", "ViZDoomMQDoom")


@contextlib.contextmanager
def private_folder(program: str, parent: int | None = None) -> Iterator[Path]:
    """A folder to start one game in, for as long as that takes.

    Args:
        program: The game's.
        parent: The process that starts it, if it is known already; else that process writes it down.
    """
    _sweep(tempfile.gettempdir())
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
    lock = os.open(folder / f"new {_LOCK}", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        (folder / f"new {_LOCK}").rename(folder / _LOCK)  # so it has been held for as long as it has its name
        (folder / START).symlink_to(_STARTER)
        (folder / "game").symlink_to(os.path.abspath(program))
        if parent is not None:
            (folder / "parent").symlink_to(str(parent))
        yield folder
    finally:
        _remove(folder)
        os.close(lock)


def _remove(folder: Path) -> None:
    with contextlib.suppress(OSError):  # the game was not started
        instance = os.readlink(folder / "instance")
        for name in _SHARED_NAMES:
            (SHARED / f"{name}{instance}").unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)


@functools.cache
def _sweep(temporary: str) -> None:
    """Removes the folders of processes that are gone; once per process."""
    for folder in Path(temporary).glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):  # another user's, or somebody holds its lock
            lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CLOEXEC)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _remove(folder)
            finally:
                os.close(lock)
