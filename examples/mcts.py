"""Monte Carlo tree search on CartPole-v1: hundreds of forks of one env per move, in batches. numpy and stepmill.

    python examples/mcts.py --seed 1

Before each move of the real env, a tree of what could happen grows from its saved state. A node of the tree has the
saved state of an env. A batch of envs is given the states of nodes that are worth a look (UCT: Kocsis and Szepesvari,
2006), takes an action that was not tried there, is saved again as a new node, and then plays at random for a while. How
long the pole stays up is what that node is worth. The move that was looked at most is played. Nothing is learned: all
that the search needs is an env that can be saved.

Afterwards the same number of simulations is timed as one has to do it with an env that cannot be saved: reset it, and
replay every action up to the node. ``--replays 0`` leaves that out.
"""

from __future__ import annotations

import argparse
import math
import time
from typing import Any

import gymnasium
import numpy as np

import stepmill

ENV = "CartPole-v1"
ACTIONS = 2


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--episodes", type=int, default=3)
    parser.add_argument("--most-moves", type=int, default=500, help="of an episode")
    parser.add_argument("--num-envs", type=int, default=128, help="simulations that are played at once")
    parser.add_argument("--batches", type=int, default=4, help="of simulations per move")
    parser.add_argument("--depth", type=int, default=30, help="random steps that say what a node is worth")
    parser.add_argument("--explore", type=float, default=1.0, help="how much nodes are looked at that seem worse")
    parser.add_argument("--replays", type=int, default=50, help="simulations by replaying, to compare")
    return parser.parse_args()


class Node:
    """Where an action led to.

    Attributes:
        state: That of the env, saved; None where the episode is over, or before it was simulated.
        visits: How many simulations passed through it, those that are being played included.
        worth: The sum of what they found.
    """

    __slots__ = ("children", "is_over", "parent", "state", "visits", "worth")

    def __init__(self, parent: Node | None, state: Any = None) -> None:
        self.parent, self.state = parent, state
        self.children: list[Node | None] = [None] * ACTIONS
        self.visits, self.worth, self.is_over = 0, 0.0, False

    def best(self, explore: float) -> int:
        """The action to look at next: one that was not tried, or the one with the highest upper bound."""
        spread = explore * math.log(self.visits + 1)
        bounds = [
            math.inf if child is None else child.worth / child.visits + math.sqrt(spread / child.visits)
            for child in self.children
        ]
        return bounds.index(max(bounds))

    def add(self, visits: int, worth: float) -> None:
        """Counts a simulation here and in all nodes above."""
        node: Node | None = self
        while node is not None:
            node.visits += visits
            node.worth += worth
            node = node.parent


class Search:
    """Grows trees, with a pool of envs that play."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        self.pool = stepmill.make(ENV, num_envs=args.num_envs, seed=args.seed)
        self.rng = np.random.default_rng(args.seed)
        self.simulations, self.seconds = 0, 0.0

    def best_action(self, state: stepmill.SavedState) -> int:
        """The action that was looked at most, of all that begin in this state."""
        start = time.perf_counter()
        root = Node(None, state)
        for _ in range(self.args.batches):
            self._simulate(root)
        self.seconds += time.perf_counter() - start
        return max(range(ACTIONS), key=lambda action: child.visits if (child := root.children[action]) else 0)

    def _simulate(self, root: Node) -> None:
        """A batch of simulations: each env begins in a node of the tree, and leaves it by an action."""
        pool, count = self.pool, self.args.num_envs
        chosen = [self._descend(root) for _ in range(count)]
        pool.restore([node.state for node, _ in chosen])
        actions = np.array([action for _, action in chosen])
        _, reward, terminated, truncated, _ = pool.step(actions)
        alive = ~(terminated | truncated)
        ended, states = (~alive).tolist(), pool.save()
        worth = reward + self._play_on(alive)
        for i, (node, action) in enumerate(chosen):
            child = node.children[action]
            assert child is not None
            child.is_over = ended[i]
            if child.state is None and not child.is_over:
                child.state = states[i]
            child.add(0, worth[i] / (1 + self.args.depth))  # 1 if the pole stays up to the end
        self.simulations += count

    def _descend(self, root: Node) -> tuple[Node, int]:
        """A node with a saved state, and the action to look at there. The visit is counted at once."""
        node = root
        while True:
            action = node.best(self.args.explore)
            child = node.children[action]
            if child is None:
                child = node.children[action] = Node(node)
            if child.state is None:  # it is new, or being simulated in this batch, or its episode is over
                child.add(1, 0.0)
                return node, action
            node = child

    def _play_on(self, alive: np.ndarray) -> np.ndarray:
        """How long the envs that are alive go on with random actions. The others are reset, which counts nothing."""
        alive = alive.copy()
        steps = np.zeros(len(alive))
        for actions in self.rng.integers(0, ACTIONS, (self.args.depth, len(alive))):
            _, reward, terminated, truncated, _ = self.pool.step(actions)
            steps += reward * alive
            alive &= ~(terminated | truncated)
            if not alive.any():
                break
        return steps


def time_replays(args: argparse.Namespace, history: list[int]) -> float:
    """Simulations per second with Gymnasium's env, whose state cannot be saved: each begins at the episode's start."""
    env = gymnasium.make(ENV)
    rng = np.random.default_rng(args.seed)
    start = time.perf_counter()
    for _ in range(args.replays):
        env.reset(seed=args.seed)
        for action in history:
            env.step(action)
        for action in rng.integers(0, ACTIONS, 1 + args.depth).tolist():
            _, _, terminated, truncated, _ = env.step(action)
            if terminated or truncated:
                break
    env.close()
    return float(args.replays / (time.perf_counter() - start))


def main() -> None:
    args = arguments()
    search = Search(args)
    returns = []
    history: list[int] = []
    for episode in range(args.episodes):
        history = []
        with stepmill.make(ENV, seed=args.seed + episode) as env:
            env.reset()
            over = False
            while not over and len(history) < args.most_moves:
                history.append(search.best_action(env.save()[0]))
                _, _, terminated, truncated, _ = env.step([history[-1]])
                over = bool(terminated[0] or truncated[0])
                speed = search.simulations / search.seconds
                print(f"\repisode {episode + 1}, move {len(history)}, {speed:,.0f} simulations per second ", end="")
        returns.append(len(history))
    print(f"\n{ENV}, seed {args.seed}: mean return {np.mean(returns):.1f} over {args.episodes} episodes")
    if args.replays:
        half = history[: len(history) // 2]
        replayed, speed = time_replays(args, half), search.simulations / search.seconds
        print(
            f"{speed:,.0f} simulations per second; replaying {len(half)} actions in Gymnasium for each: "
            f"{replayed:,.0f}, so {speed / replayed:.0f} times as many"
        )


if __name__ == "__main__":
    main()
