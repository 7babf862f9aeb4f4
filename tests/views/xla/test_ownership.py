"""Who has the pool while a program runs, and what becomes of programs whose pool is gone."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest

jax = pytest.importorskip("jax")
jnp = jax.numpy

import stepmill  # noqa: E402
from stepmill import errors  # noqa: E402
from support.probes import GatedPool  # noqa: E402
from support.programs import await_all, make_kind  # noqa: E402
from support.subprocesses import run_well  # noqa: E402
from support.waiting import doing, wait_until_inside  # noqa: E402

pytestmark = pytest.mark.usefixtures("server", "deadline")
ZEROS = np.zeros(3, np.float32)


# ---- while it runs ---------------------------------------------------------------------------------


def test_other_calls_are_refused() -> None:
    with GatedPool(3) as gated:
        pool = gated.pool
        handle, _, _, step = pool.xla()
        result: list[Any] = []
        join = doing(lambda: result.append(await_all(jax.jit(step)(handle, ZEROS))))
        wait_until_inside(pool)
        calls = (lambda: pool.step(ZEROS), pool.recv, pool.reset, pool.stats, pool.close, pool.xla, lambda: pool.save())
        for call in calls:
            with pytest.raises(errors.ConcurrentUseError, match="another thread is inside this pool"):
                call()
        assert not pool.closed
        assert not result
        gated.open(3)
        join()
        assert result[0][1][0].shape == (3, 2)
        gated.open(3)
        pool.step(ZEROS)


def test_a_program_is_refused_while_another_call_is_inside() -> None:
    with GatedPool(3) as gated:
        pool = gated.pool
        handle, _, _, step = pool.xla()
        join = doing(lambda: pool.step(ZEROS))
        wait_until_inside(pool)
        with pytest.raises(Exception, match="ConcurrentUseError: another thread is inside this pool"):
            await_all(jax.jit(step)(handle, ZEROS))
        gated.open(3)
        join()
        assert isinstance(pool.xla_error, errors.ConcurrentUseError)


def test_python_goes_on_while_a_program_waits() -> None:
    """A program that waits for envs does not hold the interpreter lock: this thread opens the gate."""
    with GatedPool(3) as gated:
        handle, _, _, step = gated.pool.xla()
        join = doing(lambda: await_all(jax.jit(step)(handle, ZEROS)))
        wait_until_inside(gated.pool)
        assert sum(range(100_000)) == 4999950000
        gated.open(3)
        join()


# ---- a pool that is gone ---------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["native", "native-process", "inline", "process"])
def test_a_closed_pool(kind: str) -> None:
    pool = make_kind(kind)
    handle, _, _, step = pool.xla()
    jitted = jax.jit(step)
    await_all(jitted(handle, ZEROS))
    pool.close()
    with pytest.raises(Exception, match="ClosedError: the pool is closed"):
        await_all(jitted(handle, ZEROS))
    with pytest.raises(errors.ClosedError):
        pool.xla()
    pool.close()


@pytest.mark.parametrize("kind", ["native", "process"])
def test_closing_with_actions_in_flight(kind: str) -> None:
    pool = make_kind(kind)
    handle, recv, send, _ = pool.xla()
    handle = await_all(jax.jit(send)(handle, ZEROS))
    assert pool.in_flight == [0, 1, 2]
    pool.close()
    with pytest.raises(Exception, match="ClosedError"):
        await_all(jax.jit(recv)(handle))


def test_handles_of_no_pool() -> None:
    with make_kind("native") as pool, make_kind("native") as other:
        handle, _, _, step = pool.xla()
        jitted = jax.jit(step)
        for wrong in (
            handle + jnp.array([0, 1, 0], jnp.uint32),
            handle + jnp.array([10**6, 0, 0], jnp.uint32),
            handle * 0,
        ):
            with pytest.raises(Exception, match="ClosedError: no pool has this handle"):
                await_all(jitted(wrong, ZEROS))
        assert pool.xla_error is None
        assert other.xla_error is None
        assert (np.asarray(pool.xla()[0]) == np.asarray(handle)).all()
        await_all(jitted(handle, ZEROS))


def test_a_handle_with_the_functions_of_another_pool() -> None:
    with make_kind("native") as pool, stepmill.make("Probe-v0", num_envs=3, obs_size=7) as other:
        _, _, _, step = pool.xla()
        theirs, *_ = other.xla()
        with pytest.raises(Exception, match="traced for another pool"):
            await_all(jax.jit(step)(theirs, ZEROS))
        assert isinstance(other.xla_error, errors.UsageError)
        other.step(ZEROS)


def test_types_of_another_pool_are_refused_before_its_envs_are_stepped() -> None:
    with make_kind("native") as pool, stepmill.make("Probe-v0", "gym", num_envs=3, length=4, info=True) as other:
        with jax.enable_x64():  # so that rewards are float64 in the one, and float32 in the other
            _, _, _, step = pool.xla()
            theirs, *_ = other.xla()
            with pytest.raises(Exception, match="traced for another pool"):
                await_all(jax.jit(step)(theirs, ZEROS))
        assert other.stats()["steps"] == 0
        assert isinstance(other.xla_error, errors.UsageError)


@pytest.mark.parametrize("kind", ["native", "inline"])
def test_a_pool_that_nobody_has(kind: str) -> None:
    """Its functions keep it, and a handle does not."""
    pool, other = make_kind(kind), make_kind(kind)
    functions = pool.xla()
    handle = functions[0]
    engine = weakref.ref(pool._engine)
    del pool
    gc.collect()
    await_all(functions[3](handle, ZEROS))
    del functions
    jax.clear_caches()
    gc.collect()
    assert engine() is None
    with other, pytest.raises(Exception, match="ClosedError: no pool has this handle"):
        await_all(jax.jit(other.xla()[3])(handle, ZEROS))


def test_a_pool_that_is_dropped_while_a_program_runs() -> None:
    """Whoever frees it waits until the program has left."""
    gated, other = GatedPool(3), make_kind("native", info=False)
    program = jax.jit(other.xla()[3])  # which does not keep the gated pool
    handle = gated.pool.xla()[0]
    jax.clear_caches()
    shown: list[Any] = []
    join = doing(lambda: shown.append(await_all(program(handle, ZEROS))))
    wait_until_inside(gated.pool)
    opener = weakref.ref(gated.pool._engine, lambda _: gated.open(3))  # it is about to be freed
    with gated, other:
        gated.pool = None
        gc.collect()
        assert opener() is None
        join()
    assert shown[0][1][0].shape == (3, 2)


def test_a_pool_in_a_cycle_that_is_dropped_while_a_program_runs() -> None:
    """The garbage collector takes it apart, and waits until the program has left."""
    code = """
        import gc, sys, threading, jax, numpy as np
        from support.probes import GatedPool
        from support.programs import make_kind
        from support.waiting import doing, wait_until_inside
        gated, other = GatedPool(3), make_kind("native", info=False)
        program = jax.jit(other.xla()[3])  # which does not keep the gated pool
        handle = gated.pool.xla()[0]
        jax.clear_caches()
        zeros, shown = np.zeros(3, np.float32), []
        join = doing(lambda: shown.append(jax.block_until_ready(program(handle, zeros))))
        wait_until_inside(gated.pool)

        begun = threading.Event()

        class Opener:
            def __del__(self):  # called before the collector takes apart what is in the cycle
                begun.set()

        def open_gate():
            begun.wait()
            gated.open(3)

        join_opener = doing(open_gate)
        knot = [gated.pool._engine, Opener()]  # the engine is older, so it is taken apart before this is
        knot.append(knot)
        gated.pool = knot = None
        sys.setswitchinterval(1000)  # so the gate opens when the collector lets others run: while it waits
        gc.collect()
        sys.setswitchinterval(0.005)
        join_opener()
        join()
        print(shown[0][1][0].shape)
    """
    assert run_well(code) == "(3, 2)\n"


def test_numbers_are_used_again_with_other_nonces() -> None:
    handles = set()
    for _ in range(20):
        with make_kind("native") as pool:
            handle, _, _, _ = pool.xla()
            handles.add(tuple(np.asarray(handle).tolist()))
        del pool
        gc.collect()
    assert len({one[1:] for one in handles}) == 20


def test_a_handle_of_another_process() -> None:
    with make_kind("native") as pool:
        words = np.asarray(pool.xla()[0]).tolist()
        code = f"""
            import jax, numpy as np, stepmill
            with stepmill.make("Probe-v0", num_envs=3) as pool:
                handle, recv, send, step = pool.xla()
                try:
                    jax.block_until_ready(jax.jit(step)(np.array({words}, np.uint32), np.zeros(3, np.float32)))
                except Exception as error:
                    print(error)
        """
        assert "no pool has this handle" in run_well(code)


def test_a_forked_child() -> None:
    """Neither the parent's pool nor its handle is served there, and the parent goes on."""
    code = """
        import os, jax, numpy as np, stepmill, warnings
        warnings.simplefilter("ignore")
        from stepmill import errors
        pool = stepmill.make("Probe-v0", num_envs=3)
        handle, recv, send, step = pool.xla()
        handle = np.asarray(handle)
        program = jax.jit(step).lower(handle, np.zeros(3, np.float32)).compile()
        jax.block_until_ready(program(handle, np.zeros(3, np.float32)))
        child = os.fork()
        if child == 0:
            try:
                jax.block_until_ready(program(handle, np.zeros(3, np.float32)))
            except Exception as error:
                print(error, flush=True)
            try:
                pool.xla()
            except errors.ForkedError:
                print("refused", flush=True)
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        jax.block_until_ready(program(handle, np.zeros(3, np.float32)))
        print("parent goes on")
    """
    out = run_well(code)
    assert "ForkedError: the handle belongs to the process that this one was forked from" in out
    assert "refused\n" in out
    assert "parent goes on" in out


