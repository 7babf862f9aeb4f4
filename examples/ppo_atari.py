"""PPO on Atari: Pong on an async pool, the network on a GPU if there is one.

    pip install 'stepmill[torch,atari]'
    python examples/ppo_atari.py                              # Pong-v5, for 8 minutes at most
    python examples/ppo_atari.py --env-id Breakout-v5 --minutes 60

`examples/ppo_async.py` explains trajectories from first-ready batches: read that first. What is different here:

- While one half of the envs waits for actions, the other half steps in worker processes.
- Learning goes on meanwhile, too: an update is a generator, and each turn of the loop takes one minibatch of it.
- Trajectories lie where the network is, so that a frame goes to the GPU once.

Trains, then plays some games with other seeds and prints their mean return.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from gymnasium import spaces
from torch import nn
from torch.distributions import Categorical

import stepmill


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--env-id", default="Pong-v5", help="with frames of 84 x 84 and discrete actions")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", help="of the network")
    parser.add_argument("--num-envs", type=count, default=256)
    parser.add_argument("--batch-size", type=count, default=128, help="how many results `recv` waits for")
    parser.add_argument("--num-steps", type=count, default=64, help="of a trajectory")
    parser.add_argument("--total-steps", type=count, default=10_000_000, help="of all envs together; four frames each")
    parser.add_argument("--minutes", type=float, default=8.0, help="training ends after these, if not before")
    parser.add_argument("--epochs", type=count, default=3, help="how often each update goes over its data")
    parser.add_argument("--minibatches", type=count, default=8)
    parser.add_argument("--learning-rate", type=float, default=5e-4, help="at the start; it falls to 0")
    parser.add_argument("--clip", type=float, default=0.2)
    parser.add_argument("--gamma", type=float, default=0.99)
    parser.add_argument("--gae-lambda", type=float, default=0.95)
    parser.add_argument("--entropy", type=float, default=0.01)
    parser.add_argument("--value-weight", type=float, default=0.5)
    parser.add_argument("--max-gradient", type=float, default=0.5)
    parser.add_argument("--channels", type=count, default=32, help="of the first layer of the network")
    parser.add_argument("--episodes", type=count, default=32, help="played at the end")
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


class Agent(nn.Module):
    """A policy and a value over the same convolutions, those of DQN's paper in Nature."""

    def __init__(self, frames: int, actions: int, channels: int) -> None:
        super().__init__()
        first, second, third = channels, 2 * channels, 2 * channels
        self.body = nn.Sequential(
            orthogonal(nn.Conv2d(frames, first, 8, 4), 2**0.5),
            nn.ReLU(),
            orthogonal(nn.Conv2d(first, second, 4, 2), 2**0.5),
            nn.ReLU(),
            orthogonal(nn.Conv2d(second, third, 3, 1), 2**0.5),
            nn.ReLU(),
            nn.Flatten(),
            orthogonal(nn.Linear(7 * 7 * third, 16 * channels), 2**0.5),
            nn.ReLU(),
        )
        self.policy = orthogonal(nn.Linear(16 * channels, actions), 0.01)
        self.critic = orthogonal(nn.Linear(16 * channels, 1), 1.0)

    def forward(self, obs: torch.Tensor) -> tuple[Any, torch.Tensor]:
        features = self.body(obs.float() / 255.0)
        return Categorical(logits=self.policy(features), validate_args=False), self.critic(features).squeeze(-1)


def orthogonal(layer: Any, gain: float) -> Any:
    nn.init.orthogonal_(layer.weight, gain)
    nn.init.zeros_(layer.bias)
    return layer


# ---- trajectories ----------------------------------------------------------------------------------


class Rollout(NamedTuple):
    """Full trajectories: a row per trajectory, a column per step."""

    obs: torch.Tensor
    actions: torch.Tensor
    log_probs: torch.Tensor
    rewards: torch.Tensor
    terminated: torch.Tensor
    ended: torch.Tensor
    counts: torch.Tensor
    values: torch.Tensor  # one more column: that of the observation after the last step


