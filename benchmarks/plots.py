"""The plots: each in two versions, for a light page and a dark one. Needs matplotlib."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from benchmarks.cells import Results, bare_rate, count_envs, envpool, measured, number, time_of, times
from benchmarks.python_envs import ENV_NAMES, LABELS


@dataclass(frozen=True)
class Theme:
    name: str
    background: str
    text: str
    muted: str
    grid: str
    stepmill: str
    envpool: str
    gymnasium: str


THEMES = (
    Theme("light", "#ffffff", "#1f2328", "#59636e", "#d8dee4", "#0f6fcf", "#c2570c", "#6b7280"),
    Theme("dark", "#0d1117", "#f0f6fc", "#9198a1", "#30363d", "#58a6ff", "#f0883e", "#9aa4af"),
)


def draw_all(results: Results, folder: Path) -> list[Path]:
    """Draws every plot whose parts were measured."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, plot in PLOTS.items():
        if not drawable(name, results):
            continue
        for theme in THEMES:
            path = folder / file_name(name, results, theme.name)
            with themed(theme):
                figure = plot.draw(results, theme)
                figure.savefig(path, dpi=150)
                pyplot.close(figure)
            paths.append(path)
    return paths


def drawable(plot: str, results: Results) -> bool:
    """Whether there is something to draw: a comparison needs another library."""
    rows = results["parts"].get(PLOTS[plot].part) or []
    return any("envpool" in row for row in rows) if plot in ("envs", "readme") else bool(rows)


def file_name(plot: str, results: Results, theme: str) -> str:
    return f"{plot}-{results['machine']['machine']}-{theme}.png"


# ---- the plots -------------------------------------------------------------------------------------


def readme(results: Results, theme: Theme) -> Figure:
    """The one picture of the README: native CartPole by number of envs, and envs that take longer."""
    rows = _beside_gymnasium(results)
    figure, found = pyplot.subplots(
        *(1, 2 if rows else 1),
        figsize=(10, 4.3),
        layout="constrained",
        gridspec_kw={"width_ratios": (1.25, 1)} if rows else None,
        squeeze=False,
    )
    figure.get_layout_engine().set(w_pad=0.12, h_pad=0.08, wspace=0.04)
    figure.suptitle("Steps per second: more is better", x=0.012, ha="left", fontweight="bold", fontsize=15)
    panels = list(found.flat)
    _readme_native(panels[0], results, theme)
    if rows:
        _readme_others(panels[1], rows, theme)
    note = f"{place(results)}; {versions(results, 'sync')}, Python {measured(results, 'sync')['python']}"
    figure.supxlabel(note, x=0.012, ha="left", fontsize=9, color=theme.muted)
    return figure


# The envs of the right panel: their label, part, key in it, and the contestants that are ours and Gymnasium's.
SLOWER_ENVS = (
    ("HalfCheetah\nMuJoCo", "mujoco", "HalfCheetah-v5", "stepmill", ("gymnasium", "gymnasium_async")),
    ("Ant\nMuJoCo", "mujoco", "Ant-v5", "stepmill", ("gymnasium", "gymnasium_async")),
    ("Pong\nAtari", "atari", "Pong-v5", "stepmill", ("gymnasium_async",)),
    ("100 µs\nin Python", "python", "busy", "auto", ("gymnasium_sync", "gymnasium_async")),
)


def _beside_gymnasium(results: Results) -> list[tuple[str, float, float | None]]:
    """How many times as fast as with the better of Gymnasium's vector envs: with stepmill, and with EnvPool."""
    found = []
    for label, part, env, ours, theirs in SLOWER_ENVS:
        for row in results["parts"].get(part) or []:
            if row["env"] == env and row["num_envs"] == row.get("batch_size", 64) == 64 and ours in row:
                base = max(row[name]["steps_per_s"] for name in theirs if name in row)
                envpool = row["envpool"]["steps_per_s"] / base if "envpool" in row else None
                found.append((label, row[ours]["steps_per_s"] / base, envpool))
    return found


