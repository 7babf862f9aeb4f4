"""How to bring an env (seed 002), its end: DingEnvWrapper, many agents, hybrid actions."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from stepmill.envs import BaseEnv, BaseEnvInfo, BaseEnvTimestep, DingEnvWrapper
from stepmill.envs.common.env_element import EnvElementInfo
from stepmill.testing import check_env
from stepmill.wrappers import GymHybridDictAction
from support.seed_runs import IN_ONE_PROCESS, manager_of, play, pool_of

# ---- DingEnvWrapper ------------------------------------------------------------------------------


@pytest.mark.parametrize(("env_id", "action"), [("CartPole-v1", np.array(1)), ("Pendulum-v1", np.zeros(1, np.float32))])
@pytest.mark.parametrize("way", IN_ONE_PROCESS)
def test_ding_env_wrapper_for_simple_envs(way: str, env_id: str, action: Any) -> None:
    """Its section: a line turns CartPole or Pendulum into a BaseEnv."""

    def env_fn(cfg: Any) -> BaseEnv:
        return DingEnvWrapper(gymnasium.make(env_id, max_episode_steps=20), cfg)

    ((episode,), _) = play(way, env_fn, [{}, {}], action=lambda step: action)
    assert episode.observations[0].dtype == np.float32
    assert episode.info["final_eval_reward"] == pytest.approx(sum(episode.rewards))


@pytest.mark.parametrize("env_id", ["CartPole-v1", "Pendulum-v1"])
def test_ding_env_wrapper_keeps_the_contract(env_id: str) -> None:
    """Its section: what comes of it conforms, as the checker says."""
    assert not check_env(lambda: DingEnvWrapper(env_id), steps=20, print_report=False)


def test_ding_env_wrapper_keeps_a_measure_of_the_envs_own() -> None:
    """Its section with basics 5: a rate of wins that the env tells under the document's name is not overwritten."""

    class WinRate(gymnasium.Wrapper):
        def step(self, action: Any) -> Any:
            obs, reward, _, truncated, info = super().step(action)
            return obs, reward, True, truncated, {**info, "final_eval_reward": 0.75}

    env = DingEnvWrapper(WinRate(gymnasium.make("CartPole-v1")))
    env.reset()
    info = env.step(np.array(0)).info
    assert info["final_eval_reward"] == info["eval_episode_return"] == 0.75


# ---- questions -----------------------------------------------------------------------------------


class Team(BaseEnv):
    """One agent or two, as the cfg says; the simulator wants a list of the agents' moves."""

    def __init__(self, cfg: dict) -> None:
        self._cfg = cfg
        self.num_agents = cfg["agents"]
        self.observation_space = spaces.Box(-100, 100, (self.num_agents, 2), np.float32)
        self.action_space = spaces.MultiDiscrete([3] * self.num_agents)
        rewards = 1 if cfg.get("shared") else self.num_agents
        self.reward_space = spaces.Box(-100, 100, (rewards,), np.float32)

    def reset(self) -> np.ndarray:
        self._places, self._time = np.zeros(self.num_agents), 0
        return self._observe()

    def _observe(self) -> np.ndarray:
        return np.stack([self._places, np.arange(self.num_agents)], 1).astype(np.float32)

    def step(self, action: np.ndarray) -> BaseEnvTimestep:
        moves = [int(one) for one in action]
        self._places += moves
        self._time += 1
        done = self._time == 3
        reward = np.array([sum(moves)] if self._cfg.get("shared") else moves, np.float32)
        total = float(self._places.sum())
        info = {"eval_episode_return": total, "final_eval_reward": total} if done else {}
        return BaseEnvTimestep(self._observe(), reward, done, info)

    def close(self) -> None:
        pass


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("agents", [1, 2])
def test_question_1_many_agents(agents: int, shared: bool) -> None:
    """Question 1: one class for one agent or several; a row each; rewards for each or for all; one ``done``."""
    cfg = {"agents": agents, "shared": shared}
    assert not check_env(Team, cfg, print_report=False)
    with manager_of("serial", Team, [cfg, cfg]) as manager:
        manager.launch()
        timestep = manager.step({0: np.arange(agents) + 1, 1: np.zeros(agents, int)})[0]
        assert timestep.obs.shape == (agents, 2)
        assert timestep.obs[:, 0].tolist() == [1, 2][:agents]
        assert timestep.reward.tolist() == ([sum([1, 2][:agents])] if shared else [1, 2][:agents])
        assert timestep.done is False
        assert manager.env_info.agent_num == agents


