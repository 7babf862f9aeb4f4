"""Lets only the user who started the program see the page, and nobody else on this machine or beyond it.

A file that only the user can read holds a ticket, which works once; on request, a link holds another. The browser
exchanges it for a cookie, which no script can read and no other site makes the browser send. Every request is checked:
that it is addressed to us by number (else a name that someone else controls could stand for this machine), that no
other page sends it, and its cookie.
"""

from __future__ import annotations

import contextlib
import fcntl
import hmac
import os
import secrets
import tempfile
from email.message import Message
from pathlib import Path

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}
"""What every answer says. There is nothing about other origins: they get nothing."""

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


class Guard:
    """Knows the secrets of one page, and the file that lets a browser in.

    Attributes:
        place: The folder of the page. A browser sends the cookie to all servers at this address, whatever their port,
            which may belong to other users: but only for this folder, and they do not know its name.
        entry: The file.
    """

    def __init__(self, port: int) -> None:
        self._host = f"127.0.0.1:{port}"
        self._name = f"stepmill-{port}"
        self._cookie = secrets.token_urlsafe(32)
        self._tickets: dict[str, str] = {}  # by where they were left
        self.place = f"/{secrets.token_urlsafe(12)}/"
        self.entry = EntryFile()
        self._renew()

    def new_link(self, left_in: str = "link") -> str:
        """An address that lets a browser in, once. The one that was left there before is no longer valid."""
        self._tickets[left_in] = secrets.token_urlsafe(32)
        return f"http://{self._host}/enter?ticket={self._tickets[left_in]}"

    def _renew(self) -> None:
        self.entry.write(self.new_link("file"))

    def redeem(self, ticket: str) -> bool:
        """Whether it is a ticket; then it has been used, and if it was the file's, that gets another."""
        found = [left_in for left_in, expected in list(self._tickets.items()) if _same(ticket, expected)]
        if not found or self._tickets.pop(found[0], None) is None:
            return False
        if found[0] == "file":
            self._renew()
        return True

    def cookie_header(self) -> str:
        """What gives the cookie to a browser; it ends with the browser."""
        return f"{self._name}={self._cookie}; Path={self.place}; HttpOnly; SameSite=Strict"

    def refuses(self, headers: Message, changes: bool) -> str | None:
        """Why a request is refused, whoever sent it. ``changes``: whether it would do something."""
        hosts, origins = headers.get_all("Host", []), headers.get_all("Origin", [])
        if len(hosts) != 1 or not _same(hosts[0], self._host):
            return "this page has another address"
        if len(origins) > 1 or any(not _same(one, f"http://{self._host}") for one in origins):
            return "another page sent this"
        if changes and not origins:
            return "this must come from the page itself"
        return None

    def knows(self, headers: Message) -> bool:
        """Whether the request has the cookie, and no other site led to it, as far as the browser says."""
        if headers.get("Sec-Fetch-Site", "none") not in ("same-origin", "none"):
            return False
        found = False
        for header in headers.get_all("Cookie", []):
            for part in header.split(";"):
                name, _, value = part.strip().partition("=")
                if name == self._name:
                    found |= _same(value, self._cookie)
        return found


def _same(given: str, expected: str) -> bool:
    """Takes as long for a nearly right text as for any other."""
    return hmac.compare_digest(given.encode("utf-8", "surrogateescape"), expected.encode())


# ---- the file that lets a browser in -------------------------------------------------------------


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
