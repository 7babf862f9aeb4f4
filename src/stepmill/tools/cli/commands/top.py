"""``stepmill top``: the pools of running processes, from outside."""

from __future__ import annotations

import contextlib
import os
import select
import sys
import termios
import time
import tty
from collections.abc import Iterator, Sequence
from typing import Any, Self

import click
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from stepmill.errors import UsageError
from stepmill.tools.cli.options import Seconds, json_option
from stepmill.tools.cli.terminal import Terminal, new_table, short, until_interrupted
from stepmill.tools.processes import ProcessSnapshot, look_at, pids_with_pools, report

_WIDE = 100  # columns; below, what matters less is left out
_MOST_WORKERS = 16
_LONG_SECONDS = 1.0  # what lasts for longer is pointed out
# How the shares of the time are called and coloured; the first letter of each fills the bar without colour.
_SHARES = (("envs", "green"), ("waiting", "yellow"), ("stepmill", "magenta"), ("caller", "blue"))


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
    processes = _Processes(pid)
    with _Keys(live=not once and not terminal.json) as keys, until_interrupted() as ending:
        if once:
            keys.wait(interval)
            document = processes.look()
            terminal.result(document, lambda out: out.print(_drawn(out, document["processes"])))
        elif terminal.json:
            for document in _documents(processes, keys, interval):
                terminal.line(document)
        else:
            _show(processes, keys, interval, terminal)
    return ending.code


class _Processes:
    """The processes that are shown: the given one, or all that have pools."""

    def __init__(self, pid: int | None) -> None:
        self._pid = pid
        self._before = self._look()
        if not self._before:
            raise UsageError("no process of this user has pools of stepmill that it shows. `stepmill top PID` says why")

    def _look(self) -> dict[int, ProcessSnapshot]:
        if self._pid is not None:
            return {self._pid: look_at(self._pid)}
        found = {}
        for pid in pids_with_pools():
            with contextlib.suppress(UsageError):  # it ended meanwhile, or is another version's
                found[pid] = look_at(pid)
        return found

    def look(self) -> dict[str, Any]:
        """What happened since the last look. Raises UsageError if there is nothing left to look at."""
        before, self._before = self._before, self._look()
        if not self._before:
            raise UsageError("the last process with pools has closed them, or ended")
        return {"processes": [report(before.get(pid), one) for pid, one in self._before.items()]}


def _documents(processes: _Processes, keys: _Keys, interval: float) -> Iterator[dict[str, Any]]:
    """A look after each interval, until a key ends it, or all that was watched has ended."""
    while not keys.wait(interval):
        try:
            document = processes.look()
        except UsageError:
            return
        yield document


def _show(processes: _Processes, keys: _Keys, interval: float, terminal: Terminal) -> None:
    out = terminal.out
    shown: Group | None = None
    if not out.is_terminal:
        for document in _documents(processes, keys, interval):
            out.print(_drawn(out, document["processes"]))
        return
    try:
        with Live(console=out, screen=True, auto_refresh=False) as live:
            for document in _documents(processes, keys, interval):
                shown = _drawn(out, document["processes"])
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


# ---- what is drawn --------------------------------------------------------------------------------------


def _drawn(out: Console, processes: Sequence[dict[str, Any]]) -> Group:
    """One process with all of its pools, or a line for each of several."""
    if len(processes) > 1:
        return _listed(out, processes)
    (process,) = processes
    parts: list[RenderableType] = [_heading(process)]
    for pool in process["pools"]:
        parts += [Text(""), *_pool(out, pool)]
    if not process["pools"]:
        parts += [Text("no pool is open")]
    if process["hidden_pools"]:
        parts += [Text(f"and {process['hidden_pools']} more, for which there was no room to be shown", style="dim")]
    return Group(*parts)


