"""Stands for moviepy, which Gymnasium's ``RecordVideo`` imports: its videos are files of arrays."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import numpy as np
import pytest


class Clip:
    """Only has to write what it is given."""

    def __init__(self, frames: list[np.ndarray], fps: int) -> None:
        self.frames, self.fps = frames, fps

    def write_videofile(self, path: str, logger: Any = None) -> None:
        np.savez(path, frames=self.frames, fps=self.fps)


def pretend_moviepy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("moviepy", "moviepy.video", "moviepy.video.io", "moviepy.video.io.ImageSequenceClip"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    sys.modules["moviepy.video.io.ImageSequenceClip"].ImageSequenceClip = Clip  # type: ignore[attr-defined]
