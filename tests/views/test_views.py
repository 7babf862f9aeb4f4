"""The three views, line by line of their contract, and Gymnasium's own wrappers on the first of them."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dm_env
import gymnasium
import numpy as np
import pytest
from dm_env import StepType, specs
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv
from gymnasium.wrappers import vector as wrappers

import stepmill
from stepmill import errors, registry
from stepmill.errors import ConfigError, EnvError, UnknownAttributeError, UnknownEnvError, UnsupportedError
from support.envs import CountingEnv, DiscountEnv

MODES = ("next_step", "same_step", "disabled")
VIEWS = ("gymnasium", "gym", "dm")


@pytest.fixture
def make() -> Any:
    """``stepmill.make`` that closes what it made."""
    pools = []

    def build(*args: Any, **arguments: Any) -> Any:
        pools.append(stepmill.make(*args, **arguments))
        return pools[-1]

    yield build
    for pool in pools:
        pool.close()


def zeros(count: int) -> np.ndarray:
    return np.zeros(count, np.int64)


def probe_actions(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


# ---- the gymnasium view ---------------------------------------------------------------------------


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
    assert info["players"]["env_id"].tolist() == info["env_id"].tolist() == [0, 1, 2]


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
def test_async_pools_starve_no_env(make: Any, arguments: dict[str, Any]) -> None:
    """An action waits its turn: none is passed over for good."""
    pool = make("Probe-v0", num_envs=8, batch_size=3, length=10**6, **arguments)
    pool.async_reset()
    turns = np.zeros(8, np.int64)
    for _ in range(300):
        ids = pool.recv()[4]["env_id"]
        turns[ids] += 1
        pool.send(np.zeros(3, np.float32))
    assert turns.min() > 20, turns


# ---- the gym view ---------------------------------------------------------------------------------


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


# ---- the dm view ----------------------------------------------------------------------------------


def test_dm_view_has_specs_of_a_single_env(make: Any) -> None:
    pool = make("CartPole-v1", "dm", num_envs=3)
    space = pool.spec.observation_space
    expected = specs.BoundedArray((4,), np.float32, space.low, space.high, "observation")
    assert pool.observation_spec() == expected
    assert pool.action_spec() == specs.DiscreteArray(2, np.int64, "action")
    assert pool.reward_spec() == specs.Array((), np.float32, "reward")
    assert pool.discount_spec() == specs.BoundedArray((), np.float32, 0.0, 1.0, "discount")
    pool.observation_spec().validate(pool.reset().observation.obs[0])


def test_dm_view_resets_to_first_with_reward_0_and_discount_1(make: Any) -> None:
    pool = make("CartPole-v1", "dm", num_envs=3)
    step = pool.reset()
    assert isinstance(step, dm_env.TimeStep)
    assert step.step_type.tolist() == [StepType.FIRST] * 3
    assert (step.reward.tolist(), step.reward.dtype) == ([0.0] * 3, np.float32)
    assert (step.discount.tolist(), step.discount.dtype) == ([1.0] * 3, np.float32)
    assert step.observation.obs.shape == (3, 4)
    assert step.observation.env_id.tolist() == [0, 1, 2]
    assert step.observation.players.env_id.tolist() == [0, 1, 2]
    assert pool.reset([2, 0]).observation.env_id.tolist() == [2, 0]


def sequence(pool: Any, calls: int) -> list[tuple[StepType, float, float]]:
    steps = (pool.step(probe_actions(0.5)) for _ in range(calls))
    return [(StepType(int(s.step_type[0])), float(s.reward[0]), float(s.discount[0])) for s in steps]


FIRST, MID, LAST = StepType.FIRST, StepType.MID, StepType.LAST


@pytest.mark.parametrize(
    ("length", "limit", "discount"),
    [(2, 9, 0.0), (9, 2, 1.0), (2, 2, 0.0)],
    ids=["a real end", "a time limit", "a real end on the limit step"],
)
def test_dm_view_runs_first_mid_last_first(make: Any, length: int, limit: int, discount: float) -> None:
    pool = make("Probe-v0", "dm", length=length, max_episode_steps=limit)
    assert sequence(pool, 5) == [
        (FIRST, 0.0, 1.0),
        (MID, 0.5, 1.0),
        (LAST, 0.5, discount),
        (FIRST, 0.0, 1.0),
        (MID, 0.5, 1.0),
    ]


def test_dm_view_in_same_step_mode_has_no_first_between_episodes(make: Any) -> None:
    pool = make("Probe-v0", "dm", length=2, autoreset="same_step")
    pool.reset()
    kinds = [kind for kind, _, _ in sequence(pool, 4)]
    assert kinds == [MID, LAST, MID, LAST]


def test_dm_view_after_a_masked_reset_tells_who_began_anew(make: Any) -> None:
    pool = make("Probe-v0", "dm", num_envs=3)
    pool.reset()
    pool.step(probe_actions(0, 0), env_id=[0, 1])
    timestep = pool.reset(options={"reset_mask": np.array([True, False, False])})
    assert timestep.step_type.tolist() == [FIRST, MID, FIRST]
    assert timestep.step_type.dtype == np.int32


def test_dm_view_takes_the_discount_of_an_env_that_has_one(make: Any) -> None:
    """The env tells one in its steps, not in its resets: those are 1, also beside an env that steps."""
    pool = make(DiscountEnv, "dm", num_envs=2, discount=0.75, env_config=[{"length": 1}, {"length": 2}])
    pool.reset()
    steps = [pool.step(probe_actions(0, 0)) for _ in range(3)]
    assert [step.step_type.tolist() for step in steps] == [[LAST, MID], [FIRST, LAST], [LAST, FIRST]]
    assert [step.discount.tolist() for step in steps] == [[0.75, 0.75], [1.0, 0.75], [0.75, 1.0]]
    assert steps[0].discount.dtype == np.float32


def test_dm_view_results_of_send_and_recv(make: Any) -> None:
    pool = make("CartPole-v1", "dm", num_envs=4, batch_size=2)
    pool.async_reset()
    first, second = pool.recv(), pool.recv()
    assert sorted([*first.observation.env_id, *second.observation.env_id]) == [0, 1, 2, 3]
    pool.send(zeros(2), first.observation.env_id)
    step = pool.recv()
    assert isinstance(step, dm_env.TimeStep)
    assert step.reward.dtype == np.float32
    assert step.observation.elapsed_step.tolist() == [1, 1]


def test_nested_spaces_become_nested_specs(make: Any) -> None:
    pool = make("Blackjack-v1", "dm")
    assert [one.num_values for one in pool.observation_spec()] == [32, 11, 2]
    obs = pool.reset().observation.obs
    assert [leaf.shape for leaf in obs] == [(1,)] * 3


# ---- the views agree ------------------------------------------------------------------------------


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


@pytest.mark.parametrize("view", VIEWS)
def test_a_failure_shows_its_batch_in_the_form_of_the_view(make: Any, view: str) -> None:
    pool = make("Probe-v0", view, num_envs=2, env_config=[{}, {"fail_in": "step"}])
    pool.reset()
    with pytest.raises(EnvError) as caught:
        pool.step(probe_actions(0.5, 0.5))
    batch = caught.value.batch
    if view == "gymnasium":
        assert (batch[1].tolist(), batch[3].tolist()) == ([0.5, 0.0], [False, True])
    elif view == "gym":
        assert (batch[1].tolist(), batch[2].tolist()) == ([0.5, 0.0], [False, True])
    else:
        assert (batch.reward.tolist(), batch.step_type.tolist()) == ([0.5, 0.0], [MID, LAST])


@pytest.mark.parametrize("view", VIEWS)
def test_a_failure_in_reset_shows_what_reset_returns(make: Any, view: str) -> None:
    pool = make("Probe-v0", view, num_envs=2, env_config=[{}, {"fail_in": "reset"}])
    with pytest.raises(EnvError) as caught:
        pool.reset()
    batch = caught.value.batch
    obs = {"gymnasium": lambda: batch[0], "gym": lambda: batch, "dm": lambda: batch.observation.obs}[view]()
    assert obs[1].tolist() == [0.0, 0.0]
    assert obs[0, 0] > 0.0


# ---- what every pool has --------------------------------------------------------------------------


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
    for call in (lambda: pool.call("render"), lambda: pool.set_attr("length", 1), lambda: pool.render()):
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


# ---- make_spec, list_all_envs, register -----------------------------------------------------------


@pytest.mark.parametrize("id", ["CartPole-v1", "Pendulum-v1", "Blackjack-v1", "FrozenLake8x8-v1", "Catch-v0"])
def test_make_spec_tells_what_the_pool_has(make: Any, id: str) -> None:
    spec = stepmill.make_spec(id, num_envs=2)
    pool = make(id, num_envs=2)
    assert spec == pool.spec
    assert spec.observation_space == pool.single_observation_space
    assert spec.action_space == pool.single_action_space
    assert spec.config == pool.config
    assert spec.observation_spec() == make(id, "dm").observation_spec()
    assert spec.action_spec() == make(id, "dm").action_spec()


def test_make_spec_knows_the_reward_type_of_each_view() -> None:
    assert stepmill.make_spec("CartPole-v1").reward_space.dtype == np.float64
    assert stepmill.make_spec("CartPole-v1", "gym").reward_space.dtype == np.float32
    assert stepmill.make_spec("CartPole-v1").reward_space.shape == ()


def test_make_spec_builds_no_native_env() -> None:
    config = {"fail_in": "constructor"}
    with pytest.raises(EnvError, match="fail in constructor"):
        stepmill.make("Probe-v0", **config)
    assert stepmill.make_spec("Probe-v0", **config).observation_space.shape == (2,)


def test_make_spec_follows_the_configuration() -> None:
    spec = stepmill.make_spec("Catch-v0", height=4, width=3)
    assert spec.observation_space.shape == (4, 3)
    assert (spec.config["height"], spec.config["width"]) == (4, 3)
    assert stepmill.make_spec("CartPole-v1", max_episode_steps=7).max_episode_steps == 7


def test_make_spec_of_a_python_env_builds_one_and_closes_it() -> None:
    built: list[CountingEnv] = []

    def factory() -> CountingEnv:
        built.append(CountingEnv())
        return built[-1]

    spec = stepmill.make_spec(factory, num_envs=3)
    assert spec.observation_space == built[0].observation_space
    assert [env.closed for env in built] == [True]


def test_list_all_envs_holds_our_ids_and_each_can_be_made(make: Any) -> None:
    ids = stepmill.list_all_envs()
    assert ids == sorted(ids)
    assert {
        "Acrobot-v1", "Blackjack-v1", "CartPole-v0", "CartPole-v1", "Catch-v0", "CliffWalking-v1",
        "CliffWalkingSlippery-v1", "FrozenLake-v1", "FrozenLake8x8-v1", "MountainCar-v0",
        "MountainCarContinuous-v0", "NChain-v0", "Pendulum-v1", "Taxi-v3", "Taxi-v4",
    } <= set(ids)  # fmt: skip
    worlds = {"Courier-v0", "Moving-v0", "Pursuit-v0", "Sliding-v0"}
    for id in ids:
        pool = make(id, num_envs=2)
        assert pool.is_native == (id not in worlds)
        obs, _ = pool.reset()
        assert obs in pool.observation_space
        obs, *_ = pool.step(pool.action_space.sample())
        assert obs in pool.observation_space


@pytest.fixture
def own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """A registry to write into."""
    monkeypatch.setattr(registry, "_records", dict(registry._records))


@pytest.mark.usefixtures("own_registry")
def test_register_a_factory(make: Any) -> None:
    stepmill.register("Counting-v0", CountingEnv, config={"start": 3}, max_episode_steps=2, reward_threshold=1.5)
    assert "Counting-v0" in stepmill.list_all_envs()
    pool = make("Counting-v0", num_envs=2)
    assert (pool.spec.id, pool.spec.max_episode_steps, pool.spec.reward_threshold) == ("Counting-v0", 2, 1.5)
    assert pool.config["start"] == 3
    assert pool.reset()[0].tolist() == [[3.0], [3.0]]
    assert not pool.step(zeros(2))[3].any()
    assert pool.step(zeros(2))[3].all()
    assert make("Counting-v0", start=7).reset()[0].tolist() == [[7.0]]


@pytest.mark.usefixtures("own_registry")
def test_register_a_native_class_with_another_configuration(make: Any) -> None:
    stepmill.register("SmallCatch-v0", native="Catch", config={"height": 4, "width": 3}, max_episode_steps=2)
    pool = make("SmallCatch-v0")
    assert pool.is_native
    assert pool.reset()[0].shape == (1, 4, 3)
    pool.step(zeros(1))
    assert pool.step(zeros(1))[3].all()
    assert make("SmallCatch-v0", width=5).reset()[0].shape == (1, 4, 5)


@pytest.mark.usefixtures("own_registry")
@pytest.mark.parametrize("arguments", [{}, {"factory": CountingEnv, "native": "Catch"}, {"factory": 3}])
def test_register_needs_one_thing_to_make(arguments: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"register\('Bad-v0'\)"):
        stepmill.register("Bad-v0", **arguments)
    assert "Bad-v0" not in stepmill.list_all_envs()


@pytest.mark.usefixtures("own_registry")
@pytest.mark.parametrize("limit", [0, -1, 2.0, "3", True])
def test_register_checks_the_time_limit_at_once(limit: Any) -> None:
    with pytest.raises(ConfigError, match=r"register\('Bad-v0'\): max_episode_steps: expected a whole number"):
        stepmill.register("Bad-v0", CountingEnv, max_episode_steps=limit)
    assert "Bad-v0" not in stepmill.list_all_envs()


def test_a_module_that_misses_another_is_no_unknown_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "needy_envs.py").write_text("import module_that_is_not_there")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="module_that_is_not_there"):
        stepmill.make("needy_envs:Some-v0")
    for id in ("no_such_module:Some-v0", "no_such_module.inner:Some-v0"):
        with pytest.raises(UnknownEnvError):
            stepmill.make(id)


# ---- gymnasium.make_vec ---------------------------------------------------------------------------


def test_make_vec_finds_the_pools() -> None:
    env = gymnasium.make_vec(
        "stepmill/CartPole-v1", num_envs=3, num_threads=2, autoreset="same_step", sutton_barto_reward=True
    )
    assert type(env).__name__ == "GymnasiumPool"
    assert (env.num_envs, env.backend, env.is_native) == (3, "thread", True)
    assert env.config["sutton_barto_reward"]
    assert env.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
    assert env.spec.id == "stepmill/CartPole-v1"
    obs, _ = env.reset(seed=3)
    with stepmill.make("CartPole-v1", num_envs=3, seed=3) as pool:
        assert np.array_equal(obs, pool.reset()[0])
    env.close()


def test_ids_under_stepmill_say_their_limit_and_threshold() -> None:
    for id in stepmill.list_all_envs():
        spec, own = gymnasium.spec(f"stepmill/{id}"), registry.find(id)
        assert (spec.max_episode_steps, spec.reward_threshold) == (own.max_episode_steps, own.reward_threshold)
    cart_pole = gymnasium.spec("stepmill/CartPole-v1")
    assert (cart_pole.max_episode_steps, cart_pole.reward_threshold) == (500, 475.0)
    with gymnasium.make_vec("stepmill/CartPole-v1", num_envs=2) as env:
        assert env.spec.max_episode_steps == env.unwrapped.config["max_episode_steps"] == 500


def test_make_vec_passes_the_time_limit() -> None:
    env = gymnasium.make_vec("stepmill/Pendulum-v1", num_envs=2, max_episode_steps=3)
    env.reset()
    ends = [env.step(env.action_space.sample())[3].all() for _ in range(3)]
    assert ends == [False, False, True]
    env.close()


def test_make_vec_has_every_id() -> None:
    assert {f"stepmill/{id}" for id in stepmill.list_all_envs()} <= set(gymnasium.registry)


def test_make_vec_refuses_vector_kwargs_of_entry_points_by_itself() -> None:
    """Gymnasium takes ``vector_kwargs`` for its own vector envs only; ours are plain keyword arguments."""
    with pytest.raises(gymnasium.error.Error, match="vector_kwargs"):
        gymnasium.make_vec("stepmill/CartPole-v1", num_envs=2, vector_kwargs={"num_threads": 1})


# ---- Gymnasium's own wrappers ---------------------------------------------------------------------


def compare(id: str, autoreset: str, wrap: Callable[[VectorEnv], VectorEnv], steps: int = 300) -> dict[str, int]:
    """Plays a wrapper on a pool and on Gymnasium's vector env: everything the second shows, the first shows too."""
    oracle = wrap(
        SyncVectorEnv(
            [lambda: gymnasium.make(id, disable_env_checker=True, max_episode_steps=30)] * 4,
            autoreset_mode=AutoresetMode[autoreset.upper()],
        )
    )
    pool = wrap(stepmill.make(id, num_envs=4, autoreset=autoreset, max_episode_steps=30, num_threads=2))
    assert pool.observation_space == oracle.observation_space
    assert pool.action_space == oracle.action_space
    assert_shown(pool.reset(seed=9), oracle.reset(seed=9))
    oracle.action_space.seed(9)
    seen = {"ends": 0}
    for _ in range(steps):
        actions = oracle.action_space.sample()
        got, expected = pool.step(actions), oracle.step(actions)
        assert_shown(got, expected)
        seen["ends"] += int((expected[2] | expected[3]).sum())
    pool.close()
    oracle.close()
    assert seen["ends"] > 10
    return seen


