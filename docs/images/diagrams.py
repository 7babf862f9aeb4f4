"""Draws the diagrams of pools.md, environments.md and why.md: ``python -m docs.images.diagrams``. Needs matplotlib.

What they show is checked against the code while they are drawn: every arrow between classes is a base class, every
name in a box an attribute, every file one that ``stepmill new`` writes, every part one of the package.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
from benchmarks.plots import THEMES, Theme, pyplot, themed
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch, Polygon, Rectangle

import stepmill
from stepmill import envs
from stepmill.envs.adapters.as_gymnasium import TeamAsGymnasium
from stepmill.envs.adapters.ding import DingAsBaseEnv
from stepmill.envs.adapters.parallel_players import ParallelAsPlayers
from stepmill.tools.cli.commands.new import TEMPLATE

WIDTH = 800  # of every picture on a page; one unit of a drawing is one pixel there
MONO = "DejaVu Sans Mono"
HUES = {"light": ("#1a7f37", "#8250df"), "dark": ("#3fb950", "#bc8cff")}  # besides the two that the plots have


def main() -> None:
    for name in DIAGRAMS:
        for theme in THEMES:
            figure = drawn(name, theme)
            figure.savefig(Path(__file__).with_name(f"{name}-{theme.name}.png"), dpi=200)
            pyplot.close(figure)


def drawn(name: str, theme: Theme) -> Figure:
    height, draw = DIAGRAMS[name]
    with themed(theme):
        canvas = Canvas(theme, height)
        draw(canvas)
    return canvas.figure


# ---- what all of them are drawn with ---------------------------------------------------------------


class Canvas:
    """A page of pixels, from the top left corner."""

    def __init__(self, theme: Theme, height: int) -> None:
        self.theme = theme
        self.hues = (theme.stepmill, theme.envpool, *HUES[theme.name])
        self.figure = pyplot.figure(figsize=(WIDTH / 100, height / 100))
        self._axes = self.figure.add_axes((0, 0, 1, 1))
        self._axes.set(xlim=(0, WIDTH), ylim=(height, 0))
        self._axes.axis("off")

    def text(self, x: float, y: float, text: str, size: float = 9, **look: Any) -> None:
        look = {"ha": "left", "va": "center", **look}
        self._axes.text(x, y, text, fontsize=size, **look)

    def code(self, x: float, y: float, text: str, size: float = 8.5, **look: Any) -> None:
        self.text(x, y, text, size, family=MONO, **look)

    def box(self, x: float, y: float, width: float, height: float, edge: str, fill: float = 0.08, **look: Any) -> None:
        """A rounded box in a tint of its edge."""
        form = f"round,pad=0,rounding_size={look.pop('rounding', 6)}"
        where = ((x, y), width, height)
        self._axes.add_patch(FancyBboxPatch(*where, form, facecolor=self.theme.background, edgecolor="none", zorder=2))
        self._axes.add_patch(FancyBboxPatch(*where, form, facecolor=edge, edgecolor="none", alpha=fill, zorder=2.1))
        look = {"linewidth": 1.3, **look}
        self._axes.add_patch(FancyBboxPatch(*where, form, facecolor="none", edgecolor=edge, zorder=2.2, **look))

    def bar(self, x: float, y: float, width: float, height: float, colour: str, **look: Any) -> None:
        self._axes.add_patch(Rectangle((x, y), width, height, facecolor=colour, edgecolor="none", **look))

    def line(self, *points: tuple[float, float], colour: str = "", **look: Any) -> None:
        look = {"linewidth": 1.2, "solid_capstyle": "round", "zorder": 1, **look}
        self._axes.plot(*zip(*points, strict=True), color=colour or self.theme.muted, **look)

    def arrow(self, start: tuple[float, float], end: tuple[float, float]) -> None:
        look = {"arrowstyle": "-|>", "linewidth": 1.2, "shrinkA": 0, "shrinkB": 0, "mutation_scale": 11}
        self._axes.annotate("", end, start, arrowprops={**look, "color": self.theme.muted}, zorder=3)

    def inherit(self, child: tuple[float, float], parent: tuple[float, float]) -> None:
        """UML's arrow from a class to its base, straight up or to the left: its head is hollow."""
        self.line(child, parent)
        x, y = parent
        back, aside = ((10, 0), (0, 6)) if child[1] == y else ((0, 10), (6, 0))
        sides = [(x + back[0] + sign * aside[0], y + back[1] + sign * aside[1]) for sign in (1, -1)]
        look = {"facecolor": self.theme.background, "edgecolor": self.theme.muted, "linewidth": 1.2, "zorder": 3}
        self._axes.add_patch(Polygon([parent, *sides], closed=True, **look))

    def titled(self, x: float, y: float, width: float, height: float, title: str, edge: str, **look: Any) -> None:
        """A box with a name at its top."""
        self.box(x, y, width, height, edge, **look)
        self.code(x + 14, y + 18, title, 9.5, fontweight="bold")

    def column(self, x: float, y: float, words: str, names: Sequence[str], owner: type | None = None) -> None:
        """Names in code below some words; of a class if one is given."""
        self.text(x, y, words, 8.5, color=self.theme.muted)
        for row, name in enumerate(names, 1):
            check(owner is None or known(owner, name), f"{owner} has no {name}")
            self.code(x, y + 16 * row, name)


