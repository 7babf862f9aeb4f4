"""Moving and Sliding as Gymnasium envs, and both as a ``BaseEnv``."""

from __future__ import annotations

from dataclasses import asdict, fields
from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from stepmill.arguments import one_of
from stepmill.envs.base_env import BaseEnv
from stepmill.envs.configs import read_cfg
from stepmill.envs.timestep import BaseEnvTimestep
from stepmill.errors import ConfigError, NeedsResetError, ResetOptionError
from stepmill.zoo.hybrid.actions import action_space, read_action
from stepmill.zoo.hybrid.drawing import draw
from stepmill.zoo.hybrid.rules import Rules, draw_start
from stepmill.zoo.hybrid.world import MovingWorld, SlidingWorld, World, observation_bounds

__all__ = ["FieldEnv", "HybridEnv", "MovingEnv", "SlidingEnv"]


def _observation_space() -> spaces.Space[NDArray[np.float32]]:
    low, high = observation_bounds()
    return spaces.Box(np.array(low, np.float32), np.array(high, np.float32))


class FieldEnv(gymnasium.Env[NDArray[np.float32], Any]):
    """What Moving and Sliding share: all but the way the agent moves.

    - Observation: position (2), velocity (2), sine and cosine of the heading, target (2), distance to its middle,
      whether the agent is inside it, time left (1 down to 0).
    - Action: ``(kind, power, angle)``, kind 0 accelerates with a power, 1 turns by an angle, 2 brakes; or the same
      as a dict (``action_form="dict"``): ``actions.py`` has both.
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
        self.observation_space = _observation_space()
        self.action_space = action_space(self._name, action_form)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """Begins an episode. It takes no options."""
        super().reset(seed=seed)
        self._world = self._world_class(draw_start(self.np_random, self._rules), self._rules)
        return self._world.observe(), {"is_success": False}

    def step(self, action: Any) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        """Takes one action; an error leaves the world as it was."""
        world = self._running("step")
        if world.over:
            raise NeedsResetError(f"{self._name}: step: the episode is over, call reset first")
        reward = world.step(read_action(self._name, self._form, action))
        terminated = world.succeeded or world.outside
        return world.observe(), reward, terminated, world.out_of_time, {"is_success": world.succeeded}

    def render(self) -> NDArray[np.uint8] | None:
        """The picture of this moment; nothing where ``render_mode`` is None."""
        return None if self.render_mode is None else draw(self._running("render"))

    def _running(self, call: str) -> World:
        if self._world is None:
            raise NeedsResetError(f"{self._name}: {call}: expected a reset before it, got none")
        return self._world


class MovingEnv(FieldEnv):
    """An agent that moves where it looks must stop in the target. ``FieldEnv`` says the rest."""

    _world_class = MovingWorld


class SlidingEnv(FieldEnv):
    """An agent that slides on when it turns must stop in the target. ``FieldEnv`` says the rest."""

    _world_class = SlidingWorld


_ENVS: dict[str, type[FieldEnv]] = {"Moving": MovingEnv, "Sliding": SlidingEnv}


class HybridEnv(BaseEnv):
    """Moving or Sliding as a ``BaseEnv``.

    The cfg has ``env_id``, ``"Moving"`` or ``"Sliding"``, and may have

    - ``action_form``: ``"dict"`` (the default) or ``"tuple"``;
    - ``time_limit``, ``target_radius``, ``penalty``: see ``Rules``;
    - ``replay_path``: a folder for a video of every episode.

    ``eval_episode_return`` is the sum of the rewards, ``info["is_success"]`` whether the agent stopped in the target.
    """

    metadata = MovingEnv.metadata

    def __init__(self, cfg: Any) -> None:
        super().__init__(cfg)
        settings = read_cfg("HybridEnv", cfg, ["env_id"], {"action_form": "dict", "replay_path": None})
        self._kind = settings["env_id"]
        one_of("HybridEnv: env_id", self._kind, list(_ENVS))
        self._form = settings["action_form"]
        self._rules = Rules(**{one.name: settings[one.name] for one in fields(Rules) if one.name in settings})
        self.observation_space = _observation_space()
        self.action_space = action_space("HybridEnv", self._form)
        self._env: FieldEnv | None = None
        self._return = 0.0
        if settings["replay_path"] is not None:
            self.enable_save_replay(settings["replay_path"])

    def __repr__(self) -> str:
        """With the name of the world."""
        return f"HybridEnv({self._kind}, env_id={self.env_id})"

    def reset(self, **kwargs: Any) -> NDArray[np.float32]:
        """Begins an episode; it takes no arguments."""
        if kwargs:
            raise ResetOptionError(f"HybridEnv: reset: expected no arguments, got {', '.join(kwargs)}")
        if self._env is None:
            self._env = _ENVS[self._kind]("rgb_array", action_form=self._form, **asdict(self._rules))
        self._return = 0.0
        observation, _ = self._env.reset(seed=self._next_seed())
        return observation

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
        """The picture of this moment."""
        return self._built("render").render()

    def close(self) -> None:
        """Frees the world; a reset after it makes a new one."""
        self._env = None

    def _built(self, call: str) -> FieldEnv:
        if self._env is None:
            raise NeedsResetError(f"HybridEnv: {call}: expected a reset before it, got none")
        return self._env
