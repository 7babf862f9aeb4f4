"""Envs written to the environment contract, for the tests of adapters, pools and managers."""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import dm_env
import numpy as np
from dm_env import specs
from gymnasium import spaces

from stepmill.envs import BaseEnv, BaseEnvTimestep


class Walk(BaseEnv):
    """A random walk: the observation is (env id, position, step); it ends after ``length`` steps, at position 9 early.

    cfg: ``length``; ``cut_off``: the end is a time limit; ``fail_at``: the step that raises; ``abnormal_at``.
    """

    observation_space = spaces.Box(-1000, 1000, (3,), np.float32)
    action_space = spaces.Discrete(3, start=-1)

    def __init__(self, cfg: Any = None) -> None:
        super().__init__(cfg or {})
        self.built = 0
        self.closed = 0
        self.reset_kwargs: dict[str, Any] = {}
        self.last_seed: int | None = None
        self._rng: np.random.Generator | None = None

    def reset(self, **kwargs: Any) -> np.ndarray:
        self.reset_kwargs = kwargs
        self.built += self._rng is None
        self.last_seed = self._next_seed()
        self._rng = np.random.default_rng(self.last_seed)
        self.position, self.elapsed, self.score = float(self._rng.normal()), 0, 0.0
        return self._observation()

    def _observation(self) -> np.ndarray:
        return np.array([self.env_id, self.position, self.elapsed], np.float32)

    def step(self, action: np.ndarray) -> BaseEnvTimestep:
        assert isinstance(action, np.ndarray)
        assert action.shape == ()
        assert self._rng is not None
        self.elapsed += 1
        if self.elapsed == self._cfg.get("fail_at"):
            raise RuntimeError("the walker fell")
        self.position += int(action) + 0.1 * float(self._rng.normal())
        self.score += self.position
        done = self.elapsed >= self._cfg.get("length", 5)
        info: dict[str, Any] = {}
        if self.elapsed == self._cfg.get("abnormal_at"):
            info["abnormal"] = True
        if done:
            info["eval_episode_return"] = info["final_eval_reward"] = self.score
            if self._cfg.get("cut_off"):
                info["TimeLimit.truncated"] = True
        return BaseEnvTimestep(self._observation(), np.array([self.position], np.float32), done, info)

    def close(self) -> None:
        self.closed += 1
        self._rng = None


LongTimestep = namedtuple("LongTimestep", [*BaseEnvTimestep._fields, "act"])


class LongStep(Walk):
    """Adds a field to its timestep."""

    def step(self, action: np.ndarray) -> Any:
        return LongTimestep(*super().step(action), act=action)


class Pair(BaseEnv):
    """Two agents that each sum their own actions. Reward a row per agent, or shared."""

    num_agents = 2
    observation_space = spaces.Box(-100, 100, (2, 2), np.float32)
    action_space = spaces.MultiDiscrete([4, 4])

    def __init__(self, cfg: Any = None) -> None:
        super().__init__(cfg or {})
        width = 1 if self._cfg.get("shared") else 2
        self.reward_space = spaces.Box(-np.inf, np.inf, (width,), np.float32)

    def reset(self) -> np.ndarray:
        self.sums, self.elapsed = np.zeros(2), 0
        return self._observation()

    def _observation(self) -> np.ndarray:
        return np.array([[self.env_id, self.sums[0]], [self.env_id, self.sums[1]]], np.float32)

    def step(self, action: np.ndarray) -> BaseEnvTimestep:
        self.sums += action
        self.elapsed += 1
        done = self.elapsed == 3
        info = {"eval_episode_return": float(self.sums.sum())} if done else {}
        reward = action.astype(np.float32)
        if self._cfg.get("shared"):
            reward = np.array([action.sum()], np.float32)
        return BaseEnvTimestep(self._observation(), reward, done, info)

    def close(self) -> None:
        pass


class PairWithState(Pair):
    """Beside a row per agent it shows a state that belongs to nobody."""

    observation_space = spaces.Dict(
        {"agents": spaces.Box(-100, 100, (2, 2), np.float32), "state": spaces.Box(-100, 100, (3,), np.float32)}
    )

    def _observation(self) -> Any:
        return {"agents": super()._observation(), "state": np.full(3, self.elapsed, np.float32)}


class DmWalk(dm_env.Environment):
    """Counts to 3. Discount 0 at a real end, 1 where it is cut off."""

    def __init__(self, discount: float = 0.0) -> None:
        self._discount = discount
        self.seeded: int | None = None

    def seed(self, seed: int) -> None:
        self.seeded = seed

    def reset(self) -> dm_env.TimeStep:
        self.count = 0
        return dm_env.restart(self._observation())

    def _observation(self) -> Any:
        return {"count": np.array(self.count), "place": np.full(2, self.count, np.float64)}

    def step(self, action: Any) -> dm_env.TimeStep:
        if self.count == 3:
            return self.reset()
        self.count += 1
        if self.count == 3:
            return dm_env.TimeStep(dm_env.StepType.LAST, float(action), self._discount, self._observation())
        return dm_env.transition(float(action), self._observation(), 0.9)

    def observation_spec(self) -> Any:
        return {"count": specs.BoundedArray((), np.int64, 0, 3), "place": specs.Array((2,), np.float64)}

    def action_spec(self) -> Any:
        return specs.DiscreteArray(5)
