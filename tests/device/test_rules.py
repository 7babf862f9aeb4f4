"""Pools and ``functional()`` beside a plain program of JAX, which has none of our layers: bit for bit on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402

import stepmill  # noqa: E402
from stepmill import errors  # noqa: E402
from stepmill.sources.jax_world import JaxWorld  # noqa: E402
from support.jax_worlds import counting_world  # noqa: E402
from support.subprocesses import run_well  # noqa: E402

LIMIT = 4
STEPS = 14
WORLDS: dict[str, Callable[[], Any]] = {
    "cheap": lambda: counting_world(3),
    "in parts": lambda: counting_world(3, cheap=False),
    "cartpole": lambda: "gymnax:CartPole-v1",
}


def world_of(name: str) -> JaxWorld:
    task = WORLDS[name]()
    if isinstance(task, JaxWorld):
        return task
    pytest.importorskip("gymnax")
    from stepmill.zoo.worlds.gymnax import world_of as gymnax_world

    return gymnax_world(task.partition(":")[2], {})


def plain(world: JaxWorld, mode: str, seeds: list[int], actions: np.ndarray) -> list[Any]:
    """What the docs promise, as a user would write it: (observation, reward, terminated, truncated) of every step."""
    begin, move = jax.jit(jax.vmap(world.reset)), jax.jit(jax.vmap(world.step))
    split = jax.jit(jax.vmap(lambda key: jax.random.split(key, 3 if mode == "same_step" else 2)))
    keys = jnp.stack([jax.random.PRNGKey(seed) for seed in seeds])
    made = split(keys)
    keys, begun = made[:, 0], begin(made[:, -1])
    state, over, elapsed = begun.state, np.zeros(len(seeds), bool), np.zeros(len(seeds), int)
    out = [(begun.observation, np.zeros(len(seeds), np.float32), over, over)]
    for action in actions:
        made = split(keys)
        keys, begun = made[:, 0], begin(made[:, -1])
        moved = move(made[:, 1], state, jnp.asarray(action))
        elapsed = np.where(over, 0, elapsed + 1)
        terminated = np.asarray(moved.terminated) & ~over
        truncated = (np.asarray(moved.truncated) & ~over) | (elapsed == LIMIT)
        ended = terminated | truncated
        begins = ended if mode == "same_step" else over
        reward = np.where(over, 0, moved.reward).astype(np.float32)
        pick = jax.tree.map(
            lambda new, old, begins=begins: jnp.where(begins.reshape(-1, *[1] * (new.ndim - 1)), new, old),
            (begun.state, begun.observation),
            (moved.state, moved.observation),
        )
        state, observation = pick
        out.append((observation, reward, terminated, truncated))
        elapsed = np.where(begins, 0, elapsed)
        over = ended if mode == "next_step" else np.zeros_like(ended)
    return out


def actions_for(world: JaxWorld, count: int) -> np.ndarray:
    return np.random.default_rng(3).integers(0, world.action_space.n, (STEPS, count))


@pytest.mark.parametrize("mode", ["next_step", "same_step"])
@pytest.mark.parametrize("name", WORLDS)
def test_pools_and_functions_do_what_a_plain_program_does(name: str, mode: str) -> None:
    world, count = world_of(name), 20  # more than are reset at a time
    actions = actions_for(world, count)
    expected = plain(world, mode, list(range(5, 5 + count)), actions)
    with stepmill.make(world, num_envs=count, autoreset=mode, max_episode_steps=LIMIT, output="jax", seed=5) as pool:
        got: list[Any] = [(pool.reset()[0], *expected[0][1:])]
        got += [pool.step(jnp.asarray(action))[:4] for action in actions]
        reset, step = pool.functional()

        @jax.jit
        def in_one_program(actions: Any) -> Any:
            envs, first = reset()
            _, rest = jax.lax.scan(step, envs, actions)
            return first.observation, rest

        observation, rest = in_one_program(jnp.asarray(actions))
    for i, (one, other) in enumerate(zip(got, expected, strict=True)):
        for a, b in zip(one, other, strict=True):
            np.testing.assert_array_equal(np.asarray(a), np.asarray(b), err_msg=str(i))
    np.testing.assert_array_equal(observation, expected[0][0])
    for i in range(STEPS):
        for a, b in zip(rest[:4], expected[i + 1], strict=True):
            np.testing.assert_array_equal(a[i], np.asarray(b), err_msg=str(i))
    assert any(one[2].any() for one in expected) or name == "cartpole"
    assert any(one[3].any() for one in expected)


def test_an_env_depends_on_its_seed_and_not_on_the_others() -> None:
    actions = np.random.default_rng(0).integers(0, 3, (STEPS, 20))
    world = counting_world(cheap=False)
    with (
        stepmill.make(world, num_envs=20, seed=30) as many,
        stepmill.make(world, num_envs=2, seed=[47, 33]) as few,
        stepmill.make(world, num_envs=1, seed=None) as drawn,
        stepmill.make(world, num_envs=1, seed=drawn.config["seed"]) as again,
    ):
        for pool in (many, few):
            pool.reset()
        for action in actions:
            all_of_them, some = many.step(action), few.step(action[[17, 3]])
            for a, b in zip(all_of_them[:4], some[:4], strict=True):
                np.testing.assert_array_equal(a[[17, 3]], b)
        assert drawn.reset()[0].tolist() == again.reset()[0].tolist()


@pytest.fixture(scope="module")
def functions() -> Any:
    with stepmill.make(counting_world(), num_envs=3, autoreset="same_step", seed=8) as pool:
        yield pool, *pool.functional()


def test_functions_count_as_the_pool_does_and_leave_it_alone(functions: Any) -> None:
    pool, reset, step = functions
    before = pool.reset(seed=8)
    envs, result = reset()
    np.testing.assert_array_equal(result.observation, before[0])
    for i in range(12):
        action = np.array([i % 3, 3 if i == 4 else 0, 1])
        _, reward, terminated, truncated, info = pool.step(action)
        envs, result = step(envs, jnp.asarray(action))
        np.testing.assert_array_equal(result.reward, reward)
        np.testing.assert_array_equal(result.terminated, terminated)
        np.testing.assert_array_equal(result.truncated, truncated)
        for key in ("elapsed_step", "episode_return", "episode_length", "noise"):
            has = np.asarray(result.info.get(f"_{key}", np.ones(3, bool)))
            if key in info:
                np.testing.assert_array_equal(np.asarray(result.info[key])[has], info[key][has])
            else:
                assert not has.any()
    assert pool.stats()["steps"] >= 12


def test_functions_take_seeds_as_reset_does(functions: Any) -> None:
    pool, reset, _ = functions
    for seed in (3, [5, 6, 9], 2**32 + 7):
        np.testing.assert_array_equal(reset(seed)[1].observation, pool.reset(seed=seed)[0])
    last = jnp.uint32(2**32 - 2)  # the last of three needs more than 32 bits
    np.testing.assert_array_equal(jax.jit(reset)(last)[1].observation, pool.reset(seed=2**32 - 2)[0])
    each = jnp.array([4, 1, 7])
    np.testing.assert_array_equal(jax.jit(reset)(each)[1].observation, pool.reset(seed=[4, 1, 7])[0])
    np.testing.assert_array_equal(reset(each)[1].observation, pool.reset(seed=[4, 1, 7])[0])
    for seed in (-1, [1, 2], jnp.zeros(2, int), jnp.float32(1.5), jnp.int32(-1), "7"):
        with pytest.raises(errors.ConfigError, match="seed: expected"):
            reset(seed)


def test_functions_for_several_seeds_at_a_time(functions: Any) -> None:
    _, reset, step = functions

    def play(seed: Any) -> Any:
        envs, _ = reset(seed)
        return jax.lax.scan(lambda envs, action: step(envs, action), envs, jnp.ones((7, 3), int))[1].observation

    together = jax.jit(jax.vmap(play))(jnp.array([1, 50], jnp.uint32))
    for i, seed in enumerate((1, 50)):
        np.testing.assert_array_equal(together[i], jax.jit(play)(jnp.uint32(seed)))


def test_envs_of_functions_can_be_kept_and_gone_on_from(functions: Any) -> None:
    pool, reset, step = functions
    envs, _ = reset()
    first = step(envs, jnp.ones(3, int))[1]
    pool.step(np.zeros(3, int))
    np.testing.assert_array_equal(step(envs, jnp.ones(3, int))[1].observation, first.observation)
    given_away = jax.jit(step, donate_argnums=0)
    np.testing.assert_array_equal(given_away(envs, jnp.ones(3, int))[1].observation, first.observation)
    np.testing.assert_array_equal(reset()[1].observation, pool.reset(seed=8)[0])  # its own seeds are still there


def test_functions_outlive_their_pool() -> None:
    with stepmill.make(counting_world(), num_envs=2) as pool:
        reset, step = pool.functional()
        expected = pool.reset()[0]
    envs, result = reset()
    np.testing.assert_array_equal(result.observation, expected)
    assert step(envs, jnp.zeros(2, int))[1].info["elapsed_step"].tolist() == [1, 1]


def test_nobody_resets_where_autoreset_is_disabled() -> None:
    with (
        stepmill.make(counting_world(), autoreset="disabled") as pool,
        pytest.raises(errors.UnsupportedError, match="functional: with autoreset='disabled'"),
    ):
        pool.functional()
    with stepmill.make("CartPole-v1") as native, pytest.raises(errors.UnsupportedError, match="is not a JAX world"):
        native.functional()


ELSEWHERE = """
import jax, jax.numpy as jnp, numpy as np
import stepmill
from support.jax_worlds import counting_world

