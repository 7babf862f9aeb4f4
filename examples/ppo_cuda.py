"""PPO where nothing leaves the GPU: envs, networks and learning, an update of all three as one CUDA graph.

    pip install 'stepmill[torch]' && pip install 'stepmill[cuda]'  # in this order: docs/cuda.md
    python examples/ppo_cuda.py                                 # CartPole-v1, solved at 475, in seconds
    python examples/ppo_cuda.py --num-envs 16384 --seed 3
    python examples/ppo_cuda.py --backend thread --num-envs 256  # without a GPU: envs on C++ threads

Each env is a thread of the GPU, so there are thousands of them, and an update needs only a few steps of each. What
takes time then is telling the GPU what to do. So all that an update does is captured once, and replayed. The steps in
it are those of `pool.graph_step`, whose results are always in the same tensors. The program waits for the GPU once per
update, to print how it is doing. One thing differs from usual PPO: a minibatch is a fixed group of envs.

Trains, then plays 100 episodes of envs with other seeds and prints their mean return.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from gymnasium import spaces
from torch import nn

import stepmill

OTHER_SEEDS = 1_000_000  # from here on, for the episodes at the end


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--env-id", default="CartPole-v1", help="or a file with an env of your own")
    parser.add_argument("--backend", choices=["cuda", "thread"], default="cuda", help="thread: all on the CPU")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--num-envs", type=count, default=4096)
    parser.add_argument("--num-steps", type=count, default=32, help="of each env, between updates")
    parser.add_argument("--total-steps", type=count, default=8_000_000, help="of all envs together")
    parser.add_argument("--epochs", type=count, default=4, help="how often each update goes over its data")
    parser.add_argument("--minibatches", type=count, default=4)
    parser.add_argument("--learning-rate", type=float, default=3e-3, help="at the start; it falls to 0")
    parser.add_argument("--clip", type=float, default=0.2)
    parser.add_argument("--gamma", type=float, default=0.98)
    parser.add_argument("--gae-lambda", type=float, default=0.9)
    parser.add_argument("--entropy", type=float, default=0.0)
    parser.add_argument("--value-weight", type=float, default=0.5)
    parser.add_argument("--max-gradient", type=float, default=0.5)
    parser.add_argument("--episodes", type=count, default=100, help="played at the end")
    parser.add_argument("--log", type=Path, help="a file for the learning curve, a line of JSON per update")
    args = parser.parse_args()
    batch = args.num_envs * args.num_steps
    if args.total_steps < batch:
        parser.error(f"--total-steps: expected enough for an update, {batch:,} or more")
    if args.num_envs % args.minibatches:
        parser.error(f"--minibatches: expected a divisor of the {args.num_envs:,} envs, got {args.minibatches:,}")
    args.updates = args.total_steps // batch
    args.device = "cuda" if args.backend == "cuda" else "cpu"
    return args


def count(text: str) -> int:
    """A whole number from 1 on."""
    if int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number from 1 on, got {text}")
    return int(text)


def make_envs(args: argparse.Namespace, num_envs: int, seed: int) -> Any:
    envs = stepmill.make(args.env_id, num_envs=num_envs, seed=seed, backend=args.backend, output="torch")
    seen_as, acts_as = envs.single_observation_space, envs.single_action_space
    if not isinstance(seen_as, spaces.Box) or not isinstance(acts_as, spaces.Discrete):
        raise SystemExit(f"{args.env_id}: this file is for arrays and for one choice, got {seen_as}, {acts_as}")
    return envs


# ---- the agent -------------------------------------------------------------------------------------


class Agent(nn.Module):
    """A policy and a value, each a small network of its own."""

    def __init__(self, inputs: int, first_action: int, choices: int) -> None:
        super().__init__()
        self.first_action = first_action
        self.policy = network(inputs, choices, last_gain=0.01)
        self.critic = network(inputs, 1, last_gain=1.0)

    def log_probs(self, obs: torch.Tensor) -> torch.Tensor:
        return self.policy(obs).log_softmax(-1)

    def value(self, obs: torch.Tensor) -> torch.Tensor:
        values: torch.Tensor = self.critic(obs).squeeze(-1)
        return values

    def for_env(self, choice: torch.Tensor) -> torch.Tensor:
        return choice + self.first_action if self.first_action else choice


def network(inputs: int, outputs: int, last_gain: float) -> nn.Sequential:
    layers = [nn.Linear(inputs, 64), nn.Linear(64, 64), nn.Linear(64, outputs)]
    for layer, gain in zip(layers, (2**0.5, 2**0.5, last_gain), strict=True):
        nn.init.orthogonal_(layer.weight, gain)
        nn.init.zeros_(layer.bias)
    return nn.Sequential(layers[0], nn.Tanh(), layers[1], nn.Tanh(), layers[2])


def flat(obs: torch.Tensor) -> torch.Tensor:
    """A row of numbers per env, whatever the shape and the type of its observation."""
    return obs.flatten(1).float()


# ---- training --------------------------------------------------------------------------------------


class Trainer:
    """PPO on the envs of a pool. ``update`` works on the same tensors each time, so that it can be a graph."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        self.envs = make_envs(args, args.num_envs, args.seed)
        acts_as = self.envs.single_action_space
        inputs = math.prod(self.envs.single_observation_space.shape)
        there = {"device": args.device}
        self.agent = Agent(inputs, int(acts_as.start), int(acts_as.n)).to(args.device)
        self.rate = torch.zeros((), **there)  # a tensor: the graph reads what it is then
        self.optimizer = torch.optim.Adam(
            self.agent.parameters(), lr=self.rate, eps=1e-5, fused=True, capturable=args.device == "cuda"
        )
        steps, rows = args.num_steps, args.num_envs
        # Row t of these is the time before step t; the last row of `obs` is the time after the last step.
        self.obs = torch.zeros(steps + 1, rows, inputs, **there)
        self.choices = torch.zeros(steps, rows, dtype=torch.int64, **there)
        self.log_probs, self.rewards, self.terminated, self.ended = torch.zeros(4, steps, rows, **there)
        # A pool resets an env in the step after its episode's end, and discards the action. Such a step must not count
        # in the loss. Weights see to that without asking which steps these are, for which the program would wait.
        self.is_real_step = torch.ones(steps, rows, **there)
        self.just_ended, self.running_return = torch.zeros(2, rows, **there)
        self.sum_of_returns, self.episodes = torch.zeros(2, **there)  # of the episodes that have ended in this update
        self.shown = math.nan  # the last mean return

    def begin(self) -> None:
        """All envs at the start of their first episodes."""
        first, _ = self.envs.reset(seed=self.args.seed)
        self.obs[-1] = flat(first)
        self.just_ended.zero_()
        self.running_return.zero_()

    def update(self) -> None:
        """Some steps of all envs, and what is learned from them. Nothing here waits for the GPU."""
        self.sum_of_returns.zero_()
        self.episodes.zero_()
        self.obs[0] = self.obs[-1]
        with torch.no_grad():
            for t in range(self.args.num_steps):
                self.step(t)
            values = self.agent.value(self.obs)
            advantages = self.estimate_advantages(values)
            targets = advantages + values[:-1]
        # Envs are alike and independent: a group of them is as good a minibatch as one that is drawn at random.
        rows = self.args.num_envs // self.args.minibatches
        for _ in range(self.args.epochs):
            for first in range(0, self.args.num_envs, rows):
                self.learn(slice(first, first + rows), advantages, targets)

    def step(self, t: int) -> None:
        """Step t of all envs."""
        self.is_real_step[t] = 1.0 - self.just_ended
        log_probs = self.agent.log_probs(self.obs[t])
        # The Gumbel-max trick: argmax(log p - log E), with E drawn from an exponential distribution, is a sample of p.
        choice = (log_probs - torch.empty_like(log_probs).exponential_().log()).argmax(-1)
        self.choices[t], self.log_probs[t] = choice, of_choice(log_probs, choice)
        step = self.envs.graph_step if self.args.backend == "cuda" else self.envs.step
        following, reward, terminated, truncated, _ = step(self.agent.for_env(choice))
        self.obs[t + 1], self.rewards[t], self.terminated[t] = flat(following), reward, terminated
        self.ended[t] = terminated | truncated
        self.just_ended.copy_(self.ended[t])
        self.running_return += self.rewards[t]
        self.sum_of_returns += (self.running_return * self.just_ended).sum()
        self.episodes += self.just_ended.sum()
        self.running_return *= 1.0 - self.just_ended

    def estimate_advantages(self, values: torch.Tensor) -> torch.Tensor:
        """GAE. The value after a truncated episode counts, that after a terminated one does not."""
        gamma = self.args.gamma
        errors = self.rewards + gamma * values[1:] * (1.0 - self.terminated) - values[:-1]
        discount = gamma * self.args.gae_lambda * (1.0 - self.ended)
        advantages, following = torch.zeros_like(errors), torch.zeros_like(errors[0])
        for t in reversed(range(len(errors))):
            following = torch.addcmul(errors[t], discount[t], following)
            advantages[t] = following
        return advantages

    def learn(self, rows: slice, advantages: torch.Tensor, targets: torch.Tensor) -> None:
        """A step of Adam on PPO's clipped loss, over the real steps of some envs."""
        args, weights = self.args, self.is_real_step[:, rows]
        weights = weights / weights.sum()
        advantages = advantages[:, rows]
        advantages = advantages - (weights * advantages).sum()
        advantages = advantages / ((weights * advantages.square()).sum().sqrt() + 1e-8)
        obs = self.obs[:-1, rows]
        log_probs = self.agent.log_probs(obs)
        ratio = (of_choice(log_probs, self.choices[:, rows]) - self.log_probs[:, rows]).exp()
        clipped = ratio.clamp(1.0 - args.clip, 1.0 + args.clip)
        surrogate = torch.min(advantages * ratio, advantages * clipped)
        value_loss = (self.agent.value(obs) - targets[:, rows]).square()
        entropy = -(log_probs.exp() * log_probs).sum(-1)
        loss = (weights * (args.value_weight * value_loss - surrogate - args.entropy * entropy)).sum()
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.agent.parameters(), args.max_gradient)
        self.optimizer.step()

    def as_graph(self) -> Callable[[], None]:
        """``update``, captured once, for the GPU to replay."""
        torch.cuda.synchronize()
        aside = torch.cuda.Stream()
        with torch.cuda.stream(aside):  # a first time, in which libraries set themselves up: that cannot be captured
            self.begin()
            self.update()
        torch.cuda.current_stream().wait_stream(aside)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.update()
        replay: Callable[[], None] = graph.replay
        return replay

    def forget(self) -> None:
        """Clears Adam's moments and its count of steps. As the rate was 0 until now, no weight has moved."""
        for state in self.optimizer.state.values():
            for moment in state.values():
                moment.zero_()


