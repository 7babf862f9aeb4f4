"""From any kind of env to any other, and each of them in a pool."""

from __future__ import annotations

import pickle
from typing import Any

import gymnasium
import numpy as np
import pytest
from dm_env import specs
from gymnasium import spaces
from gymnasium.utils.env_checker import check_env as gymnasium_check

import stepmill
from stepmill.envs import (
    AsGymnasium,
    BaseEnv,
    DingEnvWrapper,
    DmAsGymnasium,
    ParallelAsBaseEnv,
    as_base_env,
    as_gymnasium,
)
from stepmill.envs.as_gymnasium import player_space
from stepmill.errors import (
    ActionError,
    ConfigError,
    EnvError,
    SpaceError,
    StepmillError,
    UnsupportedError,
    UsageError,
)
from support.contract_envs import DmWalk, LongStep, Pair, PairWithState, Walk

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


# ---- in pools ------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", BACKENDS)
def test_base_envs_run_in_a_pool_with_ids_seeds_and_cfgs(backend: str) -> None:
    with stepmill.make(
        Walk, num_envs=3, backend=backend, seed=7, env_config=[{"cfg": {"length": n}} for n in (1, 2, 3)]
    ) as pool:
        obs, _ = pool.reset()
        assert obs[:, 0].tolist() == [0, 1, 2]
        for i in range(3):
            alone = Walk({})
            alone.seed(7 + i)
            assert np.array_equal(obs[i, 1:], alone.reset()[1:])
        obs, reward, terminated, _, info = pool.step([1, 1, 1])
        assert terminated.tolist() == [True, False, False]
        assert np.allclose(reward, obs[:, 1])
        assert info["eval_episode_return"][0] == pytest.approx(info["episode_return"][0])
        assert info["_eval_episode_return"].tolist() == [True, False, False]
        assert pool.get_attr("last_seed") != [7, 8, 9]  # drawn from a generator that these seed
        pool.reset(seed=7, options={"level": 1})
        assert pool.get_attr("reset_kwargs") == ({"level": 1},) * 3


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_an_env_calls_abnormal_is_abnormal_in_the_batch(backend: str) -> None:
    cfgs = [{"cfg": {"abnormal_at": 2}}, {"cfg": {}}]
    with stepmill.make(Walk, num_envs=2, backend=backend, env_config=cfgs) as pool:
        pool.reset()
        assert "abnormal" not in pool.step([0, 0])[4]
        assert pool.step([0, 0])[4]["abnormal"].tolist() == [True, False]
        assert "abnormal" not in pool.step([0, 0])[4]


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_exception_of_a_base_env_is_the_cause(backend: str) -> None:
    with stepmill.make(Walk, cfg={"fail_at": 1}, backend=backend) as pool:
        pool.reset()
        with pytest.raises(EnvError, match="the walker fell") as caught:
            pool.step([0])
        assert isinstance(caught.value.__cause__, RuntimeError)


def test_evaluators_begin_every_episode_alike_in_a_pool() -> None:
    with stepmill.make(Walk, num_envs=2, backend="inline", cfg={"length": 1}) as pool:
        pool.set_attr("dynamic_seed", False)
        first, _ = pool.reset()
        pool.step([0, 0])
        again = pool.step([0, 0])[0]
        assert np.array_equal(first, again)


@pytest.mark.parametrize("view", ["gymnasium", "gym", "dm"])
def test_every_view_shows_base_envs(view: Any) -> None:
    with stepmill.make(Walk, view, num_envs=2, backend="inline", cfg={"length": 1, "cut_off": True}) as pool:
        pool.reset()
        result = pool.step(np.zeros(2, np.int64))
        if view == "gymnasium":
            assert result[3].all()
        elif view == "gym":
            assert result[3]["TimeLimit.truncated"].all()
        else:
            assert result.last().all() if hasattr(result.last(), "all") else (result.step_type == 2).all()
            assert (result.discount == 1).all()


