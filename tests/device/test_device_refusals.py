"""What a pool on a device cannot do is refused, each with a sentence, and nothing has changed."""

from __future__ import annotations

import dataclasses
import io
from typing import Any

import numpy as np
import pytest

jax = pytest.importorskip("jax")

import stepmill  # noqa: E402
from stepmill import errors  # noqa: E402
from stepmill.managers import BaseEnvManager  # noqa: E402
from support.jax_worlds import counting_world  # noqa: E402

WORLD = counting_world()
N = 3

ARGUMENTS = {
    "batch_size": ({"batch_size": 2}, "batch_size: all envs move together"),
    "step_timeout": ({"step_timeout": 1.0}, "step_timeout: there are no worker processes"),
    "num_workers": ({"num_workers": 2}, "num_workers: there are no worker processes"),
    "python": ({"python": "/usr/bin/python3"}, "python"),
    "on_error": ({"on_error": "restart"}, "on_error: a compiled program raises nothing"),
    "max_num_players": ({"max_num_players": 2}, "max_num_players: each has one player"),
    "thread": ({"backend": "thread"}, "backend='thread': Counting is a JAX world"),
    "process": ({"backend": "process"}, "backend='process': Counting is a JAX world"),
    "inline": ({"backend": "inline"}, "backend='inline': Counting is a JAX world"),
    "env_config": ({"env_config": [{}, {"length": 3}, {}]}, "one program with one configuration"),
    "no GPU": ({"device": "cuda"}, r"pip install 'jax\[cuda13\]'"),
}


@pytest.mark.parametrize("name", ARGUMENTS)
def test_arguments_that_are_not_for_such_pools(name: str) -> None:
    arguments, words = ARGUMENTS[name]
    if name == "no GPU" and any(one.platform == "gpu" for one in jax.devices()):
        pytest.skip("there is one")
    with pytest.raises(errors.UnsupportedError, match=words):
        stepmill.make(WORLD, num_envs=N, **arguments)


def test_a_time_limit_of_nothing() -> None:
    with pytest.raises(errors.ConfigError, match="Counting: its time limit: expected at least 1 step, got 0"):
        stepmill.make(dataclasses.replace(WORLD, max_episode_steps=0))


def test_tasks_that_are_not_the_same() -> None:
    for tasks in ([WORLD, counting_world(2)], [WORLD, "CartPole-v1"], ["CartPole-v1", WORLD]):
        with pytest.raises(errors.UnsupportedError, match="expected the same task for all of them"):
            stepmill.make(tasks)
    with pytest.raises(errors.UnsupportedError, match="CartPole-v1 is not one"):
        stepmill.make("CartPole-v1", backend="jax")
    with pytest.raises(errors.ConfigError, match="lenght"):
        stepmill.make(WORLD, lenght=3)
    with pytest.raises(errors.ConfigError, match="render_mode: expected None or 'rgb_array' for Counting, got 'human'"):
        stepmill.make(WORLD, render_mode="human")
    with stepmill.make([WORLD, WORLD]) as pool:
        assert pool.num_envs == 2


CALLS = {
    "call": lambda pool: pool.call("reset"),
    "apply": lambda pool: pool.apply(print),
    "set_attr": lambda pool: pool.set_attr("length", 3),
    "set_model": lambda pool: pool.set_model(None, {}),
    "get_model": lambda pool: pool.get_model(None, []),
    "np_random": lambda pool: pool.np_random,
    "session": lambda pool: pool.session(),
    "watch": lambda pool: pool.watch(),
    "xla": lambda pool: pool.xla(),
    "render": lambda pool: pool.render(),
    "save": lambda pool: pool.save(by="fork"),
    "checkpoint": lambda pool: pool.checkpoint(io.BytesIO(), by="pickle"),
    "clone_limit": lambda pool: pool.clone_limit,
}


@pytest.mark.parametrize("name", CALLS)
def test_calls_that_are_not_for_such_pools(fresh_pool: Any, name: str) -> None:
    pool = fresh_pool(WORLD, num_envs=N)
    if not hasattr(type(pool), name):
        pytest.skip("no pool has it")
    pool.reset()
    with pytest.raises(errors.UnsupportedError, match=f"^{name}: "):
        CALLS[name](pool)
    assert pool.step(np.zeros(N, int))[4]["elapsed_step"].tolist() == [1] * N


