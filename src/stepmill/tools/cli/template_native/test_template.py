"""The env in C++ plays the episodes of the one in Python, and keeps the rules that training code relies on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import stepmill
from stepmill.errors import ConfigError
from stepmill.testing import check_env

from stepmill.tools.cli.template_native.template import Template

HEADER = str(Path(__file__).with_name("template.h"))


@pytest.mark.parametrize("size", [2, 5, 9])
def test_it_plays_the_same_episodes_as_in_python(size: int) -> None:
    """Bit for bit; the message says what differs first."""
    result = stepmill.verify(HEADER, reference=Template, max_episode_steps=50, size=size)
    assert result, result


def test_it_keeps_the_rules() -> None:
    """What ``stepmill check`` checks."""
    findings = check_env(HEADER, print_report=False)
    assert not findings, findings


def test_a_saved_state_goes_on_in_the_same_way() -> None:
    """Also in episodes that begin later: the state has the generator."""
    actions = np.random.default_rng(1).integers(0, 4, (30, 8))
    with stepmill.make(HEADER, num_envs=8, seed=3) as pool:
        pool.reset()
        states = pool.save()
        first = [pool.step(action)[0].copy() for action in actions]
        pool.restore(states)
        for seen, action in zip(first, actions, strict=True):
            np.testing.assert_array_equal(pool.step(action)[0], seen)


def test_a_board_of_one_field_is_refused() -> None:
    """In words."""
    with pytest.raises(ConfigError, match="size: expected at least 2, got 1"):
        stepmill.make(HEADER, size=1)
