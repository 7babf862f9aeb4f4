"""Does what kernels do, for a tool that looks at their memory: ``compute-sanitizer python -m support.gpu_walk``.

Needs neither torch nor pytest.
"""

from __future__ import annotations

import itertools
import sys

import stepmill

TASKS = (
    "CartPole-v1",
    "Acrobot-v1",
    "Pendulum-v1",
    "Taxi-v3",
    "FrozenLake-v1",
    "Blackjack-v1",
    "NChain-v0",
    "Moving-v0",
)
MODES = ("next_step", "same_step", "disabled")
NUM_ENVS = 130  # of which the last block of threads is nearly empty


def main() -> None:
    for task, mode in itertools.product(TASKS, MODES):
        with stepmill.make(task, num_envs=NUM_ENVS, backend="cuda", autoreset=mode, max_episode_steps=9) as pool:
            pool.action_space.seed(1)
            pool.reset(seed=3)
            for _ in range(25):
                _, _, terminated, truncated, _ = pool.step(pool.action_space.sample())
                over = terminated | truncated
                if mode == "disabled" and over.any():
                    pool.reset(options={"reset_mask": over})
            if mode != "disabled":
                pool.restore(pool.save())
                pool.send(pool.action_space.sample())
                pool.recv()
            episodes = pool.stats()["episodes"]
            assert episodes > NUM_ENVS, task
            sys.stdout.write(f"{task}, {mode}: {episodes} episodes\n")


if __name__ == "__main__":
    main()
