"""Envs and policies of a user of the command line. Tests copy this file into a folder, as ``my_envs.py``."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium import spaces

import stepmill
from stepmill.envs import BaseEnv, BaseEnvTimestep, read_cfg


class Counting(gymnasium.Env[Any, Any]):
    """Observes the number of the step, and pays the action."""

    observation_space = spaces.Box(0, 100, (1,), np.float32)
    action_space: spaces.Space[Any] = spaces.Discrete(3)

    def __init__(self, length: int = 5) -> None:
        self.length = length

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.steps = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        self.steps += 1
        return np.full(1, self.steps, np.float32), float(action), self.steps == self.length, False, {}


class Talking(Counting):
    """Prints, and so does a program that it starts."""

    def step(self, action: Any) -> Any:
        sys.stdout.write("a step\n")
        sys.stdout.flush()
        os.system("echo from a program")
        return super().step(action)


class Failing(Counting):
    """Fails in its first step."""

    def step(self, action: Any) -> Any:
        raise RuntimeError("no more")


class Quitting(Counting):
    """Ends its process in the first step."""

    def step(self, action: Any) -> Any:
        os._exit(3)


class Crashing(Counting):
    """Is ended by a signal in the first step."""

    def step(self, action: Any) -> Any:
        signal.raise_signal(signal.SIGKILL)


class Boundless(Counting):
    """Pays what JSON has no number for."""

    def step(self, action: Any) -> Any:
        obs, _, *ends = super().step(action)
        return obs, float("inf"), *ends


class Stumbling(Counting):
    """Fails in every fourth step."""

    def step(self, action: Any) -> Any:
        if self.steps == 3:
            raise RuntimeError("no more")
        return super().step(action)


class Stuck(Counting):
    """Fails in every reset."""

    def reset(self, **arguments: Any) -> Any:
        raise RuntimeError("never")


class Still(Counting):
    """Never ends, and needs an option."""

    def __init__(self, size: int = 1) -> None:
        assert size == 2
        super().__init__(length=-1)

    def step(self, action: Any) -> Any:
        return np.zeros(1, np.float32), 0.0, False, False, {}


class Lasting(Counting):
    """In a process of Gymnasium's own, holds the pipe of a test open and never returns."""

    def __init__(self) -> None:
        super().__init__()
        if multiprocessing.parent_process() is not None:
            os.write(os.open("pipe", os.O_WRONLY), b"x")
            signal.pause()


class Mixed(Counting):
    """Has actions that are no array."""

    action_space = spaces.Dict(a=spaces.Discrete(2))


class Shade(Counting):
    """The brightness of its pictures is the number of the step, times ten; env i plays episodes of 3 + i steps."""

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["rgb_array"], "render_fps": 10}

    def __init__(self, env_id: int, render_mode: str | None = None) -> None:
        super().__init__(length=3 + env_id)
        self.render_mode = render_mode

    def step(self, action: Any) -> Any:
        obs, _, *ends = super().step(action)
        return obs, 1.0, *ends

    def render(self) -> Any:
        return np.full((32, 64, 3), 100 + 10 * self.steps, np.uint8)


def shade(env_id: int, render_mode: str | None = None) -> Shade:
    """Makes one."""
    return Shade(env_id, render_mode)


class Painted(gymnasium.Env[Any, Any]):
    """Rewards count the steps of an episode of five. Its picture is grey, as bright as its step."""

    metadata = {"render_modes": ["rgb_array", "ansi"], "render_fps": 30}  # noqa: RUF012  # as Gymnasium wants it
    observation_space = spaces.Box(0, 100, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, render_mode: str | None = None, length: int = 5, told: str = "plain") -> None:
        self.render_mode, self.length, self.told = render_mode, length, told
        self.steps = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.steps = 0
        return self._obs(), {"note": self.told}

    def step(self, action: Any) -> Any:
        self.steps += 1
        return self._obs(), float(self.steps), self.steps == self.length, False, {"note": self.told}

    def render(self) -> Any:
        return f"step {self.steps}" if self.render_mode == "ansi" else np.full((40, 60, 3), 10 * self.steps, np.uint8)

    def _obs(self) -> np.ndarray:
        return np.full(2, self.steps, np.float32)


