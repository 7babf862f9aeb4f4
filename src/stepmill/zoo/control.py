"""CartPole and Pendulum as the author of a ``BaseEnv`` would write them: examples to start your own env from.

For speed, use the native ``CartPole-v1`` and ``Pendulum-v1``: the same physics, bit for bit.
"""

from __future__ import annotations

from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium import spaces

from stepmill.envs.base_env import BaseEnv
from stepmill.envs.configs import read_cfg
from stepmill.envs.conform import action_reader
from stepmill.envs.timestep import BaseEnvTimestep
from stepmill.errors import UsageError
from stepmill.values.arguments import true_or_false

__all__ = ["CartPoleEnv", "PendulumEnv"]


class _OverGymnasium(BaseEnv):
    """A ``BaseEnv`` around one of Gymnasium's envs.

    ``cfg`` may have ``max_episode_steps``, and ``replay_path``: a folder for a video of every episode.
    """

    _id: ClassVar[str]
    _defaults: ClassVar[dict[str, Any]]

    def __init__(self, cfg: Any = None) -> None:
        # Only stores the configuration. A caller may want only the spaces, or send this object to another process.
        super().__init__({} if cfg is None else cfg)
        self._settings = read_cfg(type(self).__name__, self._cfg, (), {"replay_path": None, **self._defaults})
        self._env: Any = None
        self._return = 0.0
        if self._settings["replay_path"] is not None:
            self.enable_save_replay(self._settings["replay_path"])

    def reset(self, **kwargs: Any) -> np.ndarray[Any, Any]:
        # Built here, when it is needed. Pictures take time: the simulator draws only if videos are recorded.
        mode = None if self._replay_path is None else "rgb_array"
        if self._env is None or self._env.render_mode != mode:
            self.close()
            limit = self._settings["max_episode_steps"]
            self._env = gymnasium.make(self._id, render_mode=mode, max_episode_steps=limit)
            # Accepts arrays, lists and numbers; anything outside the action space is a clear error.
            self._read_action = action_reader(self.action_space, repr(self))
        # The seed of this episode, for this env only: never a global generator.
        observation, _ = self._env.reset(seed=self._next_seed(), options=kwargs or None)
        self._return = 0.0
        return np.array(observation, np.float32)

    def step(self, action: Any) -> BaseEnvTimestep:
        if self._env is None:
            raise UsageError(f"{self!r}: step before reset")
        choice = self._to_simulator(self._read_action(action))
        observation, reward, terminated, truncated, info = self._env.step(choice)
        self._return += float(reward)
        done = bool(terminated or truncated)
        if done:
            info = {
                **info,
                # How well the episode went; the second name is for older callers.
                "eval_episode_return": self._return,
                "final_eval_reward": self._return,
                # Cut off by the time limit: the states after it still have a value.
                "TimeLimit.truncated": not terminated,
            }
        return BaseEnvTimestep(np.array(observation, np.float32), np.array([reward], np.float32), done, info)

    def _to_simulator(self, action: Any) -> Any:
        """The action in the form of Gymnasium's env."""
        return action

    def close(self) -> None:
        if self._env is not None:
            self._env.close()
        self._env = None

    def render(self) -> Any:
        return None if self._env is None else self._env.render()


class CartPoleEnv(_OverGymnasium):
    """Push a cart left (0) or right (1) so that the pole on it stays up. 1 for every step."""

    # Constants, so that nothing has to be built to know them.
    observation_space = spaces.Box(
        low=np.array([-4.8, -np.inf, -np.pi * 24 / 180, -np.inf], np.float32),
        high=np.array([4.8, np.inf, np.pi * 24 / 180, np.inf], np.float32),
    )
    action_space = spaces.Discrete(2)
    reward_space = spaces.Box(0.0, 1.0, (1,), np.float32)
    metadata = {"render_fps": 50}  # noqa: RUF012  (read only)
    _id = "CartPole-v1"
    _defaults: ClassVar[dict[str, Any]] = {"max_episode_steps": 500}


class PendulumEnv(_OverGymnasium):
    """Swing a pendulum up with a torque of at most 2 and keep it there. The reward is minus the cost of the state.

    More keys of ``cfg``:

    - ``continuous`` (true): the action is the torque. If false, it is one of 11 torques from -2 to 2; 5 means none;
    - ``act_scale`` (false): a continuous action is in [-1, 1] and is scaled to the torques.
    """

    observation_space = spaces.Box(np.array([-1, -1, -8], np.float32), np.array([1, 1, 8], np.float32))
    # The worst is to hang down at full speed under full torque.
    reward_space = spaces.Box(-(np.pi**2 + 0.1 * 8**2 + 0.001 * 2**2), 0.0, (1,), np.float32)
    metadata = {"render_fps": 30}  # noqa: RUF012  (read only)
    _id = "Pendulum-v1"
    _defaults: ClassVar[dict[str, Any]] = {"max_episode_steps": 200, "continuous": True, "act_scale": False}

    _max_torque = 2.0
    _torques = np.linspace(-_max_torque, _max_torque, 11, dtype=np.float32)

    def __init__(self, cfg: Any = None) -> None:
        super().__init__(cfg)
        # It depends on the cfg, so it is not a class attribute.
        if not true_or_false("PendulumEnv: continuous", self._settings["continuous"]):
            self.action_space = spaces.Discrete(len(self._torques))
        elif true_or_false("PendulumEnv: act_scale", self._settings["act_scale"]):
            self.action_space = spaces.Box(-1.0, 1.0, (1,), np.float32)
        else:
            self.action_space = spaces.Box(-self._max_torque, self._max_torque, (1,), np.float32)

    def _to_simulator(self, action: Any) -> Any:
        if not self._settings["continuous"]:
            return self._torques[action : action + 1]
        return action * np.float32(self._max_torque) if self._settings["act_scale"] else action
