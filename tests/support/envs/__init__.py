"""Small envs that the tests run, by purpose.

::

    here           of Gymnasium's kind: they count, fail, show and tell what they are told to
    contract.py    of BaseEnv's kind, of dm_env's and of DI-engine's
    adapted.py     for adapters and views: of every kind, with several agents, with diaries
    good.py        keep all rules of the checker; broken.py and broken_runs.py break one each
    managed.py     suffer mishaps in managers, and how the tests play these; replay.py  draw what can be read again
    unmovable.py   live where they were built; shared.py  are handed out twice; wild.py  reach for what is not theirs
"""

from __future__ import annotations

import copy
from collections.abc import Collection
from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium import spaces

from support.probes import ProbeTwin


def draws(seed: int, count: int) -> list[float]:
    """What a probe of that seed draws at its resets."""
    return np.random.Generator(np.random.PCG64(seed)).random(count).tolist()


class DiscountEnv(ProbeTwin):
    """A probe that tells a discount of its own, in its steps."""

    def __init__(self, discount: float, length: int = 10) -> None:
        super().__init__(length)
        self._discount = discount

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, _ = super().step(action)
        return observation, reward, terminated, truncated, {"discount": self._discount}


class CountingEnv(gymnasium.Env[np.ndarray, int]):
    """Counts up from ``start`` and remembers whether it was closed."""

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["rgb_array"], "render_fps": 30}

    def __init__(self, start: int = 0, render_mode: str | None = None) -> None:
        self.observation_space = spaces.Box(-np.inf, np.inf, (1,), np.float32)
        self.action_space = spaces.Discrete(2)
        self.start = start
        self.render_mode = render_mode
        self.count = start
        self.closed = False

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self.count = self.start
        return self._observe(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
        self.count += 1
        return self._observe(), float(action), False, False, {}

    def render(self) -> np.ndarray:
        return np.full((2, 2, 3), self.count, np.uint8)

    def add(self, one: int, *, other: int = 0) -> int:
        return self.count + one + other

    def close(self) -> None:
        self.closed = True

    def _observe(self) -> np.ndarray:
        return np.array([self.count], np.float32)


class SpaceEnv(gymnasium.Env[Any, Any]):
    """Shows samples of its observation space, tells an info of every kind, and keeps the actions it was given."""

    def __init__(self, observation_space: spaces.Space[Any], action_space: spaces.Space[Any], length: int = 4) -> None:
        self.observation_space = copy.deepcopy(observation_space)  # samples of one env are its own
        self.action_space = action_space
        self.received: list[Any] = []
        self.options: list[Any] = []
        self._length = length
        self._steps = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        if seed is not None:
            self.observation_space.seed(seed)
        self.options.append(options)
        self._steps = 0
        return self.observation_space.sample(), {"at_reset": self.np_random.random()}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.received.append(copy.deepcopy(action))
        self._steps += 1
        reward = float(self.np_random.random())
        return self.observation_space.sample(), reward, self._steps >= self._length, False, self._info()

    def _info(self) -> dict[str, Any]:
        number = int(self.np_random.integers(100))
        info = {
            "int": number,
            "float": number / 8,
            "bool": number % 2 == 0,
            "float32": np.float32(number),
            "array": np.arange(3, dtype=np.int16) + np.int16(number),
            "text": f"number {number}",
            "list": [number, None],
            "nested": {"int": number, "deeper": {"array": np.full((2, 2), float(number))}},
        }
        if number % 3 == 0:
            info["sometimes"] = number
        return info


class FailingEnv(CountingEnv):
    """Raises its error in ``fail_in`` on the calls ``fail_at``, which count from 1."""

    def __init__(self, fail_in: str = "", fail_at: Collection[int] = (), error: type[BaseException] = KeyError) -> None:
        super().__init__(render_mode="rgb_array")
        self._fail_in, self._fail_at, self._error = fail_in, fail_at, error
        self._calls = 0
        self._may_fail("constructor")

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        self._may_fail("reset")
        return super().reset(seed=seed, options=options)

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
        self._may_fail("step")
        return super().step(action)

    def render(self) -> np.ndarray:
        self._may_fail("render")
        return super().render()

    def close(self) -> None:
        super().close()
        self._may_fail("close")

    def _may_fail(self, where: str) -> None:
        if self._fail_in != where:
            return
        self._calls += 1
        if self._calls in self._fail_at:
            raise self._error(f"broken {where}")


class ShowEnv(CountingEnv):
    """Shows whatever it is told to, whether its space holds that or not."""

    def __init__(self, observation_space: spaces.Space[Any], show: Any, at: int = 1) -> None:
        super().__init__()
        self.observation_space = observation_space
        self._show, self._at = show, at

    def _observe(self) -> Any:
        if self.count == self._at:
            return self._show
        self.observation_space.seed(0)
        return self.observation_space.sample()


def env_of(action: spaces.Space[Any], observation: spaces.Space[Any] | None = None) -> type[gymnasium.Env]:
    """A class of envs of these spaces, whose info is the action that they got."""

    class Env(gymnasium.Env):
        observation_space = observation or spaces.Discrete(2)
        action_space = action

        def reset(self, *, seed: Any = None, options: Any = None) -> Any:
            return self.observation_space.sample(), {}

        def step(self, action: Any) -> Any:
            return self.observation_space.sample(), 0.0, False, False, {"got": action}

    return Env


class Plain(gymnasium.Env):
    """Shows its action, and refuses the reset option ``bad``."""

    observation_space: Any = spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = spaces.Discrete(3)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        if options and options.get("bad"):
            raise ValueError("these options are bad")
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> Any:
        return np.full(2, action, np.float32), float(action), False, False, {}
