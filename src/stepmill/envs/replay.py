"""Videos of a ``BaseEnv``: one mp4 per episode, written while the episode runs.

::

    reset -> render -> starts a video       env_3_episode_0000.mp4.part
    step  -> render -> adds a frame
    done            -> completes the video  env_3_episode_0000.mp4

- If ``reset``, ``close`` or a failure cuts an episode short, its video is kept as far as it got. An episode without a
  single step leaves no file.
- No video is overwritten: if a file of that name exists, the next free number is used.
- Only a killed process leaves a ``.part`` behind.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from stepmill.envs.video_file import VideoFile, frame_problem, frames_per_second
from stepmill.errors import EnvError, StepmillError, summary
from stepmill.system.optional import require


class Recordable(Protocol):
    """What a recorder needs from an env. ``BaseEnv`` has all of it; this module cannot import it."""

    env_id: int
    metadata: Mapping[str, Any]

    def reset(self, **kwargs: Any) -> Any:
        """Starts an episode."""

    def step(self, action: Any) -> Any:
        """Takes one action; the third value that it returns says whether the episode is over."""

    def render(self) -> Any:
        """An RGB image."""

    def close(self) -> None:
        """Ends it."""


def record_episodes(env: Recordable, folder: str) -> None:
    """Records every episode of ``env`` from its next ``reset`` on, as videos in ``folder``.

    Nothing is built or drawn before that. A second call changes the folder for the following episodes.
    """
    require("imageio_ffmpeg", "imageio-ffmpeg", "video", "enable_save_replay")
    where = Path(folder).absolute()  # the working directory may change later
    present = getattr(vars(env).get("step"), "__self__", None)
    if isinstance(present, EpisodeRecorder):
        present.move_to(where)
    else:
        recorder = EpisodeRecorder(env, where)
        # Only on this env: others have no extra cost, and authors of envs write nothing.
        vars(env).update(reset=recorder.reset, step=recorder.step, close=recorder.close)


class EpisodeRecorder:
    """Replaces ``reset``, ``step`` and ``close`` of one env: does what they do, and draws after each.

    A copy of the env, or a pickled one, leaves the video of this episode to the original and records from its own next
    ``reset`` on.
    """

    def __init__(self, env: Recordable, folder: Path) -> None:
        self._env = env
        self._own_reset, self._own_step, self._own_close = env.reset, env.step, env.close
        self._is_inside = False
        self._video: VideoFile | None = None
        # For an env that is never closed: finishes its video when it is garbage-collected, or when Python exits.
        self._last_resort: weakref.finalize[Any, Any] | None = None
        self.move_to(folder)

    def move_to(self, folder: Path) -> None:
        """Writes the following episodes to ``folder``."""
        self._folder = folder
        self._next_episode = 0

    def reset(self, *args: Any, **kwargs: Any) -> Any:
        """The env's own ``reset``, and the first frame of a video."""
        if self._is_inside:
            return self._own_reset(*args, **kwargs)
        self._end_video()
        observation = self._call(self._own_reset, *args, **kwargs)
        frame = self._draw()
        self._begin_video(frame.shape[:2])
        self._append(frame)
        return observation

    def step(self, *args: Any, **kwargs: Any) -> Any:
        """The env's own ``step``, and one more frame; the last step completes the video."""
        if self._is_inside:
            return self._own_step(*args, **kwargs)
        timestep = self._call(self._own_step, *args, **kwargs)
        if self._video is not None:
            self._append(self._draw(self._video.size))
            if timestep[2]:
                self._end_video()
        return timestep

    def close(self) -> None:
        """The env's own ``close``. An incomplete video ends here."""
        try:
            if not self._is_inside:
                self._end_video()
        finally:
            self._call(self._own_close)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_video": None, "_last_resort": None}

    def _call(self, own: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Runs a method of the env. If it calls others, such as a ``reset`` that takes steps, these are not drawn."""
        was_inside, self._is_inside = self._is_inside, True
        try:
            return own(*args, **kwargs)
        finally:
            self._is_inside = was_inside

    # ---- the video ---------------------------------------------------------------------------

    def _begin_video(self, size: tuple[int, ...]) -> None:
        env_id = self._env.env_id
        self._video = VideoFile(
            self._folder,
            f"env_{env_id}_episode_",
            self._next_episode,
            size,
            self._fps(),
            user="enable_save_replay",
            env_id=env_id,
        )
        self._next_episode = self._video.number + 1
        self._last_resort = weakref.finalize(self, _finish_quietly, self._video)

    def _append(self, frame: np.ndarray[Any, Any]) -> None:
        assert self._video is not None
        if self._video.is_open:  # else this is a forked child, and the video is the parent's
            self._video.append(frame)

    def _end_video(self) -> None:
        video, self._video = self._video, None
        if self._last_resort is not None:
            self._last_resort.detach()
        if video is not None:
            video.finish()

    # ---- its frames --------------------------------------------------------------------------

    def _draw(self, size: tuple[int, ...] | None = None) -> np.ndarray[Any, Any]:
        try:
            frame = self._env.render()
        except StepmillError:
            raise  # its message says what to do, for example that there is no renderer
        except Exception as error:
            raise self._failure(f"render() raised {summary(error)}") from error
        if frame is None:
            raise self._failure(
                "expected an image from render(), got None. Call enable_save_replay before the first reset, and build "
                "a simulator that draws: Gymnasium's envs do so with render_mode='rgb_array'"
            )
        if (problem := frame_problem(frame, size)) is not None:
            raise self._failure(problem)
        image: np.ndarray[Any, Any] = frame
        return image

    def _fps(self) -> Fraction:
        return frames_per_second(self._env.metadata, self._who())

    def _failure(self, what: str) -> EnvError:
        return EnvError(f"{self._who()}, replay: {what}", env_id=self._env.env_id, phase="render")

    def _who(self) -> str:
        return f"{type(self._env).__name__}, env {self._env.env_id}"


def _finish_quietly(video: VideoFile) -> None:
    with contextlib.suppress(Exception):  # there is no caller to tell
        video.finish()
