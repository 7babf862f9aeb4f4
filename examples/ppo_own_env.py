"""PPO on an env of one's own: Python code with a dict of observations, in worker processes, that crashes now and then.

    pip install 'stepmill[torch]'
    python examples/ppo_own_env.py

The env is below, a messenger who must reach a house in a small town. Its best possible return is known. Like real
simulators it fails sometimes: it raises an exception, or its whole process ends. With `on_error="restart"` the pool
goes on: the row of a failure is truncated, `info["abnormal"]` marks it, and the env is built again.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from torch import nn
from torch.distributions import Categorical

import stepmill

# ---- the env ---------------------------------------------------------------------------------------


class Messenger(gymnasium.Env[Any, Any]):
    """A messenger walks to a house. Every step costs a little, the arrival is worth 1.

    Args:
        raises: The probability of an exception, in each step.
        exits: The probability that the process ends, in each step.
    """

    SIZE, MOST_STEPS, COST = 7, 40, 0.02
    MOVES = np.array([[0, 0], [0, 1], [0, -1], [1, 0], [-1, 0]])

    def __init__(self, raises: float = 0.0, exits: float = 0.0) -> None:
        place = spaces.Box(0.0, 1.0, (2,), np.float32)
        self.observation_space = spaces.Dict(
            {"here": place, "house": place, "left": spaces.Box(0.0, 1.0, (1,), np.float32)}
        )
        self.action_space = spaces.Discrete(len(self.MOVES))
        self.raises, self.exits = raises, exits

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.here, self.house = self.np_random.integers(0, self.SIZE, (2, 2))
        while (self.here == self.house).all():
            self.house = self.np_random.integers(0, self.SIZE, 2)
        self.steps = 0
        self.best_return = 1.0 - self.COST * int(np.abs(self.here - self.house).sum())
        return self.seen(), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        luck = self.np_random.random()
        if luck < self.raises:
            raise RuntimeError("the messenger has lost the map")
        if luck < self.raises + self.exits:
            os._exit(1)
        self.here = np.clip(self.here + self.MOVES[action], 0, self.SIZE - 1)
        self.steps += 1
        has_arrived = bool((self.here == self.house).all())
        is_late = self.steps == self.MOST_STEPS
        info = {"best_return": self.best_return} if has_arrived or is_late else {}
        return self.seen(), has_arrived - self.COST, has_arrived, is_late, info

    def seen(self) -> dict[str, np.ndarray]:
        scale = np.float32(1.0 / (self.SIZE - 1))
        left = np.array([1.0 - self.steps / self.MOST_STEPS], np.float32)
        return {"here": self.here * scale, "house": self.house * scale, "left": left}


# ---- the agent -------------------------------------------------------------------------------------


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--num-envs", type=count, default=16)
    parser.add_argument("--num-steps", type=count, default=64, help="of each env, between updates")
    parser.add_argument("--total-steps", type=count, default=150_000, help="of all envs together")
    parser.add_argument("--epochs", type=count, default=8, help="how often each update goes over its data")
    parser.add_argument("--minibatches", type=count, default=4)
    parser.add_argument("--learning-rate", type=float, default=1e-3, help="at the start; it falls to 0")
    parser.add_argument("--clip", type=float, default=0.2)
    parser.add_argument("--gamma", type=float, default=0.97)
    parser.add_argument("--gae-lambda", type=float, default=0.9)
    parser.add_argument("--entropy", type=float, default=0.01)
    parser.add_argument("--value-weight", type=float, default=0.5)
    parser.add_argument("--max-gradient", type=float, default=0.5)
    parser.add_argument("--raises", type=float, default=2e-4, help="the probability that a step raises an exception")
    parser.add_argument("--exits", type=float, default=5e-5, help="the probability that a step ends its process")
    parser.add_argument("--episodes", type=count, default=100, help="played at the end")
    parser.add_argument("--log", type=Path, help="a file for the learning curve, a line of JSON per update")
    args = parser.parse_args()
    if args.total_steps < args.num_envs * args.num_steps:
        parser.error(f"--total-steps: expected enough for an update, {args.num_envs * args.num_steps:,} or more")
    if args.minibatches > args.num_envs * args.num_steps:
        parser.error(f"--minibatches: expected at most one per step of an update, got {args.minibatches:,}")
    return args


def count(text: str) -> int:
    """A whole number from 1 on."""
    if int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number from 1 on, got {text}")
    return int(text)


class Agent(nn.Module):
    """A policy and a value over the leaves of the dict, side by side."""

    def __init__(self, inputs: int, actions: int) -> None:
        super().__init__()
        self.policy = nn.Sequential(
            nn.Linear(inputs, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, actions)
        )
        self.critic = nn.Sequential(nn.Linear(inputs, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))

    def forward(self, obs: torch.Tensor) -> tuple[Any, torch.Tensor]:
        return Categorical(logits=self.policy(obs)), self.critic(obs).squeeze(-1)


def side_by_side(obs: dict[str, np.ndarray]) -> torch.Tensor:
    """The observations of a batch: in a pool, each leaf of the dict is an array with a row per env."""
    return torch.cat([torch.as_tensor(part) for part in obs.values()], dim=-1)


# ---- training --------------------------------------------------------------------------------------


def train(args: argparse.Namespace) -> tuple[Agent, int]:
    """The agent, and how many steps failed."""
    torch.manual_seed(args.seed)
    pool = stepmill.make(
        Messenger,
        num_envs=args.num_envs,
        seed=args.seed,
        backend="process",
        on_error="restart",  # a failure is a row, not an exception
        max_restarts=None,  # however many there are
        raises=args.raises,
        exits=args.exits,
    )
    first, _ = pool.reset()
    obs_now = side_by_side(first)
    agent = Agent(obs_now.shape[1], len(Messenger.MOVES))
    optimizer = torch.optim.Adam(agent.parameters(), lr=args.learning_rate, eps=1e-5, fused=True)
    steps, rows = args.num_steps, args.num_envs

    # As in `ppo.py`: the step after an episode's end resets the env and does not count. Here a failed step does not
    # count either: nothing was learned about its action.
    obs = torch.zeros(steps + 1, rows, obs_now.shape[1])
    actions, log_probs, rewards, terminated, ended, failed, counts = torch.zeros(7, steps, rows)
    just_ended = torch.zeros(rows)
    obs[0] = obs_now
    finished: list[float] = []  # how far the returns of the last episodes are from the best
    failures = 0
    updates = args.total_steps // (steps * rows)
    began = time.perf_counter()
    for update in range(updates):
        optimizer.param_groups[0]["lr"] = (1.0 - update / updates) * args.learning_rate
        for t in range(steps):
            with torch.no_grad():
                distribution, _ = agent(obs[t])
                action = distribution.sample()
            actions[t], log_probs[t] = action, distribution.log_prob(action)
            following, reward, is_terminated, is_truncated, info = pool.step(action.numpy())
            abnormal = info.get("abnormal", np.zeros(rows, bool))
            failures += int(abnormal.sum())
            obs[t + 1], rewards[t] = side_by_side(following), torch.as_tensor(reward)
            terminated[t], failed[t] = torch.as_tensor(is_terminated), torch.as_tensor(abnormal)
            counts[t] = (1.0 - just_ended) * (1.0 - failed[t])
            ended[t] = just_ended = torch.as_tensor(is_terminated | is_truncated).float()
            if "best_return" in info:
                whole = info["_best_return"]
                finished += (info["episode_return"] - info["best_return"])[whole].tolist()

        with torch.no_grad():
            values = agent(obs.flatten(0, 1))[1].view(steps + 1, rows)
        advantages = estimate_advantages(args, rewards, values, terminated, ended, failed)
        learn(args, agent, optimizer, obs[:-1], actions, log_probs, advantages, values[:-1], counts)
        obs[0] = obs[-1]
        show(args, update, (update + 1) * steps * rows, time.perf_counter() - began, finished, failures)
    print()
    pool.close()
    return agent, failures


def estimate_advantages(
    args: argparse.Namespace,
    rewards: torch.Tensor,
    values: torch.Tensor,
    terminated: torch.Tensor,
    ended: torch.Tensor,
    failed: torch.Tensor,
) -> torch.Tensor:
    """GAE. A step that failed says nothing about the steps before it."""
    advantages, following = torch.zeros_like(rewards), torch.zeros_like(rewards[0])
    for t in reversed(range(len(rewards))):
        error = rewards[t] + args.gamma * values[t + 1] * (1.0 - terminated[t]) - values[t]
        following = error + args.gamma * args.gae_lambda * (1.0 - ended[t]) * following
        advantages[t] = following = following * (1.0 - failed[t])
    return advantages


def learn(
    args: argparse.Namespace,
    agent: Agent,
    optimizer: torch.optim.Optimizer,
    obs: torch.Tensor,
    actions: torch.Tensor,
    log_probs: torch.Tensor,
    advantages: torch.Tensor,
    values: torch.Tensor,
    counts: torch.Tensor,
) -> None:
    """Some epochs of PPO's clipped loss, over the steps that count."""
    chosen = counts.flatten().nonzero().squeeze(-1)
    obs, actions = obs.flatten(0, 1)[chosen], actions.flatten()[chosen]
    log_probs, advantages = log_probs.flatten()[chosen], advantages.flatten()[chosen]
    returns = advantages + values.flatten()[chosen]
    advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
    for _ in range(args.epochs):
        for batch in torch.randperm(len(chosen)).chunk(args.minibatches):
            distribution, value = agent(obs[batch])
            ratio = (distribution.log_prob(actions[batch]) - log_probs[batch]).exp()
            scaled = advantages[batch]
            policy_loss = -torch.min(scaled * ratio, scaled * ratio.clamp(1.0 - args.clip, 1.0 + args.clip)).mean()
            value_loss = (value - returns[batch]).square().mean()
            loss = policy_loss + args.value_weight * value_loss - args.entropy * distribution.entropy().mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(agent.parameters(), args.max_gradient)
            optimizer.step()