def _readme_native(axes: Axes, results: Results, theme: Theme) -> None:
    rows = results["parts"]["sync"]
    last = rows[-1]
    lines = []
    for key, label, color in (
        ("stepmill", "stepmill", theme.stepmill),
        ("envpool", "EnvPool", theme.envpool),
        ("gymnasium", "Gymnasium", theme.gymnasium),
    ):
        points = [(row["num_envs"], row[key]["steps_per_s"]) for row in rows if key in row]
        if points:
            axes.plot(
                *zip(*points, strict=True), "-o", color=color, linewidth=3 if key == "stepmill" else 2, markersize=6
            )
            lines.append((points[-1][1], f"{label}\n{number(points[-1][1])}", color))
    axes.set_title("CartPole-v1, by number of envs (log scale)", loc="left", fontsize=11.5)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks([row["num_envs"] for row in rows], [f"{row['num_envs']:,}" for row in rows], fontsize=11)
    axes.minorticks_off()
    axes.set_xlim(0.7, last["num_envs"] * 40)
    low, high = axes.get_ylim()
    axes.set_ylim(low / 1.3, high * 1.6)  # room for the labels
    _number_axis(axes.yaxis)
    axes.tick_params(axis="y", labelsize=11)
    _ratio_arrow(axes, next((row for row in rows if row["num_envs"] == 1024), last), theme)
    _label_ends(axes, last["num_envs"], lines, size=11)


def _ratio_arrow(axes: Axes, row: dict[str, Any], theme: Theme) -> None:
    """An arrow from EnvPool's line to ours, with the ratio."""
    if "envpool" not in row:
        return
    theirs, ours, at = row["envpool"]["steps_per_s"], row["stepmill"]["steps_per_s"], row["num_envs"]
    axes.annotate(
        "", (at, ours), (at, theirs), arrowprops={"arrowstyle": "->", "color": theme.muted, "shrinkA": 6, "shrinkB": 6}
    )
    axes.annotate(
        f"{ours / theirs:.0f}x",
        (at, (ours * theirs) ** 0.5),
        (-6, 0),
        textcoords="offset points",
        ha="right",
        va="center",
        fontsize=13,
        fontweight="bold",
        color=theme.text,
    )


def _readme_others(axes: Axes, rows: Sequence[tuple[str, float, float | None]], theme: Theme) -> None:
    """Two bars for each env, and a line where Gymnasium is."""
    for y, (_, ours, theirs) in enumerate(rows):
        for place, ratio, color in ((y - 0.2, ours, theme.stepmill), (y + 0.2, theirs, theme.envpool)):
            is_ours = color == theme.stepmill
            axes.barh(place, ratio or 0, height=0.36, color=color)
            axes.annotate(
                "not in EnvPool" if ratio is None else f"{ratio:.1f}x",
                (ratio or 0, place),
                (6, 0),
                textcoords="offset points",
                va="center_baseline",
                fontsize=11 if ratio else 9,
                fontweight="bold" if is_ours else "normal",
                color=theme.text if ratio else theme.muted,
                bbox={"facecolor": theme.background, "edgecolor": "none", "pad": 1},
            )
    axes.axvline(1, color=theme.muted, linewidth=1.2, linestyle=(0, (4, 3)), zorder=0)
    axes.set_title("64 envs, in multiples of Gymnasium", loc="left", fontsize=11.5)
    axes.set_yticks(range(len(rows)), [label for label, _, _ in rows], fontsize=10.5)
    axes.set_ylim(len(rows) - 0.45, -0.55)
    axes.set_xlim(0, max(max(ours, theirs or 0) for _, ours, theirs in rows) * 1.18)
    axes.set_xticks([1], ["1x: Gymnasium's vector envs"], fontsize=10, color=theme.muted, ha="left")
    axes.grid(visible=False)
    axes.tick_params(length=0)
    axes.spines["bottom"].set_visible(False)


