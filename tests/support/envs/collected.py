"""Envs to collect episodes of, and what is compared of the data sets."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

import stepmill

LEAVES = spaces.Dict(
    {
        "image": spaces.Box(0, 255, (33, 40), np.uint8),  # Minari would make a JPEG of it
        "half": spaces.Box(-1, 1, (2,), np.float16),
        "pair": spaces.Tuple([spaces.Discrete(5, start=-2), spaces.MultiBinary(3)]),
        "word": spaces.Text(8),
    }
)
ACTIONS = spaces.Tuple(
    [
        spaces.Discrete(4, start=1),
        spaces.Dict({"say": spaces.Text(5), "push": spaces.Box(-1, 1, (2,), np.float32)}),
        spaces.MultiDiscrete([3, 4]),
    ]
)


class Leaves(gymnasium.Env[Any, Any]):
    """Draws its observations, and how long an episode takes: 1 to 9 steps. The reward tells the action."""

    observation_space = LEAVES
    action_space = ACTIONS

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.left = int(self.np_random.integers(1, 10))
        return self.look(), {}

    def look(self) -> Any:
        draw = self.np_random
        return {
            "image": draw.integers(0, 256, (33, 40)).astype(np.uint8),
            "half": draw.uniform(-1, 1, 2).astype(np.float16),
            "pair": (int(draw.integers(-2, 3)), draw.integers(0, 2, 3).astype(np.int8)),
            "word": "".join(draw.choice(list("abc"), draw.integers(1, 9))),
        }

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        number, parts, many = action
        reward = float(number) + len(parts["say"]) / 10 + float(parts["push"].sum()) + int(many.sum()) * 100
        self.left -= 1
        return self.look(), reward, self.left == 0, False, {"more": 1}


@stepmill.per_env
def leaves_policy(obs: Any, generator: np.random.Generator) -> Any:
    """Depends on all that it may depend on."""
    number = int(generator.integers(1, 5))
    push = obs["half"].astype(np.float32) * generator.uniform(0, 1)
    return number, {"say": obs["word"][:5], "push": push}, generator.integers([3, 4])


class Fails(gymnasium.Env[Any, Any]):
    """Three steps. Envs with every third seed fail in the second, the first ``times`` times that they get this seed.

    Args:
        folder: Where it is noted how often a seed has failed.
        how: ``"raise"``, ``"exit"``, ``"kill"``, ``"reset"`` (raises there) or ``"abnormal"`` (its info says so).
        times: How often.
    """

    observation_space = spaces.Box(0, 2**31, (2,), np.float64)
    action_space = spaces.Discrete(2)

    def __init__(self, folder: str, how: str, times: int) -> None:
        self.folder, self.how, self.times = Path(folder), how, times

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        if seed is not None:
            self.seed = seed
        self.count = 0
        if self.how == "reset" and self.is_due():
            raise RuntimeError("does not start")
        return self.look(), {}

    def look(self) -> np.ndarray:
        return np.array([self.seed, self.count], np.float64)

    def is_due(self) -> bool:
        failures = self.folder / str(self.seed)
        if self.seed % 3 or (failures.exists() and failures.stat().st_size >= self.times):
            return False
        with open(failures, "a") as file:
            file.write("x")
        return True

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.count += 1
        info = {}
        if self.how != "reset" and self.count == 2 and self.is_due():
            if self.how == "exit":
                os._exit(3)
            if self.how == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            if self.how == "raise":
                raise RuntimeError("broke")
            info = {"abnormal": True}
        return self.look(), float(action), self.count == 3, False, info


def content(name: str) -> dict[str, bytes]:
    """The files of a data set: equal if all in it is equal."""
    folder = Path(os.environ["MINARI_DATASETS_PATH"]) / name / "data"
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def leftovers() -> list[str]:
    """What is beside the data sets."""
    return sorted(path.name for path in Path(os.environ["MINARI_DATASETS_PATH"]).rglob(".*"))
