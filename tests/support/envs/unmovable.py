"""Envs that cannot be moved to another process, that behave worse the first time they are built, or that factories
hand out again and again.

In a module of its own, which workers import: what it holds is there once in every process.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import functools
import itertools
import logging
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium import spaces

from stepmill.envs import DingEnvWrapper
from support.waiting import tell_gate


class Walk(gymnasium.Env[np.ndarray, int]):
    """Counts its steps, in episodes of random length. Subclasses keep the count where they like."""

    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float64)
    action_space = spaces.Discrete(3)
    count = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.count = 0
        return self._observe(), {}

    def step(self, action: int) -> Any:
        self.count += 1
        return self._observe(), float(action), bool(self.np_random.random() < 0.02), False, {}

    def _observe(self) -> np.ndarray:
        return np.array([self.count, self.np_random.random()])


# ---- what cannot be moved ------------------------------------------------------------------------


class EzPickle:
    """As several packages have it: a copy is built with the arguments of the original, and begins anew."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._args, self._kwargs = args, kwargs

    def __getstate__(self) -> dict[str, Any]:
        return {"_args": self._args, "_kwargs": self._kwargs}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(type(self)(*state["_args"], **state["_kwargs"]).__dict__)


class Rebuilt(Walk, EzPickle):
    """Begins anew when it is copied, where no env begins: at -1000."""

    def __init__(self) -> None:
        EzPickle.__init__(self)
        self.count = -1000


_counts: dict[int, int] = {}
_numbers = itertools.count()


class InGlobals(Walk):
    """Its state is in a table of this module, under the number of the env in this process."""

    def __init__(self) -> None:
        self._number = next(_numbers)

    @property
    def count(self) -> int:  # type: ignore[override]
        return _counts[self._number]

    @count.setter
    def count(self, value: int) -> None:
        _counts[self._number] = value


class _Library:
    """Stands for a C library that gives out numbers for what it keeps, and knows no others."""

    _clients: ClassVar[dict[int, int]] = {}

    @classmethod
    def connect(cls) -> int:
        client = len(cls._clients)
        cls._clients[client] = 0
        return client

    @classmethod
    def write(cls, client: int, value: int) -> None:
        if client not in cls._clients:
            raise ConnectionError(f"not connected to client {client}")
        cls._clients[client] = value

    @classmethod
    def read(cls, client: int) -> int:
        return cls._clients[client]


class InLibrary(Walk):
    """Knows its state by a number only, as envs of physics engines do."""

    def __init__(self) -> None:
        self._client = _Library.connect()

    @property
    def count(self) -> int:  # type: ignore[override]
        return _Library.read(self._client)

    @count.setter
    def count(self, value: int) -> None:
        _Library.write(self._client, value)


# ---- the first env that is built -----------------------------------------------------------------


def _hang() -> None:
    threading.Event().wait()


def _raise() -> None:
    raise RuntimeError("not this time")


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


MISHAPS: dict[str, Callable[[], Any]] = {
    "raises": _raise,
    "exits": sys.exit,
    "leaves": lambda: os._exit(0),
    "dies": _die,
    "crashes": lambda: ctypes.string_at(0),
    "hangs": _hang,
}


class Recorded(Walk):
    """Writes down who does what, a line each, and has a mishap the first time that env 0 is built.

    The lines are ``constructor 0 <pid>`` and so on. Where another env of that id lives at the time, in this process or
    elsewhere, the constructor raises: it holds what there is only one of.
    """

    def __init__(self, folder: str, env_id: int, mishap: str = "", where: str = "") -> None:
        self._folder, self.env_id, self._mishap, self._where = folder, env_id, mishap, where
        self._is_first = env_id == 0 and not Path(folder, "lines").exists()
        self._write("constructor")
        self._lock = os.open(f"{folder}/lock-{env_id}", os.O_RDWR | os.O_CREAT)
        fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # ends with the process, like a port
        self._may_fail("constructor")

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self._write(f"reset({seed})")
        self._may_fail("reset")
        return super().reset(seed=seed, options=options)

    def step(self, action: int) -> Any:
        self._may_fail("step")
        return super().step(action)

    def close(self) -> None:
        self._write("close")
        self._may_fail("close")
        os.close(self._lock)

    def _write(self, what: str) -> None:
        with open(f"{self._folder}/lines", "a") as lines:
            lines.write(f"{what} {self.env_id} {os.getpid()}\n")

    def _may_fail(self, where: str) -> None:
        if self._is_first and self._mishap and where == self._where:
            tell_gate(self._folder, self.env_id)
            MISHAPS[self._mishap]()