class Trajectories:
    """One trajectory per env, being written. Row i of each array is env i, column t the time before its step t."""

    def __init__(self, num_envs: int, num_steps: int, obs_shape: tuple[int, ...], device: str) -> None:
        self.num_steps, self.device = num_steps, device
        self.place = np.full(num_envs, -1)  # the step of each env that is under way; -1: its first reset
        shape = num_envs, num_steps + 1
        self.obs = torch.zeros(*shape, *obs_shape, dtype=torch.uint8, device=device)
        self.actions = torch.zeros(shape, dtype=torch.int64, device=device)
        self.log_probs, self.values, self.rewards, self.terminated, self.ended, self.counts = torch.zeros(
            6, *shape, device=device
        )
        self.just_ended = torch.zeros(num_envs, device=device)

    def end_steps(
        self, ids: np.ndarray, reward: torch.Tensor, terminated: torch.Tensor, truncated: torch.Tensor
    ) -> None:
        """What came back for the actions that were sent. What a first reset writes to the last column is not read."""
        where = self._where(ids)
        ended = (terminated | truncated).float()
        self.rewards[where], self.terminated[where], self.ended[where] = reward.float(), terminated.float(), ended
        self.just_ended[where[0]] = ended
        self.place[ids] += 1

    def begin_steps(
        self, ids: np.ndarray, obs: torch.Tensor, action: torch.Tensor, log_prob: torch.Tensor, value: torch.Tensor
    ) -> Rollout | None:
        """What is sent, as it is at this moment. Returns the trajectories that are full now, if any are."""
        self.values[self._where(ids)] = value
        full = ids[self.place[ids] == self.num_steps]
        rollout = self._take(full) if len(full) else None
        where = self._where(ids)
        self.obs[where], self.actions[where] = obs, action
        self.log_probs[where], self.values[where] = log_prob, value
        # The step after an episode's end resets the env: its action counts for nothing.
        self.counts[where] = 1.0 - self.just_ended[where[0]]
        return rollout

    def _take(self, ids: np.ndarray) -> Rollout:
        """Copies. The next trajectories of these envs begin where these end."""
        self.place[ids] = 0
        rows = torch.as_tensor(ids).to(self.device)
        parts = self.obs, self.actions, self.log_probs, self.rewards, self.terminated, self.ended, self.counts
        return Rollout._make([*(part[rows, :-1] for part in parts), self.values[rows]])

    def _where(self, ids: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
        rows, columns = torch.as_tensor(np.stack([ids, self.place[ids]]), dtype=torch.int64).to(self.device)
        return rows, columns


# ---- training --------------------------------------------------------------------------------------


def train(args: argparse.Namespace) -> tuple[Agent, int]:
    """The agent, and how many steps it had."""
    torch.manual_seed(args.seed)
    pool = stepmill.make(
        args.env_id,
        num_envs=args.num_envs,
        batch_size=args.batch_size,
        seed=args.seed,
        output="torch",
        device=args.device,  # on a GPU, the copy of one batch overlaps the steps of the next
    )
    seen_as, acts_as = pool.single_observation_space, pool.single_action_space
    if not isinstance(seen_as, spaces.Box) or not isinstance(acts_as, spaces.Discrete):
        raise SystemExit(f"{args.env_id}: expected a Box, and Discrete actions, got {seen_as}, {acts_as}")
    agent = Agent(seen_as.shape[0], int(acts_as.n), args.channels).to(args.device)
    optimizer = torch.optim.Adam(agent.parameters(), lr=args.learning_rate, eps=1e-5, fused=True)
    writing = Trajectories(args.num_envs, args.num_steps, seen_as.shape, args.device)
    full: list[Rollout] = []
    learning: Iterator[None] = iter(())  # an update that goes on while the envs step
    finished: list[float] = []  # the returns of games
    updates, done, left, began = 0, 0, 1.0, time.perf_counter()

    pool.async_reset()
    while left > 0.0:
        obs, reward, terminated, truncated, info = pool.recv()
        ids = info["env_id"]
        writing.end_steps(ids, reward, terminated, truncated)
        if "episode_return" in info:
            finished += info["episode_return"][info["_episode_return"]].tolist()
        with torch.no_grad():
            distribution, value = agent(obs)
            action = distribution.sample()
            log_prob = distribution.log_prob(action)
        pool.send(action, ids)
        rollout = writing.begin_steps(ids, obs, action, log_prob, value)
        full += [] if rollout is None else [rollout]
        next(learning, None)

        if sum(len(one.rewards) for one in full) >= args.num_envs:
            for _ in learning:  # what is left of the update before
                pass
            if updates:
                show(args, done, time.perf_counter() - began, finished, is_first=updates == 1)
            updates, done = updates + 1, done + args.num_envs * args.num_steps
            left = 1.0 - max(done / args.total_steps, (time.perf_counter() - began) / 60 / args.minutes)
            # Always as many of them, so that every minibatch has the same size: a GPU plans for sizes that it knows.
            every = Rollout._make(torch.cat(parts) for parts in zip(*full, strict=True))
            learning = learn(
                args, agent, optimizer, max(0.0, left), Rollout._make(part[: args.num_envs] for part in every)
            )
            full = [Rollout._make(part[args.num_envs :] for part in every)]
    for _ in learning:
        pass
    show(args, done, time.perf_counter() - began, finished, is_first=updates == 1)
    print()
    pool.close()
    return agent, done


def learn(
    args: argparse.Namespace, agent: Agent, optimizer: torch.optim.Optimizer, left: float, rollout: Rollout
) -> Iterator[None]:
    """Some epochs of PPO's clipped loss, over the steps that count: a minibatch each time that it is asked to go on."""
    advantages = estimate_advantages(args, rollout).flatten()
    returns = advantages + rollout.values[:, :-1].flatten()
    obs, actions, log_probs = rollout.obs.flatten(0, 1), rollout.actions.flatten(), rollout.log_probs.flatten()
    chosen = rollout.counts.flatten().nonzero().squeeze(-1)
    missing = len(advantages) - len(chosen)
    optimizer.param_groups[0]["lr"] = left * args.learning_rate
    for _ in range(args.epochs):
        shuffled = chosen[torch.randperm(len(chosen), device=chosen.device)]
        for batch in torch.cat([shuffled, shuffled[:missing]]).chunk(args.minibatches):  # a few steps twice
            distribution, value = agent(obs[batch])
            ratio = (distribution.log_prob(actions[batch]) - log_probs[batch]).exp()
            scaled = advantages[batch]
            scaled = (scaled - scaled.mean()) / (scaled.std() + 1e-8)
            policy_loss = -torch.min(scaled * ratio, scaled * ratio.clamp(1.0 - args.clip, 1.0 + args.clip)).mean()
            value_loss = (value - returns[batch]).square().mean()
            loss = policy_loss + args.value_weight * value_loss - args.entropy * distribution.entropy().mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(agent.parameters(), args.max_gradient)
            optimizer.step()
            yield


def estimate_advantages(args: argparse.Namespace, rollout: Rollout) -> torch.Tensor:
    """GAE. An episode that was cut off goes on in value; one that terminated does not."""
    rewards, values = rollout.rewards.sign(), rollout.values  # signs: other games have larger rewards than Pong
    errors = rewards + args.gamma * values[:, 1:] * (1.0 - rollout.terminated) - values[:, :-1]
    keep = args.gamma * args.gae_lambda * (1.0 - rollout.ended)
    advantages, following = torch.zeros_like(errors), torch.zeros_like(errors[:, 0])
    for t in reversed(range(errors.shape[1])):
        advantages[:, t] = following = errors[:, t] + keep[:, t] * following
    return advantages


def show(args: argparse.Namespace, done: int, seconds: float, finished: list[float], is_first: bool) -> None:
    mean = float(np.mean(finished[-20:])) if finished else float("nan")
    print(
        f"\r{done:>10,} steps, {seconds:.0f} s, {done / seconds:,.0f} per second, "
        f"mean return of the last 20 games {mean:.1f}   ",
        end="",
        flush=True,
    )
    if args.log is not None:
        with args.log.open("w" if is_first else "a") as file:
            file.write(json.dumps({"steps": done, "seconds": seconds, "return": mean}) + "\n")


# ---- what it has learned ---------------------------------------------------------------------------


def evaluate(args: argparse.Namespace, agent: Agent) -> list[float]:
    """The return of the first game of each of some envs, with seeds that the training did not have."""
    where = {"output": "torch", "device": args.device}
    with stepmill.make(args.env_id, num_envs=args.episodes, seed=args.seed + 1_000_000, **where) as envs:
        obs, _ = envs.reset()
        returns = np.full(args.episodes, np.nan)
        while np.isnan(returns).any():
            with torch.no_grad():
                distribution, _ = agent(obs)
            obs, _, terminated, truncated, info = envs.step(distribution.sample())
            first = (terminated | truncated).cpu().numpy() & np.isnan(returns)
            if first.any():
                returns[first] = info["episode_return"][first]
    return list(returns)


def main() -> None:
    args = arguments()
    torch.backends.cudnn.benchmark = True
    torch.set_float32_matmul_precision("high")
    began = time.perf_counter()
    agent, steps = train(args)
    seconds = time.perf_counter() - began
    returns = evaluate(args, agent)
    print(
        f"{args.env_id}, seed {args.seed}: mean return {np.mean(returns):.1f} ± {np.std(returns):.1f} "
        f"over {len(returns)} games, after {steps:,} steps and {seconds:.0f} s of training"
    )


if __name__ == "__main__":
    main()
