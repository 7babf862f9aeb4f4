"""``enable_save_replay``: one mp4 per episode, whole or not there, and nothing left running."""

from __future__ import annotations

import copy
import fcntl
import gc
import os
import pickle
import signal
import struct
import sys
import termios
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import cv2
import numpy as np
import pytest

import stepmill
from stepmill.envs.base_env import BaseEnv
from stepmill.envs.timestep import BaseEnvTimestep
from stepmill.errors import ConfigError, EnvError, MissingPackageError, UnsupportedError
from support.envs.drawn import CountingEnv, counts, ffmpegs, frames, names, play, recording
from support.envs.faulty import outcome
from support.processes import belongings, kill_worker, left_since, signal_to
from support.subprocesses import run_well, start
from support.waiting import ends, eventually, no_garbage_collection, no_hang


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    """No process, no thread and no descriptor outlives a test."""
    before = belongings()
    with no_hang():
        yield
        assert left_since(before) == []


# ---- what is written -----------------------------------------------------------------------------


def test_every_episode_is_a_video_with_a_frame_for_its_reset_and_each_step(tmp_path: Path) -> None:
    env = recording(tmp_path / "new" / "folder", length=5)
    play(env, 5)
    env.length = 2
    play(env, 2)
    assert names(tmp_path / "new/folder") == ["env_0_episode_0000.mp4", "env_0_episode_0001.mp4"]  # before the close
    env.close()
    assert env.is_closed
    assert counts(tmp_path / "new/folder/env_0_episode_0000.mp4") == [0, 1, 2, 3, 4, 5]
    assert counts(tmp_path / "new/folder/env_0_episode_0001.mp4") == [0, 1, 2]


def test_a_video_has_the_size_and_the_speed_of_the_env(tmp_path: Path) -> None:
    play(recording(tmp_path))
    video = cv2.VideoCapture(str(tmp_path / "env_0_episode_0000.mp4"))
    wanted = (cv2.CAP_PROP_FRAME_WIDTH, cv2.CAP_PROP_FRAME_HEIGHT, cv2.CAP_PROP_FPS, cv2.CAP_PROP_FRAME_COUNT)
    assert [video.get(what) for what in wanted] == [96, 32, 20, 4]
    video.release()


@pytest.mark.parametrize(("size", "even"), [((33, 97), (34, 98)), ((3, 1), (4, 2)), ((32, 97), (32, 98))])
def test_odd_sizes_get_a_black_line(tmp_path: Path, size: tuple[int, int], even: tuple[int, int]) -> None:
    env = recording(tmp_path, size=size)
    env.render = lambda: np.full((*size, 3), 255, np.uint8)  # type: ignore[method-assign]
    play(env)
    height, width = size
    for image in frames(tmp_path / "env_0_episode_0000.mp4"):
        assert image.shape == (*even, 3)
        assert image[:height, :width].mean() > 200
        lines = np.concatenate([image[height:].ravel(), image[:, width:].ravel()])
        assert lines.mean() < 55


def test_colours_are_the_right_way_round_and_views_are_taken(tmp_path: Path) -> None:
    env = recording(tmp_path)
    red = np.zeros((3, 40, 64), np.uint8)
    red[0] = 255
    env.render = lambda: red.transpose(2, 1, 0)  # type: ignore[method-assign]
    play(env)
    blue, green, red_out = frames(tmp_path / "env_0_episode_0000.mp4")[0].mean((0, 1))
    assert (blue < 10, green < 10, red_out > 240) == (True, True, True)


def test_the_id_is_that_of_the_env_when_the_episode_begins(tmp_path: Path) -> None:
    env = recording(tmp_path)
    env.env_id = 3
    env.reset()
    env.env_id = 4
    play_on = [env.step(np.array(0)) for _ in range(3)]
    assert play_on[-1].done
    assert names(tmp_path) == ["env_3_episode_0000.mp4"]


def test_a_video_is_never_written_over(tmp_path: Path) -> None:
    first, second = recording(tmp_path, length=2), recording(tmp_path, length=3)  # both are env 0
    first.reset()
    play(second)
    first.step(np.array(0))
    first.step(np.array(0))
    third = recording(tmp_path, length=1)
    play(third, 1)
    play(first, 2)
    assert [counts(path)[-1] for path in sorted(tmp_path.iterdir())] == [2, 3, 1, 2]


