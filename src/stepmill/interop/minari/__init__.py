"""Episodes of a pool as a data set of Minari.

In reading order: ``origin.py`` says what is collected from, ``store.py`` keeps episodes, and here they are played.
"""

from __future__ import annotations

import copy
import sys
import warnings
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces

from stepmill._version import __version__
from stepmill.errors import ConfigError, EnvError, summary
from stepmill.system.optional import require
from stepmill.values.arguments import whole_number
from stepmill.values.trees import map_tree, map_trees, tree_of
from stepmill.views.gymnasium import GymnasiumPool

for _module in ("minari", "h5py", "rich"):
    require(_module, _module, "minari", "stepmill.interop.minari")

from minari import MinariDataset  # noqa: E402
from minari.data_collector import EpisodeBuffer  # noqa: E402
from rich.console import Console  # noqa: E402
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn  # noqa: E402

from stepmill.interop.minari.origin import Origin, check_pool, env_spec  # noqa: E402
from stepmill.interop.minari.store import Store  # noqa: E402

__all__ = ["Collection", "collect"]

_SEEDS = 2**31  # what every env takes as a seed, emulators included


class Collection(NamedTuple):
    """What ``collect`` returns: the data set, and the numbers of the episodes that are not in it."""

    dataset: MinariDataset
    missing: tuple[int, ...]


def collect(
    pool: GymnasiumPool,
    policy: Callable[[Any, Any, Any], Any],
    episodes: int,
    name: str,
    *,
    seed: int | None = None,
    max_restarts: int = 3,
    progress: bool | None = None,
    algorithm_name: str | None = None,
    author: str | Iterable[str] | None = None,
    author_email: str | Iterable[str] | None = None,
    code_permalink: str | None = None,
    description: str | None = None,
    requirements: Iterable[str] | None = None,
) -> Collection:
    """Plays the episodes 0, 1, ..., ``episodes`` - 1 and makes a data set of them, in this order.

    Episode k starts from a seed that follows from ``seed`` and k, and the policy gets a generator that follows from
    them too. So the data set is the same on any backend, with any number of envs and workers. Envs of all three
    autoreset modes are reset by hand; ``same_step`` resets each env once more than needed.

    Finished episodes are kept beside the data set until all are there. If the program ends before, in whatever way,
    the same call continues with those that are missing; if the data set is complete, it returns it.

    Args:
        pool: What ``stepmill.make`` returns: envs that are all alike, with one player. What is in flight is dropped.
        policy: ``policy(observations, env_ids, generators)`` returns actions, one per row, as ``pool.rollout`` takes
            it. ``stepmill.per_env`` makes one of a function of one observation and a generator.
        episodes: How many episodes.
        name: The id of the data set, such as ``"cartpole/random-v0"``.
        seed: That of the collection; by default the pool's own.
        max_restarts: How often an episode that fails, or is abnormal, is tried again. After that it is missing.
        progress: Whether to show a progress bar on stderr; by default if that is a terminal.
        algorithm_name: The name of the policy, in the metadata of the data set. It tells collections apart; by default
            it is the name of the function or class.
        author: In the metadata, as the following ones: one, or several.
        author_email: One, or several.
        code_permalink: Where the code is that collected the data.
        description: What the data set is.
        requirements: What to install for the env, as for pip.
    """
    check_pool(pool)
    count = whole_number("episodes", episodes, 1)
    max_restarts = whole_number("max_restarts", max_restarts, 0)
    seed = int(pool.settings.seed[0]) if seed is None else whole_number("seed", seed, 0, 2**63 - 1)
    metadata = _metadata(
        {"algorithm_name": algorithm_name, "code_permalink": code_permalink, "description": description},
        {"author": author, "author_email": author_email, "requirements": requirements},
    )
    metadata.setdefault("algorithm_name", getattr(policy, "__name__", None) or type(policy).__name__)
    played = _Episodes(pool, seed, max_restarts)
    pool.drain()
    batches = pool.play(policy, seed=seed, episodes=played, raise_errors=False)  # refuses what is no policy
    store = Store(name, Origin.of(pool, seed, metadata["algorithm_name"]), count, pool.spec)
    if (found := store.complete()) is not None:
        return Collection(*found)
    with store.opened():
        if (found := store.complete()) is not None:  # another process has finished it meanwhile
            return Collection(*found)
        store.claim()
        played.waiting.extend(store.waiting())
        try:
            _play(batches, played, store, count, name, progress)
            missing = sorted(played.missing)
            numbers = sorted({*range(count)} - {*missing})
            metadata |= {"seed": seed, "stepmill_version": __version__, "missing_episodes": missing}
            dataset = store.assemble(numbers, metadata, env_spec(pool))
        except BaseException as error:
            kept = count - len(store.waiting())
            error.add_note(f"collect: {kept} of {count} episodes are in {store.folder}; the same call goes on")
            raise
    return Collection(dataset, tuple(missing))


