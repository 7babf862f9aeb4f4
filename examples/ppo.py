"""PPO in one file, on any id with arrays or pictures as observations, and discrete or continuous actions.

    pip install 'stepmill[torch]'
    python examples/ppo.py                                    # CartPole-v1, solved in under a minute
    python examples/ppo.py --env-id Acrobot-v1 --seed 3
    python examples/ppo.py --envs gymnasium                   # the same run on Gymnasium's vector env, only slower
    python examples/ppo.py --checkpoint run.ckpt              # goes on where it was, if you kill it and start it again

Trains, then plays 100 episodes of envs with other seeds and prints their mean return.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import os
import random
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from torch import nn
from torch.distributions import Categorical, Independent, Normal

import stepmill


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--env-id", default="CartPole-v1")
    parser.add_argument("--envs", choices=["stepmill", "gymnasium", "gymnasium-async"], default="stepmill")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--device", default="cpu", help="of the networks: cuda is worth it for pictures")
    parser.add_argument("--num-envs", type=count, default=8)
    parser.add_argument("--num-steps", type=count, default=32, help="of each env, between updates")
    parser.add_argument("--total-steps", type=count, default=100_000, help="of all envs together")
    parser.add_argument("--epochs", type=count, default=20, help="how often each update goes over its data")
    parser.add_argument("--minibatches", type=count, default=1)
    parser.add_argument("--learning-rate", type=float, default=1e-3, help="at the start; it falls to 0")
    parser.add_argument("--clip", type=float, default=0.2, help="at the start; it falls to 0")
    parser.add_argument("--gamma", type=float, default=0.98)
    parser.add_argument("--gae-lambda", type=float, default=0.8)
    parser.add_argument("--entropy", type=float, default=0.0)
    parser.add_argument("--value-weight", type=float, default=0.5)
    parser.add_argument("--max-gradient", type=float, default=0.5)
    parser.add_argument("--episodes", type=count, default=100, help="played at the end")
    parser.add_argument("--log", type=Path, help="a file for the learning curve, a line of JSON per update")
    parser.add_argument(
        "--checkpoint", type=Path, help="a file, written after each update: if it is there, that training goes on"
    )
    args = parser.parse_args()
    if args.checkpoint is not None and args.envs != "stepmill":
        parser.error("--checkpoint: envs in mid-episode are saved by stepmill: leave out --envs")
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


def make_envs(args: argparse.Namespace, num_envs: int, seed: int) -> Any:
    """All that differs between the libraries. Their envs are equal, and so the trainings are, too."""
    if args.envs == "stepmill":
        return stepmill.make(args.env_id, num_envs=num_envs, seed=seed)
    mode = "sync" if args.envs == "gymnasium" else "async"
    return gymnasium.make_vec(args.env_id, num_envs=num_envs, vectorization_mode=mode)


# ---- the agent -------------------------------------------------------------------------------------


class Agent(nn.Module):
    """A policy and a value, each a small network of its own; pictures pass through the same convolutions first."""

    def __init__(self, observation_space: spaces.Box, action_space: spaces.Discrete | spaces.Box) -> None:
        super().__init__()
        self.look = convolutions(observation_space.shape[0]) if is_picture(observation_space) else None
        inputs = 512 if self.look else int(np.prod(observation_space.shape))
        self.is_discrete = isinstance(action_space, spaces.Discrete)
        outputs = int(action_space.n) if isinstance(action_space, spaces.Discrete) else int(np.prod(action_space.shape))
        self.policy = network(inputs, outputs, last_gain=0.01)
        self.critic = network(inputs, 1, last_gain=1.0)
        self.log_std = nn.Parameter(torch.zeros(outputs))

    def features(self, obs: torch.Tensor) -> torch.Tensor:
        """What the networks below get."""
        return obs.flatten(1) if self.look is None else self.look(obs / 255.0)

    def distribution(self, features: torch.Tensor) -> Any:
        out = self.policy(features)
        return Categorical(logits=out) if self.is_discrete else Independent(Normal(out, self.log_std.exp()), 1)

    def value(self, features: torch.Tensor) -> torch.Tensor:
        values: torch.Tensor = self.critic(features).squeeze(-1)
        return values

    def best_action(self, features: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.policy(features)
        return out.argmax(-1) if self.is_discrete else out


def is_picture(space: spaces.Box) -> bool:
    return len(space.shape) == 3 and space.dtype == np.uint8


def convolutions(frames: int) -> nn.Sequential:
    """Those of DQN's paper in Nature, for stacks of frames of 84 x 84."""
    layers: list[Any] = [nn.Conv2d(frames, 32, 8, 4), nn.Conv2d(32, 64, 4, 2), nn.Conv2d(64, 64, 3, 1)]
    layers.append(nn.Linear(64 * 7 * 7, 512))
    for layer in layers:
        nn.init.orthogonal_(layer.weight, 2**0.5)
        nn.init.zeros_(layer.bias)
    first, second, third, last = layers
    return nn.Sequential(first, nn.ReLU(), second, nn.ReLU(), third, nn.ReLU(), nn.Flatten(), last, nn.ReLU())