def test_an_episode_that_is_cut_short_is_kept_as_far_as_it_came(tmp_path: Path) -> None:
    env = recording(tmp_path, length=10)
    play(env, 4)
    play(env, 2)
    env.close()
    assert counts(tmp_path / "env_0_episode_0000.mp4") == [0, 1, 2, 3, 4]
    assert counts(tmp_path / "env_0_episode_0001.mp4") == [0, 1, 2]


def test_what_led_to_a_failure_is_kept(tmp_path: Path) -> None:
    env = recording(tmp_path, fails_at=3)
    with pytest.raises(ValueError, match="broken"):
        play(env)
    env.close()
    assert counts(tmp_path / "env_0_episode_0000.mp4") == [0, 1, 2]


def test_an_episode_without_a_step_leaves_nothing(tmp_path: Path) -> None:
    env = recording(tmp_path)
    env.reset()
    env.reset()
    env.close()
    env.close()
    assert names(tmp_path) == []


def test_steps_after_the_end_are_not_drawn(tmp_path: Path) -> None:
    env = recording(tmp_path, length=2)
    play(env, 4)
    assert counts(tmp_path / "env_0_episode_0000.mp4") == [0, 1, 2]
    assert env.num_renders == 3


def test_what_the_env_calls_of_itself_is_not_drawn(tmp_path: Path) -> None:
    class TakesNoOps(CountingEnv):
        def reset(self, **kwargs: Any) -> Any:
            self.close()
            super().reset()
            return self.step(np.array(0)).obs

    env = TakesNoOps()
    env.enable_save_replay(str(tmp_path))
    play(env, 2)
    assert counts(tmp_path / "env_0_episode_0000.mp4") == [1, 2, 3]


def test_reset_and_step_return_what_the_env_does(tmp_path: Path) -> None:
    env, plain = recording(tmp_path), CountingEnv()
    assert env.reset(level=3).tolist() == plain.reset(level=3).tolist()
    ours, theirs = env.step(np.array(0)), plain.step(np.array(0))
    assert type(ours) is BaseEnvTimestep
    assert (ours.obs.tolist(), ours.done, ours.info) == (theirs.obs.tolist(), theirs.done, theirs.info)
    env.close()


# ---- enabling ------------------------------------------------------------------------------------


def test_enabling_only_sets_a_flag(tmp_path: Path) -> None:
    env = recording(tmp_path / "video")
    assert (env.is_built, env.num_renders, names(tmp_path)) == (False, 0, [])
    other = CountingEnv()
    play(other)
    assert other.num_renders == 0  # it is a matter of one env, not of its class


def test_the_folder_is_video_by_default_where_it_was_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    env = CountingEnv()
    env.enable_save_replay()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir("elsewhere")
    play(env)
    assert names(tmp_path / "video") == ["env_0_episode_0000.mp4"]


def test_enabling_again_changes_the_folder_and_records_once(tmp_path: Path) -> None:
    env = recording(tmp_path / "a")
    env.reset()
    env.enable_save_replay(str(tmp_path / "b"))
    env.step(np.array(0))
    env.close()  # the episode that was under way stays where it was
    play(env)
    assert counts(tmp_path / "a/env_0_episode_0000.mp4") == [0, 1]
    assert counts(tmp_path / "b/env_0_episode_0000.mp4") == [0, 1, 2, 3]
    assert env.num_renders == 6


def test_enabling_in_an_episode_begins_with_the_next(tmp_path: Path) -> None:
    env = CountingEnv()
    env.reset()
    env.enable_save_replay(str(tmp_path / "video"))
    env.step(np.array(0))
    assert names(tmp_path) == []
    play(env)
    assert counts(tmp_path / "video/env_0_episode_0000.mp4") == [0, 1, 2, 3]


