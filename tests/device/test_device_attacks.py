"""Ends and interruptions of every kind: nothing is lost, nothing stays behind, and nobody else gets in."""

from __future__ import annotations

import copy
import gc
import pickle
import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402

import stepmill  # noqa: E402
from stepmill import errors  # noqa: E402
from stepmill.sources.jax_world import JaxWorld, Moved  # noqa: E402
from support.injection import Alarm, Alarms, at_every_point  # noqa: E402
from support.jax_worlds import counting_world  # noqa: E402
from support.probes import assert_same  # noqa: E402
from support.subprocesses import run_well  # noqa: E402
from support.waiting import in_thread  # noqa: E402

N = 3
WORLD = counting_world(4)
ACTION = np.array([1, 0, 2])

pytestmark = pytest.mark.usefixtures("deadline")


# ---- interrupts ----------------------------------------------------------------------------------

CALLS: dict[str, Callable[[Any], Any]] = {
    "step": lambda pool: pool.step(ACTION),
    "step on the device": lambda pool: pool.step(ON_DEVICE),
    "step of some": lambda pool: pool.step([1], [1]),
    "reset": lambda pool: pool.reset(seed=3),
    "reset of some": lambda pool: pool.reset([2, 0], seed=[1, None]),
    "recv": lambda pool: pool.recv(),
    "restore": lambda pool: pool.fork(0, [2, 1]),
}
ON_DEVICE = jnp.asarray(ACTION)


@pytest.mark.parametrize("name", CALLS)
def test_a_signal_handler_that_raises_loses_nothing(fresh_pool: Any, name: str) -> None:
    """After it the call has happened, and its rows are in flight, or it has not."""
    call = CALLS[name]

    def begun() -> Any:
        pool = fresh_pool(WORLD, num_envs=N, seed=7)
        pool.reset()
        pool.step(ACTION)
        if name == "recv":
            pool.send(ACTION)
        return pool

    expected = call(begun())
    pool = begun()
    call(pool)
    then = pool.step(ACTION)
    theirs = [getattr(one, "__file__", "") for name, one in [*sys.modules.items()] if name.startswith("jax")]

    def attempt(alarms: Alarms) -> None:
        pool = begun()
        try:
            with alarms:
                got = call(pool)
        except Alarm:
            got = pool.recv() if pool.in_flight else call(pool)
        if len(got) != len(expected):  # rows of a reset, received as those of a step
            got = got[0], got[4]
        assert_same(got, expected)
        assert_same(pool.step(ACTION), then)

    stride = 31 if name == "restore" else 7  # much of it is done by JAX, as Python
    assert at_every_point(attempt, __file__, *theirs, stride=stride) > 20


def test_an_interrupt_while_a_step_is_compiled() -> None:
    with stepmill.make(WORLD, num_envs=N, seed=7) as pool, stepmill.make(WORLD, num_envs=N, seed=7) as twin:
        for n in (40, 900):
            with pytest.raises(Alarm), Alarms(n, __file__):
                pool.step(ACTION)
            assert pool.in_flight == []
        for _ in range(2):
            assert_same(pool.step(ACTION), twin.step(ACTION))


# ---- others who come in --------------------------------------------------------------------------


def calling_world(on_host: Callable[[], Any]) -> JaxWorld:
    """Calls a function of the host in every step."""
    inner = counting_world()

    def step(key: Any, state: Any, action: Any) -> Moved:
        def call(like: Any) -> Any:
            on_host()
            return np.zeros(np.shape(like), np.float32)

        moved = inner.step(key, state, action)
        form = jax.ShapeDtypeStruct((), jnp.float32)
        nothing = jax.pure_callback(call, form, moved.reward, vmap_method="broadcast_all")
        return moved._replace(reward=moved.reward + nothing)

    return JaxWorld("Calling", inner.observation_space, inner.action_space, inner.reset, step, resets_cheaply=True)


