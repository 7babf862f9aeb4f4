"""Pools of native envs that play what Gymnasium played (``reference.py``), and must show the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import stepmill
from support.reference import Case, Recording, assert_same

Recorder = Callable[[Case], Recording]

WAYS = {
    "inline": {"backend": "inline"},
    "one thread": {"backend": "thread", "num_threads": 1},
    "three threads": {"backend": "thread", "num_threads": 3},
    "async": {"backend": "thread", "num_threads": 3, "batch": 0.25},
    "async inline": {"backend": "inline", "batch": 0.5},
}
PROCESSES = {
    "processes": {"backend": "process", "num_workers": 2},
    "async processes": {"backend": "process", "num_workers": 2, "batch": 0.5},
}
MODES = ("next_step", "same_step", "disabled")


def make_pool(case: Case, autoreset: str, way: str) -> Any:
    arguments = dict({**WAYS, **PROCESSES}[way])
    share = arguments.pop("batch", None)
    pool = stepmill.make(
        case.id,
        num_envs=case.num_envs,
        seed=case.seed,
        autoreset=autoreset,
        batch_size=None if share is None else max(1, int(case.num_envs * share)),
        max_episode_steps=case.max_episode_steps,
        **arguments,
        **case.config,
    )
    assert pool.is_native
    assert pool.backend == arguments["backend"]
    assert pool.is_async == (share is not None)
    return pool


class Replay:
    """Plays the tapes of a recording against a pool and compares every row of every batch."""

    def __init__(self, pool: Any, tapes: Recording, autoreset: str) -> None:
        self.pool = pool
        self.tapes = tapes
        self.autoreset = autoreset
        self.next_event = np.zeros(tapes.num_envs, np.int64)
        self.steps = 0

    def run(self) -> None:
        """Until every env has reached the end of its tape."""
        self.pool.async_reset()
        ready = self.receive(self.pool.recv())
        while True:
            if self.autoreset == "disabled":
                self.reset_ended(ready)
            ready = self.still_playing(ready)
            if self.pool.is_async:
                if len(ready):
                    self.pool.send(self.actions(ready), ready)
                if not self.pool.stats()["in_flight"]:
                    return
                ready = self.receive(self.pool.recv())
            else:
                if not len(ready):
                    return
                whole = len(ready) == self.tapes.num_envs
                ready = self.receive(self.pool.step(self.actions(ready), None if whole else ready))

    def actions(self, ids: np.ndarray) -> np.ndarray:
        return self.tapes.actions[ids, self.next_event[ids]]

    def still_playing(self, ids: np.ndarray) -> np.ndarray:
        events = self.next_event[ids]
        left = events < self.tapes.events
        if self.autoreset == "same_step":  # an end needs the reset behind it on the tape as well
            last = np.minimum(events, self.tapes.events - 1)
            left &= ~(self.tapes.ended[ids, last] & (events == self.tapes.events - 1))
        return ids[left]

    def receive(self, batch: Any) -> np.ndarray:
        observation, reward, terminated, truncated, info = batch
        ids = info["env_id"]
        events = self.next_event[ids]
        tapes = self.tapes
        tapes.check_outcome(ids, events, reward, terminated, truncated)
        tapes.check_statistics(ids, events, info)
        self.steps += int(np.count_nonzero(~tapes.is_reset[ids, events]))
        if self.autoreset == "same_step":
            ended = tapes.ended[ids, events]
            self.check_finals(ids[ended], events[ended], ended, info)
            events = events + ended  # the reset after it ran in the same call
        tapes.check_shown(ids, events, observation, info)
        assert_same(info["elapsed_step"], tapes.elapsed[ids, events], "elapsed_step", ids, events)
        self.next_event[ids] = events + 1
        return ids

    def check_finals(self, ids: np.ndarray, events: np.ndarray, ended: np.ndarray, info: dict[str, Any]) -> None:
        if not ended.any():
            assert "final_obs" not in info
            return
        assert np.array_equal(info["_final_obs"], ended)
        assert np.array_equal(info["_final_info"], ended)
        final_info = {key: value[ended] for key, value in info["final_info"].items()}
        self.tapes.check_shown(ids, events, stack(info["final_obs"][ended]), final_info)

    def reset_ended(self, ids: np.ndarray) -> None:
        ended = ids[self.tapes.ended[ids, self.next_event[ids] - 1]]
        ended = self.still_playing(ended)
        if not len(ended):
            return
        ended = ended[::-1]  # rows come in the order asked
        observation, info = self.pool.reset(ended)
        assert np.array_equal(info["env_id"], ended)
        self.tapes.check_shown(ended, self.next_event[ended], observation, info)
        self.next_event[ended] += 1


def stack(observations: np.ndarray) -> Any:
    """A batch of single observations."""
    if isinstance(observations[0], tuple):
        return tuple(np.stack(leaf) for leaf in zip(*observations, strict=True))
    return np.stack(list(observations))
