"""``stepmill top``: the pools of running processes, from outside."""

from __future__ import annotations

import contextlib
import json
import os
import select
import sys
import termios
import time
import tty
from collections.abc import Iterator
from typing import Any, Self

import click
from rich.console import Console, Group
from rich.live import Live

from stepmill.errors import UsageError
from stepmill.tools.cli.options import Seconds, json_option
from stepmill.tools.cli.terminal import Terminal, until_interrupted


@click.command("top")
@click.argument("pid", type=click.IntRange(min=1), required=False)
@click.option("--interval", type=Seconds(least=0.1), default=1.0, show_default=True, help="Seconds between looks.")
@click.option("--once", is_flag=True, help="Print one look and end.")
@json_option
def command(pid: int | None, interval: float, once: bool, terminal: Terminal) -> int:
    """Show the pools of a running process, live: speed, where the time goes, slow envs, restarts, memory.

    Nothing has to be started in the program. Without PID, all processes of this user that have pools are listed, or the
    only one is shown. `q` or Ctrl-C ends it. With --json and without --once, each look is one line.

    \b
    stepmill top
    stepmill top 4242
    stepmill top 4242 --once --json
    """
    watched = _Watched(pid)
    with _Keys(live=not once and not terminal.json) as keys, until_interrupted() as ending:
        if once:
            keys.wait(interval)
            document = watched.look()
            terminal.result(document, lambda out: out.print(watched.draw(out, document)))
        elif terminal.json:
            terminal.close()  # nothing here prints anything else, and each look is written at once
            for document in _documents(watched, keys, interval):
                sys.stdout.write(json.dumps(document, allow_nan=False) + "\n")
                sys.stdout.flush()
        else:
            _show(watched, keys, interval, terminal)
    return ending.code


class _Watched:
    """The processes that are shown: the given one, or all that have pools."""

    def __init__(self, pid: int | None) -> None:
        from stepmill.tools.top.processes import look_at, pids_with_pools

        self._look_at, self._find = look_at, pids_with_pools
        self._pid = pid
        self._before: dict[int, Any] = {}
        if pid is not None:
            self._before[pid] = look_at(pid)
            return
        for one in self._look_at_all():
            self._before[one.pid] = one
        if not self._before:
            raise UsageError("no process of this user has pools of stepmill that it shows. `stepmill top PID` says why")

    def _look_at_all(self) -> list[Any]:
        looks = []
        for pid in self._find():
            try:
                looks.append(self._look_at(pid))
            except UsageError:
                continue  # it ended meanwhile, or is another version's
        return looks

    def look(self) -> dict[str, Any]:
        """What happened since the last look. Raises UsageError if there is nothing left to look at."""
        from stepmill.tools.top.report import report

        looks = self._look_at_all() if self._pid is None else [self._look_at(self._pid)]
        if not looks:
            raise UsageError("the last process with pools has closed them, or ended")
        document = {"processes": [report(self._before.get(one.pid), one) for one in looks]}
        self._before = {one.pid: one for one in looks}
        return document

    def draw(self, out: Console, document: dict[str, Any]) -> Group:
        from stepmill.tools.cli.top_tables import list_processes, show_process

        processes = document["processes"]
        return show_process(out, processes[0]) if len(processes) == 1 else list_processes(out, processes)


def _documents(watched: _Watched, keys: _Keys, interval: float) -> Iterator[dict[str, Any]]:
    """A look after each interval, until a key ends it, or all that was watched has ended."""
    while not keys.wait(interval):
        try:
            document = watched.look()
        except UsageError:
            return
        yield document


def _show(watched: _Watched, keys: _Keys, interval: float, terminal: Terminal) -> None:
    out = terminal.out
    shown: Group | None = None
    if not out.is_terminal:
        for document in _documents(watched, keys, interval):
            out.print(watched.draw(out, document))
        return
    try:
        with Live(console=out, screen=True, auto_refresh=False) as live:
            for document in _documents(watched, keys, interval):
                shown = watched.draw(out, document)
                live.update(shown, refresh=True)
    finally:
        if shown is not None:
            out.print(shown)  # what was last to be seen stays
    if not keys.ended:
        terminal.remark("all that was shown has ended, or closed its pools")


class _Keys:
    """Reads single keys from the terminal while it is used in a ``with``; without a terminal it only waits.

    Attributes:
        ended: Whether ``q`` was pressed.
    """

    def __init__(self, live: bool) -> None:
        self._live = live and sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty()
        self._before: list[Any] | None = None
        self.ended = False

    def wait(self, seconds: float) -> bool:
        """Waits; whether a key has ended the view."""
        end = time.monotonic() + seconds
        while not self.ended and (left := end - time.monotonic()) > 0:
            if self._before is None:
                time.sleep(left)
            elif select.select([sys.stdin], [], [], left)[0]:
                self.ended = os.read(sys.stdin.fileno(), 1) in (b"q", b"Q", b"")
        return self.ended

    def __enter__(self) -> Self:
        if self._live:
            with contextlib.suppress(termios.error):
                self._before = termios.tcgetattr(sys.stdin)
                tty.setcbreak(sys.stdin)
        return self

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            termios.tcsetattr(sys.stdin, termios.TCSADRAIN, self._before)
