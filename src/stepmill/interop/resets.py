"""Resets for libraries that take every reset for a good one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from stepmill.views.gymnasium import GymnasiumPool


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
