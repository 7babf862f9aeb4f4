"""What workers send besides the arrays: infos, objects and exceptions, pickled."""

from __future__ import annotations

import functools
import pickle
from collections.abc import Callable, Sequence
from typing import Any

from stepmill.errors import summary
from stepmill.hosts.infos import plain_info
from stepmill.hosts.process.remote_error import rebuild
from stepmill.hosts.process.remote_error import summary as summary_of
from stepmill.hosts.rows import Note
from stepmill.system.user_code import try_or
from stepmill.system.warn_once import warn_once


def read_notes(notes: Sequence[tuple[int, int, bytes]]) -> list[Note | str | None]:
    """The notes that came with rows; a native env's note is text. Unreadable parts are left out, with a warning."""
    return try_or(
        lambda: _read_all(notes),
        lambda _: [_or_left_out(note[1], functools.partial(_read_note, *note, _load_or_tell)) for note in notes],
    )


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
