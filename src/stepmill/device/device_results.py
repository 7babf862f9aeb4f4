"""What a device pool hands out: arrays of JAX as they are, tensors over the same memory, or copies for numpy.

For numpy, results have the form that all pools give them. Otherwise nobody has looked at them yet: so all keys of the
infos are always there, with masks that say where they mean something, and so are ``final_obs`` and ``final_info``, as
arrays with a row for every env.
"""

from __future__ import annotations

import contextlib
import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from gymnasium.spaces import Discrete, Space

from stepmill.settings import Settings
from stepmill.values.spaces import FlatSpace
from stepmill.values.trees import map_trees, tree_of

Show = Callable[[Any], Any]


class Shown(NamedTuple):
    """The rows of all envs, in arrays of any library. All infos are there, each with a mask."""

    observation: Any
    reward: Any
    terminated: Any
    truncated: Any
    info: Any


class DeviceResults(ABC):
    """Makes results of what a program has given.

    Args:
        observation: The space of observations.
        settings: The settings of the pool.
    """

    def __init__(self, observation: FlatSpace, settings: Settings) -> None:
        self._observation = observation
        self._reward_type = np.dtype(settings.reward_dtype)
        self._output, self._num_envs = settings.output, settings.num_envs
        self._step: Show | None = None
        self._reset: Show | None = None
        self._players = self.is_plain = False

    # ---- what each library does in its own way -----------------------------------------------

    @abstractmethod
    def array_on_device(self, given: Any) -> Any:
        """A part of an action, if it is an array on the device that this pool can take; else None."""

    @abstractmethod
    def kind_of(self, array: Any) -> str | None:
        """The kind of an array's numbers, as numpy has it; None if they are not numbers."""

    @abstractmethod
    def _as_they_are(self, step: Any, ids: np.ndarray | None) -> tuple[Any, ...]:
        """The rows of some envs, or of all, as arrays on the device."""

    @abstractmethod
    def _on_host(self, step: Any) -> Shown:
        """All rows in numpy's arrays."""

    @abstractmethod
    def _each(self, function: Callable[[np.ndarray], np.ndarray], info: Any) -> Any:
        """The same for every array of an info."""

    # ---- what is the same --------------------------------------------------------------------

    def show_as(self, step: Show | None, reset: Show | None, players: bool) -> None:
        self._step, self._reset, self._players = step, reset, players

    @contextlib.contextmanager
    def plain(self) -> Iterator[None]:
        """Results are those of the gymnasium view in numpy's arrays."""
        self.is_plain = True
        try:
            yield
        finally:
            self.is_plain = False

    def of(self, step: Any, ids: np.ndarray | None, as_reset: bool) -> Any:
        """The rows of some envs, or of all, as the view shows them."""
        is_numpy = self.is_plain or self._output == "numpy"
        result = self._in_numpy(step, ids) if is_numpy else self._as_they_are(step, ids)
        if as_reset:
            result = result[0], result[4]
        show = None if self.is_plain else self._reset if as_reset else self._step
        return result if show is None else show(result)

    def _with_ids(self, ids: Any, info: Mapping[str, Any]) -> dict[str, Any]:
        players = {"players": {"env_id": ids}} if self._players and not self.is_plain else {}
        return {"env_id": ids, **players, **info}

    # ---- numpy's arrays ----------------------------------------------------------------------

    def _in_numpy(self, step: Any, ids: np.ndarray | None) -> tuple[Any, ...]:
        host = self._on_host(step)
        rows = slice(None) if ids is None else ids
        observation = self._observations(host.observation, rows)
        reward = np.array(host.reward[rows], self._reward_type)
        terminated, truncated = np.array(host.terminated[rows]), np.array(host.truncated[rows])
        info = self._present(host.info, rows)
        if "final_obs" in info:
            info["final_obs"] = self._in_objects(host.info["final_obs"], rows, info["_final_obs"])
        if "episode_return" in info:
            info["episode_return"] = info["episode_return"].astype(np.float64)
        own = np.arange(self._num_envs, dtype=np.int32) if ids is None else np.array(ids, np.int32)
        return observation, reward, terminated, truncated, self._with_ids(own, info)

    def _observations(self, tree: Any, rows: Any) -> Any:
        spaces = tree_of(self._observation.space)
        return map_trees(lambda space, leaf: np.array(leaf[rows], space.dtype), spaces, tree)

    def _in_objects(self, tree: Any, rows: Any, ended: np.ndarray) -> np.ndarray:
        """The last observation of every env whose episode has ended, and None for the others."""
        observations, spaces = self._observations(tree, rows), tree_of(self._observation.space)
        out = np.full(len(ended), None, object)
        for row in np.flatnonzero(ended):
            out[row] = map_trees(functools.partial(_of_one, int(row)), spaces, observations)
        return out

    def _present(self, info: Mapping[str, Any], rows: Any) -> dict[str, Any]:
        """The infos that some of the rows have, with their masks: copies."""
        out: dict[str, Any] = {}
        for name, leaf in info.items():
            mask = info.get(f"_{name}")
            if mask is None:
                if name == "elapsed_step":
                    out[name] = np.array(leaf[rows])
                elif name == "abnormal" and leaf[rows].any():
                    out[name] = np.array(leaf[rows])
                    out[f"_{name}"] = np.ones(len(out[name]), bool)
                continue  # a mask itself
            has = np.array(mask[rows])
            if has.any():
                is_dict = isinstance(leaf, Mapping)
                out[name] = self._present(leaf, rows) if is_dict else self._each(_copier(rows, has), leaf)
                out[f"_{name}"] = has
        return out


def _of_one(row: int, space: Space[Any], leaf: np.ndarray) -> Any:
    """A part of one env's observation: a discrete one is a number of Python's, as envs return it."""
    return int(leaf[row]) if isinstance(space, Discrete) else np.array(leaf[row])


def _copier(rows: Any, has: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """Copies some rows, in which what has no info is zero."""

    def copied(leaf: np.ndarray) -> np.ndarray:
        out = np.array(leaf[rows])
        out[~has] = 0
        return out

    return copied
