"""The env keeps the rules that training code relies on, and the task can be done."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pytest
import stepmill
from stepmill.errors import ConfigError
from stepmill.testing import EnvTestMixin

from stepmill.tools.cli.template.template import TemplateConfig, TemplateEnv
from stepmill.tools.cli.template.template.policy import steer
from stepmill.tools.cli.template.template.world import Move, World


class TestRules(EnvTestMixin):
    """One test for each rule of ``stepmill check``."""

    check_options: ClassVar[dict[str, Any]] = {"cfg": {"max_steps": 40}}

    def make_env(self, cfg: Any = None) -> TemplateEnv:
        """A new env."""
        return TemplateEnv(cfg)


def test_a_boat_that_goes_ahead_drifts_with_the_current() -> None:
    """The world by itself."""
    world = World(TemplateConfig(gusts=0.0), np.random.default_rng(3))
    start = world.along
    world.move(Move.ANCHOR)
    assert world.along == start
    world.move(Move.AHEAD)
    assert world.along > start
    assert world.across > 0


def test_the_task_can_be_done() -> None:
    """In a pool: eight boats, steered by the policy."""
    arrived: list[bool] = []
    with stepmill.make(TemplateEnv, num_envs=8, seed=1, backend="inline") as pool:
        for batch in pool.play(steer, episodes=range(50)):
            arrived += batch.info["success"][batch.ended].tolist() if "success" in batch.info else []
    assert len(arrived) == 50
    assert np.mean(arrived) > 0.9


def test_time_runs_out() -> None:
    """An anchored boat is cut off."""
    env = TemplateEnv({"max_steps": 3})
    env.seed(0)
    env.reset()
    steps = [env.step(0) for _ in range(3)]
    assert [one.done for one in steps] == [False, False, True]
    assert steps[-1].info["TimeLimit.truncated"]


def test_a_wrong_configuration_is_refused() -> None:
    """Before anything is built."""
    with pytest.raises(ConfigError, match="max_steps"):
        TemplateEnv({"max_steps": 0})


def test_it_can_be_drawn() -> None:
    """For videos, and to look at."""
    env = TemplateEnv()
    env.reset()
    assert env.render().shape == (200, 200, 3)
