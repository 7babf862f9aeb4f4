"""Moving and Sliding as Gymnasium envs and as a ``BaseEnv``, and how their native versions are drawn."""

from __future__ import annotations

import copy
import functools
import itertools
import math
from dataclasses import asdict, fields
from typing import Any, ClassVar

import gymnasium
import numpy as np
from numpy.typing import NDArray

from stepmill.envs.base_env import BaseEnv
from stepmill.envs.configs import read_cfg
from stepmill.envs.timestep import BaseEnvTimestep
from stepmill.errors import ConfigError, NeedsResetError, ResetOptionError
from stepmill.sources.drawing import Scene
from stepmill.sources.source import NativeSource
from stepmill.values.arguments import one_of
from stepmill.zoo.hybrid.world import (
    ACCELERATE,
    BRAKE,
    HybridAction,
    MovingWorld,
    Point,
    Rules,
    SlidingWorld,
    Start,
    World,
    action_space,
    draw_start,
    observation_space,
    read_action,
)


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


class FieldDrawer:
    """Draws native envs: their numbers become a ``World``. A ``Drawer``, see ``stepmill.sources.drawing``.

    ``Field::picture`` in ``cpp/envs/hybrid/field.h`` says what the numbers are.
    """

    def __init__(self, source: NativeSource) -> None:
        pass  # the numbers say everything

    @classmethod
    def render_modes(cls) -> list[str]:
        return list(FieldEnv.metadata["render_modes"])

    @classmethod
    def metadata(cls, source: NativeSource) -> dict[str, Any]:
        return copy.deepcopy(FieldEnv.metadata)

    def draw(self, scene: Scene) -> Any:
        limit, radius, penalty, x, y, heading, vx, vy, steps, kind, power, angle, *path = scene.numbers
        positions = list(zip(path[::2], path[1::2], strict=True))
        # A picture does not depend on how the agent moves: either world will do.
        world = MovingWorld(Start(positions[-1], heading, (x, y)), Rules(int(limit), radius, penalty))
        world.velocity, world.steps, world.path = (vx, vy), int(steps), positions
        world.action = HybridAction(int(kind), power, angle) if kind >= 0 else None
        return draw(world)

    def close(self) -> None:
        """Nothing lives outside this process's memory."""


# ---- the picture, painted with numpy alone: thick lines with smooth edges ------------------------

SIZE, REACH = 400, 1.16  # pixels, and how far the world is shown: the field and a margin, in which the clock is
MARGIN, FIELD, GRID, EDGE = (226, 228, 234), (250, 250, 252), (234, 236, 242), (178, 184, 198)
CLOCK, CLOCK_BACK = (110, 118, 140), (206, 210, 220)
AGENT, TRAIL, FLAME, BRAKE_LIGHT = (58, 92, 214), (132, 154, 230), (255, 150, 46), (224, 40, 56)
TARGET, FAILURE = (38, 168, 112), (214, 60, 60)

Colour = tuple[int, int, int]


def draw(world: World) -> NDArray[np.uint8]:
    """The world as an RGB array, (400, 400, 3).

    The target is green, filled once the agent has stopped in it. The agent is a blue arrowhead with a fading trail;
    a flame shows the power of an acceleration, red lights show the brake. The bar below is the time left. A red
    frame: the agent left the field.
    """
    picture = _empty_field().copy()
    left = 1.96 * world.time_left - 0.98
    if world.time_left > 0:
        _line(picture, (-0.98, -1.08), (left, -1.08), 0.036, CLOCK)
    _draw_target(picture, world)
    if world.outside:
        _frame(picture, 0.022, FAILURE)
    path = world.path[-60:]
    for i, (start, end) in enumerate(itertools.pairwise(path), start=1):
        _line(picture, start, end, 0.018, TRAIL, 0.1 + 0.8 * i / len(path))
    _draw_agent(picture, world)
    return np.rint(picture).astype(np.uint8)


