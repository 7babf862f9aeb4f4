"""Sessions while workers are killed at random: every call has one answer, and no wake-up is lost."""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
from typing import Any

import pytest

import stepmill
from stepmill import errors
from support.envs.faulty import FaultyEnv

pytestmark = pytest.mark.usefixtures("server", "deadline")


@pytest.mark.parametrize("mode", ["next_step", "same_step"])
def test_workers_that_are_killed_at_any_time_lose_no_call(mode: str) -> None:
    """The timer that looks now and then is off: only rows and the pool's own answers wake the loop."""
    kills = 15

    async def rollouts(pool: Any, number: int, over: asyncio.Event) -> tuple[int, int]:
        answers = losses = others = 0
        while not over.is_set():
            async with pool.session(seed=number) as env:
                try:
                    await env.reset()
                    for step in range(1, 20):
                        observation, reward, *_ = await env.step(0.25)
                        assert (observation[1], reward) == (step, 0.25)
                        answers += 1
                except errors.WorkerDiedError as error:
                    losses += error.env_id == env.env_id
                    others += error.env_id != env.env_id
        assert others == 0
        return answers, losses

    async def strike(pool: Any, over: asyncio.Event) -> None:
        dice = random.Random(1)
        workers = pool._engine.host._workers
        for _ in range(kills):
            await asyncio.sleep(dice.random() / 20)
            with contextlib.suppress(ProcessLookupError):  # it was killed a moment ago
                signal.pidfd_send_signal(dice.choice(list(workers.values())).pidfd, signal.SIGKILL)
        over.set()

    async def main(pool: Any) -> list[tuple[int, int]]:
        over = asyncio.Event()
        *counts, _ = await asyncio.gather(*(rollouts(pool, i, over) for i in range(24)), strike(pool, over))
        return counts

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("stepmill.views.sessions._LOOK_EVERY_S", 3600.0)
        with stepmill.make(FaultyEnv, num_envs=12, num_workers=3, backend="process", autoreset=mode) as pool:
            counts = asyncio.run(main(pool))
            assert pool.in_flight == []
    assert sum(answers for answers, _ in counts) > 0
