"""Pictures of native envs are those of Gymnasium's, pixel for pixel, and the envs stay native."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import stepmill

pytestmark = pytest.mark.usefixtures("server")

N = 2
LIMIT = 3  # episodes end by it, at the latest
MAP = ["SFFHFF", "FSFFHF", "GFHSFF"]

# Every id that Gymnasium has too, and configurations that change the picture.
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    **{
        id: (id, {})
        for id in (
            "CartPole-v1",
            "Pendulum-v1",
            "MountainCar-v0",
            "MountainCarContinuous-v0",
            "Acrobot-v1",
            "FrozenLake-v1",
            "FrozenLake8x8-v1",
            "CliffWalking-v1",
            "CliffWalkingSlippery-v1",
            "Taxi-v4",
            "Blackjack-v1",
        )
    },
    "own lake": ("FrozenLake-v1", {"desc": MAP, "is_slippery": False}),
    "rain": ("Taxi-v4", {"is_rainy": True, "fickle_passenger": True}),
}
HAVE_TEXT = ("FrozenLake-v1", "own lake", "CliffWalking-v1", "Taxi-v4", "rain")
BACKENDS = ("thread", "inline", "process")


def make_pair(case: str, mode: str, backend: str, autoreset: AutoresetMode) -> tuple[Any, Any]:
    """A pool of native envs, and Gymnasium's vector env of the same envs; both reset."""
    id, config = CASES[case]
    pool = stepmill.make(
        id,
        num_envs=N,
        backend=backend,
        num_workers=1 if backend == "process" else None,
        autoreset=autoreset,
        max_episode_steps=LIMIT,
        render_mode=mode,
        **config,
    )
    assert pool.is_native
    assert pool.backend == backend
    build = lambda: gymnasium.make(id, render_mode=mode, max_episode_steps=LIMIT, **config)  # noqa: E731
    oracle = SyncVectorEnv([build] * N, autoreset_mode=autoreset)
    pool.reset(seed=7)
    oracle.reset(seed=7)
    return pool, oracle


def assert_same_pictures(pool: Any, oracle: Any, env_ids: list[int]) -> None:
    frames = pool.render(env_ids)
    assert isinstance(frames, tuple)
    for env_id, frame in zip(env_ids, frames, strict=True):
        expected = oracle.envs[env_id].render()
        assert type(frame) is type(expected)
        if isinstance(expected, str):
            assert frame == expected
        else:
            assert frame.dtype == expected.dtype
            assert np.array_equal(frame, expected), f"env {env_id}"


def play(pool: Any, oracle: Any, autoreset: AutoresetMode, steps: int) -> int:
    """Compares pictures at every second step or so of each env: Gymnasium's taxi turns only when it is drawn."""
    rng = np.random.default_rng(3)
    oracle.action_space.seed(5)
    ends = 0
    assert_same_pictures(pool, oracle, list(range(N)))
    for _ in range(steps):
        action = oracle.action_space.sample()
        pool.step(action)
        *_, terminated, truncated, _ = oracle.step(action)
        ends += int((terminated | truncated).sum())
        assert_same_pictures(pool, oracle, np.flatnonzero(rng.random(N) < 0.6).tolist())
        if autoreset is AutoresetMode.DISABLED and (terminated | truncated).any():
            options = {"reset_mask": terminated | truncated}
            pool.reset(options=dict(options))
            oracle.reset(options=dict(options))
    return ends


# ---- equal to Gymnasium's ------------------------------------------------------------------------


@pytest.mark.parametrize("autoreset", AutoresetMode)
@pytest.mark.parametrize("case", CASES)
def test_pictures_are_gymnasiums(case: str, autoreset: AutoresetMode) -> None:
    pool, oracle = make_pair(case, "rgb_array", "thread", autoreset)
    with pool:
        assert play(pool, oracle, autoreset, 6) >= N
    oracle.close()


@pytest.mark.parametrize("backend", ["inline", "process"])
@pytest.mark.parametrize("case", CASES)
def test_on_every_backend(case: str, backend: str) -> None:
    pool, oracle = make_pair(case, "rgb_array", backend, AutoresetMode.NEXT_STEP)
    with pool:
        play(pool, oracle, AutoresetMode.NEXT_STEP, 2)
    oracle.close()


@pytest.mark.parametrize("autoreset", AutoresetMode)
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("case", HAVE_TEXT)
def test_texts_too(case: str, backend: str, autoreset: AutoresetMode) -> None:
    pool, oracle = make_pair(case, "ansi", backend, autoreset)
    with pool:
        assert play(pool, oracle, autoreset, 9) >= N
    oracle.close()


def test_ids_that_gymnasium_lacks_are_drawn_by_the_class_of_their_family(make: Any) -> None:
    stepmill.register("ShortPole-v0", native="CartPole", max_episode_steps=3)
    short, usual = (make(id, render_mode="rgb_array", seed=4) for id in ("ShortPole-v0", "CartPole-v1"))
    old, new = (make(id, render_mode="ansi", seed=4) for id in ("Taxi-v3", "Taxi-v4"))
    for pool in (short, usual, old, new):
        pool.reset()
        pool.step([1])
    assert np.array_equal(short.render(), usual.render())
    assert old.render() == new.render()


def test_a_random_lake_is_drawn_as_it_is(make: Any) -> None:
    """It is known to the native env alone, so the texts say what to compare the pictures with."""
    texts = make("FrozenLake-v1", num_envs=2, map_name=None, render_mode="ansi")
    texts.reset()
    lakes = [_plain(text) for text in texts.render()]
    assert lakes[0] != lakes[1]
    for lake in lakes:
        assert (len(lake), lake[0][0], lake[-1][-1]) == (8, "S", "G")
    configs = [{"desc": lake} for lake in lakes]
    pool = make("FrozenLake-v1", num_envs=2, env_config=configs, render_mode="rgb_array")
    pool.reset()
    for frame, config in zip(pool.render(), configs, strict=True):
        oracle = gymnasium.make("FrozenLake-v1", render_mode="rgb_array", **config)
        oracle.reset()
        assert np.array_equal(frame, oracle.render())


def _plain(text: str) -> list[str]:
    return text.replace("\x1b[41m", "").replace("\x1b[0m", "").split()


def test_lakes_of_several_shapes_in_one_pool(make: Any) -> None:
    maps = [["SFFF", "FFFG"], ["SF", "FF", "FF", "FG"]]
    pool = make("FrozenLake-v1", num_envs=2, env_config=[{"desc": one} for one in maps], render_mode="rgb_array")
    pool.reset()
    assert [frame.shape for frame in pool.render()] == [(128, 256, 3), (256, 128, 3)]


@pytest.mark.parametrize("task", ["CartPole-v1", "FrozenLake-v1"])
def test_a_picture_without_a_display_is_drawn_without_a_word(task: str) -> None:
    """SDL would look for a display, and complain on stderr."""
    program = f"""
import os, stepmill
for name in ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER", "XDG_RUNTIME_DIR"):
    os.environ.pop(name, None)
with stepmill.make({task!r}, render_mode="rgb_array", backend="inline") as pool:
    pool.reset()
    assert pool.render()[0].any()
assert "SDL_VIDEODRIVER" not in os.environ
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