def test_an_env_that_will_record_can_be_pickled(tmp_path: Path) -> None:
    other = pickle.loads(pickle.dumps(recording(tmp_path)))
    other.env_id = 7
    play(other)
    assert counts(tmp_path / "env_7_episode_0000.mp4") == [0, 1, 2, 3]


def test_a_copy_leaves_the_video_to_the_original(tmp_path: Path) -> None:
    env = recording(tmp_path, length=2)
    play(env, 1)
    other = copy.deepcopy(env)
    other.step(np.array(0))
    assert (env.count, other.count) == (1, 2)
    env.step(np.array(0))
    assert counts(tmp_path / "env_0_episode_0000.mp4") == [0, 1, 2]
    play(other, 2)
    assert names(tmp_path) == ["env_0_episode_0000.mp4", "env_0_episode_0001.mp4"]


def test_a_missing_package_is_told_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    with pytest.raises(MissingPackageError, match=r"enable_save_replay needs imageio-ffmpeg.*stepmill\[video\]"):
        recording(tmp_path)


# ---- what cannot be written ----------------------------------------------------------------------

BAD_FRAMES: dict[str, tuple[Any, str]] = {
    "none": (None, "got None. Call enable_save_replay before the first reset.*render_mode='rgb_array'"),
    "grey": (np.zeros((8, 8), np.uint8), r"expected an RGB image .* got uint8 of shape \(8, 8\)"),
    "float": (np.zeros((8, 8, 3), np.float32), r"got float32 of shape \(8, 8, 3\)"),
    "alpha": (np.zeros((8, 8, 4), np.uint8), r"got uint8 of shape \(8, 8, 4\)"),
    "empty": (np.zeros((0, 8, 3), np.uint8), r"got uint8 of shape \(0, 8, 3\)"),
    "list": ([np.zeros((8, 8, 3), np.uint8)], "got list"),
}


@pytest.mark.parametrize("kind", BAD_FRAMES)
def test_an_invalid_picture_is_an_error_that_says_expected_and_got(tmp_path: Path, kind: str) -> None:
    frame, message = BAD_FRAMES[kind]
    env = recording(tmp_path / "video")
    env.env_id = 5
    env.render = lambda: frame  # type: ignore[method-assign]
    with pytest.raises(EnvError, match=f"^CountingEnv, env 5, replay: .*{message}") as caught:
        env.reset()
    assert (caught.value.env_id, caught.value.phase) == (5, "render")
    assert names(tmp_path) == []


def test_a_renderer_that_raises_is_the_cause(tmp_path: Path) -> None:
    env = recording(tmp_path)
    env.render = lambda: 1 / 0  # type: ignore[method-assign]
    with pytest.raises(EnvError, match=r"CountingEnv, env 0, replay: render\(\) raised ZeroDivisionError") as caught:
        env.reset()
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_an_env_without_a_renderer_says_so(tmp_path: Path) -> None:
    env = recording(tmp_path)
    env.render = lambda: BaseEnv.render(env)  # type: ignore[method-assign]
    with pytest.raises(UnsupportedError, match="CountingEnv has no renderer"):
        env.reset()


def test_a_size_that_changes_in_an_episode_is_an_error_and_between_episodes_is_not(tmp_path: Path) -> None:
    env = recording(tmp_path)
    play(env, 1)
    env.size = (48, 96)
    with pytest.raises(EnvError, match=r"expected all images of an episode to be \(32, 96\).* got \(48, 96\)"):
        env.step(np.array(0))
    play(env)
    assert [len(frames(path)) for path in sorted(tmp_path.iterdir())] == [2, 4]


@pytest.mark.parametrize("fps", [0, -1, "fast", float("nan"), float("inf")])
def test_an_invalid_speed_is_an_error(tmp_path: Path, fps: Any) -> None:
    env = recording(tmp_path)
    env.metadata = {"render_fps": fps}
    with pytest.raises(
        ConfigError, match=r"CountingEnv, env 0: metadata\['render_fps'\]: expected a finite number.* got"
    ):
        env.reset()
    assert names(tmp_path) == []


