"""Envs of DI-engine in managers: they take what their policies send, and come back as they are."""

from __future__ import annotations

import collections
import threading
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import stepmill
from stepmill.envs import BaseEnv, BaseEnvTimestep
from stepmill.errors import ActionError, ConfigError
from stepmill.managers import BaseEnvManager, EnvState
from support.envs.contract import DingLike, Duel, Late, Long, LongDingTimestep, OldWrapper, Shifty, Team
from support.envs.managed import KINDS
from support.manager_cases import EVERY_KIND

pytestmark = pytest.mark.usefixtures("server")


def launched(kind: str, *env_fns: Any, **settings: Any) -> BaseEnvManager:
    if kind != "serial":
        settings.setdefault("wait_num", "inf")
    manager = KINDS[kind](list(env_fns), cfg={"step_wait_timeout": None, "max_retry": 0, **settings})
    manager.seed(0)
    manager.launch()
    return manager


def all_ready(manager: BaseEnvManager) -> dict[int, Any]:
    """The observations of all envs: waits for those that reset themselves."""
    while len(manager.ready_obs) < manager.env_num:
        manager.step({})
    return manager.ready_obs


# ---- actions -------------------------------------------------------------------------------------


@EVERY_KIND
def test_an_action_that_the_space_does_not_describe_is_passed_on_as_it_is(kind: str) -> None:
    with launched(kind, Team, Team) as manager:
        rows = {0: np.array([1, 2, 3]), 1: np.array([[4], [3], [2]])}
        timesteps = manager.step(rows)
        assert timesteps[0].obs["agent_state"].tolist() == [[1, 1], [2, 1], [3, 1]]
        assert timesteps[1].obs["agent_state"].tolist() == [[4, 1], [3, 1], [2, 1]]
        assert [one.info["type"] for one in timesteps.values()] == ["ndarray", "ndarray"]
        assert timesteps[0].obs["action_mask"].shape == (3, 5)
        assert all(one.reward.tolist() == [1.0] for one in timesteps.values())
        manager.step(rows)
        ends = manager.step(rows)
        assert all(one.done and one.info["eval_episode_return"] == 3.0 for one in ends.values())
        assert all_ready(manager)[1]["global_state"].tolist() == [0.0] * 4


@EVERY_KIND
def test_an_action_that_the_space_describes_is_checked(kind: str) -> None:
    with launched(kind, Team) as manager:
        with pytest.raises(ActionError, match="7"):
            manager.step({0: {"left": 1, "right": 7, "keeper": 0}})
        assert manager.ready_env == [0]
        timestep = manager.step({0: {"left": 1, "right": 2, "keeper": 0}})[0]
        assert timestep.info["type"] == "dict"
        assert timestep.obs["agent_state"][:, 0].tolist() == [1, 2, 0]
    with launched(kind, DingLike) as manager:
        with pytest.raises(ActionError, match="9"):
            manager.step({0: np.array([9])})
        assert manager.step({0: np.array([4])})[0].reward.tolist() == [4.0]


@EVERY_KIND
def test_each_action_of_a_step_is_looked_at_by_itself(kind: str) -> None:
    with launched(kind, *[lambda: DingLike({"length": 9})] * 3) as manager:
        mixed = manager.step({0: 3, 1: [np.array([1]), np.array([2])], 2: np.array([2, 2, 2])})
        assert [one.info["type"] for one in mixed.values()] == ["ndarray", "list", "ndarray"]
        assert [one.reward.item() for one in mixed.values()] == [3.0, 3.0, 6.0]
        # What was passed on with an action belongs to that one alone.
        again = manager.step({0: np.array([4, 4]), 1: np.array([1]), 2: 0})
        assert [one.reward.item() for one in again.values()] == [8.0, 1.0, 0.0]


@EVERY_KIND
def test_an_action_is_the_envs_own(kind: str) -> None:
    class Greedy(DingLike):
        def step(self, action: Any) -> Any:
            action += 1
            return super().step(action)

    with launched(kind, Greedy) as manager:
        action = np.array([1, 1])
        assert manager.step({0: action})[0].reward.item() == 4.0
        assert action.tolist() == [1, 1]


@EVERY_KIND
def test_tensors_in_such_actions_become_arrays(kind: str) -> None:
    torch = pytest.importorskip("torch")
    with launched(kind, Team) as manager:
        timestep = manager.step({0: torch.tensor([1, 2, 3])})[0]
        assert timestep.info["type"] == "ndarray"
        assert timestep.obs["agent_state"][:, 0].tolist() == [1, 2, 3]


