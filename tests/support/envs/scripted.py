"""Envs for the tests of wrappers: some play from scripts, one draws; and a case for every wrapper."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium import spaces

MEANINGS = ("NOOP", "FIRE", "UP", "DOWN")


class Moment(NamedTuple):
    """What one frame of a script is like; ``end`` is "", "terminated" or "truncated"."""

    value: Any
    reward: float = 0.0
    lives: int | None = None
    end: str = ""
    info: Mapping[str, Any] = {}


class ScriptEnv(gymnasium.Env[Any, Any]):
    """Plays games from scripts: the first moment at reset, then one per step. Each reset takes the next script.

    Every number of the observation is the moment's ``value``. ``calls`` has the actions taken, and for each reset
    ``("reset", seed, options)``. ``in_place``: all observations, and all infos, are the same memory, written again.
    """

    def __init__(
        self,
        *scripts: Sequence[Moment],
        space: spaces.Space[Any] | None = None,
        action_space: spaces.Space[Any] | None = None,
        meanings: Sequence[str] | None = MEANINGS,
        in_place: bool = False,
    ) -> None:
        self.observation_space = spaces.Box(0, 255, (2,), np.uint8) if space is None else space
        self.action_space = spaces.Discrete(4) if action_space is None else action_space
        if meanings is not None:
            self.get_action_meanings = lambda: list(meanings)
        self.calls: list[Any] = []
        self._scripts, self._in_place = scripts, in_place
        self._game, self._at = -1, 0
        self._memory: Any = None
        self._info: dict[str, Any] = {}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.calls.append(("reset", seed, options))
        self._game, self._at = self._game + 1, 0
        obs, _, _, _, info = self._show()
        return obs, info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.calls.append(action)
        self._at += 1
        return self._show()

    def _show(self) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        now = self._scripts[self._game % len(self._scripts)][self._at]
        if not self._in_place or self._memory is None:
            self._memory, self._info = filled(self.observation_space, now.value), {}
        elif isinstance(self._memory, np.ndarray):
            self._memory[...] = now.value
        self._info.clear()
        self._info.update(now.info, **({} if now.lives is None else {"lives": now.lives}))
        return self._memory, now.reward, now.end == "terminated", now.end == "truncated", self._info


def filled(space: spaces.Space[Any], value: Any) -> Any:
    """An observation that is this value all through."""
    if isinstance(space, spaces.Dict):
        return {key: filled(child, value) for key, child in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(filled(child, value) for child in space.spaces)
    return np.full(space.shape, value, space.dtype)


class Showing(gymnasium.Env[Any, Any]):
    """Shows the observations it is given, in turn."""

    def __init__(self, space: spaces.Space[Any], *observations: Any) -> None:
        self.observation_space, self.action_space = space, spaces.Discrete(2)
        self._observations, self._at = observations, 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._at = 0
        return self._observations[0], {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._at = (self._at + 1) % len(self._observations)
        return self._observations[self._at], 0.0, False, False, {}


class ChanceEnv(gymnasium.Env[Any, Any]):
    """Draws what it shows from its own generator: observations, rewards, lost lives and ends. It can be pickled.

    ``in_place``: all observations, of a Box, are the same memory, written again.
    """

    def __init__(
        self,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any] | None = None,
        in_place: bool = False,
    ) -> None:
        self.observation_space = copy.deepcopy(observation_space)
        self.action_space = spaces.Discrete(4) if action_space is None else copy.deepcopy(action_space)
        self.resets: list[Any] = []  # the seed and the options of each
        self._lives = 3
        self._memory = np.zeros(observation_space.shape, observation_space.dtype) if in_place else None

    def get_action_meanings(self) -> list[str]:
        return list(MEANINGS)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.resets.append((seed, options))
        self._lives = 3
        return self._look(), {"lives": 3}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._lives -= int(self.np_random.random() < 0.15)
        reward, truncated = float(self.np_random.normal()), bool(self.np_random.random() < 0.05)
        return self._look(), reward, self._lives == 0, truncated, {"lives": self._lives}

    def get_state(self) -> Any:
        return self._lives, self._memory

    def set_state(self, state: Any) -> None:
        self._lives, self._memory = state

    def _look(self) -> Any:
        self.observation_space.seed(int(self.np_random.integers(2**31)))
        drawn = _arrays(self.observation_space, self.observation_space.sample())
        if self._memory is None:
            return drawn
        self._memory[...] = drawn
        return self._memory


def _arrays(space: spaces.Space[Any], sample: Any) -> Any:
    """A sample with arrays for Boxes, of which one of shape () draws numbers."""
    if isinstance(space, spaces.Dict):
        return {key: _arrays(child, sample[key]) for key, child in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(_arrays(child, part) for child, part in zip(space.spaces, sample, strict=True))
    return np.asarray(sample) if isinstance(space, spaces.Box) else sample


class Case(NamedTuple):
    """A wrapper, its arguments, and the spaces of an env to put it on."""

    wrapper: str
    kwargs: dict[str, Any]
    observation: spaces.Space[Any]
    action: spaces.Space[Any] | None = None

    def env(self, in_place: bool = False) -> ChanceEnv:
        return ChanceEnv(self.observation, self.action, in_place)

    def __str__(self) -> str:
        arguments = ", ".join(f"{key}={value}" for key, value in self.kwargs.items())
        return f"{self.wrapper}({arguments}) on {type(self.observation).__name__}{self.observation.shape or ''}"


RGB = spaces.Box(0, 255, (10, 12, 3), np.uint8)
GREY = spaces.Box(0, 255, (10, 12), np.uint8)
GREY_CHANNEL = spaces.Box(0, 255, (10, 12, 1), np.uint8)
FLOATS = spaces.Box(-1.0, 2.0, (9, 7, 3), np.float32)
DOUBLES = spaces.Box(0.0, 1.0, (9, 7, 3), np.float64)
VECTOR = spaces.Box(-np.inf, np.inf, (3,), np.float32)
POINT = spaces.Box(-np.inf, np.inf, (2,), np.float32)
NESTED = spaces.Dict(
    {
        "camera": spaces.Box(0, 255, (2, 3, 1), np.uint8),
        "gear": spaces.Discrete(3, start=-1),
        "rest": spaces.Tuple([spaces.MultiBinary(2), spaces.Box(-1, 1, (), np.float64)]),
    }
)
RAM = spaces.Box(0, 255, (128,), np.uint8)
SCENE = spaces.Dict({"image": RGB, "speed": VECTOR})
PAIR = spaces.Tuple((GREY, VECTOR))
HYBRID = spaces.Tuple((spaces.Discrete(3), spaces.Box(0, 1, (1,), np.float32), spaces.Box(-1, 1, (2,), np.float32)))
MIXED = spaces.Dict({"kind": spaces.Discrete(3), "where": VECTOR, "flags": spaces.MultiBinary(4)})

CASES = [
    Case("NoopResetEnv", {}, RGB),
    Case("NoopResetEnv", {"noop_max": 3}, SCENE),
    Case("MaxAndSkipEnv", {}, RGB),
    Case("MaxAndSkipEnv", {"skip": 1}, VECTOR),
    Case("MaxAndSkipEnv", {"skip": 2}, FLOATS),
    Case("WarpFrame", {}, RGB),
    Case("WarpFrame", {"size": 5}, GREY),
    Case("WarpFrame", {"size": (4, 6)}, GREY_CHANNEL),
    Case("WarpFrame", {"size": [6, 4]}, FLOATS),
    Case("WarpFrame", {"size": (3, 5)}, DOUBLES),
    Case("WarpFrame", {"size": (3, 5), "dict_key": "image"}, SCENE),
    Case("ScaledFloatFrame", {}, RGB),
    Case("ScaledFloatFrame", {}, FLOATS),
    Case("ScaledFloatFrame", {}, RAM),
    Case("ScaledFloatFrame", {"dict_key": "image"}, SCENE),
    Case("ClipRewardEnv", {}, VECTOR),
    Case("ClipRewardEnv", {}, SCENE),
    Case("FrameStack", {}, GREY),
    Case("FrameStack", {"n_frames": 1}, RGB),
    Case("FrameStack", {"n_frames": 3}, VECTOR),
    Case("FrameStack", {"n_frames": 2}, SCENE),
    Case("FrameStack", {"n_frames": 2}, PAIR),
    Case("FrameStack", {"n_frames": 2}, spaces.Dict({"a": spaces.MultiBinary(4), "b": spaces.MultiDiscrete([3, 5])})),
    Case("FrameStack", {"n_frames": 2}, spaces.Box(0, 1, (), np.float32)),
    Case("ObsTransposeWrapper", {}, RGB),
    Case("ObsTransposeWrapper", {}, FLOATS),
    Case("ObsTransposeWrapper", {"dict_key": "image"}, SCENE),
    Case("ObsNormEnv", {}, VECTOR),
    Case("ObsNormEnv", {"clip": 2.0, "epsilon": 1e-4, "training": False}, RGB),
    Case("ObsNormEnv", {"clip": None}, SCENE),
    Case("RewardNormEnv", {}, VECTOR),
    Case("RewardNormEnv", {"gamma": 0.5, "epsilon": 1e-4, "clip": None, "training": False}, SCENE),
    Case("RamWrapper", {}, RAM),
    Case("RamWrapper", {}, VECTOR),
    Case("EpisodicLifeEnv", {}, RGB),
    Case("EpisodicLifeEnv", {}, SCENE),
    Case("FireResetEnv", {}, RGB),
    Case("FireResetEnv", {}, SCENE),
    Case("TimeLimit", {"max_episode_steps": 3}, RGB),
    Case("TimeLimit", {"max_episode_steps": 1}, SCENE),
    Case("EvalEpisodeReturn", {}, RGB),
    Case("EvalEpisodeReturn", {}, SCENE),
    Case("ActionRepeat", {"action_repeat": 2}, RGB),
    Case("ActionRepeat", {"action_repeat": 1}, SCENE),
    Case("DelayReward", {"delay_reward_step": 3}, RGB),
    Case("DelayReward", {"delay_reward_step": 1}, SCENE),
    Case("StaticObsNorm", {"mean": 0.5, "std": 2.0}, RGB),
    Case("StaticObsNorm", {"mean": [1.0, 2.0, 3.0], "std": [1.0, 0.5, 0.1]}, VECTOR),
    Case("FlatObs", {}, RGB),
    Case("FlatObs", {}, MIXED),
    Case("FlatObs", {}, PAIR),
    Case("FlatObs", {}, spaces.Discrete(4)),
    Case("FlatObs", {"size": 11}, spaces.Tuple((spaces.MultiDiscrete([3, 5]), VECTOR))),
    Case("ObsPlusPrevActRew", {}, RGB),
    Case("ObsPlusPrevActRew", {}, SCENE, HYBRID),
    Case("ObsPlusPrevActRew", {}, VECTOR, spaces.Box(-1, 1, (2,), np.float32)),
    Case("ObsPlusPrevActRew", {}, spaces.Discrete(4), spaces.MultiDiscrete([2, 3])),
    Case("GymHybridDictAction", {}, VECTOR, HYBRID),
    Case("GymHybridDictAction", {}, SCENE, spaces.Tuple((spaces.Discrete(2), spaces.Box(0, 1, (2, 3), np.float32)))),
]


# ---- over and over ----------------------------------------------------------------------------------


class CyclingEnv(gymnasium.Env[Any, Any]):
    """Shows ``observations[0]`` at a reset and the next one per step, over and over; its rewards go the same way.

    The episode ends with its ``length``-th step, as ``end`` says: terminated, truncated or both. It shows its own
    memory: one array a space, and one info, written again and again, as frugal envs do.
    """

    def __init__(
        self,
        observations: Sequence[Any] = ((0.0, 0.0),),
        rewards: Sequence[Any] = (1.0,),
        observation_space: spaces.Space[Any] = POINT,
        action_space: spaces.Space[Any] | None = None,
        length: int | None = None,
        end: str = "terminated",
        last_info: dict[str, Any] | None = None,
    ) -> None:
        self.observation_space = observation_space
        self.action_space = spaces.Discrete(3) if action_space is None else action_space
        self.received: list[Any] = []
        self.resets: list[Any] = []
        self._observations, self._rewards = list(observations), list(rewards)
        self._length, self._end, self._last_info = length, end, last_info or {}
        self._steps = 0
        self._info: dict[str, Any] = {}
        self._memory = (
            np.zeros(observation_space.shape, observation_space.dtype) if _is_box(observation_space) else None
        )

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.resets.append((seed, options))
        self._steps = 0
        self._info.clear()
        return self._show(), self._info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        self.received.append(action)
        reward = self._rewards[self._steps % len(self._rewards)]
        self._steps += 1
        is_over = self._steps == self._length
        self._info["steps"] = self._steps
        if is_over:
            self._info.update(self._last_info)
        terminated, truncated = is_over and self._end != "truncated", is_over and self._end != "terminated"
        return self._show(), reward, terminated, truncated, self._info

    def _show(self) -> Any:
        observation = self._observations[self._steps % len(self._observations)]
        if self._memory is None:
            return observation
        self._memory[...] = observation
        return self._memory


def _is_box(space: spaces.Space[Any]) -> bool:
    return isinstance(space, spaces.Box)


def play(
    env: gymnasium.Env[Any, Any], steps: int, action: Any = 0
) -> list[tuple[Any, Any, bool, bool, dict[str, Any]]]:
    """A reset, then copies of all that comes of some steps; resets after an end."""
    rows = []
    env.reset()
    for _ in range(steps):
        row = env.step(action)
        rows.append(copy.deepcopy(row))
        if row[2] or row[3]:
            env.reset()
    return rows


def rewards_of(env: gymnasium.Env[Any, Any], steps: int) -> list[float]:
    """The rewards of some steps, with a reset after every end."""
    return [row[1] for row in play(env, steps)]
