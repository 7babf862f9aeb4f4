"""A JAX world as an env of Python, for pools whose rules nobody doubts: a pool on a device shows the same."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import gymnasium
import jax
import numpy as np

import stepmill
from stepmill.sources.jax_world import JaxWorld


class WorldTwin(gymnasium.Env[Any, Any]):
    """Calls the functions of a world, one env at a time, with the keys that docs/jax-worlds.md promises.

    Args:
        world: Whose functions.
        compiled: Its ``reset`` and ``step``.
        autoreset: The mode of the pool.
        limit: The time limit of the pool.
    """

    def __init__(self, world: JaxWorld, compiled: tuple[Any, Any], autoreset: str, limit: int | None) -> None:
        self.observation_space, self.action_space = world.observation_space, world.action_space
        self._reset, self._step = compiled
        self._count = 3 if autoreset == "same_step" else 2
        self._limit = limit
        self._key = self._state = self._next = None
        self._elapsed = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        if seed is not None:
            self._key = np.array([seed >> 32, seed & 2**32 - 1], np.uint32)
            self._next = None
        # One that follows the end of an episode within the same step has its key already.
        key = self._split()[-1] if self._next is None else self._next
        self._next, self._elapsed = None, 0
        begun = self._reset(key)
        self._state = begun.state
        return in_numpy(begun.observation), _told(begun.info)

    def step(self, action: Any) -> Any:
        keys = self._split()
        moved = self._step(keys[0], self._state, action)
        self._state = moved.state
        self._elapsed += 1
        over = bool(moved.terminated) or bool(moved.truncated) or self._elapsed == self._limit
        if over and self._count == 3:
            self._next = keys[1]
        flags = bool(moved.terminated), bool(moved.truncated)
        return in_numpy(moved.observation), float(moved.reward), *flags, _told(moved.info)

    def get_state(self) -> Any:
        return self._key, self._state, self._next, self._elapsed

    def set_state(self, state: Any) -> None:
        self._key, self._state, self._next, self._elapsed = state

    def _split(self) -> list[Any]:
        self._key, *keys = np.asarray(_splits(self._count)(self._key))
        return keys


def twin_of(world: JaxWorld) -> Callable[..., Any]:
    """``make_twin(view, **arguments)`` makes a pool in the calling thread, of twins of the world."""
    compiled = jax.jit(world.reset), jax.jit(world.step)

    def make_twin(view: str = "gymnasium", **arguments: Any) -> Any:
        limit = arguments.get("max_episode_steps", world.max_episode_steps)

        def make_env() -> WorldTwin:
            return WorldTwin(world, compiled, arguments.get("autoreset", "next_step"), limit)

        return stepmill.make(make_env, view, **{**arguments, "backend": "inline", "max_episode_steps": limit})

    return make_twin


def in_numpy(tree: Any) -> Any:
    return jax.tree.map(np.asarray, tree)


def _told(info: Any) -> dict[str, Any]:
    return {name: _told(leaf) if isinstance(leaf, dict) else np.asarray(leaf)[()] for name, leaf in info.items()}


@functools.cache
def _splits(count: int) -> Any:
    return jax.jit(lambda key: jax.random.split(key, count))
