"""Plays Courier and reports what happened: ``python -m examples.worlds.courier`` in the root of the repository."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import stepmill
from stepmill.testing import check_env

from .env import CourierEnv
from .pilot import pilot


def main(arguments: list[str] | None = None) -> None:
    """Checks the env, plays it with two policies, then steps it in a pool."""
    parser = argparse.ArgumentParser(prog="python -m examples.worlds.courier", description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--episodes", type=int, default=3, help="of each policy (default: %(default)s)")
    parser.add_argument("--replay", metavar="FOLDER", help="where videos go; none are made if it is left out")
    options = parser.parse_args(arguments)

    # Does the env keep the contract of BaseEnv? One line per rule it breaks, none here.
    check_env(CourierEnv, {"packages": 2})

    env = CourierEnv({"is_train": False, "replay_path": options.replay})
    env.seed(options.seed)
    for name, policy in (("the pilot", lambda: pilot(env.world)), ("chance", env.random_action)):
        for episode in range(options.episodes):
            print(f"{name}, episode {episode}: {tell(play(env, policy))}")
    env.close()

    # The same class in a pool: batches are dicts of arrays.
    with stepmill.make(CourierEnv, cfg={"size": 7, "packages": 2}, num_envs=8, seed=options.seed) as pool:
        obs, _ = pool.reset()
        for _ in range(100):
            obs, reward, *_ = pool.step(pool.action_space.sample())
        shapes = ", ".join(f"{key} {value.shape}" for key, value in obs.items())
        print(f"a pool of {pool.num_envs}: observations {shapes}, rewards {reward.shape}")


def play(env: CourierEnv, policy: Callable[[], Any]) -> dict[str, Any]:
    """One episode; its last info says how it went."""
    env.reset()
    while True:
        step = env.step(policy())
        if step.done:
            return {**step.info, "steps": env.world.steps}


def tell(ending: dict[str, Any]) -> str:
    """How the episode ended, in words."""
    how = "all done" if ending["success"] else "crashed" if ending["crashed"] else "the shift was over"
    score = ending["eval_episode_return"]
    return f"{ending['deliveries']} delivered in {ending['steps']} steps, {how}, score {score:.2f}"


if __name__ == "__main__":
    main()
