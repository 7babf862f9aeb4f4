"""PettingZoo's parallel envs as a ``BaseEnv``: a row per agent."""

from __future__ import annotations

from typing import Any

import numpy as np
import pettingzoo
import pytest
from gymnasium import spaces

import stepmill
from stepmill.envs import (
    ParallelAsBaseEnv,
    as_base_env,
)
from stepmill.errors import (
    ActionError,
    ConfigError,
    EnvError,
    ObservationError,
    SpaceError,
    UsageError,
)
from support.envs.adapted import PAIR, Two

BACKENDS = ["inline", "process"]


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


def test_a_parallel_env_has_one_row_per_agent() -> None:
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


def test_it_is_done_when_all_agents_are_and_one_that_left_shows_zeros() -> None:
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
    with pytest.raises(UsageError, match="the episode is over, call reset first"):
        env.step(np.array([1, 2, 3]))


def test_the_agent_that_is_cut_off_last_cuts_the_episode_off() -> None:
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


def test_actions_have_one_row_per_agent() -> None:
    env = as_base_env(Relay())
    env.reset()
    with pytest.raises(ActionError, match=r"expected one row per agent, shape \(3,\), got an array of shape \(2,\)"):
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
def test_a_parallel_env_runs_in_a_pool_with_each_agent_as_a_player(backend: str) -> None:
    with stepmill.make(Relay, num_envs=2, backend=backend) as pool:
        obs, info = pool.reset()
        assert obs.shape == (6, 2)
        assert info["players"]["env_id"].tolist() == [0, 0, 0, 1, 1, 1]
        _, reward, terminated, _, info = pool.step([1, 2, 3, 3, 2, 1])
        assert reward.tolist() == [1, 2, 3, 3, 2, 1]
        assert info["players"]["terminated"].tolist() == [True, False, False] * 2
        assert info["players"]["id"].tolist() == [0, 1, 2] * 2, "the first leaves with this row"
        _, reward, terminated, _, info = pool.step({"action": [2, 3, 2, 1], "players.env_id": [0, 0, 1, 1]})
        assert (reward.tolist(), info["players"]["id"].tolist()) == ([2, 3, 2, 1], [1, 2] * 2)
        _, reward, terminated, _, info = pool.step([0, 3, 0, 1])  # what players that have left would do is not read
        assert (reward.tolist(), info["players"]["id"].tolist()) == ([3, 1], [2, 2])
        assert terminated.all()
        assert info["players"]["terminated"].all()
        assert info["episode_return"].tolist() == [14, 10]


@pytest.mark.parametrize("backend", BACKENDS)
def test_as_a_base_env_all_agents_have_rows_in_every_step(backend: str) -> None:
    with stepmill.make(lambda: ParallelAsBaseEnv(Relay), num_envs=2, backend=backend) as pool:
        pool.reset()
        for alive in ([False, True, True], [False, False, True], [False, False, False]):
            obs, reward, terminated, _, info = pool.step([1, 2, 3, 3, 2, 1])
            assert (obs.shape, reward.shape) == ((6, 2), (6,))
            assert info["alive"].tolist() == [alive] * 2
        assert terminated.all()
        assert info["eval_episode_return"].tolist() == [14, 10]


# ---- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize("pad", [False, True])
@pytest.mark.parametrize("shown", [np.array([1.0, 2.0]), np.float64(7), np.zeros((3, 1)), np.zeros(5), "abc"])
def test_observations_of_a_wrong_shape_are_not_filled_up(shown: Any, pad: bool) -> None:
    with pytest.raises(
        ObservationError, match=r"ParallelAsBaseEnv\(.*: observation of agent 'a': expected numbers of shape \(3,\)"
    ):
        ParallelAsBaseEnv(Two(shown), {"pad": pad}).reset()


