"""The env of the soak: does what its action orders, and shows in every row which action that was."""

from __future__ import annotations

import ctypes
import faulthandler
import os
import random
import resource
import sys
import threading
from enum import IntEnum
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces


class Order(IntEnum):
    """What an action asks of the env, beside showing its serial number."""

    STEP = 0
    END = 1  # the episode ends
    END_BADLY = 2  # the episode ends, and the next reset raises
    BULK = 3  # an info of up to 300 kB
    LINGER = 4  # a step of some milliseconds
    RAISE = 5
    RAISE_ODDLY = 6  # an exception that cannot be pickled
    SYS_EXIT = 7
    EXIT = 8
    SEGFAULT = 9
    ABORT = 10
    STALL = 11  # waits for ever
    SPIN = 12  # computes for ever


LATE = frozenset({Order.STALL, Order.SPIN})
DEADLY = frozenset({Order.EXIT, Order.SEGFAULT, Order.ABORT}) | LATE  # the whole process ends
BAD = frozenset({Order.RAISE, Order.RAISE_ODDLY, Order.SYS_EXIT}) | DEADLY  # the row cannot be a good one

# The first elements of an observation: the serial number, the env's id, the process, the steps of the episode. All
# that follow repeat the serial number, so that a row that two processes wrote is seen.
HEAD = 4
_FLAW_RATE = 0.02


def tells(serial: int) -> bool:
    """Whether the row of that action has the serial number in its info, too."""
    return serial % 3 == 0


def bulk_of(serial: int) -> bytes:
    """The info of a ``BULK`` order."""
    return bytes([serial % 251]) * (serial * 7919 % 300_000 + 1)


class SoakEnv(gymnasium.Env[np.ndarray, np.ndarray]):
    """Obeys. ``flaw`` is a file: as long as it exists, constructors fail now and then, and leave a byte there."""

    def __init__(self, width: int, flaw: str, env_id: int) -> None:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        limits = np.iinfo(np.int64)
        self.observation_space = spaces.Box(limits.min, limits.max, (width,), np.int64)
        self.action_space = spaces.Box(0, limits.max, (2,), np.int64)
        self.env_id = env_id
        self._width = width
        self._steps = 0
        self._fail_reset = False
        if os.path.exists(flaw) and random.random() < _FLAW_RATE:
            with open(flaw, "ab", buffering=0) as file:
                file.write(b"x")
            raise RuntimeError("the soak has this constructor fail")

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        if self._fail_reset:
            self._fail_reset = False
            raise RuntimeError("the soak has this reset fail")
        self._steps = 0
        return self._show(-options["serial"] if options else -1), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict]:
        serial, order = int(action[0]), Order(int(action[1]))
        self._obey(order)
        self._steps += 1
        info: dict[str, Any] = {"serial": serial} if tells(serial) else {}
        if order is Order.BULK:
            info["bulk"] = bulk_of(serial)
        return self._show(serial), float(serial), order in (Order.END, Order.END_BADLY), False, info

    def get_state(self) -> tuple[int, bool]:
        return self._steps, self._fail_reset

    def set_state(self, state: tuple[int, bool]) -> None:
        self._steps, self._fail_reset = state

    def render(self) -> np.ndarray:
        return np.full((2, 2, 3), self.env_id % 256, np.uint8)

    def echo(self, value: Any) -> Any:
        """For calls."""
        return value

    def obey(self, order: int) -> None:
        """For calls that end badly."""
        self._obey(Order(order))

    def _show(self, serial: int) -> np.ndarray:
        observation = np.full(self._width, serial, np.int64)
        observation[1:HEAD] = self.env_id, os.getpid(), self._steps
        return observation

    def _obey(self, order: Order) -> None:
        if order is Order.END_BADLY:
            self._fail_reset = True
        elif order is Order.LINGER:
            sum(range(200_000))
        elif order is Order.RAISE:
            raise RuntimeError("the soak has this step fail")
        elif order is Order.RAISE_ODDLY:
            raise OddError(threading.Lock(), "cannot be pickled")
        elif order is Order.SYS_EXIT:
            sys.exit(3)
        elif order is Order.EXIT:
            os._exit(4)
        elif order is Order.STALL:
            threading.Event().wait()
        elif order is Order.SPIN:
            while True:
                pass
        elif order in (Order.SEGFAULT, Order.ABORT):
            faulthandler.disable()  # its report would only hide ours
            if order is Order.ABORT:
                os.abort()
            ctypes.string_at(0)


class OddError(Exception):
    """Takes two arguments, and one of them has no business in another process."""

    def __init__(self, lock: Any, message: str) -> None:
        super().__init__(message)
        self.lock = lock
