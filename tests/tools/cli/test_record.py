"""``stepmill record``: what is in the videos."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from stepmill.tools.cli.commands.record import Grid
from support.envs.drawn import frames

Run = Callable[..., Any]


def fps_of(path: str | Path) -> float:
    return float(cv2.VideoCapture(str(path)).get(cv2.CAP_PROP_FPS))


def test_a_video_per_episode_with_every_step_in_it(stepmill_command: Run, user_folder: Path) -> None:
    arguments = ["--episodes", 5, "--num-envs", 2, "-o", "videos", "--json"]
    done = stepmill_command("record", "my_envs.py:shade", *arguments)
    assert done.code == 0, done.err
    assert done.json["videos"] == [f"videos/episode_{k:04d}.mp4" for k in range(5)]
    assert done.json["returns"] == [3.0, 4.0, 3.0, 4.0, 3.0]
    for k in range(5):
        path = Path(f"videos/episode_{k:04d}.mp4")
        assert fps_of(path) == 10
        brightness = [frame.mean() for frame in frames(path)]
        expected = [100 + 10 * step for step in range(4 + k % 2)]  # the reset, and each step
        np.testing.assert_allclose(brightness, expected, atol=3)
    assert list(Path("videos").glob("*.part")) == []


def test_a_grid_has_a_place_for_each_env(stepmill_command: Run, user_folder: Path) -> None:
    done = stepmill_command("record", "my_envs.py:shade", "--episodes", 2, "--grid", "-o", "videos", "--json")
    assert done.code == 0, done.err
    assert done.json["videos"] == ["videos/grid_0000.mp4"]
    seen = frames(Path("videos/grid_0000.mp4"))
    assert len(seen) == 5  # of the longer episode
    last = seen[-1]
    halves = [half.mean() for half in (last[:32], last[-32:])]
    np.testing.assert_allclose(halves, [130 / 2, 140], atol=4)  # the first env stands still by now


def test_native_envs_are_drawn_too(stepmill_command: Run, tmp_path: Path) -> None:
    arguments = ["--max-episode-steps", 3, "-o", tmp_path / "videos", "--json"]
    done = stepmill_command("record", "FrozenLake-v1", *arguments)
    assert done.code == 0, done.err
    assert len(frames(Path(done.json["videos"][0]))) == done.json["frames"] > 1


def test_earlier_videos_are_not_mixed_with_new_ones(stepmill_command: Run, user_folder: Path) -> None:
    Path("videos").mkdir()
    Path("videos/episode_0007.mp4").touch()
    done = stepmill_command("record", "my_envs.py:shade", "-o", "videos")
    assert done.code == 2
    assert "expected a folder without earlier videos, found episode_0007.mp4" in done.err


@pytest.mark.parametrize(
    ("env", "said"), [("Blind", "expected an RGB image from render()"), ("Counting", "the env has no render()")]
)
def test_an_env_without_pictures_says_so(stepmill_command: Run, user_folder: Path, env: str, said: str) -> None:
    done = stepmill_command("record", f"my_envs.py:{env}", "-o", "videos")
    assert done.code == 1
    assert said in done.err
    assert done.err.count("\n") == 1


POLICY = """
import os
import stepmill
asked = 0

@stepmill.per_env
def act(observation, generator):
    global asked
    asked += 1
    if asked == 5:
        os.write(2, b"playing\\n")
    return 0
"""


def test_ctrl_c_keeps_what_was_recorded(user_folder: Path) -> None:
    Path("policy.py").write_text(POLICY)
    command = [sys.executable, "-m", "stepmill", "record", "my_envs.py:shade", "--num-envs", "1"]
    command += [
        "--episodes",
        "1000000",
        "-o",
        "videos",
        "--json",
        "--policy",
        "policy.py:act",
        "--set",
        "render_mode=rgb_array",
    ]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert child.stderr is not None
    assert child.stderr.readline() == "playing\n"
    os.kill(child.pid, signal.SIGINT)
    out, err = child.communicate(timeout=600)
    assert child.returncode == 130, err
    assert '"interrupted": true' in out
    assert len(frames(Path("videos/episode_0000.mp4"))) == 4
    assert list(Path("videos").glob("*.part")) == []


@pytest.mark.parametrize(
    ("count", "size", "columns", "rows"),
    [(1, (400, 600), 1, 1), (4, (480, 480), 2, 2), (16, (400, 600), 4, 4), (2, (100, 300), 1, 2), (7, (84, 84), 4, 2)],
)
def test_the_shape_of_a_grid(count: int, size: tuple[int, int], columns: int, rows: int) -> None:
    grid = Grid(count, size)
    assert (grid.columns, grid.rows) == (columns, rows)
    assert grid.size[0] <= 1080
    assert grid.size[1] <= 1920
    image = grid.draw([np.full((*size, 3), 200, np.uint8)] * count, [False] * count)
    assert image.shape == (*grid.size, 3)
    assert image.max() == 200
