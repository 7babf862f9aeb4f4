"""PPO on MuJoCo: HalfCheetah-v5 learns to run, in minutes on two cores.

    pip install 'stepmill[torch,mujoco]'
    python examples/ppo_mujoco.py
    python examples/ppo_mujoco.py --env-id Walker2d-v5

`examples/ppo.py` is the same without what continuous control needs: read that first. What is different here:

- Observations are scaled by the mean and the spread of all that were seen, rewards by the spread of returns.
- C++ threads step many envs at once, so an update has many steps of each and goes over them in minibatches.
- `output="torch"`: the pool hands out tensors, and takes them as actions.

Trains, then plays 100 episodes of envs with other seeds and prints their mean return.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import nn
from torch.distributions import Independent, Normal

import stepmill


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--env-id", default="HalfCheetah-v5", help="with flat observations and continuous actions")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--num-envs", type=count, default=32)
    parser.add_argument("--num-steps", type=count, default=128, help="of each env, between updates")
    parser.add_argument("--total-steps", type=count, default=1_000_000, help="of all envs together")
    parser.add_argument("--epochs", type=count, default=8, help="how often each update goes over its data")
    parser.add_argument("--minibatches", type=count, default=8)
    parser.add_argument("--learning-rate", type=float, default=5e-4, help="at the start; it falls to 0")
    parser.add_argument("--clip", type=float, default=0.2)
    parser.add_argument("--gamma", type=float, default=0.99)
    parser.add_argument("--gae-lambda", type=float, default=0.95)
    parser.add_argument("--value-weight", type=float, default=0.5)
    parser.add_argument("--max-gradient", type=float, default=0.5)
    parser.add_argument("--hidden", type=count, default=64, help="the width of the networks")
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


# ---- the agent -------------------------------------------------------------------------------------


class Spread(nn.Module):
    """The mean and the standard deviation, per column, of all rows that were ever added."""

    mean: torch.Tensor
    deviation: torch.Tensor

    def __init__(self, columns: int) -> None:
        super().__init__()
        self.rows = 0
        self.register_buffer("mean", torch.zeros(columns))
        self.register_buffer("deviation", torch.ones(columns))

    def add(self, rows: torch.Tensor) -> None:
        new, all_rows = len(rows), self.rows + len(rows)
        apart = rows.mean(0) - self.mean
        variance = self.rows * self.deviation.square() + new * rows.var(0, correction=0)
        variance = variance / all_rows + apart.square() * self.rows * new / all_rows**2
        self.mean, self.deviation = self.mean + apart * new / all_rows, variance.sqrt().clamp(min=1e-4)
        self.rows = all_rows


class Agent(nn.Module):
    """A policy and a value, each a small network of its own, over scaled observations."""

    def __init__(self, inputs: int, outputs: int, hidden: int) -> None:
        super().__init__()
        self.seen = Spread(inputs)
        self.policy = network(inputs, hidden, outputs, last_gain=0.01)
        self.critic = network(inputs, hidden, 1, last_gain=1.0)
        self.log_std = nn.Parameter(torch.full((outputs,), -0.5))

    def scale(self, obs: torch.Tensor) -> torch.Tensor:
        return ((obs.float() - self.seen.mean) / self.seen.deviation).clamp(-10.0, 10.0)

    def distribution(self, scaled: torch.Tensor) -> Any:
        return Independent(Normal(self.policy(scaled), self.log_std.exp()), 1)

    def value(self, scaled: torch.Tensor) -> torch.Tensor:
        values: torch.Tensor = self.critic(scaled).squeeze(-1)
        return values


def network(inputs: int, hidden: int, outputs: int, last_gain: float) -> nn.Sequential:
    layers = [nn.Linear(inputs, hidden), nn.Linear(hidden, hidden), nn.Linear(hidden, outputs)]
    for layer, gain in zip(layers, (2**0.5, 2**0.5, last_gain), strict=True):
        nn.init.orthogonal_(layer.weight, gain)
        nn.init.zeros_(layer.bias)
    return nn.Sequential(layers[0], nn.Tanh(), layers[1], nn.Tanh(), layers[2])


# ---- training --------------------------------------------------------------------------------------


def train(args: argparse.Namespace) -> Agent:
    torch.manual_seed(args.seed)
    envs = stepmill.make(args.env_id, num_envs=args.num_envs, seed=args.seed, output="torch")
    seen_as, acts_as = envs.single_observation_space, envs.single_action_space
    if not isinstance(seen_as, spaces.Box) or not isinstance(acts_as, spaces.Box):
        raise SystemExit(f"{args.env_id}: expected a Box, and Box actions, got {seen_as}, {acts_as}")
    inputs, outputs = seen_as.shape[0], acts_as.shape[0]
    agent = Agent(inputs, outputs, args.hidden)
    optimizer = torch.optim.Adam(agent.parameters(), lr=args.learning_rate, eps=1e-5, fused=True)
    steps, rows = args.num_steps, args.num_envs

    # Row t of these arrays is the time before step t; the last row of `obs` is the time after the last step.
    obs = torch.zeros(steps + 1, rows, inputs)
    actions = torch.zeros(steps, rows, outputs)
    log_probs, rewards, terminated, ended = torch.zeros(4, steps, rows)
    # A pool resets an env in the step after an episode's end: that step's action counts for nothing.
    counts, just_ended = torch.ones(steps, rows), torch.zeros(rows)
    # What each env has collected lately, discounted: its spread over all envs and times is the unit of rewards.
    lately, returns = torch.zeros(rows), Spread(1)

    obs[0], _ = envs.reset()
    finished: list[float] = []  # the returns of episodes
    updates = args.total_steps // (steps * rows)
    began, env_seconds = time.perf_counter(), 0.0
    for update in range(updates):
        optimizer.param_groups[0]["lr"] = (1.0 - update / updates) * args.learning_rate
        collected = torch.zeros(steps, rows)
        for t in range(steps):
            counts[t] = 1.0 - just_ended
            with torch.no_grad():
                distribution = agent.distribution(agent.scale(obs[t]))
                actions[t] = action = distribution.sample()
                log_probs[t] = distribution.log_prob(action)
            env_began = time.perf_counter()
            obs[t + 1], rewards[t], is_terminated, is_truncated, info = envs.step(action)
            env_seconds += time.perf_counter() - env_began
            terminated[t], ended[t] = is_terminated, is_terminated | is_truncated
            collected[t] = lately = args.gamma * lately * (1.0 - just_ended) + rewards[t]
            just_ended = ended[t].clone()
            if just_ended.any():
                finished += info["episode_return"][info["_episode_return"]].tolist()

        returns.add(collected.view(-1, 1))
        learn(args, agent, optimizer, obs, actions, log_probs, rewards / returns.deviation, terminated, ended, counts)
        agent.seen.add(obs[:-1].flatten(0, 1))  # after the update: its ratios are of the policy that has acted
        obs[0] = obs[-1]
        seconds = time.perf_counter() - began
        show(args, (update + 1) * steps * rows, seconds, env_seconds / seconds, finished, is_first=update == 0)
    print()
    envs.close()
    return agent


def learn(
    args: argparse.Namespace,
    agent: Agent,
    optimizer: torch.optim.Optimizer,
    obs: torch.Tensor,
    actions: torch.Tensor,
    log_probs: torch.Tensor,
    rewards: torch.Tensor,
    terminated: torch.Tensor,
    ended: torch.Tensor,
    counts: torch.Tensor,
) -> None:
    """Some epochs of PPO's clipped loss, over the steps that count."""
    with torch.no_grad():
        scaled = agent.scale(obs)
        values = agent.value(scaled)
    advantages = estimate_advantages(args, rewards, values, terminated, ended)
    chosen = counts.flatten().nonzero().squeeze(-1)
    scaled, actions = scaled[:-1].flatten(0, 1)[chosen], actions.flatten(0, 1)[chosen]
    log_probs, advantages = log_probs.flatten()[chosen], advantages.flatten()[chosen]
    returns = advantages + values[:-1].flatten()[chosen]
    advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
    for _ in range(args.epochs):
        for batch in torch.randperm(len(chosen)).chunk(args.minibatches):
            distribution = agent.distribution(scaled[batch])
            ratio = (distribution.log_prob(actions[batch]) - log_probs[batch]).exp()
            better = advantages[batch]
            policy_loss = -torch.min(better * ratio, better * ratio.clamp(1.0 - args.clip, 1.0 + args.clip)).mean()
            value_loss = (agent.value(scaled[batch]) - returns[batch]).square().mean()
            optimizer.zero_grad()
            (policy_loss + args.value_weight * value_loss).backward()
            nn.utils.clip_grad_norm_(agent.parameters(), args.max_gradient)
            optimizer.step()


