"""The file that lets a browser in: only its user can read it, and it leads to the page with a ticket."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from pathlib import Path

__all__ = ["EntryFile"]

_PAGE = """<!doctype html>
<meta charset="utf-8">
<meta name="referrer" content="no-referrer">
<meta http-equiv="refresh" content="0;url={address}">
<title>stepmill watch</title>
<p><a href="{address}">stepmill watch</a>
"""


class EntryFile:
    """A file in a folder of its own, both closed to other users; removed with ``remove``."""

    def __init__(self) -> None:
        runtime = os.environ.get("XDG_RUNTIME_DIR", "")
        usable = bool(runtime) and os.path.isdir(runtime) and os.access(runtime, os.W_OK | os.X_OK)
        self._folder = Path(tempfile.mkdtemp(prefix="stepmill-watch-", dir=runtime if usable else None))  # mode 0700
        self.path = self._folder / "open.html"

    def write(self, address: str) -> None:
        """Makes the file lead there, in place of where it led before."""
        new = self._folder / "new.html"
        with contextlib.suppress(FileNotFoundError):
            new.unlink()
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            file.write(_PAGE.format(address=address))
        new.replace(self.path)

    def remove(self) -> None:
        """Removes the file and its folder."""
        shutil.rmtree(self._folder, ignore_errors=True)
