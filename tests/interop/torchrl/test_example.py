"""``examples/torchrl_ppo.py`` for a few updates: `make examples` runs it to the end."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "torchrl_ppo.py"


def test_it_says_what_it_reached_and_learns_the_same_on_gymnasiums_envs(tmp_path: Path) -> None:
    curves = []
    for envs in ("stepmill", "gymnasium"):
        log = tmp_path / envs
        options = f"--envs {envs} --seed 7 --total-steps 1024 --episodes 5 --log {log}"
        command = [sys.executable, str(EXAMPLE), *options.split()]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
        assert "1,024 of 1,024 steps" in done.stdout
        assert re.search(r"CartPole-v1, seed 7: mean return \d+\.\d ± \d+\.\d over 5 episodes", done.stdout)
        curves.append([json.loads(line) for line in log.read_text().splitlines()])
    ours, theirs = ([(line["steps"], line["return"]) for line in curve] for curve in curves)
    assert ours == theirs
    assert [steps for steps, _ in ours] == [256, 512, 768, 1024]
