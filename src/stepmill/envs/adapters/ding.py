"""An env of DI-engine as a ``BaseEnv``. Needs nothing of DI-engine: who has such an env has it."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium import spaces

from stepmill.envs.adapters.gym_spaces import gymnasium_space
from stepmill.envs.base_env import BaseEnv
from stepmill.envs.timestep import BaseEnvTimestep
from stepmill.errors import UnsupportedError

__all__ = ["DingAsBaseEnv", "build_env", "is_ding_env"]

_SPACES = ("observation_space", "action_space")


def is_ding_env(env: Any) -> bool:
    """Whether it has DI-engine's interface, and is not one of ours. One inside of a ``gym.Wrapper`` has it as well."""
    return not isinstance(env, BaseEnv) and hasattr(env, "create_collector_env_cfg")


class DingAsBaseEnv(BaseEnv):
    """DI-engine's ``BaseEnv`` with what ours promises.

    - Spaces are Gymnasium's, and known from the start: of an env that knows them only after a reset a copy is reset
      and closed. One that has none even then, as some of several players, keeps what it has: managers take it, pools
      do not.
    - A ``Discrete`` action has shape ``(1,)``, as DI-engine's policies give it.
    - ``seed`` is called with what it takes: some do not know ``dynamic_seed``.
    - An abnormal timestep has an observation and a reward: the last one and 0 where the env gave none.
    - All other attributes are those of the env inside, ``env``.
    """

    def __init__(self, env: Any) -> None:
        super().__init__(getattr(env, "_cfg", None))
        self.env = env
        self.observation_space, self.action_space, self.reward_space = _spaces_of(env)
        self.num_agents = int(getattr(env, "num_agents", getattr(env, "num_agent", 1)))
        self._takes_dynamic_seed = _takes_two(env.seed)
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
        """``step`` with an action that the action space does not describe: the env gets it as it is."""
        timestep = self.env.step(action)
        if type(timestep) is tuple:  # a wrapper made it of the env's
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
        """The env that is inside."""
        return repr(self.env)

    def seed(self, seed: int, dynamic_seed: bool = True) -> None:
        super().seed(seed, dynamic_seed)  # of `random_action`
        self.env.seed(seed, *([dynamic_seed] if self._takes_dynamic_seed else []))

    def random_action(self) -> Any:
        """The env's own, or one of the action space where it has none."""
        action = self.env.random_action()
        if action is None and not isinstance(self.action_space, spaces.Space):
            raise UnsupportedError(f"{self!r}: random_action: it has no action space, nor a random_action of its own")
        return super().random_action() if action is None else action

    def enable_save_replay(self, replay_path: str | None = None) -> None:
        """Asks the env: it writes its videos itself."""
        self._replay_path = "./video" if replay_path is None else str(replay_path)
        self.env.enable_save_replay(self._replay_path)

    def render(self) -> Any:
        """The picture of the simulator in the env, which DI-engine's envs keep as ``_env``."""
        inner = getattr(self.env, "_env", self.env)
        return inner.render(mode="rgb_array") if _takes_mode(inner.render) else inner.render()

    def __getattr__(self, name: str) -> Any:
        """What is not ours is the env's own."""
        if name == "env":  # not there yet: while it is unpickled
            raise AttributeError(name)
        return getattr(self.env, name)


def _spaces_of(env: Any) -> list[Any]:
    if all(getattr(env, name, None) is not None for name in _SPACES):
        return _present_spaces(env)
    probe = _copy_of(env)
    try:
        probe.reset()
        return _present_spaces(probe)
    finally:
        probe.close()  # were it the env itself: its next reset builds it with its seed, and with videos


def _copy_of(env: Any) -> Any:
    """Another one, since not all that were closed can be reset; the env itself where it cannot be copied."""
    try:
        return copy.deepcopy(env)
    except Exception:  # whatever its parts raise
        return env


def _present_spaces(env: Any) -> list[Any]:
    found = [gymnasium_space(getattr(env, name, None)) for name in _SPACES]
    reward = getattr(env, "reward_space", None)
    return [*found, BaseEnv.reward_space if reward is None else gymnasium_space(reward)]


def _takes_two(seed: Any) -> bool:
    return _takes(seed, 0, True)


def _takes_mode(render: Any) -> bool:
    return _takes(render, mode="rgb_array")


def _takes(function: Any, *args: Any, **kwargs: Any) -> bool:
    try:
        inspect.signature(function).bind(*args, **kwargs)
    except (TypeError, ValueError):
        return False
    return True


def build_env(env_fn: Callable[[], Any]) -> Any:
    """The env that a function makes, DI-engine's as ours. Any other kind is left to the pool."""
    env = env_fn()
    return DingAsBaseEnv(env) if is_ding_env(env) else env
