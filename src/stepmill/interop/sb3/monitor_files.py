"""The files that SB3's ``Monitor`` writes, from what the engine counts."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from stable_baselines3.common.monitor import ResultsWriter

__all__ = ["MonitorFiles"]


class MonitorFiles:
    """``<folder>/<env>.monitor.csv``, with a line per episode: return, length, seconds since the start."""

    def __init__(self, folder: str | os.PathLike[str], names: Sequence[int], started: float, env_id: str) -> None:
        header = {"t_start": started, "env_id": env_id}
        self._writers = [ResultsWriter(os.path.join(folder, str(name)), header=header) for name in names]

    def write(self, env: int, episode: dict[str, Any]) -> None:
        """Adds an episode of one env."""
        self._writers[env].write_row(episode)

    def close(self) -> None:
        """Closes the files; what was written is there."""
        for writer in self._writers:
            writer.close()
