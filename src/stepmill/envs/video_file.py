"""One mp4, written frame by frame through an ffmpeg process."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import weakref
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import IO, Any

import numpy as np

from stepmill.errors import ConfigError, EnvError
from stepmill.system.optional import require
from stepmill.values.arguments import real_number

_DEFAULT_FPS = 30  # of envs that do not say it in their metadata


class VideoFile:
    """A video that gets its name when it is complete: until then it is a ``.part``.

    Its name is ``stem`` and ``number``, or the next free number if a file of that name exists. ``size`` is the height
    and the width of its frames; an odd one is made even with a black line, as H.264 requires.

    ffmpeg ends when its input pipe closes, so it does not outlive this process, however that ends.

    Args:
        user: Who wants it, for messages.
        env_id: The env in the pictures; None for several.
    """

    def __init__(
        self,
        folder: Path,
        stem: str,
        number: int,
        size: tuple[int, ...],
        fps: Fraction,
        *,
        user: str,
        env_id: int | None = None,
    ) -> None:
        self.size = size
        self._env_id = env_id
        self._num_frames = 0
        self._process: subprocess.Popen[bytes] | None = None
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self.number = _claim(folder, stem, number)
        except OSError as error:
            raise ConfigError(f"{user}: expected a writable folder, got {error}") from error
        self.path = _path(folder, stem, self.number)
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  (a pipe could fill up, and block ffmpeg)
        try:
            self._process = _start_ffmpeg(_part(self.path), size, fps, self._log, user)
        except BaseException:
            self._log.close()
            _part(self.path).unlink()
            raise
        _open_videos.add(self)

    @property
    def is_open(self) -> bool:
        """Whether it takes frames."""
        return self._process is not None

    def append(self, frame: np.ndarray[Any, Any]) -> None:
        """Adds a frame, uint8 of shape ``(*size, 3)``. Waits while ffmpeg is behind."""
        assert self._process is not None
        assert self._process.stdin is not None
        rest = np.ascontiguousarray(frame).data.cast("B")
        try:
            while rest:
                rest = rest[self._process.stdin.write(rest) :]
        except BrokenPipeError:
            raise self._failure(self._end()) from None
        except BaseException:  # Ctrl-C within a frame: no frame can follow a partial one
            with contextlib.suppress(EnvError):
                self.finish()
            raise
        self._num_frames += 1

    def finish(self) -> None:
        """Completes the video. One with a single frame, so without a step, is dropped."""
        if self._process is None:
            return
        complaint = self._end()
        if complaint:
            raise self._failure(complaint)
        try:
            if self._num_frames > 1:
                _part(self.path).rename(self.path)
            else:
                _part(self.path).unlink()
        except OSError as error:  # somebody removed the folder
            raise self._failure(str(error)) from error

    def abandon(self) -> None:
        """In a forked child: releases what belongs to the parent. An open pipe would keep ffmpeg waiting."""
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
            self._process.returncode = 0  # it is not a child of this process, so do not wait for it
            self._process = None
            self._log.close()

    def _end(self) -> str:
        """Waits until ffmpeg has written everything. Returns how it failed, or nothing if it did not."""
        assert self._process is not None
        process, self._process = self._process, None
        _open_videos.discard(self)
        with self._log:
            try:
                with process:  # closes the pipe and waits
                    pass
            except BaseException:  # Ctrl-C, while we waited
                process.kill()
                process.wait()
                _part(self.path).unlink()
                raise
            if process.returncode == 0:
                return ""
            self._log.seek(0)
            said = self._log.read().decode(errors="replace").strip()
            return f"ffmpeg ended with code {process.returncode}: {said or 'it gave no reason'}"

    def _failure(self, what: str) -> EnvError:
        _part(self.path).unlink(missing_ok=True)
        return EnvError(f"{self.path}: {what or 'ffmpeg ended early'}", env_id=self._env_id, phase="render")


# The videos that this process is writing.
_open_videos: weakref.WeakSet[VideoFile] = weakref.WeakSet()


def _abandon_all() -> None:
    for video in list(_open_videos):
        video.abandon()
    _open_videos.clear()


os.register_at_fork(after_in_child=_abandon_all)


def frame_problem(frame: Any, size: tuple[int, ...] | None) -> str | None:
    """What is wrong with a picture that an env returned, if anything. ``size`` is that of the video so far."""
    is_rgb = isinstance(frame, np.ndarray) and frame.dtype == np.uint8 and frame.ndim == 3 and frame.shape[2] == 3
    if not is_rgb or frame.size == 0:
        got = f"{frame.dtype} of shape {frame.shape}" if isinstance(frame, np.ndarray) else type(frame).__name__
        return f"expected an RGB image from render(), uint8 of shape (height, width, 3), got {got}"
    if size is not None and frame.shape[:2] != size:
        return f"expected all images of an episode to be {size}, as the first, got {frame.shape[:2]}"
    return None


def frames_per_second(metadata: Mapping[str, Any] | None, who: str) -> Fraction:
    """The speed at which an env's pictures are shown, as it says itself."""
    fps = (metadata or {}).get("render_fps")
    number = real_number(f"{who}: metadata['render_fps']", _DEFAULT_FPS if fps is None else fps, 0.001, 1000)
    return Fraction(number).limit_denominator(1001)


def _path(folder: Path, stem: str, number: int) -> Path:
    return folder / f"{stem}{number:04d}.mp4"


def _part(path: Path) -> Path:
    return path.with_name(f"{path.name}.part")


def _claim(folder: Path, stem: str, number: int) -> int:
    """The first one from ``number`` on that is free; an empty ``.part`` claims it.

    Whether the video exists is checked after the claim: only the owner of the ``.part`` can give a video that name.
    """
    while True:
        path = _path(folder, stem, number)
        try:
            _part(path).touch(exist_ok=False)
            if not path.exists():
                return number
            _part(path).unlink()
        except FileExistsError:
            pass  # of another env with this id, or left behind by a killed one
        number += 1


def _start_ffmpeg(
    path: Path, size: tuple[int, ...], fps: Fraction, log: IO[bytes], user: str
) -> subprocess.Popen[bytes]:
    ffmpeg = require("imageio_ffmpeg", "imageio-ffmpeg", "video", user).get_ffmpeg_exe()
    height, width = size
    frames_in = f"-f rawvideo -pix_fmt rgb24 -video_size {width}x{height} -framerate {fps} -i pipe:0"
    even = "-vf pad=ceil(iw/2)*2:ceil(ih/2)*2"
    # One thread each: a pool has many envs. Every player knows this pixel format.
    mp4_out = "-c:v libx264 -preset veryfast -crf 18 -pix_fmt yuv420p -threads 1 -f mp4 -y"
    command = [ffmpeg, *f"-loglevel error {frames_in} {even} {mp4_out}".split(), f"file:{path}"]
    # Ctrl-C reaches every process of the terminal, and a video should survive it: a signal that is blocked here stays
    # blocked in ffmpeg.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        return subprocess.Popen(command, bufsize=0, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=log)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