def test_something_else_is_an_error_that_lists_what_pools_take() -> None:
    with pytest.raises(ConfigError, match=r"a BaseEnv, a dm_env.Environment or a pettingzoo.ParallelEnv, got a int"):
        stepmill.make(lambda: 3, backend="inline")


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
def test_a_shared_reward_is_everybodys(backend: str) -> None:
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
        with pytest.raises(ActionError, match="env 1: expected an action of each of its 2 players, got 1"):
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
def test_where_the_observation_has_no_row_an_agent_an_env_is_one_row(backend: str) -> None:
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
        with pytest.raises(EnvError, match="expected 2 rewards, one a player, got"):
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


# ---- dm_env --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("discount", "ends"), [(0.0, (True, False)), (1.0, (False, True)), (0.5, (False, True))])
def test_the_discount_of_the_last_step_tells_which_end_it_is(discount: float, ends: tuple[bool, bool]) -> None:
    env = as_gymnasium(DmWalk(discount))
    assert isinstance(env, DmAsGymnasium)
    obs, _ = env.reset(seed=4)
    assert env.dm_env.seeded == 4
    assert obs["count"] == 0
    obs, reward, terminated, truncated, info = env.step(4)
    assert (reward, terminated, truncated, info) == (4.0, False, False, {"discount": 0.9})
    env.step(1)
    obs, _, *ended, info = env.step(1)
    assert tuple(ended) == ends
    assert info["discount"] == discount
    assert obs["place"].tolist() == [3, 3]
    with pytest.raises(UsageError, match="step after the end"):
        env.step(1)


def test_the_task_of_dm_control_is_seeded() -> None:
    class Task:
        random = np.random.RandomState(0)

    class Controlled(DmWalk):
        seed = None  # type: ignore[assignment]
        task = Task()

        def __getattribute__(self, name: str) -> Any:
            if name == "seed":
                raise AttributeError(name)
            return super().__getattribute__(name)

    env = as_gymnasium(Controlled())
    env.reset(seed=2**32 + 3)
    assert Task.random.random_sample() == np.random.RandomState(3).random_sample()


def test_a_dm_env_as_a_base_env_has_its_types() -> None:
    env = as_base_env(DmWalk(), {"max_episode_steps": 2})
    obs = env.reset()
    assert obs["place"].dtype == np.float32
    assert env.observation_space["place"].dtype == np.float32  # type: ignore[index]
    env.step(np.array(1))
    timestep = env.step(np.array(3))
    assert timestep.done is True
    assert timestep.info["TimeLimit.truncated"] is True
    assert timestep.info["eval_episode_return"] == 4.0


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_dm_env_runs_in_a_pool_and_keeps_its_discount(backend: str) -> None:
    with stepmill.make_dm(DmWalk, num_envs=2, backend=backend, discount=0.5) as pool:
        pool.reset()
        assert pool.step([1, 2]).discount.tolist() == pytest.approx([0.9, 0.9])
        pool.step([1, 2])
        last = pool.step([1, 2])
        assert last.discount.tolist() == [0.5, 0.5]
        assert (last.step_type == 2).all()


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_discount_of_an_end_is_the_envs_own_under_same_step(backend: str) -> None:
    with stepmill.make_dm(DmWalk, num_envs=2, backend=backend, discount=0.5, autoreset="same_step") as pool:
        pool.reset()
        for _ in range(3):
            last = pool.step([1, 2])
        assert last.discount.tolist() == [0.5, 0.5]


def test_reset_options_are_not_for_dm_envs() -> None:
    with pytest.raises(UsageError, match="takes no options"):
        as_gymnasium(DmWalk()).reset(options={"a": 1})


def test_specs_become_spaces() -> None:
    from stepmill.envs.dm import space_of_spec

    assert space_of_spec(specs.Array((2,), np.bool_)) == spaces.Box(0, 1, (2,), np.bool_)
    assert space_of_spec(specs.Array((1,), np.int8)) == spaces.Box(-128, 127, (1,), np.int8)
    assert space_of_spec([specs.DiscreteArray(2)]) == spaces.Tuple([spaces.Discrete(2)])
    with pytest.raises(SpaceError, match="StringArray"):
        space_of_spec(specs.StringArray(()))


