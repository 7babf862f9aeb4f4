"""The worlds of Moving and Sliding: actions, how the agent moves, and how an episode ends.

In a step the action acts on speed or heading, then the agent moves for ``SECONDS``:

========== ============================================ ==============================================
action     Moving                                       Sliding
========== ============================================ ==============================================
accelerate faster, along the heading                    a push along the heading, added to the velocity
turn       heading and movement turn together           only the heading turns
brake      slower, down to rest                         slower, down to rest
else       keeps its speed                              loses some speed in every step
========== ============================================ ==============================================

The native envs (``cpp/envs/hybrid``) are equal to these bit for bit.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from stepmill.errors import ActionError, ActionTypeError
from stepmill.values.arguments import one_of, real_number, whole_number

Point = tuple[float, float]

SECONDS = 0.1  # of one step
ACCELERATION = 1.0  # at full power, in lengths per second per second; the field is 2 lengths wide
DECELERATION = 2.0  # of the brake
MAX_SPEED = 1.0
MAX_TURN = math.pi / 2  # of one step
DRAG = 0.5  # the share of its velocity that Sliding loses per second
REST = 1e-9  # what rounding leaves of a speed that should be 0


@dataclass(frozen=True)
class Rules:
    """The settings of the world."""

    time_limit: int = 200  # steps of an episode
    target_radius: float = 0.1  # of the circle to stop in
    penalty: float = 0.001  # subtracted from the reward of every step, so that sooner is better

    def __post_init__(self) -> None:
        whole_number("hybrid env: time_limit", self.time_limit, 1)
        real_number("hybrid env: target_radius", self.target_radius, 0.01, 0.5)
        real_number("hybrid env: penalty", self.penalty, 0, 1)


# ---- actions -------------------------------------------------------------------------------------
#
# A choice of three, and the numbers that go with it. There are two forms with the same meaning:
#
#     (kind, power, angle)                                        three arrays, a Tuple space
#     {"action_type": kind, "action_args": [power, angle]}        one choice, one array of all its arguments
#
# All arguments are given for every choice; the env uses only those of the chosen kind. A power or an angle outside its
# bounds counts as the bound, because a policy that samples from a normal distribution exceeds them now and then.

ACCELERATE, TURN, BRAKE = range(3)


class HybridAction(NamedTuple):
    """One action, with its numbers within bounds."""

    kind: int
    power: float  # of ACCELERATE, from 0 to 1
    angle: float  # of TURN, from -1 (right) to 1 (left)


def action_space(owner: str, form: str) -> spaces.Space[Any]:
    """The space of one of the two forms."""
    one_of(f"{owner}: action_form", form, ("tuple", "dict"))
    kinds = spaces.Discrete(3)
    if form == "tuple":
        return spaces.Tuple((kinds, spaces.Box(0, 1, (1,), np.float32), spaces.Box(-1, 1, (1,), np.float32)))
    arguments = spaces.Box(np.array([0, -1], np.float32), np.array([1, 1], np.float32))
    return spaces.Dict({"action_type": kinds, "action_args": arguments})


def read_action(owner: str, form: str, action: Any) -> HybridAction:
    """An action of that form, or an error that says what it should have been."""
    if form == "tuple":
        if not isinstance(action, tuple | list) or len(action) != 3:
            raise ActionError(f"{owner}: action: expected (kind, power, angle), got {action!r}")
        kind, *arguments = action
    else:
        if not isinstance(action, Mapping) or not {"action_type", "action_args"} <= action.keys():
            raise ActionError(f"{owner}: action: expected a dict with action_type and action_args, got {action!r}")
        kind, arguments = action["action_type"], action["action_args"]
    try:
        numbers = np.asarray(arguments, np.float64)
    except (TypeError, ValueError):
        raise ActionTypeError(f"{owner}: action: expected a power and an angle, got {arguments!r}") from None
    if numbers.size != 2 or not np.isfinite(numbers).all():
        raise ActionError(f"{owner}: action: expected a power and an angle, two finite numbers, got {arguments!r}")
    number = np.asarray(kind)
    if number.dtype.kind not in "iu" or number.size != 1:
        raise ActionTypeError(f"{owner}: action: expected one whole number as its kind, got {kind!r}")
    if number.item() not in (ACCELERATE, TURN, BRAKE):
        raise ActionError(f"{owner}: action: expected 0 (accelerate), 1 (turn) or 2 (brake), got {number.item()}")
    power, angle = numbers.ravel().tolist()
    return HybridAction(number.item(), min(max(power, 0.0), 1.0), min(max(angle, -1.0), 1.0))


# ---- the world -----------------------------------------------------------------------------------


class Start(NamedTuple):
    """How an episode starts. The agent rests; a heading of 0 points along x, one of pi / 2 along y."""

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
        if _length(at_x - x, at_y - y) > 2 * rules.target_radius:
            return Start((float(at_x), float(at_y)), float(heading), (float(x), float(y)))


class World(ABC):
    """One episode. It is over when the agent rests in the target, leaves the field, or is out of time."""

    def __init__(self, start: Start, rules: Rules) -> None:
        self.rules = rules
        self.position, self.heading, self.target = start
        self.velocity = (0.0, 0.0)
        self.steps = 0
        self.action: HybridAction | None = None  # the last one, for the picture
        self.path = [start.position]  # every position so far, for the picture

    def step(self, action: HybridAction) -> float:
        """Applies the action, moves, and returns the reward."""
        before = self.distance
        self.velocity = self._drive(action)
        self.position = (self.position[0] + self.velocity[0] * SECONDS, self.position[1] + self.velocity[1] * SECONDS)
        self.steps, self.action = self.steps + 1, action
        self.path.append(self.position)
        return before - self.distance - self.rules.penalty + self.succeeded - self.outside

    @abstractmethod
    def _drive(self, action: HybridAction) -> tuple[float, float]:
        """Turns the heading if the action does, and returns the velocity after the action."""

    @property
    def distance(self) -> float:
        """The distance from the centre of the target."""
        return _length(self.position[0] - self.target[0], self.position[1] - self.target[1])

    @property
    def inside(self) -> bool:
        """The agent is in the target, moving or not."""
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
        """The time that is left, from 1 at the start to 0."""
        return 1 - self.steps / self.rules.time_limit

    @property
    def out_of_time(self) -> bool:
        """The last step has been taken."""
        return self.steps >= self.rules.time_limit

    @property
    def over(self) -> bool:
        """Whether the episode is over."""
        return self.succeeded or self.outside or self.out_of_time

    def observe(self) -> NDArray[np.float32]:
        """The 11 numbers that ``FieldEnv`` lists."""
        heading = (math.sin(self.heading), math.cos(self.heading))
        rest = (self.distance, self.inside, self.time_left)
        return np.array([*self.position, *self.velocity, *heading, *self.target, *rest], np.float32)


def observation_space() -> spaces.Space[NDArray[np.float32]]:
    """The bounds of the 11 numbers of ``World.observe``."""
    reach = 1 + MAX_SPEED * SECONDS  # the farthest position of a step that leaves the field
    high = [reach, reach, MAX_SPEED, MAX_SPEED, 1.0, 1.0, 1.0, 1.0, math.hypot(1 + reach, 1 + reach), 1.0, 1.0]
    low = [*(-value for value in high[:8]), 0.0, 0.0, 0.0]
    return spaces.Box(np.array(low, np.float32), np.array(high, np.float32))


class MovingWorld(World):
    """The agent moves where it faces: only its speed has inertia."""

    def _drive(self, action: HybridAction) -> tuple[float, float]:
        speed = _length(*self.velocity)
        if action.kind == ACCELERATE:
            speed = min(speed + action.power * ACCELERATION * SECONDS, MAX_SPEED)
        elif action.kind == TURN:
            self.heading += action.angle * MAX_TURN
        else:
            speed = _braked(speed)
        return speed * math.cos(self.heading), speed * math.sin(self.heading)


class SlidingWorld(World):
    """The agent slides: turning changes where the next push goes, not where it moves."""

    def _drive(self, action: HybridAction) -> tuple[float, float]:
        x, y = (part * (1 - DRAG * SECONDS) for part in self.velocity)
        if action.kind == TURN:
            self.heading += action.angle * MAX_TURN
            return x, y
        if action.kind == BRAKE:
            return _with_speed(x, y, _braked(_length(x, y)))
        push = action.power * ACCELERATION * SECONDS
        x, y = x + push * math.cos(self.heading), y + push * math.sin(self.heading)
        return _with_speed(x, y, min(_length(x, y), MAX_SPEED))


def _length(x: float, y: float) -> float:
    """A length. ``math.hypot`` depends on the version of Python in its last bit: native envs could not be equal."""
    return math.sqrt(x * x + y * y)


def _braked(speed: float) -> float:
    left = speed - DECELERATION * SECONDS
    return left if left > REST else 0.0


def _with_speed(x: float, y: float, speed: float) -> tuple[float, float]:
    """A vector of that direction and length."""
    length = _length(x, y)
    return (x * speed / length, y * speed / length) if length > 0 else (0.0, 0.0)
