"""A good env, good ones of other kinds, and the list of their broken twins."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium import spaces

from stepmill.envs import BaseEnv, BaseEnvTimestep


class GoodEnv(BaseEnv):
    """A walk on a line, with noise: breaks nothing."""

    def __init__(self, cfg: Any = None) -> None:
        super().__init__({} if cfg is None else cfg)
        self.observation_space = spaces.Box(-100.0, 100.0, (3,), np.float32)
        self.action_space = spaces.Discrete(3)
        self._length = self._cfg.get("length", 5)
        self._world: dict[str, Any] | None = None

    def reset(self, **kwargs: Any) -> Any:
        if self._world is None:
            self._world = {}
        self._begin(np.random.default_rng(self._next_seed()))
        return self._observe()

    def _begin(self, generator: np.random.Generator) -> None:
        self._generator = generator
        self._place = generator.uniform(-1, 1, 3)
        self._count = 0
        self._total = 0.0

    def step(self, action: Any) -> Any:
        assert self._world is not None
        self._move(action)
        self._count += 1
        reward = self._reward()
        self._total += float(np.asarray(reward).sum())
        done = self._count >= self._length
        return BaseEnvTimestep(self._observe(), reward, done, self._info(done))

    def _move(self, action: Any) -> None:
        self._place = self._place + self._generator.normal(0, 0.1, 3) + int(action) - 1

    def _observe(self) -> Any:
        return self._place.astype(np.float32)

    def _reward(self) -> Any:
        return np.array([self._place[0]], np.float32)

    def _info(self, done: bool) -> Any:
        return {"eval_episode_return": self._total, "final_eval_reward": self._total} if done else {}

    def close(self) -> None:
        self._world = None


# ---- good ones of other kinds ---------------------------------------------------------------------


class NothingRandom(GoodEnv):
    """The same episode always, whatever the seed."""

    def _begin(self, generator: np.random.Generator) -> None:
        super()._begin(np.random.default_rng(0))


class DictEnv(GoodEnv):
    """An image, a vector and a number to see; a hybrid action."""

    def __init__(self, cfg: Any = None) -> None:
        super().__init__(cfg)
        self.observation_space = spaces.Dict(
            {
                "image": spaces.Box(0, 255, (2, 4, 4), np.uint8),
                "pair": spaces.Tuple([spaces.Box(-100.0, 100.0, (3,), np.float32), spaces.Discrete(20)]),
            }
        )
        self.action_space = spaces.Tuple([spaces.Discrete(3), spaces.Box(-1.0, 1.0, (2,), np.float32)])

    def _move(self, action: Any) -> None:
        super()._move(action[0])

    def _observe(self) -> Any:
        image = np.full((2, 4, 4), self._count, np.uint8)
        return {"image": image, "pair": (super()._observe(), np.array(self._count))}


class TwoAgents(GoodEnv):
    """A row per agent, a reward per agent."""

    num_agents = 2

    def __init__(self, cfg: Any = None) -> None:
        super().__init__(cfg)
        self.observation_space = spaces.Box(-100.0, 100.0, (2, 3), np.float32)
        self.action_space = spaces.MultiDiscrete([3, 3])
        self.reward_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)

    def _move(self, action: Any) -> None:
        super()._move(action[0])

    def _observe(self) -> Any:
        return np.stack([super()._observe(), -super()._observe()])

    def _reward(self) -> Any:
        return self._place[:2].astype(np.float32)


class SharedReward(TwoAgents):
    """Two agents and one reward."""

    reward_space = GoodEnv.reward_space

    def __init__(self, cfg: Any = None) -> None:
        super().__init__(cfg)
        del self.reward_space

    def _reward(self) -> Any:
        return self._place[:1].astype(np.float32)


class MoreFields(GoodEnv):
    """A timestep with a field of its own."""

    def step(self, action: Any) -> Any:
        timestep = namedtuple("MyTimestep", [*BaseEnvTimestep._fields, "act"])
        return timestep(*super().step(action), action)


class ConstantMask(DictEnv):
    """Hands out the same array always, one that nobody can write to."""

    _MASK = np.zeros((2, 4, 4), np.uint8)
    _MASK.flags.writeable = False

    def _observe(self) -> Any:
        return {**super()._observe(), "image": self._MASK}


class Endless(GoodEnv):
    """Has no end."""

    def __init__(self, cfg: Any = None) -> None:
        super().__init__({"length": 10**9})


GOOD = [GoodEnv, NothingRandom, DictEnv, TwoAgents, SharedReward, MoreFields, ConstantMask, Endless]


# ---- broken ones ----------------------------------------------------------------------------------

# (rule, env class)
BROKEN: list[tuple[str, type[Any]]] = []


def breaks(rule: str) -> Callable[[type[Any]], type[Any]]:
    def note(env: type[Any]) -> type[Any]:
        BROKEN.append((rule, env))
        return env

    return note