def network(inputs: int, outputs: int, last_gain: float) -> nn.Sequential:
    layers = [nn.Linear(inputs, 64), nn.Linear(64, 64), nn.Linear(64, outputs)]
    for layer, gain in zip(layers, (2**0.5, 2**0.5, last_gain), strict=True):
        nn.init.orthogonal_(layer.weight, gain)
        nn.init.zeros_(layer.bias)
    return nn.Sequential(layers[0], nn.Tanh(), layers[1], nn.Tanh(), layers[2])


# ---- training --------------------------------------------------------------------------------------


def train(args: argparse.Namespace) -> Agent:
    saved = None
    if args.checkpoint is not None and args.checkpoint.exists():
        saved = torch.load(args.checkpoint, weights_only=False)
        vars(args).update(saved["arguments"], checkpoint=args.checkpoint)  # those that it was begun with
    torch.manual_seed(args.seed)
    envs = make_envs(args, args.num_envs, args.seed) if saved is None else stepmill.resume(io.BytesIO(saved["pool"]))
    seen_as, acts_as = envs.single_observation_space, envs.single_action_space
    if not isinstance(seen_as, spaces.Box) or not isinstance(acts_as, spaces.Discrete | spaces.Box):
        raise SystemExit(f"{args.env_id}: expected a Box, and Discrete or Box actions, got {seen_as}, {acts_as}")
    if not is_picture(seen_as):
        torch.set_num_threads(1)  # the networks are small: more threads would only get in each other's way
        # On ARM it prepares each product of matrices anew, however small they are.
        torch.backends.mkldnn.enabled = False  # type: ignore[assignment]
    agent = Agent(seen_as, acts_as).to(args.device)
    optimizer = torch.optim.Adam(agent.parameters(), lr=args.learning_rate, eps=1e-5, fused=True)
    steps, rows, there = args.num_steps, args.num_envs, {"device": args.device}

    # Row t of these arrays is the time before step t; the last row of `obs` is the time after the last step.
    kept_as = torch.uint8 if is_picture(seen_as) else torch.float32
    obs = torch.zeros(steps + 1, rows, *seen_as.shape, dtype=kept_as, **there)
    actions = torch.zeros((steps, rows, *(acts_as.shape or ())), **there)
    log_probs, rewards, terminated, ended = torch.zeros(4, steps, rows, **there)
    # A pool resets an env in the step after an episode's end: that step's action counts for nothing, and neither may it
    # in the loss. In return, the observation of the ending step is there, and its value is what truncation needs.
    counts = torch.ones(steps, rows, **there)
    just_ended = torch.zeros(rows, **there)

    running, finished = np.zeros(rows), []  # returns of the episodes that run, and of those that have ended
    updates, done_before, seconds_before, env_seconds = args.total_steps // (steps * rows), 0, 0.0, 0.0
    if saved is None:
        first, _ = envs.reset(seed=args.seed)
        obs[0] = torch.as_tensor(first)
    else:
        agent.load_state_dict(saved["agent"])
        optimizer.load_state_dict(saved["optimizer"])
        obs[0], just_ended, running, finished, done_before, seconds_before, env_seconds = saved["loop"]
        set_generators(saved["generators"])
    began = time.perf_counter() - seconds_before
    for update in range(done_before, updates):
        left = 1.0 - update / updates
        optimizer.param_groups[0]["lr"] = left * args.learning_rate

        for t in range(steps):
            counts[t] = 1.0 - just_ended
            with torch.no_grad():
                distribution = agent.distribution(agent.features(obs[t]))
                actions[t] = action = distribution.sample()
                log_probs[t] = distribution.log_prob(action)
            chosen = action.cpu().numpy()
            env_began = time.perf_counter()
            following, reward, is_terminated, is_truncated, _ = envs.step(chosen)
            env_seconds += time.perf_counter() - env_began
            obs[t + 1], rewards[t] = torch.as_tensor(following), torch.as_tensor(reward)
            terminated[t] = torch.as_tensor(is_terminated)
            ended[t] = just_ended = torch.as_tensor(is_terminated | is_truncated, dtype=torch.float32, **there)
            running += reward
            for i in np.flatnonzero(is_terminated | is_truncated):
                finished.append(float(running[i]))
                running[i] = 0.0

        with torch.no_grad():
            values = agent.value(agent.features(obs.flatten(0, 1))).view(steps + 1, rows)
        advantages = estimate_advantages(args, rewards, values, terminated, ended)
        learn(args, agent, optimizer, left * args.clip, obs[:-1], actions, log_probs, advantages, values[:-1], counts)
        obs[0] = obs[-1]

        seconds, done = time.perf_counter() - began, (update + 1) * steps * rows
        if args.checkpoint is not None:
            loop = obs[0], just_ended, running, finished, update + 1, seconds, env_seconds
            save(args, envs, agent, optimizer, loop)
        mean = float(np.mean(finished[-20:])) if finished else float("nan")
        share = env_seconds / seconds
        print(
            f"\r{done:>9,} of {args.total_steps:,} steps, {done / seconds:,.0f} per second, "
            f"envs {share:.0%} of the time, mean return of the last 20 episodes {mean:.1f}   ",
            end="",
            flush=True,
        )
        if args.log is not None:
            with args.log.open("w" if update == 0 else "a") as file:
                file.write(json.dumps({"steps": done, "seconds": seconds, "return": mean, "env_share": share}) + "\n")
    print()
    envs.close()
    return agent


