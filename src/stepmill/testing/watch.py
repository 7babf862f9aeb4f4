"""Watches what an env opens, and what it does in ``__init__``, where it should only store its configuration."""

from __future__ import annotations

import contextlib
import gc
import os
import select
import sys
import threading
from dataclasses import dataclass
from types import FrameType, TracebackType
from typing import Any

import gymnasium

from stepmill.envs.base_env import BaseEnv

# How long threads and processes may take to end after close().
_GRACE_SECONDS = 2.0


@dataclass(frozen=True)
class OpenResources:
    """The threads, child processes and file descriptors of this process at one moment.

    Child processes and descriptors are only seen if there is a ``/proc``.
    """

    threads: frozenset[threading.Thread]
    processes: frozenset[int]
    files: frozenset[tuple[int, str]]

    @classmethod
    def now(cls) -> OpenResources:
        """What is open at this moment."""
        return cls(frozenset(threading.enumerate()), frozenset(_children()), frozenset(_files()))

    @classmethod
    def left_since(cls, earlier: OpenResources) -> list[str]:
        """What was opened since then and is not about to close, in words."""
        if not cls.now().since(earlier):
            return []
        gc.collect()  # garbage does not count
        return cls.now().since(earlier, _GRACE_SECONDS)

    def since(self, earlier: OpenResources, grace: float = 0.0) -> list[str]:
        """What is open now and was not then, in words. Threads and processes get ``grace`` seconds each to end."""
        threads = [thread.name for thread in self.threads - earlier.threads if _still_runs(thread, grace)]
        processes = [pid for pid in self.processes - earlier.processes if _still_lives(pid, grace)]
        files = [target for number, target in self.files - earlier.files if _target(number) == target]
        words = [f"the thread {name!r}" for name in sorted(threads)]
        words += [f"the process {pid}" for pid in sorted(processes)]
        return words + [f"the descriptor of {target}" for target in sorted(files)]


def _still_runs(thread: threading.Thread, grace: float) -> bool:
    thread.join(grace)
    return thread.is_alive()


def _still_lives(pid: int, grace: float) -> bool:
    try:
        pidfd = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        exits = select.poll()
        exits.register(pidfd, select.POLLIN)
        return not exits.poll(grace * 1000)
    finally:
        os.close(pidfd)


def _children() -> list[int]:
    with contextlib.suppress(OSError):
        return [int(name) for name in os.listdir("/proc") if name.isdigit() and _parent(name) == os.getpid()]
    return []


def _parent(pid: str) -> int | None:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return int(file.read().rpartition(")")[2].split()[1])
    except (OSError, IndexError, ValueError):  # gone by now
        return None


def _files() -> list[tuple[int, str]]:
    names: list[str] = []
    with contextlib.suppress(OSError):
        names = os.listdir("/proc/self/fd")
    found = [(int(name), _target(int(name))) for name in names]
    return [(number, target) for number, target in found if target is not None]


def _target(number: int) -> str | None:
    """What a descriptor refers to; None if it is closed, like the one that ``listdir`` used."""
    try:
        return os.readlink(f"/proc/self/fd/{number}")
    except OSError:
        return None


# ---- the constructor -------------------------------------------------------------------------------


class ConstructorWatch:
    """Watches the calls of this thread while a ``BaseEnv`` is built. ``signs`` shows that it built a simulator.

    Signs during ``__init__`` of a ``BaseEnv`` are the ``__init__`` of an env of Gymnasium, dm_env or PettingZoo, and
    the env's own ``reset``; a sign after it is a new thread, child process or file descriptor. A simulator of another
    kind that opens nothing leaves no sign and is not seen.
    """

    def __init__(self) -> None:
        self.signs: list[str] = []
        # There can be only one profiler: if another one runs, calls are not seen.
        self.saw_calls = sys.getprofile() is None
        self._constructor: FrameType | None = None

    def __enter__(self) -> ConstructorWatch:
        self._before = OpenResources.now()
        if self.saw_calls:
            sys.setprofile(self._see)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.saw_calls:
            sys.setprofile(None)
        self._constructor = None
        self.signs += [f"{one} opened" for one in OpenResources.now().since(self._before)]

    def _see(self, frame: FrameType, event: str, _: Any) -> None:
        if event == "return" and frame is self._constructor:
            self._constructor = None
        elif event == "call" and frame.f_code.co_name in ("__init__", "reset"):
            self._see_method(frame, frame.f_code.co_name)

    def _see_method(self, frame: FrameType, name: str) -> None:
        owner = _owner(frame)
        if self._constructor is None:
            if name == "__init__" and _is_base_env(owner):
                self._constructor = frame
        elif name == "reset" and owner is _owner(self._constructor):
            self.signs.append("reset() called")
        # Wrappers are built after what they wrap: the first one is enough.
        elif name == "__init__" and _is_simulator(owner) and not self.signs:
            self.signs.append(f"{type(owner).__name__} built")


def _owner(frame: FrameType) -> Any:
    code = frame.f_code
    return frame.f_locals.get(code.co_varnames[0]) if code.co_argcount else None


def _is_base_env(thing: Any) -> bool:
    """Ours or DI-engine's. Asks the class: the instance is half built, and a wrapper has nothing inside yet."""
    return isinstance(thing, BaseEnv) or hasattr(type(thing), "create_collector_env_cfg")


def _is_simulator(thing: Any) -> bool:
    if _is_base_env(thing):
        return False  # its own __init__ is watched
    if isinstance(thing, gymnasium.Env | gymnasium.vector.VectorEnv):
        return True
    for module, name in (("dm_env", "Environment"), ("pettingzoo", "ParallelEnv"), ("pettingzoo", "AECEnv")):
        kind = getattr(sys.modules.get(module), name, None)
        if isinstance(kind, type) and isinstance(thing, kind):
            return True
    return False
