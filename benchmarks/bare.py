"""Builds and runs ``bare_loop.cpp``: what an env costs without a pool and without Python."""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import numpy as np

from benchmarks.timing import Effort

ROOT = Path(__file__).resolve().parent.parent
# As in CMakeLists.txt: the same arithmetic, the same optimisation.
FLAGS = ["-std=c++20", "-O3", "-DNDEBUG", "-ffp-contract=off", "-fno-builtin-pow", "-fno-math-errno", "-Wno-psabi"]
SOURCES = ["benchmarks/bare_loop.cpp", "cpp/core/arena.cpp", "cpp/core/action_table.cpp", "cpp/core/batch_layout.cpp"]


def measure(envs: int, effort: Effort) -> dict[str, float] | None:
    """Nanoseconds a step of CartPole; None where there is no compiler."""
    program = _build()
    if program is None:
        return None
    command = [program, str(envs), str(effort.seconds)]
    runs = [
        float(subprocess.run(command, check=True, capture_output=True, text=True).stdout) for _ in range(effort.repeats)
    ]
    return {"num_envs": envs, "env_ns": statistics.median(runs)}


@cache
def _build() -> str | None:
    compiler = os.environ.get("CXX") or shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        return None
    # Kept alive by the attribute, removed when the process ends.
    _build.folder = tempfile.TemporaryDirectory(prefix="stepmill-bench-")  # type: ignore[attr-defined]
    program = f"{_build.folder.name}/bare_loop"  # type: ignore[attr-defined]
    library = Path(np.random.__file__).parent / "lib" / "libnpyrandom.a"
    subprocess.run(
        [
            *(compiler, *FLAGS, "-Icpp", "-isystem", np.get_include()),
            *(*SOURCES, str(library), "-lm", "-o", program),
        ],
        cwd=ROOT,
        check=True,
    )
    return program
