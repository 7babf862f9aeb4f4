"""What the integrations ask of a pool: whether their library can take it, and resets that have worked."""

from __future__ import annotations

import reprlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NoReturn

from stepmill.errors import ClosedError, ConfigError, UnsupportedError
from stepmill.views.gymnasium import GymnasiumPool
from stepmill.views.pool import PoolView


def check_pool(
    given: Any, user: str, library: str, *, others: str = "", tensors: bool = False, players: bool = False
) -> GymnasiumPool[Any]:
    """The pool, if the library can take it; else an error that says what to pass to ``make``.

    Args:
        given: What should be a pool.
        user: Who needs it, for messages.
        library: Whom it is for.
        others: What may be given as well, in words.
        tensors: Whether it may hand out tensors.
        players: Whether its envs may have several players.
    """
    if not isinstance(given, GymnasiumPool):
        got = "a pool of another view" if isinstance(given, PoolView) else reprlib.repr(given)
        raise ConfigError(f"{user}: expected a pool of stepmill.make(..., env_type='gymnasium'){others}, got {got}")
    if given.closed:
        raise ClosedError(f"{user}: {given!r} cannot be used any more: make another one")
    if given.num_players > 1 and not players:
        refuse_players(user, library, given.spec.id, given.num_players)
    if given.settings.output != "numpy" and not tensors:
        raise ConfigError(
            f"{user}: {library} takes numpy arrays, but the pool has output={given.settings.output!r}: leave out "
            "output in make(...)"
        )
    return given


def refuse_players(user: str, library: str, env: str, count: int) -> NoReturn:
    """Says that envs of several players are no use here."""
    raise UnsupportedError(
        f"{user}: {library} takes one player per env, and {env} has {count}: pass an env of one player to make(...), "
        "such as one that plays the others itself"
    ) from None


def reset_until_good(
    pool: GymnasiumPool,
    env_ids: Sequence[int] | None = None,
    seeds: Sequence[int | None] | None = None,
    options: Any = None,
) -> Iterator[tuple[list[int], Any, dict[str, Any]]]:
    """Resets envs, and with ``on_error="restart"`` those again whose reset has failed, until all have begun an episode.

    Each time it yields the rows that were reset, of all that are asked for, and their observations and infos. The pool
    raises after ``max_restarts`` failures of an env; without such a number this goes on until the reset succeeds. An
    env whose reset has failed still has its seed.
    """
    ids = list(range(pool.num_envs)) if env_ids is None else [int(one) for one in env_ids]
    rows = list(range(len(ids)))
    observation, info = pool.reset(env_ids, seed=seeds, options=options)
    yield rows, observation, info
    if isinstance(options, Mapping):
        options = {key: value for key, value in options.items() if key != "reset_mask"}
    while "abnormal" in info and info["abnormal"].any():
        rows = [rows[i] for i in info["abnormal"].nonzero()[0]]
        some: Any = [options[row] for row in rows] if isinstance(options, list | tuple) else options
        observation, info = pool.reset([ids[row] for row in rows], options=some)
        yield rows, observation, info