@EVERY_KIND
def test_an_action_that_cannot_be_copied_is_refused_and_nothing_is_sent(kind: str) -> None:
    with launched(kind, Duel) as manager:
        with pytest.raises(ActionError, match="copied"):
            manager.step({0: [0, threading.Lock()]})
        assert manager.step({0: [0, 1]})[0].info[0]["received"] == [0, 1]


# ---- what comes back -----------------------------------------------------------------------------


@EVERY_KIND
def test_two_players_without_spaces(kind: str) -> None:
    with launched(kind, Duel, Duel) as manager:
        assert manager.observation_space is None
        assert manager.action_space is None
        assert manager.ready_obs[1].tolist() == [[0, 1], [0, 2]]
        timestep = manager.step({0: [1, 0], 1: [0, 0]})[0]
        assert timestep.info == ({"received": [1, 0], "eval_episode_return": 5.0}, {"eval_episode_return": -5.0})
        assert timestep.reward.tolist() == [[1.0], [-1.0]]
        assert timestep.obs.dtype == np.float32
        manager.step({0: [1, 0], 1: [0, 0]})
        assert manager.step({0: [1, 0], 1: [0, 0]})[1].done
        assert all_ready(manager)[0].tolist() == [[0, 1], [0, 2]]
        assert manager.episode_count == {0: 1, 1: 1}
        manager.step({0: [9, 0]})
        assert manager.env_state[0] is EnvState.ERROR  # one of the infos says abnormal


@EVERY_KIND
@pytest.mark.parametrize("shared_memory", [True, False])
def test_an_observation_that_the_space_does_not_describe_comes_as_it_is(kind: str, shared_memory: bool) -> None:
    with launched(kind, Shifty, Shifty, shared_memory=shared_memory) as manager:
        assert manager.ready_obs[0].tolist() == [0, 0]
        first = manager.step({0: 1, 1: 1})[0].obs
        assert first == ["steps", 0, 1]
        first.append(7)  # the caller's own
        assert manager.ready_obs[0] == ["steps", 0, 1]
        second = manager.step({0: 1})[0].obs
        assert second.tolist() == [2, 0]
        assert manager.ready_obs[1] == ["steps", 0, 1]
        assert manager.ready_obs[0].tolist() == [2, 0]
        assert manager.step({0: 1})[0].obs == ["steps", 0, 1, 2, 3]
        assert first == ["steps", 0, 1, 7]


@EVERY_KIND
@pytest.mark.parametrize("shared_memory", [True, False])
def test_fields_beyond_the_four_come_back(kind: str, shared_memory: bool) -> None:
    with launched(kind, Long, shared_memory=shared_memory) as manager:
        timestep: Any = manager.step({0: 2})[0]
        assert timestep._fields == LongDingTimestep._fields
        assert type(timestep).__name__ == "LongDingTimestep"
        assert (timestep.episode_steps, timestep.note) == (1, "step 1")
        assert timestep.info == {"type": "ndarray"}
        assert timestep.reward.tolist() == [2.0]
        assert manager.ready_obs[0].tolist() == [1, 0]


@EVERY_KIND
def test_an_env_inside_of_a_wrapper_is_recognised(kind: str) -> None:
    with launched(kind, lambda: OldWrapper(DingLike())) as manager:
        obs = manager.ready_obs[0]
        assert obs["reward"].dtype == np.int64
        timestep = manager.step({0: np.array([3])})[0]
        assert timestep.obs["obs"].tolist() == [1, 0]
        assert timestep.obs["reward"].tolist() == [3.0]
        assert manager.elapsed == [1]


@EVERY_KIND
def test_spaces_that_only_a_reset_tells_are_not_asked_of_the_env_itself(kind: str) -> None:
    with launched(kind, Late) as manager:
        assert manager.action_space == DingLike.action_space
        assert manager.step({0: 1})[0].obs.tolist() == [1, 0]


def test_tensors_are_made_of_such_timesteps_too() -> None:
    torch = pytest.importorskip("torch")
    with launched("serial", Long, output="torch") as manager:
        timestep: Any = manager.step({0: 2})[0]
    assert isinstance(timestep.obs, torch.Tensor)
    assert isinstance(timestep.reward, torch.Tensor)
    assert timestep.note == "step 1"


# ---- our own envs --------------------------------------------------------------------------------

Noted = collections.namedtuple("Noted", ["obs", "reward", "done", "info", "act"])