def assert_shown(got: Any, expected: Any) -> None:
    """``expected`` is in ``got``: equal but for info keys that only pools have."""
    if isinstance(expected, dict):
        for key, value in expected.items():
            # "t" is time on the clock; a column of "prob" that starts with a whole number loses fractions there.
            if key not in ("t", "prob"):
                assert_shown(got[key], value)
    elif isinstance(expected, list | tuple) or (isinstance(expected, np.ndarray) and expected.dtype == object):
        assert type(got) is type(expected)
        assert len(got) == len(expected)
        for mine, theirs in zip(got, expected, strict=True):
            assert_shown(mine, theirs)
    elif expected is None:
        assert got is None
    else:
        assert np.shape(got) == np.shape(expected)
        np.testing.assert_array_equal(got, expected)


WRAPPERS = {
    "RecordEpisodeStatistics": wrappers.RecordEpisodeStatistics,
    "NormalizeReward": wrappers.NormalizeReward,
    "ClipReward": lambda env: wrappers.ClipReward(env, -0.5, 0.5),
    "TransformReward": lambda env: wrappers.TransformReward(env, lambda reward: reward * 2 + 1),
    "DictInfoToList": wrappers.DictInfoToList,
    "RecordEpisodeStatistics, DictInfoToList": lambda env: wrappers.DictInfoToList(
        wrappers.RecordEpisodeStatistics(env)
    ),
}


