"""Envs that go wrong in every way a process can, gates that hold their steps, and what a process leaves behind."""

from __future__ import annotations

import collections
import ctypes
import hashlib
import itertools
import os
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from stepmill import EnvError
from stepmill.hosts.process.remote_error import RemoteEnvError
from support.envs import ProbeTwin
from support.waiting import DEADLINE, tell_gate, wait_at_gate

# ---- waiting -------------------------------------------------------------------------------------


# ---- mishaps -------------------------------------------------------------------------------------


class Unpicklable(Exception):
    """Holds what no process can give to another."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.lock = threading.Lock()


class SeveralArguments(Exception):
    """Can be pickled, but not read again: its constructor wants more than it passed on."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{text} ({code})")
        self.code = code


class BrokenText(Exception):
    """Has no text."""

    def __str__(self) -> str:
        raise ValueError("no text")


def raise_it(error: BaseException) -> NoReturn:
    raise error


def crash(how: Callable[[], Any]) -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    how()


def spin_forever() -> NoReturn:
    while True:
        pass


def hash_forever() -> None:
    hashlib.pbkdf2_hmac("sha256", b"", b"", 2**31 - 1)  # without the interpreter lock


def count_forever() -> None:
    collections.deque(itertools.repeat(None), maxlen=0)  # with it


# By name: what an env suffers. All are functions of the env.
MISHAPS: dict[str, Callable[[FaultyEnv], Any]] = {
    "raise": lambda env: raise_it(KeyError("broken")),
    "unpicklable": lambda env: raise_it(Unpicklable("broken")),
    "several arguments": lambda env: raise_it(SeveralArguments(3, "broken")),
    "broken text": lambda env: raise_it(BrokenText()),
    "sys.exit": lambda env: sys.exit("broken"),
    "no memory": lambda env: bytearray(2**62),
    "no memory for an array": lambda env: np.zeros(2**58),
    "exit": lambda env: os._exit(7),
    "segfault": lambda env: crash(lambda: ctypes.string_at(0)),
    "abort": lambda env: crash(os.abort),
    "killed": lambda env: signal.raise_signal(signal.SIGKILL),
    "stopped": lambda env: signal.raise_signal(signal.SIGSTOP),
    "loop": lambda env: spin_forever(),
    "C without the lock": lambda env: hash_forever(),
    "C with the lock": lambda env: count_forever(),
    "gate": lambda env: wait_at_gate(env.folder, env.env_id),
    "gate, then exit": lambda env: (wait_at_gate(env.folder, env.env_id), os._exit(7)),
}

# Exceptions: the worker lives on. What the row's error says of each, and what its cause is.
RAISED = {
    "raise": ("KeyError: 'broken'", KeyError),
    "unpicklable": ("Unpicklable: broken", RemoteEnvError),
    "several arguments": (r"SeveralArguments: broken \(3\)", RemoteEnvError),
    "broken text": ("BrokenText", BrokenText),
    "sys.exit": ("SystemExit: broken", SystemExit),
    "no memory": ("MemoryError", MemoryError),
    "no memory for an array": ("Unable to allocate", MemoryError),
}

# Deaths of the worker, and what the error says of each. The last is what the kernel does when memory runs out.
DEATHS = {
    "exit": "exited with code 7",
    "segfault": "was killed by SIGSEGV",
    "abort": "was killed by SIGABRT",
    "killed": "was killed by SIGKILL",
}

# Envs that never come back, and the function that the stack of their worker shows.
STUCK = {
    "loop": "spin_forever",
    "gate": "wait_at_gate",
    "C without the lock": "hash_forever",
    "C with the lock": "count_forever",
}


