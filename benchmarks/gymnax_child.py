"""The process of gymnax beside pools on a GPU: ``python -m benchmarks.gymnax_child NUM_ENVS``.

A line on its input is a number of seconds; the answer is a line with the steps per second of gymnax's own ``step``,
under ``vmap`` and jitted as one call, with the statistics of episodes. It ends with its input.
"""

from __future__ import annotations

import os
import sys

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # the pool beside it needs memory too

import jax
import numpy as np

from benchmarks.world_loops import gymnax_loop, loop_steps
from stepmill.tools.measuring.runners import steps_per_second


def main() -> None:
    num_envs = int(sys.argv[1])
    place = jax.local_devices(backend="cuda")[0]
    with jax.default_device(place):
        rng = np.random.default_rng(0)
        actions = [jax.device_put(rng.integers(0, 2, num_envs).astype(np.int32), place) for _ in range(4)]
        runner = loop_steps(gymnax_loop("CartPole-v1", num_envs), actions, place, outputs=0)
        runner.run(2)  # compiles
        print("ready", flush=True)
        for line in sys.stdin:
            print(steps_per_second(runner, float(line)), flush=True)


if __name__ == "__main__":
    main()
