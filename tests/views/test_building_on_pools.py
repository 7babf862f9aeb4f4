"""What programs that build on pools use: settings, what is in flight, infos by row, questions to envs."""

from __future__ import annotations

import dataclasses
from typing import Any

import gymnasium
import numpy as np
import pytest

import stepmill
from stepmill.errors import ClosedError, EnvError, InputError, NothingInFlightError, UnsupportedError
from stepmill.settings import SETTINGS
from stepmill.views.dm import DmPool
from stepmill.views.gym import GymPool
from stepmill.views.gymnasium import GymnasiumPool
from support.envs import CountingEnv, FailingEnv
from support.envs.adapted import Two

VIEWS = ("gymnasium", "gym", "dm")
SECOND_FAILS: list[dict[str, Any]] = [{}, {"fail_in": "step", "fail_at": (1,)}, {}]


class Holder:
    """Something that a batch becomes an attribute of."""

    batch: Any = None


# ---- what it is ----------------------------------------------------------------------------------


@pytest.mark.parametrize("view", VIEWS)
def test_settings_have_every_argument_of_make_and_cannot_be_changed(view: str) -> None:
    with stepmill.make("CartPole-v1", view, num_envs=3, batch_size=2, seed=7, autoreset="SameStep") as pool:
        settings = pool.settings
        assert {name for name in SETTINGS if not hasattr(settings, name)} == set()
        assert (settings.num_envs, settings.batch_size, list(settings.seed)) == (3, 2, [7, 8, 9])
        assert (settings.autoreset, settings.on_error, settings.output) == ("same_step", "raise", "numpy")
        with pytest.raises(dataclasses.FrozenInstanceError):
            settings.batch_size = 1  # type: ignore[misc]
        with pytest.raises(AttributeError):
            pool.settings = settings


def test_players() -> None:
    with stepmill.make("CartPole-v1") as alone:
        assert (alone.num_players, alone.player_kinds) == (1, ())
    with stepmill.make("TemplatePlayers-v0", max_num_players=5) as several:
        assert (several.num_players, several.player_kinds) == (5, ())


def test_the_kinds_of_players() -> None:
    class Unlike(Two):
        def action_space(self, agent: str) -> Any:
            return gymnasium.spaces.Discrete(2 if agent == "a" else 3)

    with stepmill.make(Unlike, backend="inline") as pool:
        assert (pool.num_players, pool.player_kinds) == (2, ("a", "b"))


def test_arrays_of_numpy_are_on_the_cpu() -> None:
    with stepmill.make("CartPole-v1") as pool:
        assert pool.device == "cpu"


# ---- what is in flight ---------------------------------------------------------------------------


@pytest.mark.parametrize("view", VIEWS)
def test_in_flight_names_the_envs_whose_results_are_to_come(view: str) -> None:
    with stepmill.make("CartPole-v1", view, num_envs=4) as pool:
        assert pool.in_flight == []
        pool.async_reset([2])
        assert pool.in_flight == [2]
        pool.send([0, 0], [3, 1])
        assert pool.in_flight == [1, 2, 3]
        pool.recv()
        assert pool.in_flight == []
        pool.send(np.zeros(4, int))
    assert pool.in_flight == []


@pytest.mark.parametrize("batch_size", [4, 3, 1])
def test_drain_receives_all_that_is_in_flight(batch_size: int) -> None:
    with stepmill.make("CartPole-v1", num_envs=4, batch_size=batch_size) as pool:
        assert pool.drain() == []
        pool.async_reset()
        batches = pool.drain()
        assert [len(batch[1]) for batch in batches][:-1] == [batch_size] * (len(batches) - 1)
        assert sorted(env for batch in batches for env in batch[-1]["env_id"]) == [0, 1, 2, 3]
        assert pool.in_flight == []
        with pytest.raises(NothingInFlightError):
            pool.recv()
        pool.send(np.zeros(4, int), range(4))  # the pool goes on
        assert len(pool.recv()[1]) == batch_size


@pytest.mark.parametrize("view", VIEWS)
def test_drain_returns_what_recv_would(view: str) -> None:
    with stepmill.make("CartPole-v1", view, num_envs=2) as pool, stepmill.make("CartPole-v1", view, num_envs=2) as same:
        for one in (pool, same):
            one.send([0, 0])
        (batch,), expected = pool.drain(), same.recv()
        assert type(batch) is type(expected)
        assert len(batch) == len(expected)


