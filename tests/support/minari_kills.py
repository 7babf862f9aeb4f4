"""Kills a collection at every point where it matters, and lets the next call go on: ``python -m support.minari_kills``.

A child is forked for each point and kills itself there, so nothing is left to chance. What matters: each call of the
policy, and each call that changes the disk.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py

import stepmill
from stepmill.interop.minari import collect
from support.envs.collected import Leaves, content, leaves_policy, leftovers

NAME = "kills/all-v0"
EPISODES = 2


class Killer:
    """Counts points, and kills this process at one of them."""

    def __init__(self, at: int | None) -> None:
        self.at = at
        self.count = 0

    def __call__(self) -> None:
        if self.count == self.at:
            os.kill(os.getpid(), signal.SIGKILL)
        self.count += 1

    def around(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function with a point before it and one after it."""

        def watched(*args: Any, **kwargs: Any) -> Any:
            self()
            result = function(*args, **kwargs)
            self()
            return result

        return watched


def run(killer: Killer) -> None:
    """A collection that is killed, perhaps."""

    def policy(*arguments: Any) -> Any:
        killer()
        return leaves_policy(*arguments)

    changes = (os, "replace"), (os, "rename"), (shutil, "rmtree"), (Path, "mkdir"), (h5py.Group, "create_group")
    for owner, name in changes:  # and within a file of HDF5
        setattr(owner, name, killer.around(getattr(owner, name)))
    with stepmill.make(Leaves, num_envs=2, backend="inline") as pool:
        collect(pool, policy, EPISODES, NAME, algorithm_name="A")


def in_child(at: int | None) -> tuple[bool, int]:
    """Whether a child was killed at that point; if not, how many points there were."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            killer = Killer(at)
            run(killer)
            os.write(writing, str(killer.count).encode())
            os._exit(0)
        finally:
            os._exit(1)
    os.close(writing)
    _, status = os.waitpid(child, 0)
    with open(reading) as pipe:
        said = pipe.read()
    killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
    if not killed and os.waitstatus_to_exitcode(status) != 0:
        raise RuntimeError("the child failed")
    return killed, int(said or 0)


def in_new_folder(root: str, name: str) -> None:
    os.environ["MINARI_DATASETS_PATH"] = str(Path(root) / name)


def main() -> None:
    """Prints how many points there are, and at which of them something was wrong."""
    wrong = []
    with tempfile.TemporaryDirectory() as root:
        in_new_folder(root, "whole")
        _, points = in_child(None)
        expected = content(NAME)
        again = 0
        for point in range(points):
            in_new_folder(root, str(point))
            killed, _ = in_child(point)
            there = (Path(os.environ["MINARI_DATASETS_PATH"]) / NAME).exists()
            if not killed or (there and content(NAME) != expected):
                wrong.append(f"{point}: killed {killed}, or half a data set")
            again += in_child(None)[1]
            if content(NAME) != expected or leftovers():
                wrong.append(f"{point}: the next call made another data set, or left {leftovers()}")
    json.dump({"points": points, "again": again / points, "wrong": wrong}, sys.stdout)


if __name__ == "__main__":
    main()