@functools.cache
def _empty_field() -> NDArray[np.float32]:
    picture = np.full((SIZE, SIZE, 3), MARGIN, np.float32)
    low, high = (round((1 + place / REACH) / 2 * SIZE) for place in (-1, 1))
    picture[low:high, low:high] = FIELD
    for place in np.arange(-0.75, 1, 0.25).tolist():
        _line(picture, (place, -1), (place, 1), 0.006, GRID)
        _line(picture, (-1, place), (1, place), 0.006, GRID)
    _frame(picture, 0.012, EDGE)
    _line(picture, (-0.98, -1.08), (0.98, -1.08), 0.036, CLOCK_BACK)
    return picture


def _draw_target(picture: NDArray[np.float32], world: World) -> None:
    diameter, ring = 2 * world.rules.target_radius, 0.032
    filled = 0.85 if world.succeeded else 0.35 if world.inside else 0.16
    _line(picture, world.target, world.target, diameter + ring / 2, TARGET)
    _line(picture, world.target, world.target, diameter - ring / 2, FIELD)
    _line(picture, world.target, world.target, diameter - ring / 2, TARGET, filled)
    _line(picture, world.target, world.target, 0.028, TARGET)


def _draw_agent(picture: NDArray[np.float32], world: World) -> None:
    (x, y), action = world.position, world.action
    cosine, sine = math.cos(world.heading), math.sin(world.heading)

    def place(ahead: float, left: float) -> Point:
        """The point that is this far ahead of the agent's centre and this far to its left."""
        return x + ahead * cosine - left * sine, y + ahead * sine + left * cosine

    if action is not None and action.kind == ACCELERATE and action.power > 0:
        _line(picture, place(-0.04, 0), place(-0.07 - 0.11 * action.power, 0), 0.03, FLAME)
    for side in (1, -1):  # an arrowhead
        _line(picture, place(0.08, 0), place(-0.06, 0.05 * side), 0.04, AGENT)
    _line(picture, place(0.06, 0), place(-0.02, 0), 0.05, AGENT)
    if action is not None and action.kind == BRAKE:
        for side in (1, -1):
            _line(picture, place(-0.064, 0.054 * side), place(-0.064, 0.054 * side), 0.04, BRAKE_LIGHT)


def _frame(picture: NDArray[np.float32], width: float, colour: Colour) -> None:
    corners = [(-1.0, -1.0), (1.0, -1.0), (1.0, 1.0), (-1.0, 1.0), (-1.0, -1.0)]
    for start, end in itertools.pairwise(corners):
        _line(picture, start, end, width, colour)


def _line(
    picture: NDArray[np.float32], start: Point, end: Point, width: float, colour: Colour, alpha: float = 1.0
) -> None:
    """A line with round ends; a disc, if it ends where it starts. A pixel takes as much colour as it is covered."""
    pixel = 2 * REACH / SIZE
    (x0, y0), (x1, y1) = (((x + REACH) / pixel - 0.5, (REACH - y) / pixel - 0.5) for x, y in (start, end))
    radius = width / 2 / pixel
    rows = np.arange(max(0, int(min(y0, y1) - radius)), min(SIZE, int(max(y0, y1) + radius) + 2), dtype=np.float32)
    columns = np.arange(max(0, int(min(x0, x1) - radius)), min(SIZE, int(max(x0, x1) + radius) + 2), dtype=np.float32)
    if not rows.size or not columns.size:
        return
    x, y = columns[None, :] - x0, rows[:, None] - y0
    dx, dy = x1 - x0, y1 - y0
    along = np.clip((x * dx + y * dy) / max(dx * dx + dy * dy, 1e-9), 0, 1)
    cover = np.clip(radius + 0.5 - np.hypot(x - along * dx, y - along * dy), 0, 1) * alpha
    part = picture[int(rows[0]) : int(rows[-1]) + 1, int(columns[0]) : int(columns[-1]) + 1]
    part += (np.array(colour, np.float32) - part) * cover[..., None]
