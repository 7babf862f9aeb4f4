"""PPO of Stable-Baselines3 on stepmill: only the line that makes the envs is ours.

    pip install 'stepmill[sb3]'
    python examples/sb3_ppo.py --seed 1

Trains on CartPole-v1 for 100,000 steps, then plays 100 episodes and prints their mean return; 500 is the most there is,
475 counts as solved. The hyperparameters are those of RL Zoo.
"""

from __future__ import annotations

import argparse
import time

import torch
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.utils import safe_mean

from stepmill.interop.sb3 import make_vec_env


class Progress(BaseCallback):  # type: ignore[misc]  # SB3 may not be installed where mypy runs
    """A line that tells how far the training is."""

    def __init__(self, total: int) -> None:
        super().__init__()
        self.total = total
        self.started = time.perf_counter()

    def _on_step(self) -> bool:
        return True

    def _on_rollout_end(self) -> None:
        rate = self.num_timesteps / (time.perf_counter() - self.started)
        mean = safe_mean([episode["r"] for episode in self.model.ep_info_buffer])
        print(
            f"\r{self.num_timesteps:,} of {self.total:,} steps, {rate:,.0f} per second, "
            f"mean return of the last 100 episodes {mean:.1f}   ",
            end="",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--env-id", default="CartPole-v1")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--num-envs", type=int, default=8)
    parser.add_argument("--total-timesteps", type=int, default=100_000)
    parser.add_argument("--episodes", type=int, default=100, help="how many episodes are played at the end")
    args = parser.parse_args()

    torch.set_num_threads(1)  # the networks are small: more threads only get in each other's way
    envs = make_vec_env(args.env_id, n_envs=args.num_envs, seed=args.seed)
    model = PPO(
        "MlpPolicy",
        envs,
        seed=args.seed,
        n_steps=32,
        batch_size=256,
        n_epochs=20,
        gamma=0.98,
        gae_lambda=0.8,
        ent_coef=0.0,
        learning_rate=lambda left: 0.001 * left,
        clip_range=lambda left: 0.2 * left,
        device="cpu",
    )
    started = time.perf_counter()
    model.learn(args.total_timesteps, callback=Progress(args.total_timesteps))
    print(f"\ntrained for {time.perf_counter() - started:.0f} s")
    envs.close()

    # Other seeds than those of the training.
    held_out = make_vec_env(args.env_id, n_envs=args.num_envs, seed=args.seed + 1000)
    mean, spread = evaluate_policy(model, held_out, n_eval_episodes=args.episodes)
    held_out.close()
    print(f"seed {args.seed}: mean return {mean:.1f} ± {spread:.1f} over {args.episodes} episodes")


if __name__ == "__main__":
    main()
