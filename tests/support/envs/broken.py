"""Broken twins of the good envs: each breaks one rule about what an env is or returns, and that one alone."""

from __future__ import annotations

import copy
import os
import threading
from collections import namedtuple
from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium import spaces

from stepmill.envs import BaseEnv
from support.envs.good import DictEnv, GoodEnv, TwoAgents, breaks


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


@breaks("static_seed")
class SeedWithoutDynamic(GoodEnv):
    """An older ``seed`` of one argument is called with one, but its episodes cannot be made equal."""

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


@breaks("no_exception")
class RefusesAnAction(GoodEnv):
    def _move(self, action: Any) -> None:
        if int(action) == 2:
            raise ValueError("action 2 means nothing")
        super()._move(action)


@breaks("no_exception")
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
        return namedtuple("OtherTimestep", "obs done reward info")(obs, done, reward, info)


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