def test_managers_are_refused() -> None:
    with pytest.raises(errors.StepmillError):
        BaseEnvManager([WORLD] * 2).launch()


def test_what_views_ask_is_answered(fresh_pool: Any) -> None:
    pool = fresh_pool(WORLD, num_envs=N, seed=5, render_mode="rgb_array", max_episode_steps=9)
    assert pool.np_random_seed == (5, 6, 7)
    pool.reset(seed=[1, None, 9])
    assert pool.np_random_seed == (1, 6, 9)
    assert pool.get_attr("max_episode_steps") == (9, 9, 9)
    assert (pool.backend, pool.device, pool.is_async, pool.is_native, len(pool)) == ("jax", "cpu", False, True, N)
    assert repr(pool) == "GymnasiumPool(Counting, num_envs=3, backend='jax')"
    pool.step([1, 1], [0, 2])
    pictures = pool.render()
    assert [int(one[0, 0, 0]) for one in pictures] == [1, 0, 1]
    assert len(pool.render([2])) == 1
    stats = pool.stats()
    assert (stats["steps"], stats["batches"], stats["episodes"], stats["in_flight"]) == (5, 2, 0, 0)
    with pytest.raises(errors.UnknownAttributeError, match="gravity"):
        pool.get_attr("gravity")


def test_checkpoints_go_on_with_what_was_in_flight(fresh_pool: Any) -> None:
    pool = fresh_pool(WORLD, num_envs=N, seed=5, autoreset="same_step")
    pool.reset()
    pool.step([1, 3, 0])
    pool.send([1, 2], [2, 0])
    file = io.BytesIO()
    pool.checkpoint(file)
    file.seek(0)
    with stepmill.resume(file, task=WORLD) as again:
        assert again.in_flight == pool.in_flight == [0, 2]
        for call in (lambda one: one.recv(), lambda one: one.step([3, 0, 0]), lambda one: one.reset()):
            got, expected = call(again), call(pool)
            assert got[-1]["env_id"].tolist() == expected[-1]["env_id"].tolist()
            np.testing.assert_array_equal(got[0], expected[0])
        assert again.stats()["steps"] == pool.stats()["steps"]
    file.seek(0)
    with pytest.raises(errors.StateError):
        stepmill.resume(file, task=counting_world(3), autoreset="next_step")


@pytest.mark.parametrize("here", ["next_step", "same_step", "disabled"])
def test_states_of_pools_with_another_autoreset(fresh_pool: Any, here: str) -> None:
    """They go on: what decides so is the same, and what is told of ends is not shown by a restore."""
    for there in ("next_step", "same_step", "disabled"):
        pool = fresh_pool(WORLD, num_envs=N, autoreset=there)
        pool.reset()
        last = pool.step([1, 2, 0])
        states = pool.save()
        other = fresh_pool(WORLD, num_envs=N, autoreset=here)
        obs, info = other.restore(states)
        np.testing.assert_array_equal(obs, last[0])
        assert info["elapsed_step"].tolist() == last[4]["elapsed_step"].tolist()
        assert "final_obs" not in info
        assert other.step([0, 0, 0])[4]["elapsed_step"].tolist() == (last[4]["elapsed_step"] + 1).tolist()
        np.testing.assert_array_equal(other.restore(states[1])[0], np.stack([last[0][1]] * N))


def test_states_that_do_not_fit_are_refused(fresh_pool: Any) -> None:
    pool = fresh_pool(WORLD, num_envs=N)
    pool.reset()
    with stepmill.make("CartPole-v1", num_envs=N) as other:
        other.reset()
        foreign = other.save()
        with pytest.raises(errors.InputError):
            other.restore(pool.save())
    for states in (foreign, foreign[0], 3, None, [], [pool.save()], pool.save([0, 1])):
        with pytest.raises(errors.InputError):
            pool.restore(states)
    assert pool.step(np.zeros(N, int))[4]["elapsed_step"].tolist() == [1] * N
