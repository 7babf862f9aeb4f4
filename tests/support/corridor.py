"""An env in the form of the oldest documents: ``info()`` and no spaces, ``seed(seed)``, a cfg in place of arguments."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from stepmill.envs import BaseEnv, BaseEnvInfo, BaseEnvTimestep, EnvElementInfo
from support.process_envs import tell_gate, wait_at_gate


class Corridor(BaseEnv):
    """Forward (1) or back (0), for ``length`` steps. The observation is (``id`` of the cfg, place, step).

    cfg, beside these: ``folder``, of a gate, and where ``close`` leaves a file; ``gated_resets`` and ``gated_steps``:
    which of its resets and steps, from 1, wait at the gate.
    """

    def __init__(self, cfg: dict) -> None:
        self._cfg = cfg
        self.cfg = cfg
        self.pid = os.getpid()
        self.seeds: list[int] = []
        self.starts: list[int] = []  # one per reset
        self.actions: list[np.ndarray] = []

    def reset(self, start: int = 0) -> np.ndarray:
        self.starts.append(start)
        self._come_to_gate("gated_resets", len(self.starts))
        self.place, self.steps = start, 0
        return self._observation()

    def step(self, action: np.ndarray) -> BaseEnvTimestep:
        self.actions.append(action)
        self._come_to_gate("gated_steps", len(self.actions))
        self.place += 1 if action.item() else -1
        self.steps += 1
        done = self.steps == self._cfg.get("length", 3)
        info = {"final_eval_reward": float(self.place)} if done else {}
        return BaseEnvTimestep(self._observation(), np.array([self.place], dtype=np.float32), done, info)

    def seed(self, seed: int) -> None:
        self.seeds.append(seed)

    def close(self) -> None:
        if "folder" in self._cfg:
            Path(self._cfg["folder"], f"closed-{self._cfg['id']}").touch()

    def info(self) -> BaseEnvInfo:
        return BaseEnvInfo(
            agent_num=1,
            obs_space=EnvElementInfo(shape=(3,), value={"min": -1000, "max": 1000, "dtype": np.float32}),
            act_space=EnvElementInfo(shape=(2,), value={"min": 0, "max": 2, "dtype": int}),
            rew_space=EnvElementInfo(shape=(1,), value={"min": -1000, "max": 1000, "dtype": np.float32}),
        )

    def __repr__(self) -> str:
        return "a corridor"

    def _observation(self) -> Any:
        return np.array([self._cfg.get("id", 0), self.place, self.steps], dtype=np.float32)

    def _come_to_gate(self, key: str, number: int) -> None:
        if number in self._cfg.get(key, ()):
            tell_gate(str(self._cfg["folder"]), self._cfg["id"])
            wait_at_gate(str(self._cfg["folder"]), self._cfg["id"])


def corridors(count: int, **cfg: Any) -> list[dict[str, Any]]:
    """The cfgs of so many of them."""
    return [{"id": env_id, **cfg} for env_id in range(count)]
