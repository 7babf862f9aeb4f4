"""What ``pool.watch()`` returns."""

from __future__ import annotations

import os
import sys
import threading
import weakref
import webbrowser
from pathlib import Path
from typing import Any, Self

from stepmill.errors import ConfigError, UsageError
from stepmill.hosts.host import Uncopyable
from stepmill.hosts.observing import WatchedPool
from stepmill.tools.watching.control import Control
from stepmill.tools.watching.observer import Observer
from stepmill.tools.watching.report import Reporter
from stepmill.tools.watching.server import Server

_MOST_PORTS = 65535


class Watch(Uncopyable):
    """A page that shows a pool. It ends with ``close()``, with a ``with`` block, or with the pool.

    Args:
        pool: The pool.
        port: The port; 0: any that is free.
        open_browser: Whether to open the page now; None: if there is a terminal and a display.
        control: For a program that lets the page pause it.
    """

    def __init__(
        self,
        pool: WatchedPool,
        *,
        port: int = 0,
        open_browser: bool | None = None,
        control: Control | None = None,
    ) -> None:
        _check_port(port)
        self._observer = Observer(pool, control)
        self._server = Server(Reporter(self._observer, pool), port)
        # Also when the pool is gone, or the program ends.
        self._end = weakref.finalize(pool.engine, self._server.close)
        self._observer.start()
        if _has_display() if open_browser is None else open_browser:
            self.open()

    @property
    def url(self) -> str:
        """Where the page is. It opens only in a browser that came through ``file``."""
        return f"http://127.0.0.1:{self.port}/"

    @property
    def port(self) -> int:
        """The port, on this machine's own address."""
        return self._server.port

    @property
    def file(self) -> Path:
        """What opens the page: give it to your browser. Other users cannot read it. It works once, then another takes
        its place; it is removed when the page ends.
        """
        return self._server.guard.entry.path

    def new_link(self) -> str:
        """An address that opens the page in one browser, once: for a browser that cannot read ``file``, such as that of
        another machine to which the port is forwarded. Whoever has it first is let in, so keep it to yourself. The one
        that was asked for before no longer works.
        """
        if self.closed:
            raise UsageError("new_link: the page has ended")
        return self._server.guard.new_link()

    @property
    def closed(self) -> bool:
        """Whether the page has ended."""
        return not self._end.alive

    def open(self) -> None:
        """Opens the page in the default browser, which may be one more."""
        # In a thread: some browsers take long to start.
        threading.Thread(target=webbrowser.open, args=(self.file.as_uri(),), daemon=True).start()

    def look_again(self) -> None:
        """Draws what has come into view, while the program that uses the pool waits; that program calls it."""
        self._observer.look_again()

    def close(self) -> None:
        """Ends the page. The pool goes on, unwatched. Idempotent."""
        if self._end.alive:
            self._observer.stop()
        self._end()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return "Watch(closed)" if self.closed else f"Watch({self.url}, opens with {self.file})"


def page_of(pool: WatchedPool, page: Watch | None, port: int, open_browser: bool | None) -> Watch:
    """The page of a pool: the one that it has, if that is still open, or a new one."""
    _check_port(port)
    if page is None or page.closed:
        return Watch(pool, port=port, open_browser=open_browser)
    if open_browser:
        page.open()
    return page


def _check_port(port: Any) -> None:
    if isinstance(port, bool) or not isinstance(port, int):
        raise ConfigError(f"port: expected an int, got {port!r}")
    if not 0 <= port <= _MOST_PORTS:
        raise ConfigError(f"port: expected a free port up to {_MOST_PORTS}, or 0 for any, got {port}")


def _has_display() -> bool:
    """Whether the user sits in front of it: else a browser could take over a terminal."""
    shown = any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"))
    return shown and sys.stderr is not None and sys.stderr.isatty()
