"""What the rows of a batch have beside their arrays: infos, Python objects, failures."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from stepmill.pool.faults import Fault, FaultPolicy
from stepmill.pool.infos import ENGINE_KEYS, add_info
from stepmill.spaces import FlatSpace, map_object_leaves, object_leaves

__all__ = ["Note", "RowFinisher", "is_abnormal", "objects_of", "snapshot"]


@dataclass(frozen=True, slots=True)
class Note:
    """Of one row: ``objects`` are the object leaves of its observation, ``final_`` those of an episode's end."""

    row: int
    env_id: int
    info: dict[str, Any] | None = None
    final_info: dict[str, Any] | None = None
    objects: Sequence[Any] | None = None
    final_objects: Sequence[Any] | None = None
    error: BaseException | None = None
    phase: str | None = None  # in which the error came


@dataclass(frozen=True)
class RowFinisher:
    """Puts the notes into a batch, and settles its failures."""

    observation: FlatSpace
    policy: FaultPolicy

    def __call__(self, result: Any, notes: Sequence[Note], faults: Sequence[Fault]) -> Any:
        """``result`` is the engine's: (obs, info), or (obs, reward, terminated, truncated, info)."""
        info = result[-1]
        count = len(info["elapsed_step"])
        if self.observation.object_spaces:
            result = (self._with_objects(result[0], info, notes, count), *result[1:])
        add_info(info, ((one.row, one.info) for one in notes if one.info), count, ENGINE_KEYS)
        for note in notes:
            told = (note.info, note.final_info)  # by the env itself
            if any(one and is_abnormal(one) for one in told):
                info.setdefault("abnormal", np.zeros(count, np.bool_))[note.row] = True
                info.setdefault("_abnormal", np.ones(count, np.bool_))
        if "final_info" in info:
            ended = info["_final_info"]
            info["final_info"] = {}
            finals = ((one.row, one.final_info) for one in notes if one.final_info and ended[one.row])
            add_info(info["final_info"], finals, count)
        if not faults:
            return result
        raised = {one.env_id: one for one in notes if one.error is not None}
        known = [
            fault.caused_by(raised[fault.env_id].error, raised[fault.env_id].phase) if fault.env_id in raised else fault
            for fault in faults
        ]
        return self.policy.settle(result, known)

    def _with_objects(self, observation: Any, info: dict[str, Any], notes: Sequence[Note], count: int) -> Any:
        tree = self.observation.tree
        nothing = [None] * len(self.observation.object_spaces)
        rows: list[Sequence[Any]] = [nothing] * count
        for note in notes:
            if note.objects is not None:
                rows[note.row] = note.objects
            if note.final_objects is not None and "_final_obs" in info and info["_final_obs"][note.row]:
                last = info["final_obs"][note.row]
                info["final_obs"][note.row] = map_object_leaves(tree, last, list(note.final_objects))
        return map_object_leaves(tree, observation, [tuple(column) for column in zip(*rows, strict=True)])


def is_abnormal(info: Mapping[str, Any]) -> bool:
    """Whether an env says of a step that something went wrong in it."""
    told = info.get("abnormal", False)
    return isinstance(told, bool | np.bool_) and bool(told)


def objects_of(tree: Any, observation: Any) -> list[Any]:
    """The object leaves of an observation, the caller's own: the env cannot change them any more."""
    return [copy.deepcopy(one) for one in object_leaves(tree, observation)]


def snapshot(value: Any) -> Any:
    """A value with its arrays copied, whatever they are nested in."""
    if isinstance(value, np.ndarray):
        return value.copy()
    if isinstance(value, dict):
        return {key: snapshot(child) for key, child in value.items()}
    if isinstance(value, tuple):
        children = [snapshot(child) for child in value]
        return value._make(children) if hasattr(value, "_make") else tuple(children)
    return value
