"""Results in arrays of JAX as they are, or in tensors over the same memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from stepmill.device.device_results import DeviceResults, Show, Shown
from stepmill.device.functional import WorldStep
from stepmill.device.jax_program import JaxProgram, is_float_of_jax, traced
from stepmill.errors import ActionError
from stepmill.settings import Settings
from stepmill.values.spaces import FlatSpace


class JaxResults(DeviceResults):
    """Makes results of what a program of JAX has given.

    Args:
        observation: The space of observations.
        settings: The settings of the pool.
        program: The program whose results are shown.
    """

    def __init__(self, observation: FlatSpace, settings: Settings, program: JaxProgram) -> None:
        super().__init__(observation, settings)
        self._program = program
        self._torch: Any = None
        if self._output == "torch":
            import torch

            self._torch = torch
        self._all_ids = program.on_device(np.arange(self._num_envs, dtype=np.int32))
        self.show_as(None, None, False)

    def show_as(self, step: Show | None, reset: Show | None, players: bool) -> None:
        torch = self._torch
        if torch is not None:
            step, reset = (_then(show, lambda shown: jax.tree.map(torch.from_dlpack, shown)) for show in (step, reset))
        super().show_as(step, reset, players)

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

    def kind_of(self, array: Any) -> str | None:
        if is_float_of_jax(array.dtype):
            return "f"
        return getattr(array.dtype, "kind", None)  # keys have a type without one

    def _as_they_are(self, step: WorldStep, ids: np.ndarray | None) -> tuple[Any, ...]:
        all_ids = self._all_ids
        if self._torch is not None:  # who gets tensors may write to them; these arrays are needed again
            step = step._replace(observation=jax.tree.map(lambda leaf: leaf.copy(), step.observation))
            all_ids = all_ids.copy()
        if ids is not None:
            step, all_ids = self._program.take((step, all_ids), ids)
        return *step[:4], self._with_ids(all_ids, step.info)

    def _on_host(self, step: WorldStep) -> Shown:
        return Shown(*jax.device_get(step))

    def _each(self, function: Callable[[np.ndarray], np.ndarray], info: Any) -> Any:
        return jax.tree.map(function, info)


def _then(first: Show | None, second: Show) -> Show:
    return second if first is None else lambda given: second(first(given))
