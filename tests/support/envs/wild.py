"""Envs that reach for what is not theirs: descriptors, memory, and the process itself."""

from __future__ import annotations

import ctypes
import hashlib
import multiprocessing
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any, ClassVar

import gymnasium
import numpy as np

SPACE = gymnasium.spaces.Box(-1e9, 1e9, (1,), np.float64)


class Counting(gymnasium.Env[np.ndarray, np.int64]):
    """Shows how many steps it has made in this episode. ``deed`` does something at a moment that it is asked to."""

    observation_space: ClassVar[Any] = SPACE
    action_space: ClassVar[Any] = gymnasium.spaces.Discrete(2)
    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["rgb_array"]}
    render_mode = "rgb_array"

    def __init__(self, moment: str = "", folder: str = "") -> None:
        self.moment, self.folder = moment, folder
        self.count = 0
        self.at("constructor")

    def at(self, moment: str) -> None:
        if moment == self.moment:
            self.deed()

    def deed(self) -> None:
        pass

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        self.count = 0
        self.at("reset")
        return np.zeros(1), {"pid": os.getpid()}

    def step(self, action: np.int64) -> tuple[np.ndarray, float, bool, bool, dict]:
        self.count += 1
        self.at("step")
        return np.full(1, float(self.count)), 1.0, self.count == 5, False, {"pid": os.getpid()}

    def render(self) -> np.ndarray:
        self.at("render")
        return np.full((2, 2, 3), self.count, np.uint8)

    def called(self) -> int:
        self.at("call")
        return self.count

    def close(self) -> None:
        self.at("close")


class Forking(Counting):
    """Forks, and both processes go on. The parent knows how its children ended."""

    children: ClassVar[list[int]] = []
    ended: ClassVar[list[int]] = []

    def fork(self) -> int:
        return os.fork()

    def deed(self) -> None:
        sys.stdout.write(f"before-{self.moment}.")  # stays in the buffer, which a fork copies
        if child := self.fork():
            self.children.append(child)

    def at(self, moment: str) -> None:
        while self.children:  # whoever is still here is the parent: a child that did not leave would never end
            _, status = os.waitpid(self.children.pop(), 0)
            self.ended.append(os.waitstatus_to_exitcode(status))
        super().at(moment)

    def endings(self) -> list[int]:
        self.at("endings")
        return self.ended


class ForkingUnseen(Forking):
    """By a system call of which neither Python nor the C library is told."""

    def fork(self) -> int:
        libc = ctypes.PyDLL(None)
        number = {"x86_64": 56, "aarch64": 220}[os.uname().machine]  # clone
        return int(libc.syscall(ctypes.c_long(number), ctypes.c_long(17), *[ctypes.c_long(0)] * 4))


class ForkingAndLeaving(Forking):
    """The child leaves as scripts do."""

    def deed(self) -> None:
        if child := self.fork():
            self.children.append(child)
        else:
            sys.exit(3)


def _write(path: str) -> None:
    Path(path).write_text("here")


class Employing(Counting):
    """Has processes of its own, which end by themselves."""

    def deed(self) -> None:
        path = f"{self.folder}/{os.getpid()}"
        worker = multiprocessing.get_context("fork").Process(target=_write, args=(path,))
        worker.start()
        worker.join()
        done = subprocess.run([sys.executable, "-c", "print('here')"], capture_output=True, text=True, check=True)
        if worker.exitcode != 0 or Path(path).read_text() != "here" or done.stdout != "here\n":
            raise AssertionError("its processes did not do their work")


class Closing(Counting):
    """Closes every descriptor it finds and opens files of its own, which get the same numbers. Writes large infos."""

    FILES = 40
    CONTENT = b"mine" * 300_000

    def deed(self) -> None:
        if getattr(self, "files", None):
            return
        os.closerange(3, 4096)
        self.files = []
        for number in range(self.FILES):
            fd = os.open(f"{self.folder}/{os.getpid()}-{number}", os.O_RDWR | os.O_CREAT)
            os.write(fd, self.CONTENT)
            self.files.append(fd)

    def step(self, action: np.int64) -> tuple[np.ndarray, float, bool, bool, dict]:
        *row, info = super().step(action)
        while action:
            pass
        return (*row, {**info, "large": b"x" * (1_200_000 * self.count)})  # type: ignore[return-value]


class Connecting(Closing):
    """Opens connections in place of files."""

    def deed(self) -> None:
        os.closerange(3, 4096)
        self.connections = [socket.socket(socket.AF_UNIX) for _ in range(self.FILES)]
        for one in self.connections:
            one.connect(f"{self.folder}/socket")


def damaged(folder: Path) -> list[str]:
    """The files of such envs that are not as they were written."""
    good = hashlib.sha256(Closing.CONTENT).digest()
    paths = sorted(folder.iterdir())
    return [path.name for path in paths if hashlib.sha256(path.read_bytes()).digest() != good]


class Truncating(Counting):
    """Cuts off all the shared memory that it finds a way to."""

    def deed(self) -> None:
        for folder in ("/proc/self/fd", "/proc/self/map_files"):
            for name in os.listdir(folder):
                path = f"{folder}/{name}"
                try:
                    if "memfd:stepmill" in os.readlink(path):
                        os.truncate(path, 0)
                except OSError:
                    continue


class Claiming(Counting):
    """Says of the info of an env that stepped before it that it is of 2 GiB."""

    def deed(self) -> None:
        from support.scribble import shared_ranges

        # The engine's layout is its own affair: whatever looks like the size of such an info is changed.
        fd = os.open("/proc/self/mem", os.O_RDWR)
        for first, last in shared_ranges("memfd:stepmill (deleted)"):  # not the outbox
            words = np.frombuffer(os.pread(fd, last - first, first), np.uint64)
            for at in np.flatnonzero((words >= 100_000) & (words < 101_000)).tolist():
                os.pwrite(fd, (2 << 30).to_bytes(8, "little"), first + 8 * at)
        os.close(fd)

    def step(self, action: np.int64) -> tuple[np.ndarray, float, bool, bool, dict]:
        *row, info = super().step(action)
        return (*row, {**info, "large": b"x" * 100_000})  # type: ignore[return-value]
