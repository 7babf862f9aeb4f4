"""Envs of every kind in managers: what is handed out, and their videos."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import stepmill
from stepmill import EnvError
from stepmill.envs import DingEnvWrapper
from stepmill.errors import UnsupportedError
from stepmill.hosts.observing import stats_of
from stepmill.managers import (
    BaseEnvManager,
    SubprocessEnvManager,
)
from support.envs import ProbeTwin
from support.envs.contract import DmWalk, Pair, PairWithState, Walk
from support.envs.drawn import CountingEnv, counts
from support.envs.managed import KINDS, Shapeless, Trial, launched, make
from support.envs.many_spaces import SpaceEnv
from support.manager_cases import SERIAL_AND_ASYNC, pool_of
from support.probes import assert_same
from support.waiting import eventually

pytestmark = pytest.mark.usefixtures("deadline", "server")


# ---- what is handed out --------------------------------------------------------------------------


SPACES: dict[str, spaces.Space[Any]] = {
    "float16": spaces.Box(-1, 1, (3,), np.float16),
    "a number": spaces.Box(-1, 1, (), np.float32),
    "Discrete": spaces.Discrete(5, start=3),
    "Tuple": spaces.Tuple([spaces.Box(-1, 1, (2,), np.float16), spaces.Discrete(4), spaces.MultiDiscrete([3, 4])]),
    "nested Dict": spaces.Dict(
        {
            "camera": spaces.Dict({"left": spaces.Box(0, 255, (2, 2), np.uint8), "lit": spaces.Discrete(2)}),
            "body": spaces.Tuple([spaces.Box(-1, 1, (3,), np.float64), spaces.Dict({"x": spaces.MultiBinary(2)})]),
        }
    ),
    "objects": spaces.Dict({"text": spaces.Text(5), "list": spaces.Sequence(spaces.Box(-1, 1, (2,), np.float32))}),
}


def normal(value: Any) -> Any:
    """Numbers as arrays: a manager gives arrays all through."""
    if isinstance(value, dict):
        return {key: normal(child) for key, child in value.items()}
    if isinstance(value, tuple):
        return tuple(normal(child) for child in value)
    return np.asarray(value) if isinstance(value, np.generic) else value


@pytest.mark.parametrize("name", SPACES)
def test_shared_memory_works_for_every_space(name: str) -> None:
    lone = SpaceEnv(SPACES[name], spaces.Discrete(2))
    space = SPACES[name]
    with SubprocessEnvManager([lambda: SpaceEnv(space, spaces.Discrete(2))]) as manager:
        assert manager.default_config()["shared_memory"]
        manager.seed(3)
        manager.launch()
        assert_same(manager.ready_obs[0], normal(lone.reset(seed=3)[0]))
        assert manager.observation_space == space
        for _ in range(4):
            expected = lone.step(0)
            timestep = manager.step({0: 0})[0]
            assert_same(timestep.obs, normal(expected[0]))
            assert (timestep.reward, timestep.done) == (np.float32(expected[1]), expected[2])
            assert set(timestep.info) >= set(expected[4])
        assert_same(manager.ready_obs[0], normal(lone.reset()[0]))


@SERIAL_AND_ASYNC
def test_without_shared_memory_any_object_is_an_observation(kind: str) -> None:
    with KINDS[kind](Shapeless, [{}, {}], 2, shared_memory=False) as manager:
        manager.launch()
        assert manager.ready_obs == {0: "begin", 1: "begin"}
        assert manager.observation_space == Shapeless.observation_space
        timestep = manager.step({1: 1})[1]
        assert timestep.obs["set"] == {1, "x"}
        assert timestep.obs["list"][1].tolist() == [0]
        assert timestep.obs["point"] == 1 + 1j
        timestep = manager.step({1: 0})[1]
        assert (timestep.done, timestep.obs["set"], timestep.info["eval_episode_return"]) == (True, {2, "x"}, 2.0)
        assert eventually(lambda: 1 in manager.ready_obs)
        assert manager.ready_obs == {0: "begin", 1: "begin"}


class Reusing(Trial):
    """Has one array for all its observations."""

    def __init__(self, cfg: Any = None) -> None:
        super().__init__(cfg)
        self._array = np.zeros(3, np.float32)

    def _observation(self) -> np.ndarray:
        self._array[:] = super()._observation()
        return self._array


@pytest.mark.parametrize(
    ("kind", "shared_memory"), [("serial", True), ("serial", False), ("sync", True), ("async", False)]
)
def test_observations_are_the_caller_s_own(kind: str, shared_memory: bool) -> None:
    with launched(kind, [{"length": 3}] * 2, Reusing, shared_memory=shared_memory) as manager:
        kept, values = [], []
        for _ in range(8):
            ready = manager.ready_obs
            for one in (ready, manager.ready_obs, {i: t.obs for i, t in manager.step(dict.fromkeys(ready, 0)).items()}):
                kept += list(one.values())
                values += [seen.tolist() for seen in one.values()]
        assert [one.tolist() for one in kept] == values, "nobody writes to them any more"
        ready = manager.ready_obs
        for seen in ready.values():
            seen[:] = 99
        assert all((seen != 99).all() for seen in manager.ready_obs.values())
        timesteps = manager.step(dict.fromkeys(ready, 0))
        for one in timesteps.values():
            one.obs[:] = 99
        assert all((seen != 99).all() for seen in manager.ready_obs.values())


@pytest.mark.torch
@SERIAL_AND_ASYNC
def test_output_of_torch_is_float32_tensors(kind: str) -> None:
    import torch

    with make(kind, [{"length": 2}] * 2) as plain, make(kind, [{"length": 2}] * 2, output="torch") as manager:
        for one in (plain, manager):
            one.seed(3)
            one.launch()
        for _ in range(2):
            ready = manager.ready_obs
            for env_id, seen in plain.ready_obs.items():
                assert (ready[env_id].dtype, ready[env_id].tolist()) == (torch.float32, seen.tolist())
            for env_id in (0, 1):
                (expected,), (timestep,) = plain.step({env_id: 1}).values(), manager.step({env_id: 1}).values()
                for tensor, array in ((timestep.obs, expected.obs), (timestep.reward, expected.reward)):
                    assert (tensor.dtype, tensor.shape, tensor.tolist()) == (
                        torch.float32,
                        array.shape,
                        array.tolist(),
                    )
                assert timestep.done is expected.done
                assert timestep.info.keys() == expected.info.keys()
        assert float(timestep.info["eval_episode_return"]) == np.float32(expected.info["eval_episode_return"])


# ---- envs of every kind --------------------------------------------------------------------------


def a_lone_cartpole(seed: int, episodes: int) -> list[tuple[list[float], int]]:
    """First observation and length of episodes in which the action is 0."""
    env = gymnasium.make("CartPole-v1")
    out = []
    for episode in range(episodes):
        first = env.reset(seed=None if episode else seed)[0].tolist()
        steps = 0
        done = False
        while not done:
            done = env.step(0)[2]
            steps += 1
        out.append((first, steps))
    env.close()
    return out


@SERIAL_AND_ASYNC
def test_gymnasium_envs(kind: str) -> None:
    with KINDS[kind]([lambda: gymnasium.make("CartPole-v1")] * 2, cfg={"episode_num": 3}) as manager:
        manager.seed([3, 4])
        manager.launch()
        assert manager.env_info.act_space.shape == (2,)
        assert manager.reward_space.shape == (1,)
        played: list[list[Any]] = [[], []]
        firsts: dict[int, Any] = {}
        steps = [0, 0]
        while not manager.done:
            ready = manager.ready_obs
            for env_id, seen in ready.items():
                firsts[env_id] = seen.tolist() if steps[env_id] == 0 else firsts[env_id]
            for env_id, timestep in manager.step(dict.fromkeys(ready, 0)).items():
                steps[env_id] += 1
                assert (timestep.reward.shape, timestep.reward.dtype, timestep.reward.item()) == ((1,), np.float32, 1)
                if timestep.done:
                    assert timestep.info["eval_episode_return"] == steps[env_id]
                    assert timestep.info["final_eval_reward"] == steps[env_id]
                    played[env_id].append((firsts[env_id], steps[env_id]))
                    steps[env_id] = 0
        assert played == [a_lone_cartpole(3, 3), a_lone_cartpole(4, 3)]


@SERIAL_AND_ASYNC
def test_a_gymnasium_env_with_a_static_seed_repeats_its_episode(kind: str) -> None:
    with KINDS[kind]([lambda: gymnasium.make("CartPole-v1")]) as manager:
        manager.seed(3, dynamic_seed=False)
        manager.launch()
        first = a_lone_cartpole(3, 1)[0][0]
        for _ in range(3):
            assert manager.ready_obs[0].tolist() == first
            while not manager.step({0: 0})[0].done:
                pass


class Telling(ProbeTwin):
    """A Gymnasium env whose info has keys that mean something elsewhere."""

    def step(self, action: Any) -> Any:
        return *super().step(action)[:4], {"rewards": {"wins": 1}, "env_id": "mine", "players": [1], "episode": 3}


@SERIAL_AND_ASYNC
def test_an_info_is_the_env_s_own(kind: str) -> None:
    with KINDS[kind]([Telling]) as manager:
        manager.launch()
        timestep = manager.step({0: 0.5})[0]
        assert (timestep.reward.tolist(), timestep.reward.dtype) == ([0.5], np.float32)
        assert timestep.info == {"rewards": {"wins": 1}, "env_id": "mine", "players": [1], "episode": 3}


@SERIAL_AND_ASYNC
@pytest.mark.parametrize("cut_off", [True, False])
def test_a_time_limit_is_told(kind: str, cut_off: bool) -> None:
    with launched(kind, [{"length": 1, "cut_off": cut_off}]) as manager:
        assert manager.step({0: 0})[0].info["TimeLimit.truncated"] is cut_off


@SERIAL_AND_ASYNC
def test_dm_envs(kind: str) -> None:
    with KINDS[kind]([DmWalk] * 2) as manager:
        manager.launch()
        for step in range(1, 4):
            timesteps = manager.step({0: 2, 1: 3})
            while len(timesteps) < 2:
                timesteps.update(manager.step({}))
            assert [one.reward.tolist() for _, one in sorted(timesteps.items())] == [[2.0], [3.0]]
            assert timesteps[1].obs["count"] == step
            assert timesteps[1].obs["place"].tolist() == [step] * 2
            assert timesteps[1].done == (step == 3)
        assert timesteps[1].info["eval_episode_return"] == 9.0


@SERIAL_AND_ASYNC
@pytest.mark.parametrize(
    ("env", "shared", "shared_memory"),
    [(Pair, True, True), (Pair, False, True), (Pair, False, False), (PairWithState, False, True)],
)
def test_envs_of_many_agents(kind: str, env: type[Pair], shared: bool, shared_memory: bool) -> None:
    with KINDS[kind](env, [{"shared": shared}] * 2, 2, shared_memory=shared_memory) as manager:
        manager.launch()
        assert manager.observation_space == env.observation_space
        assert manager.action_space == env.action_space
        assert manager.env_info.agent_num == 2
        for step in range(1, 4):
            timestep = manager.step({1: np.array([1, 3])})[1]
            assert_same(timestep.reward, np.array([4] if shared else [1, 3], np.float32))
            agents = timestep.obs if env is Pair else timestep.obs["agents"]
            assert_same(agents, np.array([[1, step], [1, 3 * step]], np.float32))
            if env is PairWithState:
                assert timestep.obs["state"].tolist() == [step] * 3
            assert timestep.done == (step == 3)
        assert timestep.info["eval_episode_return"] == 12.0
        assert "rewards" not in timestep.info


@SERIAL_AND_ASYNC
def test_parallel_envs(kind: str) -> None:
    pytest.importorskip("mpe2")
    from mpe2 import simple_spread_v3

    with KINDS[kind](
        [functools.partial(simple_spread_v3.parallel_env, max_cycles=5)] * 2, cfg={"episode_num": 1}
    ) as manager:
        manager.seed(0)
        manager.launch()
        agents = manager.env_info.agent_num
        assert agents > 1
        while not manager.done:
            actions = dict.fromkeys(manager.ready_obs, np.zeros(agents, np.int64))
            for timestep in manager.step(actions).values():
                assert len(timestep.reward) == agents
        assert manager.episode_count == {0: 1, 1: 1}


def test_wrapped_envs() -> None:
    cfgs = [{"env_id": "CartPole-v1"}] * 2
    with SubprocessEnvManager(lambda cfg: DingEnvWrapper(cfg["env_id"]), cfgs, 2, 1) as manager:
        manager.seed(3)
        manager.launch()
        while not manager.done:
            timesteps = manager.step(dict.fromkeys(manager.ready_obs, np.array([0])))
        assert next(iter(timesteps.values())).info["eval_episode_return"] > 1


# ---- videos --------------------------------------------------------------------------------------


def videos(folder: Path) -> dict[str, list[int]]:
    return {path.name: counts(path) for path in sorted(folder.iterdir())}


def play_counting(manager: BaseEnvManager) -> None:
    while not manager.done:
        manager.step(dict.fromkeys(manager.ready_obs, 0))


@SERIAL_AND_ASYNC
def test_videos_are_named_by_env_and_episode(kind: str, tmp_path: Path) -> None:
    with make(kind, [{"length": 2}, {"length": 4}], CountingEnv, episode_num=2) as manager:
        manager.seed(0)
        manager.enable_save_replay(tmp_path)
        manager.launch()
        play_counting(manager)
    assert videos(tmp_path) == {
        "env_0_episode_0000.mp4": [0, 1, 2],
        "env_0_episode_0001.mp4": [0, 1, 2],
        "env_1_episode_0000.mp4": [0, 1, 2, 3, 4],
        "env_1_episode_0001.mp4": [0, 1, 2, 3, 4],
    }


@SERIAL_AND_ASYNC
def test_videos_can_be_asked_for_after_launch_and_begin_with_the_next_reset(kind: str, tmp_path: Path) -> None:
    with launched(kind, [{"length": 2}, {"length": 3}], CountingEnv, episode_num=2) as manager:
        manager.enable_save_replay(str(tmp_path))
        play_counting(manager)
    assert videos(tmp_path) == {"env_0_episode_0000.mp4": [0, 1, 2], "env_1_episode_0000.mp4": [0, 1, 2, 3]}


def test_the_folder_of_videos_is_video_by_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with make("async", [{"length": 2}], CountingEnv, episode_num=1) as manager:
        manager.enable_save_replay()
        manager.launch()
        play_counting(manager)
    assert list(videos(tmp_path / "video")) == ["env_0_episode_0000.mp4"]


@SERIAL_AND_ASYNC
def test_videos_of_envs_that_cannot_record_are_an_error(kind: str, tmp_path: Path) -> None:
    manager = KINDS[kind]([ProbeTwin])
    manager.enable_save_replay(tmp_path)
    with pytest.raises(stepmill.StepmillError, match="enable_save_replay"):
        manager.launch()
    assert manager.closed
    manager = make(kind, 1)
    manager.enable_save_replay(tmp_path)
    with pytest.raises(EnvError, match="Trial has no renderer"):
        manager.launch()
    assert manager.closed


@SERIAL_AND_ASYNC
def test_ready_imgs_are_the_pictures_of_the_envs_that_are_ready(kind: str) -> None:
    with launched(kind, 2, CountingEnv) as manager:
        images = manager.ready_imgs
        assert list(images) == [0, 1]
        assert images[1].shape == (32, 96, 3)
        assert not images[1].any()


def test_to_keep_rewards_keeps_no_batches() -> None:
    with BaseEnvManager([lambda: Walk({"length": 1000})] * 2) as manager:
        manager.launch()
        kept = [manager.step({0: 0, 1: 0})[0].reward for _ in range(50)]
        assert stats_of(pool_of(manager))["batches_held"] <= 3
        assert len(kept) == 50


def test_the_callers_objects_are_its_own() -> None:
    class Lists(Walk):
        def _observation(self) -> Any:
            return {"seen": [1, 2]}

    with BaseEnvManager([Lists], shared_memory=False) as manager:
        manager.launch()
        step = manager.step({0: 0})[0]
        step.obs["seen"].append(99)
        manager.ready_obs[0]["seen"].append(98)
        assert manager.ready_obs[0] == {"seen": [1, 2]}


def test_videos_of_envs_that_cannot_record_are_refused_at_once() -> None:
    with BaseEnvManager([ProbeTwin]) as manager:
        manager.launch()
        with pytest.raises(UnsupportedError, match=r"wrap it in stepmill\.envs\.DingEnvWrapper"):
            manager.enable_save_replay()
        assert list(manager.step({0: manager.action_space.sample()})) == [0]


def test_agents_that_are_paid_differently_are_all_told() -> None:
    class Modest(Pair):
        def __init__(self, cfg: Any = None) -> None:
            super().__init__(cfg)
            self.reward_space = spaces.Box(-np.inf, np.inf, (1,), np.float32)

    with BaseEnvManager([Modest]) as manager:
        manager.launch()
        assert manager.step({0: [1, 2]})[0].reward.tolist() == [1, 2]
