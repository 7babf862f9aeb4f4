"""A signal handler that raises while tensors are made loses no batch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

import stepmill
from support.envs import ProbeTwin
from support.injection import Alarm, Alarms, at_every_point
from support.outputs import split
from support.probes import VIEWS


class Speaking(ProbeTwin):
    """Has a text in its observation."""

    def __init__(self) -> None:
        super().__init__(length=4)
        self.numbers = self.observation_space
        self.observation_space = spaces.Dict({"at": self.numbers, "word": spaces.Text(5)})

    # There are no alarms in `step` and `reset` of this file: what is raised in an env is that env's failure.
    def step(self, action: Any) -> Any:
        return super().step(action)

    def reset(self, **arguments: Any) -> Any:
        return super().reset(**arguments)

    def _observe(self) -> Any:
        return {"at": np.full(self.numbers.shape, self._steps, np.float64), "word": "a"}


def make(kind: str, view: str) -> Any:
    task: Any = "Probe-v0" if kind == "native" else Speaking
    own = {"length": 4} if kind == "native" else {"backend": "inline"}
    return stepmill.make(task, view, num_envs=2, autoreset="same_step", output="torch", **own)


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("kind", ["native", "objects"])
def test_every_action_has_one_row_wherever_a_handler_raises(kind: str, view: str) -> None:
    with make(kind, view) as pool:
        pool.reset()
        elapsed = 0

        def attempt(alarms: Alarms) -> None:
            nonlocal elapsed
            pool.send([1.0, 0.5])
            try:
                with alarms:
                    result = pool.recv()
            except Alarm:
                result = pool.recv()
            elapsed = (elapsed + 1) % 4
            shown, rest = split(view, result)
            info = rest[-1] if view == "dm" else rest
            assert info["elapsed_step"].tolist() == [elapsed] * 2
            reward = shown[2 if view == "dm" else 1]
            assert isinstance(reward, torch.Tensor)
            assert reward.tolist() == [1.0, 0.5]

        points = at_every_point(attempt, __file__)
        assert points > 5 or kind == "native"  # there torch is called by C++, where no handler runs
