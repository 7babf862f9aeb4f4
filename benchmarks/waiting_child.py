"""The process of one contestant whose envs wait: ``python -m benchmarks.waiting_child NAME NUM_ENVS SECONDS``.

It prints a line of JSON: steps per second, CPU time of a step and of making the envs, and memory, each of this process
and all that it has started.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import string
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import gymnasium
import numpy as np

from benchmarks.python_child import leave_out_stepmill, memory

WAIT_S = 1.0
WARM_UP_S = 2 * WAIT_S
BATCH_S = 0.02  # how long stepmill waits for more rows
GOLDEN = 0.6180339887  # spreads the beginnings over a second: else all envs would answer at the same moment


class Waiting:
    """An env whose steps wait for a second."""

    action_space = gymnasium.spaces.Discrete(2)
    observation_space: gymnasium.Space[Any] = gymnasium.spaces.Box(-1, 1, (4,), np.float32)

    def __init__(self, env_id: int) -> None:
        self.first = env_id * GOLDEN % WAIT_S
        self.steps = 0

    async def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, Any]:
        await asyncio.sleep(self.first)
        return self.seen(), {}

    async def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        await asyncio.sleep(WAIT_S)
        return self.seen(), 1.0, False, False, {}

    def seen(self) -> Any:
        self.steps += 1
        return np.full(4, self.steps % 2, np.float32)


class Telling(Waiting):
    """The same, with 200 characters of text."""

    observation_space = gymnasium.spaces.Text(200, charset=string.printable)

    def seen(self) -> Any:
        self.steps += 1
        return f"{self.steps:>200}"


# ---- those who take part: each steps all envs for some seconds, and says how many steps that were ----


class Pool:
    """An async pool: each env has its next action as soon as its row has come."""

    def __init__(self, kind: type[Waiting], num_envs: int) -> None:
        import stepmill  # not at the top: the others would pay for it

        self.pool = stepmill.make(kind, num_envs=num_envs, batch_size=num_envs // 2)
        self.actions = np.zeros(num_envs, np.int64)
        self.is_begun = False
        self.close = self.pool.close

    def run(self, seconds: float) -> int:
        if not self.is_begun:
            self.pool.async_reset()
            self.is_begun = True
        steps, end = 0, time.perf_counter() + seconds
        while time.perf_counter() < end:
            ids = self.pool.recv(timeout=BATCH_S, at_least=1)[-1]["env_id"]
            self.pool.send(self.actions[: len(ids)], ids)
            steps += len(ids)
        return steps


class Gather:
    """``asyncio.gather`` over a coroutine per env, in this thread."""

    def __init__(self, kind: type[Waiting], num_envs: int) -> None:
        self.envs = [kind(env_id) for env_id in range(num_envs)]
        self.loop = asyncio.new_event_loop()
        self.steps = 0
        self.playing: Any = None

    def run(self, seconds: float) -> int:
        before = self.steps
        self.loop.run_until_complete(self._play(seconds))
        return self.steps - before

    async def _play(self, seconds: float) -> None:
        if self.playing is None:
            self.playing = asyncio.gather(*map(self._step, self.envs))
        await asyncio.sleep(seconds)

    async def _step(self, env: Waiting) -> None:
        await env.reset()
        while True:
            await env.step(0)
            self.steps += 1

    def close(self) -> None:
        for task in asyncio.all_tasks(self.loop):
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            self.loop.run_until_complete(self.playing)
        self.loop.close()


class Threads:
    """A pool of threads, one per env, whose steps block."""

    def __init__(self, kind: type[Waiting], num_envs: int) -> None:
        self.envs = [kind(env_id) for env_id in range(num_envs)]
        self.executor = ThreadPoolExecutor(num_envs)
        self.counts = np.zeros(num_envs, np.int64)
        self.is_begun = self.is_over = False

    def run(self, seconds: float) -> int:
        before = int(self.counts.sum())
        if not self.is_begun:
            self.is_begun = True
            for index in range(len(self.envs)):
                self.executor.submit(self._play, index)
        time.sleep(seconds)
        return int(self.counts.sum()) - before

    def _play(self, index: int) -> None:
        env = self.envs[index]
        time.sleep(env.first)
        while not self.is_over:
            time.sleep(WAIT_S)
            env.seen()
            self.counts[index] += 1

    def close(self) -> None:
        self.is_over = True
        self.executor.shutdown()


CONTESTANTS: dict[str, tuple[Callable[[type[Waiting], int], Any], type[Waiting]]] = {
    "stepmill": (Pool, Waiting),
    "stepmill_text": (Pool, Telling),
    "gather": (Gather, Waiting),
    "threads": (Threads, Waiting),
}


def main(name: str, num_envs: int, seconds: float) -> None:
    if not name.startswith("stepmill"):
        leave_out_stepmill()
    from benchmarks.timing import cpu_seconds

    make, kind = CONTESTANTS[name]
    before = cpu_seconds()
    contestant = make(kind, num_envs)
    made = cpu_seconds()
    contestant.run(WARM_UP_S)
    started, start = cpu_seconds(), time.perf_counter()
    steps = contestant.run(seconds)
    took, cpu = time.perf_counter() - start, cpu_seconds() - started
    found = {"steps_per_s": steps / took, "cpu_us": cpu / steps * 1e6, "make_cpu_s": made - before}
    print(json.dumps(found | (memory() or {"bytes": math.nan, "processes": 0})), flush=True)
    contestant.close()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))
