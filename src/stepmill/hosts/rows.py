"""What the rows of a batch have besides their arrays (infos, Python objects, failures), and the objects in actions."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from stepmill.errors import ActionError, EnvError
from stepmill.hosts.faults import Fault, FaultPolicy
from stepmill.hosts.infos import engine_keys, merge_infos
from stepmill.system.uninterrupted import try_or
from stepmill.values.spaces import FlatSpace, map_object_leaves, object_leaves, object_reader
from stepmill.values.trees import map_tree


class Note(NamedTuple):  # made for every row with a text or an info: a dataclass would take five times as long
    """What came with one row. ``objects`` are the object leaves of its observation; ``final_``: of an episode's end."""

    row: int
    env_id: int
    info: dict[str, Any] | None = None
    final_info: dict[str, Any] | None = None
    objects: Sequence[Any] | None = None
    final_objects: Sequence[Any] | None = None
    error: BaseException | None = None
    phase: str | None = None  # the phase that raised the error
    message: str | None = None  # the text of the error, if it came with it


@dataclass(frozen=True)
class RowFinisher:
    """Adds the notes to a batch, and decides about its failures.

    Does not change its arguments: if a signal handler raises in the middle, it is called again.
    """

    observation: FlatSpace
    policy: FaultPolicy
    autoreset: str

    # Whether the infos that an env declares (``info_space``) come as arrays; else all come in notes.
    takes_info_arrays: ClassVar[bool] = True

    def __call__(self, result: Any, notes: Sequence[Note], faults: Sequence[Fault]) -> tuple[Any, EnvError | None]:
        """The complete result, and the error to raise with it, if any.

        ``result`` comes from the engine: (obs, info), or (obs, reward, terminated, truncated, info).
        """
        info = dict(result[-1])
        count = len(info["elapsed_step"])
        observation = result[0]
        if self.observation.object_spaces:
            observation = self._with_objects(observation, info, notes, count)
        told = [(one.row, one.env_id, one.info) for one in notes if one.info]
        info.update(merge_infos(told, count, engine_keys(self.autoreset)))
        _mark_abnormal(info, notes, count)
        if self.autoreset == "same_step" and "final_info" in info:
            ended = info["_final_info"]
            finals = [(one.row, one.env_id, one.final_info) for one in notes if one.final_info and ended[one.row]]
            info["final_info"] = {**info["final_info"], **merge_infos(finals, count)}  # the former: of native envs
        raised = raised_by(notes)
        error = self.policy.error_of([fault.with_cause(raised.get(fault.env_id)) for fault in faults])
        return (observation, *result[1:-1], info), error

    def _with_objects(self, observation: Any, info: dict[str, Any], notes: Sequence[Note], count: int) -> Any:
        tree = self.observation.tree
        nothing = [None] * len(self.observation.object_spaces)
        rows: list[Sequence[Any]] = [nothing] * count
        finals = info["final_obs"].copy() if "final_obs" in info else None
        for note in notes:
            if note.objects is not None:
                rows[note.row] = note.objects
            if note.final_objects is not None and finals is not None and info["_final_obs"][note.row]:
                finals[note.row] = map_object_leaves(tree, finals[note.row], list(note.final_objects))
        if finals is not None:
            info["final_obs"] = finals
        return map_object_leaves(tree, observation, [tuple(column) for column in zip(*rows, strict=True)])


def raised_by(notes: Sequence[Note]) -> dict[int, Note]:
    """The notes with exceptions, by env id."""
    return {one.env_id: one for one in notes if one.error is not None}


def _mark_abnormal(info: dict[str, Any], notes: Sequence[Note], count: int) -> None:
    """Marks the rows whose env says itself that something went wrong."""
    rows = [
        one.row
        for one in notes
        if (one.info and is_abnormal(one.info)) or (one.final_info and is_abnormal(one.final_info))
    ]
    if not rows:
        return
    abnormal = info["abnormal"].copy() if "abnormal" in info else np.zeros(count, np.bool_)
    abnormal[rows] = True
    info["abnormal"] = abnormal
    info.setdefault("_abnormal", np.ones(count, np.bool_))


def is_abnormal(info: Mapping[str, Any]) -> bool:
    """Whether an env reports that something went wrong in a step."""
    told = info.get("abnormal", False)
    return isinstance(told, bool | np.bool_) and bool(told)


def object_copier(tree: Any) -> Callable[[Any], list[Any]]:
    """What gives copies of the object leaves of an observation, which the env can no longer change."""
    read = object_reader(tree)

    def objects_of(observation: Any) -> list[Any]:
        return [one if type(one) is str else copy.deepcopy(one) for one in read(observation)]

    return objects_of


def snapshot(value: Any) -> Any:
    """A value with its arrays copied, however deeply nested. A value that contains itself is returned as it is."""
    try:
        return map_tree(_copied, value)
    except RecursionError:
        return value  # it cannot be merged into the info of a batch, which warns the user


def _copied(value: Any) -> Any:
    return value.copy() if isinstance(value, np.ndarray) else value


# ---- objects among actions -----------------------------------------------------------------------


def object_parts(flat: FlatSpace, action: Any, env_ids: Sequence[int]) -> dict[int, list[Any]]:
    """The object parts of each env's action, checked. ``action`` is what the user sent to these envs."""
    tree = flat.tree
    if isinstance(action, dict) and "action" in action and not (isinstance(tree, dict) and "action" in tree):
        action = action["action"]
    try:
        columns = list(object_leaves(tree, action))
    except (KeyError, TypeError, ValueError):
        raise ActionError(f"action: expected the parts of {flat.space}, got {action!r}") from None
    for space, column in zip(flat.object_spaces, columns, strict=True):
        if not isinstance(column, list | tuple | np.ndarray) or len(column) != len(env_ids):
            raise ActionError(f"action: expected a list of {len(env_ids)} values of {space}, got {column!r}")
        for env_id, value in zip(env_ids, column, strict=True):
            if not _contains(space, value):
                raise ActionError(f"action of env {env_id}: expected a value of {space}, got {value!r}")
    return {env_id: [column[i] for column in columns] for i, env_id in enumerate(env_ids)}


def _contains(space: Any, value: Any) -> bool:
    """Whether a space has a value. Some raise for a value that they do not have."""
    return try_or(lambda: bool(space.contains(value)), lambda _: False)
