"""Where a game runs: in a folder of its own, which is gone as soon as the game has started.

A game of ViZDoom makes a folder and a file in its working directory, and three names in ``/dev/shm``. Once it runs,
neither it nor its controller needs them. So they are removed at once, and nothing is left behind, however either of the
two ends. ``cpp/programs/start_game.cpp`` does the rest, in the process that becomes the game.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

__all__ = ["START", "private_folder"]

START = "start"  # in the folder: what ViZDoom takes for the game's program
_STARTER = Path(__file__).parent / "start_game"
_SHARED = Path("/dev/shm")
_SHARED_NAMES = ("ViZDoomSM", "ViZDoomMQCtr", "ViZDoomMQDoom")


@contextlib.contextmanager
def private_folder(program: str, parent: int | None = None) -> Iterator[Path]:
    """A folder to start one game in, for as long as that takes.

    Args:
        program: The game's.
        parent: The process that starts it, if it is known already; else that process writes it down.
    """
    folder = Path(tempfile.mkdtemp(prefix="stepmill-doom-"))
    try:
        (folder / START).symlink_to(_STARTER)
        (folder / "game").symlink_to(os.path.abspath(program))
        if parent is not None:
            (folder / "parent").symlink_to(str(parent))
        yield folder
    finally:
        with contextlib.suppress(OSError):  # the game was not started
            instance = os.readlink(folder / "instance")
            for name in _SHARED_NAMES:
                (_SHARED / f"{name}{instance}").unlink(missing_ok=True)
        shutil.rmtree(folder, ignore_errors=True)
