"""Draws the pictures of docs/zoo.md beside this file: ``python -m docs.images.zoo``. Needs OpenCV to write them."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from examples.worlds.courier import CourierEnv
from examples.worlds.courier.world import Verb, World
from examples.worlds.pursuit import PursuitEnv
from examples.worlds.pursuit.__main__ import flee

from stepmill.envs import BaseEnv
from stepmill.zoo.hybrid import HybridEnv


def save(name: str, env: BaseEnv, seed: int, steps: int, policy: Callable[[Any], Any]) -> None:
    """Plays some steps, then draws."""
    env.seed(seed, dynamic_seed=False)
    observation = env.reset()
    for _ in range(steps):
        observation, _, done, _ = env.step(policy(observation))
        assert not done, f"{name}: over too soon"
    cv2.imwrite(str(Path(__file__).parent / f"zoo-{name}.png"), cv2.cvtColor(env.render(), cv2.COLOR_RGB2BGR))


def drive(observation: np.ndarray) -> tuple[Any, ...]:
    """Moving: towards a point beside the target at first, so that the way is a curve."""
    x, y, _, _, sine, cosine, target_x, target_y, distance, *_ = observation.tolist()
    bearing = math.atan2(target_y - y, target_x - x) + 0.6 * min(distance, 1)
    error = math.remainder(bearing - math.atan2(sine, cosine), math.tau)
    if abs(error) > 0.12:
        return 1, [0.0], [max(-1.0, min(1.0, error / (math.pi / 2)))]
    return 0, [0.7], [0.0]


def deliver(world: World) -> Verb:
    """Courier: the shortest way to the target."""
    if world.way == 0:
        return Verb.HANDLE
    package = world.carried or next(one for one in world.waiting if one.origin == world.target)
    ways = package.to_address if world.carried else package.to_origin
    return Verb(min(range(4), key=lambda way: ways[world.town.neighbours[world.cell][way]]))


if __name__ == "__main__":
    save("moving", HybridEnv({"env_id": "Moving", "action_form": "tuple"}), 5, 19, drive)
    save("pursuit", PursuitEnv(), 3, 9, flee)
    courier = CourierEnv()
    save("courier", courier, 4, 27, lambda _: deliver(courier.world))
