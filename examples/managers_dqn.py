"""DQN over an env manager: envs by id, in worker processes, which answer when they are ready.

    pip install 'stepmill[torch]'
    python examples/managers_dqn.py                           # CartPole-v1
    python examples/managers_dqn.py --manager base            # the envs in this process, one after another

A manager hands out dicts from env id to what that env has answered. An off-policy method needs nothing more: whichever
envs are ready get an action, and each answer becomes a transition of that env.

DQN forgets: a network that has balanced the pole for a while may lose it again. So every 2,000 steps the network plays
some episodes in a manager of its own, without chance, and the best one is kept; the training ends when it is good
enough. That network then plays 100 episodes of envs with other seeds, and their mean return is printed; 400 or more
counts as solved here.
"""

from __future__ import annotations

import argparse
import copy
import json
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn

from stepmill.managers import BaseEnvManager, create_env_manager
from stepmill.zoo.control import CartPoleEnv


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--manager", choices=["base", "subprocess", "async_subprocess"], default="async_subprocess")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--num-envs", type=count, default=8)
    parser.add_argument("--total-steps", type=count, default=50_000, help="of all envs together, at most")
    parser.add_argument("--replay", type=count, default=50_000, help="how many transitions are remembered")
    parser.add_argument("--first-steps", type=int, default=1_000, help="taken at random, before it learns")
    parser.add_argument("--exploring", type=count, default=8_000, help="the steps in which the chance falls")
    parser.add_argument("--last-chance", type=float, default=0.04, help="how often an action is random after that")
    parser.add_argument("--steps-per-update", type=count, default=256, help="of all envs together")
    parser.add_argument("--batches", type=count, default=128, help="of an update")
    parser.add_argument("--batch-size", type=count, default=128, help="transitions")
    parser.add_argument("--learning-rate", type=float, default=1e-3, help="at the start; it falls to 0")
    parser.add_argument("--gamma", type=float, default=0.99)
    parser.add_argument("--good", type=float, default=475.0, help="the mean return at which the training ends")
    parser.add_argument("--episodes", type=count, default=100, help="played at the end")
    parser.add_argument("--log", type=Path, help="a file for the learning curve, a line of JSON per evaluation")
    return parser.parse_args()


def count(text: str) -> int:
    """A whole number from 1 on."""
    if int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number from 1 on, got {text}")
    return int(text)


# ---- the agent -------------------------------------------------------------------------------------


SCALE = np.array([2.4, 2.0, 0.21, 2.0], np.float32)  # what CartPole shows lies between about -1 and 1 then


def network(inputs: int, actions: int) -> nn.Sequential:
    """The value of every action."""
    return nn.Sequential(nn.Linear(inputs, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, actions))


class Replay:
    """The last transitions, in a ring."""

    def __init__(self, size: int, inputs: int) -> None:
        self.obs, self.following = torch.zeros(2, size, inputs)
        self.actions = torch.zeros(size, dtype=torch.int64)
        self.rewards, self.terminated = torch.zeros(2, size)
        self.added = 0

    def add(self, obs: np.ndarray, action: int, reward: float, following: np.ndarray, is_terminated: bool) -> None:
        at = self.added % len(self.actions)
        self.obs[at], self.following[at] = torch.as_tensor(obs / SCALE), torch.as_tensor(following / SCALE)
        self.actions[at], self.rewards[at], self.terminated[at] = action, reward, float(is_terminated)
        self.added += 1

    def sample(self, size: int) -> tuple[torch.Tensor, ...]:
        rows = torch.randint(min(self.added, len(self.actions)), (size,))
        every = self.obs, self.actions, self.rewards, self.following, self.terminated
        return tuple(part[rows] for part in every)


# ---- training --------------------------------------------------------------------------------------


