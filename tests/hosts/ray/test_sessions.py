"""Sessions whose envs are on a real Ray cluster: an answer wakes the loop, and no env waits for another."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

import stepmill
from stepmill import errors
from support.envs.faulty import FaultyEnv
from support.envs.remote import Teller
from support.on_ray import actors_of, make_on_ray, wait_until_dead
from support.probes import MODES, assert_same
from support.sessions import Harmless, play
from support.waiting import Gate

pytestmark = [
    pytest.mark.usefixtures("cluster", "server", "deadline"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::ResourceWarning"),
]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("task", ["CartPole-v1", Teller])
def test_sessions_show_what_they_show_on_one_machine(task: Any, mode: str) -> None:
    async def session(pool: Any, number: int) -> list[Any]:
        async with pool.session(seed=number) as env:
            return await play(env, Harmless(pool, number), 10)

    async def main(pool: Any) -> list[Any]:
        return await asyncio.gather(*(session(pool, number) for number in range(6)))

    shown = []
    for make in (lambda **given: make_on_ray(task, 2, **given), lambda **given: stepmill.make(task, **given)):
        with make(num_envs=4, autoreset=mode) as pool:
            shown.append(asyncio.run(main(pool)))
            assert pool.reset(seed=1)[0].shape[0] == 4  # and batches of all envs again
            assert len(pool.step(np.zeros(4, int))[0]) == 4
    assert_same(*shown)


def test_no_env_waits_for_another_of_its_actor(gate: Gate) -> None:
    async def main(pool: Any) -> None:
        async with pool.session() as slow, pool.session() as quick:
            await asyncio.gather(slow.reset(), quick.reset())
            step = asyncio.create_task(slow.step(np.float32(0.5)))
            await asyncio.to_thread(gate.wait)
            for i in range(5):
                assert (await quick.step(np.float32(0.5)))[0][1] == i + 1
            assert not step.done()
            gate.open(0)
            assert (await step)[0][1] == 1.0

    arguments = {"mishap": "gate", "at": (1,), "folder": gate.folder}
    configs = [arguments, {}]
    one_cpu = {"resources": {"CPU": 1}}  # the nodes of the tests have no more
    with make_on_ray(FaultyEnv, 1, num_envs=2, num_workers=2, env_config=configs, **one_cpu) as pool:
        asyncio.run(main(pool))


def test_an_actor_that_dies_wakes_the_loop() -> None:
    import ray

    async def steps(env: Any, count: int) -> None:
        await env.reset()
        for _ in range(count):
            await env.step(1)

    async def main(pool: Any) -> None:
        async with pool.session() as one, pool.session() as other:
            await asyncio.gather(steps(one, 2), steps(other, 2))
            ray.kill(actors_of(pool)[one.env_id])
            wait_until_dead(actors_of(pool)[one.env_id])
            with pytest.raises(errors.WorkerDiedError):
                await steps(one, 2)
            await asyncio.gather(steps(one, 3), steps(other, 3))

    with make_on_ray(Teller, 2, num_envs=2) as pool:
        asyncio.run(main(pool))
