"""Env managers, from the document that describes them: what happens when an env raises an exception.

Each test names its passage; see ``test_000_env_managers.py``.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from stepmill import EnvError
from stepmill.envs import BaseEnvTimestep
from stepmill.managers import BaseEnvManager, SubprocessEnvManager
from support.envs.contract import Corridor, corridors

MANAGERS = {"base": BaseEnvManager, "subprocess": SubprocessEnvManager}
BOTH = pytest.mark.parametrize("kind", MANAGERS)
ON = np.array(1)

pytestmark = pytest.mark.usefixtures("deadline", "server")


def make(kind: str, cfgs: list[dict[str, Any]], env_fn: Any, **settings: Any) -> BaseEnvManager:
    return MANAGERS[kind](env_fn, cfgs, len(cfgs), retry_waiting_time=0, **settings)


class Broken(Corridor):
    """Raises in the method that its cfg names."""

    def __init__(self, cfg: dict) -> None:
        super().__init__(cfg)
        self._may_fall("constructor")

    def reset(self, start: int = 0) -> np.ndarray:
        self._may_fall("reset")
        return super().reset(start)

    def step(self, action: np.ndarray) -> BaseEnvTimestep:
        self._may_fall("step")
        return super().step(action)

    def seed(self, seed: int) -> None:
        self._may_fall("seed")

    def _may_fall(self, where: str) -> None:
        if self._cfg.get("broken") == where:
            self._fall_down()

    def _fall_down(self) -> None:
        raise self._cfg.get("error", ValueError)("the floor is gone")


def caught_around(call: Callable[[], Any], error_class: type[Exception] = ValueError) -> Any:
    """What ``except`` of this class catches."""
    with pytest.raises(error_class, match="the floor is gone") as caught:
        call()
    assert isinstance(caught.value, EnvError), "it is one of ours as well"
    assert "_fall_down" in "".join(traceback.format_exception(caught.value)), "where it happened in the env"
    return caught.value


@pytest.mark.parametrize("broken", ["constructor", "seed", "reset"])
@BOTH
def test_a_launch_that_failed_raises_the_env_s_class_and_closes(kind: str, broken: str) -> None:
    """_safe_run, _reset and worker_fn: the class of the env's exception, with the env's trace; the manager closes."""
    manager = make(kind, [{"id": 0, "broken": broken}], Broken)
    manager.seed(3)
    caught_around(manager.launch)
    assert manager.closed


@BOTH
def test_a_reset_that_failed_raises_the_env_s_class_and_closes(kind: str) -> None:
    """_safe_run and _reset: as at the launch."""
    cfg = {"id": 0, "broken": ""}

    class LaterBroken(Broken):
        def reset(self, start: int = 0) -> np.ndarray:
            if start:
                self._fall_down()
            return super().reset(start)

    manager = make(kind, [cfg], LaterBroken)
    manager.launch()
    caught_around(lambda: manager.reset([{"start": 1}]))
    assert manager.closed


@BOTH
def test_a_step_that_failed_raises_the_env_s_class(kind: str) -> None:
    """_safe_run, worker_fn and _check_data: the class of the env's exception, with the env's trace."""
    classes: list[type[Exception]] = [ValueError, KeyError, ZeroDivisionError, FileNotFoundError]
    with make(kind, [{"id": 0, "broken": "step", "error": one} for one in classes], Broken) as manager:
        manager.launch()
        for env_id, one in enumerate(classes):
            caught_around(lambda env_id=env_id: manager.step({env_id: ON}), one)


def test_the_trace_of_a_worker_is_in_the_cause() -> None:
    """worker_fn: the trace is in the message there. Here the message says which env, and Python shows the trace."""
    with make("subprocess", [{"id": 0, "broken": "step"}], Broken) as manager:
        manager.launch()
        error = caught_around(lambda: manager.step({0: ON}))
        assert "_fall_down" not in str(error)
        assert type(error.__cause__) is ValueError


@BOTH
def test_a_step_that_failed_leaves_the_others_alone(kind: str) -> None:
    """_safe_run and _check_data: the manager closes there. Here the others go on, and a reset brings the env back."""
    with make(kind, [{"id": 0, "broken": "step"}, {"id": 1}], Broken) as manager:
        manager.launch()
        error = caught_around(lambda: manager.step({0: ON, 1: ON}))
        assert list(error.batch) == [1], "what the others gave is not lost"
        assert (manager.closed, list(manager.next_obs)) == (False, [1])
        manager.reset(env_id=[0])
        assert list(manager.next_obs) == [0, 1]


@BOTH
def test_a_reset_that_failed_is_tried_again(kind: str) -> None:
    """_reset, its retry."""

    class Shy(Corridor):
        tries = 0

        def reset(self, start: int = 0) -> np.ndarray:
            self.tries += 1
            if self.tries == 1:
                raise ValueError("not yet")
            return super().reset(start)

    with make(kind, corridors(2), Shy) as manager:
        manager.launch()
        assert manager.tries == [2, 2]