def show(
    args: argparse.Namespace, update: int, done: int, seconds: float, finished: list[float], failures: int
) -> None:
    gap = float(np.mean(finished[-100:])) if finished else float("nan")
    print(
        f"\r{done:>9,} of {args.total_steps:,} steps, {done / seconds:,.0f} per second, {failures} failures, "
        f"the last 100 returns are {-gap:.3f} below the best possible   ",
        end="",
        flush=True,
    )
    if args.log is not None:
        with args.log.open("w" if update == 0 else "a") as file:
            file.write(json.dumps({"steps": done, "seconds": seconds, "return": gap, "failures": failures}) + "\n")


# ---- what it has learned ---------------------------------------------------------------------------


def evaluate(args: argparse.Namespace, agent: Agent) -> tuple[list[float], list[float]]:
    """The returns of the first episode of each of some envs that do not crash, and the best possible ones."""
    with stepmill.make(Messenger, num_envs=args.episodes, seed=args.seed + 1_000_000) as envs:
        obs, _ = envs.reset()
        returns, best = np.full((2, args.episodes), np.nan)
        while np.isnan(returns).any():
            with torch.no_grad():
                action = agent.policy(side_by_side(obs)).argmax(-1)
            obs, _, is_terminated, is_truncated, info = envs.step(action.numpy())
            first = (is_terminated | is_truncated) & np.isnan(returns)
            if first.any():
                returns[first], best[first] = info["episode_return"][first], info["best_return"][first]
    return list(returns), list(best)


def main() -> None:
    args = arguments()
    torch.set_num_threads(1)  # the networks are small: more threads would only get in each other's way
    # On ARM it prepares each product of matrices anew, however small they are.
    torch.backends.mkldnn.enabled = False  # type: ignore[assignment]
    began = time.perf_counter()
    agent, failures = train(args)
    seconds = time.perf_counter() - began
    returns, best = evaluate(args, agent)
    print(
        f"seed {args.seed}: mean return {np.mean(returns):.3f} over {len(returns)} episodes, "
        f"where {np.mean(best):.3f} is the best possible, after {failures} failures and {seconds:.0f} s of training"
    )


if __name__ == "__main__":
    main()
