"""SB3's wrappers of vector envs over a pool: with the results that they have over SB3's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from stable_baselines3.common.env_util import make_vec_env as sb3_make_vec_env
from stable_baselines3.common.vec_env import (
    VecCheckNan,
    VecExtractDictObs,
    VecFrameStack,
    VecMonitor,
    VecNormalize,
    VecTransposeImage,
    VecVideoRecorder,
)

from stepmill.interop.sb3 import make_vec_env
from support.envs.talkative import TalkativeEnv
from support.moviepy import pretend_moviepy

N = 3


class Images(gymnasium.Env[Any, Any]):
    """Its spaces are made anew for each env: ``VecNormalize`` changes those of the envs in ``DummyVecEnv``."""

    render_mode = "rgb_array"

    def __init__(self) -> None:
        self.observation_space = self.space_of_observations()
        self.action_space = spaces.Discrete(2)

    @staticmethod
    def space_of_observations() -> spaces.Space[Any]:
        return spaces.Box(0, 255, (12, 10, 3), np.uint8)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.t = 0
        return self._observe(), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.t += 1
        return self._observe(), float(action), self.t == 3, False, {}

    def _observe(self) -> np.ndarray:
        return self.np_random.integers(0, 256, (12, 10, 3), np.uint8)


class DictImages(Images):
    @staticmethod
    def space_of_observations() -> spaces.Space[Any]:
        return spaces.Dict(eye=Images.space_of_observations(), one=spaces.Box(0, 1, (1,), np.float32))

    def _observe(self) -> Any:
        return {"eye": super()._observe(), "one": np.ones(1, np.float32)}


def plain(observation: Any) -> Any:
    return dict(observation) if isinstance(observation, dict) else observation


def run(vec_env: Any) -> list[Any]:
    """Everything that some steps return, as text: wrappers reuse and change their arrays."""
    shown = [repr(plain(vec_env.reset()))]
    for step in range(8):
        observation, rewards, dones, infos = vec_env.step(np.full(N, step % 2))
        ends = [(info.get("terminal_observation"), info["TimeLimit.truncated"]) for info in infos]
        shown.append(repr((plain(observation), rewards, dones, ends)))
    vec_env.close()
    return shown


@pytest.mark.parametrize(
    ("wrap", "env"),
    [
        (VecNormalize, "CartPole-v1"),
        (VecCheckNan, "CartPole-v1"),
        (lambda venv: VecFrameStack(venv, 4), "CartPole-v1"),
        (lambda venv: VecFrameStack(VecTransposeImage(venv), 4), Images),
        (lambda venv: VecTransposeImage(VecFrameStack(venv, 2)), DictImages),
        (lambda venv: VecNormalize(venv, norm_obs_keys=["eye"]), DictImages),
        (lambda venv: VecExtractDictObs(venv, "eye"), DictImages),
    ],
    ids=["normalize", "check_nan", "stack", "transpose_stack", "dict_stack_transpose", "dict_normalize", "extract"],
)
def test_results_are_those_over_sb3s_own(wrap: Any, env: Any) -> None:
    settings = {} if isinstance(env, str) else {"backend": "inline"}
    assert run(wrap(make_vec_env(env, N, seed=4, **settings))) == run(wrap(sb3_make_vec_env(env, N, seed=4)))


def test_wrappers_do_not_change_the_pools_spaces() -> None:
    """``VecNormalize`` replaces parts of the Dict it finds."""
    vec_env = make_vec_env(DictImages, N, seed=4, backend="inline")
    VecNormalize(vec_env)
    assert vec_env.pool.single_observation_space == DictImages.space_of_observations()
    vec_env.close()


def test_vec_monitor_replaces_the_figures_and_says_so(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="already wrapped with a `Monitor`"):
        vec_env = VecMonitor(make_vec_env("CartPole-v1", N, seed=4, max_episode_steps=3), str(tmp_path / "all"))
    vec_env.reset()
    for _ in range(3):
        _, _, _, infos = vec_env.step(np.zeros(N, np.int64))
    assert [info["episode"]["l"] for info in infos] == [3] * N
    vec_env.close()
    assert "CartPole-v1" in (tmp_path / "all.monitor.csv").read_text()


def test_monitor_files_are_those_of_sb3(tmp_path: Path) -> None:
    """One per env, with a line per episode."""
    for folder, make in (("ours", make_vec_env), ("theirs", sb3_make_vec_env)):
        vec_env = make("CartPole-v1", N, seed=4, monitor_dir=str(tmp_path / folder))
        vec_env.reset()
        for _ in range(60):
            vec_env.step(np.ones(N, np.int64))
        vec_env.close()
    names = sorted(path.name for path in (tmp_path / "theirs").iterdir())
    assert sorted(path.name for path in (tmp_path / "ours").iterdir()) == names
    for name in names:
        ours, theirs = (
            [line.rpartition(",")[0] for line in (tmp_path / folder / name).read_text().splitlines()[1:]]
            for folder in ("ours", "theirs")
        )
        assert ours == theirs
        assert len(ours) > 3


@pytest.mark.parametrize("env", ["CartPole-v1", TalkativeEnv])
def test_videos(env: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_moviepy(monkeypatch)
    settings = {} if isinstance(env, str) else {"backend": "inline"}
    vec_env = make_vec_env(env, 2, seed=4, render_mode="rgb_array", **settings)
    recorder = VecVideoRecorder(vec_env, str(tmp_path), lambda step: step == 0, video_length=4)
    recorder.reset()
    for _ in range(6):
        recorder.step(np.zeros(2, np.int64))
    recorder.close()
    (video,) = tmp_path.iterdir()
    film = np.load(video)
    assert len(film["frames"]) == 5
    assert film["fps"] == (50 if isinstance(env, str) else 12)