def _metadata(texts: dict[str, Any], lists: dict[str, Any]) -> dict[str, Any]:
    """What the user says about the data set, in Minari's words, as far as it was given."""
    said: dict[str, Any] = {}
    for key, text in texts.items():
        if not isinstance(text, str | None):
            raise ConfigError(f"{key}: expected a text, got {text!r}")
        said[key] = text
    for key, given in lists.items():
        several = [given] if isinstance(given, str) or not isinstance(given, Iterable) else [*given]
        if given is not None and not all(isinstance(one, str) for one in several):
            raise ConfigError(f"{key}: expected a text, or several, got {given!r}")
        said[key] = given and (several if key == "requirements" else set(several))
    return {key: value for key, value in said.items() if value}


def _play(batches: Iterator[Any], played: _Episodes, store: Store, count: int, name: str, shows: bool | None) -> None:
    """Plays what waits, and keeps every episode when it has ended."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("episodes, {task.fields[steps]:,} steps"),
        TimeRemainingColumn(),
    )
    shows = sys.stderr.isatty() if shows is None else shows
    with Progress(*columns, console=Console(stderr=True), disable=not shows) as bar:
        task = bar.add_task(name, total=count, completed=count - len(played.waiting), steps=0)
        steps = 0
        for batch in batches:
            for number, episode in played.take(batch):
                store.keep(number, episode)
                steps += len(episode)
                bar.update(task, advance=1, steps=steps)
    if played.missing:
        failures = f"collect: {played.failures(count)}"
        if len(played.missing) == count:
            raise EnvError(failures) from played.last_error
        warnings.warn(failures, UserWarning, stacklevel=3)


class _Episodes(Iterator[int]):
    """The episodes to play: ``pool.play`` takes their seeds from here, and what it yields is gathered here.

    Only episodes that are under way are in memory.

    Args:
        pool: What plays them.
        seed: That of the collection.
        max_restarts: How often an episode that fails is played again.
    """

    def __init__(self, pool: GymnasiumPool, seed: int, max_restarts: int) -> None:
        self.waiting: deque[int] = deque()
        self.missing: list[int] = []
        self.last_error: EnvError | None = None
        self._attempts: Counter[int] = Counter()
        self._max_restarts = max_restarts
        self._first_seed = int(np.random.SeedSequence(seed).generate_state(1)[0])
        self._observation, self._action = tree_of(pool.spec.observation_space), tree_of(pool.spec.action_space)
        self._is_same_step = pool.settings.autoreset == "same_step"
        self._clips = pool.settings.action_bounds == "clip"
        self._begun: dict[int, EpisodeBuffer] = {}  # by env

    def __next__(self) -> int:
        """The seed of the next episode. After the last one there may be more: those that fail wait again."""
        if not self.waiting:
            raise StopIteration
        return (self._first_seed + self.waiting.popleft()) % _SEEDS

    def take(self, batch: Any) -> Iterator[tuple[int, EpisodeBuffer]]:
        """Gathers a batch, and yields the episodes that have ended in it, with their numbers."""
        self.last_error = batch.error or self.last_error
        actions = map_trees(_clipped, self._action, batch.actions) if self._clips else batch.actions
        abnormal = batch.info.get("abnormal", np.zeros(len(batch.env_ids), np.bool_))
        for row, env_id in enumerate(batch.env_ids.tolist()):
            seed = int(batch.episodes[row])
            number = (seed - self._first_seed) % _SEEDS
            episode = self._begun.pop(env_id, None)
            if abnormal[row]:
                self._fail(number)
                continue
            if episode is None:
                episode = self._new_episode(seed)
            else:
                _append(episode.actions, actions, row)
                episode.rewards.append(float(batch.rewards[row]))
                episode.terminations.append(bool(batch.terminated[row]))
                episode.truncations.append(bool(batch.truncated[row]))
            is_over = bool(batch.terminated[row] or batch.truncated[row])
            if is_over and self._is_same_step:  # then the row has the next episode's observation
                _append(episode.observations, batch.info["final_obs"][row])
            else:
                _append(episode.observations, batch.observations, row)
            if is_over:
                yield number, episode
            else:
                self._begun[env_id] = episode

    def _new_episode(self, seed: int) -> EpisodeBuffer:
        observations, actions = (map_tree(lambda _: [], tree) for tree in (self._observation, self._action))
        return EpisodeBuffer(seed=seed, observations=observations, actions=actions, infos={})

    def _fail(self, number: int) -> None:
        self._attempts[number] += 1
        if self._attempts[number] <= self._max_restarts:
            self.waiting.appendleft(number)
        else:
            self.missing.append(number)

    def failures(self, count: int) -> str:
        """Which episodes failed, in words."""
        shown = ", ".join(map(str, sorted(self.missing)[:10])) + (", ..." if len(self.missing) > 10 else "")
        text = f"{len(self.missing)} of {count} episodes failed at every attempt and are missing: {shown}"
        return text if self.last_error is None else f"{text}. The last failure: {summary(self.last_error)}"


def _append(columns: Any, values: Any, row: int | None = None) -> None:
    """Appends a value, or a row of many, to the lists of an episode: a copy, as a row would hold its whole batch."""
    map_trees(lambda column, part: column.append(copy.copy(part if row is None else part[row])), columns, values)


def _clipped(space: spaces.Space[Any], actions: Any) -> Any:
    return np.clip(actions, space.low, space.high) if isinstance(space, spaces.Box) else actions
