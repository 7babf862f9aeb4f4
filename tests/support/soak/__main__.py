"""``make soak``: process pools under full load, with kills, stops, exceptions and stalls at random instants.

Every action is accounted for; exit code 0 means that nothing was lost, nothing hung, memory stayed flat, and no
process, thread or descriptor is left.
"""

from __future__ import annotations

import argparse
import faulthandler
import gc
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from stepmill.testing import end_servers
from support.processes import descendants, threads
from support.soak.chaos import Chaos
from support.soak.env import Order
from support.soak.lane import Lane
from support.soak.ledger import Counts
from support.soak.memory import Memory
from support.soak.processes import children, describe, descriptors
from support.soak.shapes import shapes
from support.waiting import eventually

# A lane that did not come back from one call for so long hangs. The longest that is allowed: a template was stopped,
# which the pool bears for 10 s, kills it in 5 s more, and starts another, all on a machine under load.
HANG_S = 60.0
_ROUND_S = 60.0  # for pools of all shapes, in a run of minutes

# What is told of the orders that the envs were given.
ORDERS = {
    Order.END_BADLY: "resets that raise",
    Order.RAISE: "steps that raise",
    Order.RAISE_ODDLY: "steps that raise what cannot be pickled",
    Order.SYS_EXIT: "steps that call sys.exit",
    Order.EXIT: "steps that call os._exit",
    Order.SEGFAULT: "steps that segfault",
    Order.ABORT: "steps that abort",
    Order.STALL: "steps that wait for ever",
    Order.SPIN: "steps that compute for ever",
    Order.LINGER: "steps that take long",
    Order.BULK: "infos of up to 300 kB",
}


@dataclass(frozen=True)
class Holdings:
    """What this process has, that must be the same at the end."""

    descriptors: list[str]
    threads: int
    children: int

    @classmethod
    def now(cls) -> Holdings:
        return cls(descriptors(), len(threads()), len(children(os.getpid())))


def positive(kind: type) -> Callable[[str], Any]:
    def number(text: str) -> Any:
        value = kind(text)
        if value <= 0:
            raise argparse.ArgumentTypeError(f"expected a number above 0, got {text}")
        return value

    number.__name__ = kind.__name__  # for the message where ``text`` is no number at all
    return number


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m support.soak", description=__doc__)
    parser.add_argument(
        "--seconds", type=positive(float), default=300.0, help="at least so long (default: %(default)g)"
    )
    parser.add_argument(
        "--kills", type=positive(int), default=500, help="at least so many SIGKILLs (default: %(default)d)"
    )
    parser.add_argument("--seed", type=int, help="of all choices (default: a new one; instants differ in any case)")
    parser.add_argument("--envs", type=positive(int), help="in every pool (default: 6 to 32)")
    parser.add_argument("--workers", type=positive(int), help="in every pool (default: 2 to 4)")
    parser.add_argument("--batch", type=positive(int), help="of the async pools (default: 1 to 16)")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    options = parse(arguments)
    seed = random.SystemRandom().getrandbits(32) if options.seed is None else options.seed
    console = Console(highlight=False, soft_wrap=True)
    console.width = max(console.width, 100)  # a log has 80, too few for the tables
    console.print(f"soak: seed {seed}, at least {options.seconds:g} s and {options.kills} kills")
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        soak = Soak(options, seed, console, Path(folder))
        problems = soak.run()
    soak.report()
    for problem in problems:
        console.print(problem, markup=False)
    console.print(f"{'FAILED' if problems else 'passed'} (seed {seed})")
    return 1 if problems else 0


