"""A signal handler that raises loses no batch: neither in a pool nor in a manager, wherever it comes in between."""

from __future__ import annotations

import contextlib
import ctypes
import operator
import signal
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

import stepmill
from stepmill import errors
from stepmill.managers import AsyncSubprocessEnvManager, BaseEnvManager, SyncSubprocessEnvManager
from support.envs import ProbeTwin
from support.injection import Alarm, Alarms, at_every_point
from support.probes import VIEWS, seen

pytestmark = pytest.mark.usefixtures("server", "deadline")


class Counting(ProbeTwin):
    """Tells how often it was stepped and reset, in all."""

    steps = resets = 0

    def reset(self, **arguments: Any) -> Any:
        self.resets += 1
        obs, _ = super().reset(**arguments)
        return obs, self.tell()

    def step(self, action: Any) -> Any:
        self.steps += 1
        obs, reward, terminated, truncated, _ = super().step(action)
        return obs, reward, terminated, truncated, self.tell()

    def tell(self) -> dict[str, Any]:
        return {"steps": self.steps, "resets": self.resets, "deep": {"list": [self.steps]}}


class Speaking(Counting):
    """Has a part that no array holds, in its observation."""

    def __init__(self, **config: Any) -> None:
        super().__init__(**config)
        self.numbers = self.observation_space
        self.observation_space = spaces.Dict({"at": self.numbers, "word": spaces.Text(5)})

    def _observe(self) -> Any:
        return {"at": np.full(self.numbers.shape, self._steps, np.float64), "word": "a"}


def make(kind: str, view: str, **arguments: Any) -> Any:
    if kind == "native":
        return stepmill.make("Probe-v0", view, num_envs=2, length=3, **arguments)
    env = Speaking if kind == "objects" else Counting
    backend = "process" if kind == "process" else "inline"
    return stepmill.make(env, view, num_envs=2, length=3, backend=backend, **arguments)


# A view does the same wherever its envs run. Processes, where each point takes long, have one view.
EVERYWHERE = [(kind, view) for kind in ("native", "inline", "objects") for view in VIEWS] + [("process", "gymnasium")]


def collected(pool: Any, view: str, call: Any, alarms: Alarms) -> Any:
    """The batch that a call gives, or that ``recv`` gives after an alarm; None where nothing had been sent by then."""
    try:
        with alarms:
            result = call()
    except Alarm:
        result = pool.recv() if pool.stats()["in_flight"] else None
    return result and seen(view, result)


@pytest.mark.parametrize("call", ["recv", "step"])
@pytest.mark.parametrize(("kind", "view"), EVERYWHERE)
def test_every_action_has_one_row_wherever_a_handler_raises(kind: str, view: str, call: str) -> None:
    with make(kind, view) as pool:
        pool.reset()
        elapsed = done = 0

        def attempt(alarms: Alarms) -> None:
            nonlocal elapsed, done
            action = np.array([done % 5, done % 3], np.float32) / 8
            if call == "recv":
                pool.send(action)
                batch = collected(pool, view, pool.recv, alarms)
            else:
                batch = collected(pool, view, lambda: pool.step(action), alarms) or seen(view, pool.step(action))
            elapsed = (elapsed + 1) % 4  # the step after an end resets
            done += elapsed != 0
            assert batch.elapsed == [elapsed] * 2
            assert batch.reward.tolist() == (action.tolist() if elapsed else [0.0, 0.0])
            if kind != "native":
                assert batch.info["steps"].tolist() == [done] * 2

        points = at_every_point(attempt, __file__)
        assert points >= (20 if kind != "native" else 0 if view == "gymnasium" else 1)


@pytest.mark.parametrize(("kind", "view"), EVERYWHERE)
def test_every_reset_has_one_row_wherever_a_handler_raises(kind: str, view: str) -> None:
    with make(kind, view) as pool:
        resets = 0

        def attempt(alarms: Alarms) -> None:
            nonlocal resets
            pool.step([0.0, 0.0])
            resets += resets == 0  # the first step is one
            try:
                with alarms:
                    pool.reset()
            except Alarm:
                if pool.stats()["in_flight"]:
                    batch = seen(view, pool.recv())
                    assert batch.elapsed == [0, 0]
                    assert kind == "native" or batch.info["resets"].tolist() == [resets + 1] * 2
                else:
                    pool.reset()
            resets += 1
            assert kind == "native" or list(pool.get_attr("resets")) == [resets] * 2

        # Native envs have little Python on the way, and from 3.13 on it has fewer points at which a handler can run.
        assert at_every_point(attempt, __file__) > (2 if kind == "native" else 5)


class Failing(Counting):
    """Every third step fails."""

    def step(self, action: Any) -> Any:
        result = super().step(action)
        if self.steps % 3 == 0:
            raise ValueError(f"step {self.steps}")
        return result