def throughput(results: Results, theme: Theme) -> Figure:
    """CartPole by number of envs."""
    figure, axes = _figure(results, "CartPole-v1: steps per second by number of envs", (8, 5), "sync", gymnasium=True)
    part = results["parts"]["sync"]
    asynchronous = results["parts"].get("async") or []
    lines: list[tuple[float, str, str]] = []
    for key, label, color in (
        ("stepmill", "stepmill", theme.stepmill),
        ("envpool", f"{envpool(results, 'sync')},\nbest threads", theme.envpool),
        ("gymnasium", "Gymnasium\nSyncVectorEnv", theme.gymnasium),
    ):
        points = [(row["num_envs"], row[key]["steps_per_s"]) for row in part if key in row]
        if not points:
            continue
        axes.plot(*zip(*points, strict=True), "-o", color=color, linewidth=2, markersize=5)
        lines.append((points[-1][1], label, color))
        extra = [(row["num_envs"], row[key]["steps_per_s"]) for row in asynchronous if key in row]
        if extra:
            axes.plot(*zip(*extra, strict=True), "D", color=color, markersize=7, fillstyle="none", markeredgewidth=1.6)
    limit = [(row["num_envs"], row["meeting"]["steps_per_s"]) for row in part if "meeting" in row]
    if limit:
        axes.plot(*zip(*limit, strict=True), color=theme.muted, linewidth=1, linestyle=(0, (4, 3)))
        lines.append((limit[-1][1], "plain C++ loops\non all cores", theme.muted))
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks([row["num_envs"] for row in part], [f"{row['num_envs']:,}" for row in part])
    axes.set_xlim(0.8, part[-1]["num_envs"] * 16)
    axes.set_xlabel("envs")
    _label_ends(axes, part[-1]["num_envs"], lines)
    if asynchronous:
        axes.plot([], [], "o-", color=theme.muted, label="sync: all envs in each step")
        axes.plot([], [], "D", color=theme.muted, fillstyle="none", label="async: the first half that is done")
        axes.legend(
            loc="upper left",
            facecolor=theme.background,
            edgecolor="none",
            framealpha=1,
            labelcolor=theme.text,
            fontsize=9,
        )
        axes.set_ylim(top=axes.get_ylim()[1] * 5)
    _number_axis(axes.yaxis)
    return figure


def envs(results: Results, theme: Theme) -> Figure:
    """One line per env, from EnvPool's dot to ours."""
    rows = [row for row in results["parts"]["envs"] if "envpool" in row]
    cartpole = [r for r in results["parts"].get("sync") or [] if r["num_envs"] == 1024 and "envpool" in r]
    rows = sorted(cartpole + rows, key=lambda row: row["ratio"])
    size = (8, 0.36 * len(rows) + 1.6)
    figure, axes = _figure(results, "Native envs, 1,024 of each: steps per second", size, "envs")
    for y, row in enumerate(rows):
        theirs, ours = row["envpool"]["steps_per_s"], row["stepmill"]["steps_per_s"]
        axes.plot([theirs, ours], [y, y], color=theme.grid, linewidth=3, zorder=1)
        axes.plot(theirs, y, "o", color=theme.envpool, markersize=7)
        axes.plot(ours, y, "o", color=theme.stepmill, markersize=7)
        axes.annotate(
            times(row, "envpool"),
            (max(ours, theirs), y),
            (9, 0),
            textcoords="offset points",
            va="center",
            color=theme.text,
            fontsize=9,
        )
    axes.set_yticks(range(len(rows)), [row["env"] for row in rows])
    axes.set_xscale("log")
    low, high = axes.get_xlim()
    axes.set_xlim(low / 1.1, high * 1.5)
    axes.set_ylim(-0.7, len(rows) - 0.1)
    axes.grid(axis="y", visible=False)
    _number_axis(axes.xaxis)
    top = rows[-1]
    for key, label, color, side in (
        ("envpool", f"{envpool(results, 'envs')}, best threads", theme.envpool, "left"),
        ("stepmill", "stepmill", theme.stepmill, "center"),
    ):
        axes.annotate(
            label,
            (top[key]["steps_per_s"], len(rows) - 1),
            (-4 if side == "left" else 0, 9),
            textcoords="offset points",
            ha=side,
            color=color,
            fontweight="bold",
            fontsize=9,
        )
    return figure


