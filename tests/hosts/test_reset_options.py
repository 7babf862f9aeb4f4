"""Reset options one per env, on every backend."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import stepmill
from stepmill import errors
from stepmill.errors import ResetOptionError
from support.envs import Plain
from support.envs.contract import Walk


@pytest.mark.parametrize("backend", ["inline", "process"])
def test_every_env_has_its_own_options(backend: str) -> None:
    with stepmill.make(Walk, num_envs=3, backend=backend) as pool:
        pool.reset(options=[{"level": 1}, None, {"level": 3}])
        assert pool.get_attr("reset_kwargs") == ({"level": 1}, {}, {"level": 3})
        pool.reset([2, 0], options=[{"level": 7}, {}])
        assert pool.get_attr("reset_kwargs") == ({}, {}, {"level": 7})
        pool.reset(options={"level": 9})
        assert pool.get_attr("reset_kwargs") == ({"level": 9},) * 3


@pytest.mark.parametrize("backend", ["thread", "process"])
def test_native_envs_have_their_own_options_too(backend: str) -> None:
    with stepmill.make("Template-v0", num_envs=2, length=9, backend=backend) as pool:
        obs, _ = pool.reset(options=[{"start": 1}, {"start": 4}])
        assert obs[:, 0].tolist() == [1, 4]


def test_async_resets_take_them_as_well() -> None:
    with stepmill.make(Walk, num_envs=2, batch_size=1, backend="inline") as pool:
        pool.async_reset(options=[{"level": 1}, {"level": 2}])
        pool.recv()
        pool.recv()
        assert pool.get_attr("reset_kwargs") == ({"level": 1}, {"level": 2})


@pytest.mark.parametrize("batch_size", [4, 1])
def test_an_async_reset_takes_a_mask(batch_size: int) -> None:
    mask = np.array([True, False, True, False])
    with stepmill.make(Walk, num_envs=4, batch_size=batch_size, backend="inline") as pool:
        pool.reset(options={"level": 1})
        pool.async_reset(seed=7, options={"reset_mask": mask, "level": 2})
        back: list[int] = []
        while len(back) < 2:
            back += pool.recv()[-1]["env_id"].tolist()
        assert sorted(back) == [0, 2]
        assert pool.get_attr("reset_kwargs") == ({"level": 2}, {"level": 1}) * 2
        assert pool.np_random_seed == (7, 43, 9, 45)
        with pytest.raises(ResetOptionError, match="got both"):
            pool.async_reset([1], options={"reset_mask": mask})
        with pytest.raises(ResetOptionError, match="all False"):
            pool.async_reset(options={"reset_mask": ~mask & mask})


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ([{}], "expected 2 dicts, one per env, got 1"),
        ([{}, 3], "expected a dict, or a list of dicts, one per env, got 3"),
        ("fast", "got 'fast'"),
        ([], "expected 2 dicts, one per env, got 0"),
        ([{"reset_mask": [True, True]}, {}], "expected 'reset_mask' in one dict for all envs"),
    ],
)
def test_a_list_that_does_not_fit_changes_nothing(options: Any, says: str) -> None:
    with stepmill.make(Walk, num_envs=2, backend="inline") as pool:
        pool.reset(options={"level": 1})
        with pytest.raises(ResetOptionError, match=says):
            pool.reset(options=options)
        assert pool.get_attr("reset_kwargs") == ({"level": 1},) * 2
        assert len(pool.step([0, 0])[1]) == 2


@pytest.mark.parametrize("backend", ["inline", "process"])
def test_options_of_a_failed_reset_are_not_given_to_the_next(backend: str) -> None:
    with stepmill.make(Plain, num_envs=2, backend=backend) as pool:
        with pytest.raises(errors.EnvError, match="these options are bad"):
            pool.reset(options={"bad": True})
        pool.reset()
        assert pool.step([1, 1])[1].tolist() == [1.0, 1.0]
