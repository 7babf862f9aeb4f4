"""A ``BaseEnv`` as a gymnasium env, and teams of agents as players of a pool."""

from __future__ import annotations

import functools
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.utils.env_checker import check_env as gymnasium_check

import stepmill
from stepmill.envs import (
    AsGymnasium,
    BaseEnvTimestep,
    DingEnvWrapper,
    as_base_env,
    as_gymnasium,
)
from stepmill.envs.adapters.as_gymnasium import player_space
from stepmill.errors import (
    ActionError,
    ConfigError,
    EnvError,
    UnsupportedError,
)
from support.envs.adapted import PAIR, ZEROS, Obedient, Two
from support.envs.contract import LongStep, Pair, PairWithState, Walk

BACKENDS = ["inline", "process"]


# ---- BaseEnv as gymnasium ------------------------------------------------------------------------


def test_a_base_env_has_five_results_as_a_gymnasium_env() -> None:
    env = as_gymnasium(Walk({"length": 2}))
    assert isinstance(env, gymnasium.Env)
    obs, info = env.reset(seed=3)
    assert (obs.shape, info) == ((3,), {})
    obs, reward, terminated, truncated, info = env.step(1)
    assert reward == pytest.approx(obs[1])
    assert (terminated, truncated, info) == (False, False, {})
    *_, terminated, truncated, info = env.step(np.int64(1))
    assert (terminated, truncated) == (True, False)
    assert info["eval_episode_return"] == info["final_eval_reward"]


def test_an_end_by_the_limit_is_truncated() -> None:
    env = as_gymnasium(Walk({"length": 1, "cut_off": True}))
    env.reset()
    assert env.step(0)[2:4] == (False, True)


def test_gymnasiums_own_checker_has_nothing_to_say() -> None:
    gymnasium_check(as_gymnasium(Walk({})), skip_render_check=True)


def test_seeds_go_through_and_options_are_arguments_of_reset() -> None:
    env = as_gymnasium(Walk({}))
    first = env.reset(seed=1)[0]
    second = env.reset(options={"level": 2})[0]
    assert env.base_env.reset_kwargs == {"level": 2}
    assert not np.array_equal(first, second)
    assert np.array_equal(env.reset(seed=1)[0], first)
    env.dynamic_seed = False
    assert np.array_equal(env.reset(seed=1)[0], env.reset()[0])


def test_dynamic_seed_is_passed_by_name_if_it_has_no_place() -> None:
    class ByName(Walk):
        def seed(self, seed: int, *, dynamic_seed: bool = True) -> None:
            super().seed(seed, dynamic_seed)

    env = as_gymnasium(ByName({}))
    env.dynamic_seed = False
    assert env.reset(seed=3)[0].tolist() == env.reset()[0].tolist()


def test_attributes_of_the_env_are_found_and_set() -> None:
    env = as_gymnasium(Walk({}))
    env.reset()
    assert env.get_wrapper_attr("elapsed") == 0
    env.set_wrapper_attr("elapsed", 4)
    assert env.base_env.elapsed == 4
    assert not env.set_wrapper_attr("nothing", 1, force=False)
    assert not env.has_wrapper_attr("nothing")


def test_a_timestep_with_more_fields_is_taken() -> None:
    env = as_gymnasium(LongStep({}))
    env.reset()
    assert len(env.step(1)) == 5


@pytest.mark.parametrize(
    ("returned", "says"),
    [
        ((np.zeros(3, np.float32), 1.0, False, {}), "expected a BaseEnvTimestep"),
        (None, "expected a BaseEnvTimestep"),
        (stepmill.envs.BaseEnvTimestep(np.zeros(3, np.float32), "much", False, {}), "as reward, got 'much'"),
        (stepmill.envs.BaseEnvTimestep(np.zeros(3, np.float32), [], False, {}), r"as reward, got \[\]"),
    ],
)
def test_an_env_that_returns_what_it_should_not_is_named(returned: Any, says: str) -> None:
    class Wrong(Walk):
        def step(self, action: Any) -> Any:
            return returned

    with stepmill.make(Wrong, backend="inline") as pool:
        pool.reset()
        with pytest.raises(EnvError, match=rf"env 0 failed in step .*Wrong: step: .*{says}"):
            pool.step([0])


def test_envs_that_are_what_they_should_be_stay_as_they_are() -> None:
    walk, cartpole = Walk({}), gymnasium.make("CartPole-v1")
    assert as_base_env(walk) is walk
    assert as_gymnasium(cartpole) is cartpole


def test_there_and_back_gives_the_same_episode() -> None:
    one, two = Walk({}), as_base_env(as_gymnasium(Walk({})))
    for env in (one, two):
        env.seed(3, dynamic_seed=False)
    assert isinstance(two, DingEnvWrapper)
    # The wrapper hands the seed of the episode to `seed` of the inner env, which draws from it.
    inner = Walk({})
    inner.seed(3)
    assert np.array_equal(two.reset(), inner.reset())
    assert two.step(np.array(1)).obs.tolist() == inner.step(np.array(1)).obs.tolist()


