"""Sessions that are used while they are left."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

import stepmill
from stepmill import errors
from support.envs.faulty import FaultyEnv
from support.waiting import Gate

pytestmark = pytest.mark.usefixtures("server", "deadline")


@pytest.mark.parametrize("call", ["reset", "step"])
def test_a_call_that_waited_while_its_session_was_left_does_nothing_to_the_next_one(gate: Gate, call: str) -> None:
    async def main(pool: Any) -> None:
        async with pool.session() as env:
            await env.reset()
            step = asyncio.create_task(env.step(np.float32(0.5)))
            await asyncio.to_thread(gate.wait)
            step.cancel()
            with pytest.raises(asyncio.CancelledError):
                await step
            late = env.reset() if call == "reset" else env.step(np.float32(0.5))
            row = late.send(None)  # it waits for the row of the cancelled step
            row._asyncio_future_blocking = False
            gate.open(0)
            await asyncio.wait([row])
        async with pool.session() as other:
            await other.reset()
            await other.step(np.float32(0.5))
            next_step = asyncio.create_task(other.step(np.float32(0.25)))
            await asyncio.sleep(0)
            with pytest.raises(errors.UsageError, match="was left"):  # before the row of the other one has come
                late.send(None)
            observation, reward, *_ = await next_step
            assert (observation[1], reward) == (2.0, 0.25)

    with stepmill.make(
        FaultyEnv, num_envs=1, num_workers=1, backend="process", mishap="gate", at=(1,), folder=gate.folder
    ) as pool:
        asyncio.run(main(pool))
