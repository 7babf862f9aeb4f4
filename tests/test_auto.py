"""``backend="auto"``: where it runs Python envs, and that an env which moves plays on as if it had not."""

from __future__ import annotations

import os
import threading
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.utils import EzPickle

import stepmill
from stepmill.envs import DingEnvWrapper
from stepmill.pool import auto

pytestmark = pytest.mark.usefixtures("server")

MODES = ("next_step", "same_step", "disabled")


class Drifting(gymnasium.Env):
    """Random walks of random length, with an info, from its own generator."""

    observation_space = spaces.Dict({"place": spaces.Box(-np.inf, np.inf, (2,)), "name": spaces.Text(8)})
    action_space = spaces.Discrete(3)

    def __init__(self, lock: bool = False) -> None:
        self.place = np.zeros(2, np.float32)
        self.lock = threading.Lock() if lock else None  # which nothing can pickle

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.place = self.np_random.normal(size=2).astype(np.float32)
        return self._show(), {"options": options}

    def step(self, action: Any) -> Any:
        self.place = (self.place + self.np_random.normal(size=2) + action).astype(np.float32)
        return (
            self._show(),
            float(self.place.sum()),
            bool(self.np_random.random() < 0.1),
            False,
            {"sum": self.place.sum()},
        )

    def _show(self) -> Any:
        return {"place": self.place, "name": f"at {int(self.place[0])}"[:8]}


