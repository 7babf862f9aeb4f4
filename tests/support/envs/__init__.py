"""The envs that tests run. Look here before you write one; an env of a single test stays in that test.

::

    here            the probe's twin, and envs of Gymnasium's kind that count, fail, show and tell what they are told to
    many_spaces.py  observations and actions of many spaces; things that are of no space
    faulty.py       suffers any mishap of a process, where and when it is told; how the tests play it
    waiting.py      twins of the others whose methods are coroutines; suffers any mishap of a coroutine
    managed.py      suffers the same in managers; how the tests play these
    contract.py     of BaseEnv's kind, of dm_env's, of the oldest documents' and of DI-engine's
    adapted.py      for adapters and views: of every kind, with several agents, with diaries
    good.py         keeps all rules of the checker; broken.py and broken_runs.py break one each
    scripted.py     plays from scripts or at random, for wrappers, with a case for each of them
    layered.py      inside of all wrappers that remember something
    unmovable.py    lives where it was built, or is handed out twice
    sealed.py       remembers what only a copy of its process has
    wild.py         reaches for what is not its own
    drawn.py        draws its count, which can be read in videos again
    talkative.py    tells all kinds of infos, for drop-ins; collected.py  is collected into data sets
    remote.py       for actors on a cluster
    command.py      a user's ``my_envs.py``, with policies

No env here imports pytest or another library of the tests: worker processes import them.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Collection
from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium import spaces


class ProbeTwin(gymnasium.Env[np.ndarray, np.ndarray]):
    """``cpp/envs/debug/probe.h`` in Python: it counts, throws or calls back as a test asks."""

    def __init__(
        self,
        length: int = 10,
        fail_in: str = "",
        fail_at: int = 1,
        fail_count: int = 1,
        obs_size: int = 2,
        info: bool = False,
        on_step: Any = None,
    ) -> None:
        self.observation_space = spaces.Box(-np.inf, np.inf, (obs_size,), np.float64)
        self.action_space = spaces.Box(-1, 1, (), np.float32)
        self.closed = False
        self._length = length
        self._fail_in = fail_in
        self._failing = range(fail_at, fail_at + fail_count)
        self._calls = 0
        self._tells = info
        self._on_step = on_step
        self._draw = 0.0
        self._steps = 0
        self._may_fail("constructor")

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self._may_fail("reset")
        self._draw = self.np_random.random()
        self._steps = 0
        return self._observe(), self._info()

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict]:
        self._may_fail("step")
        if self._on_step is not None:
            self._on_step()
        self._steps += 1
        return self._observe(), float(action), self._steps >= self._length, False, self._info()

    def get_state(self) -> Any:
        return self._draw, self._steps, self._calls

    def set_state(self, state: Any) -> None:
        self._draw, self._steps, self._calls = state

    def close(self) -> None:
        self.closed = True

    def _observe(self) -> np.ndarray:
        self._may_fail("observe")
        observation = np.full(self.observation_space.shape, self._steps, np.float64)
        observation[0] = self._draw
        return observation

    def _info(self) -> dict[str, Any]:
        if not self._tells:
            return {}
        own = {"steps": self._steps} if self._steps else {"draw": self._draw}
        return {**own, "both": np.array([self._draw, self._steps], np.float32)}

    def _may_fail(self, where: str) -> None:
        if self._fail_in != where:
            return
        self._calls += 1
        if self._calls in self._failing:
            raise RuntimeError(f"the probe was asked to fail in {where}")


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


class InfoEnv(CountingEnv):
    """Tells the info that it is told to tell; an env that ``length`` steps end."""

    def __init__(self, info: Any = None, length: int = 10**9) -> None:
        super().__init__()
        self.info = {} if info is None else info
        self.length = length

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, Any]:
        return super().reset(seed=seed, options=options)[0], self.info

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, Any]:
        obs, reward, *_ = super().step(action)
        return obs, reward, self.count >= self.length, False, self.info


class OddEnv(CountingEnv):
    """Ends a step with whatever ``spoil`` makes of it."""

    def __init__(self, spoil: Callable[..., Any]) -> None:
        super().__init__()
        self._spoil = spoil

    def step(self, action: int) -> Any:
        return self._spoil(*super().step(action))


class RewritingEnv(CountingEnv):
    """Tells one and the same dict, with the same array and list in it, written over at every call."""

    def __init__(self) -> None:
        super().__init__()
        self._told: dict[str, Any] = {"array": np.zeros(2), "list": [0], "deep": {"array": np.zeros(1)}}

    def _tell(self) -> dict[str, Any]:
        self._told["array"][:] = self._told["deep"]["array"][:] = self._told["list"][0] = self.count
        return self._told

    def reset(self, **arguments: Any) -> Any:
        return super().reset(**arguments)[0], self._tell()

    def step(self, action: int) -> Any:
        return *super().step(action)[:4], self._tell()


class AnsweringEnv(CountingEnv):
    """Answers questions."""

    def echo(self, *args: Any, **kwargs: Any) -> Any:
        return args, kwargs

    def apply(self, function: Callable[[Any], Any]) -> Any:
        return function(self.count)

    def move(self, by: int) -> None:
        self.count += by

    def versions(self) -> tuple[str, str, str]:
        return platform.python_version(), np.__version__, gymnasium.__version__

    def complain(self) -> None:
        raise ZeroDivisionError("asked too much")
