"""What belongs to the state of a Python env: the memory of its layers."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces, wrappers

from stepmill.registry.env_state import get_state, set_state
from support.envs.scripted import ChanceEnv

BOX = spaces.Box(-1, 1, (2, 3), np.float32)


@pytest.mark.parametrize("wrapper", [wrappers.NormalizeObservation, wrappers.NormalizeReward])
def test_whether_a_normalisation_learns_is_a_part_of_the_state(wrapper: Any) -> None:
    env, other = wrapper(ChanceEnv(BOX)), wrapper(ChanceEnv(BOX))
    for one in (env, other):
        one.reset(seed=3)
    env.update_running_mean = False
    set_state(other, pickle.loads(pickle.dumps(get_state(env))))
    assert other.update_running_mean is False
