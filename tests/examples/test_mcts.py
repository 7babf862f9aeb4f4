"""The tree search for a few moves, as a reader runs it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "examples" / "mcts.py"


def test_it_plays_and_says_what_it_gained() -> None:
    arguments = "--seed 3 --episodes 1 --most-moves 40 --num-envs 16 --batches 4 --replays 2"
    done = subprocess.run([sys.executable, str(SCRIPT), *arguments.split()], capture_output=True, timeout=600)
    assert (done.returncode, done.stderr) == (0, b"")
    printed = done.stdout.decode()
    assert "\nCartPole-v1, seed 3: mean return 40.0 over 1 episodes\n" in printed, "it balances the pole"
    assert re.search(
        r"\n[\d,]+ simulations per second; replaying 20 actions in Gymnasium for each: [\d,]+, so [\d,]+ times", printed
    )
