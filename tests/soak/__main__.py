"""``python -m soak``: process pools under full load, with kills, stops, exceptions and stalls at random instants.

Every action is accounted for; exit code 0 means that nothing was lost, nothing hung, memory stayed flat, and no
process, thread or descriptor is left.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import gc
import os
import random
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

from soak.chaos import Chaos
from soak.lane import Lane
from soak.ledger import Counts
from soak.memory import PARENT_MB, WORKERS_MB, Memory, growth
from soak.processes import children, descendants, describe, descriptors, threads
from soak.shapes import shapes

# A lane that did not come back from one call for so long hangs. The longest that is allowed: a template was stopped,
# which the pool bears for 10 s, kills it in 5 s more, and starts another, all on a machine under load.
HANG_S = 60.0
_ROUND_S = 60.0  # of the pools of all shapes, in a run of minutes
_LEAST_ROUNDS = 3


@dataclass(frozen=True)
class Holdings:
    """What this process has, that must be the same at the end."""

    descriptors: list[str]
    threads: int
    children: int

    @classmethod
    def now(cls) -> Holdings:
        return cls(descriptors(), threads(), len(children(os.getpid())))


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m soak", description=__doc__)
    parser.add_argument("--seconds", type=float, default=300.0, help="at least so long (default: %(default)g)")
    parser.add_argument("--kills", type=int, default=500, help="at least so many SIGKILLs (default: %(default)d)")
    parser.add_argument("--seed", type=int, help="of all choices (default: a new one; instants differ in any case)")
    parser.add_argument("--envs", type=int, help="in every pool (default: 6 to 32)")
    parser.add_argument("--workers", type=int, help="in every pool (default: 2 to 4)")
    parser.add_argument("--batch", type=int, help="of the async pools (default: 1 to 16)")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    options = parse(arguments)
    seed = random.SystemRandom().getrandbits(32) if options.seed is None else options.seed
    console = Console(highlight=False, soft_wrap=True)
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
        rounds = max(round(options.seconds / _ROUND_S), _LEAST_ROUNDS)
        self._round_s = options.seconds / rounds
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
                self._memory.sample(int((now - self._began) / self._round_s))
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
        lines += map(describe, descendants(os.getpid()))
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
        parent = self._memory.parent
        self._console.print(
            f"{now - self._began:5.0f} s  {self._chaos.kills:4d} kills  {self._restarts():4d} restarts  "
            f"{counts.actions:,} actions  {counts.results:,} results  {counts.abnormal:,} abnormal  "
            f"{counts.raised} errors" + (f"  {parent[-1]:.0f} MB" if parent else "")
        )

    # ---- when it is over -----------------------------------------------------------------------------

    def _counts(self) -> Counts:
        total = Counts()
        for lane in self._lanes:
            total.add(lane.counts)
        return total

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
        after = Holdings.now()
        # The server ends with the last pool, and is waited for; a thread of ours may still be on its way out.
        with contextlib.suppress(TimeoutError):
            wait_until(lambda: Holdings.now() == self._before, 5.0)
            return []
        return [
            f"{name}: {getattr(self._before, name)} before, {getattr(after, name)} after"
            for name in ("descriptors", "threads", "children")
            if getattr(self._before, name) != getattr(after, name)
        ]

    def report(self) -> None:
        counts = self._counts()
        events = self._chaos.events + sum((lane.events for lane in self._lanes), Counter())
        parent, workers = self._memory.parent, self._memory.workers
        bad = {name: count for name, count in counts.orders.items() if name not in ("STEP", "END", "BULK", "LINGER")}
        arenas = ", ".join(f"{lane.arena / 1e6:.1f} MB" for lane in self._lanes)
        self._table("What was done to them", [*sorted(events.items()), *sorted(orders_in_words(bad).items())])
        self._table(
            "What came of it",
            [
                ("seconds", f"{self._elapsed:.0f}"),
                ("pools made", sum(lane.pools for lane in self._lanes)),
                ("SIGKILLs sent", self._chaos.kills),
                ("worker processes restarted", self._restarts()),
                ("actions", counts.actions),
                ("results", counts.results),
                ("made void by reset() of all, or close()", counts.dropped),
                ("rows that are resets", counts.resets),
                ("abnormal rows, each with a cause", counts.abnormal),
                ("errors raised, each with its batch", counts.raised),
                ("memory of this process, MB a round", rounds(parent)),
                (f"growth, at most {PARENT_MB:g} MB", f"{growth(parent):+.1f} MB"),
                ("memory of the processes, MB a round", rounds(workers)),
                (f"growth, at most {WORKERS_MB:g} MB", f"{growth(workers):+.1f} MB"),
                ("arenas of the last pools", arenas),
            ],
        )

    def _table(self, title: str, rows: list[tuple[str, object]]) -> None:
        table = Table(title=title, box=box.SIMPLE_HEAD, show_header=False, pad_edge=False, title_justify="left")
        table.add_column(no_wrap=True)
        table.add_column(justify="right")
        for name, value in rows:
            table.add_row(name, f"{value:,}" if isinstance(value, int) else str(value))
        self._console.print(table)


def orders_in_words(orders: dict[str, int]) -> dict[str, int]:
    """The events that the envs made themselves."""
    return {f"env told to {name.lower().replace('_', ' ')}": count for name, count in orders.items()}


def rounds(means: list[float]) -> str:
    return ", ".join(f"{mean:.1f}" for mean in means)


def wait_until(condition: object, seconds: float) -> None:
    end = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        if time.monotonic() > end:
            raise TimeoutError
        time.sleep(0.02)


if __name__ == "__main__":
    sys.exit(main())
