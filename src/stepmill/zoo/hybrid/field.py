"""Hybrid actions: accelerate with a power, turn by an angle, or brake, and stop in the target.

``MovingEnv`` and ``SlidingEnv`` are Gymnasium envs, ``HybridEnv`` is either of them as a ``BaseEnv``. The ids
``Moving-v0`` and ``Sliding-v0`` run the same envs natively (``cpp/envs/hybrid``), equal bit for bit. In a step the
action acts on speed or heading, then the agent moves for ``SECONDS``:

========== ============================================ ==============================================
action     Moving                                       Sliding
========== ============================================ ==============================================
accelerate faster, along the heading                    a push along the heading, added to the velocity
turn       heading and movement turn together           only the heading turns
brake      slower, down to rest                         slower, down to rest
else       keeps its speed                              loses some speed in every step
========== ============================================ ==============================================
"""

from __future__ import annotations

import functools
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar, NamedTuple

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from stepmill.envs.base_env import BaseEnv
from stepmill.envs.configs import read_cfg
from stepmill.envs.timestep import BaseEnvTimestep
from stepmill.errors import ActionError, ActionTypeError, ConfigError, NeedsResetError, ResetOptionError
from stepmill.values.arguments import one_of, real_number, whole_number
from stepmill.zoo.canvas import Canvas, Point

__all__ = ["HybridEnv", "MovingEnv", "SlidingEnv"]

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
    """Not ``math.hypot``, whose last bit depends on the version of Python: the native envs could not be equal to it."""
    return math.sqrt(x * x + y * y)


def _braked(speed: float) -> float:
    left = speed - DECELERATION * SECONDS
    return left if left > REST else 0.0


def _with_speed(x: float, y: float, speed: float) -> tuple[float, float]:
    """A vector of that direction and length."""
    length = _length(x, y)
    return (x * speed / length, y * speed / length) if length > 0 else (0.0, 0.0)


# ---- the envs ------------------------------------------------------------------------------------