@pytest.mark.parametrize("autoreset", ["next_step", "same_step"])
@pytest.mark.parametrize("id", ["CartPole-v1", "Blackjack-v1", "FrozenLake-v1"])
@pytest.mark.parametrize("name", WRAPPERS)
def test_vector_wrappers_work_as_on_gymnasiums_vector_env(name: str, id: str, autoreset: str) -> None:
    compare(id, autoreset, WRAPPERS[name])


def shift(observation: np.ndarray) -> np.ndarray:
    return observation + np.float32(1.0)


# Gymnasium takes these in next_step mode only.
OBSERVATION_WRAPPERS = {
    "NormalizeObservation": wrappers.NormalizeObservation,
    "TransformObservation": lambda env: wrappers.TransformObservation(env, shift),
    "DtypeObservation": lambda env: wrappers.DtypeObservation(env, np.float64),
    "ReshapeObservation": lambda env: wrappers.ReshapeObservation(env, (2, 2)),
    "FlattenObservation": wrappers.FlattenObservation,
}


@pytest.mark.parametrize("name", OBSERVATION_WRAPPERS)
def test_observation_wrappers_work_as_on_gymnasiums_vector_env(name: str) -> None:
    compare("CartPole-v1", "next_step", OBSERVATION_WRAPPERS[name])