def test_the_end_of_a_program_that_still_runs() -> None:
    """Nothing crashes, and nothing is told twice."""
    code = """
        import jax, numpy as np, stepmill
        pool = stepmill.make("CartPole-v1", num_envs=64)
        handle, recv, send, step = pool.xla()
        pool.reset()
        long = jax.jit(lambda handle, action: jax.lax.scan(lambda h, _: step(h, action), handle, length=3000))
        results = long(handle, np.zeros(64, np.int32))
        print("the end")
    """
    assert run_well(code) == "the end\n"


def test_ctrl_c_is_seen_after_the_call() -> None:
    code = """
        import os, signal, threading, jax, numpy as np
        from support.probes import GatedPool
        from support.waiting import wait_until_inside
        with GatedPool(3) as gated:
            handle, recv, send, step = gated.pool.xla()
            jitted = jax.jit(step)
            gated.open(3)
            jax.block_until_ready(jitted(handle, np.zeros(3, np.float32)))
            def strike():
                wait_until_inside(gated.pool)
                os.kill(os.getpid(), signal.SIGINT)
                gated.open(3)
            thread = threading.Thread(target=strike)
            thread.start()
            try:
                result = jitted(handle, np.zeros(3, np.float32))
                jax.block_until_ready(result)
                thread.join()
                print("no interrupt")
            except KeyboardInterrupt:
                print("interrupted")
            thread.join()
            assert gated.pool.in_flight == [], gated.pool.in_flight
            assert gated.pool.xla_error is None
            gated.open(3)
            gated.pool.step(np.zeros(3, np.float32))
    """
    assert run_well(code) == "interrupted\n"
