"""The results as tables: in a terminal, and as Markdown for the documents."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table as RichTable

from benchmarks.python_contestants import LABELS

Results = dict[str, Any]


@dataclass(frozen=True)
class Table:
    """A heading, column names (the first one is the row's name) and rows of text."""

    name: str
    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]

    def markdown(self) -> str:
        lines = [
            "| " + " | ".join(self.columns) + " |",
            "|---" + "|---:" * (len(self.columns) - 1) + "|",
            *("| " + " | ".join(row) + " |" for row in self.rows),
        ]
        return "\n".join(lines)

    def print(self, console: Console) -> None:
        console.print(f"\n[bold]{self.title}[/]", soft_wrap=True)
        table = RichTable(box=box.SIMPLE_HEAD, pad_edge=False)
        for i, column in enumerate(self.columns):
            table.add_column(column, justify="left" if i == 0 else "right", no_wrap=i == 0)
        for row in self.rows:
            table.add_row(*row)
        console.print(table)


def all_tables(results: Results, parts: Sequence[str]) -> Iterator[Table]:
    """A table for each of the parts that has results, in reading order."""
    for name, make in TABLES.items():
        if name in parts and results["parts"].get(name):
            yield make(results)


def sync(results: Results) -> Table:
    rows = [
        (
            f"{row['num_envs']:,}",
            rate(row["stepmill"]),
            rate(row.get("envpool")),
            threads(row.get("envpool")),
            ratio(row),
            rate(row.get("gymnasium")),
            share(results, row),
        )
        for row in results["parts"]["sync"]
    ]
    columns = ("envs", "stepmill", "EnvPool", "its threads", "ratio", "Gymnasium", "of bare loop")
    return Table("sync", "CartPole-v1, sync, steps per second", columns, rows)


def async_(results: Results) -> Table:
    rows = [
        (
            f"{row['num_envs']:,}, {row['batch_size']:,} a batch",
            rate(row["stepmill"]),
            rate(row.get("envpool")),
            threads(row.get("envpool")),
            ratio(row),
            share(results, row),
        )
        for row in results["parts"]["async"]
    ]
    columns = ("envs", "stepmill", "EnvPool", "its threads", "ratio", "of bare loop")
    return Table("async", "CartPole-v1, async, steps per second", columns, rows)


def envs(results: Results) -> Table:
    rows = [
        (row["env"], rate(row["stepmill"]), rate(row.get("envpool")), ratio(row)) for row in results["parts"]["envs"]
    ]
    columns = ("env", "stepmill", "EnvPool", "ratio")
    return Table("envs", "The other native envs, 1,024 of each, sync, steps per second", columns, rows)


def overhead(results: Results) -> Table:
    part = results["parts"]["overhead"]
    rows = []
    for name, label in NAMES.items():
        if name in part:
            above = part[name].get("above_env_ns")
            rows.append((label, time_of(part[name]["step_ns"]), time_of(part.get("env_ns")), time_of(above)))
    columns = ("", "one step", "the env's own cost", "above it")
    return Table("overhead", "CartPole-v1, one env, one step", columns, rows)


def latency(results: Results) -> Table:
    rows = []
    for row in results["parts"]["latency"]:
        for name, label in NAMES.items():
            if name in row:
                cells = (time_of(row[name][p]) for p in ("p50", "p90", "p99", "p99.9"))
                rows.append((f"{count_envs(row['num_envs'])}, {label}", *cells))
    return Table("latency", "CartPole-v1, time of one step call", ("", "p50", "p90", "p99", "p99.9"), rows)


def scaling(results: Results) -> Table:
    part = results["parts"]["scaling"]
    sizes = sorted({row["num_envs"] for row in part})
    rows = []
    for name, label in NAMES.items():
        for count in sorted({row["num_threads"] for row in part}):
            cells = []
            for size in sizes:
                found = [row for row in part if row["num_envs"] == size and row["num_threads"] == count]
                cells.append(rate(found[0].get(name)) if found else "")
            if any(cell not in ("", MISSING) for cell in cells):
                rows.append((f"{label}, {count}", *cells))
    columns = ("threads", *(f"{size:,} envs" for size in sizes))
    return Table("scaling", "CartPole-v1, sync, by number of threads, steps per second", columns, rows)