# ---- many agents ---------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", BACKENDS)
def test_agents_are_players_of_a_pool(backend: str) -> None:
    with stepmill.make(Pair, num_envs=2, backend=backend) as pool:
        assert pool.single_action_space == spaces.Discrete(4)
        assert pool.single_observation_space.shape == (2,)
        assert pool.action_space.shape == (4,)
        assert pool.spec.config["max_num_players"] == 2
        obs, info = pool.reset()
        assert obs.tolist() == [[0, 0], [0, 0], [1, 0], [1, 0]]
        assert info["players"]["env_id"].tolist() == [0, 0, 1, 1]
        obs, reward, terminated, truncated, info = pool.step([1, 2, 3, 0])
        assert reward.tolist() == [1, 2, 3, 0]
        assert obs[:, 1].tolist() == [1, 2, 3, 0]
        assert terminated.shape == truncated.shape == (2,)
        pool.step([1, 2, 3, 0])
        *_, terminated, _, info = pool.step([1, 2, 3, 0])
        assert terminated.all()
        assert info["episode_return"].tolist() == [9, 9]
        assert info["eval_episode_return"].tolist() == [9, 9]
        _, reward, *_ = pool.step([1, 2, 3, 0])  # the reset
        assert reward.tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_shared_reward_goes_to_every_agent(backend: str) -> None:
    with stepmill.make(Pair, cfg={"shared": True}, num_envs=2, backend=backend) as pool:
        pool.reset()
        _, reward, _, _, _ = pool.step([1, 2, 3, 0])
        assert reward.tolist() == [3, 3, 3, 3]
        for _ in range(2):
            info = pool.step([0, 0, 0, 1])[4]
        assert info["episode_return"].tolist() == [3, 5]


def test_a_team_in_async_mode_comes_back_whole() -> None:
    with stepmill.make(Pair, num_envs=3, batch_size=1, backend="process", num_workers=1) as pool:
        pool.async_reset()
        for _ in range(9):
            obs, _, _, _, info = pool.recv()
            assert obs.shape == (2, 2)
            assert info["players"]["env_id"].tolist() == [info["env_id"][0]] * 2
            pool.send([1, 1], info["env_id"])


def test_every_agent_of_a_team_acts_or_nothing_is_sent() -> None:
    with stepmill.make(Pair, num_envs=2, backend="inline") as pool:
        pool.reset()
        with pytest.raises(ActionError, match="env 1: expected 2 actions, one per player that is there, got 1"):
            pool.send({"action": [1, 1, 1], "env_id": [0, 1], "players.env_id": [0, 0, 1]})
        assert pool.step([1, 1, 1, 1])[0][:, 1].tolist() == [1, 1, 1, 1]


def test_many_agents_do_not_go_with_same_step() -> None:
    for backend in BACKENDS:
        with pytest.raises(UnsupportedError, match="same_step"):
            stepmill.make(Pair, backend=backend, autoreset="same_step")


def test_native_envs_of_many_players_refuse_same_step_in_processes_too() -> None:
    with pytest.raises(UnsupportedError, match="same_step"):
        stepmill.make("Template-v0", max_num_players=2, backend="process", autoreset="same_step")


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_env_whose_observation_has_no_row_per_agent_is_one_row(backend: str) -> None:
    with stepmill.make(PairWithState, num_envs=2, backend=backend) as pool:
        obs, _ = pool.reset()
        assert obs["agents"].shape == (2, 2, 2)
        assert obs["state"].shape == (2, 3)
        obs, reward, _, _, info = pool.step([[1, 2], [3, 0]])
        assert reward.tolist() == [3, 3]
        assert info["rewards"].tolist() == [[1, 2], [3, 0]]


def test_a_team_with_the_wrong_number_of_rewards_is_an_error() -> None:
    class Greedy(Pair):
        def step(self, action: Any) -> Any:
            return super().step(action)._replace(reward=np.zeros(3, np.float32))

    with stepmill.make(Greedy, backend="inline") as pool:
        pool.reset()
        with pytest.raises(EnvError, match="expected 2 rewards, one per player, got"):
            pool.step([0, 0])


def test_teams_of_different_size_are_no_pool() -> None:
    class Crowd(Pair):
        def __init__(self, cfg: Any = None) -> None:
            super().__init__(cfg)
            self.num_agents = self._cfg["agents"]
            self.observation_space = spaces.Box(-1, 1, (self.num_agents, 2), np.float32)
            self.action_space = spaces.MultiDiscrete([2] * self.num_agents)

    with pytest.raises(ConfigError, match="env 1: expected the num_players of env 0, 2, got 3"):
        stepmill.make(Crowd, num_envs=2, backend="inline", env_config=[{"cfg": {"agents": n}} for n in (2, 3)])


