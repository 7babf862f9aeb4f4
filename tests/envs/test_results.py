"""What an env returns is looked at before anyone uses it, and the error says what is wrong with which part."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from stepmill.envs import (
    DingEnvWrapper,
)
from stepmill.errors import (
    EnvError,
    ObservationError,
)
from support.envs.adapted import PAIR, ZEROS, Obedient


@pytest.mark.parametrize(
    ("returned", "says"),
    [
        (np.array([0.25, 0.75]), r"reset: expected \(observation, info\), got an array of shape \(2,\)"),
        ((ZEROS, None), r"reset: expected \(observation, info\) with a dict as info, got None as info"),
        ((np.zeros(5), {}), r"observation: expected numbers of shape \(2,\) and type float32, got an array of shape"),
        ((None, {}), r"observation: expected numbers of shape \(2,\) and type float32, got None"),
        (
            ({"a": 1}, {}),
            r"observation: expected numbers of shape \(2,\) and type float32, got a dict with the keys 'a'",
        ),
    ],
)
def test_what_reset_returns_is_looked_at(returned: Any, says: str) -> None:
    with pytest.raises(EnvError, match=rf"DingEnvWrapper\(.*Obedient.*\): {says}"):
        DingEnvWrapper(Obedient(at_reset=returned)).reset()


@pytest.mark.parametrize(
    ("returned", "says"),
    [
        ((np.zeros(5), 1.0, True, False, {}), r"observation: expected numbers of shape \(2,\)"),
        ((ZEROS, None, False, False, {}), r"step: expected one or more numbers as reward, got None"),
        ((ZEROS, [], False, False, {}), r"step: expected one or more numbers as reward, got \[\]"),
        ((ZEROS, 1.0, "no", False, {}), r"step: expected True or False as terminated, got 'no'"),
        ((ZEROS, 1.0, False, [True, False], {}), r"step: expected True or False as truncated, got \[True, False\]"),
        ((ZEROS, 1.0, True, False, None), r"step: expected .* with a dict as info, got None as info"),
        (np.zeros(5), r"step: expected \(observation, reward, terminated, truncated, info\), got an array"),
    ],
)
def test_what_step_returns_is_looked_at(returned: Any, says: str) -> None:
    env = DingEnvWrapper(Obedient(at_step=returned))
    env.reset()
    with pytest.raises(EnvError, match=rf"DingEnvWrapper\(.*Obedient.*\): {says}"):
        env.step(0)


@pytest.mark.parametrize(
    ("space", "value", "says"),
    [
        (
            spaces.Dict({"a": PAIR, "b": PAIR}),
            {"a": ZEROS},
            r"observation: expected a dict with the keys 'a', 'b', got",
        ),
        (spaces.Dict({"a": PAIR}), {"a": np.zeros(3)}, r"observation\['a'\]: expected numbers of shape \(2,\)"),
        (spaces.Tuple([PAIR, PAIR]), (ZEROS,), r"observation: expected a tuple of 2 parts, got"),
        (spaces.Tuple([PAIR]), (np.zeros(1),), r"observation\[0\]: expected numbers of shape \(2,\)"),
        (spaces.Discrete(3), 0.5, r"observation: expected numbers of shape \(\) that int64 can hold, got 0.5"),
    ],
)
def test_parts_of_observations_are_named(space: Any, value: Any, says: str) -> None:
    with pytest.raises(ObservationError, match=says):
        DingEnvWrapper(Obedient(space, at_reset=(value, {}))).reset()