@pytest.fixture
def verdict(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Decides in place of the clock: after how many batches, and for what."""

    def settle(choice: str, batches: int = 5) -> None:
        monkeypatch.setattr(auto, "_COLD", 0)
        monkeypatch.setattr(auto, "_MEASURED", batches)
        monkeypatch.setattr(auto, "_ENOUGH_S", 0.0)
        # The envs' own code took no time at all, or more than any caller waited.
        spent = iter(np.arange(10_000) * (0.0 if choice == "inline" else 1e6))
        monkeypatch.setattr(auto.AutoPool, "_busy_seconds", lambda self: float(next(spent)))

    return settle


def play(pool: Any, steps: int, seed: int) -> list[Any]:
    actions = np.random.default_rng(seed)
    out = []
    obs, info = pool.reset(seed=3)
    out.append((obs, info))
    for _ in range(steps):
        result = pool.step(actions.integers(0, 3, pool.num_envs))
        out.append(result)
        over = result[2] | result[3]
        if pool.metadata["autoreset_mode"].name == "DISABLED" and over.any():
            out.append(pool.reset(options={"reset_mask": over}))
    return out


def assert_equal(one: Any, other: Any) -> None:
    assert type(one) is type(other)
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        for key in one:
            assert_equal(one[key], other[key])
    elif isinstance(one, list | tuple):
        assert len(one) == len(other)
        for a, b in zip(one, other, strict=True):
            assert_equal(a, b)
    elif isinstance(one, np.ndarray) and one.dtype == object:
        assert_equal(one.tolist(), other.tolist())
    else:
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("on_error", ["raise", "restart"])
@pytest.mark.parametrize("mode", MODES)
def test_envs_that_move_play_on_bit_for_bit(verdict: Any, mode: str, on_error: str) -> None:
    verdict("inline")
    arguments = {"num_envs": 5, "autoreset": mode, "on_error": on_error, "max_episode_steps": 13}
    with stepmill.make(Drifting, **arguments) as pool:
        assert pool.backend == "process"
        played = play(pool, 60, seed=1)
        assert pool.backend == "inline"
    with stepmill.make(Drifting, backend="inline", **arguments) as reference:
        assert_equal(played, play(reference, 60, seed=1))


def test_nothing_is_left_of_the_processes_after_a_move(verdict: Any) -> None:
    verdict("inline")
    with stepmill.make(Drifting, num_envs=2) as pool:
        pids = [worker["pid"] for worker in pool.stats()["workers"]]
        threads = threading.active_count()
        play(pool, 7, seed=1)
        assert pool.backend == "inline"
        assert threading.active_count() <= threads
        for pid in pids:
            with pytest.raises(ProcessLookupError):
                stat_of(pid)


def stat_of(pid: int) -> None:
    try:
        with open(f"/proc/{pid}/stat") as file:
            state = file.read().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        raise ProcessLookupError from None
    if state == "Z":  # ended, and not yet looked at by its parent
        raise ProcessLookupError


def test_slow_envs_stay_in_processes(verdict: Any) -> None:
    verdict("process")
    with stepmill.make(Drifting, num_envs=3) as pool:
        play(pool, 10, seed=1)
        assert pool.backend == "process"


def test_envs_that_cannot_be_pickled_stay_where_they_are_and_go_on(verdict: Any) -> None:
    verdict("inline")
    with stepmill.make(Drifting, num_envs=3, lock=True) as pool:
        played = play(pool, 20, seed=2)
        assert pool.backend == "process"
    with stepmill.make(Drifting, num_envs=3, lock=True, backend="inline") as reference:
        assert_equal(played, play(reference, 20, seed=2))


def test_an_async_pool_moves_when_nothing_is_in_flight(verdict: Any) -> None:
    verdict("inline", batches=3)
    with stepmill.make(Drifting, num_envs=4, batch_size=2) as pool:
        pool.async_reset()
        for _ in range(6):
            info = pool.recv()[-1]
            pool.send(np.zeros(2, int), info["env_id"])
        assert pool.backend == "process"
        others = pool.recv()[-1]["env_id"]
        last = pool.recv()[-1]["env_id"]
        pool.send(np.ones(2, int))  # those of the last batch, though another pool received it
        assert pool.backend == "inline"
        assert sorted(pool.recv()[-1]["env_id"]) == sorted(last)
        pool.send(np.ones(2, int), others)
        assert sorted(pool.recv()[-1]["env_id"]) == sorted(others)


def test_an_env_that_dies_of_being_moved_costs_no_batch(verdict: Any) -> None:
    verdict("inline", batches=3)
    with stepmill.make(Mortal, num_envs=2, num_workers=None, on_error="restart") as pool:
        pool.reset()
        for _ in range(3):
            assert len(pool.step([0, 0])[1]) == 2
        assert pool.step([0, 0])[-1]["abnormal"].any()
        pool.step([0, 0])
        assert "abnormal" not in pool.step([0, 0])[-1]
        assert pool.backend == "process"


class Mortal(Drifting):
    """Ends its process when it is pickled."""

    def __reduce__(self) -> Any:
        os._exit(3)


def test_a_single_env_never_leaves_the_calling_thread() -> None:
    with stepmill.make(Drifting) as pool:
        assert pool.backend == "inline"


@pytest.mark.parametrize("asked", [{"num_workers": 2}, {"step_timeout": 60.0}, {"reset_timeout": 60.0}], ids=str)
def test_what_only_processes_have_means_processes(verdict: Any, asked: dict[str, Any]) -> None:
    verdict("inline")
    with stepmill.make(Drifting, num_envs=2, **asked) as pool:
        play(pool, 8, seed=1)
        assert pool.backend == "process"


@pytest.mark.parametrize("view", ["gymnasium", "gym", "dm"])
def test_calls_reach_the_envs_before_and_after_a_move(verdict: Any, view: str) -> None:
    verdict("inline")
    with stepmill.make(Drifting, view, num_envs=2) as pool:
        pool.reset()
        for backend in ("process", "inline"):
            assert pool.backend == backend
            pool.set_attr("mark", backend)
            assert pool.get_attr("mark") == (backend, backend)
            assert [place.shape for place in pool.call("_show")[0].values() if hasattr(place, "shape")] == [(2,)]
            for _ in range(6):
                pool.step([0, 1])
            assert pool.stats()["steps"] > 0


class Rebuilt(gymnasium.Env, EzPickle):
    """Counts its steps from 0; a copy begins as a new one does, at -1000."""

    observation_space = spaces.Box(-2000, 2000, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self) -> None:
        EzPickle.__init__(self)
        self.count = -1000

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.count = 0
        return np.array([0], np.float32), {}

    def step(self, action: Any) -> Any:
        self.count += 1
        return np.array([self.count], np.float32), 0.0, False, False, {}


@pytest.mark.parametrize("make_env", [Rebuilt, lambda: DingEnvWrapper(Rebuilt)], ids=["plain", "inside a BaseEnv"])
def test_an_env_whose_copies_begin_anew_stays_where_it_is(verdict: Any, make_env: Any) -> None:
    verdict("inline")
    with stepmill.make(make_env, num_envs=2) as pool:
        pool.reset()
        for turn in range(1, 12):
            assert pool.step([0, 0])[0][:, 0].tolist() == [turn, turn]
        assert pool.backend == "process"
