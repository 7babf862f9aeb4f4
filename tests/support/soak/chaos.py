"""One thread that kills and stops processes of the pools at random instants, and notes whom before it does."""

from __future__ import annotations

import heapq
import itertools
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from support.soak.lane import Lane
from support.soak.processes import children, open_child, send

# How often each kind comes, per kill of a worker.
_KINDS = {
    "worker killed": 100,
    "worker stopped, then continued": 20,
    "worker stopped for good": 8,
    "worker stopped, then killed": 6,
    "all workers of a pool killed": 4,
    "template killed": 5,
    "template stopped, then continued": 3,
    "server killed": 2,
}
_KILLS = ("worker killed", "worker stopped, then killed", "template killed", "server killed")


@dataclass(frozen=True)
class _Family:
    """The processes of one pool: the server forked its template, which forked the workers."""

    server: int
    template: int
    workers: Sequence[int]
    lane: Lane


class Chaos(threading.Thread):
    """``kill_rate`` is how many SIGKILLs a second it sends."""

    def __init__(self, lanes: Sequence[Lane], kill_rate: float, rng: random.Random) -> None:
        super().__init__(name="chaos", daemon=True)
        self._lanes = lanes
        per_event = sum(_KINDS[kind] for kind in _KILLS) + 3 * _KINDS["all workers of a pool killed"]
        self._rate = kill_rate * sum(_KINDS.values()) / per_event
        self._rng = rng
        self._ending = threading.Event()
        self._templates: dict[int, Lane] = {}  # whose it is
        self._later: list[tuple[float, int, int, int]] = []  # (when, tie, pidfd, signal)
        self._ties = itertools.count()
        self.events: Counter[str] = Counter()
        self.kills = 0
        self.failure: BaseException | None = None

    def stop(self) -> None:
        self._ending.set()

    def run(self) -> None:
        try:
            due = time.monotonic() + self._rng.expovariate(self._rate)
            while not self._ending.is_set():
                when = min(due, self._later[0][0]) if self._later else due
                self._ending.wait(max(when - time.monotonic(), 0.0))
                now = time.monotonic()
                while self._later and self._later[0][0] <= now:
                    self._follow_up()
                if due <= now:
                    self._strike()
                    due = now + self._rng.expovariate(self._rate)
            while self._later:
                self._follow_up()
        except BaseException as error:
            self.failure = error

    # ---- whom ----------------------------------------------------------------------------------------

    def _families(self) -> list[_Family]:
        """Of pools that are up. Which pool a template belongs to is known once a worker of it has shown a row."""
        found = []
        for server in children(os.getpid()):
            for template in children(server):
                workers = children(template)
                lane = self._owner(template, workers)
                if lane is not None and workers:
                    found.append(_Family(server, template, workers, lane))
        return found

    def _owner(self, template: int, workers: Sequence[int]) -> Lane | None:
        for lane in self._lanes:
            if lane.ledger is not None and lane.ledger.pids.intersection(workers):
                self._templates[template] = lane
        lane = self._templates.get(template)
        return lane if lane is not None and lane.ledger is not None else None

    # ---- what ----------------------------------------------------------------------------------------

    def _strike(self) -> None:
        families = self._families()
        if not families:
            return
        family = self._rng.choice(families)
        kind = self._rng.choices(list(_KINDS), list(_KINDS.values()))[0]
        if kind == "worker stopped for good" and family.lane.shape.step_timeout is None:
            kind = "worker stopped, then continued"  # nothing else would ever end it
        if kind == "server killed":
            self._harm_all(families)
            self._signal(kind, family.server, os.getpid(), signal.SIGKILL)
        elif kind.startswith("template"):
            self._harm(family, family.workers, wide=True)
            stops = kind.startswith("template stopped")
            self._signal(kind, family.template, family.server, signal.SIGSTOP if stops else signal.SIGKILL)
        else:
            whom = family.workers if kind.startswith("all") else [self._rng.choice(family.workers)]
            self._harm(family, whom)
            for worker in whom:
                number = signal.SIGSTOP if "stopped" in kind else signal.SIGKILL
                self._signal(kind, worker, family.template, number)

    def _harm(self, family: _Family, pids: Sequence[int], *, wide: bool = False) -> None:
        if family.lane.harm is not None:
            family.lane.harm.note(pids, wide=wide)

    def _harm_all(self, families: Sequence[_Family]) -> None:
        """All pools have one server. A pool that is being made right now feels it, too."""
        for lane in self._lanes:
            if lane.harm is not None:
                pids = [pid for family in families if family.lane is lane for pid in family.workers]
                lane.harm.note(pids, wide=True)

    def _signal(self, kind: str, pid: int, parent: int, number: int) -> None:
        pidfd = open_child(pid, parent)
        if pidfd is None:
            return
        if not send(pidfd, number):
            os.close(pidfd)
            return
        self.events[kind] += 1
        self.kills += number == signal.SIGKILL
        if kind.endswith("continued"):
            self._send_later(pidfd, signal.SIGCONT)
        elif kind.endswith("then killed"):
            self._send_later(pidfd, signal.SIGKILL)
        else:
            os.close(pidfd)

    def _send_later(self, pidfd: int, number: int) -> None:
        when = time.monotonic() + self._rng.random() * 0.4
        heapq.heappush(self._later, (when, next(self._ties), pidfd, number))

    def _follow_up(self) -> None:
        _, _, pidfd, number = heapq.heappop(self._later)
        if send(pidfd, number):
            self.kills += number == signal.SIGKILL
        os.close(pidfd)
