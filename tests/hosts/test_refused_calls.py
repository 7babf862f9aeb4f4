"""A call that is refused changes nothing: close() above all, from another thread, a signal handler or an env."""

from __future__ import annotations

import copy
import gc
import pickle
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import stepmill
from stepmill import errors
from stepmill.hosts.host import Preparation
from stepmill.managers import BaseEnvManager, SyncSubprocessEnvManager
from support.envs import ProbeTwin
from support.manager_cases import pool_of
from support.probes import VIEWS, seen
from support.waiting import Gate, in_thread, tell_gate, wait_at_gate

pytestmark = pytest.mark.usefixtures("server", "deadline")

MANAGERS = [BaseEnvManager, SyncSubprocessEnvManager]


class Held(ProbeTwin):
    """Its steps wait at a gate."""

    def __init__(self, env_id: int = 0, folder: str = "") -> None:
        super().__init__(length=10**6)
        self.place, self.folder = env_id, folder

    def step(self, action: Any) -> Any:
        tell_gate(self.folder, self.place)
        wait_at_gate(self.folder, self.place)
        return super().step(action)


def refused_calls(pool: Any) -> list[Callable[[], Any]]:
    return [
        pool.close,
        pool.reset,
        pool.recv,
        pool.async_reset,
        lambda: pool.send([0.0, 0.0]),
        lambda: pool.step([0.0, 0.0]),
        lambda: pool.call("close"),
        lambda: pool.set_attr("place", 7),
        lambda: pool.get_attr("place"),
        pool.render,
        lambda: pool.__exit__(None, None, None),
    ]


def held_pool(view: str, gate: Gate) -> Any:
    return stepmill.make(Held, view, num_envs=2, num_workers=1, backend="process", folder=str(gate.folder))


@pytest.mark.parametrize("view", VIEWS)
def test_a_second_thread_cannot_close_a_pool_of_processes(view: str, gate: Gate) -> None:
    with held_pool(view, gate) as pool:
        pool.reset()
        results: list[Any] = []
        thread = in_thread(lambda: results.append(pool.step([0.25, 0.5])))
        gate.wait()
        for call in refused_calls(pool):
            with pytest.raises(errors.ConcurrentUseError, match="another thread"):
                call()
        assert not pool.closed
        gate.open(0)
        gate.open(1)
        thread.join()
        assert seen(view, results[0]).reward.tolist() == [0.25, 0.5]
        gate.open(0)
        gate.open(1)
        assert seen(view, pool.step([0.75, 1.0])).reward.tolist() == [0.75, 1.0]
        assert pool.stats()["restarts"] == 0
        assert pool.get_attr("place") == (0, 1)


def test_a_signal_handler_cannot_close_the_pool_of_processes_that_it_interrupts(gate: Gate) -> None:
    refused: list[BaseException] = []

    def handler(*_: Any) -> None:
        for call in refused_calls(pool):
            with pytest.raises(errors.ConcurrentUseError, match="signal handler") as caught:
                call()
            refused.append(caught.value)
        gate.open(0)
        gate.open(1)

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        with held_pool("gymnasium", gate) as pool:
            pool.reset()
            thread = in_thread(lambda: (gate.wait(), signal.raise_signal(signal.SIGUSR1)))
            assert pool.step([0.25, 0.5])[1].tolist() == [0.25, 0.5]
            thread.join()
            assert pool.stats()["restarts"] == 0
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert len(refused) == len(refused_calls(pool))


def test_a_second_close_while_the_first_waits_is_refused_and_kills_nothing(gate: Gate) -> None:
    """The first gives the envs time to close; the second must not end them meanwhile."""

    class Closing(Held):
        def close(self) -> None:
            tell_gate(self.folder, self.place)
            wait_at_gate(self.folder, self.place)
            Path(self.folder, f"closed-{self.place}").touch()

    pool = stepmill.make(Closing, num_envs=1, backend="process", folder=str(gate.folder))
    pool.reset()
    thread = in_thread(pool.close)
    gate.wait()
    with pytest.raises(errors.ConcurrentUseError):
        pool.close()
    gate.open(0)
    thread.join()
    assert Path(gate.folder, "closed-0").exists()
    assert pool.closed
    pool.close()


def test_a_reset_that_is_refused_neither_tells_nor_renews() -> None:
    made: list[ProbeTwin] = []

    def factory() -> ProbeTwin:
        made.append(ProbeTwin())
        return made[-1]

    with BaseEnvManager([factory] * 2) as manager:
        manager.launch()
        pool = pool_of(manager)
        pool.send([0.0, 0.0], [0, 1])
        told: list[Any] = []
        with pytest.raises(errors.InFlightError):
            pool.send_reset([0], None, None, preparation=Preparation(True, told.append))
        assert (told, len(made)) == ([], 2)
        assert not any(env.closed for env in made)
        pool.recv_some(2, 2, None)


