"""dm_control's suite, the oracle of our envs; tests that import this are skipped where it does not work."""

from __future__ import annotations

import warnings
from typing import Any

import dm_env
import numpy as np
import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # GLFW misses a display
    suite = pytest.importorskip(
        "dm_control.suite", reason="dm_control is not installed: make test-mujoco3", exc_type=ImportError
    )

try:
    suite.load("cartpole", "balance")
except AttributeError as error:
    reason = f"dm_control does not fit the installed mujoco ({error}): make test-mujoco3"
    pytest.skip(reason, allow_module_level=True)


def oracle(name: str, seed: int, **kwargs: Any) -> Any:
    """The task that ``name`` is short for, seeded as dm_control does it."""
    domain, _, task = name.partition("-")
    task_kwargs = {**kwargs.pop("task_kwargs", {}), "random": seed}
    return suite.load(domain, task, task_kwargs=task_kwargs, **kwargs)


def actions(env: Any, count: int, seed: int = 0) -> np.ndarray:
    """Some actions within the bounds."""
    spec = env.action_spec()
    return np.random.default_rng(seed).uniform(spec.minimum, spec.maximum, (count, *spec.shape))


def check_equal(timestep: dm_env.TimeStep, obs: Any, reward: Any, terminated: Any, truncated: Any) -> None:
    """Whether a row of a pool is this timestep, bit for bit."""
    assert obs.keys() == timestep.observation.keys()
    for key, value in timestep.observation.items():
        assert obs[key].dtype == value.dtype
        assert np.array_equal(obs[key], value), key
    assert reward == (timestep.reward or 0.0)
    assert terminated == (timestep.last() and timestep.discount == 0.0)
    assert truncated == (timestep.last() and timestep.discount != 0.0)


def row(obs: dict[str, np.ndarray], index: int) -> dict[str, np.ndarray]:
    """The observation of one env."""
    return {key: value[index] for key, value in obs.items()}
