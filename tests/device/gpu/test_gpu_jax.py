"""``output="jax"`` on a real GPU: JAX reads results in streams of its own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import stepmill

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
jax = pytest.importorskip("jax")

pytestmark = pytest.mark.usefixtures("one_cache")

NUM_ENVS = 4000
TASK = "Taxi-v3"  # without sines: equal bit for bit


@pytest.fixture(scope="module", autouse=True)
def a_gpu_of_jax() -> None:
    try:
        jax.local_devices(backend="cuda")
    except RuntimeError as error:
        pytest.skip(f"no JAX for GPUs: {error}")


@pytest.fixture
def pool() -> Iterator[Any]:
    with stepmill.make(TASK, num_envs=NUM_ENVS, seed=1, backend="cuda", output="jax") as made:
        made.reset()
        yield made


@pytest.fixture(scope="module")
def actions() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 6, (60, NUM_ENVS))


@pytest.fixture(scope="module")
def expected(actions: np.ndarray) -> list[np.ndarray]:
    """The observations of threads."""
    with stepmill.make(TASK, num_envs=NUM_ENVS, seed=1, backend="thread") as threads:
        threads.reset()
        return [threads.step(action)[0] for action in actions]


def test_arrays_are_on_the_gpu_and_stay_as_they_are(pool: Any, actions: Any, expected: Any) -> None:
    kept = [pool.step(jax.numpy.asarray(action))[0] for action in actions]
    assert {device.platform for one in kept for device in one.devices()} == {"gpu"}
    pool.close()
    for one, other in zip(kept, expected, strict=True):
        np.testing.assert_array_equal(np.asarray(one), other)


def test_a_program_that_is_slow_reads_what_it_was_given(pool: Any, actions: Any, expected: Any) -> None:
    """The pool steps on, and nobody holds the arrays any more, while JAX still works with them."""

    @jax.jit
    def slowly(observation: Any, matrix: Any) -> Any:
        for _ in range(20):
            matrix = (matrix @ matrix) / matrix.shape[0]
        return observation + (matrix[0, 0] * 0).astype(observation.dtype)

    matrix = jax.device_put(np.ones((2048, 2048), np.float32), jax.local_devices(backend="cuda")[0])
    slowly(pool.step(actions[0])[0], matrix)
    got = [slowly(pool.step(action)[0], matrix) for action in actions[1:]]
    for one, other in zip(got, expected[1:], strict=True):
        np.testing.assert_array_equal(np.asarray(one), other)