def calls_of(pool: Any) -> list[Callable[[], Any]]:
    return [
        pool.close,
        pool.reset,
        pool.recv,
        pool.async_reset,
        pool.check,
        pool.stats,
        pool.save,
        pool.functional,
        pool.render,
        lambda: pool.send(ACTION),
        lambda: pool.step(ACTION),
        lambda: pool.fork(0, [1]),
        lambda: pool.rollout(lambda *_: ACTION, 2),
        lambda: pool.__exit__(None, None, None),
    ]


def test_a_second_thread_is_refused() -> None:
    inside, go_on = threading.Event(), threading.Event()

    def wait() -> None:
        inside.set()
        go_on.wait()

    with stepmill.make(calling_world(wait), num_envs=N) as pool:
        pool.reset()
        results: list[Any] = []
        thread = in_thread(lambda: results.append(pool.step(ACTION)))
        inside.wait()
        try:
            for call in calls_of(pool):
                with pytest.raises(errors.ConcurrentUseError, match="another thread is inside this pool"):
                    call()
        finally:
            go_on.set()
        thread.join()
        assert results[0][4]["elapsed_step"].tolist() == [1] * N
        assert pool.step(ACTION)[4]["elapsed_step"].tolist() == [2] * N


def test_a_call_from_inside_of_a_call_is_refused() -> None:
    """As a signal handler does, or a world that knows its pool."""
    inner, refused = counting_world(), []
    pools: list[Any] = []

    def step(key: Any, state: Any, action: Any) -> Moved:
        for call in calls_of(pools[0]) if pools else ():
            with pytest.raises(errors.ConcurrentUseError, match="signal handler"):
                call()
            refused.append(call)
        return inner.step(key, state, action)

    world = JaxWorld("Knowing", inner.observation_space, inner.action_space, inner.reset, step)
    with stepmill.make(world, num_envs=N) as pool:
        pool.reset()
        pools.append(pool)
        assert pool.step([1], [1])[4]["elapsed_step"].tolist() == [1]  # is compiled now
    assert refused


def test_a_function_that_jax_traces_cannot_use_a_pool(fresh_pool: Any) -> None:
    pool = fresh_pool(WORLD, num_envs=N, output="jax")
    pool.reset()
    calls: list[Callable[[Any], Any]] = [
        lambda action: pool.step(action)[0],
        lambda action: pool.step(jnp.zeros(N, int))[0],
        lambda action: pool.reset()[0],
        lambda action: pool.reset([1])[0],
        lambda action: pool.fork(0, [1])[0],
    ]
    for call in calls:
        with pytest.raises(errors.UsageError, match=r"traces.* pool.functional\(\)"):
            jax.jit(call)(ON_DEVICE)
        assert pool.in_flight == []
    assert pool.step(ON_DEVICE)[4]["elapsed_step"].tolist() == [1] * N
    pool.check()


def test_a_forked_child_is_refused() -> None:
    out = run_well(
        """
        import os, warnings
        import numpy as np
        import stepmill
        from stepmill import errors
        from support.jax_worlds import counting_world

        warnings.simplefilter("ignore")  # JAX warns of every fork
        pool = stepmill.make(counting_world(), num_envs=2)
        pool.reset()
        child = os.fork()
        if child == 0:
            refused = 0
            for call in (lambda: pool.step([0, 0]), pool.reset, pool.save, pool.stats, pool.check, pool.functional):
                try:
                    call()
                except errors.ForkedError:
                    refused += 1
            pool.close()
            os._exit(refused)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        print(*pool.step([0, 0])[4]["elapsed_step"])
        """
    )
    assert out.split() == ["6", "1", "1"]


# ---- what is kept, and what is left --------------------------------------------------------------


