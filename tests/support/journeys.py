"""Envs that can be followed from pool to pool: each plays a list of actions of its own, wherever it is.

What it shows is kept as checksums, so that long runs can be compared, and other processes can tell what they have seen.
"""

from __future__ import annotations

import functools
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector.utils import batch_space, iterate

import stepmill
from stepmill.values.trees import leaves
from support.backends import Actor, stack, view_of
from support.envs.scripted import ChanceEnv
from support.probes import MODES, reset_obs, seen


@dataclass(frozen=True)
class Traveller:
    """Where one env is: its list of actions, how many of them it was given, and whether its episode is over."""

    lane: int
    time: int = 0
    done: bool = False


class Journey:
    """The envs of a pool, one traveller in each."""

    def __init__(self, pool: Any, travellers: Sequence[Traveller]) -> None:
        self.pool, self.travellers = pool, list(travellers)
        self._view = view_of(pool)
        self._samples = {one.lane: Actor(pool, one.lane)._samples for one in travellers}
        self._resets = pool.config["autoreset"] == "disabled"
        self._every = list(range(len(travellers)))
        self._batched = functools.cache(functools.partial(batch_space, pool.spec.observation_space))

    def go(self, steps: int) -> list[int]:
        """A checksum of all that each of them shows. With autoreset off, resets take the place of steps."""
        diary = _Diary(len(self.travellers))
        for time in range(steps):
            resets = [i for i in self._every if self._resets and self.travellers[i].done]
            going = [i for i in self._every if i not in resets] if resets else self._every
            if resets:
                shown = self._by_env(len(resets), reset_obs(self._view, self.pool.reset(resets)))
                diary.add(time, resets, {"obs": shown})
                for i in resets:
                    self._move(i, False)
            if going:
                given = [self._samples[self.travellers[i].lane][self.travellers[i].time] for i in going]
                result = self.pool.step(stack(self.pool.spec.action_space, given), going)
                alike = seen(self._view, result)
                shown = self._by_env(len(going), alike.obs)
                ends = result[2] if self._view == "gymnasium" else alike.done
                diary.add(time, going, {"obs": shown, "reward": alike.reward, "end": ends, "info": alike.info})
                for i, done in zip(going, alike.done.tolist(), strict=True):
                    self._move(i, done)
        return diary.checksums()

    def go_until_some_end(self) -> None:
        """Until the episodes of some are over, and those of others are not."""
        for _ in range(2000):
            self.go(1)
            if 0 < sum(one.done for one in self.travellers) < len(self.travellers):
                return
        raise AssertionError("their episodes do not end")

    def _by_env(self, count: int, observations: Any) -> Any:
        """Arrays as they are; of anything else, a list with a value for each env."""
        if all(map(_is_plain, leaves(observations))):
            return observations
        return list(iterate(self._batched(count), observations))

    def _move(self, env_id: int, done: bool) -> None:
        before = self.travellers[env_id]
        self.travellers[env_id] = Traveller(before.lane, before.time + 1, done)


_ARRAYS = (np.ndarray, np.generic)