assert len(jax.devices()) == 2
here = jax.devices()[1]
world = counting_world()
actions = np.random.default_rng(0).integers(0, 3, (12, 3))
with stepmill.make(world, num_envs=3) as pool, jax.default_device(here):
    with stepmill.make(world, num_envs=3, output="jax") as other:
        results = []
        for one in (pool, other):
            one.reset()
            moves = [one.step(a if one is pool else jnp.asarray(a)) for a in actions]
            results.append([np.asarray(m[0]).tolist() + np.asarray(m[1]).tolist() for m in moves])
        assert results[0] == results[1]
        assert moves[0][0].dtype == jnp.float32
        assert moves[0][0].devices() == {jax.devices("cpu")[0]}, moves[0][0].devices()
        other.restore(pool.save())
        other.check()
        reset, step = other.functional()
        envs, first = jax.jit(reset)()
        envs, second = jax.jit(step)(envs, jnp.asarray(actions[0]))
        assert first.observation.tolist() == pool.reset(seed=42)[0].tolist()
        assert second.observation.tolist() == pool.step(actions[0])[0].tolist()
    for seed in (2**40 + 3, [2**50, 4, 2**40]):
        given = jnp.asarray(seed)
        for function in (reset, jax.jit(reset)):
            assert function(given)[1].observation.tolist() == pool.reset(seed=seed)[0].tolist()
print(jnp.zeros(1, int).dtype, second.reward.dtype, pool.observation_space.dtype)
"""


def test_on_two_devices_and_with_64_bits() -> None:
    code = "import os\nos.environ['XLA_FLAGS'] = '--xla_force_host_platform_device_count=2'\n"
    code += "os.environ['JAX_ENABLE_X64'] = '1'\n" + ELSEWHERE
    assert run_well(code).split() == ["int64", "float32", "float32"]
