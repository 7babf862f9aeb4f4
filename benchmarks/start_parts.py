"""Making a pool in a program that runs already: from the call to the observations of the first reset.

Cold, the process that starts the workers has to be started itself. Warm, it is still there from the pool before.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium

import stepmill
from benchmarks.timing import Effort
from stepmill.testing import end_servers

ENV = "CartPole-v1"
SIZES = (2, 16, 64)

Log = Callable[[str], None]


def start(effort: Effort, log: Log) -> list[dict[str, Any]]:
    """Seconds for each number of envs; the median, each in turn."""
    out = []
    for num_envs in SIZES:
        log(f"start of {num_envs} {ENV}")
        samples: dict[str, list[float]] = {"cold": [], "warm": [], "gymnasium_async": []}
        for _ in range(max(3, effort.repeats)):
            end_servers()
            samples["cold"].append(_seconds(partial(_pool, num_envs)))
            samples["warm"].append(_seconds(partial(_pool, num_envs)))
            samples["gymnasium_async"].append(_seconds(partial(_gymnasium, num_envs)))
        row = {name: {"seconds": statistics.median(times), "samples": times} for name, times in samples.items()}
        out.append({"env": ENV, "num_envs": num_envs, **row})
    end_servers()
    return out


def _pool(num_envs: int) -> Any:
    return stepmill.make(f"gymnasium:{ENV}", num_envs=num_envs, backend="process")


def _gymnasium(num_envs: int) -> Any:
    return gymnasium.vector.AsyncVectorEnv([partial(gymnasium.make, ENV)] * num_envs)


def _seconds(make: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    envs = make()
    envs.reset()
    seconds = time.perf_counter() - begin
    envs.close()
    return seconds
