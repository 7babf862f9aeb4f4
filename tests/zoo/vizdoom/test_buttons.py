"""Combinations of buttons, without a game."""

from __future__ import annotations

import numpy as np
import pytest

from stepmill.errors import ConfigError
from stepmill.zoo.vizdoom.env import combinations
from stepmill.zoo.vizdoom.options import read_deltas

vizdoom = pytest.importorskip("vizdoom")
ORDER = [vizdoom.Button(i).name for i in range(len(vizdoom.Button.__members__))]


def test_opposite_buttons_are_not_pressed_together() -> None:
    rows = combinations(["TURN_LEFT", "TURN_RIGHT", "MOVE_FORWARD"], ORDER, False, {})
    expected = [[0, 0, 0], [0, 1, 0], [1, 0, 0], [0, 0, 1], [0, 1, 1], [1, 0, 1]]
    np.testing.assert_array_equal(rows, expected)  # in EnvPool's order


def test_a_button_without_its_opposite_is_pressed_or_not() -> None:
    assert combinations(["MOVE_FORWARD"], ORDER, False, {}).tolist() == [[0], [1]]


def test_at_most_one_weapon_is_selected() -> None:
    rows = combinations(["ATTACK", "SELECT_WEAPON1", "SELECT_WEAPON3", "SELECT_WEAPON0"], ORDER, False, {})
    assert len(rows) == 2 * 4
    assert rows[:, 1:].sum(axis=1).max() == 1


def test_speed_can_be_forced() -> None:
    assert combinations(["SPEED", "ATTACK"], ORDER, False, {}).tolist() == [[0, 0], [1, 0], [0, 1], [1, 1]]
    assert combinations(["SPEED", "ATTACK"], ORDER, True, {}).tolist() == [[1, 0], [1, 1]]


def test_buttons_with_values() -> None:
    available = ["TURN_LEFT_RIGHT_DELTA", "ATTACK", "LOOK_UP_DOWN_DELTA"]
    deltas = read_deltas({"TURN_LEFT_RIGHT_DELTA": [4, -2.0, 1.0]}, available)
    rows = combinations(available, ORDER, False, deltas)
    assert rows[:4].tolist() == [[-2, 0, 0], [-1, 0, 0], [0, 0, 0], [1, 0, 0]]
    assert rows[4:].tolist() == [[-2, 1, 0], [-1, 1, 0], [0, 1, 0], [1, 1, 0]]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"LOOK_UP_DOWN_DELTA": [3, 0, 1]}, "that the scenario has"),
        ({"ATTACK": [3, 0, 1]}, "that the scenario has"),
        ({"TURN_LEFT_RIGHT_DELTA": [3, 0]}, "number, first, last"),
        ({"TURN_LEFT_RIGHT_DELTA": [1, 0, 1]}, "whole number >= 2"),
        ({"TURN_LEFT_RIGHT_DELTA": [2, "a", 1]}, "finite number"),
        ([1], "expected a dict"),
    ],
)
def test_values_that_make_no_sense(given: object, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read_deltas(given, ["ATTACK", "TURN_LEFT_RIGHT_DELTA"])


def test_too_many_combinations_are_an_error_and_not_an_hour() -> None:
    with pytest.raises(ConfigError, match="at most 1000000 combinations"):
        combinations(ORDER[:38], ORDER, False, {})
