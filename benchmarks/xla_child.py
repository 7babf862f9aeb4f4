"""The process of one contestant in compiled programs: ``python -m benchmarks.xla_child LIBRARY NUM_ENVS [THREADS]``.

A line on its input is a number of seconds; the answer is a line with steps per second. It ends with its input.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import Any

STEPS = 1_000  # of each env, in one call
CARTPOLE = "CartPole-v1"

os.environ.setdefault("JAX_PLATFORMS", "cpu")


def stepmill_pool(num_envs: int, _: int) -> Any:
    import stepmill

    return stepmill.make(CARTPOLE, num_envs=num_envs)


def envpool_pool(num_envs: int, threads: int) -> Any:
    import envpool

    return envpool.make(CARTPOLE, "gymnasium", num_envs=num_envs, num_threads=threads)


POOLS = {"stepmill": stepmill_pool, "envpool": envpool_pool}


def loop_of(pool: Any, num_envs: int) -> Callable[[], None]:
    """Calls a compiled loop once, with the pole's angle as a policy, and waits for its end."""
    import jax
    import jax.numpy as jnp

    handle, _, _, step = pool.xla()
    pool.reset()

    def once(_: Any, carry: Any) -> Any:
        handle, obs, total = carry
        handle, (obs, reward, *_) = step(handle, (obs[:, 2] > 0).astype(jnp.int32))
        return handle, obs, total + reward.sum()

    @jax.jit
    def loop(handle: Any) -> Any:
        return jax.lax.fori_loop(0, STEPS, once, (handle, jnp.zeros((num_envs, 4)), jnp.float32(0)))

    def call() -> None:
        nonlocal handle
        handle, *_ = jax.block_until_ready(loop(handle))

    return call


def main() -> None:
    library, num_envs = sys.argv[1], int(sys.argv[2])
    call = loop_of(POOLS[library](num_envs, int(sys.argv[3]) if len(sys.argv) > 3 else 0), num_envs)
    call()  # compiles
    print("ready", flush=True)
    for line in sys.stdin:
        calls, start, end = 0, time.perf_counter(), time.perf_counter() + float(line)
        while True:
            call()
            calls += 1
            if (now := time.perf_counter()) >= end:
                break
        print(calls * STEPS * num_envs / (now - start), flush=True)


if __name__ == "__main__":
    main()
