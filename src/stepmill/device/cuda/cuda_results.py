"""Results of a kernel: tensors of torch or arrays of JAX over its memory, or copies for numpy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from stepmill import _native
from stepmill.device.cuda import driver
from stepmill.device.cuda.action_tensors import ALIGNMENT
from stepmill.device.cuda.cuda_program import CudaProgram
from stepmill.device.device_results import DeviceResults, Shown
from stepmill.errors import ActionError, UsageError
from stepmill.settings import Settings
from stepmill.values.spaces import ArrayLeaf, FlatSpace
from stepmill.values.trees import map_tree, map_trees


class OnGpu:
    """An array of a batch, for libraries that take over what speaks DLPack."""

    def __init__(self, batch: _native.GpuBatch, index: int, gpu: int) -> None:
        self._batch, self._index, self._gpu = batch, index, gpu

    def __dlpack__(
        self, *, stream: int | None = None, max_version: tuple[int, int] | None = None, **given: Any
    ) -> object:
        if stream != _NO_STREAM:
            self._batch.ready_for(0 if stream in (None, _DEFAULT_STREAM) else stream)
        return self._batch.capsule(self._index, max_version is not None and max_version >= (1, 0))

    def __dlpack_device__(self) -> tuple[int, int]:
        return driver.MEMORY_KIND, self._gpu


# As DLPack numbers them; others are handles.
_NO_STREAM, _DEFAULT_STREAM = -1, 1


class CudaResults(DeviceResults):
    """Makes results of batches.

    Args:
        observation: The space of observations.
        infos: The names of the env's own infos.
        settings: The settings of the pool.
        program: The program whose batches are shown.
    """

    def __init__(self, observation: FlatSpace, infos: Sequence[str], settings: Settings, program: CudaProgram) -> None:
        super().__init__(observation, settings)
        self._program, self._infos = program, infos
        self._count = len(observation.leaves)
        self._same_step = settings.autoreset == "same_step"
        self._arrays = self._maker()
        self._arrays_of_graphs: Sequence[Any] | None = None
        self._of_graphs: Any = None  # what the first graph_step returned

    def _maker(self) -> Callable[[Any], Sequence[Any]]:
        """Makes arrays of the pool's library of a batch. It does not know this object: no cycle keeps that alive."""
        if self._output == "torch":
            import torch

            self._torch: Any = torch
            names = [f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)]
            names += ["bool", "float16", "float32", "float64"]
            self._kinds = {getattr(torch, name): np.dtype(name).kind for name in names} | {torch.bfloat16: "f"}
            api = getattr(torch.Tensor, "__dlpack_c_exchange_api__", None)
            if api is not None:
                return lambda batch: batch.tensors(api)
            return self._one_by_one(torch.from_dlpack)
        self._torch = None
        if self._output == "jax":
            import jax

            return self._one_by_one(jax.dlpack.from_dlpack)
        stream = self._program.stream
        return lambda batch: batch.arrays(stream())

    def _one_by_one(self, make: Callable[[Any], Any]) -> Callable[[Any], Sequence[Any]]:
        gpu = self._program.gpu
        return lambda batch: [make(OnGpu(batch, i, gpu)) for i in range(batch.count)]

    def array_on_device(self, given: Any) -> Any:
        """A tensor on the GPU of this pool; None if it is something else, which is read on the host."""
        torch = self._torch
        if torch is None or not isinstance(given, torch.Tensor):
            return None
        if given.requires_grad:
            given = given.detach()
        if not given.is_cuda:
            return None if driver.is_real() else given
        gpu = self._program.gpu
        return given if given.get_device() == gpu else given.to(f"cuda:{gpu}", non_blocking=True)

    def kind_of(self, array: Any) -> str | None:
        return self._kinds.get(array.dtype)

    def _as_they_are(self, batch: Any, ids: np.ndarray | None) -> tuple[Any, ...]:
        arrays = self._arrays(batch)
        if ids is not None:
            rows = ids if self._torch is None else self._torch.as_tensor(ids, device=arrays[0].device).long()
            arrays = [one[rows] for one in arrays]
        return self._tuple_of(arrays)

    # ---- steps in CUDA graphs ----------------------------------------------------------------

    def check_graph_step(self, space: FlatSpace, action: Any) -> None:
        """Raises if such a step cannot be made now."""
        self._check_for_graph(space, action)
        cuda = self._torch.cuda
        if self._of_graphs is None and cuda.is_available() and cuda.is_current_stream_capturing():
            raise UsageError(
                "graph_step: call it once before the capture: the first call makes the tensors of all others"
            )

    def of_graph_step(self, program: CudaProgram, space: FlatSpace, action: Any) -> Any:
        """Steps, and returns what the view shows, in the tensors of the first call."""
        action = map_trees(lambda _, part: part, space.tree, action)  # in the order of the kernel
        batch = program.graph_step(action)
        if self._arrays_of_graphs is None:
            self._arrays_of_graphs = self._arrays(batch)
        shown = self._tuple_of(self._arrays_of_graphs)
        shown = shown if self._step is None else self._step(shown)
        self._of_graphs = shown if self._of_graphs is None else _refilled(self._of_graphs, shown)
        return self._of_graphs

    def _check_for_graph(self, space: FlatSpace, action: Any) -> None:
        """Raises unless a kernel can read the action as it is: a copy would be another one at the next replay."""
        parts: list[tuple[ArrayLeaf, Any]] = []
        try:
            map_trees(lambda leaf, part: parts.append((space.leaves[leaf], part)), space.tree, action)
        except (LookupError, TypeError, ValueError) as error:
            raise ActionError(f"graph_step: expected an action of {space.space}, got {action!r}") from error
        if isinstance(space.tree, dict) and len(action) != len(space.tree):
            raise ActionError(f"graph_step: expected the keys {list(space.tree)}, got {list(action)}")
        for leaf, part in parts:
            self._check_part_for_graph(leaf, part)

    def _check_part_for_graph(self, leaf: ArrayLeaf, part: Any) -> None:
        shape = (self._num_envs, *leaf.shape)
        gpu = self._torch.device("cuda" if driver.is_real() else "cpu", self._program.gpu)
        got = type(part).__name__
        if isinstance(part, self._torch.Tensor):
            is_here = part.device.type == gpu.type and part.device.index in (gpu.index, None)
            is_right = tuple(part.shape) == shape and str(part.dtype) == f"torch.{leaf.dtype}" and is_here
            is_aligned = part.is_contiguous() and not part.data_ptr() % ALIGNMENT
            if is_right and is_aligned:
                return
            got = f"a {part.dtype} tensor of shape {tuple(part.shape)} on {part.device}"
            if is_right:
                got += (
                    " that does not begin at a multiple of 16 bytes: clone() it"
                    if part.is_contiguous()
                    else (" that is not contiguous")
                )
        name = f"action {leaf.name!r}" if leaf.name else "action"
        raise ActionError(
            f"graph_step: {name}: expected a contiguous torch.{leaf.dtype} tensor of shape {shape} on {gpu}, got {got}"
        )

    # ---- the form of a result ----------------------------------------------------------------

    def _tuple_of(self, arrays: Sequence[Any]) -> tuple[Any, ...]:
        """The arrays of a batch, in the form of a result (cpp/core/gpu/gpu_envs.h says in which order they come)."""
        reward, terminated, truncated, ended, abnormal, env_id, elapsed, length, total = arrays[-9:]
        observation, infos = self._part(arrays, 0)
        if "abnormal" in infos:  # what envs say of themselves
            abnormal = abnormal | infos.pop("abnormal") & infos.pop("_abnormal")
        info = {"elapsed_step": elapsed, "episode_return": total, "_episode_return": ended}
        info |= {"episode_length": length, "_episode_length": ended, "abnormal": abnormal, **infos}
        if self._same_step:
            final_obs, final_info = self._part(arrays, self._count + 2 * len(self._infos))
            info |= {"final_obs": final_obs, "_final_obs": ended, "final_info": final_info, "_final_info": ended}
        return observation, reward, terminated, truncated, self._with_ids(env_id, info)

    def _part(self, arrays: Sequence[Any], first: int) -> tuple[Any, dict[str, Any]]:
        """An observation, and the env's own infos with their masks."""
        tree = self._observation.tree
        observation = arrays[first] if tree == 0 else map_tree(lambda leaf: arrays[first + leaf], tree)
        if not self._infos:
            return observation, {}
        values, masks = first + self._count, first + self._count + len(self._infos)
        infos = {name: arrays[values + i] for i, name in enumerate(self._infos)}
        return observation, infos | {f"_{name}": arrays[masks + i] for i, name in enumerate(self._infos)}

    def _on_host(self, batch: Any) -> Shown:
        shown = Shown(*self._tuple_of(batch.arrays(self._program.stream())))
        own = {"env_id", "players"}
        return shown._replace(info={name: one for name, one in shown.info.items() if name not in own})

    def _each(self, function: Callable[[np.ndarray], np.ndarray], info: Any) -> Any:
        return map_tree(function, info)


def _refilled(kept: Any, new: Any) -> Any:
    """The tensors of an earlier result, with the numbers of a new one, of which they may be tensors too."""
    if isinstance(new, dict):
        return {name: _refilled(kept[name], part) for name, part in new.items()}
    if isinstance(new, tuple):
        parts = [_refilled(*pair) for pair in zip(kept, new, strict=True)]
        return type(new)(*parts) if hasattr(new, "_fields") else tuple(parts)
    if new is not None and new is not kept:
        kept.copy_(new)
    return kept
