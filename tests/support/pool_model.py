"""An env of a pool as the contract describes it, stepped in Python: what every call should show."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gymnasium

LIMIT = 3  # steps of an episode: ends are frequent


@dataclass
class Row:
    """What one action gives."""

    obs: Any
    reward: float = 0.0
    terminated: bool = False
    truncated: bool = False
    elapsed: int = 0
    ended: bool = False
    episode_return: float = 0.0
    final_obs: Any = None


@dataclass
class ModelEnv:
    """One env and where it stands: fresh, live or ended."""

    env: gymnasium.Env[Any, Any]
    mode: str
    seed: int | None
    state: str = "fresh"
    elapsed: int = 0
    total: float = 0.0
    obs: Any = None

    def reset(self) -> Row:
        self.obs = self.env.reset(seed=self.seed)[0]
        self.seed = None
        self.state, self.elapsed, self.total = "live", 0, 0.0
        return Row(self.obs)

    def look(self) -> Row:
        return self.reset() if self.state == "fresh" else Row(self.obs, elapsed=self.elapsed)

    def act(self, action: Any) -> Row:
        if self.state != "live":
            return self.reset()
        self.obs, reward, terminated, truncated, _ = self.env.step(action)
        self.elapsed += 1
        self.total += float(reward)
        truncated = truncated or self.elapsed == LIMIT
        row = Row(self.obs, float(reward), terminated, truncated, self.elapsed)
        if terminated or truncated:
            row.ended, row.episode_return = True, self.total
            self.state = "ended"
            if self.mode == "same_step":
                row.final_obs = self.obs
                row.obs, row.elapsed = self.reset().obs, 0
        return row