class _Diary:
    """What envs have shown. It holds the arrays as they are: a pool never writes into what it has handed out."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._columns: dict[str, list[tuple[int, list[int], Any, Any]]] = {}

    def add(self, time: int, env_ids: list[int], value: Any, name: str = "", mask: Any = None) -> None:
        if isinstance(value, tuple):
            value = {str(i): part for i, part in enumerate(value)}
        if not isinstance(value, dict):
            self._columns.setdefault(name, []).append((time, env_ids, value, mask))
            return
        for key, part in value.items():
            if key != "env_id" and not (key.startswith("_") and key[1:] in value):
                self.add(time, env_ids, part, f"{name}.{key}", value.get(f"_{key}", mask))

    def checksums(self) -> list[int]:
        found = [0] * self._count
        for name in sorted(self._columns):
            entries = self._columns[name]
            found = [zlib.crc32(name.encode(), one) for one in found]
            if all(len(ids) == self._count and mask is None and _is_plain(part) for _, ids, part, mask in entries):
                together = np.stack([part for _, _, part, _ in entries], axis=1)  # by env
                found = [zlib.crc32(together[i].tobytes(), one) for i, one in enumerate(found)]
                continue
            for time, env_ids, part, mask in entries:
                for row, env_id in enumerate(env_ids):
                    if mask is None or mask[row]:
                        found[env_id] = zlib.crc32(b"%d" % time + _bytes_of(part, row), found[env_id])
        return found


def _is_plain(part: Any) -> bool:
    return isinstance(part, np.ndarray) and part.dtype != object


def _bytes_of(part: Any, row: int) -> bytes:
    """A row of an array, or one of several values."""
    return b"".join(one.tobytes() if isinstance(one, _ARRAYS) else repr(one).encode() for one in leaves(part[row]))


# ---- long journeys -------------------------------------------------------------------------------


def travel_far(make: Callable[..., Any], steps: int, by: str | None = None, *, mixed: bool = True) -> None:
    """Envs that are saved at random moments, play something else, and go on in whichever env gets their state.

    What they show is what envs show that play on undisturbed. ``make`` makes pools of two envs; ``mixed``: a state may
    go to another env than the one that was saved.
    """
    rng = np.random.default_rng(3)
    with make(seed=7) as undisturbed, make(seed=7) as pool, make(seed=99) as other:
        for one in (undisturbed, pool, other):
            one.reset()
        expected, journey = (Journey(one, [Traveller(0), Traveller(1)]) for one in (undisturbed, pool))
        for moment in range(steps):
            count = int(rng.integers(1, 60))
            alone, together = expected.go(count), journey.go(count)
            assert together == [alone[one.lane] for one in journey.travellers], f"after save {moment}"
            if journey.travellers[0].time * 2 >= steps:
                break
            states, saved = journey.pool.save(by=by), journey.travellers
            if rng.random() < 0.7:  # something else: other actions
                Journey(journey.pool, [Traveller(2 + one.lane, one.time, one.done) for one in saved]).go(
                    int(rng.integers(1, 20))
                )
            to = (pool, other)[rng.integers(2)]
            order = rng.permutation(2).tolist() if mixed else [0, 1]
            to.restore([states[i] for i in order])
            journey = Journey(to, [saved[i] for i in order])


# ---- the ways to save envs -----------------------------------------------------------------------


def chance_env() -> Any:
    """Its episodes end by chance."""
    return ChanceEnv(spaces.Box(-1, 1, (3,), np.float32), in_place=True)


@dataclass(frozen=True)
class Way:
    """A kind of states, and envs that have it; ``packages`` are needed for it."""

    tasks: Mapping[str, tuple[Any, Mapping[str, Any]]]
    backends: tuple[str, ...]
    by: str | None = None
    packages: tuple[str, ...] = ()

    def make(self, task: str, backend: str, **settings: Any) -> Any:
        made, config = self.tasks[task]
        workers = {"num_workers": 2} if backend == "process" else {}
        return stepmill.make(made, num_envs=3, backend=backend, **workers, **config, **settings)


WAYS = {
    "memory": Way(
        {"cartpole": ("CartPole-v1", {}), "lake": ("FrozenLake-v1", {"map_name": ""})}, ("thread", "inline", "process")
    ),
    "simulator": Way({"hopper": ("Hopper-v5", {})}, ("thread", "inline", "process"), packages=("mujoco",)),
    "methods": Way({"chance": (chance_env, {})}, ("inline", "process")),
    "pickle": Way({"chance": (chance_env, {})}, ("inline", "process"), by="pickle"),
}


def travel_on(way: str, parcels: Sequence[tuple[Any, ...]], steps: int) -> list[list[int]]:
    """What envs show that are given saved states here: for another process."""
    out = []
    for task, backend, mode, states, travellers in parcels:
        with WAYS[way].make(task, backend, autoreset=mode, seed=5) as pool:
            pool.restore(states)
            out.append(Journey(pool, travellers).go(steps))
    return out


def every_case(way: Way) -> list[tuple[str, str, str]]:
    """The tasks, backends and modes of a way."""
    return [(task, backend, mode) for task in way.tasks for backend in way.backends for mode in MODES]


def some_cases(name: str) -> list[tuple[str, str, str]]:
    """So few that each backend of the way, and each mode, is there, and each of both together in one of the ways."""
    every = [(way, task) for way in WAYS for task in WAYS[way].tasks]
    backends = WAYS[name].backends
    return [
        (task, backends[i % len(backends)], MODES[(shift + i) % 3])
        for shift, (way, task) in enumerate(every)
        if way == name
        for i in range(3)
    ]
