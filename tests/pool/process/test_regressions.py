"""What went wrong once in pools of Python envs, each with the case that showed it."""

from __future__ import annotations

import gc
import logging
import signal
import weakref
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import stepmill
from stepmill import errors
from support.process_envs import kill_worker

pytestmark = pytest.mark.usefixtures("server")

BACKENDS = ("inline", "process")


class Plain(gymnasium.Env):
    observation_space: Any = spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = spaces.Discrete(3)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        if options and options.get("bad"):
            raise ValueError("these options are bad")
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> Any:
        return np.full(2, action, np.float32), float(action), False, False, {}


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


class Struck(Plain):
    """Its info, once it is back in the caller, raises Ctrl-C there the first time it is looked at."""

    def step(self, action: Any) -> Any:
        return *super().step(action)[:4], {"mine": Striking() if action == 2 else 1}


class Striking:
    struck = False

    def __reduce__(self) -> Any:
        return strike, ()


def strike() -> str:
    if not Striking.struck:
        Striking.struck = True
        signal.raise_signal(signal.SIGINT)
    return "unharmed"


def test_ctrl_c_while_infos_are_read_loses_nothing() -> None:
    Striking.struck = False
    with stepmill.make(Struck, num_envs=3, num_workers=2, backend="process") as pool:
        pool.reset()
        with pytest.raises(KeyboardInterrupt):
            pool.step([1, 2, 1])
        with pytest.raises(errors.InFlightError, match=r"env 1 .*interrupted"):
            pool.send([0], [1])
        obs, reward, *_, info = pool.recv()
        assert reward.tolist() == [1.0, 2.0, 1.0]
        assert obs[:, 0].tolist() == [1.0, 2.0, 1.0]
        assert list(info["mine"]) == [1, "unharmed", 1]
        with pytest.raises(errors.NothingInFlightError):
            pool.recv()
        assert pool.step([0, 0, 0])[1].tolist() == [0.0, 0.0, 0.0]


def test_a_reset_of_all_drops_what_ctrl_c_left() -> None:
    Striking.struck = False
    with stepmill.make(Struck, num_envs=2, num_workers=1, backend="process") as pool:
        pool.reset()
        with pytest.raises(KeyboardInterrupt):
            pool.step([1, 2])
        pool.reset()
        with pytest.raises(errors.NothingInFlightError):
            pool.recv()


@pytest.mark.parametrize("backend", BACKENDS)
def test_options_of_a_failed_reset_are_not_given_to_the_next(backend: str) -> None:
    with stepmill.make(Plain, num_envs=2, backend=backend) as pool:
        with pytest.raises(errors.EnvError, match="these options are bad"):
            pool.reset(options={"bad": True})
        pool.reset()
        assert pool.step([1, 1])[1].tolist() == [1.0, 1.0]


class Unspeakable:
    def __reduce__(self) -> Any:
        raise TypeError("this cannot be pickled")


def test_an_observation_with_a_part_that_cannot_be_pickled_is_the_failure_of_that_env_alone() -> None:
    class Talking(Plain):
        observation_space = spaces.Sequence(spaces.Discrete(2))

        def __init__(self, env_id: int) -> None:
            self.place = env_id

        def reset(self, **arguments: Any) -> Any:
            return (1,), {}

        def step(self, action: Any) -> Any:
            return (Unspeakable() if self.place == 1 and action else 0,), 1.0, False, False, {}

    with stepmill.make(Talking, num_envs=3, num_workers=1, backend="process") as pool:
        pool.reset()
        with pytest.raises(errors.ObservationError, match=r"env 1 .*cannot be pickled"):
            pool.step([1, 1, 1])
        assert pool.stats()["restarts"] == 0
        assert pool.step([0, 0, 0])[1].tolist() == [1.0, 0.0, 1.0]


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_info_of_an_end_stands_when_the_reset_after_it_fails(backend: str) -> None:
    class Ending(Plain):
        ended = False

        def reset(self, **arguments: Any) -> Any:
            if self.ended:
                raise ValueError("no more")
            return np.zeros(2, np.float32), {}

        def step(self, action: Any) -> Any:
            self.ended = True
            return np.ones(2, np.float32), 3.0, True, False, {"score": 7}

    with stepmill.make(Ending, num_envs=2, backend=backend, autoreset="same_step") as pool:
        pool.reset()
        with pytest.raises(errors.EnvError) as caught:
            pool.step([0, 0])
        info = caught.value.batch[-1]
        assert caught.value.batch[1].tolist() == [3.0, 3.0]
        assert info["final_info"]["score"].tolist() == [7, 7]
        assert info["score"].tolist() == [7, 7]


def test_a_logger_with_handlers_of_its_own_is_heard(capfd: pytest.CaptureFixture[str]) -> None:
    class Logging(Plain):
        def step(self, action: Any) -> Any:
            logging.getLogger("mill.test").info("a step of %d", action)
            return super().step(action)

    logger = logging.getLogger("mill.test")
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("OWN %(message)s"))
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    try:
        with stepmill.make(Logging, num_envs=1, backend="process") as pool:
            pool.reset()
            pool.step([2])
    finally:
        logger.removeHandler(handler)
    assert capfd.readouterr().err.count("[env 0] OWN a step of 2") == 1


def test_a_pool_whose_env_refers_to_it_is_collected() -> None:
    pool = stepmill.make(Plain, num_envs=2, backend="inline")
    pool.reset()
    pool.set_attr("owner", [pool, pool])
    seen = weakref.ref(pool)
    del pool
    gc.collect()
    assert seen() is None


def test_infos_that_grow_find_room() -> None:
    class Growing(Plain):
        size = 100_000

        def step(self, action: Any) -> Any:
            self.size += 50_000
            return *super().step(action)[:4], {"all": np.zeros(self.size, np.uint8)}

    with stepmill.make(Growing, num_envs=1, backend="process") as pool:
        pool.reset()
        for i in range(1, 60):
            assert pool.step([0])[-1]["all"].shape == (1, 100_000 + 50_000 * i)
        assert pool.stats()["workers"][0]["outbox_bytes"] < 20_000_000
