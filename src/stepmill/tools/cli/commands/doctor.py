"""``stepmill doctor``: what works here, what does not, and what to do about it."""

from __future__ import annotations

import contextlib
import os
import platform
import signal
import subprocess
import sys
from importlib import metadata
from typing import Any, NamedTuple

import click
from packaging.requirements import Requirement
from rich.console import Console
from rich.text import Text

from stepmill import _native
from stepmill.system import optional
from stepmill.tools.cli.options import json_option
from stepmill.tools.cli.program import FAILED
from stepmill.tools.cli.terminal import Terminal, pairs, until_interrupted

_PACKAGES = [one for one in vars(optional).values() if isinstance(one, optional.Package)]
_SECONDS = 120.0  # that a trial may take


class Probe(NamedTuple):
    """Code that is run in a process of its own: whatever is broken there, the doctor survives it."""

    name: str
    code: str
    advice: str
    is_needed: bool = True  # whether something is broken if it fails


_POOL = """import stepmill
with stepmill.make({!r}, num_envs=2, backend={!r}) as pool:
    for _ in range(20):
        pool.step(pool.action_space.sample())"""
_KERNEL = "import os; os.memfd_create('doctor'); os.pidfd_open(os.getpid()); open('/proc/self/status')"
_SHM = "import os; s = os.statvfs('/dev/shm'); assert s.f_frsize * s.f_blocks >= 1 << 30, 'it is smaller'"
_DRAWING = "from stepmill.system.headless import drawing_libraries as found; assert found(), 'no EGL, no OSMesa'"
_FOLDER = "have their files in the same folder, so that one has overwritten the other"
# Packages that do not work, or not together, though pip installs them: in these versions, why, and what to do.
_KNOWN = (
    # Release notes of 4.0.1, google-deepmind/mujoco#3767. Gymnasium's tasks are smaller.
    ("mujoco==4.0.0", "has a wrong solver for models of 60 and more degrees of freedom", "pip install -U mujoco"),
    ("dm-control<=1.0.50 mujoco>=4", "do not work together", "pip install 'stepmill[dm-control]'"),
    ("gymnasium-robotics<=1.4.2 mujoco>=3.12", "fail in Fetch, Hand and Kitchen", "pip install 'stepmill[robotics]'"),
    ("pygame pygame-ce", _FOLDER, "pip uninstall pygame pygame-ce && pip install pygame-ce"),
    ("opencv-python opencv-python-headless", _FOLDER, "uninstall both, then install opencv-python-headless"),
)


@click.command("doctor")
@json_option
def command(terminal: Terminal) -> int:
    """Look at this machine and what is installed: what works, what does not, and what to do about it.

    It imports each optional package and makes a tiny pool on every backend. The exit code is 1 if one of them fails.
    """
    tried = trials()
    outcomes = {trial.name: "not tried" for trial in tried}
    with until_interrupted() as ending, terminal.progress("trying it out", len(tried), unit="trials") as bar:
        for trial in tried:
            bar.say(trial.name)
            outcomes[trial.name] = outcome_of(trial)
            bar.add(1)
    failed = [one for one in tried if outcomes[one.name] not in ("works", "not tried")]
    broken = {f"{one.name}: {outcomes[one.name]}": one.advice for one in failed if one.is_needed}
    notes = {f"{one.name}: {outcomes[one.name]}": one.advice for one in failed if not one.is_needed}
    names = ("stepmill", "numpy", "gymnasium", *(one.name for one in _PACKAGES))
    document = {
        "broken": broken,
        "notes": notes | misfits(),
        "system": f"{platform.system()} {platform.release()}, {platform.machine()}",
        "Python": f"{platform.python_version()}, {sys.executable}",
        "cores": f"{_native.available_cores()} for pools, {os.cpu_count()} in the machine",
        "packages": {name: version for name in names if (version := version_of(name)) is not None},
        "trials": outcomes,
        "interrupted": ending.interrupted,
    }
    terminal.result(document, lambda out: _draw(out, document))
    return ending.code or (FAILED if broken else 0)


def trials() -> list[Probe]:
    """What can be tried here."""
    seccomp = "Linux 5.3 or later; in a container, its seccomp profile must allow them (Docker 20.10 or later)"
    there = {one.name: one.module for one in _PACKAGES if optional.is_installed(one)}
    pools = {"thread": "CartPole-v1", "process": "gymnasium:CartPole-v1", "inline": "gymnasium:CartPole-v1"}
    pools |= {"ray": "CartPole-v1"} if "ray" in there else {}
    found = [Probe("kernel calls of workers", _KERNEL, seccomp)]
    found += [Probe(f"pool on {one!r}", _POOL.format(task, one), "see what it says") for one, task in pools.items()]
    found.append(Probe("1 GB of /dev/shm", _SHM, "for ViZDoom and torch only: docker run --shm-size=1g", False))
    if "mujoco" in there:
        found.append(Probe("MuJoCo on threads", _POOL.format("Ant-v5", "thread"), "see what it says"))
        found.append(Probe("drawing without a display", _DRAWING, "apt install libegl1 libgl1-mesa-dri", False))
    if "torch" in there:
        cuda = "for device='cuda' only: a GPU, its driver, and a torch with CUDA"
        found.append(Probe("GPU in torch", "import torch; torch.zeros(1).cuda()", cuda, False))
    if version_of("nvidia-cuda-nvrtc") is not None:
        cuda = "for backend='cuda' only: an NVIDIA GPU, its driver, and pip install 'stepmill[cuda]'"
        found.append(Probe("pool on 'cuda'", _POOL.format("CartPole-v1", "cuda"), cuda, False))
    imports = {f"import {module}": f"pip install --force-reinstall {name}" for name, module in there.items()}
    return found + [Probe(code, code, advice) for code, advice in imports.items()]


def outcome_of(trial: Probe) -> str:
    """``works``, or why not, in one line."""
    command = [sys.executable, "-P", "-W", "ignore", "-c", trial.code]  # -P: a file here is not taken for a package
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_SECONDS)
    except subprocess.TimeoutExpired:
        return f"it took longer than {_SECONDS:.0f} s"
    if done.returncode < 0:
        return f"it crashed: {signal.strsignal(-done.returncode)}"
    said = done.stderr.strip().rpartition("\n")[2].strip()
    return "works" if done.returncode == 0 else said or f"it exited with code {done.returncode}"


def version_of(name: str) -> str | None:
    """None if it is not installed."""
    with contextlib.suppress(metadata.PackageNotFoundError):
        return metadata.version(name)
    return None


def misfits() -> dict[str, str]:
    """Packages that do not work, or not together, and what to do about them."""

    def is_met(line: str) -> bool:
        needed = Requirement(line)
        version = version_of(needed.name)
        return version is not None and needed.specifier.contains(version, prereleases=True)

    found = (one for one in _KNOWN if all(map(is_met, one[0].split())))
    return {f"{one[0].replace(' ', ' and ')} {one[1]}": one[2] for one in found}


def _draw(out: Console, document: dict[str, Any]) -> None:
    facts = {name: document[name] for name in ("system", "Python", "cores")}
    facts["packages"] = ", ".join(f"{name} {version}" for name, version in document["packages"].items())
    facts["works"] = ", ".join(name for name, outcome in document["trials"].items() if outcome == "works")
    out.print(pairs(facts))
    for level, style in (("broken", "bold red"), ("notes", "yellow")):
        for what, advice in document[level].items():
            out.print(Text.assemble((level.removesuffix("s"), style), f": {what}\n  -> {advice}"))
    if not document["broken"] and not document["interrupted"]:
        out.print(Text("Everything that is needed works.", style="green"))
