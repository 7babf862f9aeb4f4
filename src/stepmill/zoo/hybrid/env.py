"""Moving and Sliding as Gymnasium envs and as a ``BaseEnv``, and how their native versions are drawn."""

from __future__ import annotations

import copy
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
from stepmill.zoo.hybrid.picture import draw
from stepmill.zoo.hybrid.world import (
    HybridAction,
    MovingWorld,
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
