"""Who looks at which envs, what they were shown last, which env is drawn next, and how much time that may take."""

from __future__ import annotations

import struct
import threading
import zlib
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from stepmill.hosts.frames import Frame

MOST_SHOWN = 64  # envs on one page
_MOST_VIEWERS = 32
_GONE_S = 3.0  # a browser that has not asked for this long looks elsewhere
_RATE_S = 5.0  # over which pictures are counted
SHARE = 0.05  # of the time, at most, for pictures
PLAYED_SHARE = 0.5  # the same where envs are only played to be seen
TEXT_SHARE = 0.01  # of the calling thread's time, for the texts of envs that users have picked
_BURST_S = 0.05  # of drawing, which may be saved up while nobody looks
_WINDOW_S = 10.0  # over which the share is measured that users see

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_FASTEST = 1  # of zlib

Stamp = tuple[int, int]  # the episode and the step that a picture shows


class LastPicture:
    """The last picture of an env. ``number`` grows from picture to picture, over all envs."""

    def __init__(self, number: int, at: float, frame: Frame, stamp: Stamp | None) -> None:
        self.number = number
        self.at = at
        self.stamp = stamp
        self.text = frame.content if isinstance(frame.content, str) else None
        self.failure = frame.failure
        self._picture = None if isinstance(frame.content, str) else frame.content
        self._png: bytes | None = None

    def png(self) -> tuple[bytes | None, bool]:
        """The picture as a file, if there is one, and whether it was encoded just now: when it is asked for first."""
        picture = self._picture
        if self._png is not None or picture is None:
            return self._png, False
        self._png = png_of(picture)
        self._picture = None
        return self._png, True


class _Viewer(NamedTuple):
    envs: Sequence[int]
    picked: int | None
    at: float


class Looks:
    """Keeps the pictures of the envs that somebody looks at.

    Args:
        crews: The envs of each worker. A worker draws one env at a time.
    """

    def __init__(self, crews: Sequence[range]) -> None:
        self._crews = crews
        self._lock = threading.Lock()
        self._viewers: dict[str, _Viewer] = {}
        self._shown: dict[int, LastPicture] = {}
        self._count = 0
        self._times: deque[tuple[float, int]] = deque(maxlen=1024)  # when which env was drawn
        self._turns: dict[int, int] = {}  # when each env was asked for last, as a count
        self._turn = 0
        self._last_of_crew: dict[int, int] = {}
        self._begun: set[int] = set()  # the crews that have drawn
        self._asked: dict[int, tuple[Stamp, int]] = {}  # for pictures that have not come yet
        self._stamps: dict[int, Stamp] = {}

    # ---- browsers ----------------------------------------------------------------------------

    def look(self, viewer: str, envs: Sequence[int], picked: int | None, now: float) -> None:
        """Notes what a browser shows; it says so again with everything it asks."""
        with self._lock:
            self._viewers.pop(viewer, None)
            while len(self._viewers) >= _MOST_VIEWERS:
                del self._viewers[next(iter(self._viewers))]  # the one that asked first
            self._viewers[viewer] = _Viewer(envs, picked, now)

    def watched(self, now: float) -> tuple[list[int], set[int]]:
        """The envs that browsers show, and those among them that users have picked."""
        with self._lock:
            self._viewers = {key: one for key, one in self._viewers.items() if now - one.at < _GONE_S}
            viewers = list(self._viewers.values())
            picked = {one.picked for one in viewers if one.picked is not None}
            envs = list(dict.fromkeys([*picked, *(env for one in viewers for env in one.envs)]))
            for env in [one for one in self._shown if one not in envs]:
                del self._shown[env]
                self._stamps.pop(env, None)
                self._turns.pop(env, None)
            return envs, picked

    # ---- drawing -----------------------------------------------------------------------------

    def next_envs(self, ready: Sequence[int], picked: set[int]) -> list[int]:
        """At most one env of each worker that is not drawing: a picked one every other time, else the one that was
        drawn longest ago. ``ready`` are those that can be drawn now.
        """
        chosen = []
        for number, crew in enumerate(self._crews):
            own = [env for env in ready if env in crew]
            if not own or any(env in crew for env in self._asked):
                continue
            preferred = [env for env in own if env in picked and env != self._last_of_crew.get(number)]
            best = min(preferred or own, key=lambda env: self._turns.get(env, 0))
            self._last_of_crew[number] = best
            chosen.append(best)
        return chosen

    def is_new(self, env: int, stamp: Stamp) -> bool:
        """Whether the env has moved on since its last picture."""
        asked = self._asked.get(env)
        return (self._stamps.get(env) if asked is None else asked[0]) != stamp

    def ask(self, env: int, stamp: Stamp, at_once: int) -> None:
        """Notes that an env is being drawn, together with others: ``at_once`` in all."""
        self._turn += 1
        self._turns[env] = self._turn
        self._asked[env] = stamp, at_once

    def take(self, frame: Frame, now: float) -> tuple[int, bool]:
        """Keeps a picture. Returns how many were drawn at once with it, and whether it is the first of its worker."""
        stamp, at_once = self._asked.pop(frame.env_id, (None, 1))
        with self._lock:
            if stamp is not None:
                self._stamps[frame.env_id] = stamp
            self._count += 1
            self._shown[frame.env_id] = LastPicture(self._count, now, frame, stamp)
            self._times.append((now, frame.env_id))
        crew = next(number for number, one in enumerate(self._crews) if frame.env_id in one)
        is_first = crew not in self._begun
        self._begun.add(crew)
        return min(at_once, len(self._crews)), is_first

    # ---- what is shown -----------------------------------------------------------------------

    @property
    def count(self) -> int:
        """How many pictures there have been: the number of the last one."""
        return self._count

    def shown(self, env: int) -> LastPicture | None:
        """The last picture of an env, if there is one."""
        with self._lock:
            return self._shown.get(env)

    def seconds_between(self, envs: Sequence[int], now: float) -> float | None:
        """How far apart the pictures of these envs are on average; None if there are too few to tell."""
        with self._lock:
            times = [at for at, env in self._times if env in envs and now - at < _RATE_S]
        if len(times) < 2 or not envs:
            return None
        return (now - times[0]) * len(envs) / len(times)


