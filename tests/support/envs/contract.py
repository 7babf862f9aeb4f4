"""Envs written to the environment contract, for the tests of adapters, pools and managers; and of older contracts."""

from __future__ import annotations

import collections
import os
from collections import namedtuple
from pathlib import Path
from typing import Any

import dm_env
import numpy as np
from dm_env import specs
from gymnasium import spaces

from stepmill.envs import BaseEnv, BaseEnvInfo, BaseEnvTimestep, EnvElementInfo
from support.waiting import tell_gate, wait_at_gate


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

    def get_state(self) -> Any:
        return self._rng, self.position, self.elapsed, self.score

    def set_state(self, state: Any) -> None:
        self._rng, self.position, self.elapsed, self.score = state

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

    def get_state(self) -> Any:
        return self.sums, self.elapsed

    def set_state(self, state: Any) -> None:
        self.sums, self.elapsed = state

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

    def get_state(self) -> int:
        return self.count

    def set_state(self, state: int) -> None:
        self.count = state

    def observation_spec(self) -> Any:
        return {"count": specs.BoundedArray((), np.int64, 0, 3), "place": specs.Array((2,), np.float64)}

    def action_spec(self) -> Any:
        return specs.DiscreteArray(5)


# ---- in the form of the oldest documents ---------------------------------------------------------


class Corridor(BaseEnv):
    """Forward (1) or back (0), for ``length`` steps. The observation is (``id`` of the cfg, place, step).

    cfg, beside these: ``folder``, of a gate, and where ``close`` leaves a file; ``gated_resets`` and ``gated_steps``:
    which of its resets and steps, from 1, wait at the gate.
    """

    def __init__(self, cfg: dict) -> None:
        self._cfg = cfg
        self.cfg = cfg
        self.pid = os.getpid()
        self.seeds: list[int] = []
        self.starts: list[int] = []  # one per reset
        self.actions: list[np.ndarray] = []

    def reset(self, start: int = 0) -> np.ndarray:
        self.starts.append(start)
        self._come_to_gate("gated_resets", len(self.starts))
        self.place, self.steps = start, 0
        return self._observation()

    def step(self, action: np.ndarray) -> BaseEnvTimestep:
        self.actions.append(action)
        self._come_to_gate("gated_steps", len(self.actions))
        self.place += 1 if action.item() else -1
        self.steps += 1
        done = self.steps == self._cfg.get("length", 3)
        info = {"final_eval_reward": float(self.place)} if done else {}
        return BaseEnvTimestep(self._observation(), np.array([self.place], dtype=np.float32), done, info)

    def seed(self, seed: int) -> None:
        self.seeds.append(seed)

    def close(self) -> None:
        if "folder" in self._cfg:
            Path(self._cfg["folder"], f"closed-{self._cfg['id']}").touch()

    def info(self) -> BaseEnvInfo:
        return BaseEnvInfo(
            agent_num=1,
            obs_space=EnvElementInfo(shape=(3,), value={"min": -1000, "max": 1000, "dtype": np.float32}),
            act_space=EnvElementInfo(shape=(2,), value={"min": 0, "max": 2, "dtype": int}),
            rew_space=EnvElementInfo(shape=(1,), value={"min": -1000, "max": 1000, "dtype": np.float32}),
        )

    def __repr__(self) -> str:
        return "a corridor"

    def _observation(self) -> Any:
        return np.array([self._cfg.get("id", 0), self.place, self.steps], dtype=np.float32)

    def _come_to_gate(self, key: str, number: int) -> None:
        if number in self._cfg.get(key, ()):
            tell_gate(str(self._cfg["folder"]), self._cfg["id"])
            wait_at_gate(str(self._cfg["folder"]), self._cfg["id"])


def corridors(count: int, **cfg: Any) -> list[dict[str, Any]]:
    """The cfgs of ``count`` of them."""
    return [{"id": env_id, **cfg} for env_id in range(count)]


# ---- of DI-engine's kind, without DI-engine ------------------------------------------------------

DingTimestep = collections.namedtuple("DingTimestep", ["obs", "reward", "done", "info"])
LongDingTimestep = collections.namedtuple(
    "LongDingTimestep", ["obs", "reward", "done", "info", "episode_steps", "note"]
)


