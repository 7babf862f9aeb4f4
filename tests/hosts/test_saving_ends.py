"""Saves and restores that something ends: a signal handler, another thread, a fork, the death of a worker.

An env has its old state afterwards or its new one, and so have all envs of the call.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import stepmill
from stepmill import errors
from support.envs import ProbeTwin
from support.injection import Alarms, at_every_point

KINDS: dict[str, tuple[Any, dict[str, Any], str | None]] = {
    "native": ("Probe-v0", {"backend": "thread"}, None),
    "native-process": ("Probe-v0", {"backend": "process", "num_workers": 2}, None),
    "methods": (ProbeTwin, {"backend": "inline"}, None),
    "methods-process": (ProbeTwin, {"backend": "process", "num_workers": 2}, None),
    "pickle": (ProbeTwin, {"backend": "inline"}, "pickle"),
    "pickle-process": (ProbeTwin, {"backend": "process", "num_workers": 2}, "pickle"),
}
IN_PROCESSES = [kind for kind in KINDS if kind.endswith("process")]


def step(pool: Any, times: int = 1) -> Any:
    for _ in range(times):
        shown = pool.step(np.full(pool.num_envs, 0.5, np.float32))
    return shown


def content(states: stepmill.SavedStates) -> list[bytes]:
    return [bytes(one) for one in states]


# ---- signals -------------------------------------------------------------------------------------

# A call has up to two thousand points at which a handler can raise.
STRIDES = pytest.mark.parametrize("stride", [211, pytest.param(1, marks=pytest.mark.slow)])


def at_points(attempt: Any, stride: int) -> int:
    return at_every_point(attempt, __file__, raising=KeyboardInterrupt, stride=stride)


class Stubborn(ProbeTwin):
    """Does not take a state any more once it was told so, and is half changed then."""

    refuses = False

    def set_state(self, state: Any) -> None:
        if self.refuses and state[1] != 7:
            self._draw = -1.0
            raise ValueError("not this one")
        super().set_state(state)


@STRIDES
@pytest.mark.parametrize("kind", KINDS)
def test_a_restore_is_done_or_not_wherever_a_handler_raises(kind: str, stride: int) -> None:
    task, settings, by = KINDS[kind]
    with stepmill.make(task, num_envs=2, length=1000, **settings) as pool:
        pool.reset()
        step(pool, 3)
        old = pool.save(by=by)
        step(pool, 4)
        new = pool.save(by=by)
        contents = []
        for states in (old, new):  # what is unpickled may be pickled otherwise: a string that was one is two
            pool.restore(states)
            contents.append(content(pool.save()))
        outcomes = set()

        def attempt(alarms: Alarms) -> None:
            pool.restore(new)
            try:
                with alarms:
                    pool.restore(old)
            except KeyboardInterrupt:
                if pool.stats()["in_flight"]:
                    assert pool.recv()[4]["elapsed_step"].tolist() == [3] * 2
            outcomes.add(contents.index(content(pool.save())))
            assert step(pool)[4]["elapsed_step"].tolist() in ([4] * 2, [8] * 2)

        assert at_points(attempt, stride) > 0
        assert 0 in outcomes
        assert stride > 1 or 1 in outcomes


@pytest.mark.parametrize(
    ("backend", "stride"), [("process", 1), ("inline", 211), pytest.param("inline", 1, marks=pytest.mark.slow)]
)
def test_a_restore_that_fails_is_taken_back_wherever_a_handler_raises(backend: str, stride: int) -> None:
    workers = {"num_workers": 3} if backend == "process" else {}
    with stepmill.make(Stubborn, num_envs=3, length=1000, backend=backend, **workers) as pool:
        pool.reset()
        step(pool, 3)
        old = pool.save()
        step(pool, 4)
        new = content(pool.save())
        pool.set_attr("refuses", [False, True, False])

        def attempt(alarms: Alarms) -> None:
            with pytest.raises((KeyboardInterrupt, errors.StateError)), alarms:
                pool.restore(old)
            assert content(pool.save()) == new

        assert at_points(attempt, stride) > 20


@STRIDES
@pytest.mark.parametrize("kind", KINDS)
def test_a_save_changes_nothing_wherever_a_handler_raises(kind: str, stride: int) -> None:
    task, settings, by = KINDS[kind]
    with stepmill.make(task, num_envs=2, length=1000, **settings) as pool:
        pool.reset()
        step(pool, 3)
        expected = content(pool.save(by=by))

        def attempt(alarms: Alarms) -> None:
            try:
                with alarms:
                    found = pool.save(by=by)
                assert content(found) == expected
            except KeyboardInterrupt:
                assert pool.in_flight == []

        assert at_points(attempt, stride) > 0
        assert content(pool.save(by=by)) == expected
        assert step(pool)[4]["elapsed_step"].tolist() == [4] * 2
