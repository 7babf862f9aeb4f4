"""The gymnasium and the gym view, line by line of their contract, and what all views have."""

from __future__ import annotations

import inspect
import pickle
from typing import Any

import gymnasium
import numpy as np
import pytest
from dm_env import StepType
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv

import stepmill
from stepmill import errors
from stepmill.errors import UnknownAttributeError, UnsupportedError
from support.probes import assert_same, zeros

MODES = ("next_step", "same_step", "disabled")
VIEWS = ("gymnasium", "gym", "dm")


def probe_actions(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


# ---- the gymnasium view --------------------------------------------------------------------------


@pytest.mark.parametrize("autoreset", MODES)
def test_gymnasium_view_is_a_vector_env_that_tells_its_mode(make: Any, autoreset: str) -> None:
    pool = make("CartPole-v1", num_envs=3, autoreset=autoreset)
    assert isinstance(pool, VectorEnv)
    assert pool.metadata["autoreset_mode"] is AutoresetMode[autoreset.upper()]
    assert pool.unwrapped is pool


def test_gymnasium_view_has_batched_spaces_and_single_ones(make: Any) -> None:
    pool = make("CartPole-v1", num_envs=3)
    oracle = SyncVectorEnv([lambda: gymnasium.make("CartPole-v1")] * 3)
    for name in ("observation_space", "action_space", "single_observation_space", "single_action_space"):
        assert getattr(pool, name) == getattr(oracle, name)
    oracle.close()


def test_gymnasium_view_results(make: Any) -> None:
    pool = make("CartPole-v1", num_envs=3)
    obs, info = pool.reset()
    assert obs in pool.observation_space
    assert info["env_id"].tolist() == [0, 1, 2]
    obs, reward, terminated, truncated, info = pool.step(pool.action_space.sample())
    assert obs in pool.observation_space
    assert (reward.dtype, terminated.dtype, truncated.dtype) == (np.float64, np.bool_, np.bool_)
    assert reward.shape == terminated.shape == truncated.shape == (3,)
    assert (info["env_id"].dtype, info["elapsed_step"].dtype) == (np.int32, np.int32)
    assert info["env_id"].tolist() == [0, 1, 2]
    assert "players" not in info  # there is one per env, and Gymnasium's users do not expect a dict in every info


@pytest.mark.parametrize("backend", ["thread", "inline", "process"])
def test_gym_and_dm_views_tell_the_players_even_where_there_is_one_each(make: Any, backend: str) -> None:
    env = "CartPole-v1" if backend == "thread" else "gymnasium:CartPole-v1"
    pool = make(env, env_type="gym", num_envs=3, backend=backend)
    pool.reset()
    *_, info = pool.step(np.zeros(3, np.int64))
    assert info["players"]["env_id"].tolist() == [0, 1, 2]
    pool = make(env, env_type="dm", num_envs=3, backend=backend)
    assert pool.reset().observation.players.env_id.tolist() == [0, 1, 2]


def test_gymnasium_view_tells_a_time_limit_as_truncated(make: Any) -> None:
    pool = make("Probe-v0", max_episode_steps=1)
    pool.reset()
    _, _, terminated, truncated, info = pool.step(probe_actions(0))
    assert (terminated.tolist(), truncated.tolist()) == ([False], [True])
    assert "TimeLimit.truncated" not in info


def test_gymnasium_view_of_async_pools_resets_all_envs_in_order(make: Any) -> None:
    pool = make("CartPole-v1", num_envs=5, batch_size=2)
    whole = make("CartPole-v1", num_envs=5)
    obs, info = pool.reset()
    assert info["env_id"].tolist() == [0, 1, 2, 3, 4]
    assert np.array_equal(obs, whole.reset()[0])


@pytest.mark.parametrize(
    "arguments",
    [{"num_threads": 1}, {"num_threads": 2}, {"num_threads": 3}, {"backend": "inline"}],
    ids=lambda arguments: str(*arguments.values()),
)
def test_async_pools_starve_no_env(make: Any, deadline: None, arguments: dict[str, Any]) -> None:
    """An action waits its turn: none is passed over for good. For a while it may be: a busy machine stops threads."""
    pool = make("Probe-v0", num_envs=8, batch_size=3, length=10**6, **arguments)
    pool.async_reset()
    turns = np.zeros(8, np.int64)
    while turns.min() <= 20:
        ids = pool.recv()[4]["env_id"]
        turns[ids] += 1
        pool.send(np.zeros(3, np.float32))


# ---- the gym view --------------------------------------------------------------------------------


def test_gym_view_is_plain_and_has_the_spaces_of_a_single_env(make: Any) -> None:
    pool = make("CartPole-v1", "gym", num_envs=3)
    env = gymnasium.make("CartPole-v1")
    assert not isinstance(pool, VectorEnv)
    assert pool.observation_space == env.observation_space
    assert pool.action_space == env.action_space
    env.close()


def test_gym_view_results(make: Any) -> None:
    pool = make("CartPole-v1", "gym", num_envs=3)
    obs = pool.reset()
    assert (obs.shape, obs.dtype) == ((3, 4), np.float32)
    obs, reward, done, info = pool.step(zeros(3))
    assert (obs.shape, reward.shape, done.shape) == ((3, 4), (3,), (3,))
    assert (reward.dtype, done.dtype) == (np.float32, np.bool_)
    assert info["env_id"].tolist() == [0, 1, 2]
    pool.send(zeros(3))
    assert len(pool.recv()) == 4


@pytest.mark.parametrize(
    ("length", "limit", "done", "cut"),
    [(9, 1, True, True), (1, 9, True, False), (1, 1, True, False), (9, 9, False, False)],
)
def test_gym_view_tells_ends_that_are_no_real_ones(make: Any, length: int, limit: int, done: bool, cut: bool) -> None:
    pool = make("Probe-v0", "gym", length=length, max_episode_steps=limit)
    pool.reset()
    _, _, ended, info = pool.step(probe_actions(0))
    assert (ended.tolist(), info["TimeLimit.truncated"].tolist()) == ([done], [cut])


def test_gym_view_of_async_pools_points_from_reset_to_async_reset(make: Any) -> None:
    pool = make("CartPole-v1", "gym", num_envs=4, batch_size=2)
    with pytest.raises(UnsupportedError, match=r"async_reset\(\) and recv\(\)"):
        pool.reset()
    pool.async_reset()
    obs, reward, done, info = pool.recv()
    assert len(obs) == len(reward) == len(done) == len(info["env_id"]) == 2
    pool.recv()
    assert len(pool.reset([3, 1, 0])) == 3


# ---- the dm view ---------------------------------------------------------------------------------


FIRST, MID, LAST = StepType.FIRST, StepType.MID, StepType.LAST


# ---- the views agree -----------------------------------------------------------------------------


@pytest.mark.parametrize("autoreset", ["next_step", "same_step"])
def test_the_views_show_the_same_run(make: Any, autoreset: str) -> None:
    full, old, dm = (make("CartPole-v1", view, num_envs=4, autoreset=autoreset) for view in VIEWS)
    obs, _ = full.reset()
    assert np.array_equal(obs, old.reset())
    assert np.array_equal(obs, dm.reset().observation.obs)
    rng = np.random.default_rng(0)
    for _ in range(200):
        actions = rng.integers(0, 2, 4)
        obs, reward, terminated, truncated, _ = full.step(actions)
        old_obs, old_reward, done, _ = old.step(actions)
        step = dm.step(actions)
        assert np.array_equal(obs, old_obs)
        assert np.array_equal(obs, step.observation.obs)
        assert np.array_equal(reward.astype(np.float32), old_reward)
        assert np.array_equal(old_reward, step.reward)
        assert np.array_equal(terminated | truncated, done)
        assert np.array_equal(done, step.step_type == StepType.LAST)


# ---- what every pool has -------------------------------------------------------------------------


@pytest.mark.parametrize("view", VIEWS)
def test_attributes_of_a_pool(make: Any, view: str) -> None:
    pool = make("CartPole-v1", view, num_envs=5, batch_size=3, num_threads=2, seed=7)
    assert (len(pool), pool.num_envs, pool.batch_size, pool.is_async) == (5, 5, 3, True)
    assert (pool.backend, pool.is_native, pool.closed) == ("thread", True, False)
    assert pool.all_env_ids.tolist() == [0, 1, 2, 3, 4]
    assert pool.all_env_ids.dtype == np.int32
    assert pool.spec.id == "CartPole-v1"
    assert pool.stats()["num_envs"] == 5


def test_config_is_everything_make_settled_and_a_copy(make: Any) -> None:
    pool = make("CartPole-v1", num_envs=2, seed=7, autoreset="same_step", sutton_barto_reward=True)
    config = pool.config
    expected = {
        "task_id": "CartPole-v1",
        "num_envs": 2,
        "batch_size": 2,
        "seed": [7, 8],
        "autoreset": "same_step",
        "max_episode_steps": 500,
        "action_bounds": "pass",
        "on_error": "raise",
        "sutton_barto_reward": True,
    }
    assert {key: config[key] for key in expected} == expected
    config["num_envs"] = 99
    assert pool.config["num_envs"] == 2


@pytest.mark.parametrize(("view", "name"), [("gymnasium", "GymnasiumPool"), ("gym", "GymPool"), ("dm", "DmPool")])
def test_repr_names_view_env_size_and_backend(make: Any, view: str, name: str) -> None:
    pool = make("CartPole-v1", view, num_envs=4, batch_size=2, backend="inline")
    assert repr(pool) == f"{name}(CartPole-v1, num_envs=4, batch_size=2, backend='inline')"
    pool.close()
    assert repr(pool) == f"{name}(CartPole-v1, num_envs=4, batch_size=2, backend='inline', closed)"


def test_a_context_manager_closes_the_pool() -> None:
    with stepmill.make("CartPole-v1") as pool:
        pool.reset()
        assert not pool.closed
    assert pool.closed


@pytest.mark.parametrize("view", VIEWS)
def test_three_action_formats_do_the_same(make: Any, view: str) -> None:
    pools = [make("Pendulum-v1", view, num_envs=3) for _ in range(3)]
    for pool in pools:
        pool.reset()
    actions, ids = np.array([[0.5], [1.0], [-1.5]], np.float32), np.array([2, 0, 1])
    plain, by_id, by_dict = pools
    plain.send(actions[[1, 2, 0]])
    by_id.send(actions, ids)
    by_dict.send({"action": actions, "env_id": ids})
    rewards = [batch.reward if view == "dm" else batch[1] for batch in (pool.recv() for pool in pools)]
    assert np.array_equal(rewards[0][ids], rewards[1])
    assert np.array_equal(rewards[1], rewards[2])


def test_get_attr_of_native_envs_is_their_configuration(make: Any) -> None:
    pool = make("CartPole-v1", num_envs=2, env_config=[{}, {"sutton_barto_reward": True}])
    assert pool.get_attr("sutton_barto_reward") == (False, True)
    assert pool.get_attr("max_episode_steps", [1]) == (500,)
    with pytest.raises(
        UnknownAttributeError, match=r"is native and has no attribute 'length': get_attr knows.*render_mode"
    ):
        pool.get_attr("length")
    with pytest.raises(AttributeError):
        pool.get_attr("length")
    for call in (lambda: pool.call("render"), lambda: pool.set_attr("length", 1)):
        with pytest.raises(UnsupportedError, match=r"make\('gymnasium:CartPole-v1'\)"):
            call()


@pytest.mark.parametrize("view", ["gymnasium", "gym", "dm"])
@pytest.mark.parametrize("mode", AutoresetMode)
def test_autoreset_takes_gymnasiums_words(make: Any, mode: AutoresetMode, view: str) -> None:
    own = mode.name.lower()
    for given in (mode, mode.value, own):
        pool = make("CartPole-v1", view, autoreset=given)
        assert pool.autoreset_mode is mode
        assert pool.config["autoreset"] == own
        assert stepmill.make_spec("CartPole-v1", autoreset=given).config["autoreset"] == own


@pytest.mark.parametrize(
    ("own", "gymnasiums"),
    [
        (errors.ClosedError, gymnasium.error.ClosedEnvironmentError),
        (errors.UnknownEnvError, gymnasium.error.UnregisteredEnv),
        (errors.ActionError, gymnasium.error.InvalidAction),
        (errors.NeedsResetError, gymnasium.error.ResetNeeded),
        (errors.MissingPackageError, gymnasium.error.DependencyNotInstalled),
        (errors.InFlightError, gymnasium.error.AlreadyPendingCallError),
        (errors.NothingInFlightError, gymnasium.error.NoAsyncCallError),
    ],
)
def test_errors_are_gymnasiums_too(own: Any, gymnasiums: Any) -> None:
    error = own("what to do")
    assert isinstance(error, gymnasiums)
    assert str(error) == "what to do"
    assert str(pickle.loads(pickle.dumps(error))) == "what to do"


def test_calls_raise_what_gymnasiums_users_catch(make: Any) -> None:
    pool = make("CartPole-v1", num_envs=2, autoreset=AutoresetMode.DISABLED)
    with pytest.raises(gymnasium.error.NoAsyncCallError) as nothing:
        pool.recv()
    assert nothing.value.name == "recv"
    pool.reset()
    with pytest.raises(gymnasium.error.InvalidAction):
        pool.step([2, 0])
    pool.send([0, 0])
    with pytest.raises(gymnasium.error.AlreadyPendingCallError) as pending:
        pool.send([0, 0])
    assert pending.value.name == "send"
    pool.recv()
    pool.close()
    with pytest.raises(gymnasium.error.ClosedEnvironmentError):
        pool.reset()
    with pytest.raises(gymnasium.error.UnregisteredEnv):
        make("NoSuchEnv-v0")


@pytest.mark.parametrize("view", ["gymnasium", "gym", "dm"])
def test_steps_by_name_and_through_the_class(view: str) -> None:
    with stepmill.make("Probe-v0", view, num_envs=2) as pool, stepmill.make("Probe-v0", view, num_envs=2) as other:
        pool.reset()
        other.reset()
        for name in ("actions", "action"):
            expected = other.step([0.25, 0.5])
            assert_same(pool.step(**{name: [0.25, 0.5]}), expected)
            expected = other.step([0.75], [1])
            assert_same(type(pool).step(pool, [0.75], env_id=[1]), expected)
        assert "env_id" in inspect.signature(type(pool).step).parameters
