"""``ObsPlusPrevActRew``: the last action and reward beside the observation."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from stepmill.errors import ActionError, SpaceError
from stepmill.wrappers.action_wrappers import GymHybridDictAction
from stepmill.wrappers.observations import ObsPlusPrevActRew
from support.envs.scripted import POINT, CyclingEnv

MOVING = spaces.Tuple([spaces.Discrete(3), spaces.Box(0, 1, (1,), np.float32), spaces.Box(-1, 1, (1,), np.float32)])


def test_the_last_action_and_reward_are_part_of_the_observation() -> None:
    env = ObsPlusPrevActRew(CyclingEnv([(0, 1), (2, 3), (4, 5)], rewards=[0.5, -2], length=2))
    first, _ = env.reset()
    assert (first["prev_action"], first["prev_reward_extrinsic"].tolist()) == (0, [0])
    seen = [env.step(action) for action in (2, 1)]
    assert [row[0]["prev_action"] for row in seen] == [2, 1]
    assert [row[0]["prev_reward_extrinsic"].tolist() for row in seen] == [[0.5], [-2]]
    assert [row[1] for row in seen] == [0.5, -2]
    again, _ = env.reset()
    assert again["obs"].tolist() == [0, 1]
    assert (again["prev_action"], again["prev_reward_extrinsic"].tolist()) == (0, [0])
    assert all(observation in env.observation_space for observation in (first, again, *(row[0] for row in seen)))


@pytest.mark.parametrize(
    ("space", "expected"),
    [
        (spaces.Discrete(3), 0),
        (spaces.Discrete(3, start=4), 4),
        (spaces.MultiDiscrete([2, 2], start=[1, 0]), [1, 0]),
        (spaces.MultiBinary(2), [0, 0]),
        (spaces.Box(-1, 1, (2,), np.float32), [0, 0]),
        (spaces.Box(np.array([2, -5], np.float32), np.array([3, -4], np.float32)), [2, -4]),
    ],
)
def test_at_a_reset_the_action_is_the_one_nearest_to_zero(space: spaces.Space[Any], expected: Any) -> None:
    env = ObsPlusPrevActRew(CyclingEnv(action_space=space))
    first, _ = env.reset()
    assert np.asarray(first["prev_action"]).tolist() == expected
    assert first in env.observation_space


@pytest.mark.parametrize(
    ("space", "action"),
    [
        (spaces.Discrete(3), np.array([1])),
        (spaces.Discrete(3), np.array(1)),
        (spaces.Box(-1, 1, (2,), np.float32), [0.5, -0.5]),
        (spaces.MultiDiscrete([2, 2]), [1, 0]),
        (spaces.MultiBinary(2), [1, 0]),
        (MOVING, (1, np.array([0.5]), [0.25])),
        (spaces.Dict({"kind": spaces.Discrete(2), "force": POINT}), {"kind": 1, "force": [1, 2]}),
    ],
)
def test_the_action_is_shown_in_the_type_of_its_space(space: spaces.Space[Any], action: Any) -> None:
    env = ObsPlusPrevActRew(CyclingEnv(action_space=space))
    env.reset()
    observation = env.step(action)[0]
    assert observation in env.observation_space
    assert spaces.utils.flatten(space, observation["prev_action"]) == pytest.approx(flat_action(space, action))


@pytest.mark.parametrize(
    ("space", "action"),
    [
        (spaces.Discrete(3), [0, 1]),
        (spaces.Discrete(3), None),
        (spaces.Box(-1, 1, (2,), np.float32), [0.5]),
        (spaces.MultiDiscrete([2, 2]), "ab"),
        (MOVING, (1, [0.5])),
        (spaces.Dict({"kind": spaces.Discrete(2)}), {"sort": 1}),
    ],
)
def test_an_action_that_is_none_of_its_space_s_is_refused(space: spaces.Space[Any], action: Any) -> None:
    script = CyclingEnv(action_space=space)
    env = ObsPlusPrevActRew(script)
    env.reset()
    with pytest.raises(
        ActionError, match=rf"ObsPlusPrevActRew: expected an action of {type(space).__name__}\(.*, got "
    ):
        env.step(action)
    assert script.received == []


def flat_action(space: spaces.Space[Any], action: Any) -> np.ndarray:
    if isinstance(space, spaces.Discrete):
        action = int(np.asarray(action).item())
    if isinstance(space, spaces.MultiDiscrete):
        action = np.array(action)
    return spaces.utils.flatten(space, action)


def test_the_action_shown_is_a_copy() -> None:
    env = ObsPlusPrevActRew(CyclingEnv(action_space=spaces.Box(-1, 1, (2,), np.float32)))
    first, _ = env.reset()
    action = np.array([0.5, -0.5], np.float32)
    observation = env.step(action)[0]
    action[:] = 0
    env.reset()[0]["prev_action"][:] = 9
    assert observation["prev_action"].tolist() == [0.5, -0.5]
    assert first["prev_action"].tolist() == [0, 0]
    assert env.reset()[0]["prev_action"].tolist() == [0, 0]


def test_an_action_that_the_env_changes_is_shown_as_it_was_sent() -> None:
    class Meddler(CyclingEnv):
        def step(self, action: Any) -> Any:
            action[:] = 0
            return super().step(action)

    env = ObsPlusPrevActRew(Meddler(action_space=POINT))
    env.reset()
    assert env.step(np.ones(2, np.float32))[0]["prev_action"].tolist() == [1, 1]


def test_to_sample_what_is_shown_leaves_the_env_s_spaces_alone() -> None:
    space = spaces.Tuple([spaces.Discrete(10**6), spaces.Box(0, 1, (1,), np.float32)])
    env = ObsPlusPrevActRew(GymHybridDictAction(CyclingEnv(action_space=space)))
    space.seed(3)
    expected = copy.deepcopy(space).sample()
    for shown in (env.observation_space, env.action_space):
        shown.seed(9)
        shown.sample()
    assert space.sample() == expected


class Colours(spaces.Space[str]):
    """A space that Gymnasium does not know."""


def test_an_action_space_without_a_zero_is_refused() -> None:
    with pytest.raises(SpaceError, match=r"ObsPlusPrevActRew: expected an action space of Gymnasium's, got .*Colours"):
        ObsPlusPrevActRew(CyclingEnv(action_space=Colours()))