@pytest.mark.parametrize("autoreset", ["next_step", "same_step"])
def test_final_observations_of_nested_spaces_are_those_of_gymnasium(autoreset: str) -> None:
    compare("Blackjack-v1", autoreset, lambda env: env)
    compare("Taxi-v4" if "Taxi-v4" in gymnasium.registry else "Taxi-v3", autoreset, lambda env: env)


@pytest.mark.parametrize("autoreset", ["next_step", "same_step"])
@pytest.mark.parametrize(
    "wrap",
    [wrappers.ClipAction, lambda env: wrappers.RescaleAction(env, np.float32(-1.0), np.float32(1.0))],
    ids=["ClipAction", "RescaleAction"],
)
def test_action_wrappers_work_as_on_gymnasiums_vector_env(wrap: Any, autoreset: str) -> None:
    compare("Pendulum-v1", autoreset, wrap)


@pytest.mark.torch
def test_numpy_to_torch() -> None:
    pytest.importorskip("array_api_compat")
    compare("CartPole-v1", "next_step", wrappers.NumpyToTorch)


def test_record_episode_statistics_agrees_with_the_engine(make: Any) -> None:
    env = wrappers.RecordEpisodeStatistics(make("CartPole-v1", num_envs=4))
    env.reset()
    ends = 0
    for _ in range(300):
        info = env.step(env.action_space.sample())[4]
        if "episode" in info:
            ended = info["_episode"]
            assert np.array_equal(info["_episode_return"], ended)
            assert np.array_equal(info["episode"]["r"], info["episode_return"])
            assert np.array_equal(info["episode"]["l"], info["episode_length"])
            ends += int(ended.sum())
    assert ends > 10


def test_spaces_sample_actions_that_pools_take(make: Any) -> None:
    for id in ("CartPole-v1", "Pendulum-v1", "Blackjack-v1"):
        pool = make(id, num_envs=3)
        assert isinstance(pool.action_space, spaces.Space)
        pool.reset()
        pool.step(pool.action_space.sample())