def known(owner: type, name: str) -> bool:
    """Whether a class has this attribute, or says that its objects do."""
    name = name.partition("(")[0]
    return hasattr(owner, name) or any(name in vars(one).get("__annotations__", {}) for one in owner.__mro__)


def check(is_so: bool, otherwise: str) -> None:
    if not is_so:
        raise ValueError(f"a diagram shows what is not so: {otherwise}")


# ---- batches that fill ------------------------------------------------------------------------------

# Of each env, how long its steps take, in turn.
SPEEDS = ((2.0, 2.6, 1.9, 2.3), (3.4, 3.0, 3.7), (2.4, 2.1, 2.9), (7.6, 5.8), (2.9, 2.5, 2.2), (4.3, 3.6, 4.0))
POLICY = 0.55  # how long the program needs for one batch
END = 19.0
DOTS = (0, (1, 2))
SLOT = 17


class Step(NamedTuple):
    env: int
    start: float
    end: float
    batch: int


class Batch(NamedTuple):
    ready: float
    slots: list[int]


def play(batch_size: int) -> tuple[list[Step], list[Batch]]:
    """What a pool does whose envs take these times, one worker per env, in a loop of `recv`, policy, `send`."""
    steps: list[Step] = []
    batches: list[Batch] = []
    taken = [0] * len(SPEEDS)
    running: list[tuple[float, int, float]] = []  # end, env, start

    def send(env: int, now: float) -> None:
        heapq.heappush(running, (now + SPEEDS[env][taken[env] % len(SPEEDS[env])], env, now))
        taken[env] += 1

    for env in range(len(SPEEDS)):
        send(env, 0.0)
    free = 0.0  # when the program waits again
    while free < 2 * END:
        done = [heapq.heappop(running) for _ in range(batch_size)]
        steps += [Step(env, start, end, len(batches)) for end, env, start in done]
        ready = max(done[-1][0], free)
        in_order = [env for _, env, _ in done]
        batches.append(Batch(ready, sorted(in_order) if batch_size == len(SPEEDS) else in_order))
        free = ready + POLICY
        for env in in_order:
            send(env, free)
    return steps, batches