class PidFile(Walk):
    """Keeps others out by a file that only ``close`` removes, and refuses to be built beside a living predecessor."""

    def __init__(self, folder: str, env_id: int) -> None:
        self._file = Path(folder, f"pid-{env_id}")
        predecessors = Path(folder, f"pids-{env_id}")
        for pid in predecessors.read_text().split() if predecessors.exists() else ():
            if Path("/proc", pid).exists():
                raise RuntimeError(f"process {pid} still lives")
        with predecessors.open("a") as file:
            file.write(f"{os.getpid()}\n")
        with self._file.open("x"):
            pass

    def close(self) -> None:
        self._file.unlink()


class Talkative(Walk):
    """Says what it does, in every way there is."""

    def __init__(self, env_id: int) -> None:
        self.env_id = env_id
        self._say("constructor")

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self._say("reset")
        return super().reset(seed=seed, options=options)

    def step(self, action: int) -> Any:
        self._say("step")
        return super().step(action)

    def close(self) -> None:
        self._say("close")

    def _say(self, what: str) -> None:
        text = f"{what} of {self.env_id}"
        print(f"print: {text}")  # noqa: T201
        print(f"stderr: {text}", file=sys.stderr)  # noqa: T201
        logging.getLogger("talkative").error("log: %s", text)
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.warn(f"warning: {text}", stacklevel=1)
        with contextlib.suppress(OSError):
            os.write(1, f"write: {text}\n".encode())
        libc = ctypes.CDLL(None)
        libc.printf(b"printf: %s\n", text.encode())
        libc.fflush(None)


class Costly(Walk):
    """Waits in each step."""

    def step(self, action: int) -> Any:
        time.sleep(0.001)
        return super().step(action)


class Informed(Walk):
    """Has an info in each step that cannot be pickled."""

    def step(self, action: int) -> Any:
        obs, reward, terminated, truncated, _ = super().step(action)
        return obs, reward, terminated, truncated, {"lock": threading.Lock()}


# ---- one env, handed out again and again ----------------------------------------------------------


the_env = Walk()


others = SimpleNamespace(env=Walk())


def from_globals() -> Any:
    return the_env


def from_a_global_object() -> Any:
    return others.env


def by_another_function() -> Any:
    return from_globals()


def given(env: Any) -> Any:
    return env


class Maker:
    """Keeps an env, and gives it out in several ways."""

    shared = Walk()

    def __init__(self) -> None:
        self.env = Walk()

    def make(self) -> Any:
        return self.env

    def make_by_another(self) -> Any:
        return self.make()

    def __call__(self) -> Any:
        return self._wrapped()

    def _wrapped(self) -> Any:
        return gymnasium.Wrapper(self.env)

    @classmethod
    def make_shared(cls) -> Any:
        return cls.shared


def captured() -> Any:
    env = Walk()
    return lambda: env


def by_default() -> Any:
    return lambda env=Walk(): env  # noqa: B008


def wrapped() -> Any:
    env = Walk()
    return lambda: gymnasium.wrappers.TimeLimit(gymnasium.Wrapper(env), 10)


def unwrapped() -> Any:
    env = gymnasium.Wrapper(Walk())
    return lambda: env.unwrapped


def attribute() -> Any:
    held = SimpleNamespace(inner=SimpleNamespace(env=Walk()))
    return lambda: held.inner.env


def as_base_env() -> Any:
    env = Walk()
    return lambda: DingEnvWrapper(env)


SHARED: dict[str, Callable[[], Any]] = {
    "captured": captured,
    "default": by_default,
    "wrapped": wrapped,
    "unwrapped": unwrapped,
    "attribute": attribute,
    "as a BaseEnv": as_base_env,
    "global": lambda: from_globals,
    "attribute of a global": lambda: from_a_global_object,
    "another function": lambda: by_another_function,
    "partial": lambda: functools.partial(given, Walk()),
    "partial by name": lambda: functools.partial(functools.partial(given), env=Walk()),
    "bound method": lambda: Maker().make,
    "method of a method": lambda: Maker().make_by_another,
    "class method": lambda: Maker.make_shared,
    "callable object": Maker,
}