# ---- PettingZoo ----------------------------------------------------------------------------------

pettingzoo = pytest.importorskip("pettingzoo")


class Relay(pettingzoo.ParallelEnv):
    """Agent i leaves after i + 1 steps: the first ones terminated, the last as ``last`` says."""

    metadata = {"name": "relay", "render_fps": 5}  # noqa: RUF012
    possible_agents = ["ann", "bob", "cy"]  # noqa: RUF012

    def __init__(
        self, last: str = "terminated", sizes: tuple[int, ...] = (2, 2, 2), actions: tuple[int, ...] = (4, 4, 4)
    ) -> None:
        self._last, self._sizes, self._actions = last, sizes, actions
        self.agents: list[str] = []

    def observation_space(self, agent: str) -> Any:
        return spaces.Box(1.0, 9.0, (self._sizes[self.possible_agents.index(agent)],), np.float64)

    def action_space(self, agent: str) -> Any:
        return spaces.Discrete(self._actions[self.possible_agents.index(agent)])

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        self.agents, self.count = list(self.possible_agents), 0
        self.first = float(1 + np.random.default_rng(seed).integers(5))
        return {agent: np.full(self._sizes[i], self.first) for i, agent in enumerate(self.possible_agents)}, {}

    def step(self, actions: Any) -> Any:
        assert set(actions) == set(self.agents)
        self.count += 1
        acting = list(self.agents)
        leaves = self.possible_agents[self.count - 1]
        self.agents = [agent for agent in acting if agent != leaves]
        sizes = dict(zip(self.possible_agents, self._sizes, strict=True))
        cut = not self.agents and self._last == "truncated"
        return (
            {agent: np.full(sizes[agent], 1.0 + self.count) for agent in acting},
            {agent: float(actions[agent]) for agent in acting},
            {agent: agent == leaves and not cut for agent in acting},
            {agent: agent == leaves and cut for agent in acting},
            {agent: {"who": agent} if agent == "ann" else {} for agent in acting},
        )


def test_a_parallel_env_has_a_row_an_agent() -> None:
    env = as_base_env(Relay())
    assert isinstance(env, ParallelAsBaseEnv)
    assert env.num_agents == 3
    assert env.observation_space.shape == (3, 2)
    assert env.action_space == spaces.MultiDiscrete([4, 4, 4])
    assert env.reward_space.shape == (3,)
    env.seed(1, dynamic_seed=False)
    first = env.reset()
    assert np.array_equal(env.reset(), first)
    step = env.step(np.array([1, 2, 3]))
    assert step.reward.tolist() == [1, 2, 3]
    assert step.reward.dtype == step.obs.dtype == np.float32
    assert step.done is False
    assert step.info["alive"].tolist() == [False, True, True]
    assert step.info["agents"] == {"ann": {"who": "ann"}}


def test_it_is_done_when_all_are_and_who_left_shows_zeros() -> None:
    env = as_base_env(Relay())
    env.reset()
    env.step(np.array([1, 2, 3]))
    step = env.step(np.array([1, 2, 3]))
    assert step.obs.tolist() == [[0, 0], [3, 3], [3, 3]]
    assert env.observation_space.contains(step.obs)
    assert step.reward.tolist() == [0, 2, 3]
    assert step.done is False
    step = env.step(np.array([1, 2, 3]))
    assert step.done is True
    assert step.info["eval_episode_return"] == 1 + 4 + 9
    assert step.info["eval_episode_return_agents"].tolist() == [1, 4, 9]
    assert step.info["TimeLimit.truncated"] is False
    with pytest.raises(UsageError, match="without a living agent"):
        env.step(np.array([1, 2, 3]))


def test_who_is_cut_off_last_cuts_the_episode_off() -> None:
    env = as_base_env(Relay("truncated"))
    env.reset()
    for _ in range(3):
        step = env.step(np.array([0, 0, 0]))
    assert step.info["TimeLimit.truncated"] is True


def test_agents_may_share_their_reward() -> None:
    env = as_base_env(Relay(), {"shared_reward": True})
    assert env.reward_space.shape == (1,)
    env.reset()
    assert env.step(np.array([1, 2, 3])).reward.tolist() == [6]


