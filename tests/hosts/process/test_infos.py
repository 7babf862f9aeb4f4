"""Infos, observations and logs on their way out of a worker process."""

from __future__ import annotations

import logging
import re
import signal
import threading
import warnings
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

import stepmill
from stepmill import errors
from support.envs import Plain, ProbeTwin
from support.envs.faulty import (
    outcome,
)

pytestmark = pytest.mark.usefixtures("deadline", "server")


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


# ---- what else a worker may say ------------------------------------------------------------------


class TellingEnv(ProbeTwin):
    """Its info is what a function gives, which is called where the env is."""

    def __init__(self, tell: Any) -> None:
        super().__init__()
        self._tell = tell

    def step(self, action: Any) -> Any:
        return *super().step(action)[:4], self._tell()


def test_a_huge_info_arrives_whole() -> None:
    def tell() -> dict[str, Any]:
        return {"huge": np.arange(50_000_000, dtype=np.uint8), "small": 3}

    with stepmill.make(TellingEnv, tell=tell, backend="process") as pool:
        pool.reset()
        for _ in range(2):
            info = pool.step([0.0])[4]
            assert info["huge"].shape == (1, 50_000_000)
            assert np.array_equal(info["huge"][0], tell()["huge"])
            assert info["small"].tolist() == [3]


def test_what_cannot_be_pickled_in_an_info_is_left_out_with_a_warning(capfd: Any) -> None:
    def tell() -> dict[str, Any]:
        return {"lock": threading.Lock(), "good": 1, "nested": {"x": 2}, "code": lambda: 3}

    with warnings.catch_warnings():
        warnings.simplefilter("default")  # as workers inherit it
        pool = stepmill.make(TellingEnv, num_envs=2, num_workers=1, tell=tell, backend="process")
    with pool:
        pool.reset()
        info = pool.step([0.0, 0.0])[4]
        assert "lock" not in info
        assert (info["good"].tolist(), info["nested"]["x"].tolist()) == ([1, 1], [2, 2])
        assert info["code"][0]() == 3
        err = capfd.readouterr().err
        for env_id in (0, 1):
            assert re.search(rf"info\['lock'\] of env {env_id} cannot be pickled", err)


def test_a_warning_that_is_an_error_costs_no_worker() -> None:
    """As under ``python -W error``, and here."""
    with stepmill.make(TellingEnv, tell=lambda: {"lock": threading.Lock()}, backend="process") as pool:
        pool.reset()
        outcome(lambda: pool.step([0.0]))
        assert pool.stats()["restarts"] == 0
        assert pool.stats()["workers"][0]["alive"]
