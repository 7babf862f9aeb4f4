"""States of envs, as objects: what their indices are, and when configurations are the same."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

from stepmill.values.saved_states import SavedStates, StateOrigin, configuration_text
from support.subprocesses import run_well

BOUNDS = [[0, 2], [2, 4], [4, 6], [6, 8]]


@pytest.fixture
def states() -> SavedStates:
    """Four states, each with somebody who keeps it."""
    origin = StateOrigin("env", "fork", "", None)
    return SavedStates((origin,), b"aabbccdd", np.array(BOUNDS), (1, 2, 3, 4))


@pytest.mark.parametrize("keepers", [(), (1, 2, 3, 4)])
@pytest.mark.parametrize("index", [[0, 1], np.array([True, True, False, False]), (slice(0, 2), 0), None, 1.0])
def test_an_index_is_a_number_or_a_slice(states: SavedStates, index: Any, keepers: Any) -> None:
    plain = SavedStates(states.origins, *states.parts, keepers)
    with pytest.raises(TypeError, match="integer"):
        plain[index]
    assert bytes(plain[np.int64(1)]) == b"bb"  # type: ignore[call-overload]


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy])
def test_a_copy_keeps_what_is_elsewhere(states: SavedStates, duplicate: Any) -> None:
    assert [one.keeper for one in duplicate(states)] == [1, 2, 3, 4]
    assert duplicate(states[1]).keeper == 2
    assert duplicate({"best": [states[2]]})["best"][0].keeper == 3


def test_a_set_in_a_configuration_has_the_same_text_in_every_process() -> None:
    config = {"names": {"alpha", "beta", "gamma", "delta"}, "pairs": frozenset([("a", 1), ("b", 2)])}
    code = f"from stepmill.values.saved_states import configuration_text as f; print(f({config!r}))"
    assert {run_well(code).strip() for _ in range(3)} == {configuration_text(config)}
    assert configuration_text({"names": {"alpha"}}) != configuration_text({"names": {"beta"}})


def test_notes_do_not_lose_what_is_elsewhere(states: SavedStates) -> None:
    noted = states.with_notes([b"x", b"", b"yz", b"x"])
    plain, notes = noted[1:].split_notes()
    assert [one.keeper for one in noted] == [1, 2, 3, 4]
    assert [(bytes(one), one.keeper) for one in plain] == [(b"bb", 2), (b"cc", 3), (b"dd", 4)]
    assert notes == [b"", b"yz", b"x"]