@pytest.mark.parametrize("metadata", [{}, None, {"render_fps": None}])
def test_without_a_speed_it_is_30(tmp_path: Path, metadata: Any) -> None:
    env = recording(tmp_path)
    env.metadata = metadata
    play(env)
    video = cv2.VideoCapture(str(tmp_path / "env_0_episode_0000.mp4"))
    assert video.get(cv2.CAP_PROP_FPS) == 30
    video.release()


def test_an_invalid_folder_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    env = recording(tmp_path / "file")
    with pytest.raises(ConfigError, match=r"enable_save_replay: expected a writable folder, got .*file"):
        env.reset()


def test_a_folder_that_goes_away_is_an_error(tmp_path: Path) -> None:
    env = recording(tmp_path / "video", length=10)
    play(env, 1)
    (tmp_path / "video").rename(tmp_path / "gone")
    with pytest.raises(EnvError, match=r"video/env_0_episode_0000.mp4: .*No such file"):
        env.close()
    assert env.is_closed


# ---- processes -----------------------------------------------------------------------------------


def test_an_ffmpeg_that_dies_is_an_error_and_the_next_episode_has_a_new_one(tmp_path: Path) -> None:
    env = recording(tmp_path, length=10, size=(512, 512))
    play(env, 1)
    (pid,) = ffmpegs()
    signal_to(pid)
    assert ends(pid)
    with pytest.raises(EnvError, match=r"env_0_episode_0000.mp4: ffmpeg ended with code -9"):
        env.step(np.array(0))
    assert names(tmp_path) == []
    env.step(np.array(0))  # this episode goes on without a video
    play(env, 1)
    env.close()
    assert names(tmp_path) == ["env_0_episode_0001.mp4"]


def test_what_ffmpeg_says_is_in_the_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = tmp_path / "ffmpeg"
    fake.write_text("#!/bin/sh\necho no space left >&2\ncat >/dev/null\nexit 3\n")
    fake.chmod(0o755)
    monkeypatch.setattr("imageio_ffmpeg.get_ffmpeg_exe", lambda: str(fake))
    env = recording(tmp_path / "video")
    env.reset()
    env.step(np.array(0))
    with pytest.raises(EnvError, match="ffmpeg ended with code 3: no space left"):
        env.close()
    assert env.is_closed
    assert names(tmp_path / "video") == []


def test_ctrl_c_ends_no_video(tmp_path: Path) -> None:
    env = recording(tmp_path)
    play(env, 1)
    (pid,) = ffmpegs()
    signal_to(pid, signal.SIGINT)  # as the terminal does
    env.step(np.array(0))
    env.step(np.array(0))
    assert counts(tmp_path / "env_0_episode_0000.mp4") == [0, 1, 2, 3]


def test_an_interrupt_within_a_frame_keeps_the_frames_before(tmp_path: Path) -> None:
    env = recording(tmp_path, length=10, size=(512, 512))
    play(env, 2)
    (pid,) = ffmpegs()
    assert eventually(lambda: queued(pid) == 0)
    signal_to(pid, signal.SIGSTOP)

    def interrupt_when_blocked() -> None:
        eventually(lambda: queued(pid) >= 65536)  # the pipe is full, and most of the frame is to come
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)

    def interrupt(*_: object) -> NoReturn:
        signal_to(pid, signal.SIGCONT)
        raise KeyboardInterrupt

    old = signal.signal(signal.SIGUSR1, interrupt)
    presser = threading.Thread(target=interrupt_when_blocked)
    presser.start()
    with pytest.raises(KeyboardInterrupt), no_garbage_collection():
        env.step(np.array(0))
    presser.join()
    signal.signal(signal.SIGUSR1, old)
    env.step(np.array(0))
    env.close()
    assert len(frames(tmp_path / "env_0_episode_0000.mp4")) == 3


def queued(pid: int) -> int:
    """How many bytes wait in the pipe that a process reads as stdin."""
    stdin = os.open(f"/proc/{pid}/fd/0", os.O_RDONLY)
    try:
        return struct.unpack("i", fcntl.ioctl(stdin, termios.FIONREAD, bytes(4)))[0]
    finally:
        os.close(stdin)


