"""The file that lets a browser in: only its user can read it, and it leads to the page with a ticket."""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
from pathlib import Path

__all__ = ["EntryFile"]

_PREFIX = "stepmill-watch-"
_FILE, _NEW_FILE = "open.html", "new.html"
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

_PAGE = """<!doctype html>
<meta charset="utf-8">
<meta name="referrer" content="no-referrer">
<meta http-equiv="refresh" content="0;url={address}">
<title>stepmill watch</title>
<p><a href="{address}">stepmill watch</a>
"""


class EntryFile:
    """A file in a folder of its own, both closed to other users; removed with ``remove``.

    The folder is locked as long as its process lives. The folders of this user's programs that were killed, and could
    not remove them, are removed here.
    """

    def __init__(self) -> None:
        runtime = os.environ.get("XDG_RUNTIME_DIR", "")
        usable = bool(runtime) and os.path.isdir(runtime) and os.access(runtime, os.W_OK | os.X_OK)
        place = Path(runtime) if usable else Path(tempfile.gettempdir())
        _remove_left_behind(place)
        self._folder, self._lock = _new_folder(place)
        self.path = self._folder / _FILE

    def write(self, address: str) -> None:
        """Makes the file lead there, in place of where it led before."""
        new = self._folder / _NEW_FILE
        with contextlib.suppress(FileNotFoundError):
            new.unlink()
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            file.write(_PAGE.format(address=address))
        new.replace(self.path)

    def remove(self) -> None:
        """Removes the file and its folder. Idempotent."""
        with contextlib.suppress(OSError):
            _remove(self._folder)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def _new_folder(place: Path) -> tuple[Path, int | None]:
    """A folder with mode 0700, and the descriptor that locks it."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=place))
        try:
            lock: int | None = _locked(folder)
            if lock is None or os.path.samestat(os.fstat(lock), folder.stat()):
                return folder, lock
            os.close(lock)  # the name is another folder's by now
        except (BlockingIOError, FileNotFoundError):
            pass  # another program has just taken it for one that was left behind, and removes it


def _remove_left_behind(place: Path) -> None:
    """Removes the folders whose processes are gone."""
    for folder in place.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):  # another user's, or one in use, or removed meanwhile
            if folder.lstat().st_uid == os.geteuid() and (lock := _locked(folder)) is not None:
                try:
                    _remove(folder)
                finally:
                    os.close(lock)


def _remove(folder: Path) -> None:
    """Removes a folder of ours; one with anything else in it stays."""
    for name in (_FILE, _NEW_FILE):
        (folder / name).unlink(missing_ok=True)
    folder.rmdir()


def _locked(folder: Path) -> int | None:
    """The descriptor that locks a folder, until it is closed or its process ends in whatever way; None if this file
    system has no locks. Raises BlockingIOError if another has the lock.
    """
    found = os.open(folder, _FOLDER)
    try:
        fcntl.flock(found, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(found)
        raise
    except OSError:
        os.close(found)
        return None
    return found
