"""PPO of Stable-Baselines3 on stepmill: only the function that makes the envs is ours.

    pip install 'stepmill[sb3]'
    python examples/sb3_ppo.py                    # CartPole-v1, with the hyperparameters of RL Zoo
    python examples/sb3_ppo.py --envs dummy       # the same run on SB3's own DummyVecEnv: the same weights, later

Trains, then plays 100 episodes of envs with other seeds and prints their mean return. CartPole is solved at 475.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from stable_baselines3 import PPO
from stable_baselines3.common import env_util
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv

from stepmill.interop.sb3 import make_vec_env


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--env-id", default="CartPole-v1")
    parser.add_argument("--envs", choices=["stepmill", "dummy", "subproc"], default="stepmill")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--num-envs", type=count, default=8)
    parser.add_argument("--total-steps", type=count, default=100_000, help="of all envs together")
    parser.add_argument("--episodes", type=count, default=100, help="played at the end")
    parser.add_argument("--log", type=Path, help="a file for the learning curve, a line of JSON per update")
    return parser.parse_args()


def count(text: str) -> int:
    """A whole number from 1 on."""
    if int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number from 1 on, got {text}")
    return int(text)


def make_envs(args: argparse.Namespace, seed: int) -> Any:
    """All that differs between the libraries. Their envs are equal, and so the trainings are, too."""
    if args.envs == "stepmill":
        return make_vec_env(args.env_id, n_envs=args.num_envs, seed=seed)
    kind = DummyVecEnv if args.envs == "dummy" else SubprocVecEnv
    return env_util.make_vec_env(args.env_id, n_envs=args.num_envs, seed=seed, vec_env_cls=kind)


class Progress(BaseCallback):
    """After each rollout, a line that tells how far the training is."""

    def __init__(self, args: argparse.Namespace) -> None:
        super().__init__()
        self.args = args
        self.began = time.perf_counter()
        if args.log is not None:
            args.log.write_text("")  # of an earlier run

    def _on_step(self) -> bool:
        return True

    def _on_rollout_end(self) -> None:
        seconds, done = time.perf_counter() - self.began, self.num_timesteps
        returns = [episode["r"] for episode in self.model.ep_info_buffer][-20:]
        mean = float(np.mean(returns)) if returns else float("nan")
        print(
            f"\r{done:>9,} of {self.args.total_steps:,} steps, {done / seconds:,.0f} per second, "
            f"mean return of the last 20 episodes {mean:.1f}   ",
            end="",
            flush=True,
        )
        if self.args.log is not None:
            with self.args.log.open("a") as file:
                file.write(json.dumps({"steps": done, "seconds": seconds, "return": mean}) + "\n")

    def _on_training_end(self) -> None:
        print()


def main() -> None:
    args = arguments()
    torch.set_num_threads(1)  # the networks are small: more threads would only get in each other's way
    # On ARM it prepares each product of matrices anew, however small they are.
    torch.backends.mkldnn.enabled = False  # type: ignore[assignment]
    envs = make_envs(args, args.seed)
    model = PPO(
        "MlpPolicy",
        envs,
        n_steps=32,
        batch_size=256,
        n_epochs=20,
        gamma=0.98,
        gae_lambda=0.8,
        learning_rate=lambda left: 0.001 * left,
        clip_range=lambda left: 0.2 * left,
        seed=args.seed,
        device="cpu",
    )
    began = time.perf_counter()
    model.learn(args.total_steps, callback=Progress(args))
    seconds = time.perf_counter() - began
    envs.close()

    others = make_envs(args, args.seed + 1_000_000)
    mean, spread = evaluate_policy(model, others, n_eval_episodes=args.episodes)
    others.close()
    print(
        f"{args.env_id}, seed {args.seed}: mean return {mean:.1f} ± {spread:.1f} over {args.episodes} episodes, "
        f"after {seconds:.0f} s of training"
    )


if __name__ == "__main__":
    main()