def latency(results: Results, theme: Theme) -> Figure:
    """Percentiles of one step call."""
    part = results["parts"]["latency"]
    figure, axes = _figure(results, "CartPole-v1: time of one call of step", (8, 4), "latency")
    kinds = ("p50", "p90", "p99", "p99.9")
    position = 0.0
    ticks: list[tuple[float, str]] = []
    for row in part:
        for key, label, color in (
            ("stepmill", "stepmill", theme.stepmill),
            ("envpool", "EnvPool", theme.envpool),
        ):
            if key not in row:
                continue
            values = [row[key][kind] for kind in kinds]
            axes.plot([values[0], values[-1]], [position, position], color=color, linewidth=3, alpha=0.35)
            for value, marker in zip(values, "o|||", strict=True):
                axes.plot(
                    value, position, marker, color=color, markersize=8 if marker == "o" else 10, markeredgewidth=2
                )
            axes.annotate(
                time_of(values[0]),
                (values[0], position),
                (0, 8),
                textcoords="offset points",
                ha="center",
                color=theme.text,
                fontsize=8,
            )
            ticks.append((position, f"{count_envs(row['num_envs'])}, {label}"))
            position -= 1
        position -= 0.5
    axes.set_yticks([tick[0] for tick in ticks], [tick[1] for tick in ticks])
    axes.set_ylim(ticks[-1][0] - 0.6, 0.9)
    axes.set_xscale("log")
    _number_axis(axes.xaxis, time_of)
    axes.set_xlabel("dot: median; ticks: 90, 99 and 99.9 % of the calls are faster than this")
    axes.grid(axis="y", visible=False)
    return figure


def scaling(results: Results, theme: Theme) -> Figure:
    """Steps per second by number of threads."""
    part = results["parts"]["scaling"]
    figure, axes = _figure(results, "CartPole-v1: steps per second by number of threads", (8, 5), "scaling")
    threads = sorted({row["num_threads"] for row in part})
    sizes = sorted({row["num_envs"] for row in part})
    lines = []
    for key, label, color in (("stepmill", "stepmill", theme.stepmill), ("envpool", "EnvPool", theme.envpool)):
        for size, style in zip(sizes, (":", "--", "-"), strict=False):
            points = [(r["num_threads"], r[key]["steps_per_s"]) for r in part if r["num_envs"] == size and key in r]
            if points:
                axes.plot(*zip(*points, strict=True), style, marker="o", color=color, linewidth=2, markersize=5)
                lines.append((points[-1][1], f"{label}, {size:,} envs", color))
    one_core = bare_rate(results)
    if one_core is not None:
        axes.plot(threads, [one_core * n for n in threads], color=theme.muted, linewidth=1)
        lines.append((one_core * threads[-1], "that many plain C++ loops", theme.muted))
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(threads, [str(n) for n in threads])
    span = max(threads[-1] / threads[0], 1.5)
    axes.set_xlim(threads[0] / span**0.05, threads[-1] * span**0.42)
    low, high = axes.get_ylim()
    axes.set_ylim(low / 1.5, high * 1.2)
    axes.set_xlabel("threads")
    _label_ends(axes, threads[-1], lines)
    _number_axis(axes.yaxis)
    return figure


