"""``stepmill bench``: the same envs in every library that is installed here, side by side."""

from __future__ import annotations

import contextlib
import statistics
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console

from stepmill.cli import interrupts
from stepmill.cli.options import Seconds, complete_id, folder_option, json_option, set_option
from stepmill.cli.target import find_target, fitted
from stepmill.cli.terminal import Terminal, ratio_text, until_interrupted
from stepmill.errors import summary
from stepmill.optional import require

if TYPE_CHECKING:
    from stepmill.measuring.peers import Peer, Subject

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
@folder_option("Also draw a picture per env into this folder.")
@set_option
@json_option
def command(
    targets: tuple[str, ...],
    num_envs: int,
    repeats: int,
    seconds: float,
    folder: Path | None,
    config: dict[str, Any],
    terminal: Terminal,
) -> int:
    """Compare with the libraries that are installed here: the same envs and actions, side by side.

    EnvPool, Gymnasium's vector envs, those of Stable-Baselines3 and of Tianshou take part if they are there and can run
    the env. They are measured in turn, round after round; the medians are shown. Without an env: CartPole, as a native
    env and as a Python env.

    \b
    stepmill bench
    stepmill bench CartPole-v1 --num-envs 1024 -o plots
    stepmill bench my_envs.py:Maze
    """
    from stepmill.measuring.machine import describe
    from stepmill.measuring.peers import Subject, quiet
    from stepmill.measuring.timing import Effort

    machine = describe()
    if folder is not None:
        require("matplotlib", "matplotlib", "cli", "a plot")
    measured = []
    with quiet(), until_interrupted() as ending:
        for name in targets or _DEFAULT:
            task = find_target(name)
            subject = Subject(name, task, num_envs, fitted(task, config))
            measured.append(result := _Result(subject))
            result.measure(Effort(repeats, seconds), terminal)
            if not terminal.json:
                result.draw(terminal.out)
            if folder is not None and result.samples:
                result.save(folder, machine)
    document = {"machine": machine, "envs": [result.document for result in measured], "interrupted": ending.interrupted}
    terminal.result(document, lambda out: _say_where(out, folder))
    return ending.code


class _Result:
    """What was measured of one env."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self.samples: dict[str, list[float]] = {}
        self.failed: dict[str, str] = {}
        self._peers: dict[str, Peer] = {}

    def measure(self, effort: Any, terminal: Terminal) -> None:
        """Fills the samples, round after round, until it is done or interrupted."""
        from stepmill.measuring.peers import peers_of
        from stepmill.measuring.timing import sampled

        self._peers = {peer.name: peer for peer in peers_of(self.subject)}
        runners: dict[str, Any] = {}
        measurements = len(self._peers) * (effort.repeats + 1)
        with (
            contextlib.ExitStack() as opened,
            terminal.progress(self.subject.name, measurements, "measurements") as bar,
        ):
            for name, peer in self._peers.items():
                try:
                    runners[name] = opened.enter_context(contextlib.closing(peer.start()))
                except Exception as error:  # whatever another library raises; the others can still be measured
                    if peer.is_ours or interrupts.pressed():
                        raise
                    self.failed[name] = summary(error)
                bar.add(1, name)
            for name, rate in sampled(runners, effort):
                self.samples.setdefault(name, []).append(rate)
                bar.add(1, name)

    @property
    def rates(self) -> dict[str, float]:
        """Medians, the fastest first."""
        medians = {name: statistics.median(every) for name, every in self.samples.items()}
        return dict(sorted(medians.items(), key=lambda item: -item[1]))

    @property
    def title(self) -> str:
        return (
            f"{self.subject.name}, {self.subject.num_envs:,} env{'s' * (self.subject.num_envs > 1)}: steps per second"
        )

    @property
    def document(self) -> dict[str, Any]:
        return {
            "id": self.subject.name,
            "num_envs": self.subject.num_envs,
            "native": self.subject.is_native,
            "steps_per_second": self.rates,
            "samples": self.samples,
            "versions": {name: peer.version for name, peer in self._peers.items()},
            "failed": self.failed,
        }

    def bars(self) -> list[Any]:
        from stepmill.cli.bars import Bar

        ours = self.rates.get("stepmill")
        bars = []
        for name, rate in self.rates.items():
            is_ours = self._peers[name].is_ours
            remark = "" if ours is None or is_ours else f"stepmill: {ratio_text(ours / rate)}x"
            bars.append(Bar(f"{name} {self._peers[name].version}" if not is_ours else name, rate, is_ours, remark))
        return bars

    def draw(self, out: Console) -> None:
        from stepmill.cli.bars import print_bars

        print_bars(out, self.title, self.bars(), "/s")
        for name, why in self.failed.items():
            out.print(f"{name} failed: {why}", soft_wrap=True, markup=False)
        if all(peer.is_ours for peer in self._peers.values()):
            out.print("No other library here has this env.", soft_wrap=True)
        out.print()

    def save(self, folder: Path, machine: dict[str, Any]) -> None:
        from stepmill.cli.bars import save_bars

        note = f"{machine['cores']} cores, {machine['architecture']}, Python {machine['python']}, {machine['date']}"
        name = self.subject.name.replace("/", "-").replace(":", "-")
        save_bars(folder / f"{name}.png", self.title, self.bars(), "steps per second", note)


def _say_where(out: Console, folder: Path | None) -> None:
    if folder is not None:
        out.print(f"pictures: {folder}", soft_wrap=True)
