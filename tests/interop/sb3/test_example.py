"""``examples/sb3_ppo.py`` runs, for a few updates. `make examples` runs it to the end."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).parents[3] / "examples" / "sb3_ppo.py"


def test_it_trains_and_says_what_it_reached() -> None:
    command = [sys.executable, str(EXAMPLE), "--total-timesteps", "1024", "--episodes", "4", "--seed", "2"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    *_, progress, _, reached = done.stdout.splitlines()
    assert "1,024 of 1,024 steps" in progress
    assert "mean return of the last 100 episodes" in progress
    assert reached.startswith("seed 2: mean return ")
    assert reached.endswith(" over 4 episodes")
