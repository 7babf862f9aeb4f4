"""``stepmill demo``: the first thing to run. One env, here and in Gymnasium, with a plot."""

from __future__ import annotations

import contextlib
import statistics
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console

from stepmill.cli.options import Seconds, complete_id, json_option, picture_option
from stepmill.cli.program import FAILED
from stepmill.cli.terminal import Terminal, ratio_text, until_interrupted

if TYPE_CHECKING:
    from stepmill.measuring.peers import Peer, Subject
    from stepmill.verifying.results import Verification

__all__ = ["command"]

_SHOWN = ("stepmill", "Gymnasium SyncVectorEnv")
_ROUNDS = 10
_COMPARED_STEPS = 2000
_COMPARED_ENVS = 8  # at most


@click.command("demo")
@click.argument("env", metavar="[ID]", default="CartPole-v1", shell_complete=complete_id)
@click.option("--num-envs", type=click.IntRange(min=1), default=256, show_default=True, help="How many envs.")
@click.option(
    "--seconds",
    type=Seconds(),
    default=3.0,
    show_default=True,
    help="How long each library steps them.",
)
@picture_option("stepmill-demo.png")
@json_option
def command(env: str, num_envs: int, seconds: float, picture: Path, terminal: Terminal) -> int:
    """Step one env for a few seconds, here and in Gymnasium, and compare their speed and their episodes.

    Both get the same seeds and actions. ID is CartPole-v1 if you name none.

    \b
    stepmill demo
    stepmill demo HalfCheetah-v5 --num-envs 64
    """
    from stepmill.measuring.peers import Subject, peers_of, quiet

    demo = _Demo(Subject(env, env, num_envs, {}))
    with quiet(), until_interrupted() as ending:
        demo.peers = [peer for peer in peers_of(demo.subject) if peer.name in _SHOWN]
        demo.compare()
        demo.measure(seconds, terminal)
    if not demo.rates:
        raise KeyboardInterrupt
    demo.save(picture)
    document = {
        "id": env,
        "num_envs": num_envs,
        "steps_per_second": demo.rates,
        "equal": None if demo.compared is None else bool(demo.compared),
        "picture": picture,
        "interrupted": ending.interrupted,
    }
    terminal.result(document, lambda out: demo.draw(out, picture))
    return ending.code or (FAILED if demo.compared is not None and not demo.compared else 0)


class _Demo:
    """What was measured and compared."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self.peers: list[Peer] = []
        self.compared: Verification | None = None
        self._samples: dict[str, list[float]] = {}

    def compare(self) -> None:
        """Plays the same episodes in both."""
        import stepmill

        if self.subject.is_native and len(self.peers) > 1:
            envs = min(self.subject.num_envs, _COMPARED_ENVS)
            self.compared = stepmill.verify(self.subject.name, steps=_COMPARED_STEPS, num_envs=envs)

    def measure(self, seconds: float, terminal: Terminal) -> None:
        """Steps them in turn, until it is done or interrupted."""
        from stepmill.measuring.timing import Effort, sampled

        rounds = len(self.peers) * _ROUNDS
        with contextlib.ExitStack() as opened, terminal.progress(self.subject.name, rounds, "rounds") as bar:
            runners = {peer.name: opened.enter_context(contextlib.closing(peer.start())) for peer in self.peers}
            for name, rate in sampled(runners, Effort(_ROUNDS, seconds / _ROUNDS)):
                self._samples.setdefault(name, []).append(rate)
                bar.add(1, name)

    @property
    def rates(self) -> dict[str, float]:
        return {name: statistics.median(every) for name, every in self._samples.items()}

    @property
    def title(self) -> str:
        count = self.subject.num_envs
        return f"{self.subject.name}, {count:,} {'copies' if count > 1 else 'copy'} at once: steps per second"

    def bars(self) -> list[Any]:
        from stepmill.cli.bars import Bar

        names = {peer.name: f"{peer.name.split()[0]} {peer.version}" for peer in self.peers}
        return [Bar(names[name], rate, name == "stepmill") for name, rate in self.rates.items()]

    def said(self) -> list[str]:
        """What the bars do not say."""
        lines = []
        rates = self.rates
        if len(rates) > 1:
            ratio = ratio_text(rates[_SHOWN[0]] / rates[_SHOWN[1]])
            lines.append(f"stepmill takes {ratio} times as many steps per second.")
        elif len(self.peers) == 1:
            lines.append(f"Gymnasium has no {self.subject.name}, so stepmill ran alone.")
        if self.compared:
            envs = f"{self.compared.num_envs} env{'s' * (self.compared.num_envs > 1)}"
            steps = f"{self.compared.steps:,} steps in {envs}"
            lines.append(f"The same seeds and actions gave the same episodes, bit for bit: {steps}.")
        elif self.compared is not None:
            lines.append(str(self.compared))
        elif len(self.peers) > 1:
            lines.append("stepmill ran Gymnasium's own env, so there are no episodes to compare.")
        return lines

    def draw(self, out: Console, picture: Path) -> None:
        from stepmill.cli.bars import print_bars

        out.print()
        print_bars(out, self.title, self.bars(), "/s")
        out.print()
        for line in [*self.said(), f"As a picture: {picture}"]:
            out.print(line, soft_wrap=not out.is_terminal, markup=False)

    def save(self, picture: Path) -> None:
        from stepmill.cli.bars import save_bars
        from stepmill.measuring.machine import describe

        machine = describe()
        note = f"Random actions, {machine['cores']} cores, {machine['architecture']}, {machine['date']}"
        save_bars(picture, self.title, self.bars(), "Steps per second", note)
