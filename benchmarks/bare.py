"""Plain loops in C++: what envs cost without a pool and without Python (``bare_loop.cpp``).

Also builds the barrier at which loops in Python meet (``barrier.h``). Each is built when it is first needed.
"""

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
from stepmill.tools.measuring.machine import cores

ROOT = Path(__file__).resolve().parent.parent
# As in CMakeLists.txt: the same arithmetic, the same optimisation.
FLAGS = ["-std=c++20", "-O3", "-DNDEBUG", "-ffp-contract=off", "-fno-builtin-pow", "-fno-math-errno", "-Wno-psabi"]
CORE = [f"cpp/core/{name}.cpp" for name in ("action_table", "memory/arena", "memory/batch_layout", "memory/wait")]


class Loops:
    """CartPole in plain C++ loops, at most one per core, which ``meet`` after each round or run freely.

    A contestant like the others, but it runs for as long as it is told and reads the clock itself.
    """

    num_threads: int

    def __init__(self, envs: int, loops: int, *, meet: bool) -> None:
        program = loop_program()
        if program is None:
            raise RuntimeError("no C++ compiler: ask `available` first")
        self.num_threads = min(loops, envs)
        self._command = [program, str(envs), "{seconds}", str(self.num_threads), "meet" if meet else "free"]

    def steps_per_second(self, seconds: float) -> float:
        command = [word.format(seconds=seconds) for word in self._command]
        return 1e9 / float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)

    def close(self) -> None:
        """Nothing to do: nothing runs between two measurements."""


def available() -> bool:
    return loop_program() is not None


def measure(envs: int, effort: Effort, loops: int = 1) -> dict[str, float] | None:
    """Nanoseconds per step of CartPole in loops that never meet; None if there is no compiler."""
    if not available():
        return None
    runner = Loops(envs, loops, meet=False)
    rates = [runner.steps_per_second(effort.seconds) for _ in range(effort.repeats)]
    return {"num_envs": envs, "env_ns": 1e9 / statistics.median(rates)}


def on_all_cores(envs: int, *, meet: bool) -> Loops:
    return Loops(envs, cores(), meet=meet)


@cache
def loop_program() -> str | None:
    random = Path(np.random.__file__).parent / "lib" / "libnpyrandom.a"
    return _build("bare_loop", ["-isystem", np.get_include(), *CORE, str(random), "-lm", "-pthread"])


@cache
def mujoco_library() -> str | None:
    random = Path(np.random.__file__).parent / "lib" / "libnpyrandom.a"
    sources = [*CORE, "cpp/envs/mujoco/library.cpp"]
    return _build("mujoco_loop", ["-shared", "-fPIC", "-isystem", np.get_include(), *sources, str(random), "-ldl"])


@cache
def barrier_library() -> str | None:
    return _build("barrier", ["-shared", "-fPIC", "cpp/core/memory/wait.cpp"])


@cache
def counter_program() -> str | None:
    parts = ("counters/pool_counters", "counters/counter_file", "counters/ticks", "memory/wait")
    return _build("counter_cost", [f"cpp/core/{name}.cpp" for name in parts])


def _build(name: str, arguments: list[str]) -> str | None:
    """The path of the compiled ``name``.cpp; None if there is no compiler."""
    compiler = os.environ.get("CXX") or shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        return None
    path = f"{_folder()}/{name}"
    command = [compiler, *FLAGS, "-Icpp", "-Ibenchmarks", f"benchmarks/{name}.cpp", *arguments, "-o", path]
    subprocess.run(command, cwd=ROOT, check=True)
    return path


@cache
def _folder() -> str:
    # The attribute keeps it alive; it is removed when the process ends.
    _folder.kept = tempfile.TemporaryDirectory(prefix="stepmill-bench-")  # type: ignore[attr-defined]
    return str(_folder.kept.name)  # type: ignore[attr-defined]