def estimate_advantages(
    args: argparse.Namespace,
    rewards: torch.Tensor,
    values: torch.Tensor,
    terminated: torch.Tensor,
    ended: torch.Tensor,
) -> torch.Tensor:
    """GAE. An episode that was cut off goes on in value; one that terminated does not."""
    advantages, following = torch.zeros_like(rewards), torch.zeros_like(rewards[0])
    for t in reversed(range(len(rewards))):
        error = rewards[t] + args.gamma * values[t + 1] * (1.0 - terminated[t]) - values[t]
        following = error + args.gamma * args.gae_lambda * (1.0 - ended[t]) * following
        advantages[t] = following
    return advantages


def show(
    args: argparse.Namespace, done: int, seconds: float, share: float, finished: list[float], is_first: bool
) -> None:
    mean = float(np.mean(finished[-args.num_envs :])) if finished else float("nan")
    print(
        f"\r{done:>9,} of {args.total_steps:,} steps, {done / seconds:,.0f} per second, envs {share:.0%} of the time, "
        f"mean return of the last {args.num_envs} episodes {mean:.0f}   ",
        end="",
        flush=True,
    )
    if args.log is not None:
        with args.log.open("w" if is_first else "a") as file:
            file.write(json.dumps({"steps": done, "seconds": seconds, "return": mean, "env_share": share}) + "\n")