class FieldEnv(gymnasium.Env[NDArray[np.float32], Any]):
    """What Moving and Sliding share: everything but the way the agent moves.

    - Observation: position (2), velocity (2), sine and cosine of the heading, target (2), distance to its middle,
      whether the agent is inside it, time left (1 down to 0).
    - Action: ``(kind, power, angle)``, kind 0 accelerates with a power, 1 turns by an angle, 2 brakes; or the same
      as a dict (``action_form="dict"``).
    - Reward: how much nearer the agent came, less a small penalty. 1 more for stopping in the target, which ends the
      episode; 1 less for leaving the field, which ends it too.
    - Truncated after ``time_limit`` steps, beside an end of its own on the last one.
    - ``info["is_success"]`` on every step: the agent stopped in the target.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 20}  # noqa: RUF012  (read only)
    _world_class: ClassVar[type[World]]

    def __init__(
        self,
        render_mode: str | None = None,
        *,
        action_form: str = "tuple",
        time_limit: int = 200,
        target_radius: float = 0.1,
        penalty: float = 0.001,
    ) -> None:
        self._name = type(self).__name__
        if render_mode not in (None, "rgb_array"):
            raise ConfigError(f"{self._name}: render_mode: expected None or 'rgb_array', got {render_mode!r}")
        self.render_mode = render_mode
        self._rules = Rules(time_limit, target_radius, penalty)
        self._form = action_form
        self._world: World | None = None
        self.observation_space = observation_space()
        self.action_space = action_space(self._name, action_form)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """Starts an episode. It has no options."""
        super().reset(seed=seed)
        self._world = self._world_class(draw_start(self.np_random, self._rules), self._rules)
        return self._world.observe(), {"is_success": False}

    def step(self, action: Any) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        """Takes one action; an error leaves the world unchanged."""
        world = self._running("step")
        if world.over:
            raise NeedsResetError(f"{self._name}: step: the episode is over, call reset first")
        reward = world.step(read_action(self._name, self._form, action))
        terminated = world.succeeded or world.outside
        return world.observe(), reward, terminated, world.out_of_time, {"is_success": world.succeeded}

    def render(self) -> NDArray[np.uint8] | None:
        """A picture of the current state; None if ``render_mode`` is None."""
        return None if self.render_mode is None else draw(self._running("render"))

    def _running(self, call: str) -> World:
        if self._world is None:
            raise NeedsResetError(f"{self._name}: {call}: call reset first")
        return self._world


class MovingEnv(FieldEnv):
    """An agent that moves where it faces must stop in the target. ``FieldEnv`` describes the rest."""

    _world_class = MovingWorld


class SlidingEnv(FieldEnv):
    """An agent that keeps sliding when it turns must stop in the target. ``FieldEnv`` describes the rest."""

    _world_class = SlidingWorld


_ENVS: dict[str, type[FieldEnv]] = {"Moving": MovingEnv, "Sliding": SlidingEnv}


class HybridEnv(BaseEnv):
    """Moving or Sliding as a ``BaseEnv``.

    The cfg has ``env_id``, ``"Moving"`` or ``"Sliding"``. It may have ``action_form``, ``"dict"`` (the default) or
    ``"tuple"``; ``time_limit``, ``target_radius`` and ``penalty``, see ``Rules``; and ``replay_path``, a folder for a
    video of every episode.

    ``eval_episode_return`` is the sum of the rewards, ``info["is_success"]`` whether the agent stopped in the target.
    """

    metadata = FieldEnv.metadata

    def __init__(self, cfg: Any) -> None:
        super().__init__(cfg)
        settings = read_cfg("HybridEnv", cfg, ["env_id"], {"action_form": "dict", "replay_path": None})
        self._kind = settings["env_id"]
        one_of("HybridEnv: env_id", self._kind, list(_ENVS))
        self._form = settings["action_form"]
        self._rules = Rules(**{one.name: settings[one.name] for one in fields(Rules) if one.name in settings})
        self.observation_space = observation_space()
        self.action_space = action_space("HybridEnv", self._form)
        self._env: FieldEnv | None = None
        self._return = 0.0
        if settings["replay_path"] is not None:
            self.enable_save_replay(settings["replay_path"])

    def __repr__(self) -> str:
        return f"HybridEnv({self._kind}, env_id={self.env_id})"

    def reset(self, **kwargs: Any) -> NDArray[np.float32]:
        """Starts an episode; it has no arguments."""
        if kwargs:
            raise ResetOptionError(f"HybridEnv: reset: expected no arguments, got {', '.join(kwargs)}")
        if self._env is None:
            self._env = _ENVS[self._kind]("rgb_array", action_form=self._form, **asdict(self._rules))
        self._return = 0.0
        return self._env.reset(seed=self._next_seed())[0]

    def step(self, action: Any) -> BaseEnvTimestep:
        """Takes one action, in the form of the cfg."""
        observation, reward, terminated, truncated, info = self._built("step").step(action)
        self._return += reward
        done = terminated or truncated
        if done:
            info["TimeLimit.truncated"] = not terminated
            info["eval_episode_return"] = info["final_eval_reward"] = self._return
        return BaseEnvTimestep(observation, np.array([reward], np.float32), done, info)

    def render(self) -> Any:
        return self._built("render").render()

    def close(self) -> None:
        """Frees the world; a later reset makes a new one."""
        self._env = None

    def _built(self, call: str) -> FieldEnv:
        if self._env is None:
            raise NeedsResetError(f"HybridEnv: {call}: call reset first")
        return self._env


# ---- the picture ---------------------------------------------------------------------------------

MARGIN, FIELD, GRID, EDGE = (226, 228, 234), (250, 250, 252), (234, 236, 242), (178, 184, 198)
CLOCK, CLOCK_BACK, SHADOW = (110, 118, 140), (206, 210, 220), (52, 60, 84)
AGENT, COCKPIT, TRAIL = (58, 92, 214), (214, 226, 255), (132, 154, 230)
FLAME, BRAKE_LIGHT = (255, 150, 46), (224, 40, 56)
TARGET, FAILURE = (38, 168, 112), (214, 60, 60)


def draw(world: World) -> NDArray[np.uint8]:
    """The world as an RGB array, (400, 400, 3).

    The target is green, filled once the agent has stopped in it. The agent is a blue arrowhead with a fading trail;
    a flame shows the power of an acceleration, red lights show the brake. The bar below is the time left. A red
    frame: the agent left the field.
    """
    canvas = _empty_field().copy()
    canvas.bar(-1.08, 0.036, world.time_left, CLOCK, CLOCK_BACK)
    radius = world.rules.target_radius
    canvas.disc(world.target, radius, TARGET, 0.85 if world.succeeded else 0.35 if world.inside else 0.16)
    canvas.ring(world.target, radius, 0.016, TARGET)
    canvas.disc(world.target, 0.014, TARGET)
    if world.outside:
        canvas.frame((-1, -1), (1, 1), 0.022, FAILURE)
    canvas.trail(world.path[-60:], 0.018, TRAIL, oldest=0.1, newest=0.9)
    _draw_agent(canvas, world)
    return canvas.picture()


@functools.cache
def _empty_field() -> Canvas:
    canvas = Canvas(400, 400, MARGIN, reach=1.16)  # the field and a margin, in which the clock is
    canvas.box((-1, -1), (1, 1), FIELD)
    canvas.grid(1, 0.25, 0.006, GRID)
    canvas.frame((-1, -1), (1, 1), 0.012, EDGE)
    return canvas


def _draw_agent(canvas: Canvas, world: World) -> None:
    (x, y), action = world.position, world.action
    cosine, sine = math.cos(world.heading), math.sin(world.heading)

    def place(ahead: float, left: float) -> Point:
        """The point that is this far ahead of the agent's centre and this far to its left."""
        return x + ahead * cosine - left * sine, y + ahead * sine + left * cosine

    canvas.disc((x + 0.008, y - 0.018), 0.055, SHADOW, 0.35, blur=0.07)
    if action is not None and action.kind == ACCELERATE and action.power > 0:
        length = 0.03 + 0.11 * action.power
        canvas.polygon([place(-0.04, 0.024), place(-0.04 - length, 0), place(-0.04, -0.024)], FLAME, rounding=0.008)
    # An arrowhead is two convex halves; they overlap a little, so that no seam shows.
    for side in (1, -1):
        half = [place(0.085, 0), place(-0.065, 0.06 * side), place(-0.035, -0.004 * side)]
        canvas.polygon(half[::side], AGENT, rounding=0.012)
    canvas.disc(place(0.012, 0), 0.016, COCKPIT)
    if action is not None and action.kind == BRAKE:
        for side in (1, -1):
            canvas.disc(place(-0.064, 0.054 * side), 0.02, BRAKE_LIGHT)
