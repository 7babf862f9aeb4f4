"""A program that becomes the game of a Doom env: to end with its parent, and to leave no files.

ViZDoom starts it in place of the game's program, see ``start.py``. It imports nothing of stepmill.
"""

import contextlib
import ctypes
import fcntl
import os
import signal
import sys

SHARED = "/dev/shm"  # where a game and its controller meet
_FOLDER = "stepmill-doom-"  # before the name of a game: where it runs. It has this folder locked until it ends
PR_SET_PDEATHSIG = 1


def main(parent: str, game: str, *arguments: str) -> None:
    """Becomes the game, of which ``parent`` is the process that starts it."""
    # The game waits for its controller forever, even for one that was killed.
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL))
    if os.getppid() != int(parent):
        sys.exit(1)
    # Ctrl-C in a terminal reaches all of its processes. What it means is for the controller to say.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    enter_folder(arguments[arguments.index("+viz_instance_id") + 1])
    os.execv(game, [game, *arguments])  # it looks for its data beside its program


def enter_folder(instance: str) -> None:
    """Makes a folder for what the game writes, if only when it crashes."""
    new, folder = f"{SHARED}/new-{_FOLDER}{instance}", f"{SHARED}/{_FOLDER}{instance}"
    os.mkdir(new, 0o700)
    lock = os.open(new, os.O_RDONLY)
    os.set_inheritable(lock, True)
    fcntl.flock(lock, fcntl.LOCK_EX)
    os.rename(new, folder)  # so it has been locked for as long as it has its name
    os.chdir(folder)


def remove_files(instance: str) -> None:
    """Removes what a game and its controller do not need by name once both have opened it."""
    import shutil

    for name in ("ViZDoomSM", "ViZDoomMQCtr", "ViZDoomMQDoom"):
        with contextlib.suppress(OSError):
            os.unlink(f"{SHARED}/{name}{instance}")
    shutil.rmtree(f"{SHARED}/{_FOLDER}{instance}", ignore_errors=True)


def sweep() -> None:
    """Removes the files of games whose parent was killed while they started."""
    for folder in (one for one in os.listdir(SHARED) if one.startswith(_FOLDER)):
        with contextlib.suppress(OSError):  # another user's, or the game lives
            lock = os.open(f"{SHARED}/{folder}", os.O_RDONLY)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                remove_files(folder.removeprefix(_FOLDER))
            finally:
                os.close(lock)


if __name__ == "__main__":
    main(*sys.argv[1:])
