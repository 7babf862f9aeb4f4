"""The spaces and the configuration of a pool, without building simulators."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces

from stepmill.values.spaces import spec_of


@dataclass(frozen=True)
class PoolSpec:
    """What ``make_spec`` returns, and the ``spec`` of a pool."""

    id: str
    observation_space: spaces.Space[Any]
    action_space: spaces.Space[Any]
    reward_space: spaces.Box
    config: dict[str, Any]
    env_configs: list[dict[str, Any]]
    max_episode_steps: int | None
    reward_threshold: float | None
    info_space: spaces.Dict  # the envs' own infos that are known beforehand, each of which a row may lack

    def observation_spec(self) -> Any:
        """The observation as dm_env specs."""
        return spec_of(self.observation_space, "observation")

    def action_spec(self) -> Any:
        """The action as dm_env specs."""
        return spec_of(self.action_space, "action")

    def reward_spec(self) -> Any:
        """The reward as a dm_env spec."""
        from dm_env import specs

        return specs.Array((), np.dtype(self.reward_space.dtype), "reward")

    def discount_spec(self) -> Any:
        """The discount as a dm_env spec."""
        from dm_env import specs

        return specs.BoundedArray((), np.float32, 0.0, 1.0, "discount")
