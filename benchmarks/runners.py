"""What steps the envs of a contestant, call after call. Imports no library that is measured."""

from __future__ import annotations

import itertools
import time
from typing import Any

import numpy as np


class Contestant:
    """Envs that are stepped all at once, in sync mode."""

    def __init__(self, envs: Any, actions: list[Any], num_threads: int | None = None) -> None:
        self.envs = envs
        self.num_threads = num_threads
        self.rows_per_call = len(actions[0])
        self._actions = itertools.cycle(actions)
        envs.reset()

    def run(self, calls: int) -> None:
        step = self.envs.step
        for action in itertools.islice(self._actions, calls):
            result = step(action)  # kept until the next one comes, as a user would
        del result

    def latencies(self, calls: int) -> np.ndarray:
        """Nanoseconds of each of ``calls`` steps."""
        step, clock = self.envs.step, time.perf_counter_ns
        times = []
        for action in itertools.islice(self._actions, calls):
            start = clock()
            result = step(action)
            times.append(clock() - start)
        del result
        return np.array(times)

    def close(self) -> None:
        self.envs.close()


class AsyncContestant(Contestant):
    """Envs of which a batch is received and answered while the others run."""

    def __init__(self, envs: Any, actions: list[Any], num_threads: int | None = None) -> None:
        self.envs = envs
        self.num_threads = num_threads
        self.rows_per_call = len(actions[0])
        self._actions = itertools.cycle(actions)
        envs.async_reset()
        self._ids = envs.recv()[-1]["env_id"]

    def run(self, calls: int) -> None:
        send, recv, ids = self.envs.send, self.envs.recv, self._ids
        for action in itertools.islice(self._actions, calls):
            send(action, ids)
            result = recv()
            ids = result[-1]["env_id"]
        self._ids = ids


class ManagedContestant:
    """An env manager, ours or DI-engine's, in the loop of a collector without a policy."""

    def __init__(self, manager: Any, actions: list[Any]) -> None:
        self.manager = manager
        self.rows_per_call = len(actions[0])
        self._actions = itertools.cycle(actions)
        self._owed = 0

    def run(self, calls: int) -> None:
        """A call is done when that many envs have been stepped: which and how many come back at once differs."""
        manager = self.manager
        self._owed += calls * self.rows_per_call
        while self._owed > 0:
            actions = next(self._actions)
            ready = manager.ready_obs
            # By env id in DI-engine's managers, by position in their v2.
            by_id = isinstance(ready, dict)
            result = manager.step({one: actions[one] for one in ready} if by_id else actions[: len(ready)])
            self._owed -= len(result)

    def close(self) -> None:
        self.manager.close()