class Blind(Shade):
    """Draws nothing."""

    metadata: ClassVar[dict[str, Any]] = {"render_modes": []}

    def __init__(self) -> None:
        super().__init__(0)

    def render(self) -> Any:
        return None


class Maze(gymnasium.Env[Any, Any]):
    """Has nested spaces, and options of many kinds."""

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["ansi"]}
    action_space = spaces.Discrete(4)

    def __init__(
        self,
        level: Any,
        size: Any = (3, float("inf")),
        render_mode: str | None = None,
        env_id: int = 0,
        **others: Any,
    ) -> None:
        self.observation_space = spaces.Dict(
            place=spaces.Box(np.zeros(2, np.float32), np.full(2, level, np.float32)),
            keys=spaces.Tuple([spaces.MultiBinary(2), spaces.Box(-np.inf, np.inf, (3,), np.float32)]),
        )


class Broken(Maze):
    """Cannot be built."""

    def __init__(self) -> None:
        raise RuntimeError("no walls")


class Walk(BaseEnv):
    """A BaseEnv that keeps the contract."""

    observation_space = spaces.Box(-9.0, 9.0, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, cfg: Any = None) -> None:
        super().__init__(read_cfg("Walk", cfg or {}, defaults={"length": 2}))

    def reset(self, **kwargs: Any) -> Any:
        self.place = float(np.random.default_rng(self._next_seed()).uniform(-1, 1))
        self.left = self._cfg["length"]
        return np.array([self.place], np.float32)

    def step(self, action: Any) -> Any:
        self.place += 1 if int(action) else -1
        self.left -= 1
        info = {"eval_episode_return": self.place, "final_eval_reward": self.place} if self.left == 0 else {}
        return BaseEnvTimestep(np.array([self.place], np.float32), np.zeros(1, np.float32), self.left == 0, info)

    def close(self) -> None:
        pass


class Careless(Walk):
    """Uses numpy's global generator."""

    def reset(self, **kwargs: Any) -> Any:
        np.random.uniform()
        return super().reset(**kwargs)


class Endless(Walk):
    """Never ends, and says when it begins."""

    told = False

    def step(self, action: Any) -> Any:
        if not Endless.told:
            Endless.told = True
            os.write(2, b"playing\n")
        obs, reward, _, _ = super().step(action)
        return BaseEnvTimestep(obs.clip(-9, 9), reward, False, {})


# ---- policies ------------------------------------------------------------------------------------


@stepmill.per_env
def two(observation: Any, generator: Any) -> int:
    """Always the same action."""
    return 2


def many(observations: Any, env_ids: Any, generators: Any) -> Any:
    """The same for a batch."""
    assert len(observations) == len(env_ids) == len(generators)
    return np.full(len(observations), 2)


def one_env(observation: Any, generator: Any) -> int:
    """A function of one env, which is no policy by itself."""
    return 2


def one_observation(observation: Any) -> int:
    """The same without a generator, which ``per_env`` does not take either."""
    return 2


class Alternating:
    """A policy with a memory: 0, 1, 0 and so on in each episode."""

    def __init__(self) -> None:
        self.last: dict[int, int] = {}

    def begin(self, env_ids: Any) -> None:
        self.last.update(dict.fromkeys(env_ids.tolist(), 1))

    def __call__(self, observations: Any, env_ids: Any, generators: Any) -> Any:
        for env_id in env_ids.tolist():
            self.last[env_id] = 1 - self.last[env_id]
        return np.array([self.last[env_id] for env_id in env_ids.tolist()])


@stepmill.per_env
def confused(observation: Any, generator: Any) -> int:
    """Fails."""
    raise ValueError("left or right?")


@stepmill.per_env
def leaving(observation: Any, generator: Any) -> int:
    """Ends the program."""
    sys.exit(0)
