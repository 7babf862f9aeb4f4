"""One mp4, written frame by frame through an ffmpeg process."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import weakref
from fractions import Fraction
from pathlib import Path
from typing import IO, Any

import numpy as np

from stepmill.errors import ConfigError, EnvError
from stepmill.optional import require

__all__ = ["VideoFile"]


class VideoFile:
    """A video that gets its name when it is complete: until then it is a ``.part``.

    It takes the number ``episode``, or the next free one if a file of that name exists. ``size`` is the height and the
    width of its frames; an odd one is made even with a black line, as H.264 requires.

    ffmpeg ends when its input pipe closes, so it does not outlive this process, however that ends.
    """

    def __init__(self, folder: Path, env_id: int, episode: int, size: tuple[int, ...], fps: Fraction) -> None:
        self.size = size
        self._env_id = env_id
        self._num_frames = 0
        self._process: subprocess.Popen[bytes] | None = None
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self.episode = _claim(folder, env_id, episode)
        except OSError as error:
            raise ConfigError(f"enable_save_replay: expected a writable folder, got {error}") from error
        self.path = _path(folder, env_id, self.episode)
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  (a pipe could fill up, and block ffmpeg)
        try:
            self._process = _start_ffmpeg(_part(self.path), size, fps, self._log)
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


def _path(folder: Path, env_id: int, episode: int) -> Path:
    return folder / f"env_{env_id}_episode_{episode:04d}.mp4"


def _part(path: Path) -> Path:
    return path.with_name(f"{path.name}.part")


def _claim(folder: Path, env_id: int, episode: int) -> int:
    """The first number from ``episode`` on that is free; an empty ``.part`` claims it.

    Whether the video exists is checked after the claim: only the owner of the ``.part`` can give a video that name.
    """
    while True:
        path = _path(folder, env_id, episode)
        try:
            _part(path).touch(exist_ok=False)
            if not path.exists():
                return episode
            _part(path).unlink()
        except FileExistsError:
            pass  # of another env with this id, or left behind by a killed one
        episode += 1


def _start_ffmpeg(path: Path, size: tuple[int, ...], fps: Fraction, log: IO[bytes]) -> subprocess.Popen[bytes]:
    ffmpeg = require("imageio_ffmpeg", "imageio-ffmpeg", "video", "enable_save_replay").get_ffmpeg_exe()
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