def train(args: argparse.Namespace) -> tuple[nn.Sequential, int]:
    """The best network, and how many steps were taken."""
    torch.manual_seed(args.seed)
    rng = np.random.default_rng(args.seed)
    manager = create_env_manager({"type": args.manager, "env_cfg": [{}] * args.num_envs}, CartPoleEnv)
    manager.seed(args.seed)
    manager.launch()
    inputs, actions = manager.observation_space.shape[0], int(manager.action_space.n)
    values = network(inputs, actions)
    best = copy.deepcopy(values)
    optimizer = torch.optim.Adam(values.parameters(), lr=args.learning_rate, fused=True)
    replay = Replay(args.replay, inputs)
    sent: dict[int, tuple[np.ndarray, int]] = {}  # what each env saw, and what it was told to do
    updates, evaluated, most, began = 0, 0, -np.inf, time.perf_counter()
    while replay.added < args.total_steps and most < args.good:
        ready = manager.ready_obs
        if ready:
            chosen = best_actions(values, ready)
            for env_id in ready:
                if rng.random() < chance(args, replay.added):
                    chosen[env_id] = int(rng.integers(actions))
                sent[env_id] = ready[env_id], chosen[env_id]

        # An async manager returns the envs that are ready, which need not be those that were just sent an action: what
        # belongs to an answer is found by the id of its env.
        for env_id, timestep in manager.step({env_id: sent[env_id][1] for env_id in ready}).items():
            # An episode that was cut off goes on in value; one that terminated does not.
            is_terminated = timestep.done and not timestep.info["TimeLimit.truncated"]
            replay.add(*sent[env_id], float(timestep.reward[0]), timestep.obs, is_terminated)

        if replay.added >= args.first_steps and replay.added // args.steps_per_update > updates:
            updates = replay.added // args.steps_per_update
            optimizer.param_groups[0]["lr"] = max(0.0, 1.0 - replay.added / args.total_steps) * args.learning_rate
            learn(args, values, optimizer, replay)
        if replay.added // 2000 > evaluated:
            evaluated = replay.added // 2000
            mean = float(np.mean(play(values, seed=args.seed + 500_000, episodes=16)))
            if mean > most:
                most, best = mean, copy.deepcopy(values)
            show(args, replay.added, time.perf_counter() - began, mean, most, is_first=evaluated == 1)
    print()
    manager.close()
    return best, replay.added


def best_actions(values: nn.Module, obs: dict[int, np.ndarray]) -> dict[int, int]:
    """By env id, as managers want them."""
    with torch.no_grad():
        chosen = values(torch.as_tensor(np.stack(list(obs.values())) / SCALE)).argmax(-1)
    return dict(zip(obs, chosen.tolist(), strict=True))


def chance(args: argparse.Namespace, done: int) -> float:
    """How often an action is random: always at first, then it falls."""
    if done < args.first_steps:
        return 1.0
    falling: float = 1.0 - (1.0 - args.last_chance) * done / args.exploring
    return max(float(args.last_chance), falling)


def learn(args: argparse.Namespace, values: nn.Module, optimizer: torch.optim.Optimizer, replay: Replay) -> None:
    """Many batches of double DQN towards one target, the network as it was before the first of them.

    The network chooses the next action, and the target says what it is worth.
    """
    target = copy.deepcopy(values)
    for _ in range(args.batches):
        obs, actions, rewards, following, terminated = replay.sample(args.batch_size)
        with torch.no_grad():
            chosen = values(following).argmax(-1, keepdim=True)
            worth = target(following).gather(1, chosen).squeeze(1)
            # In units of what an endless episode is worth: values lie between 0 and 1, and an end is a large error.
            expected = (1.0 - args.gamma) * rewards + args.gamma * (1.0 - terminated) * worth
        loss = (values(obs).gather(1, actions[:, None]).squeeze(1) - expected).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def show(args: argparse.Namespace, done: int, seconds: float, mean: float, most: float, is_first: bool) -> None:
    print(
        f"\r{done:>9,} of {args.total_steps:,} steps, {done / seconds:,.0f} per second, "
        f"mean return without chance {mean:.1f}, best so far {most:.1f}   ",
        end="",
        flush=True,
    )
    if args.log is not None:
        with args.log.open("w" if is_first else "a") as file:
            file.write(json.dumps({"steps": done, "seconds": seconds, "return": mean}) + "\n")


# ---- what it has learned ---------------------------------------------------------------------------


def play(values: nn.Module, seed: int, episodes: int) -> list[float]:
    """The return of one episode of each of some envs."""
    returns: dict[int, float] = {}
    with BaseEnvManager(CartPoleEnv, [{}] * episodes, episode_num=1) as manager:
        manager.seed(seed)
        manager.launch()
        while not manager.done:  # each env plays one episode, and is then no longer among the ready ones
            for env_id, timestep in manager.step(best_actions(values, manager.ready_obs)).items():
                if timestep.done:
                    returns[env_id] = timestep.info["eval_episode_return"]
    return list(returns.values())


def main() -> None:
    args = arguments()
    torch.set_num_threads(1)  # the networks are small: more threads would only get in each other's way
    # On ARM it prepares each product of matrices anew, however small they are.
    torch.backends.mkldnn.enabled = False  # type: ignore[assignment]
    began = time.perf_counter()
    values, steps = train(args)
    seconds = time.perf_counter() - began
    returns = play(values, seed=args.seed + 1_000_000, episodes=args.episodes)  # seeds that the training did not have
    print(
        f"CartPole-v1, seed {args.seed}: mean return {np.mean(returns):.1f} ± {np.std(returns):.1f} "
        f"over {len(returns)} episodes, after {steps:,} steps and {seconds:.0f} s of training"
    )


if __name__ == "__main__":
    main()
