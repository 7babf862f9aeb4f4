"""What processes hold and leave behind: descendants, threads, descriptors, memory; and forked children."""

from __future__ import annotations

import collections
import contextlib
import gc
import os
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import stepmill
from stepmill import _native
from stepmill.hosts.observing import stats_of
from stepmill.testing import end_servers
from support.envs import ProbeTwin
from support.waiting import eventually


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


def threads() -> set[str]:
    """The ids of this process's threads."""
    return set(os.listdir("/proc/self/task"))


def new_threads(before: set[str]) -> int:
    """How many threads were started since. The kernel lists an ended one for a moment after it was joined."""
    eventually(lambda: threads() <= before)
    return len(threads() - before)


def descriptor_count() -> int:
    return len(os.listdir("/proc/self/fd"))


def resident_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def child(body: Callable[[], object]) -> int:
    """Runs ``body`` in a forked child and returns its pid. Its exit code is 0 where that went well."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            body()
            code = 0
        finally:
            os._exit(code)
    return pid


def exit_code(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def went_well(pid: int) -> bool:
    return exit_code(pid) == 0
