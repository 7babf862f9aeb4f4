"""A good env, and its broken twins: each breaks one rule of ``stepmill.testing``, and that one alone."""

from __future__ import annotations

import copy
import os
import random
import subprocess
import threading
from collections import namedtuple
from collections.abc import Callable
from typing import Any, ClassVar

import gymnasium
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
    """A row an agent, a reward an agent."""

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


@breaks("no_exception")
class RaisesInInit(GoodEnv):
    def __init__(self, cfg: Any = None) -> None:
        raise KeyError("level")


@breaks("no_exception")
class RaisesInSecondReset(GoodEnv):
    def reset(self, **kwargs: Any) -> Any:
        if self._world is not None:
            raise RuntimeError("once\nonly")
        return super().reset()


@breaks("no_exception")
class RaisesInClose(GoodEnv):
    def close(self) -> None:
        raise OSError("will not")


@breaks("no_exception")
class SeedWithoutDynamic(GoodEnv):
    def seed(self, seed: int) -> None:
        super().seed(seed)


@breaks("no_exception")
class RandomActionRaises(GoodEnv):
    def random_action(self) -> Any:
        raise TypeError("no")


@breaks("no_exception")
class InfoRaises(GoodEnv):
    def info(self) -> Any:
        raise TypeError("no")


@breaks("action_accepted")
class RefusesAnAction(GoodEnv):
    def _move(self, action: Any) -> None:
        if int(action) == 2:
            raise ValueError("action 2 means nothing")
        super()._move(action)


@breaks("action_accepted")
class WantsAnInt(GoodEnv):
    def _move(self, action: Any) -> None:
        if not isinstance(action, int):
            raise TypeError("an int please")


@breaks("lazy_construction")
class BuildsInInit(GoodEnv):
    def __init__(self, cfg: Any = None) -> None:
        super().__init__(cfg)
        self._env = gymnasium.make("CartPole-v1")


@breaks("lazy_construction")
class BuildsInInitToAsForSpaces(GoodEnv):
    def __init__(self, cfg: Any = None) -> None:
        super().__init__(cfg)
        env = gymnasium.make("CartPole-v1")
        self.action_space = env.action_space
        env.close()


@breaks("lazy_construction")
class ResetsInInit(GoodEnv):
    def __init__(self, cfg: Any = None) -> None:
        super().__init__(cfg)
        self.reset()


@breaks("lazy_construction")
class OpensInInit(GoodEnv):
    def __init__(self, cfg: Any = None) -> None:
        super().__init__(cfg)
        self._file = open(os.devnull)  # noqa: SIM115

    def close(self) -> None:
        super().close()
        self._file.close()


@breaks("lazy_construction")
class StartsAThreadInInit(GoodEnv):
    def __init__(self, cfg: Any = None) -> None:
        super().__init__(cfg)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._stop.wait, name="simulator")
        self._thread.start()

    def close(self) -> None:
        super().close()
        self._stop.set()
        self._thread.join()


@breaks("cfg_unchanged")
class PopsFromCfg(GoodEnv):
    def __init__(self, cfg: Any = None) -> None:
        super().__init__(cfg)
        self._length = self._cfg.pop("length", 5)


@breaks("cfg_unchanged")
class WritesIntoCfg(GoodEnv):
    def reset(self, **kwargs: Any) -> Any:
        self._cfg["nested"]["list"].append(1)
        return super().reset()


@breaks("env_cfgs")
class SharesCfgs(GoodEnv):
    @staticmethod
    def create_collector_env_cfg(cfg: Any) -> list[Any]:
        cfg = copy.deepcopy(cfg)
        count = cfg.pop("collector_env_num")
        return [{**cfg, "is_train": True} for _ in range(count)]


@breaks("env_cfgs")
class PopsTheCount(GoodEnv):
    @staticmethod
    def create_evaluator_env_cfg(cfg: Any) -> list[Any]:
        count = cfg.pop("evaluator_env_num")
        return [{**copy.deepcopy(cfg), "is_train": False} for _ in range(count)]