class FaultyEnv(ProbeTwin):
    """A probe that suffers its mishap in the calls ``at`` of ``where``, which count from 1 in each life of the worker.

    In a ``folder``, a file named "mishap" stands in place of ``mishap``, so that a test can change it.
    """

    render_mode = "rgb_array"

    def __init__(
        self,
        mishap: str = "",
        where: str = "step",
        at: Collection[int] = (1,),
        folder: Any = "",
        length: int = 1000,
        env_id: int = 0,
    ) -> None:
        super().__init__(length)
        self.env_id = env_id
        self.folder = str(folder)
        self._mishap, self._where, self._at = mishap, where, at
        self._count = 0
        self._suffer("constructor")

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        self._suffer("reset")
        return super().reset(seed=seed, options=options)

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict]:
        self._suffer("step")
        return super().step(action)

    def render(self) -> np.ndarray:
        self._suffer("render")
        return np.full((2, 2, 3), self._steps, np.uint8)

    def close(self) -> None:
        self._suffer("close")
        if self.folder:
            Path(self.folder, f"closed-{self.env_id}").touch()

    def visit(self, value: Any = None) -> tuple[int, Any]:
        """For ``call``: how many steps there were, and what was passed."""
        self._suffer("visit")
        return self._steps, value

    def process(self) -> int:
        """Where it runs."""
        return os.getpid()

    @property
    def trap(self) -> int:
        """For ``get_attr`` and ``set_attr``."""
        self._suffer("get")
        return self._steps

    @trap.setter
    def trap(self, value: int) -> None:
        self._suffer("set")

    def _suffer(self, where: str) -> None:
        if where != self._where:
            return
        self._count += 1
        mishap = self._mishap
        if self.folder and (file := Path(self.folder, "mishap")).exists():
            mishap = file.read_text()
        if self._count in self._at and mishap:
            tell_gate(self.folder, self.env_id)
            MISHAPS[mishap](self)


# ---- results -------------------------------------------------------------------------------------


@dataclass
class Row:
    """The result of one action. ``error`` is what ``recv`` raised for it."""

    obs: list[float]
    reward: float
    terminated: bool
    truncated: bool
    abnormal: bool
    elapsed: int
    error: EnvError | None = None


def collect(pool: Any) -> dict[int, Row]:
    """Receives everything in flight: one result per env, by its id."""
    rows: dict[int, Row] = {}
    while pool.stats()["in_flight"]:
        batch, error = outcome(lambda: pool.recv(timeout=DEADLINE))
        obs, reward, terminated, truncated, info = batch
        abnormal = info.get("abnormal", np.zeros(len(reward), bool))
        for i, env_id in enumerate(info["env_id"].tolist()):
            assert env_id not in rows, "an action has two results"
            rows[env_id] = Row(
                obs[i].tolist(),
                reward[i].item(),
                terminated[i].item(),
                truncated[i].item(),
                abnormal[i].item(),
                info["elapsed_step"][i].item(),
            )
        for one in error.errors if error else ():
            assert one.env_id is not None
            assert rows[one.env_id].abnormal
            assert rows[one.env_id].error is None, "a row has two errors"
            rows[one.env_id].error = one
    return rows


def act(pool: Any, *env_ids: int) -> dict[int, Row]:
    """Sends an action to each of the envs, all by default, and receives all results."""
    send(pool, *env_ids)
    return collect(pool)


def send(pool: Any, *env_ids: int) -> None:
    ids = env_ids or tuple(range(pool.num_envs))
    pool.send(np.array([(1 + env_id) / 8 for env_id in ids], np.float32), np.array(ids))


def elapsed(rows: dict[int, Row]) -> list[int]:
    return [row.elapsed for _, row in sorted(rows.items())]


def abnormal(rows: dict[int, Row]) -> list[int]:
    """The ids of envs whose rows say that they failed."""
    return [env_id for env_id, row in sorted(rows.items()) if row.abnormal]


def outcome(call: Callable[[], Any]) -> tuple[Any, EnvError | None]:
    """What a call gave, whether it raised or not."""
    try:
        return call(), None
    except EnvError as error:
        return error.batch, error


# ---- what a process holds ------------------------------------------------------------------------


class Surroundings(ProbeTwin):
    """Says what its process has inherited."""

    def inherited(self) -> list[Any]:
        os.umask(mask := os.umask(0))
        limits = [resource.getrlimit(one) for one in (resource.RLIMIT_NOFILE, resource.RLIMIT_CORE)]
        return [limits, mask, os.sched_getaffinity(0), os.getpriority(os.PRIO_PROCESS, 0)]

    def folder(self) -> str:
        return os.readlink("/proc/self/cwd")


class SpawningEnv(ProbeTwin):
    """Starts processes: one of its group, one of a session of its own, and one that left its parent, too."""

    def __init__(self) -> None:
        super().__init__()
        sleep = ["sleep", "1000"]
        self.children = [subprocess.Popen(sleep), subprocess.Popen(sleep, start_new_session=True)]
        daemon = subprocess.run(
            ["sh", "-c", "setsid sleep 1000 >/dev/null 2>&1 & echo $!"], stdout=subprocess.PIPE, check=True
        )
        self.pids = [*(child.pid for child in self.children), int(daemon.stdout)]
