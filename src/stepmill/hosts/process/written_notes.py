"""What goes with rows besides their arrays, as bytes: infos, objects and exceptions. ``caller.notes`` reads them."""

from __future__ import annotations

import functools
import pickle
from collections.abc import Callable
from typing import Any

from stepmill.errors import ObservationError, summary
from stepmill.hosts.process import outgoing
from stepmill.hosts.process.remote_error import describe
from stepmill.system.warn_once import warn_once
from stepmill.values.spaces import object_reader


def write_note(
    env_id: int,
    info: Any,
    final_info: Any,
    objects: Any,
    final_objects: Any,
    error: BaseException | None,
    phase: str,
) -> bytes:
    """Pickles every part separately: if the caller cannot read one, it still gets the others."""
    if info is None and final_info is None and final_objects is None and error is None and len(objects or ()) < _SHORT:
        return _note_of_objects(objects, phase)
    infos = [None if part is None else _dumps(env_id, part) for part in (info, final_info)]
    return pickle.dumps(([*infos, objects, final_objects], None if error is None else describe(error), phase))


# An env often says the same for a whole episode, such as the mission of a grid: what is short is pickled once.
_SHORT = 1000
_remembered = functools.lru_cache(maxsize=256)


@_remembered
def _note_of_objects(objects: bytes | None, phase: str) -> bytes:
    return pickle.dumps(([None, None, objects, None], None, phase))


@_remembered
def _pack_text(text: str) -> bytes:
    return outgoing.pickled([text])


def object_packer(tree: Any) -> Callable[[Any], bytes]:
    """What pickles the object leaves of an observation. Called while the env is observed: a failure fails the env."""
    read = object_reader(tree)

    def pack(observation: Any) -> bytes:
        objects = read(observation)
        try:
            if len(objects) == 1 and type(objects[0]) is str and len(objects[0]) < _SHORT:
                return _pack_text(objects[0])
            return outgoing.pickled(objects)
        except BaseException as error:
            raise ObservationError(f"observation: expected objects that can be pickled: {summary(error)}") from error

    return pack


def write_text(env_id: int, text: str) -> bytes:
    """The note of a native env: what it threw."""
    return pickle.dumps(text)


def _dumps(env_id: int, part: Any) -> bytes:
    try:
        return outgoing.pickled(part)
    except BaseException:  # it may be anything, and must cost neither the row nor the worker
        pass
    try:
        return outgoing.pickled(_picklable_parts(env_id, part))
    except BaseException as error:
        warn_once(f"the info of env {env_id} cannot be read and stays in the worker process: {summary(error)}")
        return pickle.dumps({})


def _picklable_parts(env_id: int, info: Any) -> Any:
    """The parts of an info that can be pickled. The others cannot leave this process; a warning names them."""
    kept = {}
    for key, value in info.items():
        try:
            outgoing.pickled((key, value))
        except BaseException as error:
            warn_once(
                f"info[{key!r}] of env {env_id} cannot be pickled and stays in the worker process: {summary(error)}"
            )
        else:
            kept[key] = value
    return kept
