"""Draws docs/images/zoo-atari.png: ``python -m docs.images.zoo_atari``. Needs ale-py and OpenCV.

One row per game: its screen, and the four frames of the observation at that moment.
"""

from pathlib import Path

import cv2
import numpy as np

import stepmill

GAMES = {"Pong-v5": 190, "Breakout-v5": 60, "Seaquest-v5": 90, "MsPacman-v5": 120}
HEIGHT, GAP = 210, 12


def row(id: str, steps: int) -> np.ndarray:
    """A game after some steps of random play."""
    with stepmill.make(id, num_envs=1, seed=7) as pool:
        observation, _ = pool.reset()
        pool.single_action_space.seed(1)
        for _ in range(steps):
            observation, *_ = pool.step([pool.single_action_space.sample()])
        (screen,) = pool.render()
    screen = cv2.resize(screen, (int(HEIGHT * 4 / 3), HEIGHT), interpolation=cv2.INTER_NEAREST)  # as on a television
    frames = [cv2.resize(one, (HEIGHT, HEIGHT), interpolation=cv2.INTER_NEAREST) for one in observation[0]]
    return beside([screen, *(np.repeat(one[:, :, None], 3, 2) for one in frames)], axis=1)


def beside(pictures: list[np.ndarray], axis: int) -> np.ndarray:
    """Pictures with white gaps between them."""
    shape = list(pictures[0].shape)
    shape[axis] = GAP
    gap = np.full(shape, 255, np.uint8)
    parts = [part for picture in pictures for part in (gap, picture)][1:]
    return np.concatenate(parts, axis)


if __name__ == "__main__":
    picture = beside([row(id, steps) for id, steps in GAMES.items()], axis=0)
    cv2.imwrite(str(Path(__file__).parent / "zoo-atari.png"), cv2.cvtColor(picture, cv2.COLOR_RGB2BGR))