def bare(results: Results) -> Table:
    rows = [
        (f"{row['num_envs']:,}", time_of(row["env_ns"]), number(1e9 / row["env_ns"]))
        for row in results["parts"]["bare"]
    ]
    return Table("bare", "CartPole-v1, a plain C++ loop on one core", ("envs", "one step", "steps per second"), rows)


def imports(results: Results) -> Table:
    part = results["parts"]["imports"]
    rows = [(name, MISSING if seconds is None else f"{seconds:.2f} s") for name, seconds in part.items()]
    return Table("imports", "Import in a fresh interpreter", ("module", "time"), rows)


def python(results: Results) -> Table:
    """A row for each contestant, then the ratios."""
    part = results["parts"]["python"]
    rows = [(label, *(rate(row.get(name)) for row in part)) for name, label in LABELS.items() if _any(part, name)]
    if any(row.get("auto", {}).get("backend") for row in part):
        rows.append(("stepmill chose", *(row.get("auto", {}).get("backend") or MISSING for row in part)))
    for key, label in PYTHON_RATIOS.items():
        if _any(part, key):
            shown = [row.get(key) for row in part]
            rows.append((label, *(MISSING if x is None else _ratio_or_share(key, x) for x in shown)))
    columns = ("", *(row["case"] for row in part))
    return Table("python", "Python envs and how many, steps per second", columns, rows)


def python_start(results: Results) -> Table:
    part = results["parts"]["python-start"]
    rows = [(label, f"{part[name]['seconds']:.2f} s") for name, label in LABELS.items() if name in part]
    return Table("python-start", "64 Python CartPoles, import to first batch", ("", "start-up"), rows)


def python_memory(results: Results) -> Table:
    part = results["parts"]["python-memory"]
    rows = [
        (label, f"{part[name]['bytes'] / 1e6:,.0f} MB", str(part[name]["processes"]))
        for name, label in LABELS.items()
        if name in part
    ]
    return Table("python-memory", "64 Python CartPoles, memory of all processes", ("", "memory", "processes"), rows)


def python_async(results: Results) -> Table:
    rows = [
        (
            LABELS[row["name"]],
            rate(row["even"]),
            rate(row["work"]),
            f"{row['work_of_even']:.0%}",
            rate(row["wait"]),
            f"{row['wait_of_even']:.0%}",
        )
        for row in results["parts"]["python-async"]
    ]
    columns = ("", "all alike", "one works 20x longer", "of all alike", "one waits 20x longer", "of all alike")
    return Table("python-async", "Python envs of 100 µs, 64, 32 a batch, steps per second", columns, rows)


def managers(results: Results) -> Table:
    part = results["parts"]["managers"]
    rows = []
    for pool, name in MANAGER_POOLS.items():
        rows.append((f"pool, {pool}", *(rate(row[f"pool_{pool}"]) for row in part)))
        rows.append((MANAGER_LABELS[name], *(rate(row[name]) for row in part)))
        rows.append(("above the pool, a step", *(time_of(row["above_pool_ns"][name]) for row in part)))
    rows.append((MANAGER_LABELS["async_subprocess"], *(rate(row["async_subprocess"]) for row in part)))
    columns = ("", *(row["case"] for row in part))
    return Table("managers", "Env managers and the pools inside of them, steps per second", columns, rows)