@pytest.mark.slow
@pytest.mark.parametrize(("backend", "view"), [*(("inline", view) for view in VIEWS), ("process", "gymnasium")])
def test_an_error_with_its_batch_comes_once_wherever_a_handler_raises(view: str, backend: str) -> None:
    with stepmill.make(Failing, view, num_envs=2, length=10**6, backend=backend, autoreset="same_step") as pool:
        pool.reset()
        failed: list[str] = []

        def attempt(alarms: Alarms) -> None:
            while pool.get_attr("steps")[0] % 3 != 2:
                pool.step([0.5, 0.5])
            before = pool.get_attr("steps")[0]
            pool.send([0.5, 0.5])
            with pytest.raises((errors.EnvError, Alarm)) as caught, alarms:
                pool.recv()
            if isinstance(caught.value, Alarm):
                with pytest.raises(errors.EnvError) as caught:
                    pool.recv()
            error = caught.value
            assert isinstance(error, errors.EnvError)
            assert [str(one.__cause__) for one in error.errors] == [f"step {before + 1}"] * 2
            assert seen(view, error.batch).abnormal == [True, True]
            assert pool.stats()["in_flight"] == 0
            failed.append(str(error))

        assert at_every_point(attempt, __file__) > 20
        assert len(set(failed)) == len(failed)


# ---- managers ------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("length", [10**6, 1], ids=["going on", "ending"])
@pytest.mark.parametrize("cls", [BaseEnvManager, SyncSubprocessEnvManager])
def test_every_action_of_a_manager_has_one_row_wherever_a_handler_raises(cls: Any, length: int) -> None:
    with cls([lambda: Counting(length=length)] * 2) as manager:
        manager.launch()
        done = 0

        def attempt(alarms: Alarms) -> None:
            nonlocal done
            while len(manager.ready_obs_id) < 2:
                pass
            rows: dict[int, Any] = {}
            try:
                with alarms:
                    rows.update(manager.step({0: 0.25, 1: 0.5}))
            except Alarm:
                unsent = {one: 0.25 * (one + 1) for one in manager.ready_obs_id}
                while len(rows) < 2:
                    rows.update(manager.step(unsent))
                    unsent = {}
            done += 1
            assert {one: row.info["steps"] for one, row in rows.items()} == {0: done, 1: done}
            assert {one: row.reward.tolist() for one, row in rows.items()} == {0: [0.25], 1: [0.5]}
            assert manager.episode_count == dict.fromkeys((0, 1), done if length == 1 else 0)
            manager._scheduler.check()

        assert at_every_point(attempt, __file__) > 100


@pytest.mark.slow
@pytest.mark.parametrize("cls", [BaseEnvManager, SyncSubprocessEnvManager])
def test_a_failure_in_a_manager_comes_once_wherever_a_handler_raises(cls: Any) -> None:
    with cls([lambda: Failing(length=10**6), lambda: Counting(length=10**6)]) as manager:
        manager.launch()

        def attempt(alarms: Alarms) -> None:
            while manager.steps[0] % 3 != 2:
                manager.step({0: 0.0, 1: 0.0})
            before = manager.steps
            with pytest.raises((errors.EnvError, Alarm)) as caught, alarms:
                manager.step({0: 0.0, 1: 0.0})
            if isinstance(caught.value, Alarm):
                unsent = dict.fromkeys(manager.ready_obs_id, 0.0)
                with pytest.raises(errors.EnvError) as caught:
                    manager.step(unsent)
            error = caught.value
            assert isinstance(error, errors.EnvError)
            assert str(error.__cause__) == f"step {before[0] + 1}"
            assert [row.info["steps"] for row in error.batch.values()] == [before[1] + 1]
            assert manager.steps == [one + 1 for one in before]
            manager._scheduler.check()
            manager.reset(env_id=[0])

        assert at_every_point(attempt, __file__) > 100


@pytest.mark.parametrize("length", [10**6, 1], ids=["going on", "ending"])
def test_a_reset_of_a_manager_leaves_each_env_in_one_place_wherever_a_handler_raises(length: int) -> None:
    fns = [lambda: Counting(length=length)] * 2
    with AsyncSubprocessEnvManager(fns, wait_num=1, timeout=0) as manager:
        manager.launch()

        def attempt(alarms: Alarms) -> None:
            while len(manager.ready_obs_id) < 2:
                manager.step({})
            manager.step({0: 0.25, 1: 0.5})  # one of the results, or both: what is left is void
            with contextlib.suppress(Alarm), alarms:
                manager.reset()
            _ = manager.ready_obs_id
            manager._scheduler.check()
            manager.reset()
            manager._scheduler.check()
            assert manager.ready_obs_id == [0, 1]

        assert at_every_point(attempt, __file__) > 100


# ---- real signals --------------------------------------------------------------------------------


@pytest.fixture
def alarm_handler() -> Iterator[None]:
    def handler(*_: Any) -> None:
        raise Alarm

    before = signal.signal(signal.SIGUSR1, handler)
    yield
    signal.signal(signal.SIGUSR1, before)