@pytest.mark.parametrize(
    ("space", "one"),
    [
        (spaces.MultiDiscrete([3, 3]), spaces.Discrete(3)),
        (spaces.MultiDiscrete([[3, 4], [3, 4]]), spaces.MultiDiscrete([3, 4])),
        (spaces.MultiDiscrete([3, 4]), None),
        (spaces.Box(0, 1, (2, 5), np.float32), spaces.Box(0, 1, (5,), np.float32)),
        (spaces.Box(0, 1, (2,), np.float32), spaces.Box(0, 1, (), np.float32)),
        (spaces.Box(0, 1, (3, 2), np.float32), None),
        (spaces.Box(np.array([[0.0], [1.0]], np.float32), np.full((2, 1), 2, np.float32)), None),
        (spaces.MultiBinary((2, 4)), spaces.MultiBinary((4,))),
        (spaces.Discrete(2), None),
        (spaces.Dict({"a": spaces.MultiDiscrete([2, 2])}), spaces.Dict({"a": spaces.Discrete(2)})),
        (spaces.Dict({"a": spaces.MultiDiscrete([2, 2]), "b": spaces.Discrete(2)}), None),
        (spaces.Tuple([spaces.MultiDiscrete([2, 2])]), spaces.Tuple([spaces.Discrete(2)])),
        (spaces.Text(3), None),
    ],
)
def test_the_space_of_one_agent(space: Any, one: Any) -> None:
    assert player_space(space, 2) == one


def test_the_space_of_one_agent_keeps_its_type() -> None:
    assert player_space(spaces.MultiDiscrete([3, 3], np.int32), 2) == spaces.Discrete(3, dtype=np.int32)
    assert player_space(spaces.MultiDiscrete([[3, 4]] * 2, np.int32), 2) == spaces.MultiDiscrete([3, 4], np.int32)


# ---- pictures ------------------------------------------------------------------------------------


def test_the_render_mode_is_that_of_the_env_inside() -> None:
    assert AsGymnasium(DingEnvWrapper(Obedient())).render_mode is None
    assert AsGymnasium(DingEnvWrapper(Obedient(render_mode="rgb_array"))).render_mode == "rgb_array"
    assert AsGymnasium(Walk({})).render_mode is None
    assert as_gymnasium(Two()).render_mode is None

    class Drawn(Walk):
        def render(self) -> Any:
            return np.zeros((2, 2, 3), np.uint8)

    assert AsGymnasium(Drawn({})).render_mode == "rgb_array"
    with stepmill.make(functools.partial(DingEnvWrapper, "CartPole-v1"), backend="inline") as pool:
        assert pool.render_mode is None


# ---- what an env returns -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reset_info", "returned", "says"),
    [
        ({}, (np.zeros(3, np.float32), {}), r"reset: expected only the observation, got \(observation, info\)"),
        (None, np.zeros(3, np.float32), "reset_info: expected a dict, got None"),
    ],
)
def test_a_reset_as_gymnasium_has_it_is_named(reset_info: Any, returned: Any, says: str) -> None:
    class Mixed(Walk):
        def reset(self, **kwargs: Any) -> Any:
            super().reset()
            self.reset_info = reset_info
            return returned

    with stepmill.make(Mixed, backend="inline") as pool, pytest.raises(EnvError, match=f"Mixed: {says}"):
        pool.reset()


@pytest.mark.parametrize(("second", "is_right"), [(spaces.Dict({"b": PAIR}), True), (PAIR, False)])
def test_a_tuple_of_two_parts_may_be_an_observation(second: Any, is_right: bool) -> None:
    class Tupled(Walk):
        observation_space = spaces.Tuple([PAIR, second])  # type: ignore[assignment]

        def reset(self, **kwargs: Any) -> Any:
            return ZEROS, {"b": ZEROS}

    env = as_gymnasium(Tupled({}))
    if is_right:
        assert env.reset()[0][1]["b"] is ZEROS
    else:
        with pytest.raises(EnvError, match="expected only the observation"):
            env.reset()


@pytest.mark.parametrize("done", ["no", None, np.array([True, False]), 2])
def test_done_is_true_or_false(done: Any) -> None:
    class Vague(Walk):
        def step(self, action: Any) -> Any:
            return BaseEnvTimestep(np.zeros(3, np.float32), np.ones(1, np.float32), done, {})

    with stepmill.make(Vague, backend="inline") as pool:
        pool.reset()
        with pytest.raises(EnvError, match="Vague: step: expected True or False as done, got "):
            pool.step([0])


@pytest.mark.parametrize("done", [np.bool_(True), np.array([True]), 1])
def test_what_is_as_good_as_true_is_taken(done: Any) -> None:
    class Ended(Walk):
        def step(self, action: Any) -> Any:
            return super().step(action)._replace(done=done)

    env = as_gymnasium(Ended({}))
    env.reset()
    assert env.step(0)[2:4] == (True, False)


def test_wrappers_of_gymnasium_show_what_is_inside() -> None:
    env = gymnasium.wrappers.TimeLimit(as_gymnasium(DingEnvWrapper("CartPole-v1")), 5)
    assert str(env) == "<TimeLimit<DingEnvWrapper(CartPole-v1)>>"
