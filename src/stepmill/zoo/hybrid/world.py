"""The worlds of Moving and Sliding: an agent on a square field, a target to stop in.

A step is: the action acts on speed or heading, then the agent moves for ``SECONDS``.

========== ============================================ ==============================================
action     Moving                                       Sliding
========== ============================================ ==============================================
accelerate faster, along the heading                    a push along the heading, added to the velocity
turn       heading and movement turn together           the heading turns, the movement goes on
brake      slower, down to rest                         slower, down to rest
else       keeps its speed                              loses some speed in every step
========== ============================================ ==============================================
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import numpy as np
from numpy.typing import NDArray

from stepmill.zoo.hybrid.actions import ACCELERATE, BRAKE, TURN, HybridAction
from stepmill.zoo.hybrid.rules import Rules, Start

__all__ = ["MovingWorld", "SlidingWorld", "World", "observation_bounds"]

SECONDS = 0.1  # of one step
ACCELERATION = 1.0  # at full power, in lengths a second a second; the field is 2 lengths wide
DECELERATION = 2.0  # of the brake
MAX_SPEED = 1.0
MAX_TURN = math.pi / 2  # of one step
DRAG = 0.5  # the share of its velocity that Sliding loses in a second
REST = 1e-9  # what rounding leaves of a speed that should be 0


class World(ABC):
    """One episode. It is over when the agent rests in the target, leaves the field, or is out of time."""

    def __init__(self, start: Start, rules: Rules) -> None:
        self.rules = rules
        self.position = start.position
        self.heading = start.heading
        self.velocity = (0.0, 0.0)
        self.target = start.target
        self.steps = 0
        self.action: HybridAction | None = None  # the last one, for the picture
        self.path = [start.position]  # every place so far, for the picture

    def step(self, action: HybridAction) -> float:
        """Acts, moves, and returns the reward."""
        before = self.distance
        self.velocity = self._drive(action)
        self.position = (self.position[0] + self.velocity[0] * SECONDS, self.position[1] + self.velocity[1] * SECONDS)
        self.steps += 1
        self.action = action
        self.path.append(self.position)
        return before - self.distance - self.rules.penalty + self.succeeded - self.outside

    @abstractmethod
    def _drive(self, action: HybridAction) -> tuple[float, float]:
        """Turns the heading where the action does, and returns the velocity after the action."""

    # ---- how it stands -----------------------------------------------------------------------

    @property
    def speed(self) -> float:
        """Lengths a second."""
        return math.hypot(*self.velocity)

    @property
    def distance(self) -> float:
        """From the middle of the target."""
        return math.dist(self.position, self.target)

    @property
    def inside(self) -> bool:
        """The agent is in the target, still or not."""
        return self.distance <= self.rules.target_radius

    @property
    def outside(self) -> bool:
        """The agent left the field."""
        return max(abs(self.position[0]), abs(self.position[1])) > 1

    @property
    def succeeded(self) -> bool:
        """The agent rests in the target."""
        return self.inside and self.velocity == (0.0, 0.0)

    @property
    def time_left(self) -> float:
        """From 1 at the start to 0."""
        return 1 - self.steps / self.rules.time_limit

    @property
    def out_of_time(self) -> bool:
        """The last step is taken."""
        return self.steps >= self.rules.time_limit

    @property
    def over(self) -> bool:
        """No step follows."""
        return self.succeeded or self.outside or self.out_of_time

    def observe(self) -> NDArray[np.float32]:
        """Position, velocity, sine and cosine of the heading, target, distance, inside, time left: 11 numbers."""
        heading = (math.sin(self.heading), math.cos(self.heading))
        rest = (self.distance, self.inside, self.time_left)
        return np.array([*self.position, *self.velocity, *heading, *self.target, *rest], np.float32)


def observation_bounds() -> tuple[list[float], list[float]]:
    """The lowest and the highest value of each number of an observation."""
    reach = 1 + MAX_SPEED * SECONDS  # where a step can lead that leaves the field
    high = [reach, reach, MAX_SPEED, MAX_SPEED, 1.0, 1.0, 1.0, 1.0, math.hypot(1 + reach, 1 + reach), 1.0, 1.0]
    return [*(-value for value in high[:8]), 0.0, 0.0, 0.0], high


class MovingWorld(World):
    """The agent moves where it looks: only its speed has inertia."""

    def _drive(self, action: HybridAction) -> tuple[float, float]:
        speed = self.speed
        if action.kind == ACCELERATE:
            speed = min(speed + action.power * ACCELERATION * SECONDS, MAX_SPEED)
        elif action.kind == TURN:
            self.heading += action.angle * MAX_TURN
        elif action.kind == BRAKE:
            speed = _braked(speed)
        return speed * math.cos(self.heading), speed * math.sin(self.heading)


class SlidingWorld(World):
    """The agent slides: turning changes where the next push goes, not where it moves."""

    def _drive(self, action: HybridAction) -> tuple[float, float]:
        x, y = (part * (1 - DRAG * SECONDS) for part in self.velocity)
        if action.kind == ACCELERATE:
            push = action.power * ACCELERATION * SECONDS
            x, y = x + push * math.cos(self.heading), y + push * math.sin(self.heading)
            return _with_speed(x, y, min(math.hypot(x, y), MAX_SPEED))
        if action.kind == TURN:
            self.heading += action.angle * MAX_TURN
        elif action.kind == BRAKE:
            return _with_speed(x, y, _braked(math.hypot(x, y)))
        return x, y


def _braked(speed: float) -> float:
    left = speed - DECELERATION * SECONDS
    return left if left > REST else 0.0


def _with_speed(x: float, y: float, speed: float) -> tuple[float, float]:
    """A vector of that direction and length."""
    length = math.hypot(x, y)
    return (x * speed / length, y * speed / length) if length > 0 else (0.0, 0.0)
