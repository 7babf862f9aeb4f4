"""EnvPool 0.x's interface, for programs that expect old Gym: `obs = reset()`, `obs, reward, done, info = step(action)`.

CleanRL's EnvPool scripts are of this kind. One line changes::

    import stepmill.interop.envpool.legacy as envpool

Spaces are those of the package ``gym`` if it is installed. ``info["TimeLimit.truncated"]`` tells episodes that a limit
cut off from those that ended.
"""

from __future__ import annotations

import importlib
import importlib.util
from dataclasses import replace
from typing import Any, Literal, overload

import numpy as np
from gymnasium import spaces

from stepmill.interop import envpool
from stepmill.interop.envpool import DMEnvPool, EnvSpec, GymnasiumEnvPool, list_all_envs, make_dm, make_gymnasium
from stepmill.interop.envpool.arguments import Extras, read
from stepmill.interop.envpool.spec import Results
from stepmill.make import make_gym as make_pool
from stepmill.make import make_spec as make_pool_spec
from stepmill.spec import PoolSpec
from stepmill.values.arguments import true_or_false

__all__ = [
    "DMEnvPool",
    "GymEnvPool",
    "GymnasiumEnvPool",
    "__version__",
    "list_all_envs",
    "make",
    "make_dm",
    "make_gym",
    "make_gymnasium",
    "make_spec",
]

__version__ = "0.8.4"  # the EnvPool whose interface this is


@overload
def make(task_id: Any, env_type: Literal["gym"], **kwargs: Any) -> GymEnvPool: ...
@overload
def make(task_id: Any, env_type: Literal["gymnasium"], **kwargs: Any) -> GymnasiumEnvPool: ...
@overload
def make(task_id: Any, env_type: Literal["dm"], **kwargs: Any) -> DMEnvPool: ...
def make(task_id: Any, env_type: Any, **kwargs: Any) -> GymnasiumEnvPool | DMEnvPool:
    """Makes a pool: for ``env_type="gym"`` in the form of old Gym, else as ``stepmill.interop.envpool`` does."""
    return make_gym(task_id, **kwargs) if env_type == "gym" else envpool.make(task_id, env_type, **kwargs)


def make_gym(task_id: Any, *, gym_reset_return_info: bool = False, **kwargs: Any) -> GymEnvPool:
    """``make(task_id, "gym", ...)``.

    Args:
        task_id: An id, or anything else that ``stepmill.make`` takes.
        gym_reset_return_info: Whether ``reset`` returns infos too.
        **kwargs: As for ``make``.
    """
    ours, extras = _read(task_id, gym_reset_return_info, kwargs)
    return GymEnvPool.over(make_pool(**ours), extras=extras)


def make_spec(task_id: Any, *, gym_reset_return_info: bool = False, **kwargs: Any) -> EnvSpec:
    """The spaces and the configuration of the pool that ``make_gym`` would return, without making it."""
    ours, extras = _read(task_id, gym_reset_return_info, kwargs)
    return EnvSpec(make_pool_spec(**ours, env_type="gym"), extras)


def _read(task_id: Any, reset_returns_info: Any, given: dict[str, Any]) -> tuple[dict[str, Any], Extras]:
    ours, extras = read(task_id, given)
    return ours, replace(extras, reset_returns_info=true_or_false("gym_reset_return_info", reset_returns_info))


class GymEnvPool(GymnasiumEnvPool):
    """Results are ``(obs, reward, done, info)``, and observations alone from ``reset``."""

    def __init__(self, *pool: Any, extras: Extras) -> None:
        super().__init__(*pool, extras=extras)
        self.observation_space = self.single_observation_space = _gym_space(self.observation_space)
        self.action_space = self.single_action_space = _gym_space(self.action_space)
        self._results = _OldResults(self._pool_spec, extras.reset_returns_info)
        self._engine.show_as(self._results.stepped, self._results.begun, players=True)


class _OldResults(Results):
    def __init__(self, spec: PoolSpec, with_infos: bool) -> None:
        super().__init__(spec)
        self._with_infos = with_infos

    def begun(self, result: Any) -> Any:
        obs, info = super().begun(result)
        return (obs, info) if self._with_infos else obs

    def stepped(self, result: Any) -> Any:
        if self.as_reset:
            self.as_reset = False
            obs, *_, info = super().in_programs(result)
            return (obs, info) if self._with_infos else obs
        return self.in_programs(result)

    def in_programs(self, result: Any) -> tuple[Any, ...]:
        obs, reward, terminated, truncated, info = super().in_programs(result)
        info["TimeLimit.truncated"] = truncated > terminated  # `truncated & ~terminated`, in one pass
        return obs, reward, terminated | truncated, info


def _gym_space(space: Any) -> Any:
    """The same space of the package ``gym``, if it is installed."""
    if importlib.util.find_spec("gym") is None:
        return space
    gym = importlib.import_module("gym")
    if isinstance(space, spaces.Discrete):
        return gym.spaces.Discrete(int(space.n))
    if isinstance(space, spaces.Box):
        return gym.spaces.Box(space.low, space.high, space.shape, np.dtype(space.dtype).type)
    if isinstance(space, spaces.Dict):
        return gym.spaces.Dict({key: _gym_space(one) for key, one in space.items()})
    if isinstance(space, spaces.Tuple):
        return gym.spaces.Tuple([_gym_space(one) for one in space])
    if isinstance(space, spaces.MultiDiscrete):
        return gym.spaces.MultiDiscrete(space.nvec)
    if isinstance(space, spaces.MultiBinary):
        return gym.spaces.MultiBinary(space.n)
    return space