# ---- time ----------------------------------------------------------------------------------------


class Budget:
    """Time for drawing: nothing is drawn before all that was spent is at most a share of the time that has passed.

    The first picture of each worker is not counted: it loads what draws.

    Args:
        now: The time at which it starts, in seconds.
        workers: How many workers draw, for the share of their time.
        limit: The share.
    """

    def __init__(self, now: float, workers: int, limit: float = SHARE) -> None:
        self.limit = limit
        self._workers = workers
        self._credit = 0.0
        self._counted_until = now
        self._spent = 0.0  # by workers
        self._samples: deque[tuple[float, float]] = deque([(now, 0.0)])

    def allows(self, now: float) -> bool:
        """Whether a picture may be drawn now."""
        self._credit = min(self._credit + (now - self._counted_until) * self.limit, _BURST_S)
        self._counted_until = now
        return self._credit >= 0.0

    def spend(self, seconds: float, workers: int = 1) -> None:
        """Counts what one picture took, while that many workers drew at once."""
        self._spent += seconds
        self._credit -= seconds / workers

    def spend_beside(self, seconds: float) -> None:
        """Counts work for pictures that no worker did: it delays the next one."""
        self._credit -= seconds

    def share(self, now: float) -> float:
        """The part of the workers' time that went into pictures lately."""
        if now - self._samples[-1][0] >= 0.5:
            self._samples.append((now, self._spent))
        while len(self._samples) > 2 and now - self._samples[1][0] >= _WINDOW_S:
            self._samples.popleft()
        since, spent = self._samples[0]
        return (self._spent - spent) / ((now - since) * self._workers) if now > since else 0.0


# ---- PNG files, without a package for pictures ---------------------------------------------------


def png_of(picture: np.ndarray) -> bytes:
    """The file of a picture (height, width, 3) of uint8."""
    height, width, _ = picture.shape
    # Each byte minus the one above it (the filter "up"): drawings then are mostly zeros.
    rows = np.empty((height, 1 + width * 3), np.uint8)
    rows[:, 0] = 2
    flat = picture.reshape(height, width * 3)
    rows[0, 1:] = flat[0]
    np.subtract(flat[1:], flat[:-1], out=rows[1:, 1:])
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"".join(
        [
            _SIGNATURE,
            _chunk(b"IHDR", header),
            _chunk(b"IDAT", zlib.compress(rows.data, _FASTEST)),
            _chunk(b"IEND", b""),
        ]
    )


def _chunk(name: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))
