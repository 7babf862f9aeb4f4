"""``stepmill bench``: the same envs in every library that is installed here, side by side."""

from __future__ import annotations

import contextlib
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from stepmill.errors import summary
from stepmill.system.optional import RAY, check_installed
from stepmill.tools.cli import interrupts
from stepmill.tools.cli.bars import Measure, bars_of, require_matplotlib, save_bars
from stepmill.tools.cli.options import Seconds, complete_id, folder_option, json_option, set_option
from stepmill.tools.cli.target import find_target, fitted
from stepmill.tools.cli.terminal import Terminal, ratio_text, short, until_interrupted
from stepmill.tools.measuring.machine import describe
from stepmill.tools.measuring.peers import Peer, Workload, most_processes, peers_of, quiet
from stepmill.tools.measuring.runners import Effort, sample

_OURS = "stepmill"
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


class SideBySide:
    """What was measured of one kind of env.

    Args:
        subject: The envs.
        peers: Who steps them.
        most_processes: Those that would start more processes, one for each env, are left out.
    """

    def __init__(self, subject: Workload, peers: Sequence[Peer], most_processes: int | None = None) -> None:
        self.subject = subject
        self.samples: dict[str, list[float]] = {}
        self.failed: dict[str, str] = {}
        self._most_processes = most_processes
        is_crowded = most_processes is not None and subject.num_envs > most_processes
        self._peers = {peer.name: peer for peer in peers if not (is_crowded and peer.process_per_env)}
        self.left_out = [peer.name for peer in peers if peer.name not in self._peers]

    def measure(self, effort: Effort, terminal: Terminal, remark: bool = False) -> None:
        """Fills the samples, round after round, until it is done or interrupted. Shows them as they come: where nothing
        can be drawn as the remark of each library's first, if ``remark`` says so.
        """
        runners: dict[str, Any] = {}
        measurements = len(self._peers) * (effort.repeats + 1)
        progress = terminal.progress(self.subject.name, measurements, "measurements")
        with contextlib.ExitStack() as opened, progress as bar:
            for name, peer in self._peers.items():
                bar.say(f"starting {name}")
                with self._noting_failure(peer):
                    runners[name] = opened.enter_context(contextlib.closing(peer.start()))
                bar.add(1, name)
            for number in range(effort.repeats):
                for name, runner in runners.items():
                    if name not in self.failed:
                        with self._noting_failure(self._peers[name]):
                            rate = sample(runner, effort.seconds)
                            self.samples.setdefault(name, []).append(rate)
                            if terminal.draws:
                                bar.show_above(self._bars(terminal.notes))
                            elif remark and number == 0:
                                terminal.remark(f"{name}: {short(rate)} /s in round 1 of {effort.repeats}")
                    bar.add(1, name)

    @contextlib.contextmanager
    def _noting_failure(self, peer: Peer) -> Iterator[None]:
        """If another library fails, whatever it raises, the others can still be measured."""
        try:
            yield
        except Exception as error:
            if peer.is_ours or interrupts.pressed():
                raise
            self.failed[peer.name] = summary(error)
            self.samples.pop(peer.name, None)

    @property
    def rates(self) -> dict[str, float]:
        """Medians, the fastest first."""
        medians = {name: statistics.median(every) for name, every in self.samples.items()}
        return dict(sorted(medians.items(), key=lambda item: -item[1]))

    @property
    def versions(self) -> dict[str, str | None]:
        return {name: peer.version for name, peer in self._peers.items()}

    @property
    def is_alone(self) -> bool:
        """Whether no other library has the env."""
        return not self.left_out and all(peer.is_ours for peer in self._peers.values())

    @property
    def title(self) -> str:
        count = self.subject.num_envs
        return f"{self.subject.name}, {count:,} {'copies' if count > 1 else 'copy'} at once: steps per second"

    def draw(self, out: Console) -> None:
        """Draws the bars, and says who failed, and who was left out."""
        out.print(self._bars(out))
        for name, why in self.failed.items():
            out.print(f"{name} failed: {why}", soft_wrap=True)
        if self.left_out:
            why = f"Each would start {self.subject.num_envs:,} processes, one per env"
            most = f"the most for that here is --num-envs {self._most_processes}"
            out.print(f"Left out: {', '.join(self.left_out)}. {why}; {most}.", soft_wrap=True)

    def save(self, picture: Path) -> None:
        """Draws the bars as a picture."""
        machine = describe()
        made = f"Random actions, {machine['cores']} cores, {machine['architecture']}, Python {machine['python']}"
        save_bars(picture, self.title, self._measures(), "Steps per second", f"{made}, {machine['date']}")

    def _bars(self, out: Console) -> Table:
        return bars_of(out, self.title, self._measures(), "/s")

    def _measures(self) -> list[Measure]:
        rates = self.rates
        found = []
        for name, rate in rates.items():
            peer = self._peers[name]
            is_compared = _OURS in rates and not peer.is_ours
            remark = f"{_OURS}: {ratio_text(rates[_OURS] / rate)}x" if is_compared else ""
            found.append(Measure(name if peer.is_ours else f"{name} {peer.version}", rate, peer.is_ours, remark))
        return found