@breaks("env_cfgs")
class ForgetsIsTrain(GoodEnv):
    @staticmethod
    def create_evaluator_env_cfg(cfg: Any) -> list[Any]:
        return BaseEnv.create_collector_env_cfg({**cfg, "collector_env_num": cfg["evaluator_env_num"]})


@breaks("env_cfgs")
class OneCfg(GoodEnv):
    @staticmethod
    def create_collector_env_cfg(cfg: Any) -> Any:
        return BaseEnv.create_collector_env_cfg(cfg)[0]


@breaks("spaces_known")
class SpacesAfterReset(GoodEnv):
    def __init__(self, cfg: Any = None) -> None:
        super().__init__(cfg)
        del self.observation_space

    def reset(self, **kwargs: Any) -> Any:
        self.observation_space = spaces.Box(-100.0, 100.0, (3,), np.float32)
        return super().reset()


@breaks("spaces_known")
class NoneAsSpace(GoodEnv):
    reward_space = None


@breaks("spaces_known")
class NoActionSpaceEver(GoodEnv):
    def __init__(self, cfg: Any = None) -> None:
        super().__init__(cfg)
        self.action_space = (3,)


@breaks("spaces_fixed")
class SpaceChanges(GoodEnv):
    def reset(self, **kwargs: Any) -> Any:
        self.observation_space = spaces.Box(-99.0, 99.0, (3,), np.float32)
        return super().reset()


@breaks("spaces_fixed")
class AgentsChange(GoodEnv):
    def step(self, action: Any) -> Any:
        self.num_agents = 2
        return super().step(action)


@breaks("num_agents")
class NoAgents(GoodEnv):
    num_agents = 0


@breaks("num_agents")
class AgentsWithoutRows(GoodEnv):
    num_agents = 2


@breaks("spaces_known")
class AgentsAfterReset(GoodEnv):
    @property
    def num_agents(self) -> int:
        if self._world is None:
            raise RuntimeError("not yet")
        return 1


@breaks("action_dtype")
class DoubleActions(GoodEnv):
    def __init__(self, cfg: Any = None) -> None:
        super().__init__(cfg)
        self.action_space = spaces.Box(-1.0, 1.0, (1,), np.float64)

    def _move(self, action: Any) -> None:
        super()._move(action[0])


@breaks("num_agents")
class NoneAgents(GoodEnv):
    num_agents = None


@breaks("random_action")
class NoRandomAction(GoodEnv):
    def random_action(self) -> Any:
        return None


@breaks("random_action")
class RandomNumber(GoodEnv):
    def random_action(self) -> Any:
        return 1


@breaks("random_action")
class RandomActionOutside(GoodEnv):
    def random_action(self) -> Any:
        return np.array(3)


@breaks("repr_text")
class ReprRaises(GoodEnv):
    def __repr__(self) -> str:
        return f"at {self._place}"


@breaks("repr_text")
class ReprIsEmpty(GoodEnv):
    def __repr__(self) -> str:
        return ""


@breaks("reset_result")
class ResetLikeGymnasium(GoodEnv):
    def reset(self, **kwargs: Any) -> Any:
        return super().reset(), {}


@breaks("step_result")
class StepLikeGymnasium(GoodEnv):
    def step(self, action: Any) -> Any:
        obs, reward, done, info = super().step(action)
        return obs, reward, done, False, info


@breaks("step_result")
class StepWithoutNames(GoodEnv):
    def step(self, action: Any) -> Any:
        return tuple(super().step(action))


@breaks("step_result")
class StepInAnotherOrder(GoodEnv):
    def step(self, action: Any) -> Any:
        obs, reward, done, info = super().step(action)
        return namedtuple("OldTimestep", "obs act reward done info")(obs, action, reward, done, info)


