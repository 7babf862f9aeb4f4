"""Rows of batches as objects of single envs: what the managers are made of below their API."""

from __future__ import annotations

import gc
import sys
import weakref
from typing import Any

import numpy as np
import pytest

from stepmill import _native
from stepmill.envs import BaseEnvTimestep
from stepmill.errors import InputError
from stepmill.managers.config import DEFAULTS, EnvRecipe, read_settings
from stepmill.managers.manager_pool import open_pool
from support.envs.managed import Trial, suffering
from support.waiting import Gate

DTYPES = [np.bool_, np.uint8, np.int64, np.float16, np.float32, np.float64]


def batch(dtype: Any, shape: tuple[int, ...]) -> np.ndarray:
    return np.arange(int(np.prod(shape))).reshape(shape).astype(dtype)


# ---- rows ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(5,), (5, 3), (5, 2, 3), (0, 3), (4, 0), (1, 1)])
def test_own_rows_are_equal_and_share_nothing(dtype: Any, shape: tuple[int, ...]) -> None:
    given = batch(dtype, shape)
    before = given.copy()
    rows = _native.own_rows([(given, row) for row in range(shape[0])])
    assert len(rows) == shape[0]
    for row, expected in zip(rows, before, strict=True):
        assert type(row) is np.ndarray
        assert row.dtype == dtype
        assert row.shape == shape[1:]
        assert row.base is None
        assert row.flags.writeable
        np.testing.assert_array_equal(row, expected)
        row[...] = 1
    np.testing.assert_array_equal(given, before)


def test_rows_come_from_any_batches_in_any_order() -> None:
    one, other = batch(np.float32, (4, 2)), batch(">i2", (3, 2))
    rows = _native.own_rows([(other, 2), (one, 0), (other, 2), (one, 3)])
    assert [row.tolist() for row in rows] == [[4, 5], [0, 1], [4, 5], [6, 7]]
    assert rows[0].dtype == other.dtype
    assert not np.shares_memory(rows[0], rows[2])


def test_to_keep_a_row_does_not_keep_the_batch() -> None:
    given = batch(np.float32, (3, 2))
    kept = _native.own_rows([(given, 1)])[0]
    gone = weakref.ref(given)
    del given
    assert gone() is None
    assert kept.tolist() == [2, 3]


class Marked(np.ndarray):
    """An array that is more than an array."""


@pytest.mark.parametrize(
    "place",
    [
        ([[1, 2]], 0),
        (np.float32(1), 0),
        (np.array(1), 0),
        (np.array([{}, {}], object), 0),
        (batch(np.float32, (4, 4))[:, ::2], 0),
        (batch(np.float32, (2, 2)).view(Marked), 0),
        (batch(np.float32, (2, 2)), 2),
        (batch(np.float32, (2, 2)), -1),
        [batch(np.float32, (2, 2)), 0],
        (batch(np.float32, (2, 2)),),
    ],
)
def test_what_is_no_row_of_a_batch_is_refused(place: Any) -> None:
    good = (batch(np.float32, (2, 2)), 0)
    with pytest.raises(InputError, match="expected"):
        _native.own_rows([good, place])
    with pytest.raises(TypeError):
        _native.own_rows([(good[0], "0")])  # type: ignore[list-item]


# ---- stacks --------------------------------------------------------------------------------------


@pytest.mark.parametrize("other", [1, None, {"a": np.zeros(1)}, (np.zeros(1),), np.zeros(2).view(Marked)])
def test_what_is_no_plain_array_is_left_to_others(other: Any) -> None:
    assert _native.stack_alike([np.zeros(2), other]) is None
    assert _native.stack_alike([other, np.zeros(2)]) is None


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (1,), (2, 3), (0,)])
def test_arrays_of_one_form_are_stacked(dtype: Any, shape: tuple[int, ...]) -> None:
    given = [np.asarray(batch(dtype, shape) + np.asarray(i).astype(dtype)) for i in range(3)]
    stacked = _native.stack_alike(given)
    assert stacked is not None
    assert stacked.dtype == np.stack(given).dtype
    np.testing.assert_array_equal(stacked, np.stack(given))


@pytest.mark.parametrize(
    "given",
    [
        [],
        [np.zeros(2), np.zeros(3)],
        [np.zeros(2), np.zeros((1, 2))],
        [np.zeros(2), np.zeros(2, np.float32)],
        [np.zeros(2), np.zeros(4)[::2]],  # right, but not in one piece: numpy does it
        [np.zeros(2, object), np.zeros(2, object)],
        [1, 2],
    ],
)
def test_others_are_left_to_numpy(given: list[Any]) -> None:
    assert _native.stack_alike(given) is None


# ---- timesteps -----------------------------------------------------------------------------------

NO = np.zeros(2, np.bool_)


