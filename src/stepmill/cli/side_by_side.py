"""One kind of env in several libraries: measures them in turn, and draws the outcome."""

from __future__ import annotations

import contextlib
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from stepmill.cli import interrupts
from stepmill.cli.bars import Bar, print_bars, save_bars
from stepmill.cli.terminal import Terminal, ratio_text
from stepmill.errors import summary
from stepmill.measuring.machine import describe
from stepmill.measuring.timing import Effort, sample

if TYPE_CHECKING:
    from stepmill.measuring.peers import Peer, Subject

__all__ = ["SideBySide"]

_OURS = "stepmill"


class SideBySide:
    """What was measured of one kind of env.

    Args:
        subject: The envs.
        peers: Who steps them.
    """

    def __init__(self, subject: Subject, peers: Sequence[Peer]) -> None:
        self.subject = subject
        self.samples: dict[str, list[float]] = {}
        self.failed: dict[str, str] = {}
        self._peers = {peer.name: peer for peer in peers}

    def measure(self, effort: Effort, terminal: Terminal) -> None:
        """Fills the samples, round after round, until it is done or interrupted."""
        runners: dict[str, Any] = {}
        measurements = len(self._peers) * (effort.repeats + 1)
        with (
            contextlib.ExitStack() as opened,
            terminal.progress(self.subject.name, measurements, "measurements") as bar,
        ):
            for name, peer in self._peers.items():
                with self._noting_failure(peer):
                    runners[name] = opened.enter_context(contextlib.closing(peer.start()))
                bar.add(1, name)
            for _ in range(effort.repeats):
                for name, runner in runners.items():
                    if name not in self.failed:
                        with self._noting_failure(self._peers[name]):
                            rate = sample(runner, effort.seconds)
                            self.samples.setdefault(name, []).append(rate)
                    bar.add(1, name)

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
        return all(peer.is_ours for peer in self._peers.values())

    @property
    def title(self) -> str:
        count = self.subject.num_envs
        return f"{self.subject.name}, {count:,} {'copies' if count > 1 else 'copy'} at once: steps per second"

    def draw(self, out: Console) -> None:
        """Draws the bars, and says who failed."""
        print_bars(out, self.title, self._bars(), "/s")
        for name, why in self.failed.items():
            out.print(f"{name} failed: {why}", soft_wrap=True, markup=False)

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