# ---- managers ------------------------------------------------------------------------------------


@pytest.mark.parametrize("cls", MANAGERS)
def test_a_second_thread_cannot_close_a_manager(cls: Any, gate: Gate) -> None:
    held = [lambda one=one: Held(one, str(gate.folder)) for one in range(2)]
    with cls(held) as manager:
        manager.launch()
        ref = manager.env_ref
        results: list[Any] = []
        thread = in_thread(lambda: results.append(manager.step({0: 0.25, 1: 0.5})))
        gate.wait()
        states = manager.env_state
        for call in (manager.close, manager.reset, lambda: manager.step({}), lambda: manager.ready_obs):
            with pytest.raises(errors.ConcurrentUseError):
                call()
        assert not manager.closed
        assert manager.env_state == states
        assert manager.env_ref is ref
        assert not ref.closed
        gate.open(0)
        gate.open(1)
        thread.join()
        assert {one: row.reward.tolist() for one, row in results[0].items()} == {0: [0.25], 1: [0.5]}
        gate.open(0)
        gate.open(1)
        assert list(manager.step({0: 0.0, 1: 0.0})) == [0, 1]


def test_an_env_cannot_close_the_manager_that_steps_it() -> None:
    class Closing(ProbeTwin):
        def step(self, action: Any) -> Any:
            if action > 0:
                manager.close()
            return super().step(action)

    with BaseEnvManager([Closing] * 2) as manager:
        manager.launch()
        with pytest.raises(errors.EnvError) as caught:
            manager.step({0: 1.0, 1: 0.0})
        assert isinstance(caught.value.__cause__, errors.ConcurrentUseError)
        assert list(caught.value.batch) == [1]
        manager.reset(env_id=[0])
        assert list(manager.step({0: 0.0, 1: 0.0})) == [0, 1]


def test_a_close_that_an_env_makes_fail_closes_the_manager() -> None:
    class Clinging(ProbeTwin):
        def close(self) -> None:
            raise RuntimeError("will not go")

    manager = BaseEnvManager([Clinging] * 2)
    manager.launch()
    with pytest.raises(errors.EnvError, match="will not go"):
        manager.close()
    assert manager.closed
    manager.close()


# ---- copies --------------------------------------------------------------------------------------


def uncopyable(what: str) -> Any:
    if what == "manager":
        manager = BaseEnvManager([ProbeTwin] * 2)
        manager.launch()
        return manager
    kind, view = what.split()
    if kind == "native":
        return stepmill.make("Probe-v0", view, num_envs=2)
    return stepmill.make(ProbeTwin, view, num_envs=2, backend=kind)


@pytest.mark.parametrize("how", [copy.copy, copy.deepcopy, pickle.dumps])
@pytest.mark.parametrize(
    "what", [*(f"{kind} {view}" for kind in ("native", "inline", "process") for view in VIEWS), "manager"]
)
def test_a_copy_is_refused_and_the_original_goes_on(what: str, how: Callable[[Any], Any]) -> None:
    with uncopyable(what) as original:
        for one in (original, original._scheduler if what == "manager" else original._engine):
            with pytest.raises(errors.CopyError, match="cannot be copied or pickled") as caught:
                how(one)
            assert isinstance(caught.value, TypeError)
        gc.collect()
        assert not original.closed
        original.reset()


def test_a_reset_of_some_envs_waits_for_what_an_interrupt_left() -> None:
    """It would have taken the place of the batch that was not handed out."""
    with stepmill.make(ProbeTwin, "dm", num_envs=3, batch_size=2, backend="inline") as pool:
        pool.reset()
        pool.send([0.25, 0.5], [0, 1])
        core = pool._engine
        shown = [KeyboardInterrupt]

        def interrupted(result: Any) -> Any:
            if shown:
                raise shown.pop()
            return result

        core.show_as(interrupted, None)
        with pytest.raises(KeyboardInterrupt):
            pool.recv()
        with pytest.raises(errors.InFlightError, match="interrupted"):
            pool.reset([2])
        assert pool.stats()["in_flight"] == 2
        pool.send([0.75], [2])
        assert sorted(pool.recv()[1].tolist()) == [0.25, 0.5]
        assert pool.recv()[1].tolist() == [0.75]


def test_a_step_of_other_envs_gives_first_what_an_interrupt_left() -> None:
    with stepmill.make(ProbeTwin, "dm", num_envs=3, batch_size=2, backend="inline") as pool:
        pool.reset()
        pool.send([0.25, 0.5], [0, 1])
        shown = [KeyboardInterrupt]

        def interrupted(result: Any) -> Any:
            if shown:
                raise shown.pop()
            return result

        pool._engine.show_as(interrupted, None)
        with pytest.raises(KeyboardInterrupt):
            pool.recv()
        assert sorted(pool.step([0.75], [2])[1].tolist()) == [0.25, 0.5]
        assert pool.recv()[1].tolist() == [0.75]