@breaks("step_result")
class StepReturnsADict(GoodEnv):
    def step(self, action: Any) -> Any:
        return super().step(action)._asdict()


@breaks("obs_type")
class ListAsObs(GoodEnv):
    def _observe(self) -> Any:
        return super()._observe().tolist()


@breaks("obs_type")
class ScalarAsObs(DictEnv):
    def _observe(self) -> Any:
        image, (vector, number) = super()._observe().values()
        return {"image": image, "pair": (vector, np.int64(number))}


@breaks("obs_type")
class KeyMissing(DictEnv):
    def _observe(self) -> Any:
        return {"pair": super()._observe()["pair"]}


@breaks("obs_type")
class PartMissing(DictEnv):
    def _observe(self) -> Any:
        return {**super()._observe(), "pair": super()._observe()["pair"][:1]}


@breaks("obs_dtype")
class DoubleObs(GoodEnv):
    def _observe(self) -> Any:
        return self._place.copy()


@breaks("obs_dtype")
class DoubleObsAndSpace(DoubleObs):
    def __init__(self, cfg: Any = None) -> None:
        super().__init__(cfg)
        self.observation_space = spaces.Box(-100.0, 100.0, (3,), np.float64)


@breaks("obs_dtype")
class BytesWithoutImage(GoodEnv):
    def __init__(self, cfg: Any = None) -> None:
        super().__init__(cfg)
        self.observation_space = spaces.Box(0, 255, (3,), np.uint8)

    def _observe(self) -> Any:
        return (self._place * 100).astype(np.int64).astype(np.uint8)


@breaks("obs_dtype")
class WholeNumbersForFloats(GoodEnv):
    def _observe(self) -> Any:
        return (self._place * 10).astype(np.int64)


@breaks("obs_shape")
class ObsWithAnotherAxis(GoodEnv):
    def _observe(self) -> Any:
        return super()._observe()[None]


@breaks("obs_shape")
class LastObsShorter(GoodEnv):
    def _observe(self) -> Any:
        return super()._observe()[: 3 if self._count < self._length else 2]


@breaks("obs_bounds")
class ObsTooLarge(GoodEnv):
    def _observe(self) -> Any:
        return super()._observe() + (101 if self._count == 2 else 0)


@breaks("obs_bounds")
class DiscreteObsTooLarge(DictEnv):
    def __init__(self, cfg: Any = None) -> None:
        super().__init__(cfg)
        pair = [spaces.Box(-100.0, 100.0, (3,), np.float32), spaces.Discrete(5)]
        self.observation_space = spaces.Dict({**self.observation_space, "pair": spaces.Tuple(pair)})


@breaks("reward_type")
class FloatAsReward(GoodEnv):
    def _reward(self) -> Any:
        return float(self._place[0])


@breaks("reward_dtype")
class DoubleReward(GoodEnv):
    def _reward(self) -> Any:
        return self._place[:1].copy()


@breaks("reward_shape")
class RewardWithoutAxis(GoodEnv):
    def _reward(self) -> Any:
        return np.array(self._place[0], np.float32)


@breaks("reward_shape")
class RewardForOneOfThree(TwoAgents):
    def _reward(self) -> Any:
        return self._place.astype(np.float32)


@breaks("reward_shape")
class RewardSpaceForgotten(TwoAgents):
    def __init__(self, cfg: Any = None) -> None:
        super().__init__(cfg)
        self.reward_space = GoodEnv.reward_space


@breaks("reward_bounds")
class RewardTooLarge(GoodEnv):
    reward_space = spaces.Box(-1.0, 1.0, (1,), np.float32)

    def _reward(self) -> Any:
        return np.array([2.0 if self._count == 5 else 1.0], np.float32)


@breaks("done_type")
class NumpyDone(GoodEnv):
    def step(self, action: Any) -> Any:
        timestep = super().step(action)
        return timestep._replace(done=np.bool_(timestep.done))