def save(
    args: argparse.Namespace, envs: Any, agent: Agent, optimizer: torch.optim.Optimizer, loop: tuple[Any, ...]
) -> None:
    """Everything that decides how the training goes on, of one moment: so it is one file, complete or not there."""
    pool = io.BytesIO()
    envs.checkpoint(pool)
    state = {
        "arguments": vars(args),
        "pool": pool.getvalue(),
        "agent": agent.state_dict(),
        "optimizer": optimizer.state_dict(),
        "loop": loop,
        "generators": generators(),
    }
    at_the_side = args.checkpoint.with_name(args.checkpoint.name + ".part")
    with at_the_side.open("wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
    at_the_side.replace(args.checkpoint)


def generators() -> tuple[Any, ...]:
    """Of everything that might draw random numbers here; those of the envs are in the pool's checkpoint."""
    on_gpus = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []
    return random.getstate(), np.random.get_state(), torch.get_rng_state(), on_gpus


def set_generators(states: tuple[Any, ...]) -> None:
    in_python, in_numpy, in_torch, on_gpus = states
    random.setstate(in_python)
    np.random.set_state(in_numpy)
    torch.set_rng_state(in_torch)
    torch.cuda.set_rng_state_all(on_gpus)


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


def learn(
    args: argparse.Namespace,
    agent: Agent,
    optimizer: torch.optim.Optimizer,
    clip: float,
    obs: torch.Tensor,
    actions: torch.Tensor,
    log_probs: torch.Tensor,
    advantages: torch.Tensor,
    values: torch.Tensor,
    counts: torch.Tensor,
) -> None:
    """Some epochs of PPO's clipped loss, over the steps that count."""
    chosen = counts.flatten().nonzero().squeeze(-1)
    obs, actions = obs.flatten(0, 1)[chosen], actions.flatten(0, 1)[chosen]
    log_probs, advantages = log_probs.flatten()[chosen], advantages.flatten()[chosen]
    returns = advantages + values.flatten()[chosen]
    for _ in range(args.epochs):
        for batch in torch.randperm(len(chosen)).to(args.device).chunk(args.minibatches):
            features = agent.features(obs[batch])
            distribution = agent.distribution(features)
            ratio = (distribution.log_prob(actions[batch]) - log_probs[batch]).exp()
            scaled = advantages[batch]
            scaled = (scaled - scaled.mean()) / (scaled.std() + 1e-8)
            policy_loss = -torch.min(scaled * ratio, scaled * ratio.clamp(1.0 - clip, 1.0 + clip)).mean()
            value_loss = (agent.value(features) - returns[batch]).square().mean()
            loss = policy_loss + args.value_weight * value_loss - args.entropy * distribution.entropy().mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(agent.parameters(), args.max_gradient)
            optimizer.step()


# ---- what it has learned ---------------------------------------------------------------------------


def evaluate(args: argparse.Namespace, agent: Agent) -> list[float]:
    """The return of the first episode of each of some envs, with seeds that the training did not have."""
    with stepmill.make(args.env_id, num_envs=args.episodes, seed=args.seed + 1_000_000) as envs:
        obs, _ = envs.reset()
        returns = np.full(args.episodes, np.nan)
        while np.isnan(returns).any():
            with torch.no_grad():
                seen = torch.as_tensor(obs, dtype=torch.float32, device=args.device)
                action = agent.best_action(agent.features(seen))
            obs, _, is_terminated, is_truncated, info = envs.step(action.cpu().numpy())
            first = (is_terminated | is_truncated) & np.isnan(returns)
            if first.any():
                returns[first] = info["episode_return"][first]
    return list(returns)


def main() -> None:
    args = arguments()
    began = time.perf_counter()
    agent = train(args)
    seconds = time.perf_counter() - began
    returns = evaluate(args, agent)
    weights = b"".join(one.detach().cpu().numpy().tobytes() for one in agent.parameters())
    print(f"the weights: {hashlib.sha256(weights).hexdigest()[:16]}")
    print(
        f"{args.env_id}, seed {args.seed}: mean return {np.mean(returns):.1f} ± {np.std(returns):.1f} "
        f"over {len(returns)} episodes, after {seconds:.0f} s of training"
    )


if __name__ == "__main__":
    main()
