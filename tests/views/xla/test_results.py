"""A pool inside of a program gives what it gives outside: bit for bit, in every view, kind and mode."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

jax = pytest.importorskip("jax")
jnp = jax.numpy

import stepmill  # noqa: E402
from support.own_env import SPEC, own_env  # noqa: E402
from support.probes import MODES, VIEWS  # noqa: E402
from support.programs import KINDS, actions_of, assert_shows, at, await_all, make_kind, on_jax  # noqa: E402

pytestmark = pytest.mark.usefixtures("server", "deadline")
STEPS = 30


@pytest.fixture(params=[False, True], ids=["32-bit", "64-bit"])
def x64(request: pytest.FixtureRequest) -> Iterator[bool]:
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", request.param)
    yield request.param
    jax.config.update("jax_enable_x64", before)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_scan_is_as_many_steps(kind: str, view: str, mode: str, x64: bool) -> None:
    actions = actions_of(kind, STEPS)
    # Nobody can reset inside of a program: without autoreset, an episode has to last.
    longer: dict[str, Any] = {}
    if mode == "disabled":
        if kind.startswith("arrays"):
            actions = actions_of(kind, 1)
        else:
            longer = {"length": STEPS + 1}
    with (
        make_kind(kind, view, autoreset=mode, **longer) as inside,
        make_kind(kind, view, autoreset=mode, **longer) as outside,
    ):
        handle, _, _, step = inside.xla()
        inside.reset()
        outside.reset()
        handle, results = await_all(jax.jit(lambda *given: jax.lax.scan(step, *given))(handle, on_jax(actions)))
        for t in range(len(jax.tree_util.tree_leaves(actions)[0])):
            assert_shows(at(results, t), outside.step(at(actions, t)))
        assert inside.stats()["episodes"] == outside.stats()["episodes"]


@pytest.mark.parametrize("kind", KINDS)
def test_send_then_recv_is_step(kind: str, x64: bool) -> None:
    actions = actions_of(kind, STEPS)
    with make_kind(kind) as inside, make_kind(kind) as outside:
        handle, recv, send, _ = inside.xla()

        def once(handle: Any, action: Any) -> Any:
            return recv(send(handle, action))

        _, results = jax.jit(lambda *given: jax.lax.scan(once, *given))(handle, on_jax(actions))  # the first one resets
        for t in range(STEPS):
            assert_shows(at(results, t), outside.step(at(actions, t)))


@pytest.mark.parametrize("kind", KINDS)
def test_ids_choose_the_rows(kind: str) -> None:
    ids = np.array([2, 0, 1], np.int32)
    with make_kind(kind) as inside, make_kind(kind) as outside:
        handle, _, _, step = inside.xla()
        inside.reset()
        outside.reset()
        jitted = jax.jit(step)
        for t in range(8):
            action = at(actions_of(kind, 8), t)
            handle, result = jitted(handle, on_jax(action), jnp.asarray(ids))
            assert_shows(jax.tree_util.tree_map(np.asarray, result), outside.step(action, ids))


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("kind", ["native", "native-process", "inline", "process"])
def test_async_pools_give_each_env_its_episodes(kind: str, view: str) -> None:
    """Whatever the order: an action depends on the env and its step alone."""
    num_envs, steps = 6, 60

    def fields(result: Any) -> Any:
        if view == "dm":
            inner = result.observation
            return inner.obs, result.reward, inner.env_id, inner.elapsed_step
        return result[0], result[1], result[-1]["env_id"], result[-1]["elapsed_step"]

    with (
        make_kind(kind, view, num_envs=num_envs, batch_size=2) as inside,
        make_kind(kind, view, num_envs=num_envs) as outside,
    ):
        handle, recv, send, _ = inside.xla()
        inside.async_reset()

        def once(handle: Any, _: Any) -> Any:
            handle, result = recv(handle)
            obs, reward, ids, elapsed = fields(result)
            return send(handle, (ids + elapsed).astype(jnp.float32) / 16, ids), (obs, reward, ids, elapsed)

        _, found = await_all(jax.jit(lambda handle: jax.lax.scan(once, handle, length=steps))(handle))
        inside.drain()
        rows: dict[int, list[Any]] = {env: [] for env in range(num_envs)}
        for t in range(steps):
            obs, reward, ids, elapsed = (np.asarray(one)[t] for one in found)
            assert len(set(ids.tolist())) == 2
            for row, env in enumerate(ids.tolist()):
                rows[env].append((obs[row].tobytes(), reward[row].tobytes(), int(elapsed[row])))
        assert sum(map(len, rows.values())) == 2 * steps
        first = outside.reset()
        start = first if view == "gym" else first[0] if view == "gymnasium" else first.observation.obs
        elapsed = np.zeros(num_envs, np.int32)
        expected: dict[int, list[Any]] = {
            env: [(start[env].astype(np.float32).tobytes(), np.float32(0).tobytes(), 0)] for env in range(num_envs)
        }
        for _ in range(max(map(len, rows.values()))):
            result = outside.step((np.arange(num_envs) + elapsed).astype(np.float32) / 16)
            obs, reward, _, elapsed = fields(result)
            for env in range(num_envs):
                seen = obs[env].astype(np.float32).tobytes(), np.float32(reward[env]).tobytes(), int(elapsed[env])
                expected[env].append(seen)
        for env, own in rows.items():
            assert own == expected[env][: len(own)]


def test_outside_and_inside_take_turns() -> None:
    with make_kind("native") as inside, make_kind("native") as outside:
        handle, _, _, step = inside.xla()
        jitted = jax.jit(step)
        actions = actions_of("native", 20)
        for t, action in enumerate(actions):
            if t % 3:
                result = jax.tree_util.tree_map(np.asarray, jitted(handle, jnp.asarray(action))[1])
                assert_shows(result, outside.step(action))
            else:
                np.testing.assert_array_equal(inside.step(action)[0], outside.step(action)[0])


def test_what_a_program_is_given_stays_as_it_was() -> None:
    """Results of earlier calls, and batches from outside, are never written to later."""
    with make_kind("native") as pool:
        handle, _, _, step = pool.xla()
        obs, _ = pool.reset()
        kept, copies = [obs], [obs.copy()]
        jitted = jax.jit(step)
        for action in actions_of("native", 50):
            handle, result = jitted(handle, jnp.asarray(action))
            kept.append(result[0])
            copies.append(np.array(result[0]))
        for one, copy in zip(kept, copies, strict=True):
            np.testing.assert_array_equal(np.asarray(one), copy)


@pytest.mark.parametrize(
    "dtype", ["bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "float32", "float16", "bfloat16"]
)
@pytest.mark.parametrize("env", ["CartPole-v1", "Pendulum-v1"])
def test_actions_of_every_type(env: str, dtype: str) -> None:
    with stepmill.make(env, num_envs=3) as inside, stepmill.make(env, num_envs=3) as outside:
        handle, _, _, step = inside.xla()
        shape = (3,) if env == "CartPole-v1" else (3, 1)
        inside.reset()
        outside.reset()
        for number in (0, 1):
            _, result = jax.jit(step)(handle, jnp.full(shape, number, dtype))
            assert_shows(jax.tree_util.tree_map(np.asarray, result), outside.step(np.full(shape, number)))


@pytest.mark.parametrize("num_envs", [1, 2, 1000])
def test_pools_of_many_sizes(num_envs: int) -> None:
    with (
        stepmill.make("CartPole-v1", num_envs=num_envs) as inside,
        stepmill.make("CartPole-v1", num_envs=num_envs) as outside,
    ):
        handle, _, _, step = inside.xla()
        inside.reset()
        outside.reset()
        actions = np.random.default_rng(0).integers(0, 2, (100, num_envs))
        _, results = jax.jit(lambda *given: jax.lax.scan(step, *given))(handle, jnp.asarray(actions))
        for t, action in enumerate(actions):
            assert_shows(at(results, t), outside.step(action))


def test_envs_that_say_of_themselves_that_something_went_wrong(tmp_path: Path) -> None:
    task = own_env(
        tmp_path / "frank.h",
        "Frank",
        spec=SPEC + 'spec.info = {box<bool>({}, {0}, {1}, "abnormal")};',
        step="x_ = double(action.index()); return {1.0, false, false};",
        observe="*row.observation<double>() = x_; *row.info<bool>(0) = x_ == 1;",
    )
    with stepmill.make(task, num_envs=3) as pool:
        handle, _, _, step = pool.xla()
        pool.reset()
        _, result = jax.jit(step)(handle, jnp.array([0, 1, 2]))
        assert result[4]["abnormal"].tolist() == [False, True, False]
