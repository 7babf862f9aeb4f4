"""Evolution strategies on Pendulum-v1: numpy and stepmill, no gradients, no torch.

    python examples/es_pendulum.py --seed 1

A population of networks plays, one episode per env. The population is a cloud: a centre, and a spread for each weight.
Networks that do better than the others pull the centre towards themselves, and the spread grows or shrinks with how far
from the centre the good ones were (SNES: Schaul, Glasmachers and Schmidhuber, 2011). At the end the network at the
centre plays 100 episodes from starts that it has not seen, and their mean return is printed. Chance reaches about
-1200, the best controllers about -150; better than -250 counts as solved here.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

import stepmill

EPISODE = 200  # steps: all episodes of Pendulum have the same length
INPUTS, HIDDEN = 4, 16
SIZE = INPUTS * HIDDEN + HIDDEN  # of a network: the weights of two layers


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--generations", type=count, default=100)
    parser.add_argument("--members", type=count, default=128, help="networks in the population, an even number")
    parser.add_argument("--starts", type=count, default=4, help="how many episodes each of them plays")
    parser.add_argument("--spread", type=float, default=2.0, help="of the weights, at the beginning")
    parser.add_argument("--episodes", type=count, default=100, help="played at the end")
    parser.add_argument("--log", type=Path, help="a file for the learning curve, a line of JSON per generation")
    args = parser.parse_args()
    if args.members % 2:
        parser.error(f"--members: expected an even number, got {args.members}: for each network there is its opposite")
    return args


def count(text: str) -> int:
    """A whole number from 1 on."""
    if int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number from 1 on, got {text}")
    return int(text)


def act(networks: np.ndarray, obs: np.ndarray) -> np.ndarray:
    """The torques of many networks, one per row: network i acts on all rows of ``obs[i]``.

    Seen in a mirror, a pendulum needs the opposite torque. Sine and speed change their sign there, and so does all that
    follows, as there are no biases. Without this, some populations only learn to swing up on one side.
    """
    weights, second = np.split(networks, [INPUTS * HIDDEN], axis=1)
    cosine, sine, speed = np.moveaxis(obs, -1, 0)
    inputs = np.stack([sine, speed / 8, cosine * sine, cosine * speed / 8], axis=-1)
    hidden = np.tanh(inputs @ weights.reshape(-1, INPUTS, HIDDEN))
    torques: np.ndarray = 2.0 * np.tanh(hidden @ second[:, :, None])
    return torques


def play(pool: Any, networks: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """The returns of all networks, one row per network, from each of these starts, which are seeds.

    All networks play from the same starts. Otherwise luck with them would count for more than the noise.
    """
    rows = len(networks), len(starts)
    obs, _ = pool.reset(seed=np.tile(starts, len(networks)).tolist())
    returns = np.zeros(rows)
    for _ in range(EPISODE):
        action = act(networks, obs.reshape(*rows, 3)).astype(np.float32)
        obs, reward, *_ = pool.step(action.reshape(-1, 1))
        returns += reward.reshape(rows)
    return returns


def train(args: argparse.Namespace) -> np.ndarray:
    """The network at the centre of the last generation."""
    rng = np.random.default_rng(args.seed)
    centre, spread = np.zeros(SIZE), np.full(SIZE, args.spread)
    spread_rate = (3 + np.log(SIZE)) / (5 * np.sqrt(SIZE))
    # How much the best one pulls, the second best, and so on: the better half, less what all would pull together.
    # Ranks count, not returns: one network that is far ahead or behind does not decide alone.
    pulls = np.maximum(0.0, np.log(args.members / 2 + 1) - np.log(np.arange(args.members) + 1))
    pulls = pulls / pulls.sum() - 1 / args.members
    began = time.perf_counter()
    # Every generation resets all envs, with seeds of its own. No env has to reset itself in between.
    with stepmill.make("Pendulum-v1", num_envs=args.members * args.starts, autoreset="disabled") as pool:
        for generation in range(args.generations):
            half = rng.normal(size=(args.members // 2, SIZE))
            noise = np.concatenate([half, -half])  # mirrored, so that on the whole it points nowhere
            returns = play(pool, centre + spread * noise, rng.integers(2**31, size=args.starts))
            best_first = noise[np.argsort(-returns.mean(axis=1))]
            centre += spread * (pulls @ best_first)
            spread *= np.exp(spread_rate / 2 * (pulls @ (best_first**2 - 1)))
            show(args, generation + 1, time.perf_counter() - began, float(returns.mean()))
    print()
    return centre


def show(args: argparse.Namespace, generation: int, seconds: float, mean: float) -> None:
    steps = generation * args.members * args.starts * EPISODE
    print(
        f"\rgeneration {generation} of {args.generations}, {steps:,} steps, {steps / seconds:,.0f} per second, "
        f"mean return of the population {mean:.1f}   ",
        end="",
        flush=True,
    )
    if args.log is not None:
        with args.log.open("w" if generation == 1 else "a") as file:
            file.write(json.dumps({"steps": steps, "seconds": seconds, "return": mean}) + "\n")


def evaluate(args: argparse.Namespace, network: np.ndarray) -> np.ndarray:
    """The returns of a network from starts that the training did not have."""
    with stepmill.make("Pendulum-v1", num_envs=args.episodes, autoreset="disabled") as pool:
        return play(pool, network[None], np.arange(args.episodes) + 2**31)


def main() -> None:
    args = arguments()
    began = time.perf_counter()
    network = train(args)
    seconds = time.perf_counter() - began
    returns = evaluate(args, network)
    print(
        f"Pendulum-v1, seed {args.seed}: mean return {returns.mean():.1f} ± {returns.std():.1f} "
        f"over {returns.size} episodes, after {seconds:.0f} s of training"
    )


if __name__ == "__main__":
    main()
