"""Envs for the tests of ``stepmill.interop.sb3``. Imports nothing of SB3: worker processes import this."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium import spaces

CRASH, CRASH_IN_RESET = 1, 2


class TalkativeEnv(gymnasium.Env[Any, Any]):
    """Has Dict observations, pictures, and infos of all kinds. Action 1 crashes it; action 2 crashes its next reset."""

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["rgb_array"], "render_fps": 12}
    observation_space = spaces.Dict(place=spaces.Box(-1, 1, (2,), np.float32), count=spaces.Discrete(100))
    action_space = spaces.Discrete(3)

    def __init__(self, length: int = 3, render_mode: str | None = None) -> None:
        self.length, self.render_mode = length, render_mode
        self.colour = "red"
        self.unpicklable = (one for one in ())
        self.crashes = 0  # how many resets
        self.t = self.episode = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        if self.crashes:
            self.crashes -= 1
            raise ValueError("no reset today")
        self.t, self.episode = 0, self.episode + 1
        return self._observe(), {"episode_number": self.episode, "given": repr(options)}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if action == CRASH:
            raise ValueError("no step today")
        self.crashes = self.crashes or int(action == CRASH_IN_RESET)
        self.t += 1
        info: dict[str, Any] = {"t": self.t, "deep": {"half": self.t / 2}, "row": np.arange(3) + self.t, "word": "yes"}
        if self.t == 2:
            info["is_success"] = True
        return self._observe(), self.t / 3, self.t >= self.length, False, info

    def render(self) -> np.ndarray:
        return np.full((4, 6, 3), self.t, np.uint8)

    def repeat(self, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        return args, kwargs

    def process_id(self) -> int:
        return os.getpid()

    def modules(self, *names: str) -> list[str]:
        return [name for name in names if name in sys.modules]

    def _observe(self) -> dict[str, Any]:
        return {"place": self.np_random.uniform(-1, 1, 2).astype(np.float32), "count": self.t}


class InterruptingEnv(TalkativeEnv):
    """Sends Ctrl-C to a process, once, in the middle of a step."""

    target: int | None = None

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        target, self.target = self.target, None
        if target is not None:
            os.kill(target, signal.SIGINT)
        return super().step(action)
