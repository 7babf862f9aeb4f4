"""The CPU time of one `await env.step(action)`, in this process: by backend, and by how many tasks wait at a time.

python -m benchmarks.session_costs
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

import stepmill

BACKENDS = ("thread", "process", "inline")
SESSIONS = (1, 256)
STEPS = 100_000


def cpu_per_step(pool: Any, sessions: int, steps: int = STEPS) -> float:
    """Seconds of CPU time of this process for each step, of so many in all. Episodes that end are reset."""

    async def rollout(count: int) -> None:
        async with pool.session() as env:
            await env.reset()
            for _ in range(count):
                _, _, terminated, truncated, _ = await env.step(1)
                if terminated or truncated:
                    await env.reset()

    async def all_of_them(count: int) -> None:
        await asyncio.gather(*(rollout(count) for _ in range(sessions)))

    each = max(1, steps // sessions)
    asyncio.run(all_of_them(min(each, 100)))  # what is cold at first
    begun = time.process_time()
    asyncio.run(all_of_them(each))
    return (time.process_time() - begun) / (each * sessions)


def main() -> None:
    for backend in BACKENDS:
        for sessions in SESSIONS:
            with stepmill.make("CartPole-v1", num_envs=sessions, backend=backend) as pool:
                cost = min(cpu_per_step(pool, sessions) for _ in range(3))
            print(
                f"{backend:8} {sessions:4} session{'s' if sessions > 1 else ' '} {1e6 * cost:6.1f} us of CPU per step"
            )


if __name__ == "__main__":
    main()
