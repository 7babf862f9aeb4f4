"""Go-Explore in a small maze, as a reader runs it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "examples" / "go_explore.py"
FOUND = r"{}: the goal in (\d+) steps \(reward 1\), (\d+) cells; ([\d,]+) steps, of which ([\d,]+) to return; "


def test_it_reaches_a_goal_that_a_random_policy_does_not() -> None:
    arguments = "--seed 3 --size 8 --num-envs 32 --replay"
    done = subprocess.run([sys.executable, str(SCRIPT), *arguments.split()], capture_output=True, timeout=600)
    assert (done.returncode, done.stderr) == (0, b"")
    printed = done.stdout.decode()
    restored, replayed = (re.search(FOUND.format(name), printed) for name in ("restore", "replay"))
    assert restored is not None, printed
    assert replayed is not None, printed
    assert restored.groups()[:2] == replayed.groups()[:2], "both searches find the same"
    steps, returned, all_steps, all_returned = (
        int(one[group].replace(",", "")) for one in (restored, replayed) for group in (3, 4)
    )
    assert returned == 0
    assert all_steps - all_returned == steps, "they explore alike"
    assert re.search(r"\na random policy, in as many steps as with restore: \d+ cells, reward 0\n", printed)
    assert re.search(r"\nreplaying needs [\d.]+ times the steps, [\d.]+ times the time, and \d+ times", printed)
