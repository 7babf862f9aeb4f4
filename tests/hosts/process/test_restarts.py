"""A worker process is replaced, whatever its envs are like."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

import stepmill
from support.envs import Plain
from support.processes import kill_worker

pytestmark = pytest.mark.usefixtures("server")


def test_a_worker_of_many_envs_can_be_replaced() -> None:
    """Nobody listens to the progress of a restart: telling it filled the wire, and the worker waited forever."""
    count = 300
    with stepmill.make(Plain, num_envs=count, num_workers=1, backend="process", on_error="restart") as pool:
        pool.reset()
        kill_worker(pool, 0)
        assert pool.step(np.ones(count, int))[-1]["abnormal"].all()
        assert "abnormal" not in pool.step(np.ones(count, int))[-1]
        assert pool.stats()["restarts"] == 1


def test_bounds_that_differ_for_each_element_do_not_hold_up_a_restart() -> None:
    class Bounded(Plain):
        observation_space = spaces.Box(
            np.arange(28224).reshape(4, 84, 84).astype(np.float32) - 1e6, np.full((4, 84, 84), 1e6, np.float32)
        )

        def reset(self, **arguments: Any) -> Any:
            return np.zeros((4, 84, 84), np.float32), {}

        def step(self, action: Any) -> Any:
            return np.zeros((4, 84, 84), np.float32), 0.0, False, False, {}

    with stepmill.make(Bounded, num_envs=2, num_workers=1, backend="process", on_error="restart") as pool:
        pool.reset()
        kill_worker(pool, 0)
        pool.step([0, 0])
        assert "abnormal" not in pool.step([0, 0])[-1]