@pytest.mark.parametrize("how", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_copy_is_refused(fresh_pool: Any, how: Callable[[Any], Any]) -> None:
    pool = fresh_pool(WORLD, num_envs=N)
    for one in (pool, pool._engine):
        with pytest.raises(errors.CopyError, match="cannot be copied or pickled"):
            how(one)
    assert not pool.closed


@pytest.mark.parametrize("end", ["close", "collect"])
def test_nothing_is_left_but_what_the_caller_holds(end: str) -> None:
    gc.collect()
    before = len(jax.live_arrays())
    pool = stepmill.make(counting_world(), num_envs=N, output="jax")
    program = weakref.ref(pool._engine.program)
    kept, info = pool.reset()
    values = np.array(kept)
    states = pool.save([1])
    pool.step(ON_DEVICE)
    pool.step(jnp.array([1, 9, 1]))  # nobody asks
    if end == "close":
        with pytest.raises(errors.ActionError, match="env 1"):
            pool.close()
        pool.close()
        for call in calls_of(pool)[1:-1]:
            with pytest.raises(errors.ClosedError):
                call()
        assert "closed" in repr(pool)
        assert pool.in_flight == []
    del pool, info
    gc.collect()
    assert program() is None
    np.testing.assert_array_equal(kept, values)
    assert len(states) == 1
    del kept, states
    gc.collect()
    assert len(jax.live_arrays()) == before


@pytest.mark.parametrize("mode", ["next_step", "same_step"])
def test_results_of_numpy_are_the_caller_s_own(fresh_pool: Any, mode: str) -> None:
    def arrays(value: Any) -> list[np.ndarray]:
        if isinstance(value, np.ndarray) and value.dtype == object:
            return [one for row in value for one in arrays(row)]
        if isinstance(value, dict):
            return [one for part in value.values() for one in arrays(part)]
        if isinstance(value, tuple):
            return [one for part in value for one in arrays(part)]
        return [value] if isinstance(value, np.ndarray) else []

    def play(spoils: bool) -> list[Any]:
        pool = fresh_pool(WORLD, num_envs=N, autoreset=mode)
        results, kept = [], []
        for i in range(12):
            kept.append(pool.reset([1]) if i == 7 else pool.step(ACTION))
            results.append(copy.deepcopy(kept[-1]))
            if i % 2 and spoils:
                for array in arrays(kept[-1]):
                    array[...] = 1
        if not spoils:
            assert_same(kept, results)
        return results

    assert_same(play(spoils=True), play(spoils=False))


@pytest.mark.parametrize("view", ["gymnasium", "gym", "dm"])
def test_arrays_of_jax_say_what_those_of_numpy_say(fresh_pool: Any, view: str) -> None:
    """And stay as they were, and are never deleted."""
    results = []
    for output in ("numpy", "jax"):
        pool = fresh_pool(WORLD, view, num_envs=N, output=output, autoreset="same_step")
        out = [pool.step(ACTION) for _ in range(9)]
        results.append((pool.reset([2, 0]), out, pool.step([1, 2], [2, 1])))
    expected, got = results
    for one, other in zip(jax.tree.leaves(got[0]), jax.tree.leaves(got[0]), strict=True):
        np.testing.assert_array_equal(one, other)
    for step, result in zip([*expected[1], expected[2]], [*got[1], got[2]], strict=True):
        info = step.observation.info if view == "dm" else step[-1]
        shown = result.observation.info if view == "dm" else result[-1]
        count = 4 if view == "gymnasium" else 3
        for one, other in zip(list(result)[:count], list(step)[:count], strict=True):
            if not isinstance(one, jax.Array):
                one, other = one.obs, other.obs
            assert isinstance(one, jax.Array)
            np.testing.assert_array_equal(one, other)
        for key in ("env_id", "elapsed_step"):
            np.testing.assert_array_equal(shown[key], info[key])
        for key in ("episode_return", "episode_length", "noise", "began_with", "final_obs"):
            has = np.asarray(shown[f"_{key}"])
            assert has.tolist() == (info[f"_{key}"].tolist() if key in info else [False] * len(has))
            for row in np.flatnonzero(has):
                np.testing.assert_array_equal(shown[key][row], info[key][row])


@pytest.mark.torch
def test_tensors_are_the_caller_s_own() -> None:
    import torch

    with (
        stepmill.make(WORLD, num_envs=N, output="torch") as pool,
        stepmill.make(WORLD, num_envs=N) as twin,
    ):
        for i in range(12):
            given, expected = (one.reset([1]) if i == 7 else one.step(ACTION) for one in (pool, twin))
            np.testing.assert_array_equal(given[0].numpy(), expected[0])
            for tensor in jax.tree.leaves(given):
                assert isinstance(tensor, torch.Tensor)
                tensor.fill_(1)
