"""What the suites over all backends share: the backends, envs that show much, and an equality that forgives nothing.

The inline backend is the oracle: whatever it shows, every other backend shows too, bit for bit. Workers import
this module for its envs, so it is quick to import.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector.utils import batch_space, concatenate, create_empty_array, iterate

import stepmill
from stepmill.errors import EnvError
from support import ray_cluster
from support.envs.waiting import waiting_task
from support.probes import seen


@dataclass(frozen=True)
class Backend:
    """Where envs run, and on how many workers; ``waits``: as twins whose methods are coroutines."""

    name: str
    workers: int | None = None
    waits: bool = False

    def __str__(self) -> str:
        return "-".join([self.name, *([] if self.workers is None else [str(self.workers)]), *["waits"] * self.waits])

    def make(self, task: Any, view: str = "gymnasium", **arguments: Any) -> Any:
        task = waiting_task(task) if self.waits else task
        if self.name == "ray":
            ray_cluster.cluster()
            ray = stepmill.Ray(num_actors=self.workers, resources={"CPU": 1})
            return stepmill.make(task, view, backend=ray, **arguments)
        if self.workers is not None:
            arguments["num_workers"] = self.workers
        return stepmill.make(task, view, backend=self.name, **arguments)


INLINE, THREAD = Backend("inline"), Backend("thread")
TWO = Backend("process", 2)
RAY = (Backend("ray", 2),) if ray_cluster.WANTED else ()
WAITING = Backend("process", 2, waits=True)
PROCESSES = (Backend("process", 1), TWO, Backend("process", 7), WAITING, *RAY)


# ---- equal ---------------------------------------------------------------------------------------


def attempt(call: Callable[[], Any]) -> Any:
    """What a call gives, or, where an env failed, everything that its error says."""
    try:
        return call()
    except EnvError as error:
        told = [(type(one), str(one), one.env_id, one.phase, one.episode, one.step) for one in error.errors]
        return {"errors": told, "causes": [type(one.__cause__) for one in error.errors], "batch": error.batch}


# ---- played --------------------------------------------------------------------------------------


def view_of(pool: Any) -> str:
    return {"GymnasiumPool": "gymnasium", "GymPool": "gym", "DmPool": "dm"}[type(pool).__name__]


class _Samples:
    """Samples of a space, drawn once: drawing them costs more than most steps."""

    def __init__(self, space: spaces.Space[Any], seed: int) -> None:
        self._space = copy.deepcopy(space)
        self._space.seed(seed)
        self._drawn: list[Any] = []

    def __getitem__(self, index: int) -> Any:
        while len(self._drawn) <= index:
            self._drawn.append(self._space.sample())
        return self._drawn[index]


_samples: dict[tuple[str, int], _Samples] = {}


class Actor:
    """Random actions, the same for the same seed, for any number of envs at a time."""

    def __init__(self, pool: Any, seed: int = 0) -> None:
        self._space = pool.spec.action_space
        key = (repr(self._space), seed)
        self._samples = _samples.setdefault(key, _Samples(self._space, seed))
        self._used = 0

    def one(self) -> Any:
        self._used += 1
        return self._samples[self._used - 1]

    def __call__(self, count: int) -> Any:
        return stack(self._space, [self.one() for _ in range(count)])


def stack(space: spaces.Space[Any], values: list[Any]) -> Any:
    """Values of single envs as one of a batch."""
    return concatenate(space, values, create_empty_array(space, len(values)))


def play(pool: Any, steps: int, seed: int = 0) -> list[Any]:
    """The results of a reset and of ``steps`` random actions; where autoreset is off, of the resets between."""
    act = Actor(pool, seed)
    results = [pool.reset()]
    for _ in range(steps):
        results.append(pool.step(act(pool.num_envs)))
        if pool.config["autoreset"] == "disabled":
            ended = np.flatnonzero(seen(view_of(pool), results[-1]).done)
            if len(ended):
                results.append(pool.reset(ended[::-1]))
    return results


def play_async(pool: Any, count: int, seed: int = 0) -> list[list[Any]]:
    """The first ``count`` results of every env. What an env does depends on nothing but its own results so far."""
    view, space = view_of(pool), pool.spec.action_space
    batched = functools.cache(functools.partial(batch_space, pool.spec.observation_space))
    actors = [Actor(pool, seed + env_id) for env_id in range(pool.num_envs)]
    rows: list[list[Any]] = [[] for _ in range(pool.num_envs)]
    pool.async_reset()
    in_flight = pool.num_envs
    while in_flight:
        ids = add_rows(rows, view, batched, pool.recv())
        going = [one for one in ids if len(rows[one]) < count]
        ended = [one for one in going if pool.config["autoreset"] == "disabled" and rows[one][-1]["done"]]
        if ended:
            pool.reset(ended)  # what it shows is seen by the sync suites
        in_flight += len(going) - len(ids)
        if going:
            pool.send(stack(space, [actors[one].one() for one in going]), going)
    return rows


def add_rows(rows: list[list[Any]], view: str, batched: Callable[[int], spaces.Space[Any]], batch: Any) -> list[int]:
    """Adds each row of a batch to those of its env, and returns whose rows they were."""
    result = seen(view, batch)
    observations = list(iterate(batched(len(result.ids)), result.obs))
    for i, env_id in enumerate(result.ids):
        row = {"obs": observations[i], "reward": result.reward[i], "done": result.done[i]}
        if view == "gymnasium":
            row |= {"terminated": batch[2][i], "truncated": batch[3][i]}
        elif view == "dm":
            row |= {"step_type": batch.step_type[i], "discount": batch.discount[i]}
        rows[env_id].append({**row, "info": info_row(result.info, i)})
    return result.ids


def info_row(info: dict[str, Any], row: int) -> dict[str, Any]:
    """What the info of a batch says of one row."""
    out = {}
    for key, column in info.items():
        is_mask = key.startswith("_") and key[1:] in info
        if not is_mask and info.get(f"_{key}", np.ones(row + 1, np.bool_))[row]:
            out[key] = info_row(column, row) if isinstance(column, dict) else column[row]
    return out


# ---- envs ----------------------------------------------------------------------------------------


# ---- things --------------------------------------------------------------------------------------


# The keys of an info that only pools have.
ENGINE_KEYS = {"env_id", "players", "elapsed_step", "episode_return", "episode_length"}


def own(info: dict[str, Any]) -> dict[str, Any]:
    """An info without the keys that only pools have."""
    return {key: value for key, value in info.items() if key.removeprefix("_") not in ENGINE_KEYS}
