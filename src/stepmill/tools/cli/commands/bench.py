"""``stepmill bench``: the same envs in every library that is installed here, side by side."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console

from stepmill.system.optional import RAY, check_installed
from stepmill.tools.cli.bars import require_matplotlib
from stepmill.tools.cli.options import Seconds, complete_id, folder_option, json_option, set_option
from stepmill.tools.cli.target import find_target, fitted
from stepmill.tools.cli.terminal import Terminal, until_interrupted

if TYPE_CHECKING:
    from stepmill.tools.cli.side_by_side import SideBySide

__all__ = ["command"]

_DEFAULT = ["CartPole-v1", "gymnasium:CartPole-v1"]  # a native env, and a Python env


@click.command("bench")
@click.argument("targets", nargs=-1, metavar="[ID|MODULE:ENV]...", shell_complete=complete_id)
@click.option("--num-envs", type=click.IntRange(min=1), default=64, show_default=True, help="How many envs.")
@click.option("--repeats", type=click.IntRange(min=1), default=5, show_default=True, help="Rounds of measuring.")
@click.option(
    "--seconds",
    type=Seconds(),
    default=0.5,
    show_default=True,
    help="For each library in each round.",
)
@click.option("--ray", "on_ray", is_flag=True, help="Measure a pool on a Ray cluster, too.")
@folder_option("Also draw a picture per env into this folder.")
@set_option
@json_option
def command(
    targets: tuple[str, ...],
    num_envs: int,
    repeats: int,
    seconds: float,
    on_ray: bool,
    folder: Path | None,
    config: dict[str, Any],
    terminal: Terminal,
) -> int:
    """Compare with the libraries that are installed here: the same envs and actions, side by side.

    EnvPool, Gymnasium's vector envs, those of Stable-Baselines3 and of Tianshou take part if they are there and can run
    the env. They are measured in turn, round after round; the medians are shown. Those that start a process per env are
    left out if that is more than 8 per core. Without an env: CartPole, as a native env and as a Python env.

    \b
    stepmill bench
    stepmill bench CartPole-v1 --num-envs 1024 -o plots
    stepmill bench my_envs.py:Maze
    """
    from stepmill.tools.cli.side_by_side import SideBySide
    from stepmill.tools.measuring.machine import describe
    from stepmill.tools.measuring.peers import Workload, most_processes, peers_of, quiet
    from stepmill.tools.measuring.timing import Effort

    if folder is not None:
        require_matplotlib()
    if on_ray:
        check_installed(RAY, "stepmill bench --ray")
    measured = []
    with quiet(), until_interrupted() as ending:
        for name in targets or _DEFAULT:
            task = find_target(name)
            subject = Workload(name, task, num_envs, fitted(task, config))
            measured.append(one := SideBySide(subject, peers_of(subject, on_ray), most_processes()))
            with until_interrupted() as measuring:
                one.measure(Effort(repeats, seconds), terminal, remark=not terminal.json)
            if one.samples and not terminal.json:
                _draw(terminal.out, one)
            if one.samples and folder is not None:
                one.save(folder / f"{name.replace('/', '-').replace(':', '-')}.png")
            if measuring.interrupted:
                raise KeyboardInterrupt
    if not terminal.json and not any(one.samples for one in measured):
        raise KeyboardInterrupt
    envs = [_document(one) for one in measured]
    document = {"machine": describe(), "envs": envs, "interrupted": ending.interrupted}
    terminal.result(document, lambda out: _say_where(out, folder))
    return ending.code


def _document(one: SideBySide) -> dict[str, Any]:
    return {
        "id": one.subject.name,
        "num_envs": one.subject.num_envs,
        "native": one.subject.is_native,
        "steps_per_second": one.rates,
        "samples": one.samples,
        "versions": one.versions,
        "failed": one.failed,
        "left_out": one.left_out,
    }


def _draw(out: Console, one: SideBySide) -> None:
    one.draw(out)
    if one.is_alone:
        out.print("No other library here has this env.", soft_wrap=True)
    out.print()


def _say_where(out: Console, folder: Path | None) -> None:
    if folder is not None:
        out.print(f"pictures: {folder}", soft_wrap=True)
