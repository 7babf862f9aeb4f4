"""Episodes of a pool as videos: one each, or all side by side in a grid."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Protocol

import numpy as np

from stepmill.envs.video_file import VideoFile, frame_problem
from stepmill.errors import EnvError
from stepmill.hosts.rollout.policy import Policy
from stepmill.tools.cli.grid import Grid
from stepmill.views.gymnasium import GymnasiumPool

__all__ = ["Recording", "VideoGrid", "VideoPerEpisode", "Videos"]

_USER = "stepmill record"


class Videos(Protocol):
    """Where the pictures of episodes go."""

    paths: list[Path]

    def append(self, frames: Mapping[int, np.ndarray]) -> None:
        """Adds the pictures of one step, by episode."""

    def end(self, episode: int) -> None:
        """Says that an episode has ended."""

    def finish(self) -> None:
        """Completes what is being written."""


class Recording:
    """Plays episodes and draws every step of them.

    Env i plays episode i, then i + n and so on, where n is the number of envs.

    Args:
        pool: A sync pool whose envs draw pictures.
        policy: Who acts.
        seed: The seed of its generators.
        videos: Where the pictures go.
        episodes: How many episodes to record.
    """

    def __init__(self, pool: GymnasiumPool, policy: Policy, seed: int, videos: Videos, episodes: int) -> None:
        self.frames = 0
        self.returns: dict[int, float] = {}  # by episode
        self._pool = pool
        self._batches = pool.play(policy, seed=seed)
        self._videos = videos
        self._episodes = episodes
        self._playing = np.arange(pool.num_envs)  # the episode that each env plays

    def record(self) -> Iterator[int]:
        """Plays until all are recorded; yields after every step how many episodes ended with it."""
        for batch in self._batches:
            frames = self._draw()
            self._videos.append(frames)
            self.frames += len(frames)
            ended = np.flatnonzero(batch.ended).tolist()
            recorded = [env_id for env_id in ended if self._playing[env_id] < self._episodes]
            for env_id in recorded:
                episode = int(self._playing[env_id])
                self.returns[episode] = float(batch.info["episode_return"][env_id])
                self._videos.end(episode)
                self._playing[env_id] += self._pool.num_envs
            yield len(recorded)
            if len(self.returns) == self._episodes:
                return

    def _draw(self) -> dict[int, np.ndarray]:
        """The pictures of the episodes that are being recorded."""
        envs = np.flatnonzero(self._playing < self._episodes).tolist()
        found = {}
        try:
            frames = self._pool.render(envs)
        except EnvError as error:
            if isinstance(error.__cause__, NotImplementedError):  # what gymnasium.Env.render raises
                raise EnvError(f"{_USER}: the env has no render(), so there are no pictures", phase="render") from None
            raise
        for env_id, frame in zip(envs, frames, strict=True):
            if (problem := frame_problem(frame, None)) is not None:
                raise EnvError(f"{_USER}: env {env_id}: {problem}", env_id=env_id, phase="render")
            found[int(self._playing[env_id])] = frame
        return found


class VideoPerEpisode:
    """One file for each episode: ``episode_0000.mp4`` and so on."""

    STEM = "episode_"

    def __init__(self, folder: Path, fps: Fraction) -> None:
        self.paths: list[Path] = []
        self._folder = folder
        self._fps = fps
        self._open: dict[int, VideoFile] = {}

    def append(self, frames: Mapping[int, np.ndarray]) -> None:
        for episode, frame in frames.items():
            if episode not in self._open:
                size = frame.shape[:2]
                self._open[episode] = VideoFile(self._folder, self.STEM, episode, size, self._fps, user=_USER)
            _append(self._open[episode], frame)

    def end(self, episode: int) -> None:
        _finish(self._open.pop(episode), self.paths)

    def finish(self) -> None:
        while self._open:
            self.end(next(iter(self._open)))


class VideoGrid:
    """One file with a place for each env, ``grid_0000.mp4``: an env without another episode stands still."""

    STEM = "grid_"

    def __init__(self, folder: Path, fps: Fraction, num_envs: int) -> None:
        self.paths: list[Path] = []
        self._folder = folder
        self._fps = fps
        self._grid: Grid | None = None
        self._video: VideoFile | None = None
        self._pictures: list[np.ndarray | None] = [None] * num_envs

    def append(self, frames: Mapping[int, np.ndarray]) -> None:
        still = [True] * len(self._pictures)
        for episode, frame in frames.items():
            place = episode % len(self._pictures)
            self._pictures[place] = frame
            still[place] = False
        if self._video is None or self._grid is None:
            first = next(iter(frames.values()))
            self._grid = Grid(len(self._pictures), (first.shape[0], first.shape[1]))
            self._video = VideoFile(self._folder, self.STEM, 0, self._grid.size, self._fps, user=_USER)
        for frame in frames.values():
            _check_size(frame, self._grid.picture_size)
        self._video.append(self._grid.draw(self._pictures, still))

    def end(self, episode: int) -> None:
        pass  # the next one follows in its place

    def finish(self) -> None:
        if self._video is not None:
            video, self._video = self._video, None
            _finish(video, self.paths)


def _append(video: VideoFile, frame: np.ndarray) -> None:
    _check_size(frame, video.size)
    video.append(frame)


def _check_size(frame: np.ndarray, size: tuple[int, ...]) -> None:
    if (problem := frame_problem(frame, size)) is not None:
        raise EnvError(f"{_USER}: {problem}", phase="render")


def _finish(video: VideoFile, paths: list[Path]) -> None:
    video.finish()
    if video.path.exists():  # it is dropped if nobody made a step
        paths.append(video.path)
