"""Reading what workers send besides the arrays."""

from __future__ import annotations

import pickle
from typing import Any

from stepmill.hosts.process.notes import read_notes
from stepmill.hosts.rows import Note


def packed(objects: list[Any] | None, info: dict[str, Any] | None = None) -> bytes:
    parts = [None if part is None else pickle.dumps(part) for part in (info, None, objects, None)]
    return pickle.dumps((parts, None, "step"))


def test_rows_that_say_the_same_keep_their_place() -> None:
    notes = read_notes([(row, 7 - row, packed(["go to the red ball"])) for row in range(3)])
    assert [(note.row, note.env_id, note.objects) for note in notes if isinstance(note, Note)] == [
        (0, 7, ["go to the red ball"]),
        (1, 6, ["go to the red ball"]),
        (2, 5, ["go to the red ball"]),
    ]


def test_what_can_be_changed_is_not_shared() -> None:
    first, second = read_notes([(row, row, packed([[1, 2]], {"path": [3]})) for row in range(2)])
    assert isinstance(first, Note)
    assert isinstance(second, Note)
    assert first.objects is not None
    assert second.objects is not None
    assert first.objects[0] is not second.objects[0]
    assert first.info is not None
    assert second.info is not None
    assert first.info["path"] is not second.info["path"]


def test_an_info_beside_a_text_is_read_for_each_row() -> None:
    notes = read_notes([(row, row, packed(["text"], {"row": [row]})) for row in range(2)])
    assert [note.info for note in notes if isinstance(note, Note)] == [{"row": [0]}, {"row": [1]}]
