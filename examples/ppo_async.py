"""PPO on an async pool: results are taken as soon as some envs have them, and learning goes on while others step.

    pip install 'stepmill[torch]'
    python examples/ppo_async.py                    # CartPole-v1
    python examples/ppo_async.py --backend process --record-order order.bin
    python examples/ppo_async.py --backend process --replay-order order.bin     # the same weights again

`examples/ppo.py` is the same with a sync pool: read that first. What is different here:

- `recv` returns the first `batch_size` of `num_envs` results. Which envs these are is in `info["env_id"]`.
- Results come in no fixed order, so each env writes its own trajectory, of a fixed number of steps. If we collected the
  first so many episodes that end instead, short ones would be seen more often than they happen. With a fixed number of
  steps a fast env gives more trajectories than a slow one, but no kind of episode is favoured.
- While the agent learns, actions of the older policy are under way. So the log-probability and the value of a step are
  those of the moment when its action was sent. PPO's ratio corrects for the difference.
- Which results come first is chance, and seeds do not repeat it. A recorded order does.
"""

from __future__ import annotations

import argparse
import json
import time
import zlib
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
    parser.add_argument("--env-id", default="CartPole-v1", help="with flat observations and discrete actions")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--num-envs", type=count, default=8)
    parser.add_argument("--batch-size", type=count, default=4, help="how many results `recv` waits for")
    parser.add_argument("--num-steps", type=count, default=32, help="of a trajectory")
    parser.add_argument("--total-steps", type=count, default=100_000, help="of all envs together")
    parser.add_argument("--epochs", type=count, default=20, help="how often each update goes over its data")
    parser.add_argument("--learning-rate", type=float, default=1e-3, help="at the start; it falls to 0")
    parser.add_argument("--clip", type=float, default=0.2, help="at the start; it falls to 0")
    parser.add_argument("--gamma", type=float, default=0.98)
    parser.add_argument("--gae-lambda", type=float, default=0.8)
    parser.add_argument("--value-weight", type=float, default=0.5)
    parser.add_argument("--max-gradient", type=float, default=0.5)
    parser.add_argument("--episodes", type=count, default=100, help="played at the end")
    parser.add_argument("--backend", default="auto", help="where envs run: thread, process or inline")
    parser.add_argument("--record-order", type=Path, help="a file for the order in which results come")
    parser.add_argument("--replay-order", type=Path, help="such a file: results come in the same order again")
    parser.add_argument("--log", type=Path, help="a file for the learning curve, a line of JSON per update")
    args = parser.parse_args()
    if args.total_steps < args.num_envs * args.num_steps:
        parser.error(f"--total-steps: expected enough for an update, {args.num_envs * args.num_steps:,} or more")
    return args


def count(text: str) -> int:
    """A whole number from 1 on."""
    if int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number from 1 on, got {text}")
    return int(text)


# ---- the agent -------------------------------------------------------------------------------------


class Agent(nn.Module):
    """A policy and a value, each a small network of its own."""

    def __init__(self, observation_space: spaces.Box, action_space: spaces.Discrete) -> None:
        super().__init__()
        inputs = int(np.prod(observation_space.shape))
        self.policy = network(inputs, int(action_space.n), last_gain=0.01)
        self.critic = network(inputs, 1, last_gain=1.0)

    def forward(self, obs: torch.Tensor) -> tuple[Any, torch.Tensor]:
        return Categorical(logits=self.policy(obs)), self.critic(obs).squeeze(-1)


def network(inputs: int, outputs: int, last_gain: float) -> nn.Sequential:
    layers = [nn.Linear(inputs, 64), nn.Linear(64, 64), nn.Linear(64, outputs)]
    for layer, gain in zip(layers, (2**0.5, 2**0.5, last_gain), strict=True):
        nn.init.orthogonal_(layer.weight, gain)
        nn.init.zeros_(layer.bias)
    return nn.Sequential(layers[0], nn.Tanh(), layers[1], nn.Tanh(), layers[2])


# ---- trajectories ----------------------------------------------------------------------------------


class Trajectory(NamedTuple):
    """The steps of one env that an update learns from; the time goes along the first axis."""

    obs: torch.Tensor
    actions: torch.Tensor
    log_probs: torch.Tensor
    rewards: torch.Tensor
    terminated: torch.Tensor
    ended: torch.Tensor
    counts: torch.Tensor
    values: torch.Tensor  # one more: that of the observation after the last step


