"""Envs of gymnasium-robotics, by the ids that it registers: the episodes of ``gymnasium.make``."""

from __future__ import annotations

import warnings
from typing import Any

import gymnasium
import numpy as np
import pytest

import stepmill
from stepmill.errors import MissingPackageError

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    pytest.importorskip("gymnasium_robotics", reason="gymnasium-robotics is not installed", exc_type=ImportError)


def same(seen: Any, wanted: Any) -> bool:
    if isinstance(wanted, dict):
        return seen.keys() == wanted.keys() and all(same(seen[key], wanted[key]) for key in wanted)
    return np.array_equal(seen[0], wanted)


def official(id: str, **config: Any) -> gymnasium.Env[Any, Any]:
    try:
        return gymnasium.make(id, disable_env_checker=True, **config)
    except (AssertionError, AttributeError):
        pytest.skip("gymnasium-robotics does not fit the installed mujoco: make test-mujoco3")


@pytest.mark.parametrize(
    ("id", "backend"),
    [
        ("PointMaze_UMaze-v3", "inline"),
        ("AntMaze_UMaze-v5", "process"),
        ("AdroitHandPen-v1", "inline"),
        ("FetchReach-v4", "process"),
        ("HandReach-v3", "inline"),
        ("FrankaKitchen-v1", "inline"),
    ],
)
def test_episodes_are_those_of_gymnasium(make: Any, id: str, backend: str) -> None:
    twin = official(id, max_episode_steps=6)
    pool = make(id, seed=3, backend=backend, max_episode_steps=6)
    rng = np.random.default_rng(1)
    for seed in (3, None, 8):
        seen, wanted = pool.reset(seed=seed)[0], twin.reset(seed=seed)[0]
        assert same(seen, wanted)
        truncated = False
        while not truncated:
            action = rng.uniform(-1.0, 1.0, twin.action_space.shape).astype(np.float32)
            seen, *rest, _ = pool.step(action[None])
            wanted, reward, terminated, truncated, _ = twin.step(action)
            assert same(seen, wanted)
            assert [one[0] for one in rest] == [reward, terminated, truncated]
            if terminated:
                break
    twin.close()


def test_versions_that_do_not_fit_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any, **__: Any) -> Any:
        raise AssertionError

    stepmill.make_spec("PointMaze_UMaze-v3")
    monkeypatch.setattr(gymnasium, "make", fails)
    with pytest.raises(
        MissingPackageError, match=r"PointMaze_UMaze-v3 failed in gymnasium-robotics \d.* with mujoco \d.*\[robotics"
    ):
        stepmill.make("PointMaze_UMaze-v3", backend="inline")
