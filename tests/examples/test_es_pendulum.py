"""Evolution strategies for a few generations, as a reader runs them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "examples" / "es_pendulum.py"


def test_it_runs_and_says_what_it_reached(tmp_path: Path) -> None:
    arguments = "--seed 3 --generations 3 --members 8 --starts 2 --episodes 5 --log curve"
    command = [sys.executable, str(SCRIPT), *arguments.split()]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, timeout=600)
    assert (done.returncode, done.stderr) == (0, b"")
    printed = done.stdout.decode()
    assert re.findall(r"\rgeneration (\d) of 3, [^\r]* per second", printed) == ["1", "2", "3"], "a progress line"
    assert re.search(r"\nPendulum-v1, seed 3: mean return -\d+\.\d ± \d+\.\d over 5 episodes, after \d+ s", printed)
    curve = [json.loads(line) for line in (tmp_path / "curve").read_text().splitlines()]
    assert [line["steps"] for line in curve] == [3200, 6400, 9600]
    assert all(line["return"] < 0 for line in curve)