class DingLike:
    """Not one of our ``BaseEnv``s: what makes it DI-engine's is ``create_collector_env_cfg``.

    cfg: ``length`` of an episode.
    """

    observation_space: Any = spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space: Any = spaces.Discrete(5)
    reward_space: Any = spaces.Box(-np.inf, np.inf, (1,), np.float32)

    def __init__(self, cfg: Any = None) -> None:
        self._cfg = cfg or {}
        self.elapsed = 0
        self.received: Any = None

    @staticmethod
    def create_collector_env_cfg(cfg: Any) -> list[Any]:
        return [cfg]

    def seed(self, seed: int, dynamic_seed: bool = True) -> None:
        self.generator = np.random.default_rng(seed)

    def reset(self) -> Any:
        self.elapsed = 0
        return self.show()

    def step(self, action: Any) -> Any:
        self.received = action
        self.elapsed += 1
        done = self.elapsed == self._cfg.get("length", 3)
        return DingTimestep(self.show(), self.reward(), done, self.tell(done))

    def show(self) -> Any:
        return np.array([self.elapsed, 0], np.float32)

    def reward(self) -> Any:
        return np.array([float(np.sum(self.received))], np.float32)

    def tell(self, done: bool) -> Any:
        return {"type": type(self.received).__name__}

    def random_action(self) -> Any:
        return None

    def enable_save_replay(self, replay_path: str | None = None) -> None:
        raise NotImplementedError

    def close(self) -> None:
        pass

    def __repr__(self) -> str:
        return type(self).__name__


class Team(DingLike):
    """Three agents: a Dict by agent as action space, one array with a row for each as action."""

    names = ("left", "right", "keeper")
    observation_space = spaces.Dict(
        {
            "agent_state": spaces.Box(-np.inf, np.inf, (3, 2), np.float32),
            "global_state": spaces.Box(-np.inf, np.inf, (4,), np.float32),
            "action_mask": spaces.Box(0, 1, (3, 5), np.float32),
        }
    )
    action_space = spaces.Dict({name: spaces.Discrete(5) for name in names})
    reward_space = spaces.Dict({name: spaces.Box(-np.inf, np.inf, (1,), np.float32) for name in names})

    def show(self) -> Any:
        if isinstance(self.received, dict):
            rows = [self.received[name] for name in self.names]
        else:
            rows = [0, 0, 0] if self.received is None else np.ravel(self.received).tolist()
        return {
            "agent_state": np.array([[row, self.elapsed] for row in rows], np.float32),
            "global_state": np.full(4, self.elapsed, np.float32),
            "action_mask": np.ones((3, 5), np.float32),
        }

    def reward(self) -> Any:
        return np.ones(1, np.float32)

    def tell(self, done: bool) -> Any:
        told = {"type": type(self.received).__name__, **{name: {} for name in self.names}}
        return {**told, "eval_episode_return": 3.0} if done else told

    def random_action(self) -> Any:
        return self.generator.integers(5, size=3)


class Duel(DingLike):
    """Two players, no spaces, an info for each; a list of two numbers as action. Abnormal where the first one is 9."""

    observation_space = action_space = reward_space = None

    def show(self) -> Any:
        return np.array([[self.elapsed, 1], [self.elapsed, 2]], np.float32)

    def reward(self) -> Any:
        return np.array([[1.0], [-1.0]], np.float32)

    def tell(self, done: bool) -> Any:
        first = {"received": self.received, "eval_episode_return": 5.0}
        if self.received[0] == 9:
            first["abnormal"] = True
        return first, {"eval_episode_return": -5.0}

    def random_action(self) -> Any:
        return self.generator.integers(2, size=2).tolist()


class Shifty(DingLike):
    """Shows what its space does not describe: after odd steps a list of the steps so far, which it goes on to fill."""

    def reset(self) -> Any:
        self.seen: list[Any] = ["steps"]
        return super().reset()

    def show(self) -> Any:
        self.seen.append(self.elapsed)
        return self.seen if self.elapsed % 2 else super().show()


class Long(DingLike):
    """Its timesteps have two fields more."""

    def step(self, action: Any) -> Any:
        return LongDingTimestep(*super().step(action), self.elapsed, f"step {self.elapsed}")


class Late(DingLike):
    """Knows its spaces after a reset only, and is closed for good, as DI-engine's ``DingEnvWrapper``."""

    observation_space = action_space = reward_space = None
    closed = False

    def reset(self) -> Any:
        if self.closed:
            raise RuntimeError("closed for good")
        for name in ("observation_space", "action_space", "reward_space"):
            setattr(self, name, getattr(DingLike, name))
        return super().reset()

    def close(self) -> None:
        self.closed = True


class OldWrapper:
    """As ``gym.Wrapper``: it has what the env inside has, but for private names. ``step`` gives a plain tuple."""

    def __init__(self, env: Any) -> None:
        self.env = env

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"private: {name}")
        return getattr(self.env, name)

    def step(self, action: Any) -> Any:
        obs, reward, done, info = self.env.step(action)
        return {"obs": obs, "reward": reward}, reward, done, info

    def reset(self) -> Any:
        return {"obs": self.env.reset(), "reward": np.array([0])}
