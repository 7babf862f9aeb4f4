"""Who may see the page: the user who started the program, and nobody else on this machine or beyond it.

A file that only the user can read holds a ticket, which works once; on request, a link holds another. The browser
exchanges it for a cookie, which no script can read and no other site makes the browser send. Every request is checked:
that it is addressed to us by number (else a name that someone else controls could stand for this machine), that no
other page sends it, and its cookie.
"""

from __future__ import annotations

import hmac
import secrets
from email.message import Message

__all__ = ["HEADERS", "Guard"]

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


class Guard:
    """Knows the secrets of one page.

    Attributes:
        place: The folder of the page. A browser sends the cookie to all servers at this address, whatever their port,
            which may belong to other users: but only for this folder, and they do not know its name.
    """

    def __init__(self, port: int) -> None:
        self._host = f"127.0.0.1:{port}"
        self._name = f"stepmill-{port}"
        self._cookie = secrets.token_urlsafe(32)
        self._tickets: dict[str, str] = {}  # by where they were left
        self.place = f"/{secrets.token_urlsafe(12)}/"

    def new_ticket(self, left_in: str) -> str:
        """A ticket that lets a browser in, once. The one that was left there before is no longer valid."""
        self._tickets[left_in] = secrets.token_urlsafe(32)
        return self._tickets[left_in]

    def redeem(self, ticket: str) -> str | None:
        """Where the ticket was left, if it is one; then it has been used."""
        found = None
        for left_in, expected in list(self._tickets.items()):
            if _same(ticket, expected):
                found = left_in
        return found if found is not None and self._tickets.pop(found, None) is not None else None

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

    def comes_from_elsewhere(self, headers: Message) -> bool:
        """Whether the browser says that another site led to this request."""
        return headers.get("Sec-Fetch-Site", "none") not in ("same-origin", "none")

    def knows(self, headers: Message) -> bool:
        """Whether the request has the cookie."""
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
