"""The loop: every env of the pool plays the next episode that nobody has begun, until none is left."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from stepmill.errors import EnvError, summary
from stepmill.interop.minari.episode import Episode, Row, env_seed, generator_of
from stepmill.interop.minari.policy import Policy
from stepmill.interop.minari.progress import Bar
from stepmill.interop.minari.shards import Shards
from stepmill.values.trees import Tree, map_trees, tree_of
from stepmill.views.gymnasium import GymnasiumPool

__all__ = ["Player", "Told"]


@dataclass
class Told:
    """What became of the episodes so far."""

    episodes: int
    kept: int
    steps: int = 0
    missing: list[int] = field(default_factory=list)
    last_error: EnvError | None = None

    def failures(self) -> str:
        """Which episodes failed, in words."""
        shown = ", ".join(map(str, sorted(self.missing)[:10])) + (", ..." if len(self.missing) > 10 else "")
        text = f"{len(self.missing)} of {self.episodes} episodes failed at every attempt and are missing: {shown}"
        return text if self.last_error is None else f"{text}. The last failure: {summary(self.last_error)}"


class Player:
    """Plays episodes and keeps those that end well. Only episodes that are under way are held in memory.

    Args:
        pool: Where they are played.
        policy: Chooses the actions.
        seed: That of the collection.
        max_restarts: How often an episode is tried again.
        shards: Where finished episodes go.
        told: Counts them.
        bar: Shows the counts.
    """

    def __init__(
        self, pool: GymnasiumPool, policy: Policy, seed: int, max_restarts: int, shards: Shards, told: Told, bar: Bar
    ) -> None:
        self._pool = pool
        self._policy = policy
        self._seed = seed
        self._max_restarts = max_restarts
        self._shards = shards
        self._told = told
        self._bar = bar
        self._tree: Tree = tree_of(pool.spec.observation_space)
        self._form = _numbered(pool.spec.observation_space)
        self._is_same_step = pool.settings.autoreset == "same_step"
        self._playing: dict[int, Episode] = {}  # by env
        self._waiting: Iterator[int] = iter(())

    def play(self, numbers: Iterable[int]) -> None:
        """Plays these episodes. They begin in this order, and end in any."""
        self._pool.drain()
        self._waiting = iter(numbers)
        self._bar.show(self._told)
        for env in range(self._pool.num_envs):
            if not self._begin_next(env):
                break
        self._reset(list(self._playing))
        while self._playing:
            self._take(*self._receive())
            self._bar.show(self._told)

    # ---- one batch ---------------------------------------------------------------------------

    def _receive(self) -> Any:
        try:
            return self._pool.recv()
        except EnvError as error:
            if error.batch is None:
                raise
            self._told.last_error = error
            return error.batch

    def _take(self, obs: Any, reward: Any, terminated: Any, truncated: Any, info: dict[str, Any]) -> None:
        columns: list[Any] = []
        map_trees(lambda _, column: columns.append(column), self._tree, obs)
        abnormal = info.get("abnormal", np.zeros(len(reward), np.bool_))
        acting: list[tuple[int, Row]] = []
        resets = []
        for i, env in enumerate(info["env_id"].tolist()):
            episode = self._playing[env]
            if abnormal[i]:
                resets += self._begin_again(env, episode)
                continue
            row: Row = [column[i] for column in columns]
            ended = bool(terminated[i] or truncated[i])
            if episode.has_begun:
                episode.rewards.append(float(reward[i]))
                episode.terminations.append(bool(terminated[i]))
                episode.truncations.append(bool(truncated[i]))
                if ended and self._is_same_step:  # then the row has the next episode's observation
                    row = self._row_of(info["final_obs"][i])
            episode.observe(row)
            if ended:
                self._keep(episode)
                resets += self._begin_next(env)
            else:
                acting.append((env, row))
        self._reset(resets)  # first: a pool in sync mode resets envs only while none is in flight
        self._act(acting)

    def _row_of(self, observation: Any) -> Row:
        row: Row = []
        map_trees(lambda _, part: row.append(part), self._tree, observation)
        return row

    def _act(self, acting: list[tuple[int, Row]]) -> None:
        if not acting:
            return
        envs = [env for env, _ in acting]
        episodes = [self._playing[env] for env in envs]
        # The pool refuses calls meanwhile: a policy that steps it would play in our episodes.
        rows = [row for _, row in acting]
        actions, batch = self._pool._engine.use(self._policy.choose, episodes, rows, self._form)
        for episode, action in zip(episodes, actions, strict=True):
            episode.actions.append(action)
        self._pool.send(batch, envs)

    def _reset(self, envs: list[int]) -> None:
        if envs:
            self._pool.async_reset(envs, seed=[self._playing[env].seed for env in envs])

    # ---- beginnings and ends -----------------------------------------------------------------

    def _begin_next(self, env: int) -> list[int]:
        """Gives an env the next episode; returns the envs to reset: this one, or none."""
        number = next(self._waiting, None)
        self._playing.pop(env, None)
        return [] if number is None else self._begin(env, number, 0)

    def _begin_again(self, env: int, failed: Episode) -> list[int]:
        """Starts an episode that failed from its beginning, or gives it up."""
        if failed.attempt < self._max_restarts:
            return self._begin(env, failed.number, failed.attempt + 1)
        self._told.missing.append(failed.number)
        return self._begin_next(env)

    def _begin(self, env: int, number: int, attempt: int) -> list[int]:
        generator = generator_of(self._seed, number)
        act = self._policy.begin(generator)
        self._playing[env] = Episode(number, attempt, env_seed(self._seed, number), generator, act)
        return [env]

    def _keep(self, episode: Episode) -> None:
        self._shards.write(episode.number, episode.arrays())
        self._told.kept += 1
        self._told.steps += len(episode.rewards)


def _numbered(space: Any) -> Tree:
    """The space as a tree with the places of its leaves in a row."""
    places = iter(range(10**9))
    return map_trees(lambda *_: next(places), tree_of(space), tree_of(space))