def test_agents_that_differ_are_an_error_or_filled_up() -> None:
    with pytest.raises(SpaceError, match=r"observation_space: expected agents with equal spaces.*'pad': True"):
        _ = as_base_env(Relay(sizes=(2, 3, 2))).observation_space
    env = as_base_env(Relay(sizes=(2, 3, 2), actions=(4, 2, 4)), {"pad": True})
    assert env.observation_space.shape == (3, 3)
    assert env.action_space == spaces.MultiDiscrete([4, 4, 4])
    obs = env.reset()
    assert obs[0, 2] == 0
    assert obs[1, 2] != 0
    with pytest.raises(ActionError, match=r"agent 'bob': expected Discrete\(2\), got 3"):
        env.step(np.array([3, 3, 3]))


def test_actions_are_a_row_an_agent() -> None:
    env = as_base_env(Relay())
    env.reset()
    with pytest.raises(ActionError, match=r"expected a row an agent, shape \(3,\), got \(2,\)"):
        env.step(np.array([1, 1]))


def test_a_closed_one_is_built_again_from_a_function() -> None:
    env = ParallelAsBaseEnv(Relay)
    env.reset()
    env.close()
    env.close()
    assert env.reset().shape == (3, 2)
    given = ParallelAsBaseEnv(Relay())
    given.close()
    with pytest.raises(UsageError, match="give it a function"):
        given.reset()


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_parallel_env_runs_in_a_pool_an_agent_a_player(backend: str) -> None:
    with stepmill.make(Relay, num_envs=2, backend=backend) as pool:
        obs, info = pool.reset()
        assert obs.shape == (6, 2)
        assert info["players"]["env_id"].tolist() == [0, 0, 0, 1, 1, 1]
        _, reward, terminated, _, info = pool.step([1, 2, 3, 3, 2, 1])
        assert reward.tolist() == [1, 2, 3, 3, 2, 1]
        assert info["alive"].tolist() == [[False, True, True]] * 2
        pool.step([1, 2, 3, 3, 2, 1])
        *_, terminated, _, info = pool.step([1, 2, 3, 3, 2, 1])
        assert terminated.all()
        assert info["eval_episode_return"].tolist() == [14, 10]


# ---- DingEnvWrapper ------------------------------------------------------------------------------


class Versatile(gymnasium.Env[Any, Any]):
    """Observations and actions of any space; keeps the action it was given."""

    def __init__(
        self, observation_space: Any = None, action_space: Any = None, value: Any = None, reward: Any = 1.0
    ) -> None:
        self.observation_space = observation_space or spaces.Box(-9, 9, (2,), np.float64)
        self.action_space = action_space or spaces.Discrete(2)
        self._value, self._reward, self.taken, self.closed = value, reward, None, 0

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.seed_given, self.options = seed, options
        return self._shown(), {"fresh": True}

    def _shown(self) -> Any:
        return self.observation_space.sample() if self._value is None else self._value

    def step(self, action: Any) -> Any:
        self.taken = action
        return self._shown(), self._reward, False, False, {}

    def close(self) -> None:
        self.closed += 1