def python(results: Results, theme: Theme) -> Figure:
    """One panel per kind of env: how close each contestant comes to what the cores can do."""
    part = results["parts"]["python"]
    names = [name for name in PYTHON_BARS if any(name in row for row in part)]
    figure, panels = pyplot.subplots(2, 3, figsize=(9, 5.2), sharey=True, layout="constrained")
    figure.suptitle("Python envs: steps per second\n", x=0.01, ha="left", fontweight="bold", fontsize=12)
    note = f"{place(results)}; {versions(results, 'python')}; Python {measured(results, 'python')['python']}"
    figure.text(0.01, 0.915, note, fontsize=8.5, va="bottom")
    figure.get_layout_engine().set(h_pad=0.08, w_pad=0.08)
    for axes, row in zip(panels.flat, part, strict=True):
        _python_panel(axes, row, names, theme)
    return figure


def _python_panel(axes: Axes, row: dict[str, Any], names: Sequence[str], theme: Theme) -> None:
    """Bars, and a line at what the cores can do."""
    limit = row.get("meeting") or row.get("bare_all") or row["bare"]
    most = limit["steps_per_s"]
    for y, name in enumerate(names):
        if name not in row:
            continue
        rate, ours = row[name]["steps_per_s"], name == "auto"
        axes.barh(y, rate, height=0.62, color=theme.stepmill if ours else theme.gymnasium)
        inside = rate > 0.72 * most  # beside the bar it would cross the line
        axes.annotate(
            number(rate),
            (rate, y),
            (-5 if inside else 5, 0),
            textcoords="offset points",
            ha="right" if inside else "left",
            va="center_baseline",
            fontsize=8.5,
            color=theme.background if inside else theme.text,
            fontweight="bold" if ours else "normal",
        )
    axes.axvline(most, ymax=0.99, color=theme.muted, linewidth=1, linestyle=(0, (4, 3)))
    axes.set_title(f"{row['num_envs']} x {ENV_NAMES[row['env']]}", loc="left", fontsize=10)
    axes.set_yticks(range(len(names)), ["stepmill" if name == "auto" else LABELS[name] for name in names])
    axes.set_ylim(len(names) - 0.5, -0.6)
    axes.set_xlim(0, most * 1.12)
    axes.set_xticks([most], [f"plain loops, all cores: {number(most)}"], fontsize=8.5, color=theme.muted, ha="right")
    axes.grid(visible=False)
    axes.tick_params(length=0)
    axes.spines["bottom"].set_visible(False)


PYTHON_BARS = ("auto", "gymnasium_sync", "gymnasium_async", "sb3", "tianshou")


@dataclass(frozen=True)
class Plot:
    part: str  # of the results, without which there is nothing to draw
    draw: Callable[[Results, Theme], Figure]
    alt: str  # for those who cannot see it


PLOTS = {
    "readme": Plot(
        "sync",
        readme,
        "Steps per second of stepmill, EnvPool and Gymnasium: CartPole by number of envs; MuJoCo, Atari, Python envs",
    ),
    "throughput": Plot("sync", throughput, "CartPole-v1: steps per second by number of envs"),
    "envs": Plot("envs", envs, "Native envs, 1,024 of each: steps per second"),
    "latency": Plot("latency", latency, "CartPole-v1: time of one call of step"),
    "scaling": Plot("scaling", scaling, "CartPole-v1: steps per second by number of threads"),
    "python": Plot("python", python, "Python envs: steps per second"),
}


# ---- drawing ---------------------------------------------------------------------------------------


@contextmanager
def themed(theme: Theme) -> Iterator[None]:
    style = {
        "figure.facecolor": theme.background,
        "savefig.facecolor": theme.background,
        "axes.facecolor": theme.background,
        "axes.edgecolor": theme.grid,
        "axes.labelcolor": theme.muted,
        "axes.grid": True,
        "axes.axisbelow": True,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "grid.color": theme.grid,
        "grid.linewidth": 0.7,
        "text.color": theme.text,
        "xtick.color": theme.muted,
        "ytick.color": theme.muted,
        "xtick.labelcolor": theme.text,
        "ytick.labelcolor": theme.text,
        "font.size": 10,
    }
    with matplotlib.rc_context(style):
        yield


