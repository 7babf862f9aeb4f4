"""One kind of env in several libraries: measures them in turn, and draws the outcome."""

from __future__ import annotations

import contextlib
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console, Group
from rich.text import Text

from stepmill.errors import summary
from stepmill.tools.cli import interrupts
from stepmill.tools.cli.bars import Bar, grid_of, print_bars, save_bars
from stepmill.tools.cli.terminal import Terminal, ratio_text, short
from stepmill.tools.measuring.machine import describe
from stepmill.tools.measuring.timing import Effort, sample

if TYPE_CHECKING:
    from stepmill.tools.measuring.peers import Peer, Workload

__all__ = ["SideBySide"]

_OURS = "stepmill"


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
        with (
            contextlib.ExitStack() as opened,
            terminal.progress(self.subject.name, measurements, "measurements") as bar,
        ):
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
                                bar.show_above(self._drawn(terminal.notes))
                            elif remark and number == 0:
                                terminal.remark(f"{name}: {short(rate)} /s in round 1 of {effort.repeats}")
                    bar.add(1, name)

    def _drawn(self, out: Console) -> Group:
        return Group(Text(self.title, style="bold"), grid_of(out, self._bars(), "/s"))

    @contextlib.contextmanager
    def _noting_failure(self, peer: Peer) -> Any:
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
        print_bars(out, self.title, self._bars(), "/s")
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
        save_bars(picture, self.title, self._bars(), "Steps per second", f"{made}, {machine['date']}")

    def _bars(self) -> list[Bar]:
        rates = self.rates
        bars = []
        for name, rate in rates.items():
            peer = self._peers[name]
            is_compared = _OURS in rates and not peer.is_ours
            remark = f"{_OURS}: {ratio_text(rates[_OURS] / rate)}x" if is_compared else ""
            bars.append(Bar(name if peer.is_ours else f"{name} {peer.version}", rate, peer.is_ours, remark))
        return bars
