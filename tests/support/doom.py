"""Plays Doom without stepmill, to compare with; and what tests of games need around them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np

import stepmill
from stepmill.registry.factories import EnvFactory
from stepmill.registry.records import find


def build(id: str, **config: Any) -> Any:
    """An env without a pool."""
    factory = find(id).factory
    assert isinstance(factory, EnvFactory)
    return factory(**config)


def plain_game(config: str, folder: Path, **settings: Any) -> Any:
    """ViZDoom's own game of a scenario, running; what it drops is dropped into the folder."""
    import vizdoom

    game = vizdoom.DoomGame()
    assert game.load_config(os.path.join(vizdoom.scenarios_path, config))
    game.set_window_visible(False)
    for name, value in settings.items():
        getattr(game, f"set_{name}")(value)
    here = os.getcwd()
    os.chdir(folder)
    try:
        game.init()
    finally:
        os.chdir(here)
    return game


def small(screen: np.ndarray, height: int = 84, width: int = 84) -> np.ndarray:
    """A screen of the game with one picture per channel, resized by area."""
    planes = screen[None] if screen.ndim == 2 else screen
    return np.stack([cv2.resize(one, (width, height), interpolation=cv2.INTER_AREA) for one in planes])


def game_seeds(seed: int, count: int) -> list[int]:
    """The seeds of the game in the episodes that follow a reset with a seed."""
    rng = np.random.default_rng(np.random.SeedSequence(seed))
    return [int(rng.integers(0, 2**32, dtype=np.uint32)) for _ in range(count)]


def random_buttons(count: int, num_buttons: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 2, (count, num_buttons)).astype(np.float64)


def played(num_workers: int | None, actions: Sequence[Any], **arguments: Any) -> list[Any]:
    """All that a pool returns: in this process without ``num_workers``."""
    place = {"backend": "inline"} if num_workers is None else {"backend": "process", "num_workers": num_workers}
    with stepmill.make(**arguments, **place) as pool:
        obs, info = pool.reset()
        seen = [obs, info["AMMO2"]]
        for action in actions:
            obs, reward, terminated, truncated, info = pool.step(np.stack([action] * pool.num_envs))
            seen += [obs, reward, terminated, truncated, info["AMMO2"]]
    return seen


def games_of(pid: int) -> list[int]:
    """The processes of games that this process has started."""
    tasks = [Path(f"/proc/{pid}/task/{task}/children") for task in os.listdir(f"/proc/{pid}/task")]
    children = [int(child) for task in tasks for child in task.read_text().split()]
    return [child for child in children if is_game(child)]


def is_game(pid: int) -> bool:
    """Whether a process is a game that runs: one that has ended, and nobody waited for, has no program."""
    with contextlib.suppress(OSError):
        return Path(os.readlink(f"/proc/{pid}/exe")).name == "vizdoom"
    return False