class OldTeam(Team):
    """The same, described by ``info()`` alone."""

    def __init__(self, cfg: dict) -> None:
        self._cfg = cfg

    def info(self) -> BaseEnvInfo:
        agents = self._cfg["agents"]
        return BaseEnvInfo(
            agent_num=agents,
            obs_space=EnvElementInfo((agents, 2), {"min": -100, "max": 100, "dtype": np.float32}),
            act_space=EnvElementInfo((agents,), {"min": 0, "max": 2, "dtype": np.int64}),
            rew_space=EnvElementInfo((agents,), {"min": -100, "max": 100, "dtype": np.float32}),
            use_wrappers=None,
        )


def test_question_1_many_agents_by_info_alone() -> None:
    """Question 1, in the form of this document: ``agent_num`` and shapes with a row for each."""
    cfg = {"agents": 3}
    env = OldTeam(cfg)
    assert (env.num_agents, env.observation_space.shape, env.action_space.shape) == (3, (3, 2), (3,))
    with manager_of("serial", OldTeam, [cfg, cfg]) as manager:
        manager.launch()
        timestep = manager.step({0: np.array([0, 1, 2]), 1: np.zeros(3, int)})[0]
        assert timestep.obs[:, 0].tolist() == timestep.reward.tolist() == [0, 1, 2]
    with pool_of("inline", OldTeam, [cfg, cfg]) as pool:
        pool.reset()
        assert pool.step(np.array([0, 1, 2, 0, 0, 0]))[1].tolist() == [0, 1, 2, 0, 0, 0]


class Car(gymnasium.Env):
    """Accelerate, turn or brake: the first two with a number, as hybrid envs have it."""

    observation_space = spaces.Box(-100.0, 100.0, (2,), np.float32)
    action_space = spaces.Tuple(
        (spaces.Discrete(3), spaces.Box(0.0, 1.0, (1,), np.float32), spaces.Box(-1.0, 1.0, (1,), np.float32))
    )

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self._state, self._time = np.zeros(2, np.float32), 0
        return self._state.copy(), {}

    def step(self, action: Any) -> Any:
        kind, acceleration, angle = action
        if kind == 0:
            self._state[0] += acceleration[0]
        elif kind == 1:
            self._state[1] += angle[0]
        self._time += 1
        return self._state.copy(), float(self._state[0]), self._time == 3, False, {}


def test_question_2_hybrid_actions() -> None:
    """Question 2: a kind and a number for each kind; the env's space says which."""
    assert not check_env(lambda: DingEnvWrapper(Car), print_report=False)
    shape = DingEnvWrapper(Car).info().act_space.shape
    assert shape == ((3,), (1,), (1,))
    with manager_of("serial", lambda cfg: DingEnvWrapper(Car), [{}]) as manager:
        manager.launch()
        turn = (1, np.zeros(1, np.float32), np.full(1, 0.5, np.float32))
        assert manager.step({0: turn})[0].obs.tolist() == [0, 0.5]


def test_question_2_hybrid_actions_as_a_dict() -> None:
    """Question 2: the form that Gym-Hybrid's policies send."""
    env = DingEnvWrapper(lambda: GymHybridDictAction(Car()))
    env.reset()
    action = {"action_type": np.array(0), "action_args": np.array([1.0, 0.0], np.float32)}
    assert env.step(action).obs.tolist() == [1, 0]


class OldCar(BaseEnv):
    """A hybrid env described by ``info()`` alone: a dict of shapes and a dict of bounds."""

    def __init__(self, cfg: dict) -> None:
        self._cfg = cfg

    def info(self) -> BaseEnvInfo:
        kinds = {"min": 0, "max": 3, "dtype": np.int64}
        numbers = {"min": -1.0, "max": 1.0, "dtype": np.float32}
        return BaseEnvInfo(
            agent_num=1,
            obs_space=EnvElementInfo((2,), {"min": -100, "max": 100, "dtype": np.float32}),
            act_space=EnvElementInfo({"type": (3,), "args": (2,)}, {"type": kinds, "args": numbers}),
            rew_space=EnvElementInfo(1, None),
            use_wrappers=None,
        )

    def reset(self) -> np.ndarray:
        self._state = np.zeros(2, np.float32)
        return self._state.copy()

    def step(self, action: Any) -> BaseEnvTimestep:
        self._state[int(action["type"]) % 2] += action["args"][int(action["type"]) % 2]
        return BaseEnvTimestep(self._state.copy(), np.ones(1, np.float32), False, {})

    def close(self) -> None:
        pass


def test_question_2_hybrid_actions_by_info_alone() -> None:
    """Question 2, in the form of this document: nested shapes are nested spaces."""
    space = OldCar({}).action_space
    assert space == spaces.Dict({"type": spaces.Discrete(3), "args": spaces.Box(-1, 1, (2,), np.float32)})
    with manager_of("serial", OldCar, [{}]) as manager:
        manager.launch()
        action = {"type": np.array(1), "args": np.array([0.0, 0.5], np.float32)}
        assert manager.step({0: action})[0].obs.tolist() == [0, 0.5]