def test_an_env_that_nobody_closes_finishes_its_video_when_it_is_collected(tmp_path: Path) -> None:
    env = recording(tmp_path, length=10)
    play(env, 2)
    del env
    gc.collect()
    assert counts(tmp_path / "env_0_episode_0000.mp4") == [0, 1, 2]


IN_A_PROCESS = """
    import os, sys
    from support.envs.drawn import ffmpegs, play, recording
    env = recording({folder!r}, length=10)
    play(env, 2)
"""


def test_an_env_that_nobody_closes_finishes_its_video_when_python_ends(tmp_path: Path) -> None:
    run_well(IN_A_PROCESS.format(folder=str(tmp_path)))
    assert counts(tmp_path / "env_0_episode_0000.mp4") == [0, 1, 2]


def test_a_killed_process_leaves_no_ffmpeg_and_no_broken_mp4(tmp_path: Path) -> None:
    code = IN_A_PROCESS + "    print(*ffmpegs(), flush=True)\n    sys.stdin.read()"
    with start(code.format(folder=str(tmp_path))) as process:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        os.kill(process.pid, signal.SIGKILL)
        assert ends(pid)
    assert names(tmp_path) == ["env_0_episode_0000.mp4.part"]


def test_after_a_kill_the_next_one_takes_the_next_number(tmp_path: Path) -> None:
    (tmp_path / "env_0_episode_0000.mp4.part").touch()
    play(recording(tmp_path))
    assert names(tmp_path) == ["env_0_episode_0000.mp4.part", "env_0_episode_0001.mp4"]


def test_a_forked_child_neither_holds_the_video_up_nor_writes_to_it(tmp_path: Path) -> None:
    code = (
        IN_A_PROCESS
        + """
    wait, go = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(go)
        env.step(1)         # nothing of this is drawn in the parent's video
        env.close()
        os.read(wait, 1)    # it lives until the parent is done
        sys.exit()          # and ends as Python does
    env.step(1)
    env.close()             # would wait for the child, if that held the pipe
    os.close(go)
    assert os.waitpid(child, 0)[1] == 0
    """
    )
    run_well(code.format(folder=str(tmp_path)), flags=["-W", "ignore::DeprecationWarning"])
    assert counts(tmp_path / "env_0_episode_0000.mp4") == [0, 1, 2, 3]


# ---- pools ---------------------------------------------------------------------------------------


def make(**arguments: Any) -> Any:
    return stepmill.make(CountingEnv, num_envs=2, autoreset="same_step", **arguments)


@pytest.mark.parametrize("backend", ["inline", "process"])
def test_every_env_of_a_pool_has_its_own_videos(tmp_path: Path, backend: str) -> None:
    with make(backend=backend, env_config=[{"cfg": {"length": n}} for n in (2, 4)]) as pool:
        pool.call("enable_save_replay", str(tmp_path))
        pool.reset(seed=0)
        for _ in range(5):
            pool.step(np.zeros(2, np.int64))
    assert {path.name: counts(path) for path in tmp_path.iterdir()} == {
        "env_0_episode_0000.mp4": [0, 1, 2],
        "env_0_episode_0001.mp4": [0, 1, 2],
        "env_0_episode_0002.mp4": [0, 1],
        "env_1_episode_0000.mp4": [0, 1, 2, 3, 4],
        "env_1_episode_0001.mp4": [0, 1],
    }


def test_a_killed_worker_leaves_no_broken_mp4_and_no_ffmpeg(tmp_path: Path) -> None:
    with make(backend="process", num_workers=2, env_config=[{"cfg": {"length": 3}}] * 2, on_error="restart") as pool:
        pool.call("enable_save_replay", str(tmp_path))
        pool.reset(seed=0)
        for _ in range(4):
            pool.step(np.zeros(2, np.int64))
        writers = ffmpegs()
        assert len(writers) == 2
        kill_worker(pool, 1)
        outcome(lambda: pool.step(np.zeros(2, np.int64)))
    assert all(map(ends, writers))
    whole = [path for path in sorted(tmp_path.iterdir()) if path.suffix == ".mp4"]
    assert [counts(path) for path in whole] == [[0, 1, 2, 3], [0, 1, 2], [0, 1, 2, 3]]