def _figure(
    results: Results, title: str, size: tuple[float, float], part: str, *, gymnasium: bool = False
) -> tuple[Figure, Axes]:
    figure, axes = pyplot.subplots(figsize=size, layout="constrained")
    axes.set_title(f"{title}\n", loc="left", fontweight="bold", fontsize=12)
    axes.text(0, 1.02, subtitle(results, part, gymnasium), transform=axes.transAxes, fontsize=8.5, va="bottom")
    return figure, axes


def subtitle(results: Results, part: str, gymnasium: bool) -> str:
    """The machine and the versions."""
    leave = () if gymnasium else ("gymnasium",)
    python = measured(results, part)["python"]
    return f"{place(results)}; {versions(results, part, leave=leave)}, Python {python}; log scale"


def place(results: Results, part: str = "sync") -> str:
    """The machine on which a part was measured: those with so many cores may have different processors."""
    machine = {**results["machine"], **measured(results, part)}
    return f"{machine['cores']} cores, {machine['cpu'] or machine['architecture']}"


def versions(results: Results, part: str, *, leave: Sequence[str] = ()) -> str:
    """The versions of the compared libraries: of native envs, unless ``part`` is another one."""
    packages = measured(results, part)["packages"]
    named = next((named for start, named in OTHERS_VERSIONED.items() if part.startswith(start)), VERSIONED)
    return ", ".join(f"{label} {packages[key]}" for key, label in named if packages.get(key) and key not in leave)


VERSIONED = (("stepmill", "stepmill"), ("envpool", "EnvPool"), ("gymnasium", "Gymnasium"))
OTHERS_VERSIONED = {
    "python": (*VERSIONED[::2], ("stable-baselines3", "SB3"), ("tianshou", "Tianshou")),
    "managers": VERSIONED[::2],
    "start": VERSIONED[::2],
    "uneven": VERSIONED[::2],
    "sb3": (*VERSIONED[::2], ("stable-baselines3", "SB3"), ("torch", "torch")),
    "training": (*VERSIONED[::2], ("torch", "torch")),
    "torch-output": (VERSIONED[0], ("torch", "torch"), ("jax", "JAX")),
    "gpu-copies": (VERSIONED[0], ("torch", "torch")),
    "ding": (*VERSIONED[::2], ("DI-engine", "DI-engine")),
    "ray": (VERSIONED[0], ("ray", "Ray")),
    "xla": (*VERSIONED[:2], ("jax", "JAX")),
    "worlds": (VERSIONED[0], ("jax", "JAX")),
    "cuda": (VERSIONED[0], ("torch", "torch"), ("jax", "JAX")),
}


def _label_ends(axes: Axes, x: float, lines: list[tuple[float, str, str]], size: float = 9) -> None:
    """Names at the ends of the lines, in the lines' colours, moved apart if they would touch."""
    axes.figure.canvas.draw()
    free = float("inf")
    for value, label, color in sorted(lines, key=lambda line: -line[0]):
        y = axes.transData.transform((x, value))[1]
        room = 1.45 * size * axes.figure.dpi / 72 * (1 + label.count("\n"))
        centre = min(y, free - room / 2)
        free = centre - room / 2
        axes.annotate(
            label,
            (x, value),
            (9, (centre - y) * 72 / axes.figure.dpi),
            textcoords="offset points",
            va="center",
            color=color,
            fontweight="bold",
            fontsize=size,
        )


def _number_axis(axis: Any, show: Callable[[float], str] = number) -> None:
    """Ticks at 1, 2 and 5 if the axis is short, at the powers of ten if it is long."""
    low, high = axis.get_view_interval()
    axis.set_major_locator(LogLocator(subs=(1, 2, 5) if high / low < 300 else (1,)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: re.sub(r"\.0+ ", " ", show(value))))
    axis.set_minor_formatter(NullFormatter())
