"""``CourierEnv``: the world, observed and controlled through elements."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from stepmill.envs import BaseEnv, BaseEnvInfo, BaseEnvTimestep, EnvElementInfo
from stepmill.errors import NeedsResetError, ResetOptionError, UsageError

from .action import CourierAction, CourierActionRunner
from .config import CourierConfig
from .observation import FeaturesObs, FeaturesObsRunner, MapObs, MapObsRunner
from .picture import draw
from .reward import CourierReward, CourierRewardRunner, EpisodeScoreRunner
from .town import Town
from .world import World

__all__ = ["CourierEnv"]


class CourierEnv(BaseEnv):
    """A drone that delivers packages in a town and must recharge in time.

    The keys of its cfg are those of ``CourierConfig``, and ``replay_path``, a folder for videos. An episode ends when
    everything is delivered or the battery is empty away from a charger; it is cut off when the shift is over. The last
    ``info`` has ``deliveries``, ``success`` and ``crashed`` besides ``eval_episode_return``, the score. Every town can
    be solved.
    """

    metadata: Mapping[str, Any] = {"render_fps": 8}

    def __init__(self, cfg: Any = None) -> None:
        super().__init__(cfg)
        self._config = CourierConfig.of(cfg)
        if self._cfg and self._cfg.get("replay_path") is not None:
            self.enable_save_replay(self._cfg["replay_path"])
        self.observation_space = spaces.Dict({"features": _box(FeaturesObs().info), "map": _box(MapObs().info)})
        self.action_space = spaces.Discrete(CourierAction().info.value["max"])
        self.reward_space = _box(CourierReward().info)
        self._features = FeaturesObsRunner()
        self._map = MapObsRunner()
        self._action = CourierActionRunner()
        self._reward = CourierRewardRunner(self._config.is_train)
        self._score = EpisodeScoreRunner()
        self._world: World | None = None
        self._over = False
        self.agent_action: Any = None

    # ---- what runners read -------------------------------------------------------------------

    @property
    def world(self) -> World:
        """The simulator, once there is one."""
        if self._world is None:
            raise UsageError(f"{self!r} has no world yet: call reset() first")
        return self._world

    # ---- an episode --------------------------------------------------------------------------

    def reset(self, **kwargs: Any) -> dict[str, np.ndarray]:
        """A new town, a full battery."""
        if kwargs:
            raise ResetOptionError(f"{self!r}: reset: expected no arguments, got {', '.join(kwargs)}")
        rng = np.random.default_rng(self._next_seed())
        self._world = World(self._config, Town.draw(self._config, rng))
        self._over = False
        self._features.reset()
        self._map.reset()
        self._action.reset()
        self._reward.reset(self)
        self._score.reset(self)
        return self._observe()

    def step(self, action: Any) -> BaseEnvTimestep:
        """One verb."""
        world = self.world
        if self._over:
            raise NeedsResetError(f"{self!r}: the episode is over, call reset() first")
        self.agent_action = action
        world.tick(self._action.get(self))
        reward = self._reward.get(self)
        score = self._score.get(self)
        self._over = world.finished or world.crashed or world.late
        return BaseEnvTimestep(self._observe(), reward, self._over, self._ending(world, score) if self._over else {})

    def close(self) -> None:
        """Forgets the town."""
        self._world = None

    def _observe(self) -> dict[str, np.ndarray]:
        return {"features": self._features.get(self), "map": self._map.get(self)}

    @staticmethod
    def _ending(world: World, score: float) -> dict[str, Any]:
        return {
            "eval_episode_return": score,
            "final_eval_reward": score,
            "deliveries": world.delivered,
            "success": world.finished,
            "crashed": world.crashed,
            "TimeLimit.truncated": not (world.finished or world.crashed),
        }

    # ---- what it is --------------------------------------------------------------------------

    def info(self) -> BaseEnvInfo:
        """With the functions that translate, which spaces do not have."""
        info = super().info()
        info.act_space.from_agent_processor = self._action.info.from_agent_processor
        info.rew_space.to_agent_processor = self._reward.info.to_agent_processor
        return info

    def __repr__(self) -> str:
        config = self._config
        return f"CourierEnv(env_id={self.env_id}, size={config.size}, packages={config.packages})"

    def render(self) -> np.ndarray:
        """The town from above, with a caption."""
        trail = self._map.trail
        return draw(self.world, np.zeros((0, 0)) if trail is None else trail, self._action.last)


def _box(info: EnvElementInfo) -> spaces.Box:
    """An element as a space."""
    return spaces.Box(info.value["min"], info.value["max"], info.shape, info.value["dtype"])
