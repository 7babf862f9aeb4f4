"""Serves the page to browsers of this machine, and to nobody whom the guard does not know."""

from __future__ import annotations

import contextlib
import importlib.resources
import json
import os
import socket
import threading
import urllib.parse
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from stepmill.errors import ConfigError
from stepmill.tools.watching.guard import HEADERS, Guard
from stepmill.tools.watching.report import Question, Reporter

_FILES = {
    "": ("index.html", "text/html; charset=utf-8"),
    "style.css": ("style.css", "text/css; charset=utf-8"),
    "app.js": ("app.js", "text/javascript; charset=utf-8"),
    "charts.js": ("charts.js", "text/javascript; charset=utf-8"),
    "replay.js": ("replay.js", "text/javascript; charset=utf-8"),
    "icon.svg": ("icon.svg", "image/svg+xml"),
}
_TO_PAGE = """<!doctype html>
<meta charset="utf-8">
<meta http-equiv="refresh" content="0;url={}">
<link rel="icon" href="data:,">
<title>stepmill watch</title>
"""
_NOT_YOU = "This page opens only through the file that its program names: open that file in this browser.\n"
_USED = "This link has been used already. Open the file again: it has a new one.\n"
_MOST_BODY = 1000
_MOST_CONNECTIONS = 64
_IDLE_S = 15.0
_DROP_S = 1.0  # that a dropped connection may take to end


