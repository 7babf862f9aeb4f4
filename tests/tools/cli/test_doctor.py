"""``stepmill doctor``."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stepmill.tools.cli.commands import doctor
from stepmill.tools.cli.commands.doctor import Probe

Run = Callable[..., Any]


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Callable[[dict[str, str]], None]:
    """Pretends that these versions are installed, and nothing else."""
    return lambda versions: monkeypatch.setattr(doctor, "version_of", versions.get)


def test_nothing_is_known_against_a_good_installation(installed: Any) -> None:
    installed({"numpy": "2.4.0", "mujoco": "4.0.1", "pygame-ce": "2.5.6", "dm-control": "1.0.60"})
    assert doctor.misfits() == {}


@pytest.mark.parametrize(
    ("versions", "said"),
    [
        ({"mujoco": "4.0.0"}, "mujoco==4.0.0 has a wrong solver"),
        ({"mujoco": "4.0.1", "dm-control": "1.0.50"}, "dm-control<=1.0.50 and mujoco>=4 do not work together"),
        ({"mujoco": "3.12.0", "gymnasium-robotics": "1.4.2"}, "fail in Fetch"),
        ({"pygame": "2.6", "pygame-ce": "2.5.6"}, "pygame and pygame-ce have their files"),
        ({"opencv-python": "4.8", "opencv-python-headless": "4.8"}, "opencv-python-headless have their files"),
    ],
)
def test_known_bad_versions(installed: Any, versions: dict[str, str], said: str) -> None:
    installed({"numpy": "2.4.0", **versions})
    [(what, advice)] = doctor.misfits().items()
    assert said in what
    assert advice


@pytest.mark.parametrize(
    ("code", "outcome"),
    [
        ("import json", "works"),
        ("import no_such_module", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "it crashed: Segmentation fault"),
        ("raise SystemExit(7)", "it exited with code 7"),
    ],
)
def test_the_outcome_of_a_trial(code: str, outcome: str) -> None:
    assert doctor.outcome_of(Probe("a trial", code, "-")) == outcome


def test_a_trial_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_SECONDS", 0.01)
    assert doctor.outcome_of(Probe("stuck", "import signal; signal.pause()", "-")) == "it took longer than 0 s"


def test_there_is_a_pool_for_every_backend() -> None:
    names = [one.name for one in doctor.trials()]
    for backend in ("thread", "process", "inline"):
        assert f"pool on {backend!r}" in names


def test_a_broken_package_is_found_and_the_pools_work(
    stepmill_command: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "minigrid").mkdir()
    (tmp_path / "minigrid/__init__.py").write_text("raise RuntimeError('half installed')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    every = doctor.trials()
    wanted = ("pool on 'thread'", "pool on 'process'", "import minigrid")
    monkeypatch.setattr(doctor, "trials", lambda: [one for one in every if one.name in wanted])
    done = stepmill_command("doctor", "--json")
    assert done.code == 1
    assert done.json["broken"] == {
        "import minigrid: RuntimeError: half installed": "pip install --force-reinstall minigrid"
    }
    trials = done.json["trials"]
    assert (trials["pool on 'thread'"], trials["pool on 'process'"]) == ("works", "works")
    assert done.json["packages"]["numpy"]


def test_the_report_in_words(stepmill_command: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    tried = [
        Probe("good", "import json", "-"),
        Probe("a pool", "import no_such_module", "mend it"),
        Probe("a picture", "raise SystemExit('no EGL')", "for pictures only", is_needed=False),
    ]
    monkeypatch.setattr(doctor, "trials", lambda: tried)
    done = stepmill_command("doctor")
    assert done.code == 1
    assert "works     good\n" in "\n".join(line.strip() for line in done.out.splitlines()) + "\n"
    assert "broken: a pool: ModuleNotFoundError" in done.out
    assert "-> mend it" in done.out
    assert "note: a picture: no EGL\n  -> for pictures only" in done.out


def test_notes_are_exit_code_0(stepmill_command: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "trials", lambda: [Probe("a picture", "raise SystemExit(1)", "-", is_needed=False)])
    done = stepmill_command("doctor")
    assert done.code == 0
    assert "Everything that is needed works." in done.out


INTERRUPTED = """
import sys
from stepmill.tools.cli.commands import doctor
from stepmill.tools.cli.entry import main

stuck = f"open({sys.argv[1]!r}, 'w').close(); import signal; signal.pause()"
doctor.trials = lambda: [doctor.Probe("good", "import json", "-"), doctor.Probe("stuck", stuck, "-")]
sys.exit(main(["doctor", "--json"]))
"""


def test_ctrl_c_ends_it_with_what_there_is(tmp_path: Path) -> None:
    started = tmp_path / "started"
    os.mkfifo(started)
    command = [sys.executable, "-c", INTERRUPTED, str(started)]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    started.read_text()  # waits for the trial that does not end
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=600)
    assert child.returncode == 130, err
    assert '"good": "works"' in out
    assert '"stuck": "not tried"' in out
    assert '"interrupted": true' in out
    assert "Traceback" not in err