@pytest.mark.parametrize("backend", ["inline", "process"])
def test_a_failure_in_what_is_drained_is_an_abnormal_row(backend: str) -> None:
    with stepmill.make(FailingEnv, num_envs=3, backend=backend, env_config=SECOND_FAILS) as pool:
        pool.reset()
        pool.send(np.zeros(3, int))
        (batch,) = pool.drain()
        assert batch[-1]["abnormal"].tolist() == [False, True, False]
        assert pool.in_flight == []


def test_a_closed_pool_cannot_be_drained() -> None:
    pool = stepmill.make("CartPole-v1")
    pool.close()
    with pytest.raises(ClosedError):
        pool.drain()


def test_a_batch_is_received_into_an_attribute() -> None:
    holder = Holder()
    with stepmill.make("CartPole-v1", num_envs=2) as pool:
        with pytest.raises(NothingInFlightError):
            pool.recv_into(holder, "batch")
        pool.send([0, 0])
        assert pool.recv_into(holder, "batch", 60.0) is None
        assert holder.batch[-1]["env_id"].tolist() == [0, 1]


def test_a_failure_is_raised_instead() -> None:
    holder = Holder()
    with stepmill.make(FailingEnv, num_envs=3, backend="inline", env_config=SECOND_FAILS) as pool:
        pool.reset()
        pool.send(np.zeros(3, int))
        with pytest.raises(EnvError) as raised:
            pool.recv_into(holder, "batch")
        assert holder.batch is None
        assert raised.value.batch[-1]["abnormal"].tolist() == [False, True, False]


# ---- infos by row --------------------------------------------------------------------------------


class Telling(CountingEnv):
    """Tells values of all kinds, at every second step."""

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
        observation, reward, *_ = super().step(action)
        info = {"whole": self.count, "rows": np.full(2, self.count), "nested": {"text": "a"}} if action else {}
        return observation, reward, self.count == 3, False, info


def test_an_info_has_a_dict_per_row() -> None:
    with stepmill.make(Telling, num_envs=2, backend="inline") as pool:
        pool.reset()
        info = pool.step([1, 0])[-1]
        first, second = pool.info_rows(info)
        assert second == {}
        assert first.keys() == {"whole", "rows", "nested"}
        assert type(first["whole"]) is int
        assert first["nested"] == {"text": "a"}
        assert not np.shares_memory(first["rows"], info["rows"])
        np.testing.assert_array_equal(first["rows"], [1, 1])


def test_an_ended_row_has_the_end_and_not_what_the_pool_counts() -> None:
    with stepmill.make(Telling, num_envs=2, backend="inline", autoreset="same_step") as pool:
        pool.reset()
        pool.step([0, 0], [0, 1])
        pool.step([0], [0])
        info = pool.step([1, 0])[-1]
        assert "episode_return" in info
        first, second = pool.info_rows(info)
        assert first.keys() == {"final_obs", "final_info"}
        assert first["final_info"]["whole"] == 3
        assert second == {}


@pytest.mark.parametrize("view", ["gymnasium", "gym"])
def test_abnormal_is_in_the_rows_that_are(view: str) -> None:
    settings: dict[str, Any] = {"backend": "inline", "on_error": "restart", "env_config": SECOND_FAILS}
    with stepmill.make(FailingEnv, view, num_envs=3, **settings) as pool:
        pool.reset()
        rows = pool.info_rows(pool.step(np.zeros(3, int))[-1])
        assert ["abnormal" in row for row in rows] == [False, True, False]


# ---- questions to envs ---------------------------------------------------------------------------


def count_of(env: gymnasium.Env) -> Any:
    return env.get_wrapper_attr("count")


@pytest.mark.parametrize("backend", ["inline", "process"])
def test_a_function_is_applied_where_the_envs_run(backend: str) -> None:
    with stepmill.make(CountingEnv, num_envs=3, backend=backend) as pool:
        pool.reset()
        pool.step([0, 0], [1, 2])
        assert pool.apply(count_of) == (0, 1, 1)
        assert pool.apply(lambda env: env.action_space.n, [2]) == (2,)


def test_what_cannot_be_applied() -> None:
    with stepmill.make(CountingEnv, backend="inline") as pool, pytest.raises(InputError, match="a function of an env"):
        pool.apply("count")
    with stepmill.make("CartPole-v1") as native, pytest.raises(UnsupportedError, match="has no Python object"):
        native.apply(count_of)


# ---- another view of the same pool ---------------------------------------------------------------


@pytest.mark.parametrize("view", [GymnasiumPool, GymPool, DmPool])
def test_a_view_over_the_pool_of_another_one(view: Any) -> None:
    pool = stepmill.make("CartPole-v1", num_envs=2)
    with view.over(pool) as other:
        assert type(other) is view
        assert other.settings is pool.settings
        other.reset()
        other.step([0, 0])
    assert pool.closed
