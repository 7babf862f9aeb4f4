"""Ctrl-C at every point of our own code while sessions are open; asyncio's own is not made for that."""

from __future__ import annotations

import asyncio
import contextlib
from types import FrameType
from typing import Any

import pytest

from support.backends import INLINE, THREAD, TWO, Backend
from support.injection import Alarms, at_every_point

pytestmark = [
    pytest.mark.usefixtures("server", "deadline"),
    # Of coroutines whose call was interrupted, as Ctrl-C would.
    pytest.mark.filterwarnings("ignore::RuntimeWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
]

OURS = ("/views/session.py", "/views/sessions.py", "/views/single_rows.py", "/hosts/infos.py")
N = 2


class OurAlarms(Alarms):
    """Only at points in these files."""

    def _trace(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "call" and not frame.f_code.co_filename.endswith(OURS):
            return None
        return super()._trace(frame, event, argument)


async def rollout(pool: Any) -> None:
    async with pool.session(timeout=600) as env:
        for _ in range(2):
            await env.reset()
            for _ in range(2):
                await env.step(0)


@pytest.mark.parametrize("backend", [INLINE, THREAD, TWO], ids=str)
@pytest.mark.parametrize("mode", ["next_step", "same_step"])
def test_an_interrupt_at_any_point_costs_no_env(backend: Backend, mode: str) -> None:
    async def main(pool: Any) -> None:
        await asyncio.gather(*(rollout(pool) for _ in range(N + 1)))

    async def all_at_once(pool: Any) -> None:
        async with pool.session(timeout=600) as one, pool.session(timeout=600) as other:
            assert {one.env_id, other.env_id} == {0, 1}
            await asyncio.gather(one.reset(), other.reset())
            await asyncio.gather(one.step(0), other.step(0))

    with backend.make("CartPole-v1", num_envs=N, autoreset=mode, max_episode_steps=2) as pool:
        turn = 0

        def attempt(alarms: Alarms) -> None:
            nonlocal turn
            turn += 1
            ours = OurAlarms(alarms.n, __file__, raising=KeyboardInterrupt)
            with contextlib.suppress(KeyboardInterrupt, asyncio.CancelledError), ours:
                asyncio.run(main(pool))
            alarms.points = ours.points
            if turn % 2:
                asyncio.run(all_at_once(pool))
            assert pool.reset()[0].shape == (N, 4)
            assert pool.in_flight == []

        assert at_every_point(attempt, __file__, stride=5) > 100