class Soak:
    """One run."""

    def __init__(self, options: argparse.Namespace, seed: int, console: Console, folder: Path) -> None:
        self._options = options
        self._console = console
        rng = random.Random(seed)
        sync, asynchronous = shapes(options.envs, options.workers, options.batch)
        self._round_s = options.seconds / max(round(options.seconds / _ROUND_S), 1)
        kill_rate = 1.1 * options.kills / options.seconds
        self._lanes = [
            Lane(
                name,
                its,
                self._round_s / len(its),
                0.6 * kill_rate,  # in each: as many faults as kills, and a few more
                random.Random(rng.getrandbits(32)),
                folder,
            )
            for name, its in (("sync", sync), ("async", asynchronous))
        ]
        self._chaos = Chaos(self._lanes, kill_rate, random.Random(rng.getrandbits(32)))
        self._memory = Memory()
        self._before = Holdings.now()
        self._began = 0.0
        self._elapsed = 0.0

    def run(self) -> list[str]:
        """What went wrong."""
        self._began = time.monotonic()
        for thread in (*self._lanes, self._chaos):
            thread.start()
        try:
            self._watch()
        finally:
            self._elapsed = time.monotonic() - self._began
            self._chaos.stop()
            for lane in self._lanes:
                lane.stop()
        self._join()
        faulthandler.cancel_dump_traceback_later()
        return [*self._failures(), *self._account(), *self._memory.problems(), *self._left_behind()]

    # ---- while it runs -------------------------------------------------------------------------------

    def _watch(self) -> None:
        progress_s = max(self._options.seconds / 30, 2.0)
        progress_at = self._began + progress_s
        sample_at = self._began
        while not self._is_over():
            time.sleep(0.1)
            now = time.monotonic()
            self._look_for_hangs(now)
            if now >= sample_at:
                self._memory.sample(min(lane.rounds for lane in self._lanes))
                sample_at = now + min(self._round_s / 40, 1.0)
            if now >= progress_at:
                self._show_progress(now)
                progress_at += progress_s

    def _is_over(self) -> bool:
        if self._failures():
            return True
        enough = time.monotonic() - self._began >= self._options.seconds
        return enough and self._chaos.kills >= self._options.kills

    def _look_for_hangs(self, now: float) -> None:
        """Ends the process where a lane does not come back. The second watchdog needs no interpreter lock."""
        faulthandler.dump_traceback_later(2 * HANG_S, exit=True)
        for lane in self._lanes:
            if lane.is_alive() and now - lane.alive_at > HANG_S:
                self._show_hang(lane, now - lane.alive_at)
                os._exit(1)

    def _show_hang(self, hanging: Lane, seconds: float) -> None:
        lines = [f"HANG: the {hanging.name} lane is in {hanging.doing!r} for {seconds:.0f} s"]
        for lane in self._lanes:
            flying = lane.ledger.show_in_flight() if lane.ledger else ""
            lines.append(f"{lane.name}: {lane.shape}; in {lane.doing!r}; in flight: {flying}")
        lines += map(describe, descendants())
        self._console.print("\n".join(lines), markup=False)
        sys.stdout.flush()
        faulthandler.dump_traceback(all_threads=True)

    def _join(self) -> None:
        """Of lanes that hang now, the watchdog knows."""
        for thread in (self._chaos, *self._lanes):
            while thread.is_alive():
                thread.join(0.2)
                self._look_for_hangs(time.monotonic())

    def _show_progress(self, now: float) -> None:
        counts = self._counts()
        self._console.print(
            f"{now - self._began:5.0f} s  {self._chaos.kills:4d} kills  {self._restarts():4d} restarts  "
            f"{counts.actions:,} actions  {counts.results:,} results  {counts.abnormal:,} abnormal  "
            f"{counts.raised} errors  {self._memory.now:.0f} MB"
        )

    # ---- when it is over -----------------------------------------------------------------------------

    def _counts(self) -> Counts:
        return sum((lane.counts for lane in self._lanes), Counts())

    def _restarts(self) -> int:
        return sum(lane.restarts for lane in self._lanes)

    def _failures(self) -> list[str]:
        found = [f"the {lane.name} lane, {lane.shape}:\n{lane.failure}" for lane in self._lanes if lane.failure]
        return [*found, *([f"chaos: {self._chaos.failure!r}"] if self._chaos.failure else [])]

    def _account(self) -> list[str]:
        counts = self._counts()
        if counts.actions == counts.results + counts.dropped:
            return []
        return [f"{counts.actions} actions, but {counts.results} results and {counts.dropped} made void by the caller"]

    def _left_behind(self) -> list[str]:
        gc.collect()
        end_servers()
        after = Holdings.now()
        # A thread of ours may still be on its way out.
        if eventually(lambda: Holdings.now() == self._before, 5.0):
            return []
        return [
            f"{name}: {getattr(self._before, name)} before, {getattr(after, name)} after"
            for name in ("descriptors", "threads", "children")
            if getattr(self._before, name) != getattr(after, name)
        ]

    def report(self) -> None:
        """What was done, and what came of it."""
        counts = self._counts()
        measures = self._memory.measures
        orders = sum((lane.orders for lane in self._lanes), Counter())
        told = Counter({text: orders[order] for order, text in ORDERS.items()})
        events = sum((lane.events for lane in self._lanes), told)
        self._table("Done to the processes", sorted(self._chaos.events.items()))
        self._table("Done by the envs and the caller", sorted(events.items()))
        self._table(
            "What came of it",
            [
                ("seconds", f"{self._elapsed:.0f}"),
                ("pools", sum(lane.pools for lane in self._lanes)),
                ("SIGKILLs", self._chaos.kills),
                ("worker processes restarted", self._restarts()),
                ("actions", counts.actions),
                ("results", counts.results),
                ("made void by reset() of all envs, or by close()", counts.dropped),
                ("of the results: resets", counts.resets),
                ("of the results: abnormal, each with a known cause", counts.abnormal),
                ("errors raised, each with its whole batch", counts.raised),
                *(
                    (
                        f"MB of {one.name} by rounds, growth at most {one.most:g}",
                        f"{rounded(one.means)}: {one.growth:+.1f}",
                    )
                    for one in measures
                ),
                ("MB of the arenas of the last pools", rounded([lane.arena / 1e6 for lane in self._lanes])),
            ],
        )

    def _table(self, title: str, rows: list[tuple[str, object]]) -> None:
        table = Table(title=title, title_justify="left", box=box.SIMPLE, show_header=False, pad_edge=False)
        table.add_column(no_wrap=True)
        table.add_column(justify="right")
        for name, value in rows:
            table.add_row(name, f"{value:,}" if isinstance(value, int) else str(value))
        self._console.print(table)


def rounded(values: Sequence[float]) -> str:
    return "  ".join(f"{value:.1f}" for value in values)


if __name__ == "__main__":
    sys.exit(main())