@pytest.mark.parametrize("rewards", [batch(np.float32, (4,)), batch(np.float32, (4, 2)), batch(np.float64, (4, 1))])
def test_timesteps_are_those_that_a_line_of_python_would_make(rewards: np.ndarray) -> None:
    observations: list[Any] = [np.zeros(2), {"a": 1}, "text", None]
    terminated, truncated = np.array([0, 1, 0, 1], np.bool_), np.array([0, 0, 1, 1], np.bool_)
    steps, ended = _native.make_timesteps(BaseEnvTimestep, observations, rewards, terminated, truncated)
    assert ended == [1, 2, 3]
    assert [type(step) for step in steps] == [BaseEnvTimestep] * 4
    for i, step in enumerate(steps):
        assert step.obs is observations[i]
        assert step.reward.tolist() == rewards.reshape(4, -1)[i].tolist()
        assert step.reward.dtype == rewards.dtype
        assert step.reward.base is None
        assert step.done is (i > 0)
        assert step.info == {}
        assert step == BaseEnvTimestep(*step)
    assert steps[0].info is not steps[1].info


def test_timesteps_leave_no_reference_behind() -> None:
    observation = np.zeros(2)
    gc.collect()
    before = sys.getrefcount(observation)
    steps, _ = _native.make_timesteps(BaseEnvTimestep, [observation] * 2, np.zeros(2), NO, NO)
    assert sys.getrefcount(observation) == before + 2
    steps[0].info["itself"] = steps  # the garbage collector sees through them
    del steps
    gc.collect()
    assert sys.getrefcount(observation) == before


@pytest.mark.parametrize(
    ("kind", "rewards", "terminated", "truncated"),
    [
        (BaseEnvTimestep, np.zeros(2), np.zeros(3, np.bool_), NO),
        (BaseEnvTimestep, np.zeros(2), NO, np.zeros(1, np.bool_)),
        (BaseEnvTimestep, np.zeros(2), NO, np.zeros(2, np.uint8)),
        (BaseEnvTimestep, np.zeros(2), [False, False], NO),
        (BaseEnvTimestep, np.zeros(3), NO, NO),
        (BaseEnvTimestep, np.array([None, None]), NO, NO),
        (list, np.zeros(2), NO, NO),
    ],
)
def test_columns_that_do_not_fit_are_refused(kind: Any, rewards: np.ndarray, terminated: Any, truncated: Any) -> None:
    with pytest.raises(InputError, match="expected"):
        _native.make_timesteps(kind, [1, 2], rewards, terminated, truncated)


# ---- waiting for steps ---------------------------------------------------------------------------


def opened_pool(backend: str, cfgs: list[dict[str, Any]]) -> Any:
    settings = read_settings("test", DEFAULTS, backend == "process", {}, {"num_workers": len(cfgs)})
    recipes = [EnvRecipe(Trial, ({"id": env_id, **cfg},)) for env_id, cfg in enumerate(cfgs)]
    return open_pool(recipes, settings, backend)


def ids_of(rows: Any) -> list[int]:
    result = rows.result if hasattr(rows, "result") else rows
    return sorted(result[-1]["env_id"].tolist())


def reset_all(pool: Any, count: int) -> None:
    pool.send_reset(list(range(count)), None, None)
    assert ids_of(pool.recv_some(count, count, None)) == list(range(count))


def test_resets_are_not_what_a_wait_for_steps_is_for() -> None:
    pool = opened_pool("inline", [{}] * 3)  # which runs its envs in the order of sending
    try:
        reset_all(pool, 3)
        pool.send_reset([0, 1], None, None)
        pool.send(np.zeros(1, np.int64), [2])
        assert ids_of(pool.recv_some(1, 1, None, True)) == [0, 1, 2]
        pool.send_reset([0], None, None)
        pool.send(np.zeros(1, np.int64), [2])
        assert ids_of(pool.recv_some(1, 1, None)) == [0]
        assert ids_of(pool.recv_some(1, 1, None)) == [2]
    finally:
        pool.close()


@pytest.mark.usefixtures("deadline")
def test_a_wait_for_steps_does_not_wait_for_resets(gate: Gate) -> None:
    pool = opened_pool("process", [suffering("reset", "gate", [2], folder=gate.folder), {}, {}])
    try:
        reset_all(pool, 3)
        pool.send_reset([0], None, None)
        assert gate.wait() == 0
        pool.send_reset([1], None, None)
        pool.send(np.zeros(1, np.int64), [2])
        came = ids_of(pool.recv_some(1, 1, None, True))
        assert 2 in came
        assert 0 not in came
        gate.open(0)
        # No step is in flight any more: then resets are what it waits for.
        while len(came) < 3:
            came += ids_of(pool.recv_some(1, 1, None, True))
        assert sorted(came) == [0, 1, 2]
    finally:
        pool.close()