# ---- what it has learned ---------------------------------------------------------------------------


def evaluate(args: argparse.Namespace, agent: Agent) -> list[float]:
    """The return of the first episode of each of some envs, with seeds that the training did not have."""
    others = args.seed + 1_000_000
    with stepmill.make(args.env_id, num_envs=args.episodes, seed=others, output="torch") as envs:
        obs, _ = envs.reset()
        returns = np.full(args.episodes, np.nan)
        while np.isnan(returns).any():
            with torch.no_grad():
                action = agent.policy(agent.scale(obs))
            obs, _, is_terminated, is_truncated, info = envs.step(action)
            first = (is_terminated | is_truncated).numpy() & np.isnan(returns)
            if first.any():
                returns[first] = info["episode_return"][first]
    return list(returns)


def main() -> None:
    args = arguments()
    torch.set_num_threads(1)  # the networks are small: more threads would only get in each other's way
    # On ARM it prepares each product of matrices anew, however small they are.
    torch.backends.mkldnn.enabled = False  # type: ignore[assignment]
    began = time.perf_counter()
    agent = train(args)
    seconds = time.perf_counter() - began
    returns = evaluate(args, agent)
    print(
        f"{args.env_id}, seed {args.seed}: mean return {np.mean(returns):.0f} ± {np.std(returns):.0f} "
        f"over {len(returns)} episodes, after {seconds:.0f} s of training"
    )


if __name__ == "__main__":
    main()
