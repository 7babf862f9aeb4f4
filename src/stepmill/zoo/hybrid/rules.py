"""What may be set in a hybrid world, and how its episodes begin."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from stepmill.arguments import real_number, whole_number
from stepmill.zoo.canvas import Point

__all__ = ["Rules", "Start", "draw_start"]


@dataclass(frozen=True)
class Rules:
    """What may be set.

    Attributes:
        time_limit: Steps of an episode.
        target_radius: Of the circle to stop in.
        penalty: Taken from the reward of every step, so that sooner is better.
    """

    time_limit: int = 200
    target_radius: float = 0.1
    penalty: float = 0.001

    def __post_init__(self) -> None:
        whole_number("hybrid env: time_limit", self.time_limit, 1)
        real_number("hybrid env: target_radius", self.target_radius, 0.01, 0.5)
        real_number("hybrid env: penalty", self.penalty, 0, 1)


class Start(NamedTuple):
    """How an episode begins. The agent rests; a heading of 0 looks along x, one of pi / 2 along y."""

    position: Point
    heading: float
    target: Point


def draw_start(random: np.random.Generator, rules: Rules) -> Start:
    """The whole target on the field, the agent clear of its circle."""
    inside = 1 - rules.target_radius
    x, y = random.uniform(-inside, inside, 2)
    heading = random.uniform(-math.pi, math.pi)
    while True:
        at_x, at_y = random.uniform(-0.9, 0.9, 2)
        if math.hypot(at_x - x, at_y - y) > 2 * rules.target_radius:
            return Start((float(at_x), float(at_y)), float(heading), (float(x), float(y)))
