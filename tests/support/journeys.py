"""Envs that can be followed from pool to pool: each plays a list of actions of its own, wherever it is.

What it shows is kept as checksums, so that long runs can be compared, and other processes can tell what they have seen.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces

import stepmill
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

    def go(self, steps: int) -> list[int]:
        """A checksum of all that each of them shows. With autoreset off, resets take the place of steps."""
        diary = _Diary(len(self.travellers))
        for time in range(steps):
            resets = [i for i in self._every if self._resets and self.travellers[i].done]
            going = [i for i in self._every if i not in resets] if resets else self._every
            if resets:
                diary.add(time, resets, reset_obs(self._view, self.pool.reset(resets)), "obs")
                for i in resets:
                    self._move(i, False)
            if going:
                given = [self._samples[self.travellers[i].lane][self.travellers[i].time] for i in going]
                result = self.pool.step(stack(self.pool.spec.action_space, given), going)
                alike = seen(self._view, result)
                ends = result[2] if self._view == "gymnasium" else alike.done
                diary.add(time, going, {"obs": alike.obs, "reward": alike.reward, "end": ends, "info": alike.info})
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

    def _move(self, env_id: int, done: bool) -> None:
        before = self.travellers[env_id]
        self.travellers[env_id] = Traveller(before.lane, before.time + 1, done)


class _Diary:
    """What envs have shown. It holds the arrays as they are: a pool never writes into what it has handed out."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._columns: dict[str, list[tuple[int, list[int], Any, Any]]] = {}

    def add(self, time: int, env_ids: list[int], value: Any, name: str = "", mask: Any = None) -> None:
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
    """A row of an array; of a tuple, of which there is one per part of a Tuple space, or one per env."""
    if _is_plain(part):
        return bytes(part[row].tobytes())
    if isinstance(part, tuple) and all(map(_is_plain, part)):
        return b"".join(bytes(one[row].tobytes()) for one in part)
    return repr(part[row]).encode()


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
