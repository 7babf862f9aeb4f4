"""Runs envs that are written as the seed documents say: alone, in pools and in managers; and old Gym's interface."""

from __future__ import annotations

import contextlib
import functools
import inspect
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import stepmill
from stepmill.managers import BaseEnvManager, SubprocessEnvManager

POOLS = ("inline", "process")
MANAGERS: dict[str, type[BaseEnvManager]] = {"serial": BaseEnvManager, "subprocess": SubprocessEnvManager}
WAYS = ("alone", *POOLS, *MANAGERS)
IN_ONE_PROCESS = ("alone", "inline", "serial")


class OldGym:
    """Old Gym's interface over an env of Gymnasium: ``seed``, a bare observation, four results, one ``done``."""

    def __init__(self, env: Any) -> None:
        self.env = env
        self.observation_space, self.action_space = env.observation_space, env.action_space
        self._seed: int | None = None

    def seed(self, seed: int | None = None) -> None:
        self._seed = seed

    def reset(self) -> Any:
        seed, self._seed = self._seed, None
        return self.env.reset(seed=seed)[0]

    def step(self, action: Any) -> tuple[Any, float, bool, dict[str, Any]]:
        obs, reward, terminated, truncated, info = self.env.step(action)
        return obs, float(reward), bool(terminated or truncated), info

    def close(self) -> None:
        self.env.close()


@dataclass
class Episode:
    """An episode: all observations, from that of the reset on, the rewards, and the info of the last step."""

    observations: list[Any]
    rewards: list[float] = field(default_factory=list)
    info: dict[str, Any] = field(default_factory=dict)


def play(
    way: str,
    env_fn: Callable[[Any], Any],
    cfgs: Sequence[Any],
    episodes: int = 1,
    seed: int | None = 0,
    action: Callable[[int], Any] = lambda step: np.array(1),
) -> list[list[Episode]]:
    """The first episodes of one env per cfg, the same actions in each. ``dynamic_seed`` is read from the cfg.

    Args:
        way: One of ``WAYS``.
        env_fn: Makes an env from a cfg.
        cfgs: One for each env.
        episodes: How many episodes of each env are returned.
        seed: Env i is seeded with ``seed + i``; None leaves that out.
        action: The action of each step of an episode, from 1.
    """
    if way == "alone":
        return [
            _alone(env_fn(cfg), cfg, episodes, None if seed is None else seed + i, action) for i, cfg in enumerate(cfgs)
        ]
    if way in POOLS:
        with pool_of(way, env_fn, cfgs, seed=seed) as pool:
            return _in_pool(pool, episodes, action)
    with manager_of(way, env_fn, cfgs, episode_num=episodes) as manager:
        if seed is not None:
            manager.seed(seed, dynamic_seed=_is_dynamic(cfgs[0]))
        manager.launch()
        return play_manager(manager, action)


def pool_of(backend: str, env_fn: Callable[[Any], Any], cfgs: Sequence[Any], **settings: Any) -> Any:
    """A pool of one env per cfg."""
    tasks = [functools.partial(env_fn, cfg) for cfg in cfgs]
    return stepmill.make(tasks, num_envs=len(tasks), backend=backend, **settings)


@contextlib.contextmanager
def manager_of(way: str, env_fn: Any, cfgs: Sequence[Any], **settings: Any) -> Iterator[BaseEnvManager]:
    """A manager of one env per cfg; ``subprocess``: one that waits for all of them."""
    waits = {"timeout": None, "wait_num": len(cfgs)} if way == "subprocess" else {}
    with MANAGERS[way](env_fn, list(cfgs), len(cfgs), **{"retry_waiting_time": 0, **waits, **settings}) as manager:
        yield manager


def _is_dynamic(cfg: Any) -> bool:
    return bool(cfg.get("dynamic_seed", True))


def _alone(env: Any, cfg: Any, count: int, seed: int | None, action: Callable[[int], Any]) -> list[Episode]:
    if seed is not None:
        takes_two = len(inspect.signature(env.seed).parameters) > 1
        env.seed(seed, *([_is_dynamic(cfg)] if takes_two else []))
    played = []
    for _ in range(count):
        episode = Episode([env.reset()])
        done = False
        while not done:
            timestep = env.step(action(len(episode.observations)))
            episode.observations.append(timestep.obs)
            episode.rewards.append(float(timestep.reward[0]))
            done, episode.info = timestep.done, timestep.info
        played.append(episode)
    env.close()
    return played


def _in_pool(pool: Any, count: int, action: Callable[[int], Any]) -> list[list[Episode]]:
    """With autoreset in the next step: the step after an end is the reset."""
    first, _ = pool.reset()
    played = [[Episode([row])] for row in first]
    is_over = np.zeros(len(played), bool)
    while min(map(len, played)) < count or not is_over[[len(one) <= count for one in played]].all():
        actions = np.stack([np.asarray(action(len(one[-1].observations))) for one in played])
        observations, rewards, terminated, truncated, info = pool.step(actions)
        for env_id, episodes in enumerate(played):
            if is_over[env_id]:
                episodes.append(Episode([observations[env_id]]))
                continue
            episodes[-1].observations.append(observations[env_id])
            episodes[-1].rewards.append(float(rewards[env_id]))
            said = {
                key: value[env_id] for key, value in info.items() if info.get(f"_{key}", [False] * len(played))[env_id]
            }
            episodes[-1].info = said
        is_over = terminated | truncated
    return [episodes[:count] for episodes in played]


def play_manager(
    manager: BaseEnvManager, action: Callable[[int], Any] = lambda step: np.array(1)
) -> list[list[Episode]]:
    """All episodes of a launched manager's envs."""
    played: list[list[Episode]] = [[] for _ in range(manager.env_num)]
    begins = set(range(manager.env_num))
    while not manager.done:
        ready = manager.ready_obs
        for env_id in begins & set(ready):
            played[env_id].append(Episode([ready[env_id]]))
            begins.discard(env_id)
        timesteps = manager.step({env_id: action(len(played[env_id][-1].observations)) for env_id in ready})
        for env_id, timestep in timesteps.items():
            episode = played[env_id][-1]
            episode.observations.append(timestep.obs)
            episode.rewards.append(float(timestep.reward[0]))
            episode.info = timestep.info
            if timestep.done:
                begins.add(env_id)
    return played


def assert_same(one: list[list[Episode]], other: list[list[Episode]]) -> None:
    """Whether two plays have the same observations and rewards."""
    assert [len(episodes) for episodes in one] == [len(episodes) for episodes in other]
    for mine, yours in zip(itertools.chain(*one), itertools.chain(*other), strict=True):
        np.testing.assert_array_equal(np.stack(mine.observations), np.stack(yours.observations))
        np.testing.assert_allclose(mine.rewards, yours.rewards)