def with_a_signal_inside(call: Callable[[], Any]) -> Any:
    """Calls a function of C with a signal that Python has not seen: between the calls of a ``map`` it does not look."""
    return list(map(operator.call, [partial(ctypes.pythonapi.PyErr_SetInterruptEx, signal.SIGUSR1), call]))[1]


@pytest.mark.usefixtures("alarm_handler")
@pytest.mark.parametrize("batch_size", [64, 32], ids=["sync", "async"])
@pytest.mark.parametrize("view", VIEWS)
def test_a_handler_that_raises_during_a_brief_native_step_loses_no_batch(view: str, batch_size: int) -> None:
    """Nothing in it waits for anything, so that only the end of the call looks for signals."""
    action = np.zeros(batch_size, int)
    with stepmill.make("MountainCar-v0", view, num_envs=64, batch_size=batch_size) as pool:
        elapsed = dict.fromkeys(range(64), -1)

        def take() -> np.ndarray:
            batch = seen(view, pool.recv())
            for env_id, count in zip(batch.ids, batch.elapsed, strict=True):
                elapsed[env_id] += 1
                assert count == elapsed[env_id]
            return np.asarray(batch.ids)

        pool.async_reset()
        ids = take()
        for _ in range(20):  # in the first ones nobody knows yet that steps are brief
            with pytest.raises(Alarm):
                with_a_signal_inside(partial(pool.step, action, ids))
            assert pool.stats()["in_flight"] == 64
            ids = take()
            pool.send(action, ids)
            with pytest.raises(Alarm):
                with_a_signal_inside(pool.recv)
            assert pool.stats()["in_flight"] == 64
            with pytest.raises(errors.InFlightError):
                pool.send(action, ids)
            ids = take()
        assert pool.stats()["in_flight"] == 64 - batch_size


@pytest.mark.usefixtures("alarm_handler")
@pytest.mark.parametrize("view", VIEWS)
def test_a_handler_that_raises_during_a_brief_native_reset_loses_no_batch(view: str) -> None:
    """``recv`` returns it in the form of steps."""
    with stepmill.make("MountainCar-v0", view, num_envs=64) as pool:
        for _ in range(20):
            pool.step(np.zeros(64, int))
        for env_id in (None, np.array([5, 3])):
            pool.step(np.zeros(64, int))
            with pytest.raises(Alarm):
                with_a_signal_inside(partial(pool._engine.reset, env_id, None, None, None))
            batch = seen(view, pool.recv())
            assert batch.ids == (list(range(64)) if env_id is None else [5, 3])
            assert set(batch.elapsed) == {0}


@pytest.mark.usefixtures("alarm_handler")
@pytest.mark.parametrize("action", [[0, 1], np.array([0, 1]), {"action": [0, 1]}], ids=["list", "array", "dict"])
@pytest.mark.parametrize("env_id", [[0, 1], None], ids=["list", "none"])
def test_what_a_handler_raises_is_not_taken_for_an_error_of_the_actions(action: Any, env_id: Any) -> None:
    """For numpy looks for signals while it reads a list."""
    with stepmill.make("MountainCar-v0", num_envs=2) as pool:
        pool.reset()
        with pytest.raises(Alarm):
            with_a_signal_inside(partial(pool.step, action, env_id))
        was_sent = pool.stats()["in_flight"] == 2
        assert was_sent == (env_id is None and isinstance(action, np.ndarray))


class Ringing:
    """The handler runs while this is unpickled, the first time."""

    has_rung = False

    def __reduce__(self) -> Any:
        return ring, ()


def ring() -> str:
    if not Ringing.has_rung:
        Ringing.has_rung = True
        signal.raise_signal(signal.SIGUSR1)
    return "heard"


class Bell(ProbeTwin):
    def step(self, action: Any) -> Any:
        obs, reward, terminated, truncated, _ = super().step(action)
        return obs, reward, terminated, truncated, {"bell": Ringing()}


@pytest.mark.usefixtures("alarm_handler")
def test_what_a_handler_raises_is_not_taken_for_an_error_of_unpickling() -> None:
    with stepmill.make(Bell, num_envs=2, backend="process") as pool:
        pool.reset()
        Ringing.has_rung = False
        with pytest.raises(Alarm):
            pool.step([0.25, 0.5])
        _, reward, *_, info = pool.recv()
        assert reward.tolist() == [0.25, 0.5]
        assert list(info["bell"]) == ["heard", "heard"]


@pytest.mark.usefixtures("alarm_handler")
def test_what_a_handler_raises_inside_of_an_env_is_that_envs_failure() -> None:
    """Nobody could tell it from the env's own exception."""
    rings = iter([True, False])

    def ring_once() -> None:
        if next(rings, False):
            signal.raise_signal(signal.SIGUSR1)

    with stepmill.make(ProbeTwin, num_envs=2, backend="inline", on_step=ring_once) as pool:
        pool.reset()
        with pytest.raises(errors.EnvError) as caught:
            pool.step([0.25, 0.5])
        assert isinstance(caught.value.__cause__, Alarm)
        assert caught.value.batch[4]["abnormal"].tolist() == [True, False]
