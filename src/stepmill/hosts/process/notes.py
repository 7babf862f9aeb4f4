"""What goes with rows besides their arrays: infos, objects and exceptions. Workers write it, the caller reads it."""

from __future__ import annotations

import functools
import pickle
from collections.abc import Callable, Sequence
from typing import Any

from stepmill.errors import ObservationError, summary
from stepmill.hosts.infos import plain_info
from stepmill.hosts.process import outgoing
from stepmill.hosts.process.remote_error import describe, rebuild
from stepmill.hosts.process.remote_error import summary as summary_of
from stepmill.hosts.rows import Note
from stepmill.system.uninterrupted import try_or
from stepmill.system.warn_once import warn_once
from stepmill.values.spaces import object_reader

# ---- in a worker ---------------------------------------------------------------------------------


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


def write_own_note(
    _: int,
    env_id: int,
    info: Any,
    final_info: Any,
    objects: Any,
    final_objects: Any,
    error: BaseException | None,
    phase: str,
    *_message: Any,
) -> bytes:
    """The note of an env that is not in a worker, in the form that workers write."""
    first, last = (None if part is None else outgoing.pickled(part) for part in (objects, final_objects))
    return write_note(env_id, info, final_info, first, last, error, phase)


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


# ---- in the caller -------------------------------------------------------------------------------


def read_notes(notes: Sequence[tuple[int, int, bytes]]) -> list[Note | str | None]:
    """The notes that came with rows; a native env's note is text. Unreadable parts are left out, with a warning."""
    return try_or(
        lambda: _read_all(notes),
        lambda _: [_or_left_out(note[1], functools.partial(_read_note, *note, _load_or_tell)) for note in notes],
    )


def note_of_bytes(env_id: int, content: bytes) -> tuple[Any, ...] | str | None:
    """What a note has behind its row and env; a native env's note is text."""
    (note,) = read_notes([(0, env_id, content)])
    return note[2:] if isinstance(note, Note) else note


def _read_all(notes: Sequence[tuple[int, int, bytes]]) -> list[Note | str | None]:
    """Envs often say the same, such as the mission of a grid: a note of nothing but texts is unpickled once."""
    known: dict[bytes, Note] = {}
    out: list[Note | str | None] = []
    for row, env_id, content in notes:
        like = known.get(content)
        if like is not None:
            out.append(Note(row, env_id, None, None, like.objects, None, None, like.phase))
            continue
        note = _read_note(row, env_id, content, _load)
        out.append(note)
        if isinstance(note, Note) and _is_text_only(note):
            known[content] = note
    return out


def _is_text_only(note: Note) -> bool:
    """Whether it has nothing that the caller could change, so that several rows may share it."""
    if note.objects is None or not all(type(one) is str for one in note.objects):
        return False
    return all(part is None for part in (note.info, note.final_info, note.final_objects, note.error))


def _read_note(row: int, env_id: int, content: bytes, load: Callable[[int, bytes], Any]) -> Note | str | None:
    note = load(env_id, content)
    if note is None or isinstance(note, str):
        return note
    (info, final_info, objects, final_objects), described, phase = note
    return Note(
        row,
        env_id,
        None if info is None else plain_info(load(env_id, info), env_id),
        None if final_info is None else plain_info(load(env_id, final_info), env_id),
        None if objects is None else load(env_id, objects),
        None if final_objects is None else load(env_id, final_objects),
        None if described is None else rebuild(described),
        phase,
        None if described is None else summary_of(described),
    )


def _load(_: int, pickled: bytes) -> Any:
    return pickle.loads(pickled)


def _load_or_tell(env_id: int, pickled: bytes) -> Any:
    return _or_left_out(env_id, functools.partial(pickle.loads, pickled))


def _or_left_out(env_id: int, read: Callable[[], Any]) -> Any:
    def leave_out(failure: BaseException) -> None:
        warn_once(f"an info of env {env_id} cannot be unpickled in this process and is left out: {summary(failure)}")

    return try_or(read, leave_out)
