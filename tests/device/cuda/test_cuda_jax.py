"""``output="jax"`` on a GPU: arrays of JAX over the pool's memory. Needs jax: `make test-jax`."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from stepmill import errors
from support.cuda_pools import HostGpu
from support.host_kernels import MODES

jax = pytest.importorskip("jax")

N = 4


@pytest.fixture
def make_pool(gpu: HostGpu, make: Any) -> Callable[..., Any]:
    def made(backend: str, task: str = "Taxi-v3", view: str = "gymnasium", **arguments: Any) -> Any:
        return make(task, view, **{"num_envs": N, "seed": 5, "backend": backend, "output": "jax", **arguments})

    return made


def as_numpy(result: Any) -> Any:
    return jax.tree.map(np.asarray, result)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("task", ["Taxi-v3", "Blackjack-v1", "Moving-v0"])
def test_episodes_are_those_of_threads(make_pool: Callable[..., Any], task: str, mode: str) -> None:
    ours = make_pool("cuda", task, autoreset=mode, max_episode_steps=7)
    theirs = make_pool("thread", task, autoreset=mode, max_episode_steps=7, output="numpy")
    theirs.action_space.seed(1)
    shown, expected = ours.reset(), theirs.reset()
    for _ in range(40):
        for one, other in zip(jax.tree.leaves(shown[0]), jax.tree.leaves(expected[0]), strict=True):
            assert isinstance(one, jax.Array)
            np.testing.assert_allclose(np.asarray(one), other, rtol=1e-6)
        action = theirs.action_space.sample()
        on_device = jax.tree.map(jax.numpy.asarray, action)
        shown, expected = ours.step(on_device), theirs.step(action)
        for one, other in zip(shown[1:4], expected[1:4], strict=True):
            np.testing.assert_allclose(np.asarray(one), other, rtol=1e-6)
        over = expected[2] | expected[3]
        np.testing.assert_array_equal(np.asarray(shown[4]["_episode_return"]), over)
        if mode == "disabled" and over.any():
            shown, expected = (pool.reset(options={"reset_mask": over}) for pool in (ours, theirs))


@pytest.mark.parametrize("view", ["gym", "dm"])
def test_other_views(make_pool: Callable[..., Any], view: str) -> None:
    ours, theirs = (make_pool(backend, view=view) for backend in ("cuda", "thread"))
    ours.reset(), theirs.reset()
    for action in np.random.default_rng(0).integers(0, 6, (20, N)):
        got, expected = ours.step(action), theirs.step(action)
        reward = (lambda one: one.reward) if view == "dm" else (lambda one: one[1])
        assert isinstance(reward(got), jax.Array)
        np.testing.assert_array_equal(np.asarray(reward(got)), np.asarray(reward(expected)))


def test_what_was_given_out_stays_as_it_was(make_pool: Callable[..., Any]) -> None:
    pool = make_pool("cuda")
    kept = [pool.reset()[0]]
    copies = [np.array(kept[0])]
    for action in np.random.default_rng(0).integers(0, 6, (30, N)):
        kept.append(pool.step(action)[0])
        copies.append(np.array(kept[-1]))
    pool.close()
    gc.collect()
    for one, copy in zip(kept, copies, strict=True):
        np.testing.assert_array_equal(np.asarray(one), copy)


def test_subsets_states_and_bad_actions(make_pool: Callable[..., Any]) -> None:
    pool, threads = make_pool("cuda"), make_pool("thread", output="numpy")
    pool.reset(), threads.reset()
    for one in (pool, threads):
        one.step(np.array([1, 2]), np.array([3, 0]))
    states = pool.save()
    first = as_numpy(pool.step(np.zeros(N, int)))
    np.testing.assert_array_equal(first[0], threads.step(np.zeros(N, int))[0])
    pool.restore(states)
    np.testing.assert_array_equal(np.asarray(pool.step(np.zeros(N, int))[0]), first[0])
    with pytest.raises(errors.ActionError):
        pool.step(jax.numpy.full(N, 6))
    with pytest.raises(errors.UnsupportedError, match="graph_step: CUDA graphs of torch record it"):
        pool.graph_step(jax.numpy.zeros(N, int))
