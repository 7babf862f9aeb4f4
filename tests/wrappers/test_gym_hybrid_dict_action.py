"""``GymHybridDictAction``: a dict outside, a tuple inside."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from stepmill.errors import ActionError, SpaceError
from stepmill.wrappers.action_wrappers import GymHybridDictAction
from support.envs.scripted import POINT, CyclingEnv

MOVING = spaces.Tuple([spaces.Discrete(3), spaces.Box(0, 1, (1,), np.float32), spaces.Box(-1, 1, (1,), np.float32)])


def test_a_hybrid_action_is_a_dict_outside_and_a_tuple_inside() -> None:
    script = CyclingEnv(action_space=MOVING)
    env = GymHybridDictAction(script)
    assert env.action_space == spaces.Dict(
        {
            "action_type": spaces.Discrete(3),
            "action_args": spaces.Box(np.array([0, -1], np.float32), np.array([1, 1], np.float32)),
        }
    )
    env.reset()
    env.step({"action_type": 1, "action_args": np.array([0.25, -0.5], np.float32)})
    (received,) = script.received
    assert received in MOVING
    assert (received[0], received[1].tolist(), received[2].tolist()) == (1, [0.25], [-0.5])


@pytest.mark.parametrize("kind", [2, np.int64(2), np.array(2), np.array([2]), np.uint8(2), 2.0])
@pytest.mark.parametrize("args", [[0.5, 0.5], (0.5, 0.5), np.full(2, 0.5), np.full(2, 0.5, np.float32)])
def test_actions_may_be_arrays_lists_and_numbers(kind: Any, args: Any) -> None:
    script = CyclingEnv(action_space=MOVING)
    env = GymHybridDictAction(script)
    env.reset()
    env.step({"action_type": kind, "action_args": args})
    assert script.received[0] in MOVING
    assert script.received[0] == (2, 0.5, 0.5)


def test_boxes_of_any_shape_and_type_lie_one_after_another() -> None:
    space = spaces.Tuple(
        [spaces.Discrete(2, start=1), spaces.Box(-9, 9, (2, 2), np.float32), spaces.Box(-9, 9, (), np.float64)]
    )
    script = CyclingEnv(action_space=space)
    env = GymHybridDictAction(script)
    env.reset()
    env.step({"action_type": 2, "action_args": [1, 2, 3, 4, 5]})
    assert script.received[0] in space
    assert script.received[0][1].tolist() == [[1, 2], [3, 4]]
    assert script.received[0][2] == 5
    assert env.action_space["action_args"].shape == (5,)


def test_one_box_stays_as_it_is() -> None:
    space = spaces.Tuple([spaces.Discrete(3), spaces.Box(-1, 1, (2,), np.float32)])
    script = CyclingEnv(action_space=space)
    env = GymHybridDictAction(script)
    assert env.action_space["action_args"] == space[1]
    env.reset()
    env.step(env.action_space.sample())
    assert script.received[0] in space


def test_parameters_outside_of_their_bounds_are_passed_on() -> None:
    script = CyclingEnv(action_space=MOVING)
    env = GymHybridDictAction(script)
    env.reset()
    env.step({"action_type": 0, "action_args": [7, -7]})
    assert script.received[0] == (0, 7, -7)


def test_what_the_env_is_given_is_its_own() -> None:
    script = CyclingEnv(action_space=MOVING)
    env = GymHybridDictAction(script)
    env.reset()
    args = np.array([0.25, 0.5], np.float32)
    env.step({"action_type": 0, "action_args": args})
    args[:] = 0
    assert script.received[0] == (0, 0.25, 0.5)


@pytest.mark.parametrize(
    ("action", "message"),
    [
        ((1, [0.5], [0.5]), r"a dict of action_type and action_args as action, got \(1,"),
        ({"type": 1, "args": [0.5, 0.5]}, "a dict of action_type and action_args as action, got {'type'"),
        ({"action_type": 3, "action_args": [0, 0]}, r"an action_type of Discrete\(3\), got 3"),
        ({"action_type": -1, "action_args": [0, 0]}, r"an action_type of Discrete\(3\), got -1"),
        ({"action_type": 0.5, "action_args": [0, 0]}, r"an action_type of Discrete\(3\), got 0.5"),
        ({"action_type": np.nan, "action_args": [0, 0]}, r"an action_type of Discrete\(3\), got nan"),
        ({"action_type": True, "action_args": [0, 0]}, r"an action_type of Discrete\(3\), got True"),
        ({"action_type": [0, 1], "action_args": [0, 0]}, r"an action_type of Discrete\(3\), got \[0, 1\]"),
        ({"action_type": 0, "action_args": [0]}, r"action_args of 2 numbers, got \[0\]"),
        ({"action_type": 0, "action_args": [[0, 0]]}, r"action_args of 2 numbers, got \[\[0, 0\]\]"),
        ({"action_type": 0, "action_args": "ab"}, "action_args of 2 numbers, got 'ab'"),
    ],
)
def test_actions_that_cannot_be_are_refused(action: Any, message: str) -> None:
    script = CyclingEnv(action_space=MOVING)
    env = GymHybridDictAction(script)
    env.reset()
    with pytest.raises(ActionError, match=f"GymHybridDictAction: expected {message}"):
        env.step(action)
    assert script.received == []


@pytest.mark.parametrize(
    "space",
    [
        spaces.Discrete(3),
        spaces.Tuple([spaces.Discrete(3)]),
        spaces.Tuple([POINT, spaces.Discrete(3)]),
        spaces.Tuple([spaces.Discrete(3), POINT, spaces.Discrete(2)]),
        spaces.Tuple([spaces.Discrete(3), spaces.Box(0, 5, (1,), np.int64)]),
        spaces.Dict({"action_type": spaces.Discrete(3), "action_args": POINT}),
        spaces.Tuple([]),
    ],
    ids=str,
)
def test_other_actions_are_refused(space: spaces.Space[Any]) -> None:
    expected = "GymHybridDictAction: expected a Tuple of one Discrete and then Boxes of floats as action, got"
    with pytest.raises(SpaceError, match=f"{expected} {type(space).__name__}"):
        GymHybridDictAction(CyclingEnv(action_space=space))


@pytest.mark.parametrize("shape", [(3,), ((3,),), {"a": (1,)}, ()])
def test_shapes_of_other_actions_are_refused(shape: Any) -> None:
    with pytest.raises(
        SpaceError, match="GymHybridDictAction: expected the shapes of a Discrete and one or more Boxes"
    ):
        GymHybridDictAction.new_shape((2,), shape, (1,))
