"""Plays Pursuit and reports what happened: ``python -m examples.worlds.pursuit`` in the root of the repository."""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

import stepmill
from stepmill.testing import check_env

from .env import PursuitEnv


def main(arguments: list[str] | None = None) -> None:
    """Checks the env, plays it with a policy for each runner, then steps it in a pool."""
    parser = argparse.ArgumentParser(prog="python -m examples.worlds.pursuit", description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--episodes", type=int, default=3, help="(default: %(default)s)")
    parser.add_argument("--replay", metavar="FOLDER", help="where videos go; none are made if it is left out")
    options = parser.parse_args(arguments)

    check_env(PursuitEnv, {})

    env = PursuitEnv({"replay_path": options.replay})
    env.seed(options.seed)
    for episode in range(options.episodes):
        print(f"episode {episode}: {tell(play(env))}")
    env.close()

    # In a pool, each runner is a player: one row per runner of every env.
    with stepmill.make(PursuitEnv, num_envs=8, seed=options.seed) as pool:
        obs, _ = pool.reset()
        for _ in range(100):
            obs, reward, *_ = pool.step([move for pair in np.split(obs, 8) for move in flee(pair)])
        print(f"a pool of {pool.num_envs}: observations {obs.shape}, rewards {reward.shape}")


def flee(observation: np.ndarray) -> list[int]:
    """Each runner goes to the gate of its own number."""
    moves = []
    for row, gate in zip(observation, (8, 11), strict=True):
        right, up = row[gate : gate + 2]
        moves.append((4 if right > 0 else 3) if abs(right) > abs(up) else (1 if up > 0 else 2))
    return moves


def play(env: PursuitEnv) -> dict[str, Any]:
    """One episode; its last info says how it went."""
    observation, steps = env.reset(), 0
    while True:
        observation, _, done, info = env.step(flee(observation))
        steps += 1
        if done:
            return {**info, "steps": steps}


def tell(ending: dict[str, Any]) -> str:
    """How the episode ended, in words."""
    how = "both got out" if ending["is_success"] else "not both got out"
    return f"{how} in {ending['steps']} steps, return {ending['eval_episode_return']:.2f}"


if __name__ == "__main__":
    main()
