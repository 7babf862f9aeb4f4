"""Envs for the tests of the managers: they walk, and fail, stop or wait where a test wants them to."""

from __future__ import annotations

import collections
import os
from pathlib import Path
from typing import Any

import numpy as np
from contract_envs import Walk
from gymnasium import spaces
from process_envs import MISHAPS, tell_gate

from stepmill.envs import BaseEnvTimestep
from stepmill.managers import BaseEnvManager


class Trial(Walk):
    """A walk with mishaps.

    cfg, beside that of ``Walk``: ``mishaps``, from the name of a method to a mishap and the calls that suffer it, which
    count from 1 in each env; ``lives``: the envs of this id that suffer, by default all that are built in turn; a
    ``folder``, for gates and for what is to be counted beyond the life of a worker; ``id``, for the constructor, since
    envs are told theirs later.
    """

    def __init__(self, cfg: Any = None) -> None:
        super().__init__(cfg)
        self.env_id = self._cfg.get("id", 0)
        self.folder = str(self._cfg.get("folder", ""))
        self.life = self._count("lives")
        self._calls: collections.Counter[str] = collections.Counter()
        self._suffer("constructor")

    def seed(self, seed: int, dynamic_seed: bool = True) -> None:
        self._suffer("seed")
        super().seed(seed, dynamic_seed)

    def reset(self, **kwargs: Any) -> np.ndarray:
        self._suffer("reset")
        return super().reset(**kwargs)

    def step(self, action: np.ndarray) -> BaseEnvTimestep:
        self._suffer("step")
        return super().step(action)

    def close(self) -> None:
        self._suffer("close")
        self._count("closed")
        super().close()

    def visit(self, value: Any = None) -> tuple[int, Any]:
        """A method: the id, and what was passed."""
        self._suffer("visit")
        return self.env_id, value

    @property
    def pid(self) -> int:
        """Where it runs."""
        return os.getpid()

    def _count(self, name: str) -> int:
        """How often this happened to envs of this id, with this time."""
        if not self.folder:
            return 1
        path = Path(self.folder, f"{name}-{self.env_id}")
        with path.open("ab") as file:
            file.write(b"x")
        return path.stat().st_size

    def _suffer(self, where: str) -> None:
        mishap, at = self._cfg.get("mishaps", {}).get(where, ("", ()))
        if not mishap or self.life not in self._cfg.get("lives", range(1, 100)):
            return
        self._calls[where] += 1
        if self._calls[where] in at:
            tell_gate(self.folder, self.env_id)
            MISHAPS[mishap](self)  # type: ignore[arg-type]
