"""A program that becomes the game of a Doom env: to end with its parent, and to leave no names in ``/dev/shm``.

ViZDoom starts it in place of the game's program, see ``start.py``. It imports nothing of stepmill.
"""

import contextlib
import ctypes
import fcntl
import os
import signal
import sys

SHARED = "/dev/shm"  # where a game and its controller meet
_MARK = "stepmill-doom-"  # before the name of a game: a file that the game has locked until it ends
PR_SET_PDEATHSIG = 1


def main(parent: str, game: str, *arguments: str) -> None:
    """Becomes the game, of which ``parent`` is the process that starts it."""
    # The game waits for its controller forever, even for one that was killed.
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL))
    if os.getppid() != int(parent):
        sys.exit(1)
    # Ctrl-C in a terminal reaches all of its processes. What it means is for the controller to say.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    mark(arguments[arguments.index("+viz_instance_id") + 1])
    os.chdir(os.path.join(os.path.dirname(__file__), "working_directory"))
    os.execv(game, [game, *arguments])  # it looks for its data beside its program


def mark(instance: str) -> None:
    """Says that the names of a game are in use for as long as this process lives."""
    new = f"{SHARED}/new-{_MARK}{instance}"
    lock = os.open(new, os.O_CREAT | os.O_RDWR, 0o600)
    os.set_inheritable(lock, True)
    fcntl.flock(lock, fcntl.LOCK_EX)
    os.rename(new, f"{SHARED}/{_MARK}{instance}")  # so it has been locked for as long as it has its name


def remove_names(instance: str) -> None:
    """Removes what a game and its controller have opened, and do not need by name any more."""
    for name in ("ViZDoomSM", "ViZDoomMQCtr", "ViZDoomMQDoom", _MARK):
        with contextlib.suppress(OSError):
            os.unlink(f"{SHARED}/{name}{instance}")


def sweep() -> None:
    """Removes the names of games whose parent was killed while they started."""
    for mark in (one for one in os.listdir(SHARED) if one.startswith(_MARK)):
        with contextlib.suppress(OSError), open(f"{SHARED}/{mark}", "r+b") as lock:  # another user's, or held
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            remove_names(mark.removeprefix(_MARK))


if __name__ == "__main__":
    main(*sys.argv[1:])