class Noting(BaseEnv):
    """A ``BaseEnv`` of ours whose timesteps tell the action."""

    observation_space = spaces.Box(0, 9, (1,), np.float32)
    action_space = spaces.Discrete(3)

    def reset(self) -> np.ndarray:
        return np.zeros(1, np.float32)

    def step(self, action: np.ndarray) -> BaseEnvTimestep:
        info = {} if action else {"act": -1}
        return Noted(np.zeros(1, np.float32), np.ones(1, np.float32), False, info, int(action))  # type: ignore[return-value]

    def close(self) -> None:
        pass


@EVERY_KIND
@pytest.mark.parametrize("shared_memory", [True, False])
def test_a_timestep_of_ours_keeps_its_fields(kind: str, shared_memory: bool) -> None:
    with launched(kind, Noting, shared_memory=shared_memory) as manager:
        timestep: Any = manager.step({0: 2})[0]
        assert type(timestep).__name__ == "Noted"
        assert timestep.act == 2
        assert timestep.info == {}


@pytest.mark.parametrize("backend", ["inline", "process"])
def test_in_a_pool_fields_beyond_the_four_are_keys_of_the_info(backend: str) -> None:
    with stepmill.make(Noting, num_envs=3, backend=backend) as pool:
        pool.reset()
        info = pool.step(np.array([1, 0, 2]))[4]
        assert info["act"].tolist() == [1, -1, 2]  # a key that the info has stays
        assert info["_act"].tolist() == [True, True, True]


@pytest.mark.parametrize("backend", ["inline", "process"])
def test_in_a_pool_an_env_without_spaces_is_refused(backend: str) -> None:
    with pytest.raises(ConfigError, match=r"observation_space: expected a gymnasium\.spaces\.Space, got None"):
        stepmill.make(Duel, num_envs=1, backend=backend)


# ---- asking a manager ----------------------------------------------------------------------------


@EVERY_KIND
def test_random_actions_are_those_of_the_envs(kind: str) -> None:
    with launched(kind, Team, Team) as manager:
        actions = manager.random_action()
        assert sorted(actions) == [0, 1]
        assert actions[0].shape == (3,)
        assert len(manager.step(actions)) == 2
    with launched(kind, Duel) as manager:
        assert len(manager.step(manager.random_action())[0].info) == 2


@EVERY_KIND
def test_random_actions_come_from_the_space_where_an_env_has_none(kind: str) -> None:
    def drawn(env_fn: Any) -> list[int]:
        with launched(kind, env_fn, env_fn) as manager:
            return [int(np.asarray(one)) for _ in range(20) for one in manager.random_action().values()]

    for env_fn in (DingLike, lambda: gymnasium.make("CartPole-v1")):
        first = drawn(env_fn)
        assert first == drawn(env_fn)
        assert len(set(first)) > 1


@EVERY_KIND
def test_random_actions_are_for_those_that_are_ready(kind: str) -> None:
    with launched(kind, lambda: DingLike({"length": 1}), DingLike, episode_num=1) as manager:
        manager.step({0: 1, 1: 1})
        assert list(manager.random_action()) == [1]
        assert manager.env_state_done(0)
        assert not manager.env_state_done(1)
        with pytest.raises(IndexError, match="out of range"):
            manager.env_state_done(2)


class Duck:
    """Neither a ``gymnasium.Env`` nor anybody else's: it has the methods, and pools take it."""

    observation_space = spaces.Box(0, 1, (1,), np.float32)
    action_space = spaces.Discrete(2)
    metadata: Any = None

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return "begin", {}

    def step(self, action: Any) -> Any:
        return {"did": int(action)}, 1.0, False, False, {}

    def quack(self) -> str:
        return "quack"


@EVERY_KIND
def test_without_shared_memory_any_env_that_pools_take_is_taken(kind: str) -> None:
    with launched(kind, Duck, shared_memory=False) as manager:
        assert manager.ready_obs == {0: "begin"}
        assert manager.step({0: 1})[0].obs == {"did": 1}
        assert manager.observation_space == Duck.observation_space
        with pytest.raises(AttributeError, match="method"):
            _ = manager.quack


@pytest.mark.parametrize("shared_memory", [True, False])
def test_what_is_no_env_is_refused_in_the_same_words(shared_memory: bool) -> None:
    manager = BaseEnvManager([lambda: "an env"], cfg={"shared_memory": shared_memory})
    with pytest.raises(ConfigError, match=r"expected a gymnasium\.Env.* got a str"):
        manager.launch()
