"""Gymnasium as the oracle: what its envs do, recorded once and replayed against pools of every kind.

A recording is a tape for each env: event 0 is its reset with a seed, then steps, and after each end a reset
without a seed. How a pool spreads these events over its calls depends on the autoreset mode, on which envs
were ready and on threads; what every event shows does not.
"""

from __future__ import annotations

import fcntl
import hashlib
import pickle
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

Policy = Callable[[Any, dict[str, Any], np.random.Generator], Any]


@dataclass(frozen=True)
class Case:
    """One env with one set of options, and how it is played."""

    id: str
    config: Mapping[str, Any] = field(default_factory=dict)
    policy: Policy | None = None  # plays every second env; the others act at random
    num_envs: int = 16
    events: int = 600
    seed: int = 42
    max_episode_steps: int | None = None
    beyond_bounds: float = 1.0  # Box actions are drawn from bounds this much wider

    @property
    def key(self) -> str:
        """Another for every case, and the same in every process."""
        policy = self.policy and self.policy.__qualname__
        fields = (self.num_envs, self.events, self.seed, self.beyond_bounds)
        return hashlib.sha256(f"{self} {policy} {fields}".encode()).hexdigest()

    def __str__(self) -> str:
        options = [f"{key}={value}" for key, value in self.config.items()]
        if self.max_episode_steps:
            options.append(f"max_episode_steps={self.max_episode_steps}")
        return f"{self.id}({','.join(options)})".replace(" ", "")

    def make_gymnasium(self) -> gymnasium.Env[Any, Any]:
        limit = {} if self.max_episode_steps is None else {"max_episode_steps": self.max_episode_steps}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # CartPole-v0 is out of date, and means to be
            return gymnasium.make(self.id, disable_env_checker=True, **limit, **self.config)


@dataclass
class Recording:
    """The tapes of all envs of a case; every array is ``[env, event, ...]``."""

    actions: np.ndarray  # of a reset event: one that next_step must discard
    is_reset: np.ndarray
    observation: list[np.ndarray]  # a leaf each
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    elapsed: np.ndarray
    episode_return: np.ndarray
    info: dict[str, np.ndarray]  # zeros where an event has no such key
    has_info: dict[str, np.ndarray]

    @property
    def num_envs(self) -> int:
        return self.is_reset.shape[0]

    @property
    def events(self) -> int:
        return self.is_reset.shape[1]

    @property
    def ended(self) -> np.ndarray:
        return self.terminated | self.truncated

    @property
    def steps(self) -> int:
        return int(np.count_nonzero(~self.is_reset))

    def check_shown(self, ids: np.ndarray, events: np.ndarray, observation: Any, info: Mapping[str, Any]) -> None:
        """Observation and info of a batch are those of the tapes, bit for bit."""
        for i, (got, tapes) in enumerate(zip(leaves(observation), self.observation, strict=True)):
            assert_same(got, tapes[ids, events], f"observation leaf {i}", ids, events)
        masks = {key: has[ids, events] for key, has in self.has_info.items()}
        masks = {key: mask for key, mask in masks.items() if mask.any()}
        assert {key for key in info if not key.startswith("_")} - ENGINE_KEYS == set(masks)
        for key, mask in masks.items():
            assert_same(info[key], self.info[key][ids, events], f"info[{key!r}]", ids, events)
            assert_same(info[f"_{key}"], mask, f"info['_{key}']", ids, events)

    def check_outcome(
        self, ids: np.ndarray, events: np.ndarray, reward: np.ndarray, terminated: np.ndarray, truncated: np.ndarray
    ) -> None:
        """Reward and end of a batch are those of the tapes, bit for bit."""
        assert_same(reward, self.reward[ids, events], "reward", ids, events)
        assert_same(terminated, self.terminated[ids, events], "terminated", ids, events)
        assert_same(truncated, self.truncated[ids, events], "truncated", ids, events)

    def check_statistics(self, ids: np.ndarray, events: np.ndarray, info: Mapping[str, Any]) -> None:
        """The engine's episode statistics stand in the rows that ended, and only there."""
        ended = self.ended[ids, events]
        if not ended.any():
            assert "episode_return" not in info
            return
        for key, tapes in (("episode_return", self.episode_return), ("episode_length", self.elapsed)):
            assert_same(info[f"_{key}"], ended, f"info['_{key}']", ids, events)
            assert_same(info[key], np.where(ended, tapes[ids, events], 0).astype(tapes.dtype), key, ids, events)


# The keys of an info that are not the env's own.
ENGINE_KEYS = {"env_id", "elapsed_step", "episode_return", "episode_length", "final_obs", "final_info"}


def leaves(observation: Any) -> list[np.ndarray]:
    return list(observation) if isinstance(observation, tuple) else [observation]


def assert_same(got: np.ndarray, expected: np.ndarray, what: str, ids: np.ndarray, events: np.ndarray) -> None:
    """Equal in type, shape and every bit: 0.0 is not -0.0 here."""
    assert got.dtype == expected.dtype, f"{what}: expected {expected.dtype}, got {got.dtype}"
    assert got.shape == expected.shape, f"{what}: expected shape {expected.shape}, got {got.shape}"
    if got.tobytes() == expected.tobytes():
        return
    row = next(i for i in range(len(ids)) if got[i].tobytes() != expected[i].tobytes())
    raise AssertionError(f"{what}: env {ids[row]}, event {events[row]}: expected {expected[row]!r}, got {got[row]!r}")


