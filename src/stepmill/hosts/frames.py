"""Pictures of envs for somebody who watches: small ones, with the time that they took. Made where the envs live."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from stepmill.errors import summary
from stepmill.system.uninterrupted import try_or

_MOST_TEXT = 4000


class Frame(NamedTuple):
    """What one env looked like. It has a picture (height, width, 3) of uint8, a text, or why there is neither."""

    env_id: int
    seconds: float  # that its worker spent on it
    content: np.ndarray | str | None
    failure: str | None = None


def frame_of(env_id: int, render: Callable[[], Any], most: int) -> Frame:
    """Calls ``render``; pictures have at most ``most`` pixels per side. What ``render`` raises is the failure."""
    start = time.perf_counter()
    content, failure = try_or(lambda: (_content_of(render(), most), None), lambda error: (None, summary(error)))
    if content is None and failure is None:
        failure = "render() returned nothing that can be shown"
    return Frame(env_id, time.perf_counter() - start, content, failure)


class FramesAtOnce:
    """The part of a ``Host`` that shows envs which the calling thread draws, as soon as it is asked to."""

    _num_envs: int
    _frames: list[Frame] = []  # noqa: RUF012  (replaced, not changed)

    def _draw(self, env_id: int) -> Any:
        """What ``render`` of an env returns."""
        raise NotImplementedError

    @property
    def crews(self) -> list[range]:
        return [range(self._num_envs)]

    def ask_frames(self, env_ids: Sequence[int], most: int) -> list[int]:
        drawn = [frame_of(env_id, functools.partial(self._draw, env_id), most) for env_id in env_ids]
        self._frames = [*self._frames, *drawn]
        return list(env_ids)

    def take_frames(self) -> list[Frame]:
        frames, self._frames = self._frames, []
        return frames


def _content_of(shown: Any, most: int) -> np.ndarray | str | None:
    if isinstance(shown, list | tuple) and shown:  # of "rgb_array_list": the last one
        shown = shown[-1]
    if isinstance(shown, str):
        return shown[:_MOST_TEXT]
    picture = picture_of(shown)
    return None if picture is None else shrunk(picture, most)


def picture_of(array: Any) -> np.ndarray | None:
    """An array of any kind that looks like a picture, as (height, width, 3) of uint8; None if it does not."""
    if not isinstance(array, np.ndarray) or array.dtype.kind not in "uif" or array.size == 0:
        return None
    if array.ndim == 3 and array.shape[-1] not in (1, 3, 4) and array.shape[0] <= 32:
        # Channels first. Other than three of them are a stack of grey pictures: the last one is the newest.
        array = np.moveaxis(array, 0, -1) if array.shape[0] == 3 else array[-1]
    if array.ndim == 2:
        array = array[:, :, None]
    if array.ndim != 3 or min(array.shape[:2]) < 8:
        return None
    colours = array[:, :, :3] if array.shape[2] in (3, 4) else np.repeat(array[:, :, -1:], 3, axis=2)
    return colours if colours.dtype == np.uint8 else _scaled(colours)


def _scaled(values: np.ndarray) -> np.ndarray:
    """Numbers of any range, such as depths, from black to white."""
    finite = np.where(np.isfinite(values), values, 0).astype(np.float32)
    low, high = float(finite.min()), float(finite.max())
    if values.dtype.kind == "f" and low >= 0 and high <= 1:
        low, high = 0.0, 1.0
    return ((finite - low) * (255 / ((high - low) or 1))).astype(np.uint8)


def shrunk(picture: np.ndarray, most: int) -> np.ndarray:
    """The picture with each side divided by a whole number, so that both are at most ``most``; a copy."""
    by = -(-max(picture.shape[:2]) // most)
    height, width = picture.shape[0] // by * by, picture.shape[1] // by * by
    if by == 1 or not height or not width:
        return np.ascontiguousarray(picture)
    # The mean of each square. Sums of slices take a third of the time of `mean` over two axes.
    squares = [picture[y:height:by, x:width:by] for y in range(by) for x in range(by)]
    total = squares[0].astype(np.uint16 if by <= 16 else np.uint32)  # type: np.ndarray[Any, Any]
    for square in squares[1:]:
        total += square
    total //= by * by
    return total.astype(np.uint8)
