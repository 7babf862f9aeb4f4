"""PPO of TorchRL on stepmill: its collector, its GAE and its clipped loss; only the env is ours.

    pip install 'stepmill[torchrl]'
    python examples/torchrl_ppo.py                       # CartPole-v1
    python examples/torchrl_ppo.py --envs gymnasium      # the same run on Gymnasium's vector env: the same curve

Trains, then plays 100 episodes of envs with other seeds and prints their mean return. CartPole is solved at 475.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import gymnasium
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from tensordict.nn import TensorDictModule
from torch import nn
from torch.distributions import Categorical
from torchrl.collectors import Collector
from torchrl.envs import Compose, GymWrapper, InitTracker, RewardSum, TransformedEnv
from torchrl.envs.utils import ExplorationType, set_exploration_type
from torchrl.modules import ProbabilisticActor, ValueOperator
from torchrl.objectives import ClipPPOLoss
from torchrl.objectives.value import GAE

from stepmill.interop.torchrl import make_env


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--env-id", default="CartPole-v1", help="with flat observations and discrete actions")
    parser.add_argument("--envs", choices=["stepmill", "gymnasium"], default="stepmill")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--num-envs", type=count, default=8)
    parser.add_argument("--num-steps", type=count, default=32, help="of each env, between updates")
    parser.add_argument("--total-steps", type=count, default=100_000, help="of all envs together")
    parser.add_argument("--epochs", type=count, default=20, help="how often each update goes over its data")
    parser.add_argument("--learning-rate", type=float, default=1e-3, help="at the start; it falls to 0")
    parser.add_argument("--clip", type=float, default=0.2, help="at the start; it falls to 0")
    parser.add_argument("--gamma", type=float, default=0.98)
    parser.add_argument("--gae-lambda", type=float, default=0.8)
    parser.add_argument("--value-weight", type=float, default=0.5)
    parser.add_argument("--max-gradient", type=float, default=0.5)
    parser.add_argument("--episodes", type=count, default=100, help="played at the end")
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


def make_envs(args: argparse.Namespace) -> Any:
    """All that differs between the libraries. Their envs are equal, and so the trainings are, too."""
    if args.envs == "stepmill":
        envs = make_env(args.env_id, num_envs=args.num_envs)
    else:
        one_by_one = SyncVectorEnv(
            [lambda: gymnasium.make(args.env_id)] * args.num_envs, autoreset_mode=AutoresetMode.DISABLED
        )
        envs = GymWrapper(one_by_one, categorical_action_encoding=True)
    envs.reset(seed=args.seed)  # env i is seeded with seed + i
    return transformed(envs)


def transformed(envs: Any) -> Any:
    return TransformedEnv(envs, Compose(InitTracker(), RewardSum()))  # "episode_reward" is the return so far


# ---- the agent -------------------------------------------------------------------------------------


def make_agent(envs: Any) -> tuple[Any, Any]:
    """A policy and a value, each a small network of its own, as modules that read and write tensordicts."""
    inputs, outputs = envs.observation_spec["observation"].shape[-1], envs.action_spec.space.n
    logits = TensorDictModule(network(inputs, outputs, last_gain=0.01), in_keys=["observation"], out_keys=["logits"])
    actor = ProbabilisticActor(logits, in_keys=["logits"], distribution_class=Categorical, return_log_prob=True)
    return actor, ValueOperator(network(inputs, 1, last_gain=1.0), in_keys=["observation"])


def network(inputs: int, outputs: int, last_gain: float) -> nn.Sequential:
    layers = [nn.Linear(inputs, 64), nn.Linear(64, 64), nn.Linear(64, outputs)]
    for layer, gain in zip(layers, (2**0.5, 2**0.5, last_gain), strict=True):
        nn.init.orthogonal_(layer.weight, gain)
        nn.init.zeros_(layer.bias)
    return nn.Sequential(layers[0], nn.Tanh(), layers[1], nn.Tanh(), layers[2])


# ---- training --------------------------------------------------------------------------------------


def train(args: argparse.Namespace) -> Any:
    torch.manual_seed(args.seed)
    envs = make_envs(args)
    actor, critic = make_agent(envs)
    advantages = GAE(gamma=args.gamma, lmbda=args.gae_lambda, value_network=critic)
    loss = ClipPPOLoss(
        actor,
        critic,
        clip_epsilon=args.clip,
        entropy_bonus=False,
        critic_coeff=args.value_weight,
        loss_critic_type="l2",
        normalize_advantage=True,
    )
    optimizer = torch.optim.Adam(loss.parameters(), lr=args.learning_rate, eps=1e-5, fused=True)

    per_update = args.num_envs * args.num_steps
    updates = args.total_steps // per_update
    collector = Collector(envs, actor, frames_per_batch=per_update, total_frames=updates * per_update)
    finished: list[float] = []  # the returns of the episodes that have ended
    began = time.perf_counter()
    for update, data in enumerate(collector):  # of shape [num_envs, num_steps]
        left = 1.0 - update / updates
        optimizer.param_groups[0]["lr"] = left * args.learning_rate
        loss.clip_epsilon.fill_(left * args.clip)
        with torch.no_grad():
            advantages(data)
        steps = data.flatten()
        for _ in range(args.epochs):
            losses = loss(steps)
            optimizer.zero_grad()
            (losses["loss_objective"] + losses["loss_critic"]).backward()
            nn.utils.clip_grad_norm_(loss.parameters(), args.max_gradient)
            optimizer.step()
        ended = data["next", "done"]
        finished += data["next", "episode_reward"][ended].tolist()
        show(args, (update + 1) * per_update, time.perf_counter() - began, finished[-20:], is_first=update == 0)
    print()
    collector.shutdown()
    return actor


def show(args: argparse.Namespace, done: int, seconds: float, returns: list[float], is_first: bool) -> None:
    mean = sum(returns) / len(returns) if returns else float("nan")
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


def evaluate(args: argparse.Namespace, actor: Any) -> torch.Tensor:
    """The return of the first episode of each of some envs, with seeds that the training did not have."""
    envs = transformed(make_env(args.env_id, num_envs=args.episodes, seed=args.seed + 1_000_000))
    with torch.no_grad(), set_exploration_type(ExplorationType.MODE):
        played = envs.rollout(1_000_000, actor, break_when_any_done=False, break_when_all_done=True)
    envs.close()
    returns: torch.Tensor = played["next", "episode_reward"][:, -1]
    return returns


def main() -> None:
    args = arguments()
    torch.set_num_threads(1)  # the networks are small: more threads would only get in each other's way
    # On ARM it prepares each product of matrices anew, however small they are.
    torch.backends.mkldnn.enabled = False  # type: ignore[assignment]
    began = time.perf_counter()
    actor = train(args)
    seconds = time.perf_counter() - began
    returns = evaluate(args, actor)
    print(
        f"{args.env_id}, seed {args.seed}: mean return {returns.mean():.1f} ± {returns.std(correction=0):.1f} "
        f"over {len(returns)} episodes, after {seconds:.0f} s of training"
    )


if __name__ == "__main__":
    main()