def ding(results: Results) -> Table:
    part = results["parts"]["ding"]
    rows = []
    for name in DING_MANAGERS:
        rows.append((f"DI-engine {name}", *(rate(case[name]) for case in part.values())))
        rows.append((f"stepmill_{name}", *(rate(case[f"stepmill_{name}"]) for case in part.values())))
        rows.append(("over it", *(f"{three_digits(case['ratio'][name])}x" for case in part.values())))
    serial = [case["stepmill_subprocess"]["steps_per_s"] / case["base"]["steps_per_s"] for case in part.values()]
    rows.append(("stepmill_subprocess over DI-engine base", *(f"{three_digits(ratio)}x" for ratio in serial)))
    for pool, name in MANAGER_POOLS.items():
        rows.append((f"our pool, {pool}", *(rate(case[f"pool_{pool}"]) for case in part.values())))
        rows.append(
            (f"stepmill_{name} above it, a step", *(time_of(case["above_pool_ns"][name]) for case in part.values()))
        )
    title = "Env managers, steps per second, and ours over DI-engine's of the same name"
    return Table("ding", title, ("", *part), rows)


TABLES = {
    "sync": sync,
    "async": async_,
    "envs": envs,
    "overhead": overhead,
    "latency": latency,
    "scaling": scaling,
    "bare": bare,
    "imports": imports,
    "python": python,
    "python-start": python_start,
    "python-memory": python_memory,
    "python-async": python_async,
    "managers": managers,
    "ding": ding,
}

# What stepmill reaches with its defaults, over what others do or what the cores could give.
PYTHON_RATIOS = {
    "over_async": "over Gymnasium Async",
    "over_parallel": "over best parallel",
    "over_best": "over best peer",
    "of_bare": "of cores x bare",
    "of_better": "of better backend",
}
DING_MANAGERS = ("base", "subprocess", "async_subprocess", "base_v2", "subprocess_v2")
MANAGER_POOLS = {"inline": "base", "process": "subprocess"}  # by the manager that has such a pool inside
MANAGER_LABELS = {
    "base": "BaseEnvManager",
    "subprocess": "SyncSubprocessEnvManager",
    "async_subprocess": "SubprocessEnvManager (async)",
}
NAMES = {"stepmill": "stepmill", "envpool": "EnvPool"}
MISSING = "–"


# ---- cells -----------------------------------------------------------------------------------------


def number(value: float) -> str:
    """Three digits: 24.1 M, 98.3 k."""
    for unit, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= unit:
            return f"{three_digits(value / unit)} {letter}"
    return three_digits(value)


def three_digits(value: float) -> str:
    return f"{value:.{2 if abs(value) < 10 else 1 if abs(value) < 100 else 0}f}"


def rate(result: dict[str, Any] | None) -> str:
    return MISSING if result is None else number(result["steps_per_s"])


def ratio(row: dict[str, Any]) -> str:
    return f"{three_digits(row['ratio'])}x" if "ratio" in row else MISSING


def _ratio_or_share(key: str, value: float) -> str:
    return f"{value:.0%}" if key.startswith("of_") else f"{three_digits(value)}x"


def _any(part: Sequence[dict[str, Any]], key: str) -> bool:
    return any(key in row for row in part)


def count_envs(count: int) -> str:
    return f"{count:,} env{'s' if count != 1 else ''}"


def threads(result: dict[str, Any] | None) -> str:
    return MISSING if result is None else str(result["num_threads"])


def time_of(ns: float | None) -> str:
    if ns is None:
        return MISSING
    for unit, letter in ((1e6, "ms"), (1e3, "µs")):
        if abs(ns) >= unit:
            return f"{three_digits(ns / unit)} {letter}"
    return f"{ns:.0f} ns"


def bare_rate(results: Results) -> float | None:
    """Steps per second of the plain loop on one core, at the number of envs where it is fastest."""
    part = results["parts"].get("bare")
    return max(1e9 / row["env_ns"] for row in part) if part else None


def share(results: Results, row: dict[str, Any]) -> str:
    one_core = bare_rate(results)
    if one_core is None:
        return MISSING
    return f"{row['stepmill']['steps_per_s'] / (one_core * results['machine']['cores']):.0%}"
