"""``stepmill doctor``."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stepmill.tools.cli.diagnosis import machine, packages, trials
from stepmill.tools.cli.diagnosis.part import Part
from stepmill.tools.cli.diagnosis.trials import Trial, try_all

Run = Callable[..., Any]


def levels(part: Part) -> dict[str, str]:
    """What was found, by a word of it."""
    return {one.what: one.level for one in part.findings}


# ---- the machine ---------------------------------------------------------------------------------


def a_root(folder: Path, files: dict[str, str]) -> Path:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    (folder / "dev/shm").mkdir(parents=True, exist_ok=True)
    return folder


def test_this_machine_has_cores_memory_and_a_python() -> None:
    facts = machine.look_at_machine().facts
    assert f"{len(os.sched_getaffinity(0))} allowed" in facts["cores"]
    assert "available" in facts["memory"]
    assert sys.executable in facts["Python"]


def test_a_machine_that_cannot_draw(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    monkeypatch.setattr(machine, "is_installed", lambda package: True)
    monkeypatch.setattr(machine, "drawing_libraries", list)
    assert any("cannot be drawn here" in what for what in levels(machine.look_at_machine()))
    monkeypatch.setattr(machine, "drawing_libraries", lambda: ["egl"])
    part = machine.look_at_machine()
    assert part.facts["drawing"] == "EGL"
    assert not any("drawn" in what for what in levels(part))


@pytest.mark.parametrize(
    ("files", "quota"),
    [
        ({"proc/self/cgroup": "0::/", "sys/fs/cgroup/cpu.max": "150000 100000"}, 1.5),
        ({"proc/self/cgroup": "0::/job", "sys/fs/cgroup/job/cpu.max": "max 100000"}, None),
        (
            {
                "proc/self/cgroup": "4:memory:/\n3:cpu,cpuacct:/docker/ab\n0::/",
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "200000",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
            },
            2.0,
        ),
        (
            {
                "proc/self/cgroup": "1:cpu:/docker/ab",
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "200000",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
            },
            2.0,
        ),
        ({}, None),
    ],
)
def test_the_quota_of_a_cgroup(tmp_path: Path, files: dict[str, str], quota: float | None) -> None:
    assert machine.cgroup_quota(a_root(tmp_path, files)) == quota


def test_few_processes_and_a_strict_ptrace_are_found(tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": "0::/",
        "proc/self/status": "",
        "sys/fs/cgroup/pids.max": "100",
        "sys/fs/cgroup/pids.current": "90",
        "proc/sys/kernel/yama/ptrace_scope": "2",
    }
    part = machine.look_at_limits(a_root(tmp_path, files))
    assert "100 in this cgroup (90 now)" in part.facts["processes"]
    found = levels(part)
    assert found["the cgroup allows 10 more processes and threads"] == "warning"
    assert any("ptrace_scope is 2" in what for what in found)


def test_a_system_without_proc_and_shm_is_found(tmp_path: Path) -> None:
    found = levels(machine.look_at_limits(tmp_path))
    assert found["/proc is not there"] == "broken"
    assert found["there is no /dev/shm"] == "warning"


def test_low_limits_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    low = {resource.RLIMIT_NOFILE: (256, 4096), resource.RLIMIT_NPROC: (20, 20), resource.RLIMIT_AS: (1 << 30, -1)}
    real = resource.getrlimit
    monkeypatch.setattr(resource, "getrlimit", lambda which: low.get(which) or real(which))
    part = machine.look_at_limits()
    advice = {one.what: one.advice for one in part.findings}
    assert (
        advice["a process may have only 256 open files, which is enough for some 42 worker processes"]
        == "ulimit -n 4096"
    )
    assert any("only 20 processes" in what for what in advice)
    assert any("address space is limited to 1.0 GB" in what for what in advice)


def test_a_kernel_that_refuses_pidfds_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(pid: int) -> int:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "pidfd_open", refused)
    broken = [one for one in machine.look_at_limits().findings if one.level == "broken"]
    assert [one.what for one in broken] == [
        "the system refuses pidfd_open, which worker processes need: Operation not permitted"
    ]
    assert "seccomp" in broken[0].advice


# ---- packages ------------------------------------------------------------------------------------


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Pretends that these versions are installed, and nothing else; ``requires`` are their own requirements."""

    def pretend(versions: dict[str, str], requires: dict[str, list[str]] | None = None) -> None:
        own = packages.metadata.requires("stepmill")
        everything = {"stepmill": "0.1.0", **versions}
        needs = {"stepmill": own, **(requires or {})}
        monkeypatch.setattr(packages, "_installed", lambda: everything)
        monkeypatch.setattr(packages.metadata, "requires", lambda name: needs.get(name, []))

    return pretend


CORE = {
    "numpy": "2.4.0",
    "gymnasium": "1.4.0",
    "dm-env": "1.6",
    "cloudpickle": "3.1",
    "typing-extensions": "4.16",
    "click": "8.2",
    "matplotlib": "3.10",
    "rich": "14",
    "packaging": "26",
}


def test_nothing_is_found_in_a_good_installation(installed: Any) -> None:
    installed({**CORE, "mujoco": "4.0.1", "pygame-ce": "2.5.6", "dm-control": "1.0.60"})
    part = packages.look_at_packages()
    assert part.findings == []
    assert part.facts["mujoco"] == "4.0.1"


