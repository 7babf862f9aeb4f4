"""``TemplateEnv``: the world, observed and controlled through elements."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces
from stepmill.envs import BaseEnv, BaseEnvTimestep, EnvElementInfo
from stepmill.errors import NeedsResetError, ResetOptionError

from .action import TemplateAction, TemplateActionRunner
from .config import TemplateConfig
from .observation import TemplateObservation, TemplateObservationRunner
from .reward import TemplateReward, TemplateRewardRunner
from .world import World


class TemplateEnv(BaseEnv):
    """Steer a boat across a river to the landing stage.

    The keys of its cfg are those of ``TemplateConfig``. An episode ends at the far bank, or when the boat is washed
    away, and is cut off after ``max_steps``. The last ``info`` has ``success`` besides ``eval_episode_return``, the sum
    of the rewards.
    """

    metadata: Mapping[str, Any] = {"render_fps": 10}

    def __init__(self, cfg: Any = None) -> None:
        # Only stores the configuration: a caller may want only the spaces, or send this object to another process.
        super().__init__(cfg)
        self._config = TemplateConfig.of(cfg)
        self.observation_space = _box(TemplateObservation().info)
        self.action_space = spaces.Discrete(TemplateAction().info.value["max"])
        self.reward_space = _box(TemplateReward().info)
        self._observation = TemplateObservationRunner()
        self._action = TemplateActionRunner()
        self._reward = TemplateRewardRunner()
        self._world: World | None = None
        self._return = 0.0
        self._over = False
        self.agent_action: Any = None

    @property
    def world(self) -> World:
        """The simulator, once there is one."""
        if self._world is None:
            raise NeedsResetError(f"{self!r} has no world yet: call reset() first")
        return self._world

    def reset(self, **kwargs: Any) -> np.ndarray:
        """Another crossing. Everything random in it comes from one seed, never from a global generator."""
        if kwargs:
            raise ResetOptionError(f"{self!r}: reset: expected no arguments, got {', '.join(kwargs)}")
        self._world = World(self._config, np.random.default_rng(self._next_seed()))
        self._return, self._over = 0.0, False
        self._observation.reset(self)
        self._action.reset()
        self._reward.reset(self)
        return self._observation.get(self)

    def step(self, action: Any) -> BaseEnvTimestep:
        """One move."""
        world = self.world
        if self._over:
            raise NeedsResetError(f"{self!r}: the episode is over, call reset() first")
        self.agent_action = action
        world.move(self._action.get(self))
        reward = self._reward.get(self)
        self._return += float(reward[0])
        ended = world.arrived or world.lost
        self._over = ended or world.out_of_time
        info: dict[str, Any] = {}
        if self._over:
            info = {
                "eval_episode_return": self._return,  # how well the episode went
                "final_eval_reward": self._return,  # the same, for older callers
                "success": world.arrived,
                "TimeLimit.truncated": not ended,  # it was cut off: what comes after still has a value
            }
        return BaseEnvTimestep(self._observation.get(self), reward, self._over, info)

    def close(self) -> None:
        """Frees what ``reset`` has built; a later one builds it again."""
        self._world = None

    def render(self) -> np.ndarray:
        """The river from above: the near bank is at the bottom, the landing stage at the top."""
        world, side = self.world, 200
        picture = np.full((side, side, 3), (74, 144, 196), np.uint8)
        picture[:10] = picture[-10:] = (112, 156, 92)

        def pixel(place: float) -> int:
            """From -1 to 1, left to right."""
            return round((place + 1.1) / 2.2 * side)

        picture[6:14, pixel(world.stage - self._config.stage) : pixel(world.stage + self._config.stage)] = (120, 84, 52)
        rows, columns = np.ogrid[:side, :side]
        row, column = side - pixel(2 * world.across - 1), pixel(world.along)
        picture[(rows - row) ** 2 + (columns - column) ** 2 < 36] = (250, 246, 230)
        return picture


def _box(info: EnvElementInfo) -> spaces.Box:
    """An element as a space."""
    return spaces.Box(info.value["min"], info.value["max"], info.shape, info.value["dtype"])
