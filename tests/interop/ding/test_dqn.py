"""DI-engine's own DQN for CartPole reaches its stop value on our managers. This takes minutes."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.mark.parametrize(
    ("script", "manager"),
    [
        ("dqn_serial.py", "stepmill_base"),
        ("dqn_serial.py", "stepmill_subprocess"),
        ("dqn_serial.py", "stepmill_async_subprocess"),
        ("dqn_task.py", "stepmill_base_v2"),
        ("dqn_task.py", "stepmill_subprocess_v2"),
    ],
)
def test_dqn_reaches_its_stop_value(script, manager, tmp_path):
    command = [sys.executable, "-W", "ignore", str(HERE / script), manager, "--folder", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    said = json.loads(done.stdout.splitlines()[-1])
    assert said["eval_value"] >= 195
    assert "Traceback" not in done.stderr
    assert "ignored in" not in done.stderr