@breaks("done_type")
class DoneAsArray(TwoAgents):
    def step(self, action: Any) -> Any:
        timestep = super().step(action)
        return timestep._replace(done=np.array([timestep.done] * 2))


@breaks("info_type")
class NoInfo(GoodEnv):
    def _info(self, done: bool) -> Any:
        return super()._info(done) if done else None


@breaks("info_flags")
class NumpyFlags(GoodEnv):
    def _info(self, done: bool) -> Any:
        return {**super()._info(done), "abnormal": np.bool_(False)}


@breaks("info_flags")
class TruncatedAsInt(GoodEnv):
    def _info(self, done: bool) -> Any:
        return {**super()._info(done), "TimeLimit.truncated": 1} if done else {}


@breaks("episode_return")
class NoReturn(GoodEnv):
    def _info(self, done: bool) -> Any:
        return {}


@breaks("episode_return")
class ReturnAsScalar(GoodEnv):
    def _info(self, done: bool) -> Any:
        value = np.float32(self._total)
        return {"eval_episode_return": value, "final_eval_reward": value} if done else {}


@breaks("episode_return_alias")
class NoAlias(GoodEnv):
    def _info(self, done: bool) -> Any:
        return {"eval_episode_return": self._total} if done else {}


@breaks("episode_return_alias")
class AnotherAlias(GoodEnv):
    def _info(self, done: bool) -> Any:
        return {**super()._info(done), "final_eval_reward": self._total + 1} if done else {}


@breaks("no_nan")
class NanInObs(GoodEnv):
    def _observe(self) -> Any:
        return super()._observe() * np.float32(np.nan if self._count == 3 else 1)


@breaks("no_nan")
class NanReturn(GoodEnv):
    def _info(self, done: bool) -> Any:
        return {"eval_episode_return": float("nan"), "final_eval_reward": float("nan")} if done else {}


@breaks("own_memory")
class SameArray(GoodEnv):
    def _observe(self) -> Any:
        self._buffer = getattr(self, "_buffer", np.zeros(3, np.float32))
        self._buffer[:] = self._place
        return self._buffer


@breaks("own_memory")
class TwoBuffers(GoodEnv):
    def _observe(self) -> Any:
        self._buffers = getattr(self, "_buffers", np.zeros((2, 3), np.float32))
        self._buffers[self._count % 2] = self._place
        return self._buffers[self._count % 2]


@breaks("own_memory")
class WritesIntoOldObs(GoodEnv):
    def reset(self, **kwargs: Any) -> Any:
        self._old = super().reset()
        return self._old

    def _move(self, action: Any) -> None:
        super()._move(action)
        self._old[:] = 0


@breaks("own_memory")
class SameReward(GoodEnv):
    _SAME = np.ones(1, np.float32)

    def _reward(self) -> Any:
        return self._SAME


@breaks("own_memory")
class SameInfo(GoodEnv):
    _SAME: ClassVar[dict[str, Any]] = {}

    def _info(self, done: bool) -> Any:
        return super()._info(done) or self._SAME


@breaks("action_unchanged")
class ScalesTheAction(GoodEnv):
    def __init__(self, cfg: Any = None) -> None:
        super().__init__(cfg)
        self.action_space = spaces.Box(-1.0, 1.0, (1,), np.float32)

    def _move(self, action: Any) -> None:
        action *= 2
        super()._move(action[0])


@breaks("static_seed")
class AlwaysDynamic(GoodEnv):
    def seed(self, seed: int, dynamic_seed: bool = True) -> None:
        super().seed(seed, True)


@breaks("static_seed")
class StepsFromTheStream(GoodEnv):
    """Begins every static episode alike, and goes on with what is left of a generator."""

    def seed(self, seed: int, dynamic_seed: bool = True) -> None:
        super().seed(seed, dynamic_seed)
        self._stream = np.random.default_rng(seed)

    def _begin(self, generator: np.random.Generator) -> None:
        super()._begin(generator)
        self._generator = self._stream


