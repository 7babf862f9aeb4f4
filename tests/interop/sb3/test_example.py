"""``examples/sb3_ppo.py`` for a few updates: `make examples` runs it to the end."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "sb3_ppo.py"


def test_it_says_what_it_reached_and_learns_the_same_on_sb3s_own_envs(tmp_path: Path) -> None:
    curves, ends = [], []
    for envs in ("stepmill", "dummy"):
        log = tmp_path / envs
        command = [sys.executable, str(EXAMPLE), "--envs", envs, "--log", str(log), "--total-steps", "1024"]
        done = subprocess.run(
            [*command, "--episodes", "4", "--seed", "2"], capture_output=True, text=True, check=True, timeout=600
        )
        *_, progress, reached = done.stdout.splitlines()
        assert "1,024 of 1,024 steps" in progress
        assert "over 4 episodes" in reached
        ends.append(reached.partition(", after")[0])
        lines = [json.loads(line) for line in log.read_text().splitlines()]
        curves.append([(line["steps"], line["return"]) for line in lines])
    assert curves[0] == curves[1]
    assert len(curves[0]) == 4
    assert ends[0] == ends[1]