_recordings: dict[str, Recording] = {}


def recording(case: Case, folder: Path) -> Recording:
    """The recording of a case. Gymnasium is slow: the processes that share the folder make each once."""
    if case.key not in _recordings:
        file = folder / case.key
        with open(file.with_suffix(".lock"), "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not file.exists():
                unfinished = file.with_suffix(".unfinished")
                unfinished.write_bytes(pickle.dumps(_record(case), pickle.HIGHEST_PROTOCOL))
                unfinished.rename(file)
        _recordings[case.key] = pickle.loads(file.read_bytes())
    return _recordings[case.key]


def _record(case: Case) -> Recording:
    tapes = [_Tape(case, i) for i in range(case.num_envs)]
    keys = {key for tape in tapes for info in tape.info for key in info}
    return Recording(
        actions=np.stack([tape.actions for tape in tapes]),
        is_reset=np.array([tape.is_reset for tape in tapes]),
        observation=[np.stack(leaf) for leaf in zip(*(tape.observation_leaves() for tape in tapes), strict=True)],
        reward=np.array([tape.reward for tape in tapes], np.float64),
        terminated=np.array([tape.terminated for tape in tapes], np.bool_),
        truncated=np.array([tape.truncated for tape in tapes], np.bool_),
        elapsed=np.array([tape.elapsed for tape in tapes], np.int32),
        episode_return=np.array([tape.episode_return for tape in tapes], np.float64),
        info={key: np.stack([tape.info_column(key) for tape in tapes]) for key in keys},
        has_info={key: np.array([[key in info for info in tape.info] for tape in tapes]) for key in keys},
    )


class _Tape:
    """Plays one Gymnasium env and writes down every event."""

    def __init__(self, case: Case, index: int) -> None:
        env = case.make_gymnasium()
        self._space = env.observation_space
        rng = np.random.default_rng([case.seed, index])
        act = _actor(case, env.action_space, index, rng)
        self.actions = np.zeros((case.events, *env.action_space.shape), env.action_space.dtype)
        self.is_reset: list[bool] = []
        self.observations: list[Any] = []
        self.reward: list[float] = []
        self.terminated: list[bool] = []
        self.truncated: list[bool] = []
        self.elapsed: list[int] = []
        self.episode_return: list[float] = []
        self.info: list[dict[str, Any]] = []

        observation, info = env.reset(seed=case.seed + index)
        self._write(True, observation, 0.0, False, False, 0, 0.0, info)
        for event in range(1, case.events):
            action = self.actions[event] = act(observation, info)
            if self.terminated[-1] or self.truncated[-1]:
                observation, info = env.reset()
                self._write(True, observation, 0.0, False, False, 0, 0.0, info)
                continue
            observation, reward, terminated, truncated, info = env.step(action)
            elapsed, total = self.elapsed[-1] + 1, self.episode_return[-1] + float(reward)
            self._write(False, observation, float(reward), terminated, truncated, elapsed, total, info)
        env.close()

    def _write(
        self,
        is_reset: bool,
        observation: Any,
        reward: float,
        terminated: bool,
        truncated: bool,
        elapsed: int,
        total: float,
        info: dict[str, Any],
    ) -> None:
        self.is_reset.append(is_reset)
        self.observations.append(observation)
        self.reward.append(reward)
        self.terminated.append(bool(terminated))
        self.truncated.append(bool(truncated))
        self.elapsed.append(elapsed)
        self.episode_return.append(total)
        self.info.append(info)

    def observation_leaves(self) -> list[np.ndarray]:
        if isinstance(self._space, spaces.Tuple):
            columns = zip(*self.observations, strict=True)
            return [_column(space, list(c)) for space, c in zip(self._space.spaces, columns, strict=True)]
        return [_column(self._space, self.observations)]

    def info_column(self, key: str) -> np.ndarray:
        absent = np.zeros_like(next(info[key] for info in self.info if key in info))
        column = np.stack([np.asarray(info.get(key, absent)) for info in self.info])
        return column.astype(np.float64) if key == "prob" else column  # Gymnasium mixes 1 and 1.0


def _column(space: spaces.Space[Any], values: list[Any]) -> np.ndarray:
    if isinstance(space, spaces.Box):  # the type must be the space's without a cast of ours
        return np.stack(values)
    return np.array(values).astype(space.dtype, casting="safe")


def _actor(
    case: Case, space: spaces.Space[Any], index: int, rng: np.random.Generator
) -> Callable[[Any, dict[str, Any]], Any]:
    """The policy of the case, or random actions, corners among them."""
    policy = case.policy
    if policy is not None and index % 2:
        return lambda observation, info: policy(observation, info, rng)
    if isinstance(space, spaces.Discrete):
        return lambda *_: rng.integers(space.n)
    assert isinstance(space, spaces.Box)
    low, high = space.low * case.beyond_bounds, space.high * case.beyond_bounds

    def draw(*_: Any) -> np.ndarray:
        if rng.random() < 0.1:
            return np.where(rng.random(space.shape) < 0.5, low, high).astype(np.float32)
        return rng.uniform(low, high).astype(np.float32)

    return draw