def of_choice(log_probs: torch.Tensor, choice: torch.Tensor) -> torch.Tensor:
    return log_probs.gather(-1, choice.unsqueeze(-1)).squeeze(-1)


def train(args: argparse.Namespace) -> tuple[Agent, float]:
    """An agent that has learned, and its seconds."""
    torch.manual_seed(args.seed)
    if args.device == "cpu":
        torch.set_num_threads(1)  # the networks are small: more threads would only get in each other's way
    else:
        torch.set_float32_matmul_precision("high")
    began = time.perf_counter()
    trainer = Trainer(args)
    update = trainer.update
    if args.device == "cuda":
        update = trainer.as_graph()
        trainer.forget()
    trainer.begin()
    wait(args)
    print(f"compiled and captured in {time.perf_counter() - began:.1f} s", flush=True)
    began = time.perf_counter()
    for number in range(args.updates):
        trainer.rate.fill_(args.learning_rate * (1.0 - number / args.updates))
        update()
        show(args, trainer, number, began)
    wait(args)
    seconds = time.perf_counter() - began
    print()
    trainer.envs.close()
    return trainer.agent, seconds


def wait(args: argparse.Namespace) -> None:
    if args.device == "cuda":
        torch.cuda.synchronize()


def show(args: argparse.Namespace, trainer: Trainer, number: int, began: float) -> None:
    """Prints how it is doing."""
    mean = (trainer.sum_of_returns / trainer.episodes).item()  # waits; NaN where no episode has ended
    trainer.shown = trainer.shown if math.isnan(mean) else mean
    batch, seconds = args.num_envs * args.num_steps, time.perf_counter() - began
    steps = (number + 1) * batch
    print(
        f"\r{steps:>11,} of {args.updates * batch:,} steps, {steps / seconds:,.0f} per second, "
        f"mean return {trainer.shown:.1f}   ",
        end="",
        flush=True,
    )
    if args.log is not None:
        with args.log.open("w" if number == 0 else "a") as file:
            file.write(json.dumps({"steps": steps, "seconds": seconds, "return": mean}) + "\n")


# ---- what it has learned ---------------------------------------------------------------------------


def evaluate(args: argparse.Namespace, agent: Agent) -> torch.Tensor:
    """The returns of the first episode of each of some envs, with the best action in each step."""
    envs = make_envs(args, args.episodes, args.seed + OTHER_SEEDS)
    obs, _ = envs.reset()
    returns = torch.zeros(args.episodes, device=args.device)
    goes_on = torch.ones(args.episodes, dtype=torch.bool, device=args.device)
    while goes_on.any():
        with torch.no_grad():
            choice = agent.log_probs(flat(obs)).argmax(-1)
        obs, reward, terminated, truncated, _ = envs.step(agent.for_env(choice))
        returns += reward * goes_on
        goes_on &= ~(terminated | truncated)
    envs.close()
    return returns


def main() -> None:
    args = arguments()
    agent, seconds = train(args)
    returns = evaluate(args, agent)
    mean, spread = returns.mean(), returns.std(correction=0)
    print(
        f"{args.env_id}, seed {args.seed}: mean return {mean:.1f} ± {spread:.1f} over {args.episodes} episodes, after "
        f"{seconds:.2f} s of training"
    )


if __name__ == "__main__":
    main()