@pytest.mark.parametrize(
    ("space", "value", "dtype", "then"),
    [
        (spaces.Box(-9, 9, (2,), np.float64), np.array([1.5, 2.5]), np.float32, spaces.Box(-9, 9, (2,), np.float32)),
        (spaces.Box(0, 9, (2,), np.int8), np.array([1, 2], np.int8), np.int64, spaces.Box(0, 9, (2,), np.int64)),
        (spaces.Box(0, 255, (2, 2, 3), np.uint8), np.full((2, 2, 3), 7, np.uint8), np.uint8, None),
        (spaces.Discrete(5, start=1), 3, np.int64, None),
        (spaces.MultiBinary(3), np.array([1, 0, 1], np.int8), np.int64, spaces.MultiDiscrete([2, 2, 2])),
        (
            spaces.MultiDiscrete([3, 4], dtype=np.int32),
            np.array([2, 3], np.int32),
            np.int64,
            spaces.MultiDiscrete([3, 4]),
        ),
        (spaces.Box(0, 2**64 - 1, (1,), np.uint64), np.array([5], np.uint64), np.int64, None),
        (spaces.Box(-np.inf, np.finfo(np.float64).max, (1,), np.float64), np.array([1.0]), np.float32, None),
    ],
)
def test_observations_have_the_types_of_the_contract(space: Any, value: Any, dtype: Any, then: Any) -> None:
    env = DingEnvWrapper(Versatile(space, value=value))
    obs = env.reset()
    assert isinstance(obs, np.ndarray)
    assert obs.dtype == dtype
    assert np.array_equal(obs, value)
    assert env.observation_space.contains(obs)
    if then is not None:
        assert env.observation_space == then
    assert not np.shares_memory(env.step(np.array(1)).obs, env.step(np.array(1)).obs)


def test_nested_observations_are_converted_part_by_part() -> None:
    space = spaces.Dict(
        {"a": spaces.Box(0, 1, (1,), np.float64), "b": spaces.Tuple([spaces.Discrete(3), spaces.Text(4)])}
    )
    obs = DingEnvWrapper(Versatile(space, value={"a": np.ones(1), "b": (2, "hi")})).reset()
    assert obs["a"].dtype == np.float32
    assert obs["b"][0].dtype == np.int64
    assert obs["b"][1] == "hi"


HYBRID = spaces.Tuple([spaces.Discrete(3), spaces.Box(0, 1, (1,), np.float32)])
NESTED = spaces.Dict({"verb": spaces.Discrete(3), "where": spaces.Box(-1, 1, (2,), np.float32)})


@pytest.mark.parametrize(
    ("space", "action", "taken"),
    [
        (spaces.Discrete(3), np.array(2), 2),
        (spaces.Discrete(3), np.array([2]), 2),
        (spaces.Discrete(3, start=-1), -1, -1),
        (spaces.Discrete(3), np.array(1.0, np.float32), 1),
        (spaces.Box(-1, 1, (2,), np.float32), [0.5, 5], np.array([0.5, 5], np.float32)),
        (spaces.Box(-1, 1, (2, 1), np.float32), np.zeros(2), np.zeros((2, 1), np.float32)),
        (spaces.MultiDiscrete([2, 3]), [1, 2], np.array([1, 2])),
        (HYBRID, [np.array(1), [0.5]], (1, np.array([0.5], np.float32))),
        (NESTED, {"verb": np.array(2), "where": np.zeros(2)}, {"verb": 2, "where": np.zeros(2, np.float32)}),
    ],
)
def test_actions_arrive_as_the_env_takes_them(space: Any, action: Any, taken: Any) -> None:
    inner = Versatile(action_space=space)
    env = DingEnvWrapper(inner)
    env.reset()
    env.step(action)
    assert repr(inner.taken) == repr(taken)


@pytest.mark.parametrize(
    ("space", "action"),
    [
        (spaces.Discrete(3), 3),
        (spaces.Discrete(3), 0.5),
        (spaces.Discrete(3), np.array([1, 2])),
        (spaces.Discrete(3), "up"),
        (spaces.Box(-1, 1, (2,), np.float32), [1.0]),
        (spaces.Box(-1, 1, (2,), np.float32), [np.nan, 0]),
        (spaces.MultiDiscrete([2, 3]), [1, 3]),
        (HYBRID, [1]),
        (HYBRID, [5, [0.1]]),
        (NESTED, {"verb": 1}),
    ],
)
def test_a_wrong_action_is_an_error_that_names_the_env_and_what_it_takes(space: Any, action: Any) -> None:
    env = DingEnvWrapper(Versatile(action_space=space))
    env.reset()
    with pytest.raises(ActionError, match=r"DingEnvWrapper\(.*Versatile.*action.*: expected .*, got "):
        env.step(action)


