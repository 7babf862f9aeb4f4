"""Each contestant runs in its own process (``python_child``); this is the side that asks.

So none of them forks with another's threads and memory in it, a crash ends one of them only, and the process can be
asked how long it took from its first import to its first batch.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from benchmarks.python_envs import Case

ROOT = Path(__file__).resolve().parent.parent
PATIENCE_S = 120  # for one answer, above the seconds that were asked for


class HostError(Exception):
    """The contestant's process ended, or said nothing for too long."""


class Host:
    """A contestant in its own process. Waits until it has its first batch."""

    def __init__(self, name: str, case: Case) -> None:
        self.backend: str | None = None  # of a stepmill pool, as it was at the end of the last measurement
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (closed in close)
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-W", "ignore", "-m", "benchmarks.python_child"),
                *(name, json.dumps(dataclasses.asdict(case))),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            cwd=ROOT,
            bufsize=0,
            start_new_session=True,  # so that all it starts can be found, and ended with it
        )
        self.start_s: float = self._answer(0)["start_s"]

    def ask_rate(self, seconds: float) -> None:
        self._ask(f"rate {seconds}")

    def rate(self, seconds: float) -> float:
        """Steps per second; the question may have been asked before, to ask several processes at once."""
        answer = self._answer(seconds)
        self.backend = answer["backend"]
        return float(answer["rate"])

    def memory(self, calls: int) -> dict[str, Any] | None:
        """Bytes of all processes together after that many more batches, and the number of processes."""
        self._ask(f"memory {calls}")
        found: dict[str, Any] | None = self._answer(0)["memory"]
        return found

    def close(self) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._kill()
        self._errors.close()

    def _ask(self, line: str) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(f"{line}\n".encode())
        except OSError:
            self._fail("ended")

    def _answer(self, seconds: float) -> dict[str, Any]:
        assert self._process.stdout is not None
        try:
            ready, _, _ = select.select([self._process.stdout], [], [], seconds * 2 + PATIENCE_S)
        except BaseException:
            self._kill()
            raise
        line = self._process.stdout.readline() if ready else b""
        if not line:
            self._fail("ended" if ready else f"did not answer for {PATIENCE_S} s")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _fail(self, what: str) -> None:
        self._kill()
        self._errors.seek(0)
        said = [line for line in self._errors.read().decode(errors="replace").splitlines() if line.strip()]
        self._errors.close()
        raise HostError(f"{what}: {said[-1].strip()}" if said else what)

    def _kill(self) -> None:
        """The process leads a session: this ends what it started too."""
        if self._process.returncode is None:  # not waited for, so the number is still its own
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
