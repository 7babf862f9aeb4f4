"""An env of DI-engine as a ``BaseEnv``. Imports nothing from DI-engine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium import spaces

from stepmill.envs.adapters.gym_spaces import gymnasium_space
from stepmill.envs.base_env import BaseEnv
from stepmill.envs.env_info import copy_if_possible
from stepmill.envs.seeds import seed_env
from stepmill.envs.timestep import BaseEnvTimestep
from stepmill.errors import UnsupportedError
from stepmill.registry.factories import accepts

__all__ = ["DingAsBaseEnv", "build_env", "is_ding_env"]

_SPACES = ("observation_space", "action_space")


def is_ding_env(env: Any) -> bool:
    """Whether it has DI-engine's interface and is not one of ours. An env inside a ``gym.Wrapper`` has it as well."""
    return not isinstance(env, BaseEnv) and hasattr(env, "create_collector_env_cfg")


class DingAsBaseEnv(BaseEnv):
    """DI-engine's ``BaseEnv`` with what ours promises.

    - Spaces are Gymnasium's and known from the start: if an env knows them only after a reset, a copy of it is reset
      and closed. If it has none even then, as some with several players, managers accept it and pools do not.
    - A ``Discrete`` action has shape ``(1,)``, as DI-engine's policies send it.
    - ``seed`` is called with the arguments that it accepts: some do not know ``dynamic_seed``.
    - An abnormal timestep has an observation and a reward: the last one and 0 if the env gave none.
    - All other attributes are those of the env inside, ``env``.
    """

    def __init__(self, env: Any) -> None:
        super().__init__(getattr(env, "_cfg", None))
        self.env = env
        self.observation_space, self.action_space, self.reward_space = _spaces_of(env)
        self.num_agents = int(getattr(env, "num_agents", getattr(env, "num_agent", 1)))
        self._is_discrete = isinstance(self.action_space, spaces.Discrete)
        self._last: Any = None

    def reset(self, **kwargs: Any) -> Any:
        self._last = self.env.reset(**kwargs)
        return self._last

    def step(self, action: Any) -> BaseEnvTimestep:
        if self._is_discrete:
            action = np.asarray(action)
            action = action[None] if action.ndim == 0 else action.reshape(1)  # the first is the faster one
        return self.pass_on(action)

    def pass_on(self, action: Any) -> BaseEnvTimestep:
        """``step`` with an action that the action space does not describe: the env gets it unchanged."""
        timestep = self.env.step(action)
        if type(timestep) is tuple:  # a wrapper turned the env's timestep into a plain tuple
            timestep = BaseEnvTimestep(*timestep)
        if "abnormal" in timestep.info:
            timestep = timestep._replace(
                obs=self._last if timestep.obs is None else timestep.obs,
                reward=np.zeros(1, np.float32) if timestep.reward is None else timestep.reward,
            )
        self._last = timestep.obs
        return timestep  # type: ignore[no-any-return]

    def close(self) -> None:
        self.env.close()

    def __repr__(self) -> str:
        """That of the env inside."""
        return repr(self.env)

    def seed(self, seed: int, dynamic_seed: bool = True) -> None:
        super().seed(seed, dynamic_seed)  # for `random_action`
        seed_env(self.env, seed, dynamic_seed)

    def random_action(self) -> Any:
        """The env's own, or a sample of the action space if it has none."""
        action = self.env.random_action()
        if action is None and not isinstance(self.action_space, spaces.Space):
            raise UnsupportedError(f"{self!r}: random_action: the env has neither an action space nor a random_action")
        return super().random_action() if action is None else action

    def enable_save_replay(self, replay_path: str | None = None) -> None:
        """Passed on to the env, which writes its videos itself."""
        self._replay_path = "./video" if replay_path is None else str(replay_path)
        self.env.enable_save_replay(self._replay_path)

    def render(self) -> Any:
        """A picture from the env's simulator, which DI-engine's envs keep as ``_env``."""
        inner = getattr(self.env, "_env", self.env)
        return inner.render(mode="rgb_array") if accepts(inner.render, mode="rgb_array") else inner.render()

    def __getattr__(self, name: str) -> Any:
        """All other attributes are the env's."""
        if name == "env":  # not set yet, while it is being unpickled
            raise AttributeError(name)
        return getattr(self.env, name)


def _spaces_of(env: Any) -> list[Any]:
    if all(getattr(env, name, None) is not None for name in _SPACES):
        return _present_spaces(env)
    probe = copy_if_possible(env)
    try:
        probe.reset()
        return _present_spaces(probe)
    finally:
        probe.close()  # if it is the env itself, its next reset builds it again, with its seed and videos


def _present_spaces(env: Any) -> list[Any]:
    found = [gymnasium_space(getattr(env, name, None)) for name in _SPACES]
    reward = getattr(env, "reward_space", None)
    return [*found, BaseEnv.reward_space if reward is None else gymnasium_space(reward)]


def build_env(env_fn: Callable[[], Any]) -> Any:
    """The env that a function makes; an env of DI-engine becomes one of ours. The pool adapts all other kinds."""
    env = env_fn()
    return DingAsBaseEnv(env) if is_ding_env(env) else env