def test_an_episode_of_cartpole_is_gymnasiums_with_the_seed_of_the_episode() -> None:
    env = DingEnvWrapper("CartPole-v1")
    env.seed(5, dynamic_seed=False)
    twin = gymnasium.make("CartPole-v1")
    obs, (expected, _) = env.reset(), twin.reset(seed=5)
    assert np.array_equal(obs, expected)
    total, done = 0.0, False
    while not done:
        obs, reward, done, info = env.step(np.array(1))
        expected, paid, terminated, truncated, _ = twin.step(1)
        total += float(paid)
        assert np.array_equal(obs, expected)
        assert (reward.shape, reward.dtype, type(done)) == ((1,), np.float32, bool)
        assert done == (terminated or truncated)
    assert info["eval_episode_return"] == info["final_eval_reward"] == total
    assert type(info["eval_episode_return"]) is float
    assert info["TimeLimit.truncated"] is False


def test_the_cfg_builds_the_env_with_its_wrappers() -> None:
    cfg = {
        "env_id": "Pendulum-v1",
        "env_kwargs": {"g": 5.0},
        "env_wrapper": [
            ("DelayReward", {"delay_reward_step": 2}),
            {"type": "TimeLimit", "kwargs": {"max_episode_steps": 4}},
        ],
        "act_scale": True,
    }
    env = DingEnvWrapper(cfg=cfg)
    assert env.action_space == spaces.Box(-1, 1, (1,), np.float32)
    env.reset()
    rewards = [env.step(np.array([1.0])).reward[0] for _ in range(3)]
    assert rewards[0] == rewards[2] == 0 != rewards[1]
    step = env.step(np.array([0.0]))
    assert step.done
    assert step.info["TimeLimit.truncated"]
    assert env.info().use_wrappers == "DelayReward\nTimeLimit"
    assert env._env.unwrapped.g == 5.0
    assert env._env.unwrapped.last_u == 0.0


@pytest.mark.parametrize("name", ["default", "mujoco_default"])
def test_the_name_of_a_list_of_wrappers_stands_for_it(name: str) -> None:
    env = DingEnvWrapper(cfg={"env_id": "Pendulum-v1", "env_wrapper": name, "max_episode_steps": 3})
    assert env.info().use_wrappers == "EvalEpisodeReturn"
    env.reset()
    steps = [env.step(np.array([1.0])) for _ in range(3)]
    assert steps[2].info["eval_episode_return"] == pytest.approx(sum(one.reward.item() for one in steps))


def test_hybrid_actions_by_the_name_of_a_list() -> None:
    env = DingEnvWrapper(cfg={"env_id": "Moving-v0", "env_wrapper": "gym_hybrid_default"})
    assert env.info().use_wrappers == "GymHybridDictAction\nEvalEpisodeReturn"
    assert isinstance(env.action_space, spaces.Dict)
    env.reset()
    assert env.step(env.random_action()).obs.shape == env.observation_space.shape


@pytest.mark.parametrize("is_train", [True, False])
@pytest.mark.parametrize("game", ["Pong", "Breakout"])
def test_the_list_of_atari_is_the_one_of_di_engine(game: str, is_train: bool) -> None:
    pytest.importorskip("ale_py")
    cfg = {"env_id": f"{game}NoFrameskip-v4", "env_wrapper": "atari_default", "is_train": is_train}
    env = DingEnvWrapper(cfg=cfg)
    expected = ["NoopResetEnv", "MaxAndSkipEnv", "EpisodicLifeEnv", "WarpFrame", "ScaledFloatFrame", "FrameStack"]
    if game == "Pong":
        expected.insert(3, "FireResetEnv")
    if is_train:
        expected.insert(-1, "ClipRewardEnv")
    assert env.info().use_wrappers == "\n".join([*expected, "EvalEpisodeReturn"])
    assert env.observation_space.shape == (4, 84, 84)
    env.close()


def test_an_unknown_name_of_wrappers_is_an_error() -> None:
    with pytest.raises(ConfigError, match="mujoco_defaults"):
        DingEnvWrapper(cfg={"env_id": "Pendulum-v1", "env_wrapper": "mujoco_defaults"}).reset()