@pytest.mark.parametrize(
    ("returned", "says"),
    [
        (dict.fromkeys("ab", np.zeros(3)), r"reset: expected \(observation, info\), got"),
        (([np.zeros(3)] * 2, {}), "reset: expected a dict by agent as observations, got"),
        (({"a": np.zeros(3)}, {}), r"reset: expected an observation for each living agent, got none for \['b'\]"),
    ],
)
def test_what_reset_of_a_parallel_env_returns_is_looked_at(returned: Any, says: str) -> None:
    class Wrong(Two):
        def reset(self, seed: int | None = None, options: Any = None) -> Any:
            super().reset()
            return returned

    with pytest.raises(EnvError, match=says):
        ParallelAsBaseEnv(Wrong()).reset()


@pytest.mark.parametrize(
    ("space", "action"),
    [
        (spaces.Discrete(2), [1.7, 0.2]),
        (spaces.Discrete(2), [np.inf, 0]),
        (spaces.Box(-1, 1, (2,), np.float32), np.full((2, 2), np.nan)),
        (spaces.Box(0, 255, (1,), np.uint8), [[-1], [0]]),
    ],
)
def test_an_agents_action_is_read_as_any_other(space: Any, action: Any) -> None:
    inner = Two(action_space=space)
    env = ParallelAsBaseEnv(inner)
    env.reset()
    with pytest.raises(ActionError, match=r"ParallelAsBaseEnv\(two\): action of agent 'a': expected .*, got "):
        env.step(np.array(action))
    assert inner.taken is None


def test_ragged_actions_are_refused() -> None:
    env = ParallelAsBaseEnv(Two(action_space=PAIR))
    env.reset()
    with pytest.raises(
        ActionError, match=r"action: expected one row per agent, shape \(2, 2\), got \[\[1\], \[1, 2\]\]"
    ):
        env.step([[1], [1, 2]])


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_infos_of_the_agents_are_there_from_reset_on(backend: str) -> None:
    with stepmill.make(Two, num_envs=2, backend=backend) as pool:
        _, info = pool.reset()
        assert info["agents"]["b"]["action_mask"].tolist() == [[1, 0]] * 2
        pool.step([0, 0, 0, 0])
        info = pool.step([0, 0, 0, 0])[4]
        assert (info["players"]["terminated"] | info["players"]["truncated"]).all()
        info = pool.step([0, 0, 0, 0])[4]  # the reset
        assert info["elapsed_step"].tolist() == [0, 0]
        assert info["agents"]["b"]["action_mask"].tolist() == [[1, 0]] * 2


@pytest.mark.parametrize(
    ("cfg", "says"),
    [
        ("x", "ParallelAsBaseEnv: cfg: expected a dict, got 'x'"),
        ({"shared_reward": "no"}, "ParallelAsBaseEnv: shared_reward: expected True or False, got 'no'"),
        ({"pad": 1}, "ParallelAsBaseEnv: pad: expected True or False, got 1"),
        ({"seed_bits": 64}, r"ParallelAsBaseEnv: seed_bits: expected a whole number in \[1, 63\], got 64"),
    ],
)
def test_a_wrong_cfg_of_a_parallel_env_is_named(cfg: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        ParallelAsBaseEnv(Two(), cfg)


def test_a_parallel_env_steps_after_a_reset() -> None:
    with pytest.raises(UsageError, match=r"ParallelAsBaseEnv\(two\): step before reset"):
        ParallelAsBaseEnv(Two()).step(np.zeros(2))


def test_a_parallel_env_whose_spaces_do_not_fit_is_closed() -> None:
    made: list[Two] = []

    def make_one() -> Two:
        made.append(Two(action_space=spaces.Text(3)))
        return made[-1]

    with pytest.raises(SpaceError):
        ParallelAsBaseEnv(make_one).reset()
    assert [one.closed for one in made] == [1]


def test_the_hint_to_pad_can_be_followed() -> None:
    class Unlike(Two):
        def action_space(self, agent: str) -> Any:
            return spaces.Discrete(2 + (agent == "b"))

    with pytest.raises(SpaceError, match=r"ParallelAsBaseEnv\(env, cfg={'pad': True}\) pads the smaller ones"):
        _ = ParallelAsBaseEnv(Unlike()).action_space
    assert ParallelAsBaseEnv(Unlike(), cfg={"pad": True}).action_space == spaces.MultiDiscrete([3, 3])
