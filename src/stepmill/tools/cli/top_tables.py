"""What ``stepmill top`` draws: one process with its pools, or a list of processes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from stepmill.tools.cli.terminal import new_table, short

_WIDE = 100  # columns; below, what matters less is left out
_MOST_WORKERS = 16
_LONG_SECONDS = 1.0  # what lasts for longer is pointed out
# How the shares of the time are called and coloured; the first letter of each fills the bar without colour.
_SHARES = (("envs", "green"), ("waiting", "yellow"), ("stepmill", "magenta"), ("caller", "blue"))


def show_process(out: Console, process: dict[str, Any]) -> Group:
    """One process with all of its pools."""
    parts: list[RenderableType] = [_heading(process)]
    for pool in process["pools"]:
        parts += [Text(""), *_pool(out, pool)]
    if not process["pools"]:
        parts += [Text("no pool is open")]
    if process["hidden_pools"]:
        parts += [Text(f"and {process['hidden_pools']} more, for which there was no room to be shown", style="dim")]
    return Group(*parts)


def list_processes(out: Console, processes: Sequence[dict[str, Any]]) -> Group:
    """A line per process."""
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
