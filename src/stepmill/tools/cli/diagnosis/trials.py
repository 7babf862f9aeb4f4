"""Tries things out, each in a process of its own: whatever is broken there, the doctor survives it."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from importlib import metadata
from typing import get_args

from packaging.utils import canonicalize_name

from stepmill import _native
from stepmill.errors import MissingPackageError
from stepmill.settings import Backend
from stepmill.system.optional import MUJOCO, RAY, is_installed
from stepmill.tools.cli.diagnosis.packages import extras, requirements_of
from stepmill.tools.cli.diagnosis.part import Part

__all__ = ["Trial", "imports", "play", "pools", "try_all"]

_SECONDS = 120.0
_MISSING = 3  # exit code: a package is not installed, which is no fault
_STEPS = 20


@dataclass(frozen=True)
class Trial:
    """Code to run in a new interpreter. ``advice`` says what to do if it fails."""

    name: str
    code: str
    advice: str


@dataclass(frozen=True)
class Outcome:
    """How a trial ended: ``why`` is None if it went well."""

    why: str | None
    is_missing: bool = False


def imports() -> list[Trial]:
    """Imports each optional package that is installed."""
    found = {}
    for extra in extras():
        for needed in requirements_of("stepmill", extra):
            name = canonicalize_name(needed.name)
            module = _module_of(name)
            if module is not None:
                advice = f"pip install --force-reinstall '{needed.name}{needed.specifier}'"
                found[name] = Trial(name, f"import {module}", advice)
    return list(found.values())


def pools() -> list[Trial]:
    """A tiny pool on every backend, on Ray if that is installed, and one that steps MuJoCo natively, if that is."""
    backends = [one for one in get_args(Backend) if one != "ray" or is_installed(RAY)]
    tried = [(one, "CartPole-v1" if one == "thread" else "gymnasium:CartPole-v1") for one in backends]
    if is_installed(MUJOCO):
        tried.append(("thread", "Ant-v5"))
    return [
        Trial(
            f"{task} on {backend!r}",
            f"from stepmill.tools.cli.diagnosis.trials import play; play({task!r}, {backend!r})",
            "see what it says; if it is not the system that refuses something, please report it",
        )
        for backend, task in tried
        if backend != "auto"
    ]


def play(task: str, backend: Backend) -> None:
    """Steps two envs. Runs in a process of its own."""
    import stepmill

    try:
        pool = stepmill.make(task, num_envs=2, backend=backend)
    except MissingPackageError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(_MISSING)
    with pool:
        pool.reset()
        for _ in range(_STEPS):
            pool.step(pool.action_space.sample())


def try_all(part: Part, trials: Sequence[Trial], done: Callable[[Trial], None]) -> None:
    """Runs the trials, as many at once as there are cores, and calls ``done`` after each."""
    part.facts |= {trial.name: "not tried" for trial in trials}
    for trial, outcome in _outcomes(trials):
        _note(part, trial, outcome)
        done(trial)


def _note(part: Part, trial: Trial, outcome: Outcome) -> None:
    if outcome.why is None:
        part.facts[trial.name] = "works"
    elif outcome.is_missing:
        part.facts[trial.name] = outcome.why
    else:
        part.facts[trial.name] = "fails"
        part.add("broken", f"{trial.name}: {outcome.why}", trial.advice)


def _outcomes(trials: Sequence[Trial]) -> Iterator[tuple[Trial, Outcome]]:
    children = _Children()
    with ThreadPoolExecutor(_native.available_cores()) as threads:
        waiting = {threads.submit(children.run, trial.code): trial for trial in trials}
        try:
            for one in as_completed(waiting):
                yield waiting[one], one.result()
        finally:
            children.end()
            for one in waiting:
                one.cancel()


class _Children:
    """Processes that are ended together when nobody waits for them any more."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[str]] = set()
        self._ended = False

    def run(self, code: str) -> Outcome:
        # -P: a file of the user's that is called like a package is not that package.
        command = [sys.executable, "-P", "-W", "ignore", "-c", code]
        with self._lock:
            if self._ended:
                return Outcome("not tried")
            child = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
            )
            self._running.add(child)
        try:
            _, said = child.communicate(timeout=_SECONDS)
        except subprocess.TimeoutExpired:
            child.kill()
            child.communicate()
            return Outcome(f"it took longer than {_SECONDS:.0f} s")
        finally:
            with self._lock:
                self._running.discard(child)
        return _outcome(child.returncode, said)

    def end(self) -> None:
        with self._lock:
            self._ended = True
            for child in self._running:
                child.kill()


def _outcome(code: int, said: str) -> Outcome:
    if code == 0:
        return Outcome(None)
    if code < 0:
        return Outcome(f"it crashed: {signal.strsignal(-code)}")
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return Outcome(lines[-1] if lines else f"it exited with code {code}", is_missing=code == _MISSING)


def _module_of(name: str) -> str | None:
    """The module that a package is imported as; None if it is not installed, or does not tell."""
    try:
        files = metadata.distribution(name).files or []
    except metadata.PackageNotFoundError:
        return None
    tops = sorted({one.parts[0] for one in files if len(one.parts) == 2 and one.parts[1] == "__init__.py"})
    alike = [top for top in tops if canonicalize_name(top) == name]
    return next(iter(alike or tops), None)
