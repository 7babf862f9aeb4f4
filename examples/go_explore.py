"""Go-Explore in a maze whose walls are water: return to a place that was found before, and explore from there.

    python examples/go_explore.py --seed 1

The maze is FrozenLake-v1 with a map of its own, and a reward at its far end only. A random policy falls into the water
after a few steps. Go-Explore (Ecoffet et al., 2021) keeps an archive of cells, here the tiles of the maze: for each of
them the shortest way that led there, and the saved state of an env that took it. A batch of envs returns to cells that
were seldom chosen, and plays a few random steps. Those that find a new cell, or a shorter way to an old one, are saved.
Nothing is learned: numpy and stepmill.

Most of the work is to return. ``pool.restore`` gives all envs of a batch their states in one call. ``--replay`` runs
the same search once more as one has to with envs that cannot be saved: they are reset, and repeat every action of their
way. That finds the same, in many times the steps.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np

import stepmill

MOVES = ((0, -1), (1, 0), (0, 1), (-1, 0))  # left, down, right, up: rows and columns, by action
FAR = 2**31 - 1  # the length of the way to a cell that was not found


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--size", type=int, default=20, help="rooms in a row of the maze")
    parser.add_argument("--num-envs", type=int, default=64, help="cells that are explored at once")
    parser.add_argument("--depth", type=int, default=20, help="random steps from a cell")
    parser.add_argument("--most-batches", type=int, default=20_000)
    parser.add_argument("--replay", action="store_true", help="and once more, by repeating actions")
    return parser.parse_args()


def draw_maze(size: int, rng: np.random.Generator) -> str:
    """A maze without loops: rooms of one tile, and a tile between two rooms that are connected. H is water."""
    tiles = np.full((2 * size + 1, 2 * size + 1), "H")
    new = {(row, column) for row in range(1, 2 * size, 2) for column in range(1, 2 * size, 2)}
    way = [(1, 1)]
    while way:  # go on to a room that is new, or back to one that has such a neighbour
        row, column = way[-1]
        new.discard((row, column))
        exits = [(down, right) for down, right in MOVES if (row + 2 * down, column + 2 * right) in new]
        if not exits:
            way.pop()
            continue
        down, right = exits[rng.integers(len(exits))]
        tiles[row, column] = tiles[row + down, column + right] = tiles[row + 2 * down, column + 2 * right] = "F"
        way.append((row + 2 * down, column + 2 * right))
    tiles[1, 1], tiles[-2, -2] = "S", "G"
    return "\n".join("".join(row) for row in tiles)


class GoExplore:
    """Explores a maze.

    Attributes:
        steps: How many steps the envs have taken, those of returning included.
        returned: How many of them returned to a cell.
        seconds: How long that took.
        returning: How long it took to return.
        length: For each cell, the steps of the shortest way that was found; ``FAR`` if there is none.
    """

    def __init__(self, args: argparse.Namespace, maze: str, by_replay: bool) -> None:
        self.args, self.by_replay = args, by_replay
        self.pool = stepmill.make(
            "FrozenLake-v1", num_envs=args.num_envs, desc=maze, is_slippery=False, max_episode_steps=100_000
        )
        self.rng = np.random.default_rng(args.seed)
        cells = len(maze.replace("\n", ""))
        self.goal = maze.replace("\n", "").index("G")
        self.length, self.visits = np.full(cells, FAR), np.zeros(cells)
        self.states: list[Any] = [None] * cells
        self.ways = [b""] * cells  # the actions from the start to each cell
        self.steps = self.returned = 0
        self.seconds = self.returning = 0.0

    def run(self) -> bool:
        """Whether the goal was reached."""
        start = time.perf_counter()
        cells, _ = self.pool.reset()
        self._keep(np.array([0]), cells[:1], [b""])
        for batch in range(self.args.most_batches):
            if self.length[self.goal] < FAR:
                break
            self._explore()
            self.seconds = time.perf_counter() - start
            if batch % 100 == 0:
                found = np.count_nonzero(self.length < FAR)
                print(f"\r{found:,} cells, {self.steps:,} steps, {self.seconds:.1f} s ", end="", flush=True)
        print("\r", end="")
        return bool(self.length[self.goal] < FAR)

    def _explore(self) -> None:
        """A batch of envs returns to cells, plays random actions, and saves what it finds."""
        known = np.flatnonzero(self.length < FAR)
        weights = 1 / np.sqrt(self.visits[known] + 1)
        chosen = self.rng.choice(known, self.args.num_envs, p=weights / weights.sum())
        np.add.at(self.visits, chosen, 1)
        start = time.perf_counter()
        (self._replay if self.by_replay else self._restore)(chosen)
        self.returning += time.perf_counter() - start
        moves = self.rng.integers(0, len(MOVES), (self.args.num_envs, self.args.depth)).astype(np.uint8)
        alive = np.arange(self.args.num_envs)
        for depth in range(1, self.args.depth + 1):
            cells, reward, terminated, truncated, _ = self.pool.step(moves[alive, depth - 1], alive)
            self.steps += len(alive)
            goes_on = ~(terminated | truncated)
            # The goal ends the episode, and is a cell all the same.
            found = (goes_on | (reward > 0)) & (self.length[chosen[alive]] + depth < self.length[cells])
            if found.any():
                ways = [self.ways[chosen[env_id]] + moves[env_id, :depth].tobytes() for env_id in alive[found]]
                self._keep(alive[found], cells[found], ways)
            alive = alive[goes_on]
            if not len(alive):
                return

    def _keep(self, env_ids: np.ndarray, cells: np.ndarray, ways: list[bytes]) -> None:
        """Adds the cells where envs are to the archive, each once."""
        _, first = np.unique(cells, return_index=True)
        states = [None] * len(first) if self.by_replay else self.pool.save(env_ids[first])
        for i, state in zip(first.tolist(), states, strict=True):
            cell = cells[i]
            self.states[cell], self.ways[cell], self.length[cell] = state, ways[i], len(ways[i])
            self.visits[cell] = 0  # it is worth another look

    def _restore(self, chosen: np.ndarray) -> None:
        self.pool.restore([self.states[cell] for cell in chosen])

    def _replay(self, chosen: np.ndarray) -> None:
        self.pool.reset()
        ways = [self.ways[cell] for cell in chosen]
        for step in range(max(map(len, ways))):
            on_the_way = [env_id for env_id, way in enumerate(ways) if step < len(way)]
            self.pool.step(np.array([ways[env_id][step] for env_id in on_the_way]), on_the_way)
            self.steps += len(on_the_way)
            self.returned += len(on_the_way)


def play(maze: str, way: bytes) -> float:
    """The reward of these actions in a new env."""
    with stepmill.make("FrozenLake-v1", desc=maze, is_slippery=False, max_episode_steps=100_000) as env:
        env.reset()
        return float(sum(env.step([action])[1][0] for action in way))


def play_at_random(maze: str, args: argparse.Namespace, steps: int) -> tuple[int, float]:
    """How many cells a random policy comes to, and the reward that it finds."""
    seen, total = set[int](), 0.0
    settings = {"num_envs": args.num_envs, "desc": maze, "is_slippery": False, "max_episode_steps": 100_000}
    with stepmill.make("FrozenLake-v1", **settings) as pool:
        pool.reset()
        for actions in np.random.default_rng(args.seed).integers(0, 4, (steps // args.num_envs, args.num_envs)):
            cells, reward, terminated, truncated, _ = pool.step(actions)
            seen.update(cells[~(terminated | truncated)].tolist())
            total += float(reward.sum())
    return len(seen), total


def main() -> None:
    args = arguments()
    maze = draw_maze(args.size, np.random.default_rng(args.seed))
    dry = sum(maze.count(letter) for letter in "SFG")
    print(f"a maze of {2 * args.size + 1} x {2 * args.size + 1} tiles, {dry:,} of them dry; seed {args.seed}")
    searches = {}
    for name in ("restore", "replay") if args.replay else ("restore",):
        search = searches[name] = GoExplore(args, maze, by_replay=name == "replay")
        reached = search.run()
        way = search.ways[search.goal]
        told = f"the goal in {len(way)} steps (reward {play(maze, way):.0f})" if reached else "the goal was not found"
        print(
            f"{name}: {told}, {np.count_nonzero(search.length < FAR):,} cells; {search.steps:,} steps, of which "
            f"{search.returned:,} to return; {search.seconds:.2f} s, of which {search.returning:.2f} s to return"
        )
    first = searches["restore"]
    cells, reward = play_at_random(maze, args, first.steps)
    print(f"a random policy, in as many steps as with restore: {cells:,} cells, reward {reward:.0f}")
    if args.replay:
        again = searches["replay"]
        print(
            f"replaying needs {again.steps / first.steps:.1f} times the steps, {again.seconds / first.seconds:.1f} "
            f"times the time, and {again.returning / first.returning:.0f} times the time to return"
        )


if __name__ == "__main__":
    main()