def test_an_id_or_a_function_is_built_when_needed_and_again_after_close() -> None:
    made: list[Versatile] = []

    def make_one(**kwargs: Any) -> Versatile:
        made.append(Versatile())
        return made[-1]

    env = DingEnvWrapper(make_one)
    assert not made
    with pytest.raises(UsageError, match="step before reset"):
        env.step(np.array(0))
    assert env.observation_space.shape == (2,)
    assert len(made) == 1
    env.reset()
    env.close()
    env.close()
    assert (len(made), made[0].closed) == (1, 1)
    env.reset()
    assert len(made) == 2
    given = DingEnvWrapper(Versatile())
    given.close()
    with pytest.raises(UsageError, match="give DingEnvWrapper an id or a function"):
        given.reset()


def test_reset_arguments_are_options_and_the_info_of_reset_is_kept() -> None:
    inner = Versatile()
    env = DingEnvWrapper(inner)
    env.reset(level=3)
    assert inner.options == {"level": 3}
    assert env.reset_info == {"fresh": True}


def test_rewards_of_many_objectives_stay_many() -> None:
    env = DingEnvWrapper(Versatile(reward=np.array([1.0, 2.0])))
    env.reset()
    assert env.step(np.array(0)).reward.tolist() == [1, 2]


@pytest.mark.parametrize(
    ("env", "says"),
    [(3, "expected an id, a gymnasium.Env, its class or a function, got 3"), ("Nothing-v0", "unknown env id")],
)
def test_what_is_no_env_is_an_error(env: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        DingEnvWrapper(env).reset()


@pytest.mark.parametrize("result", [None, (1, 2, 3), 5])
def test_an_env_with_another_interface_is_named(result: Any) -> None:
    class Old(Versatile):
        def step(self, action: Any) -> Any:
            return result

        def reset(self, **kwargs: Any) -> Any:
            return super().reset(**kwargs) if result is None else result

    def play() -> None:
        env = DingEnvWrapper(Old())
        env.reset()
        env.step(np.array(0))

    with pytest.raises(EnvError, match=r"DingEnvWrapper\(.*Old.*: (step|reset): expected \("):
        play()


def test_act_scale_needs_a_bounded_box() -> None:
    with pytest.raises(ConfigError, match=r"act_scale: expected a bounded Box as action space, got Discrete\(2\)"):
        DingEnvWrapper("CartPole-v1", {"act_scale": True}).reset()


def test_a_wrapped_env_can_be_pickled() -> None:
    env = DingEnvWrapper("CartPole-v1")
    env.seed(1)
    env.reset()
    twin = pickle.loads(pickle.dumps(env))
    assert np.array_equal(env.step(np.array(1)).obs, twin.step(np.array(1)).obs)
    assert np.array_equal(env.reset(), twin.reset())


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_wrapped_env_runs_in_a_pool(backend: str) -> None:
    with stepmill.make(DingEnvWrapper, cfg={"env_id": "CartPole-v1"}, num_envs=2, backend=backend, seed=3) as pool:
        obs, _ = pool.reset()
        alone = DingEnvWrapper("CartPole-v1")
        alone.seed(4)
        assert np.array_equal(obs[1], alone.reset())
        for _ in range(30):
            obs, _, terminated, _, info = pool.step([1, 1])
            if terminated.any():
                break
        assert info["eval_episode_return"][terminated].tolist() == info["episode_return"][terminated].tolist()


def test_a_base_env_is_not_a_gymnasium_env_by_accident() -> None:
    assert not issubclass(BaseEnv, gymnasium.Env)
    assert issubclass(AsGymnasium, gymnasium.Env)


def test_an_env_class_is_a_recipe_and_actions_have_the_types_of_the_contract() -> None:
    class Fine(Versatile):
        def __init__(self, **kwargs: Any) -> None:
            super().__init__(action_space=spaces.Box(-1, 1, (2,), np.float64))

    env = DingEnvWrapper(Fine)
    assert env.action_space == spaces.Box(-1, 1, (2,), np.float32)
    env.reset()
    env.step(env.random_action())
    assert env._env.taken.dtype == np.float64


@pytest.mark.parametrize(
    ("id", "says"), [("Courier-v0", "is a BaseEnv already"), ("Catch-v0", "Catch-v0 is native only")]
)
def test_an_id_that_is_no_single_gymnasium_env_is_an_error_that_says_so(id: str, says: str) -> None:
    with pytest.raises(StepmillError, match=says):
        DingEnvWrapper(id).reset()


@pytest.mark.parametrize("space", [spaces.Graph(spaces.Discrete(3), None), spaces.OneOf([spaces.Discrete(2)])])
def test_random_actions_of_odd_spaces_are_of_the_space(space: Any) -> None:
    env = DingEnvWrapper(Versatile(action_space=space))
    assert env.action_space.contains(env.random_action())


# ---- envs of DI-engine ---------------------------------------------------------------------------


class Foreign:
    """Has the interface of a BaseEnv without being one of ours: one name less, a seed without its second argument."""

    observation_space = spaces.Box(0, 9, (1,), np.float32)
    action_space = spaces.Discrete(2)
    given: tuple[Any, ...] = ()

    def seed(self, seed: int) -> None:
        self.given = (seed,)

    def reset(self) -> Any:
        return np.zeros(1, np.float32)

    def step(self, action: Any) -> Any:
        self.taken = action.shape
        return stepmill.envs.BaseEnvTimestep(np.ones(1, np.float32), np.ones(1, np.float32), False, {})

    def close(self) -> None:
        pass

    @staticmethod
    def create_collector_env_cfg(cfg: Any) -> Any:
        return [cfg]


class ForeignGymnasium(Foreign, gymnasium.Env):  # type: ignore[type-arg,misc]
    """The same, of a framework whose envs are Gymnasium's by inheritance only."""


@pytest.mark.parametrize("kind", [Foreign, ForeignGymnasium])
def test_envs_with_the_interface_of_a_base_env_run_in_pools(kind: Any) -> None:
    with stepmill.make(kind, num_envs=2, backend="inline", seed=5) as pool:
        pool.reset()
        assert pool.step([0, 1])[1].tolist() == [1, 1]
        assert pool.get_attr("given") == ((5,), (6,))
        assert pool.get_attr("taken") == ((1,), (1,))


# ---- what outlives a rebuilt worker --------------------------------------------------------------


def test_static_seeds_can_be_asked_for_by_the_cfg() -> None:
    cfg = {"length": 1, "dynamic_seed": False}
    with stepmill.make(Walk, num_envs=2, backend="inline", cfg=cfg) as pool:
        first, _ = pool.reset()
        pool.step([0, 0])
        assert np.array_equal(first, pool.step([0, 0])[0])


class Announced(Walk):
    """Says by a class attribute how it is seeded."""

    dynamic_seed = False


def test_what_is_set_is_what_is_read() -> None:
    with stepmill.make(Announced, num_envs=2, backend="inline", cfg={"length": 1}) as pool:
        assert pool.get_attr("dynamic_seed") == (False, False)
        pool.set_attr("dynamic_seed", True)
        assert pool.get_attr("dynamic_seed") == (True, True)
        first, _ = pool.reset()
        pool.step([0, 0])
        assert not np.array_equal(first, pool.step([0, 0])[0])


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_abnormal_end_is_flagged_under_same_step(backend: str) -> None:
    cfgs = [{"cfg": {"length": 1, "abnormal_at": 1}}, {"cfg": {"length": 1}}]
    with stepmill.make(Walk, num_envs=2, backend=backend, autoreset="same_step", env_config=cfgs) as pool:
        pool.reset()
        assert pool.step([0, 0])[4]["abnormal"].tolist() == [True, False]


def test_the_parts_of_the_package_are_found_by_their_names() -> None:
    assert stepmill.envs.BaseEnv is BaseEnv
    assert stepmill.wrappers.TimeLimit.__name__ == "TimeLimit"
    assert stepmill.testing.check_env is not None
    assert {"envs", "wrappers", "testing", "managers"} <= set(dir(stepmill))
    with pytest.raises(AttributeError, match="no attribute 'envz'"):
        _ = stepmill.envz
