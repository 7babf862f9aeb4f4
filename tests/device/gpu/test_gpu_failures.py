"""Envs that throw, on a real GPU: the threads around them in a warp go on, and they do as on the host."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stepmill
from stepmill.errors import EnvError
from support.probes import assert_same

pytestmark = pytest.mark.usefixtures("one_cache")

FAILS = str(Path(__file__).resolve().parents[2] / "support" / "fails.h")
NUM_ENVS = 300
IN_STEP, IN_OBSERVE, AFTER_A_DRAW_IN_RESET, AFTER_A_DRAW_IN_STEP, AFTER_A_RESET = 2, 3, 4, 5, 6


@pytest.mark.parametrize("autoreset", ["next_step", "same_step"])
@pytest.mark.parametrize("where", [IN_STEP, IN_OBSERVE, AFTER_A_DRAW_IN_RESET, AFTER_A_DRAW_IN_STEP, AFTER_A_RESET])
def test_rows_are_those_of_threads(where: int, autoreset: str) -> None:
    configs = [{"where": where if i % 3 == 1 else 0} for i in range(NUM_ENVS)]
    given: dict[str, Any] = {"num_envs": NUM_ENVS, "seed": 5, "autoreset": autoreset, "env_config": configs}
    gpu, threads = (stepmill.make(FAILS, backend=backend, **given) for backend in ("cuda", "thread"))
    actions = np.random.default_rng(1).uniform(-1, 1, (60, NUM_ENVS)).astype(np.float32)
    failed = 0
    if where != AFTER_A_RESET:  # there, the first may fail: a step is one
        assert_same(gpu.reset(), threads.reset())
    for action in actions:
        try:
            expected = threads.step(action)
        except EnvError as error:
            expected = error.batch
        observation, reward, *rest = gpu.step(action)
        obs, theirs, *others = expected
        if where == AFTER_A_RESET:  # members are as they were before the reset: one counts them
            for info in (rest[-1], rest[-1].get("final_info", {}), others[-1], others[-1].get("final_info", {})):
                info.pop("resets", None)
        assert_same((observation, reward, *rest), (obs, theirs.astype(np.float32), *others))
        failed += int(np.sum(expected[4].get("abnormal", 0)))
    assert failed > NUM_ENVS
    with pytest.raises(EnvError, match="env 1 failed"):
        gpu.close()
    threads.close()
