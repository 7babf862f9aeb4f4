"""Actions in tensors on the GPU, in the form that a kernel reads. Nothing here waits, except what says so."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from stepmill.errors import ActionError
from stepmill.system.optional import TORCH, require
from stepmill.values.spaces import ArrayLeaf
from stepmill.values.trees import leaves

ALIGNMENT = 16  # of memory: a kernel reads up to as many bytes at once


class ActionTensors:
    """Converts tensors to a form that a kernel can read.

    Args:
        action: The arrays of an action.
        num_envs: The rows of each.
        check_moment: Raises if nothing can be computed now. Called before tensors are converted or copied.
    """

    def __init__(self, action: Sequence[ArrayLeaf], num_envs: int, check_moment: Callable[[], None]) -> None:
        self._torch = require(*TORCH, "output='torch'")
        self._types = [getattr(self._torch, leaf.dtype) for leaf in action]
        self._num_envs, self._check_moment = num_envs, check_moment
        self._least_misfit: Any = None  # the lowest id of an env that was given a bad number; num_envs: none
        self._counted: Any = None  # when that is known: an event of the stream that finds it out

    def addresses(self, action: Any) -> tuple[tuple[int, ...], Any]:
        """Where the arrays of an action are, and what keeps them there."""
        if getattr(action, "dtype", None) is self._types[0] and _is_ready(action):
            return (action.data_ptr(),), action
        parts = [self._readable(*pair) for pair in zip(leaves(action), self._types, strict=True)]
        return tuple(part.data_ptr() for part in parts), parts

    def misfit(self) -> int | None:
        """The lowest id of an env whose action had to be changed since that was forgotten. Waits."""
        if self._counted is not None:
            self._counted.synchronize()
        env = self._num_envs if self._least_misfit is None else int(self._least_misfit)
        return env if env < self._num_envs else None

    def forget_misfit(self) -> None:
        self._least_misfit = self._counted = None

    def _readable(self, part: Any, dtype: Any) -> Any:
        if part.layout is not self._torch.strided:
            raise ActionError(f"action: expected a dense tensor, got one in the layout {part.layout}: call to_dense()")
        if part.dtype is dtype and _is_ready(part):
            return part
        self._check_moment()
        if part.dtype is not dtype:
            part = (part if dtype.is_floating_point else self._whole(part, dtype)).to(dtype)
        part = part.contiguous()
        if part.numel() and not part.data_ptr():
            raise ActionError(f"action: expected a tensor with memory, got {part!r}, which has none")
        return part.clone() if part.data_ptr() % ALIGNMENT else part

    def _whole(self, part: Any, dtype: Any) -> Any:
        """The numbers that a type of whole numbers can hold; where others were given, the nearest, which is noted."""
        torch = self._torch
        if part.dtype is torch.bool:
            return part
        least, most = (0, 1) if dtype is torch.bool else (torch.iinfo(dtype).min, torch.iinfo(dtype).max)
        if part.is_floating_point():
            # Of doubles, the last ones below 2**63 and 2**64 are the largest that fit.
            most = {2**63 - 1: 2**63 - 1024, 2**64 - 1: 2**64 - 2048}.get(most, most)
            nearest = part.double().round().nan_to_num(0.0).clamp(least, most)
            misfits = part != nearest
            nearest = torch.where(nearest < 2.0**63, nearest, nearest - 2.0**64)  # as the bits of an int64
        else:
            if part.dtype in (torch.uint16, torch.uint32):  # torch can do little with these
                part = part.to(torch.int64)
            its = torch.iinfo(part.dtype)
            if least <= its.min and its.max <= most:
                return part
            if part.dtype is torch.uint64:
                part = part.contiguous().view(torch.int64)
                its = torch.iinfo(torch.int64)
                nearest = part.masked_fill(part < 0, its.max).clamp(0, min(most, its.max))  # those from 2**63 on
            else:
                nearest = part.clamp(max(least, its.min), min(most, its.max))
            misfits = part != nearest
        misfits = misfits.reshape(self._num_envs, -1).any(1)
        ids = torch.arange(self._num_envs, device=part.device)
        misfit = torch.where(misfits, ids, self._num_envs).min()
        if self._least_misfit is not None:
            if self._counted is not None:
                # Maybe in another stream than this one. The current device may be another than the pool's.
                here = torch.cuda.current_stream(part.device)
                self._counted.wait(here)
                self._least_misfit.record_stream(here)
            misfit = torch.minimum(self._least_misfit, misfit)
        self._least_misfit = misfit
        self._counted = torch.cuda.current_stream(part.device).record_event() if part.is_cuda else None
        return nearest.to(torch.int64)


def _is_ready(part: Any) -> bool:
    """Whether a kernel can read a tensor of the right type where it is."""
    if not part.is_contiguous():
        return False
    address = part.data_ptr()
    return bool(address or not part.numel()) and not address % ALIGNMENT
