"""What a device pool hands out: arrays of JAX as they are, tensors over the same memory, or copies for numpy.

For numpy, results have the form that all pools give them. Otherwise nobody has looked at them yet: so all keys of the
infos are always there, with masks that say where they mean something, and so are ``final_obs`` and ``final_info``, as
arrays with a row for every env.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import numpy as np

from stepmill.device.functional import WorldStep
from stepmill.device.jax_program import JaxProgram, traced
from stepmill.errors import ActionError
from stepmill.settings import Settings
from stepmill.values.spaces import FlatSpace
from stepmill.values.trees import map_trees, tree_of

Show = Callable[[Any], Any]


class DeviceResults:
    """Makes results of what a program has given.

    Args:
        observation: The space of observations.
        settings: Of the pool.
        program: It.
    """

    def __init__(self, observation: FlatSpace, settings: Settings, program: JaxProgram) -> None:
        self._observation, self._program = observation, program
        self._reward_type = np.dtype(settings.reward_dtype)
        self._output, self._num_envs = settings.output, settings.num_envs
        self._step: Show | None = None
        self._reset: Show | None = None
        self._players = self._is_plain = False
        self._torch: Any = None
        if self._output == "torch":
            import torch

            self._torch = torch
        self._all_ids = program.on_device(np.arange(self._num_envs, dtype=np.int32))

    def show_as(self, step: Show | None, reset: Show | None, players: bool) -> None:
        self._step, self._reset, self._players = step, reset, players

    @contextlib.contextmanager
    def plain(self) -> Iterator[None]:
        """DeviceResults are those of the gymnasium view in numpy's arrays."""
        self._is_plain = True
        try:
            yield
        finally:
            self._is_plain = False

    def of(self, step: WorldStep, ids: np.ndarray | None, as_reset: bool) -> Any:
        """The rows of some envs, or of all, as the view shows them."""
        if self._is_plain or self._output == "numpy":
            result = self._in_numpy(step, ids)
        else:
            result = self._as_they_are(step, ids)
        if as_reset:
            result = result[0], result[4]
        show = None if self._is_plain else self._reset if as_reset else self._step
        if show is not None:
            result = show(result)
        if self._torch is not None and not self._is_plain:
            result = jax.tree.map(self._torch.from_dlpack, result)
        return result

    # ---- arrays on the device ----------------------------------------------------------------

    def _as_they_are(self, step: WorldStep, ids: np.ndarray | None) -> tuple[Any, ...]:
        all_ids = self._all_ids
        if self._torch is not None:  # who gets tensors may write to them; these arrays are needed again
            step = step._replace(observation=jax.tree.map(lambda leaf: leaf.copy(), step.observation))
            all_ids = all_ids.copy()
        if ids is not None:
            step, all_ids = self._program.take((step, all_ids), ids)
        return *step[:4], self._with_ids(all_ids, step.info)

    def _with_ids(self, ids: Any, info: Mapping[str, Any]) -> dict[str, Any]:
        players = {"players": {"env_id": ids}} if self._players else {}
        return {"env_id": ids, **players, **info}

    def array_on_device(self, given: Any) -> Any:
        """An array of JAX, or of the pool's other library on a GPU, as one of JAX there; None if it is neither."""
        if isinstance(given, jax.Array):
            if isinstance(given, jax.core.Tracer):
                raise traced()
            if given.is_deleted():
                raise ActionError(
                    "action: expected an array, got one that was deleted, as those are that jit was given"
                )
            is_here = given.sharding == self._program.here  # device_put takes as long as a step
            return given if is_here else jax.device_put(given, self._program.device)
        if self._torch is not None and isinstance(given, self._torch.Tensor) and given.is_cuda:
            return jax.device_put(jax.dlpack.from_dlpack(given.detach().contiguous()), self._program.device)
        return None

    # ---- numpy's arrays ----------------------------------------------------------------------

    def _in_numpy(self, step: WorldStep, ids: np.ndarray | None) -> tuple[Any, ...]:
        host = jax.device_get(step)
        rows = slice(None) if ids is None else ids
        observation = self._observations(host.observation, rows)
        reward = np.array(host.reward[rows], self._reward_type)
        terminated, truncated = np.array(host.terminated[rows]), np.array(host.truncated[rows])
        info = _present(host.info, rows)
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
        observations = self._observations(tree, rows)
        out = np.full(len(ended), None, object)
        for row in np.flatnonzero(ended):
            out[row] = self.row(observations, int(row))
        return out

    def row(self, tree: Any, row: int) -> Any:
        """One row of arrays of numpy."""
        return jax.tree.map(lambda leaf: np.array(leaf[row]), tree)

    def on_host(self, tree: Any) -> Any:
        """The same in numpy's arrays."""
        return jax.device_get(tree)


def _present(info: Mapping[str, Any], rows: Any) -> dict[str, Any]:
    """The infos that some of the rows have, with their masks: copies."""
    out: dict[str, Any] = {}
    for name, leaf in info.items():
        mask = info.get(f"_{name}")
        if mask is None:
            if name == "elapsed_step":
                out[name] = np.array(leaf[rows])
            continue  # a mask itself
        has = np.array(mask[rows])
        if has.any():
            out[name] = (
                _present(leaf, rows)
                if isinstance(leaf, Mapping)
                else jax.tree.map(functools.partial(_copied, rows=rows, has=has), leaf)
            )
            out[f"_{name}"] = has
    return out


def _copied(leaf: Any, rows: Any, has: np.ndarray) -> np.ndarray:
    """A copy of some rows, in which what has no info is zero."""
    out = np.array(leaf[rows])
    out[~has] = 0
    return out
