"""Episodes of a pool as a data set of Minari.

In reading order: ``origin.py`` says what is collected, ``play.py`` plays it (``episode.py`` is one episode of it,
``policy.py`` chooses the actions), ``shards.py`` keeps finished episodes, ``dataset.py`` puts them together.
"""

from __future__ import annotations

import contextlib
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from stepmill.errors import ConfigError, EnvError, UsageError
from stepmill.system.optional import require
from stepmill.values.arguments import true_or_false, whole_number
from stepmill.views.gymnasium import GymnasiumPool

for _module in ("minari", "h5py", "rich"):
    require(_module, _module, "minari", "stepmill.interop.minari")

from minari import MinariDataset  # noqa: E402

from stepmill.interop.minari.dataset import Description, assemble, existing_dataset, path_of  # noqa: E402
from stepmill.interop.minari.origin import Origin, check_pool, pool_seed  # noqa: E402
from stepmill.interop.minari.play import Player, Told  # noqa: E402
from stepmill.interop.minari.policy import Policy, name_of  # noqa: E402
from stepmill.interop.minari.progress import shown_progress  # noqa: E402
from stepmill.interop.minari.shards import Shards, opened_shards  # noqa: E402

__all__ = ["Collection", "collect"]


class Collection(NamedTuple):
    """What ``collect`` returns: the data set, and the numbers of the episodes that are not in it."""

    dataset: MinariDataset
    missing: tuple[int, ...]


def collect(
    pool: GymnasiumPool,
    policy: Callable[[Any, Any], Any],
    episodes: int,
    name: str,
    *,
    seed: int | None = None,
    batched: bool = False,
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
        pool: What ``stepmill.make`` returns: envs that are all alike, with one player.
        policy: ``policy(observation, generator)`` returns the action. If it has a method ``begin_episode(generator)``,
            that returns such a function for each episode, which may remember what it has seen.
        episodes: How many episodes.
        name: The id of the data set, such as ``"cartpole/random-v0"``.
        seed: That of the collection; by default the pool's own.
        batched: Whether the policy takes observations of many envs, and a list of their generators, and returns as many
            actions: a network is much faster that way.
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
    episodes = whole_number("episodes", episodes, 1)
    max_restarts = whole_number("max_restarts", max_restarts, 0)
    seed = pool_seed(pool) if seed is None else whole_number("seed", seed, 0, 2**63 - 1)
    chosen = Policy(policy, pool, true_or_false("batched", batched))
    if not isinstance(algorithm_name, str | None):
        raise ConfigError(f"algorithm_name: expected a text, got {algorithm_name!r}")
    origin = Origin.of(pool, seed, algorithm_name or name_of(policy))
    about = Description.of(author, author_email, code_permalink, description, requirements)
    path = path_of(name)
    found = existing_dataset(path, name, origin, episodes)
    if found is not None:
        Shards.of(path).remove()  # those of a call that was killed after it had finished the data set
        return Collection(*found)
    with opened_shards(path) as shards, shown_progress(progress, name, episodes) as bar:
        found = existing_dataset(path, name, origin, episodes)  # another process may have finished it meanwhile
        if found is not None:
            return Collection(*found)
        shards.claim(origin)
        waiting = shards.missing(range(episodes))
        told = Told(episodes, episodes - len(waiting))
        try:
            with _only_use(pool):
                Player(pool, chosen, seed, max_restarts, shards, told, bar).play(waiting)
            if told.kept == 0:
                raise EnvError(f"collect: {told.failures()}") from told.last_error
            if told.missing:
                warnings.warn(f"collect: {told.failures()}", UserWarning, stacklevel=2)
            bar.finish()
            missing = tuple(sorted(told.missing))
            return Collection(assemble(path, name, pool, origin, about, shards, episodes, missing), missing)
        except BaseException as error:
            error.add_note(f"collect: {told.kept} of {episodes} episodes are in {shards.folder}; the same call goes on")
            raise


_in_use: weakref.WeakSet[GymnasiumPool] = weakref.WeakSet()


@contextlib.contextmanager
def _only_use(pool: GymnasiumPool) -> Iterator[None]:
    """Refuses to collect from one pool twice at a time: each would take the other's results for its own."""
    if pool in _in_use:
        raise UsageError("collect: this pool plays another collection already. Make a pool for each")
    _in_use.add(pool)
    try:
        yield
    finally:
        _in_use.discard(pool)
