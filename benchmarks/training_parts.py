"""A whole training: ``examples/ppo.py`` with only the line changed that makes the envs."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.timing import Effort, Log
from stepmill.tools.measuring.machine import cores

ROOT = Path(__file__).resolve().parent.parent
MODULE = "benchmarks.training_envs"
CONTESTANTS = ("stepmill", "gymnasium", "gymnasium-async")
# Without the evaluation at the end.
PROGRAM = "import sys; sys.path.insert(0, 'examples'); import ppo; ppo.train(ppo.arguments())"


@dataclass(frozen=True)
class Case:
    """Envs, and how PPO trains on them."""

    env: str
    id: str
    num_envs: int
    num_steps: int
    updates: int
    learning: tuple[str, ...]  # more arguments of ppo.py
    theirs: str = ""  # the id on Gymnasium's side, if it is another one
    package: str = ""
    is_picture: bool = False

    def command(self, contestant: str, device: str, log: Path) -> list[str]:
        id = self.id if contestant == "stepmill" or not self.theirs else self.theirs
        sizes = {"num-envs": self.num_envs, "num-steps": self.num_steps}
        sizes["total-steps"] = self.num_envs * self.num_steps * self.updates
        arguments = [word for name, size in sizes.items() for word in (f"--{name}", str(size))]
        where = ["--device", device if self.is_picture else "cpu"]  # small networks are faster on the CPU
        common = ["--env-id", id, "--envs", contestant, *arguments, *where, *self.learning, "--log", str(log)]
        return [sys.executable, "-W", "ignore", "-c", PROGRAM, *common]


def _cases() -> list[Case]:
    few = ("--epochs", "4", "--minibatches", "4")
    usual = ("--epochs", "10", "--minibatches", "8")
    return [
        Case("CartPole-v1", "CartPole-v1", 8, 32, 30, ()),
        Case("CartPole-v1", "CartPole-v1", 256, 32, 4, few),
        Case("HalfCheetah-v5", "HalfCheetah-v5", 32, 64, 5, usual, package="mujoco"),
        Case("Pong, preprocessed", "Pong-v5", 4 * cores(), 32, 3, few, f"{MODULE}:Pong-v5", "ale_py", is_picture=True),
        Case("Python envs of about 1 ms", f"{MODULE}:Slow-v0", 4 * cores(), 64, 5, few),
    ]


def training(effort: Effort, log: Log) -> list[dict[str, Any]]:
    """Steps per second of PPO, and the share of the time that it waits for envs. One run of each: some updates."""
    if importlib.util.find_spec("torch") is None:
        log("no torch: left out")
        return []
    rows = []
    for case in _cases():
        if case.package and importlib.util.find_spec(case.package) is None:
            log(f"no {case.package}: {case.env} is left out")
            continue
        log(f"PPO on {case.num_envs} {case.env}")
        row: dict[str, Any] = {"env": case.env, "num_envs": case.num_envs}
        row["device"] = effort.device if case.is_picture else "cpu"
        for name in CONTESTANTS:
            row[name.replace("-", "_")] = _run(case, name, effort.device)
        rows.append(row)
    return rows


def _run(case: Case, contestant: str, device: str) -> dict[str, float]:
    """Without the first update, which warms up."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log"
        done = subprocess.run(case.command(contestant, device, path), cwd=ROOT, capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"ppo.py on {case.num_envs} {case.env}, {contestant}: {done.stderr[-2000:]}")
        first, *_, last = (json.loads(line) for line in path.read_text(encoding="utf-8").splitlines())
    seconds = last["seconds"] - first["seconds"]
    inside = last["seconds"] * last["env_share"] - first["seconds"] * first["env_share"]
    return {"steps_per_s": (last["steps"] - first["steps"]) / seconds, "env_share": inside / seconds}
