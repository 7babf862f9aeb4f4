"""Draws zoo-doom.png beside this file: ``python -m docs.images.zoo_doom``. Needs ViZDoom and OpenCV.

Each row is one scenario: the screen, and the frames of the stacked observation, oldest first.
"""

from pathlib import Path

import cv2
import numpy as np

import stepmill

HEIGHT = 126  # of a row
GAP = 6
# Scenario, and the buttons that are held: an observation with movement shows the order of its frames.
SCENES = (
    ("Basic-v1", {"MOVE_RIGHT": 2, "ATTACK": 6}),
    ("DefendTheCenter-v1", {"TURN_LEFT": 12}),
    ("HealthGathering-v1", {"MOVE_FORWARD": 10}),
    ("D1Basic-v1", {"MOVE_FORWARD": 10}),  # grey: one channel per frame
)


def row(id: str, buttons: dict[str, int]) -> np.ndarray:
    with stepmill.make(id, backend="inline", num_envs=1, seed=3) as pool:
        (names,) = pool.call("button_names")
        observation, _ = pool.reset()
        for name, steps in buttons.items():
            for _ in range(steps):
                action = np.array([[float(one == name) for one in names]])
                observation, *_ = pool.step(action)
        screen = pool.render()[0]
    channels = len(observation[0]) // 4
    frames = [np.moveaxis(observation[0][i : i + channels], 0, -1) for i in range(0, 4 * channels, channels)]
    frames = [np.repeat(one, 3, axis=2) if channels == 1 else one for one in frames]
    shown = [cv2.resize(screen, (HEIGHT * screen.shape[1] // screen.shape[0], HEIGHT), interpolation=cv2.INTER_AREA)]
    shown += [cv2.resize(one, (HEIGHT, HEIGHT), interpolation=cv2.INTER_NEAREST) for one in frames]
    gap = np.full((HEIGHT, GAP, 3), 255, np.uint8)
    return np.hstack([part for one in shown for part in (one, gap)][:-1])


if __name__ == "__main__":
    rows = [row(*scene) for scene in SCENES]
    gap = np.full((GAP, rows[0].shape[1], 3), 255, np.uint8)
    picture = np.vstack([part for one in rows for part in (one, gap)][:-1])
    cv2.imwrite(str(Path(__file__).parent / "zoo-doom.png"), cv2.cvtColor(picture, cv2.COLOR_RGB2BGR))
