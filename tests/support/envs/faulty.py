"""Envs that go wrong in every way a process can, gates that hold their steps, and what a process leaves behind."""

from __future__ import annotations

import array
import collections
import contextlib
import ctypes
import fcntl
import gc
import hashlib
import itertools
import os
import re
import resource
import select
import signal
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

import stepmill
from stepmill import EnvError, _native
from stepmill.hosts.observing import stats_of
from stepmill.hosts.process.remote_error import RemoteEnvError
from stepmill.testing import end_servers
from support.probes import ProbeTwin

DEADLINE = 120.0  # seconds; for a machine under load, not for the code


# ---- waiting -------------------------------------------------------------------------------------


@contextlib.contextmanager
def no_hang(seconds: float = 2 * DEADLINE) -> Iterator[None]:
    """Raises in the main thread what would otherwise wait forever: every wait of a pool looks for signals."""

    def too_late(*_: object) -> NoReturn:
        raise AssertionError(f"the test still waits after {seconds} s")

    old = signal.signal(signal.SIGALRM, too_late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)


def eventually(condition: Callable[[], bool]) -> bool:
    """Whether the condition comes true: for what the kernel or another thread does in its own time."""
    end = time.monotonic() + DEADLINE
    while not condition():
        if time.monotonic() > end:
            return False
        os.sched_yield()
    return True


def ends(pid: int, seconds: float = DEADLINE) -> bool:
    """Whether a process ends, of whomever it is the child."""
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([pidfd], [], [], seconds)[0])
    finally:
        os.close(pidfd)


class Gate:
    """Tells when envs meet their mishaps, and holds them back where that is the mishap. Named pipes in a folder."""

    def __init__(self, folder: Path, num_envs: int) -> None:
        self.folder = folder
        self._paths = [folder / "arrived", *(folder / f"open-{env_id}" for env_id in range(num_envs))]
        for path in self._paths:
            os.mkfifo(path)
        # For both reading and writing: neither end waits for the other.
        self._arrived, *self._opened = (os.open(path, os.O_RDWR) for path in self._paths)

    def wait(self) -> int:
        """The next env that meets its mishap."""
        assert select.select([self._arrived], [], [], DEADLINE)[0], "no env came to the gate"
        return os.read(self._arrived, 1)[0]

    @property
    def num_arrivals(self) -> int:
        """How many envs have come that no test has waited for yet."""
        found = array.array("i", [0])
        fcntl.ioctl(self._arrived, termios.FIONREAD, found)
        return found[0]

    def open(self, env_id: int) -> None:
        """Lets one step of that env through."""
        os.write(self._opened[env_id], b"x")

    def close(self) -> None:
        """Lets everybody through, now and later."""
        for path in self._paths:
            path.unlink()
        for fd in (self._arrived, *self._opened):
            os.close(fd)


class GateClock:
    """In place of ``time`` where a deadline is kept: it stands still until ``arrivals`` envs have come to the gate."""

    def __init__(self, gate: Gate, arrivals: int = 1) -> None:
        self._gate = gate
        self._arrivals = arrivals
        self._looks = 0  # since then

    def monotonic(self) -> float:
        """Late after some looks more: by then the env waits at the gate, and what it said before has been heard."""
        self._looks += self._gate.num_arrivals >= self._arrivals
        return 1e9 if self._looks > 8 else 0.0


def tell_gate(folder: str, env_id: int) -> None:
    """In an env: says that it is there. Nothing happens where there is no gate, or none any more."""
    with contextlib.suppress(FileNotFoundError):
        arrived = os.open(f"{folder}/arrived", os.O_RDWR)
        os.write(arrived, bytes([env_id]))
        os.close(arrived)


def wait_at_gate(folder: str, env_id: int) -> None:
    """In an env: blocks in a system call until the test opens the gate."""
    with contextlib.suppress(FileNotFoundError):
        opened = os.open(f"{folder}/open-{env_id}", os.O_RDONLY | os.O_NONBLOCK)
        os.set_blocking(opened, True)
        os.read(opened, 1)
        os.close(opened)


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


def outcome(call: Callable[[], Any]) -> tuple[Any, EnvError | None]:
    """What a call gave, whether it raised or not."""
    try:
        return call(), None
    except EnvError as error:
        return error.batch, error


# ---- what a process holds ------------------------------------------------------------------------


def belongings() -> collections.Counter[str]:
    """Threads, open descriptors by their kind, and living descendants of this process."""
    found = [f"process {pid}" for pid in descendants()]
    for path in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):
            found.append(f"thread {(path / 'comm').read_text().strip()}")
    for path in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # the one through which we look
            found.append(f"descriptor {re.sub('[0-9]+', '', os.readlink(path))}")
    return collections.Counter(found)


def left_since(before: collections.Counter[str]) -> list[str]:
    """What is there that was not before, and stays. Threads and processes end a little after a call ends them."""
    gc.collect()  # errors and their tracebacks, which hold batches, are in cycles
    end_servers()
    if eventually(lambda: belongings() <= before):
        return []  # a second look might see what the test runner itself has open for a moment
    return sorted((belongings() - before).elements())


def descendants(root: int | None = None) -> set[int]:
    """All processes below one, but for those that ended."""
    parents: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit() and (found := _parent_of(int(name))) is not None:
            parents.setdefault(found, []).append(int(name))
    known: set[int] = set()
    todo = [root or os.getpid()]
    while todo:
        new = parents.get(todo.pop(), [])
        known.update(new)
        todo += new
    return known


def parent_of(pid: int) -> int:
    parent = _parent_of(pid)
    assert parent is not None
    return parent


def _parent_of(pid: int) -> int | None:
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        state, parent, *_ = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return None if state == "Z" else int(parent)
    return None


def worker_pids(pool: Any) -> list[int]:
    """Of living workers only: -1, in place of a dead one's, is everybody to ``os.kill``."""
    stats = stats_of(pool) if isinstance(pool, _native.Engine) else pool.stats()  # managers have an engine alone
    workers = stats["workers"]
    assert all(worker["alive"] and worker["pid"] > 1 for worker in workers), workers
    return [worker["pid"] for worker in workers]


def server_of(pool: Any) -> int:
    """The process above the template of the pool, which ``stats`` shows too."""
    pid = parent_of(parent_of(worker_pids(pool)[0]))
    assert pid in [one["pid"] for one in pool.stats()["servers"] if one["pools"] > 0]
    return pid


def server_of_a_pool(**arguments: Any) -> int:
    """The server of a pool that is closed again."""
    with stepmill.make(ProbeTwin, backend="process", **arguments) as pool:
        pool.reset()
        return server_of(pool)


def signal_to(pid: int, number: int = signal.SIGKILL) -> None:
    """Signals a process below this one, and never any other."""
    assert pid > 1, pid
    pidfd = os.pidfd_open(pid)  # from here on the number cannot become another's
    try:
        assert pid in descendants(), f"{pid} is not ours"
        signal.pidfd_send_signal(pidfd, number)
    finally:
        os.close(pidfd)


def kill_worker(pool: Any, index: int) -> int:
    """SIGKILL to a living worker; its pid."""
    pid = worker_pids(pool)[index]
    signal_to(pid)
    return pid


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