@pytest.mark.parametrize(
    ("versions", "level", "said"),
    [
        ({"mujoco": "4.0.0"}, "warning", "Newton solver of MuJoCo 4.0.0"),
        ({"mujoco": "4.0.1", "dm-control": "1.0.50"}, "broken", "dm-control up to 1.0.50 does not work"),
        ({"mujoco": "3.12.0", "gymnasium-robotics": "1.4.2"}, "warning", "FrankaKitchen"),
        ({"pygame": "2.6", "pygame-ce": "2.5.6"}, "broken", "pygame and pygame-ce have their files"),
        ({"pygame": "2.6"}, "note", "and not pygame-ce"),
        ({"opencv-python": "4.8", "opencv-python-headless": "4.8"}, "warning", "opencv-python-headless"),
        ({"numpy": "1.20"}, "broken", "stepmill 0.1.0 needs numpy>=1.26, got 1.20"),
    ],
)
def test_known_bad_versions(installed: Any, versions: dict[str, str], level: str, said: str) -> None:
    installed({**CORE, **versions})
    (found,) = packages.look_at_packages().findings
    assert found.level == level
    assert said in found.what
    assert found.advice


def test_packages_that_exclude_each_other(installed: Any) -> None:
    installed({**CORE, "nle": "1.3", "minigrid": "3.2"}, {"nle": ["gymnasium==1.2.0"], "minigrid": ["pygame-ce"]})
    found = {one.what: one.advice for one in packages.look_at_packages().findings}
    assert "python=FOLDER" in found["nle 1.3 needs gymnasium==1.2.0, got 1.4.0"]
    assert found["minigrid 3.2 needs pygame-ce, which is not installed"] == "pip install 'pygame-ce'"


def test_extras_are_whole_missing_or_partly_there(installed: Any) -> None:
    nested = {"pettingzoo": ['pymunk; extra == "butterfly"', 'chess; extra == "classic"', "broken requirement ["]}
    installed({**CORE, "pettingzoo": "1.27", "mpe2": "1.0", "scipy": "1.17", "pymunk": "7.0", "jax": "0.6"}, nested)
    facts = packages.look_at_extras().facts
    assert facts["jax"] == facts["cli"] == "installed"
    assert facts["atari"] == "pip install 'stepmill[atari]'"
    without = "without pettingzoo[butterfly,classic]>=1.24: pip install 'stepmill[pettingzoo]'"
    assert facts["pettingzoo"] == without
    assert "test" not in facts


# ---- trials --------------------------------------------------------------------------------------


def test_what_fails_crashes_or_is_missing_is_a_line() -> None:
    part = Part("trials")
    tried = [
        Trial("good", "import json", "-"),
        Trial("absent", "import no_such_module", "install it"),
        Trial("crashing", "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "-"),
        Trial("quiet", "raise SystemExit(7)", "-"),
        Trial("optional", "import sys; sys.stderr.write('pip install it\\n'); sys.exit(3)", "-"),
    ]
    seen: list[str] = []
    try_all(part, tried, lambda trial: seen.append(trial.name))
    assert sorted(seen) == sorted(one.name for one in tried)
    assert part.facts == {
        "good": "works", "absent": "fails", "crashing": "fails", "quiet": "fails", "optional": "pip install it",
    }  # fmt: skip
    assert {one.what for one in part.findings} == {
        "absent: ModuleNotFoundError: No module named 'no_such_module'",
        "crashing: it crashed: Segmentation fault",
        "quiet: it exited with code 7",
    }


def test_there_is_a_pool_for_every_backend() -> None:
    names = " ".join(one.name for one in trials.pools())
    for backend in ("thread", "process", "inline"):
        assert f"on {backend!r}" in names


def a_package(folder: Path, name: str, code: str) -> None:
    """As pip would have installed it."""
    (folder / name).mkdir(parents=True)
    (folder / name / "__init__.py").write_text(code)
    about = folder / f"{name}-9.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 9.0\n")
    (about / "RECORD").write_text(f"{name}/__init__.py,,\n")


def test_a_broken_package_is_found_and_the_pools_work(
    stepmill_command: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a_package(tmp_path, "minigrid", "raise RuntimeError('half installed')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    every = trials.imports()
    monkeypatch.setattr(trials, "imports", lambda: [one for one in every if one.name == "minigrid"])
    done = stepmill_command("doctor", "--json")
    assert done.code == 1
    found = done.json
    assert found["packages"]["minigrid"] == "9.0"
    assert found["imports"] == {"minigrid": "fails"}
    assert set(found["pools"].values()) == {"works"}
    (broken,) = (one for one in found["findings"] if one["what"].startswith("minigrid:"))
    assert broken["what"] == "minigrid: RuntimeError: half installed"
    assert broken["advice"].startswith("pip install --force-reinstall 'minigrid")
    assert broken["level"] == "broken"


def test_the_report_in_words(stepmill_command: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trials, "imports", list)
    monkeypatch.setattr(trials, "pools", lambda: [Trial("a pool", "import no_such_module", "mend it")])
    monkeypatch.setattr(packages, "_installed", lambda: {**CORE, "stepmill": "0.1.0"})
    done = stepmill_command("doctor")
    assert done.code == 1
    assert "a pool  fails" in done.out
    assert "broken: a pool: ModuleNotFoundError" in done.out
    assert "-> mend it" in done.out


def test_a_good_installation_is_exit_code_0(stepmill_command: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trials, "imports", list)
    monkeypatch.setattr(trials, "pools", list)
    monkeypatch.setattr(packages, "_installed", lambda: {**CORE, "stepmill": "0.1.0"})
    done = stepmill_command("doctor", "--json")
    assert (done.code, done.json["broken"]) == (0, False)


INTERRUPTED = """
import sys
from stepmill.tools.cli.diagnosis import trials
from stepmill.tools.cli.entry import main

stuck = f"open({sys.argv[1]!r}, 'w').close(); import signal; signal.pause()"
trials.pools = lambda: [trials.Trial("good", "import json", "-")]
trials.imports = lambda: [trials.Trial("stuck", stuck, "-")]
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