def _listed(out: Console, processes: Sequence[dict[str, Any]]) -> Group:
    table = new_table(out, expand=True)
    for name in ("pid", "steps/s", "pools", "envs", "memory"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("command", overflow="ellipsis", no_wrap=True, ratio=1)
    for one in processes:
        pools = one["pools"]
        table.add_row(
            str(one["pid"]),
            short(sum(pool["steps_per_second"] for pool in pools)),
            str(len(pools)),
            f"{sum(pool['num_envs'] for pool in pools):,}",
            _bytes((one["rss_bytes"] or 0) + sum(pool["worker_rss_bytes"] or 0 for pool in pools)),
            Text(one["command"]),
        )
    return Group(table, Text("stepmill top PID shows one of them", style="dim"))


def _heading(process: dict[str, Any]) -> Text:
    text = Text(no_wrap=True, overflow="ellipsis")
    text.append(f"{process['pid']} ", style="bold cyan")
    if process["cpu"] is not None:
        text.append(f"{process['cpu']:.0%} cpu  ")
    if process["rss_bytes"] is not None:
        text.append(f"{_bytes(process['rss_bytes'])}  ")
    text.append(process["command"], style="dim")
    return text


# ---- a pool --------------------------------------------------------------------------------------


def _pool(out: Console, pool: dict[str, Any]) -> list[RenderableType]:
    tables = [table for table in (_workers(pool), _slow_envs(pool)) if table is not None]
    if out.width >= _WIDE and len(tables) == 2:
        beside = Table.grid(padding=(0, 6))
        beside.add_row(*tables)
        tables = [beside]
    return [_title(pool), _flow(_speeds(pool), out.width), *_time(out, pool), *tables]


def _plain_table(title: str) -> Table:
    """Without lines, which would take half of the screen."""
    return Table(title=title, title_justify="left", title_style="bold", header_style="dim", box=None, pad_edge=False)


def _flow(parts: Sequence[Text], width: int) -> Text:
    """The parts one after another, in as many lines as they need, none broken in two."""
    out, used = Text(), 0
    for part in parts:
        if used and used + 2 + len(part) > width:
            out.append("\n")
            used = 0
        elif used:
            out.append("  ")
            used += 2
        out.append(part)
        used += len(part)
    return out


def _title(pool: dict[str, Any]) -> Text:
    text = Text(no_wrap=True, overflow="ellipsis")
    text.append(pool["name"], style="bold")
    envs = f"{pool['num_envs']:,} env{'s' if pool['num_envs'] != 1 else ''}"
    batch = f", batches of {pool['batch_size']:,}" if pool["batch_size"] != pool["num_envs"] else ""
    kind = "manager, " if pool["user"] == "manager" else ""
    text.append(f"  {kind}{envs}{batch}, {pool['backend']}, {_duration(pool['age_seconds'])} old", style="dim")
    return text


def _speeds(pool: dict[str, Any]) -> list[Text]:
    parts = [
        Text(f"{short(pool['steps_per_second'])} steps/s", style="bold green"),
        Text(f"{short(pool['batches_per_second'])} batches/s"),
        Text(f"{short(pool['episodes_per_second'])} episodes/s"),
        Text(f"{pool['in_flight']:,} in flight"),
        Text(f"{pool['batches_held']:,} batches held"),
        Text(f"{_bytes(pool['memory_bytes'])} of buffers"),
    ]
    parts += [Text(f"{pool[name]:,} {name}", style="bold red") for name in ("failures", "restarts") if pool[name]]
    if pool["state_seconds"] >= _LONG_SECONDS:
        doing = {"waiting": "waiting for envs", "stepping": "stepping envs", "inside": "in a call"}
        what = f"{doing[pool['state']]} for" if pool["state"] in doing else "no call for"
        parts.append(Text(f"{what} {_duration(pool['state_seconds'])}", style="yellow"))
    return parts


def _time(out: Console, pool: dict[str, Any]) -> list[RenderableType]:
    """A bar of the calling thread's time, and what it consists of."""
    width = min(out.width, 100) - 2
    bar, legend = Text(no_wrap=True), Text()
    drawn, share = 0, 0.0
    for name, colour in _SHARES:
        share += pool["time"][name]
        cells = round(share * width) - drawn
        drawn += cells
        bar.append(("█" if out.is_terminal else name[0]) * cells, style=colour)
        legend.append("■ " if out.is_terminal else f"{name[0]}: ", style=colour)
        legend.append(f"{name} {pool['time'][name]:.0%}   ")
    return [bar, legend]


def _workers(pool: dict[str, Any]) -> RenderableType | None:
    workers = pool["workers"]
    if not workers:
        return None
    processes = pool["worker_rss_bytes"] is not None
    title = _workers_title(pool, processes)
    if not any(one["use"] or one["actions_per_second"] or one["pid"] or one["restarts"] for one in workers):
        return Text(title, style="dim")
    table = _plain_table(title)
    for name in ["worker", *(["pid"] if processes else []), "use", "actions/s"]:
        table.add_column(name, justify="right", no_wrap=True)
    if processes:
        table.add_column("restarts", justify="right")
        table.add_column("memory", justify="right", no_wrap=True)
    for number, one in enumerate(workers[:_MOST_WORKERS]):
        cells: list[RenderableType] = [str(number), _use(one["use"]), short(one["actions_per_second"])]
        if processes:
            pid = Text("none", style="red") if one["pid"] is None else str(one["pid"])
            restarts = Text(str(one["restarts"]), style="red" if one["restarts"] else "")
            cells = [cells[0], pid, *cells[1:], restarts, "" if one["rss_bytes"] is None else _bytes(one["rss_bytes"])]
        table.add_row(*cells)
    if len(workers) > _MOST_WORKERS:
        table.add_row(f"+{len(workers) - _MOST_WORKERS}", style="dim")
    return table


def _workers_title(pool: dict[str, Any], processes: bool) -> str:
    memory = f", {_bytes(pool['worker_rss_bytes'])}" if pool["worker_rss_bytes"] else ""
    return f"{len(pool['workers'])} {'processes' if processes else 'threads'}, {pool['worker_use']:.0%} used{memory}"


def _use(use: float) -> Text:
    return Text(f"{use:.0%}", style="green" if use >= 0.8 else "yellow" if use >= 0.4 else "")


def _slow_envs(pool: dict[str, Any]) -> Table | None:
    slow = pool["slow_envs"]
    if not slow:
        return None
    table = _plain_table("slowest envs")
    table.add_column("env", justify="right")
    cells = [
        {
            "median step": one["step_seconds"] and one["step_seconds"]["p50"],
            "99 %": one["step_seconds"] and one["step_seconds"]["p99"],
            "slowest step": one["slowest_seconds"],
            "in step for": one["running_seconds"],
        }
        for one in slow
    ]
    columns = [name for name in cells[0] if any(one[name] for one in cells)]
    for name in columns:
        table.add_column(name, justify="right", no_wrap=True)
    for one, its in zip(slow, cells, strict=True):
        stuck = (one["running_seconds"] or 0.0) >= _LONG_SECONDS
        shown = [_duration(its[name]) if its[name] else "" for name in columns]
        table.add_row(str(one["env"]), *shown, style="yellow" if stuck else "")
    return table


# ---- numbers -------------------------------------------------------------------------------------


def _bytes(count: float) -> str:
    for unit, name in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if count >= unit:
            value = count / unit
            return f"{value:.{1 if value < 10 else 0}f} {name}"
    return f"{count:.0f} B"


def _duration(seconds: float) -> str:
    if seconds >= 3600:
        return f"{seconds / 3600:.1f} h"
    if seconds >= 60:
        return f"{seconds / 60:.1f} min"
    for unit, name in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if seconds >= unit:
            value = seconds / unit
            return f"{value:.{1 if value < 10 else 0}f} {name}"
    return "0 s" if seconds == 0 else "<1 µs"