class Trajectories:
    """One trajectory per env, being written. Row i of each array is env i, column t the time before its step t."""

    def __init__(self, num_envs: int, num_steps: int, obs_shape: tuple[int, ...]) -> None:
        self.num_steps = num_steps
        self.place = np.full(num_envs, -1)  # the step of each env that is under way; -1: its first reset
        shape = num_envs, num_steps + 1
        self.obs, self.actions = torch.zeros(*shape, *obs_shape), torch.zeros(shape)
        self.log_probs, self.values = torch.zeros(shape), torch.zeros(shape)
        self.rewards, self.terminated, self.ended = torch.zeros(shape), torch.zeros(shape), torch.zeros(shape)
        # The step after an episode's end resets the env: its action counts for nothing.
        self.counts, self.just_ended = torch.ones(shape), torch.zeros(num_envs)

    def end_steps(self, ids: np.ndarray, reward: np.ndarray, terminated: np.ndarray, truncated: np.ndarray) -> None:
        """What came back for the actions that were sent."""
        known = self.place[ids] >= 0  # not a first reset
        where = ids[known], self.place[ids[known]]
        self.rewards[where] = torch.as_tensor(reward[known], dtype=torch.float32)
        self.terminated[where] = torch.as_tensor(terminated[known]).float()
        self.just_ended[ids] = ended = torch.as_tensor(terminated | truncated).float()
        self.ended[where] = ended[known]
        self.place[ids] += 1

    def begin_steps(
        self, ids: np.ndarray, obs: torch.Tensor, action: torch.Tensor, log_prob: torch.Tensor, value: torch.Tensor
    ) -> list[Trajectory]:
        """What is sent, as it is at this moment. Returns the trajectories that are full now."""
        self.values[ids, self.place[ids]] = value
        full = [self._take(i) for i in ids[self.place[ids] == self.num_steps]]
        where = ids, self.place[ids]
        self.obs[where], self.actions[where] = obs, action.float()
        self.log_probs[where], self.values[where] = log_prob, value
        self.counts[where] = 1.0 - self.just_ended[ids]
        return full

    def _take(self, i: int) -> Trajectory:
        """The trajectory of env i. Its next one begins where this one ends."""
        n = self.num_steps
        self.place[i] = 0
        parts = self.obs, self.actions, self.log_probs, self.rewards, self.terminated, self.ended, self.counts
        return Trajectory._make([*(part[i, :n].clone() for part in parts), self.values[i].clone()])


# ---- training --------------------------------------------------------------------------------------


def train(args: argparse.Namespace) -> Agent:
    torch.manual_seed(args.seed)
    sizes = {"num_envs": args.num_envs, "batch_size": args.batch_size}
    pool = stepmill.make(args.env_id, **sizes, seed=args.seed, backend=args.backend)
    if args.record_order is not None:
        pool.record_order(args.record_order)
    if args.replay_order is not None:
        pool.replay_order(args.replay_order)
    seen_as, acts_as = pool.single_observation_space, pool.single_action_space
    if not isinstance(seen_as, spaces.Box) or not isinstance(acts_as, spaces.Discrete):
        raise SystemExit(f"{args.env_id}: expected a Box, and Discrete actions, got {seen_as}, {acts_as}")
    agent = Agent(seen_as, acts_as)
    optimizer = torch.optim.Adam(agent.parameters(), lr=args.learning_rate, eps=1e-5, fused=True)
    writing = Trajectories(args.num_envs, args.num_steps, seen_as.shape)
    updates, steps_per_update = 0, args.num_envs * args.num_steps
    planned = args.total_steps // steps_per_update
    full: list[Trajectory] = []
    finished: list[float] = []  # the returns of episodes
    began = time.perf_counter()

    pool.async_reset()
    while updates < planned:
        obs, reward, terminated, truncated, info = pool.recv()
        ids = info["env_id"]
        writing.end_steps(ids, reward, terminated, truncated)
        ended = terminated | truncated
        finished += info["episode_return"][ended].tolist() if ended.any() else []
        with torch.no_grad():
            seen = torch.as_tensor(obs)
            distribution, value = agent(seen)
            action = distribution.sample()
            log_prob = distribution.log_prob(action)
        full += writing.begin_steps(ids, seen, action, log_prob, value)
        pool.send(action.numpy(), ids)

        if len(full) >= args.num_envs:  # the envs that have not answered yet go on meanwhile
            learn(args, agent, optimizer, 1.0 - updates / planned, full)
            full, updates = [], updates + 1
            show(args, updates * steps_per_update, time.perf_counter() - began, finished, is_first=updates == 1)
    print()
    pool.close()
    return agent


