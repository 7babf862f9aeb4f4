"""A pool beside a twin that never saw the bad call: the call is refused, and both go on alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from stepmill import StepmillError
from support.probes import assert_same

TASKS = {"native": "CartPole-v1", "python": "gymnasium:CartPole-v1"}
BACKENDS = {"native": "thread", "python": "inline"}
N = 3
GOOD = np.array([0, 1, 0])
TIMES = ("step_cost_ns", "steps_per_second", "step_seconds", "workers", "servers")


def counts(pool: Any) -> dict[str, Any]:
    """What only a call of ours changes, and not time or a thread that is done."""
    return {key: value for key, value in pool.stats().items() if key not in TIMES}


def assert_refused(
    pool: Any, call: Callable[[], Any], error: type[Exception], standard: type[Exception], *words: str
) -> None:
    """The call raises, says what the words say, and leaves everything in flight as it was."""
    before = counts(pool)
    with pytest.raises(error) as caught:
        call()
    assert isinstance(caught.value, StepmillError)
    assert isinstance(caught.value, standard)
    for word in words:
        assert word in str(caught.value)
    assert counts(pool) == before


def assert_like_twin(pool: Any, twin: Any) -> None:
    for action in (GOOD, 1 - GOOD, GOOD):
        assert_same(pool.step(action), twin.step(action))