class Server(ThreadingHTTPServer):
    """A server on this machine's own address, in threads that do not keep the program alive.

    Attributes:
        port: Its port.
        guard: Who lets browsers in.
    """

    daemon_threads = True
    block_on_close = False
    request_queue_size = 32

    def __init__(self, reporter: Reporter, port: int) -> None:
        self.reporter = reporter
        self.stopped = False
        self._free = threading.BoundedSemaphore(_MOST_CONNECTIONS)
        self._lock = threading.Lock()
        self._strangers: dict[socket.socket, None] = {}  # connections without a cookie so far, oldest first
        try:
            super().__init__(("127.0.0.1", port), _Handler)
        except (OSError, OverflowError) as error:
            raise ConfigError(f"port: expected a free port, or 0 for any, got {port!r}: {error}") from error
        self.port: int = self.server_address[1]
        self.guard = Guard(self.port)
        self._pid = os.getpid()
        self._thread = threading.Thread(target=self._serve, name="stepmill-watch", daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        """Takes connections until it is stopped."""
        while not self.stopped:
            self.handle_request()
        self.server_close()

    def close(self) -> None:
        """Ends it, and removes the file. The garbage collector may call this, in any thread."""
        if os.getpid() != self._pid:
            return  # a forked child has no thread to end, and must leave the parent's socket alone
        self.guard.entry.remove()
        self.stopped = True
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)  # wakes the thread, which then closes the socket
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Anybody on this machine can connect. They must neither start threads without end nor keep the user out."""
        if not self._free.acquire(blocking=False):
            self._drop_a_stranger()
            if not self._free.acquire(timeout=_DROP_S):
                self.shutdown_request(request)
                return
        with self._lock:
            self._strangers[request] = None
        super().process_request(request, client_address)

    def _drop_a_stranger(self) -> None:
        with self._lock, contextlib.suppress(StopIteration, OSError):
            oldest = next(iter(self._strangers))
            del self._strangers[oldest]
            oldest.shutdown(socket.SHUT_RDWR)  # its thread reads the end, and closes it

    def knows(self, request: Any) -> None:
        """Says that a connection is the user's."""
        with self._lock:
            self._strangers.pop(request, None)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.knows(request)
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Says nothing: a browser that goes away is no error, and stderr belongs to the program."""


class _Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"
    timeout = _IDLE_S
    server_version = "stepmill"
    sys_version = ""

    def handle_one_request(self) -> None:
        """Answers a request, and none any more once the page has ended."""
        super().handle_one_request()
        if self.server.stopped:
            self.close_connection = True

    def do_GET(self) -> None:
        url = urllib.parse.urlsplit(self.path)
        guard = self.server.guard
        if self._is_refused(changes=False):
            return
        if url.path == "/enter":
            self._enter(urllib.parse.parse_qs(url.query).get("ticket", [""])[0])
        elif not self._is_known():
            self._say(HTTPStatus.FORBIDDEN, _NOT_YOU)
        elif not url.path.startswith(guard.place):
            self._say(HTTPStatus.NOT_FOUND, "There is nothing here.\n")
        else:
            self._serve(url.path.removeprefix(guard.place), url.query)

    def do_POST(self) -> None:
        guard = self.server.guard
        body = self._body()
        if self._is_refused(changes=True):
            return
        if not self._is_known():
            self._say(HTTPStatus.FORBIDDEN, _NOT_YOU)
        elif self.path != f"{guard.place}command" or body is None:
            self._say(HTTPStatus.NOT_FOUND, "There is nothing here.\n")
        elif self.server.reporter.command(*body):
            self._send(HTTPStatus.OK, b"{}", "application/json")
        else:
            self._say(HTTPStatus.BAD_REQUEST, "This is not possible here.\n")

    # ---- parts -------------------------------------------------------------------------------

    def _is_refused(self, changes: bool) -> bool:
        if self.server.stopped:
            self.close_connection = True
            return True
        reason = self.server.guard.refuses(self.headers, changes)
        if reason is not None:
            self._say(HTTPStatus.FORBIDDEN, f"Refused: {reason}.\n")
        return reason is not None

    def _is_known(self) -> bool:
        known = self.server.guard.knows(self.headers)
        if known:
            self.server.knows(self.connection)
        return known

    def _enter(self, ticket: str) -> None:
        """Gives the cookie to a browser with a ticket.

        The page that sends it on is one of ours: after a mere redirection the browser would hold its cookie back, since
        the file that led here is another site.
        """
        guard = self.server.guard
        if not guard.redeem(ticket):
            self._say(HTTPStatus.FORBIDDEN, _USED)
            return
        page = _TO_PAGE.format(guard.place).encode()
        self._send(HTTPStatus.OK, page, "text/html; charset=utf-8", {"Set-Cookie": guard.cookie_header()})

    def _serve(self, path: str, query: str) -> None:
        if path == "state":
            self._send(HTTPStatus.OK, self.server.reporter.answer(_question(query)), "application/json")
        elif path in _FILES:
            name, kind = _FILES[path]
            content = importlib.resources.files("stepmill.tools.watching").joinpath("page", name).read_bytes()
            self._send(HTTPStatus.OK, content, kind)
        else:
            self._say(HTTPStatus.NOT_FOUND, "There is nothing here.\n")

    def _body(self) -> tuple[str, float | None] | None:
        """The command that was sent, if it is one."""
        try:
            length = int(self.headers.get("Content-Length", ""))
            if not 0 <= length <= _MOST_BODY:
                raise ValueError(length)
            content = json.loads(self.rfile.read(length))
            speed = content.get("speed")
            return str(content["command"]), None if speed is None else float(speed)
        except (ValueError, KeyError, TypeError, AttributeError):
            self.close_connection = True  # the rest of the body would be taken for a request
            return None

    def _say(self, status: HTTPStatus, text: str) -> None:
        self._send(status, text.encode(), "text/plain; charset=utf-8")

    def _send(self, status: HTTPStatus, content: bytes, kind: str, more: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {**HEADERS, "Content-Type": kind, "Content-Length": len(content), **(more or {})}.items():
            self.send_header(name, str(value))
        self.end_headers()
        self.wfile.write(content)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """For requests that are none: with our headers too."""
        self.close_connection = True
        self._say(HTTPStatus(code), f"{message or HTTPStatus(code).phrase}\n")

    def log_message(self, format: str, *args: Any) -> None:
        """Says nothing: stderr belongs to the program."""


def _question(query: str) -> Question:
    """What a browser asks; what is missing or wrong is as by default."""
    given = {name: values[0] for name, values in urllib.parse.parse_qs(query).items()}
    numbers = {}
    for name in ("first", "count", "picked", "since", "top", "bottom"):
        if given.get(name, "").isdecimal() and len(given[name]) < 16:
            numbers[name] = int(given[name])
    return Question(given.get("viewer", ""), **numbers)
