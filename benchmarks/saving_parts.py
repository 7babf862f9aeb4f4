"""Saved states: pools beside the calls of the simulators themselves, from Python."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np

import stepmill
from benchmarks.timing import Calls, Effort, Log, interleaved

SIMULATED = ("Ant-v5", "HalfCheetah-v5", "Breakout-v5")
# Goals: for one env, in µs more than the simulator's own calls, and for each of many, as a multiple of them.
MORE_ALONE, MORE_IN_A_PROCESS, TIMES_TOGETHER = 10, 2 * 60, 1.5
PLAIN, PLAIN_COUNT = "CartPole-v1", 1024
PLAIN_GOALS = {"save and restore": 200, "fork into the others": 100}


def saving(effort: Effort, log: Log) -> list[dict[str, Any]]:
    """What it takes to save envs and restore them. A row of a contestant is an env."""
    return [*_plain(effort, log), *_simulated(effort, log)]


def _plain(effort: Effort, log: Log) -> Iterator[dict[str, Any]]:
    with _played(PLAIN, PLAIN_COUNT) as pool:
        others = np.arange(1, PLAIN_COUNT)
        calls: dict[str, Callable[[], Any]] = {
            "save and restore": lambda: pool.restore(pool.save()),
            "fork into the others": lambda: pool.fork(0, others),
        }
        for what, call in calls.items():
            log(f"{what}, {PLAIN_COUNT} {PLAIN}")
            row = {"what": what, "env": PLAIN, "num_envs": PLAIN_COUNT, "backend": "inline"}
            timed = interleaved({"stepmill": Calls(call, PLAIN_COUNT)}, effort)
            yield {**row, "goal_us": PLAIN_GOALS[what] / PLAIN_COUNT, **timed}


def _simulated(effort: Effort, log: Log) -> Iterator[dict[str, Any]]:
    for env in SIMULATED:
        for backend, num_envs in (("inline", 1), ("inline", 64), ("process", 1)):
            log(f"save and restore, {num_envs} {env}, {backend}")
            with ExitStack() as stack:
                pool = stack.enter_context(_played(env, num_envs, backend))
                here = pool if backend == "inline" else stack.enter_context(_played(env, num_envs))

                def save_and_restore(pool: Any = pool) -> None:
                    pool.restore(pool.save())

                runners = {
                    "stepmill": Calls(save_and_restore, num_envs),
                    "simulator": Calls(_own_calls(here), num_envs),
                }
                timed = interleaved(runners, effort)
            own = 1e6 / timed["simulator"]["steps_per_s"]
            more = MORE_ALONE if backend == "inline" else MORE_IN_A_PROCESS
            goal = own + more if num_envs == 1 else own * TIMES_TOGETHER
            row = {"what": "save and restore", "env": env, "num_envs": num_envs, "backend": backend}
            yield {**row, "goal_us": goal, **timed}


@contextmanager
def _played(env: str, num_envs: int, backend: str = "inline") -> Iterator[Any]:
    with stepmill.make(env, num_envs=num_envs, backend=backend) as pool:
        pool.reset()
        for _ in range(20):
            pool.step(pool.action_space.sample())
        yield pool


def _own_calls(pool: Any) -> Callable[[], None]:
    """Saves all simulators of a pool and restores them, by their own calls."""
    if pool._host.is_native:
        import mujoco

        simulators = [pool._host.simulator(i) for i in range(pool.num_envs)]
        pairs = [(one.model, one.data, mujoco.MjData(one.model)) for one in simulators]

        def copy_both_ways() -> None:
            for model, data, kept in pairs:
                mujoco.mj_copyData(kept, model, data)
            for model, data, kept in pairs:
                mujoco.mj_copyData(data, model, kept)

        return copy_both_ways

    emulators = pool.get_attr("ale")

    def clone_and_restore() -> None:
        kept = [ale.cloneState() for ale in emulators]
        for ale, state in zip(emulators, kept, strict=True):
            ale.restoreState(state)

    return clone_and_restore
