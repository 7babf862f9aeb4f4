"""An env whose videos can be read: each frame shows the count of its step."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from gymnasium import spaces

from stepmill.envs.base_env import BaseEnv
from stepmill.envs.timestep import BaseEnvTimestep
from support.processes import descendants

BITS, BLOCK = 6, 16


class CountingEnv(BaseEnv):
    """Counts its steps, and draws the count: a column of blocks for each bit, white where it is set."""

    observation_space = spaces.Box(0, np.inf, (1,), np.float32)
    action_space = spaces.Discrete(2)
    metadata = {"render_fps": 20}  # noqa: RUF012

    def __init__(self, cfg: dict[str, Any] | None = None) -> None:
        super().__init__(cfg or {})
        self.length = self._cfg.get("length", 3)
        self.size = self._cfg.get("size", (2 * BLOCK, BITS * BLOCK))
        self.fails_at = self._cfg.get("fails_at")
        self.count = self.num_renders = 0
        self.is_built = self.is_closed = False

    def reset(self, **kwargs: Any) -> np.ndarray:
        self.is_built, self.count = True, 0
        return np.zeros(1, np.float32)

    def step(self, action: Any) -> BaseEnvTimestep:
        self.count += 1
        if self.count == self.fails_at:
            raise ValueError("broken")
        info = {"eval_episode_return": 0.0, "final_eval_reward": 0.0}
        return BaseEnvTimestep(
            np.full(1, self.count, np.float32), np.ones(1, np.float32), self.count == self.length, info
        )

    def render(self) -> Any:
        self.num_renders += 1
        image = np.zeros((*self.size, 3), np.uint8)
        for bit in range(BITS):
            image[:, bit * BLOCK : (bit + 1) * BLOCK] = 255 * (self.count >> bit & 1)
        return image

    def close(self) -> None:
        self.is_closed = True


def recording(folder: Path, **cfg: Any) -> CountingEnv:
    env = CountingEnv(cfg)
    env.enable_save_replay(str(folder))
    return env


def play(env: BaseEnv, num_steps: int = 3) -> None:
    env.reset()
    for _ in range(num_steps):
        env.step(np.array(1))


def frames(path: Path) -> list[np.ndarray]:
    """All frames of a video as BGR, read by another decoder than the one that wrote them."""
    video = cv2.VideoCapture(str(path))
    images = []
    while (image := video.read()[1]) is not None:
        images.append(image)
    video.release()
    return images


def counts(path: Path) -> list[int]:
    """What ``CountingEnv`` drew in each frame."""
    centres = BLOCK // 2 + BLOCK * np.arange(BITS)
    return [sum(1 << bit for bit, x in enumerate(centres) if image[BLOCK, x].mean() > 128) for image in frames(path)]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def ffmpegs(root: int | None = None) -> set[int]:
    return {pid for pid in descendants(root) if "ffmpeg" in os.readlink(f"/proc/{pid}/exe")}
