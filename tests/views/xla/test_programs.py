"""What programs do with pools: donation, several pools, several devices, loops, and what else the pool is used for."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

jax = pytest.importorskip("jax")
jnp = jax.numpy

import stepmill  # noqa: E402
from stepmill import errors  # noqa: E402
from support.envs.many_spaces import WildEnv  # noqa: E402
from support.programs import actions_of, assert_shows, await_all, make_kind  # noqa: E402
from support.subprocesses import run_well  # noqa: E402

pytestmark = pytest.mark.usefixtures("server", "deadline")


def numpy_of(tree: Any) -> Any:
    return jax.tree_util.tree_map(np.asarray, tree)


@pytest.mark.parametrize("kind", ["native", "inline"])
def test_donated_buffers(kind: str) -> None:
    """The program writes its results where its arguments were."""
    with make_kind(kind) as inside, make_kind(kind) as outside:
        handle, _, _, step = inside.xla()
        first, _ = inside.reset()
        outside.reset()
        kept = first.copy()

        def follow(handle: Any, obs: Any) -> Any:
            handle, (obs, *_) = step(handle, obs[:, 1].astype(jnp.float32) / 8)
            return handle, obs

        jitted = jax.jit(follow, donate_argnums=(0, 1))
        obs: Any = jnp.asarray(first.astype(np.float32))
        expected = first
        for _ in range(12):
            handle, obs = jitted(handle, obs)
            expected = outside.step(expected[:, 1].astype(np.float32) / 8)[0]
            np.testing.assert_array_equal(np.asarray(obs), expected.astype(np.float32))
        np.testing.assert_array_equal(first, kept)


@pytest.mark.parametrize("kinds", [("native", "native"), ("native", "inline"), ("inline", "process")])
def test_two_pools_in_one_program(kinds: tuple[str, str]) -> None:
    """One acts on what the other shows."""
    with make_kind(kinds[0]) as a, make_kind(kinds[1]) as b, make_kind(kinds[0]) as c, make_kind(kinds[1]) as d:
        (one, _, _, step_a), (two, _, _, step_b) = a.xla(), b.xla()
        for pool in (a, b, c, d):
            pool.reset()

        def both(carry: Any, action: Any) -> Any:
            one, two = carry
            one, seen = step_a(one, action)
            two, shown = step_b(two, jnp.clip(seen[0][:, 0], -1, 1).astype(jnp.float32))
            return (one, two), (seen, shown)

        actions = actions_of("native", 12)
        _, (seen, shown) = jax.jit(lambda *given: jax.lax.scan(both, *given))((one, two), jnp.asarray(actions))
        for t, action in enumerate(actions):
            expected = c.step(action)
            assert_shows(numpy_of(jax.tree_util.tree_map(lambda x, t=t: x[t], seen)), expected)
            then = d.step(np.clip(expected[0][:, 0].astype(np.float32), -1, 1))
            assert_shows(numpy_of(jax.tree_util.tree_map(lambda x, t=t: x[t], shown)), then)


def test_pools_without_an_order_between_them() -> None:
    """XLA may run them at the same time."""
    pools = [make_kind("native", num_envs=50, length=9) for _ in range(6)]
    parts = [pool.xla() for pool in pools]
    steps = [part[3] for part in parts]

    @jax.jit
    def run(handles: Any, action: Any) -> Any:
        return [jax.lax.scan(step, handle, action)[1][0] for step, handle in zip(steps, handles, strict=True)]

    actions = jnp.asarray(actions_of("native", 40, 50))
    shown = await_all(run([part[0] for part in parts], actions))
    for other in shown[1:]:
        np.testing.assert_array_equal(np.asarray(other), np.asarray(shown[0]))
    for pool in pools:
        pool.close()


def test_fori_while_and_cond() -> None:
    with make_kind("native", length=7) as inside:
        handle, _, _, step = inside.xla()
        inside.reset()
        zeros = jnp.zeros(3, jnp.float32)

        @jax.jit
        def fori(handle: Any) -> Any:
            return jax.lax.fori_loop(
                0, 5, lambda _, carry: _elapsed(step(carry[0], zeros)), (handle, jnp.zeros(3, jnp.int32))
            )

        handle, elapsed = fori(handle)
        assert elapsed.tolist() == [5] * 3

        @jax.jit
        def until_ended(handle: Any) -> Any:
            def once(carry: Any) -> Any:
                handle, _, count = carry
                handle, (_, _, terminated, truncated, _) = step(handle, zeros)
                return handle, jnp.any(terminated | truncated), count + 1

            return jax.lax.while_loop(lambda carry: ~carry[1], once, (handle, False, 0))

        handle, _, count = until_ended(handle)
        assert int(count) == 2

        @jax.jit
        def perhaps(handle: Any, does: Any) -> Any:
            return jax.lax.cond(does, lambda h: step(h, zeros)[0], lambda h: h, handle)

        before = inside.stats()["steps"]
        handle = await_all(perhaps(handle, False))
        assert inside.stats()["steps"] == before
        await_all(perhaps(handle, True))
        assert inside.stats()["steps"] == before + 3


def _elapsed(result: Any) -> Any:
    handle, (*_, info) = result
    return handle, info["elapsed_step"]


def test_what_nobody_looks_at_happens_too() -> None:
    with make_kind("native") as pool:
        handle, _, _, step = pool.xla()

        @jax.jit
        def run(handle: Any) -> Any:
            step(handle, jnp.zeros(3, jnp.float32))
            return 1

        assert run(handle) == 1
        jax.effects_barrier()
        assert pool.stats()["steps"] == 3


def test_several_devices() -> None:
    code = """
        import jax, jax.numpy as jnp, numpy as np, stepmill
        assert len(jax.devices()) == 4
        pools = [stepmill.make("CartPole-v1", num_envs=8, seed=3) for _ in range(4)]
        alone = stepmill.make("CartPole-v1", num_envs=8, seed=3)
        actions = np.random.default_rng(0).integers(0, 2, (50, 8))
        results = []
        for pool, device in zip(pools, jax.devices()):
            handle, recv, send, step = pool.xla()
            run = jax.jit(lambda h, a, step=step: jax.lax.scan(step, h, a)[1][0])
            results.append(run(jax.device_put(handle, device), jax.device_put(actions, device)))
        shown = np.stack([alone.step(a)[0] for a in actions])
        for result, device in zip(results, jax.devices()):
            assert result.devices() == {device}
            np.testing.assert_array_equal(np.asarray(result), shown)
        print("equal")
    """
    flag = "import os; os.environ['XLA_FLAGS'] = '--xla_force_host_platform_device_count=4'\n"
    assert run_well(flag + __import__("textwrap").dedent(code)) == "equal\n"


# ---- transformations that make no sense ------------------------------------------------------------


def test_vmap_and_gradients_are_refused() -> None:
    with stepmill.make("Pendulum-v1", num_envs=3) as pool:
        handle, recv, send, step = pool.xla()
        zeros = jnp.zeros((3, 1))
        for call in (step, send):
            with pytest.raises(errors.UnsupportedError, match="vmap cannot make several calls of one"):
                jax.jit(jax.vmap(call, in_axes=(None, 0)))(handle, jnp.zeros((2, 3, 1)))
        with pytest.raises(errors.UnsupportedError, match="vmap"):
            jax.vmap(recv)(jnp.stack([handle, handle]))
        with pytest.raises(Exception, match="cannot be differentiated"):
            jax.grad(lambda action: step(handle, action)[1][1].sum())(zeros)
        assert pool.stats()["steps"] == 0
        # What a policy learns from goes around the pool.
        pool.reset()
        loss = jax.grad(lambda x: step(handle, jax.lax.stop_gradient(x * zeros))[1][1].sum() * x)
        assert np.isfinite(float(jax.jit(loss)(1.0)))


# ---- what a pool cannot do -------------------------------------------------------------------------


def test_pools_that_do_not_fit_a_program() -> None:
    with (
        stepmill.make(WildEnv, num_envs=2, backend="inline") as objects,
        stepmill.make("TemplatePlayers-v0", num_envs=2) as players,
    ):
        with pytest.raises(
            errors.UnsupportedError, match=r"xla: the observation space has a part that does not fit.*Text"
        ):
            objects.xla()
        with pytest.raises(errors.UnsupportedError, match="xla: envs of several players"):
            players.xla()
        assert objects.xla_error is None


# ---- beside everything else ------------------------------------------------------------------------


def test_states_between_programs() -> None:
    with make_kind("native", length=50) as pool:
        handle, _, _, step = pool.xla()
        pool.reset()
        run = jax.jit(lambda *given: jax.lax.scan(step, *given))
        actions = jnp.asarray(actions_of("native", 20))
        handle, _ = run(handle, actions)
        states = pool.save()
        handle, first = run(handle, actions)
        pool.restore(states)
        _, second = run(handle, actions)
        for one, other in zip(jax.tree_util.tree_leaves(first), jax.tree_util.tree_leaves(second), strict=True):
            np.testing.assert_array_equal(np.asarray(one), np.asarray(other))


def test_sessions_and_programs() -> None:
    with make_kind("native", info=False) as pool:
        handle, _, _, step = pool.xla()
        jitted = jax.jit(step)

        async def play() -> None:
            async with pool.session(seed=1) as env:
                await env.reset()
                with pytest.raises(Exception, match="UsageError: xla: 1 session of this pool is open"):
                    await_all(jitted(handle, jnp.zeros(3, jnp.float32)))
                assert isinstance(pool.xla_error, errors.UsageError)
                await env.step(np.float32(0))

        asyncio.run(play())
        await_all(jitted(handle, jnp.zeros(3, jnp.float32)))


def test_a_page_that_watches() -> None:
    with make_kind("native") as inside, make_kind("native") as outside:
        page = inside.watch(open_browser=False)
        handle, _, _, step = inside.xla()
        jitted = jax.jit(step)
        for action in actions_of("native", 30):
            assert_shows(numpy_of(jitted(handle, jnp.asarray(action))[1]), outside.step(action))
        page.close()


def test_the_recorded_order_is_that_of_the_program(tmp_path: Any) -> None:
    def play(replayed: bool) -> list[Any]:
        with stepmill.make("Probe-v0", num_envs=6, batch_size=2, num_threads=2, length=5) as pool:
            handle, recv, send, _ = pool.xla()
            (pool.replay_order if replayed else pool.record_order)(tmp_path / "order")
            pool.async_reset()

            def once(handle: Any, _: Any) -> Any:
                handle, (obs, *_, info) = recv(handle)
                return send(handle, jnp.zeros(2, jnp.float32), info["env_id"]), (obs, info["env_id"])

            _, found = await_all(jax.jit(lambda h: jax.lax.scan(once, h, length=40))(handle))
            return [np.asarray(one) for one in found]

    for one, other in zip(play(False), play(True), strict=True):
        np.testing.assert_array_equal(one, other)


def test_stats_count_what_programs_do() -> None:
    with make_kind("native", length=4) as pool:
        handle, _, _, step = pool.xla()
        pool.reset()
        await_all(jax.jit(lambda *given: jax.lax.scan(step, *given))(handle, jnp.zeros((10, 3), jnp.float32)))
        stats = pool.stats()
        assert (stats["steps"], stats["episodes"], stats["batches"]) == (3 + 30, 6, 11)
        assert stats["in_flight"] == 0 and pool.in_flight == []


def test_no_call_allocates() -> None:
    """The batches of a pool that only programs step are the same memory again and again."""
    with stepmill.make("CartPole-v1", num_envs=64) as pool:
        handle, _, _, step = pool.xla()
        pool.reset()
        run = jax.jit(lambda h: jax.lax.fori_loop(0, 1000, lambda _, h: step(h, jnp.zeros(64, jnp.int32))[0], h))
        await_all(run(handle))
        before = pool.stats()["memory_bytes"]
        await_all(run(handle))
        assert pool.stats()["memory_bytes"] == before
        assert pool.stats()["batches_held"] == 0