def learn(
    args: argparse.Namespace, agent: Agent, optimizer: torch.optim.Optimizer, left: float, full: list[Trajectory]
) -> None:
    """Some epochs of PPO's clipped loss, over the steps that count. ``left`` falls from 1 to 0 during the training."""
    advantages = torch.cat([estimate_advantages(args, one) for one in full])
    returns = advantages + torch.cat([one.values[:-1] for one in full])
    obs, actions, log_probs, counts = (
        torch.cat(parts)
        for parts in zip(*((one.obs, one.actions, one.log_probs, one.counts) for one in full), strict=True)
    )
    chosen = counts.nonzero().squeeze(-1)
    obs, actions, log_probs = obs[chosen], actions[chosen], log_probs[chosen]
    advantages, returns = advantages[chosen], returns[chosen]
    advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
    clip = left * args.clip
    optimizer.param_groups[0]["lr"] = left * args.learning_rate
    for _ in range(args.epochs):
        distribution, value = agent(obs)
        ratio = (distribution.log_prob(actions) - log_probs).exp()
        policy_loss = -torch.min(advantages * ratio, advantages * ratio.clamp(1.0 - clip, 1.0 + clip)).mean()
        loss = policy_loss + args.value_weight * (value - returns).square().mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(agent.parameters(), args.max_gradient)
        optimizer.step()


def estimate_advantages(args: argparse.Namespace, one: Trajectory) -> torch.Tensor:
    """GAE. An episode that was cut off goes on in value; one that terminated does not."""
    advantages, following = torch.zeros_like(one.rewards), torch.zeros(())
    for t in reversed(range(len(one.rewards))):
        error = one.rewards[t] + args.gamma * one.values[t + 1] * (1.0 - one.terminated[t]) - one.values[t]
        following = error + args.gamma * args.gae_lambda * (1.0 - one.ended[t]) * following
        advantages[t] = following
    return advantages


def show(args: argparse.Namespace, done: int, seconds: float, finished: list[float], is_first: bool) -> None:
    mean = float(np.mean(finished[-20:])) if finished else float("nan")
    print(
        f"\r{done:>9,} of {args.total_steps:,} steps, {done / seconds:,.0f} per second, "
        f"mean return of the last 20 episodes {mean:.1f}   ",
        end="",
        flush=True,
    )
    if args.log is not None:
        with args.log.open("w" if is_first else "a") as file:
            file.write(json.dumps({"steps": done, "seconds": seconds, "return": mean}) + "\n")


# ---- what it has learned ---------------------------------------------------------------------------


def evaluate(args: argparse.Namespace, agent: Agent) -> list[float]:
    """The return of the first episode of each of some envs, with seeds that the training did not have."""
    with stepmill.make(args.env_id, num_envs=args.episodes, seed=args.seed + 1_000_000) as envs:
        obs, _ = envs.reset()
        returns = np.full(args.episodes, np.nan)
        while np.isnan(returns).any():
            with torch.no_grad():
                action = agent.policy(torch.as_tensor(obs)).argmax(-1)
            obs, _, terminated, truncated, info = envs.step(action.numpy())
            first = (terminated | truncated) & np.isnan(returns)
            if first.any():
                returns[first] = info["episode_return"][first]
    return list(returns)


def checksum(agent: Agent) -> int:
    """The same number for the same weights."""
    return zlib.crc32(b"".join(part.numpy().tobytes() for part in agent.state_dict().values()))


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
        f"{args.env_id}, seed {args.seed}: mean return {np.mean(returns):.1f} ± {np.std(returns):.1f} "
        f"over {len(returns)} episodes, after {seconds:.0f} s of training; "
        f"checksum of the weights {checksum(agent):08x}"
    )


if __name__ == "__main__":
    main()