def draw_batches(canvas: Canvas) -> None:
    count, muted = len(SPEEDS), canvas.theme.muted
    call = f"num_envs={count}, batch_size="
    draw_timeline(canvas, 0, f"{call}{count // 2}", "async: the first three that are ready", count // 2)
    draw_timeline(canvas, 270, f"{call}{count}", "sync: all of them, so the slowest sets the pace", count)
    y = 548
    canvas.bar(92, y - 6, 26, 12, canvas.hues[0], alpha=0.85)
    canvas.text(126, y, "a step, in the colour of the batch that it fills", 8.5, color=muted)
    canvas.line((424, y), (450, y), linewidth=1, linestyle=DOTS)
    canvas.text(458, y, "the env waits for an action", 8.5, color=muted)
    canvas.line((660, y - 8), (660, y + 8), colour=canvas.hues[0])
    canvas.text(668, y, "recv returns", 8.5, color=muted)


def draw_timeline(canvas: Canvas, top: float, call: str, words: str, batch_size: int) -> None:
    left, unit, lane, muted = 92.0, 36.3, 25, canvas.theme.muted
    steps, batches = play(batch_size)
    bottom = top + 42 + lane * len(SPEEDS)

    def at(time: float) -> float:
        return left + unit * min(time, END)

    canvas.code(20, top + 20, call, 10, fontweight="bold")
    canvas.text(at(END), top + 20, words, 10, color=muted, ha="right")
    for env in range(len(SPEEDS)):
        y = top + 50 + lane * env
        canvas.text(20, y, f"env {env}", 9)
        canvas.line((left, y), (at(END), y), linewidth=1, linestyle=DOTS)
    for step in steps:
        if step.start < END:
            where = at(step.start) + 0.7, top + 42 + lane * step.env, at(step.end) - at(step.start) - 1.4, 16
            canvas.bar(*where, canvas.theme.background, zorder=1.5)  # no dots behind it
            canvas.bar(*where, canvas.hues[step.batch % len(canvas.hues)], alpha=0.85, zorder=1.6)
    canvas.text(20, bottom + 13, "your policy", 9)
    canvas.text(20, bottom + 41, "batch", 9)
    for number, batch in enumerate(batches):
        if at(batch.ready) + SLOT * batch_size <= at(END):
            colour = canvas.hues[number % len(canvas.hues)]
            canvas.line((at(batch.ready), top + 40), (at(batch.ready), bottom + 32), colour=colour, zorder=1.7)
            canvas.bar(at(batch.ready), bottom + 6, unit * POLICY, 14, muted, alpha=0.55, zorder=1.6)
            draw_slots(canvas, at(batch.ready), bottom + 31, batch.slots, colour)


def draw_slots(canvas: Canvas, x: float, y: float, slots: Sequence[int], colour: str) -> None:
    """The envs of a batch, row by row."""
    for row, env in enumerate(slots):
        canvas.box(x + SLOT * row, y, SLOT, 20, colour, fill=0.18, rounding=2, linewidth=1)
        canvas.text(x + SLOT * (row + 0.5), y + 10.5, str(env), 9, ha="center", fontweight="bold", zorder=4)


# ---- classes of envs --------------------------------------------------------------------------------


def draw_classes(canvas: Canvas) -> None:
    blue, _, green, _ = canvas.hues
    muted = canvas.theme.muted
    canvas.titled(20, 16, 350, 186, "BaseEnv", blue)
    written = ["observation_space", "action_space", "reset()", "step(action)", "close()"]
    canvas.column(34, 58, "every env has its own", written, envs.BaseEnv)
    inherited = ["seed()", "random_action()", "info()", "num_agents", "reward_space", "enable_save_replay()"]
    canvas.column(200, 58, "and inherits", [*inherited, "create_…_env_cfg()"], None)
    for name in (*inherited, "create_collector_env_cfg()", "create_evaluator_env_cfg()"):
        check(known(envs.BaseEnv, name), f"BaseEnv has no {name}")
    draw_children(
        canvas,
        (370, 109),
        envs.BaseEnv,
        [
            (None, "Walk", "what you write", green),
            (envs.DingEnvWrapper, "", "holds a gymnasium.Env", blue),
            (envs.ParallelAsBaseEnv, "", "holds a ParallelEnv", blue),
            (DingAsBaseEnv, "", "holds an env of DI-engine", blue),
        ],
        16,
    )
    canvas.titled(20, 289, 350, 84, "gymnasium.Env", muted, linestyle=(0, (4, 3)))
    canvas.column(34, 331, "Gymnasium's own class: what a pool steps", ["reset(seed), step(action)"], gymnasium.Env)
    draw_children(
        canvas,
        (370, 331),
        gymnasium.Env,
        [
            (envs.AsGymnasium, "", "holds a BaseEnv", blue),
            (TeamAsGymnasium, "", "a BaseEnv of many agents", blue),
            (envs.DmAsGymnasium, "", "holds a dm_env.Environment", blue),
            (ParallelAsPlayers, "", "holds a ParallelEnv", blue),
        ],
        238,
    )


def draw_children(canvas: Canvas, parent: tuple[float, float], base: type, rows: Sequence[Any], top: float) -> None:
    """A class per row, and an arrow from all of them to their base on the left."""
    canvas.line((405, top + 18), (405, top + 18 + 50 * (len(rows) - 1)))
    canvas.inherit((405, parent[1]), parent)
    for row, (shown, title, words, edge) in enumerate(rows):
        check(shown is None or issubclass(shown, base), f"{shown} is no {base}")
        y = top + 50 * row
        canvas.line((405, y + 18), (430, y + 18))
        canvas.box(430, y, 350, 36, edge, fill=0.08 if shown else 0.16)
        canvas.code(444, y + 18.5, title or shown.__name__, 9.5, fontweight="bold")
        canvas.text(766, y + 18.5, words, 8.5, ha="right", color=canvas.theme.muted)


# ---- classes of elements ----------------------------------------------------------------------------


def draw_elements(canvas: Canvas) -> None:
    blue, orange, green, _ = canvas.hues
    muted = canvas.theme.muted
    left, right, half = 20, 310, 220
    canvas.titled(left, 16, right + half - left, 62, "IEnvElement", muted)
    canvas.code(left + 14, 56, "info, repr()")
    canvas.text(right + half - 14, 56, "describes an observation, an action or a reward", 8.5, ha="right", color=muted)
    canvas.titled(right, 112, half, 76, "IEnvElementRunner", muted)
    canvas.column(right + 14, 138, "", ["get(engine)", "reset()"], envs.IEnvElementRunner)
    canvas.titled(left, 222, half, 78, "EnvElement", blue)
    canvas.column(left + 14, 262, "stateless: one instance per class", ["info"], envs.EnvElement)
    canvas.titled(right, 222, half, 78, "EnvElementRunner", orange)
    canvas.column(right + 14, 262, "stateful: one per env", ["info"], envs.EnvElementRunner)
    canvas.titled(left, 334, half, 96, "Speed", green, fill=0.16)
    canvas.column(left + 14, 374, "you write", ["_init()", "_details()"], envs.EnvElement)
    canvas.titled(right, 334, half, 96, "SpeedRunner", green, fill=0.16)
    canvas.column(right + 14, 374, "you write", ["_init()", "get(engine), reset()"], envs.EnvElementRunner)
    canvas.box(620, 334, 160, 96, green, fill=0.16)
    canvas.text(634, 352, "your env", 9.5, fontweight="bold")
    canvas.text(634, 374, "has a runner", 8.5, color=muted)
    canvas.text(634, 390, "for each element", 8.5, color=muted)

    first, second = left + half / 2, right + half / 2
    for child, parent, x, start, end in (
        (envs.EnvElement, envs.IEnvElement, first, 222, 78),
        (envs.IEnvElementRunner, envs.IEnvElement, second, 112, 78),
        (envs.EnvElementRunner, envs.IEnvElementRunner, second, 222, 188),
        (None, envs.EnvElement, first, 334, 300),
        (None, envs.EnvElementRunner, second, 334, 300),
    ):
        check(child is None or issubclass(child, parent), f"{child} is no {parent}")
        canvas.inherit((x, start), (x, end))
    canvas.arrow((right, 278), (left + half, 278))
    canvas.code((left + half + right) / 2, 267, "_core", 8, ha="center")
    canvas.arrow((620, 398), (right + half, 398))
    canvas.code((620 + right + half) / 2, 387, "get(self)", 8, ha="center")
    canvas.inherit((646, 30), (620, 30))
    canvas.text(656, 30, "inherits from", 8.5, color=muted)
    canvas.arrow((646, 56), (620, 56))
    canvas.text(656, 56, "holds, calls", 8.5, color=muted)


# ---- the folder of an env ---------------------------------------------------------------------------


def draw_folder(canvas: Canvas) -> None:
    blue, orange, green, purple = canvas.hues
    muted = canvas.theme.muted
    draw_tree(
        canvas,
        {
            "README.md": muted,
            "pyproject.toml": muted,
            "river_boat/__init__.py": muted,
            "river_boat/config.py": orange,
            "river_boat/world.py": purple,
            "river_boat/action.py": blue,
            "river_boat/observation.py": blue,
            "river_boat/reward.py": blue,
            "river_boat/env.py": green,
            "river_boat/policy.py": muted,
            "tests/test_river_boat.py": muted,
        },
    )
    canvas.line((270, 20), (270, 366), colour=canvas.theme.grid)
    middle = 545
    draw_file(canvas, (middle, 20), 300, "config.py", "what can be chosen, with checks", orange)
    draw_file(canvas, (middle, 96), 300, "world.py", "the simulator, without agents", purple)
    draw_file(canvas, (382, 180), 150, "action.py", "what an agent does", blue)
    draw_file(canvas, (middle, 180), 150, "observation.py", "what it sees", blue)
    draw_file(canvas, (708, 180), 150, "reward.py", "what it is paid for", blue)
    draw_file(canvas, (middle, 264), 300, "env.py", "RiverBoatEnv, a BaseEnv", green)
    canvas.code(middle, 356, "stepmill.make(RiverBoatEnv, num_envs=64)", 9, ha="center")
    canvas.arrow((middle, 68), (middle, 96))
    canvas.line((382, 160), (708, 160))
    canvas.line((middle, 144), (middle, 160))
    for x in (382, middle, 708):
        canvas.arrow((x, 160), (x, 180))
        canvas.line((x, 228), (x, 244))
    canvas.line((382, 244), (708, 244))
    canvas.arrow((middle, 244), (middle, 264))
    canvas.arrow((middle, 312), (middle, 344))
    canvas.arrow((714, 32), (714, 56))
    canvas.text(722, 44, "is used by", 8.5, color=muted)


def draw_file(canvas: Canvas, top: tuple[float, float], width: float, name: str, words: str, edge: str) -> None:
    x, y = top
    canvas.box(x - width / 2, y, width, 48, edge)
    canvas.code(x, y + 17, name, 9.5, fontweight="bold", ha="center")
    canvas.text(x, y + 34, words, 8.5, ha="center", color=canvas.theme.muted)


def draw_tree(canvas: Canvas, files: dict[str, str]) -> None:
    """The folder as `stepmill new river_boat` writes it, a colour per file."""
    written = {str(path.relative_to(TEMPLATE)) for path in TEMPLATE.rglob("*.*") if "__pycache__" not in path.parts}
    renamed = {one.replace("template", "river_boat").replace("project.toml", "pyproject.toml") for one in written}
    check(renamed == set(files), f"stepmill new writes {sorted(renamed)}")
    canvas.code(20, 28, "river_boat/", 9.5, fontweight="bold")
    y, trunks = 28, {"": 38}  # where the line of each folder begins
    ends: dict[str, int] = {}
    for path, colour in files.items():
        folder, _, name = path.rpartition("/")
        if folder not in trunks:
            y += 25
            ends[""], trunks[folder] = y, y + 10
            canvas.line((28, y), (42, y), colour=canvas.theme.grid)
            canvas.code(48, y, f"{folder}/", 9, fontweight="bold")
        y += 25
        ends[folder] = y
        x = 56 if folder else 28
        canvas.line((x, y), (x + 14, y), colour=canvas.theme.grid)
        canvas.bar(x + 20, y - 5, 10, 10, colour, alpha=0.85)
        canvas.code(x + 38, y, name, 9)
    for folder, start in trunks.items():
        x = 56 if folder else 28
        canvas.line((x, start), (x, ends[folder]), colour=canvas.theme.grid)


# ---- the house --------------------------------------------------------------------------------------

# From what a program calls down to what all else stands on: the parts of a row, and what they are for.
NUCLEUS = (
    (("make", "settings", "spec"), "what everything begins with"),
    (("views", "managers"), "what you hold: gymnasium, gym, dm; single envs by id"),
    (("hosts", "device"), "where envs live: threads, processes, Ray, a device"),
    (("sources",), "from a task to what is built"),
    (("envs", "wrappers"), "what an env is, and adapters for other kinds"),
    (("registry", "values", "system", "errors"), "what the rest stands on"),
)
SURROUNDINGS = (
    ("zoo", "ids of envs, and\nwhat they need"),
    ("interop", "other libraries on\nour public interface"),
    ("testing", "the checker that\nenvs are tested with"),
    ("tools", "command line, watch,\ntop, verify, bench"),
)
CORE = (
    ("bindings", "the engine: checks, waits, hands out"),
    ("core", "the stations of an action"),
    ("envs", "native envs"),
    ("gpu", "kernels for GPUs"),
)


def draw_house(canvas: Canvas) -> None:
    package = Path(stepmill.__file__).parent
    shown = {name for names, _ in NUCLEUS for name in names} | {name for name, _ in SURROUNDINGS}
    there = {path.stem for path in package.iterdir() if path.suffix == ".py" or (path / "__init__.py").is_file()}
    hidden = {"__init__", "__main__", "_version"}
    check(shown == there - hidden, f"the parts of the package: {shown ^ (there - hidden)}")
    first, second, third, _ = canvas.hues
    for column, (name, words) in enumerate(SURROUNDINGS):
        x = 20 + 195 * column
        canvas.titled(x, 30, 175, 74, f"{name}/", third)
        for row, line in enumerate(words.splitlines()):
            canvas.text(x + 14, 64 + 16 * row, line, 8.5, color=canvas.theme.muted)
    canvas.text(20, 14, "the surroundings stand on the nucleus", 9, color=canvas.theme.muted)
    canvas.arrow((400, 106), (400, 134))
    canvas.box(20, 136, 760, 248, first, 0.04)
    canvas.text(34, 153, "the nucleus, in Python: src/stepmill", 9, color=canvas.theme.muted)
    for row, (names, words) in enumerate(NUCLEUS):
        y, x = 170 + 34 * row, 34.0
        for name in names:
            label = f"{name}/" if (package / name).is_dir() else name
            width = 26 + 7.6 * len(label)
            canvas.box(x, y, width, 26, first, 0.12)
            canvas.code(x + 13, y + 13, label, 9, fontweight="bold")
            x += width + 8
        canvas.text(432, y + 13, words, 8.5, color=canvas.theme.muted)
    canvas.arrow((400, 386), (400, 414))
    canvas.box(20, 416, 760, 92, second, 0.04)
    canvas.text(34, 433, "the nucleus, in C++: cpp", 9, color=canvas.theme.muted)
    x = 34.0
    for name, words in CORE:
        width = 40 + 5.6 * max(len(words), 16)
        canvas.box(x, 448, width, 48, second, 0.12)
        canvas.code(x + 13, 463, f"{name}/", 9, fontweight="bold")
        canvas.text(x + 13, 481, words, 8.5, color=canvas.theme.muted)
        x += width + 12


DIAGRAMS: dict[str, tuple[int, Callable[[Canvas], None]]] = {
    "batches": (566, draw_batches),
    "env-classes": (440, draw_classes),
    "env-elements": (446, draw_elements),
    "env-folder": (386, draw_folder),
    "house": (522, draw_house),
}

if __name__ == "__main__":
    main()