@breaks("dynamic_seed_repeats")
class DynamicMeansUnseeded(GoodEnv):
    def _begin(self, generator: np.random.Generator) -> None:
        super()._begin(np.random.default_rng() if self._seeds is not None and self._seeds.dynamic else generator)


@breaks("dynamic_seed_renews")
class AlwaysStatic(GoodEnv):
    def seed(self, seed: int, dynamic_seed: bool = True) -> None:
        super().seed(seed, False)


@breaks("distinct_envs")
class IgnoresTheSeed(GoodEnv):
    def seed(self, seed: int, dynamic_seed: bool = True) -> None:
        super().seed(0 if dynamic_seed else seed, dynamic_seed)


@breaks("distinct_envs")
class CountsUp(GoodEnv):
    """The seed plus the number of the episode: the neighbour's next one."""

    def seed(self, seed: int, dynamic_seed: bool = True) -> None:
        super().seed(seed, dynamic_seed)
        self._next = seed

    def _begin(self, generator: np.random.Generator) -> None:
        if self._seeds is not None and self._seeds.dynamic:
            generator = np.random.default_rng(self._next)
            self._next += 1
        super()._begin(generator)


@breaks("distinct_envs")
class OneStaticEpisode(GoodEnv):
    def seed(self, seed: int, dynamic_seed: bool = True) -> None:
        super().seed(seed if dynamic_seed else 5, dynamic_seed)


@breaks("independent_envs")
class GeneratorOfTheClass(GoodEnv):
    _shared: ClassVar[Any] = None

    def _begin(self, generator: np.random.Generator) -> None:
        GeneratorOfTheClass._shared = generator
        super()._begin(generator)

    def _move(self, action: Any) -> None:
        self._generator = GeneratorOfTheClass._shared
        super()._move(action)


@breaks("global_generators")
class SeedsNumpy(GoodEnv):
    def seed(self, seed: int, dynamic_seed: bool = True) -> None:
        super().seed(seed, dynamic_seed)
        np.random.seed(seed)


@breaks("global_generators")
class DrawsFromRandom(GoodEnv):
    def _move(self, action: Any) -> None:
        super()._move(action)
        random.random()


@breaks("close_twice")
class ClosesOnce(GoodEnv):
    def close(self) -> None:
        if self._world is None:
            raise RuntimeError("closed already")
        super().close()


@breaks("reset_after_close")
class NoWayBack(GoodEnv):
    _was_closed = False

    def reset(self, **kwargs: Any) -> Any:
        if self._was_closed:
            raise RuntimeError("closed for good")
        return super().reset()

    def close(self) -> None:
        self._was_closed = True
        super().close()


@breaks("reset_after_close")
class ForgetsToBuildAgain(GoodEnv):
    _was_built = False

    def reset(self, **kwargs: Any) -> Any:
        obs = super().reset()
        if self._was_built and self._count == 0 and self._built_once is not self._world:
            self._world = None  # step finds nothing
        self._was_built, self._built_once = True, self._world
        return obs

    _built_once: Any = None


@breaks("close_frees")
class LeavesAFile(GoodEnv):
    opened: ClassVar[list[Any]] = []

    def reset(self, **kwargs: Any) -> Any:
        if self._world is None:
            self.opened.append(open(os.devnull))  # noqa: SIM115
        return super().reset()


@breaks("close_frees")
class LeavesAProcess(GoodEnv):
    opened: ClassVar[list[Any]] = []

    def reset(self, **kwargs: Any) -> Any:
        if self._world is None:
            self.opened.append(subprocess.Popen(["cat"], stdin=subprocess.PIPE))
        return super().reset()


def close_what_is_left() -> None:
    """Ends what the last two leave open."""
    for file in LeavesAFile.opened:
        file.close()
    for process in LeavesAProcess.opened:
        process.communicate(timeout=60)
    LeavesAFile.opened.clear()
    LeavesAProcess.opened.clear()
