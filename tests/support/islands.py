"""Other interpreters for tests: environments of this very Python, which cost nothing to make, and broken ones."""

from __future__ import annotations

import os
import site
import sys
from pathlib import Path

# A package that is installed only on an island.
ONLY_THERE = '''
"""Envs, and things that only this interpreter knows."""

import enum
import sys

import gymnasium
import numpy as np


class Token:
    """Nobody else knows this class."""


class Colour(enum.Enum):
    RED = "red"


class Level(int):
    def __int__(self):
        return -1


class Mistake(Exception):
    pass


class OnlyThere(gymnasium.Env):
    observation_space = gymnasium.spaces.Dict(
        {"far": gymnasium.spaces.Box(-1, 1, (3,), np.float32), "word": gymnasium.spaces.Text(9)}
    )
    action_space = gymnasium.spaces.Discrete(4, start=-1)
    metadata = {"render_modes": ["rgb_array"], "render_fps": 7, "token": Token()}
    python = sys.executable
    prefix = sys.prefix
    token = Token()

    def __init__(self, size=3, render_mode=None):
        self.size = size
        self.render_mode = render_mode

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self._show(), {"options": options}

    def step(self, action):
        if action == 2:
            raise Mistake("a mistake of its own")
        if action == -1:
            raise ZeroDivisionError("a mistake of everybody")
        info = {"token": Token(), "colour": Colour.RED, "level": Level(3), "array": np.arange(self.size)}
        return self._show(), float(self.np_random.normal()), False, False, info

    def render(self):
        return np.full((2, 2, 3), self.size, np.uint8)

    def path(self):
        return list(sys.path)

    def _show(self):
        return {"far": self.np_random.uniform(-1, 1, 3).astype(np.float32), "word": "there"}


def build(size=5):
    return OnlyThere(size)


there = {"max_episode_steps": 9, "reward_threshold": 2.5, "kwargs": {"size": 4}}
gymnasium.register("OnlyThere-v0", "only_there:OnlyThere", **there)
'''


def make_environment(folder: Path, *, packages: bool = True, files: dict[str, str] | None = None) -> Path:
    """An environment of this Python with the packages of this process, or none, and with ``files`` of its own."""
    base = Path(getattr(sys, "_base_executable", sys.executable)).resolve()
    lib = folder / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    lib.mkdir(parents=True)
    (folder / "bin").mkdir()
    (folder / "bin" / "python").symlink_to(base)
    (folder / "pyvenv.cfg").write_text(f"home = {base.parent}\ninclude-system-site-packages = false\n")
    if packages:
        ours = [
            entry for entry in sys.path if "site-packages" in Path(entry).parts and entry != site.getusersitepackages()
        ]
        (lib / "packages.pth").write_text("\n".join(ours))
    for name, content in (files or {}).items():
        (lib / name).parent.mkdir(exist_ok=True)
        (lib / name).write_text(content)
    return folder


def make_program(path: Path, text: str) -> Path:
    """A program in place of an interpreter."""
    path.write_text(text)
    os.chmod(path, 0o755)
    return path
