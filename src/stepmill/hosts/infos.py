"""Merges the info dicts of single envs into the info of a batch, in Gymnasium's layout.

Every key becomes an array with one row per env, with a mask ``_key`` that says which rows have it.
Numbers and arrays become arrays of their type, dicts nest, anything else is kept as objects.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from stepmill.errors import ConfigError, summary
from stepmill.system.uninterrupted import reproduced_failure, try_or
from stepmill.system.warn_once import warn_once
from stepmill.values.spaces import ArrayLeaf, flatten

# The keys that the engine adds to a batch; the second set has masks. An env's own key of the same name is left out.
_ENGINE_KEYS = {"env_id", "players", "elapsed_step"}
_COUNTED_KEYS = {"episode_return", "episode_length"}
_MASKED_KEYS = {*_COUNTED_KEYS, "abnormal"}
_FINAL_KEYS = {"final_obs", "final_info"}  # only if an episode ends and the next one starts in the same step
_MOST_LEVELS = 100  # of nested dicts; one that contains itself never ends


EnvInfo = tuple[int, int, Mapping[Any, Any]]  # a row of a batch, its env id, and the env's info


@functools.cache
def engine_keys(autoreset: str) -> frozenset[str]:
    """The keys that belong to the engine in this autoreset mode."""
    masked = _MASKED_KEYS | (_FINAL_KEYS if autoreset == "same_step" else set())
    return frozenset(_ENGINE_KEYS | masked | {f"_{key}" for key in masked})


def info_leaves(space: spaces.Dict | None, autoreset: str) -> list[ArrayLeaf]:
    """The arrays of an env's ``info_space``: the keys of its infos that need no pickling and no merging."""
    if space is None:
        return []
    flat = flatten(space)
    taken = engine_keys(autoreset) & space.keys()
    if taken:
        raise ConfigError(f"info_space: expected keys that are not the pool's own, got {', '.join(sorted(taken))}")
    if flat.object_spaces or any(isinstance(one, spaces.Dict | spaces.Tuple) for one in space.values()):
        raise ConfigError(f"info_space: expected a Dict of Box, Discrete, MultiDiscrete and MultiBinary, got {space}")
    masks = [key for key in space.spaces if f"_{key}" in space.spaces]
    if masks:
        raise ConfigError(f"info_space: expected no key '_{masks[0]}', which says which rows have {masks[0]!r}")
    return flat.leaves


def plain_info(info: Any, env_id: int) -> dict[Any, Any] | None:
    """An info as a dict; None if there is none. None with a warning if it cannot be read."""
    if info is None or type(info) is dict:
        return info
    return try_or(lambda: dict(info.items()), lambda failure: _tell(env_id, failure))


def merge_infos(infos: Sequence[EnvInfo], count: int, taken: frozenset[str] = frozenset()) -> dict[Any, Any]:
    """Merges the infos of some rows of a batch of ``count`` rows, without the keys in ``taken``.

    An info that cannot be merged is left out, with a warning. The envs' own dicts are not changed.
    """
    try:
        return _merge(infos, count, taken)
    except BaseException as error:
        broken: dict[int, BaseException] = {}
        failure = reproduced_failure(lambda: broken.update(_find_broken(infos, count, taken)))
        if failure is not None or not broken:  # the infos are good: a signal handler raised
            raise
        if isinstance(error, KeyboardInterrupt) and not any(isinstance(b, KeyboardInterrupt) for b in broken.values()):
            raise  # Ctrl-C
        for row, env_id, _ in infos:
            if row in broken:
                _tell(env_id, broken[row])
        return merge_infos([one for one in infos if one[0] not in broken], count, taken)


def rows_of_info(info: Mapping[Any, Any]) -> list[dict[Any, Any]]:
    """The way back from the info of a batch: what the env of each row told. See ``PoolView.info_rows``."""
    own = {key: column for key, column in info.items() if key not in _COUNTED_KEYS}
    if "abnormal" in own:
        own["_abnormal"] = own["abnormal"]
    return _split(own, len(info["env_id"]))


def _split(info: Mapping[Any, Any], count: int) -> list[dict[Any, Any]]:
    rows: list[dict[Any, Any]] = [{} for _ in range(count)]
    for key, column in info.items():
        mask = info.get(f"_{key}")
        if mask is None:  # it is a mask itself, or the pool's own
            continue
        values = _split(column, count) if isinstance(column, dict) else _plain_values(column)
        for row, value, is_there in zip(rows, values, mask.tolist(), strict=True):
            if is_there:
                row[key] = value
    return rows


def _plain_values(column: np.ndarray) -> list[Any]:
    """The rows of a column: Python's own numbers, or arrays that do not keep the whole column."""
    if column.ndim > 1:
        return list(column.copy())
    values: list[Any] = column.tolist()
    if column.dtype == object:  # of different types: numpy's numbers are still among them
        return [one.item() if isinstance(one, np.number | np.bool_) else one for one in values]
    return values


def _info_of_row(info: Mapping[Any, Any], row: int) -> dict[Any, Any]:
    return {
        key: _info_of_row(column, row) if isinstance(column, dict) else column[row]
        for key, column in info.items()
        if f"_{key}" in info and info[f"_{key}"][row]
    }


def _tell(env_id: int, failure: BaseException) -> None:
    warn_once(f"the info of env {env_id} cannot be merged into the batch's info and is left out: {summary(failure)}")


# ---- merging -------------------------------------------------------------------------------------


class _Level:
    """The columns of an info, or of a nested dict in it."""

    __slots__ = ("masks", "values")

    def __init__(self) -> None:
        self.values: dict[Any, np.ndarray | _Level] = {}
        self.masks: dict[Any, np.ndarray] = {}

    def as_dict(self) -> dict[Any, Any]:
        out: dict[Any, Any] = {
            key: value.as_dict() if type(value) is _Level else value for key, value in self.values.items()
        }
        for key, mask in self.masks.items():
            out[f"_{key}"] = mask
        if len(out) != len(self.values) + len(self.masks):
            raise _clash(self.values)
        return out


def _clash(keys: Mapping[Any, Any]) -> ValueError:
    both = next((key for key in keys if f"_{key}" in keys), None)
    return ValueError(f"there are both {both!r} and '_{both}', and the latter says which rows have the former")


def _merge(infos: Sequence[EnvInfo], count: int, taken: frozenset[str]) -> dict[Any, Any]:
    top = _Level()
    for row, _, info in infos:
        for key, value in info.items():
            if key not in taken:
                _add(top, key, value, row, count, 0)
    return top.as_dict()


def _add(level: _Level, key: Any, value: Any, row: int, count: int, depth: int) -> None:
    mask = level.masks.get(key)
    if mask is None:
        mask = level.masks[key] = np.zeros(count, np.bool_)
    column = level.values.get(key)
    if isinstance(value, dict):
        if depth == _MOST_LEVELS:
            raise ValueError(f"it is more than {_MOST_LEVELS} dicts deep, or contains itself")
        if column is None:
            column = level.values[key] = _Level()
        if type(column) is _Level:
            for inner, child in value.items():
                _add(column, inner, child, row, count, depth + 1)
            mask[row] = True
            return
    if column is None:
        column = level.values[key] = _column(value, count)
    elif type(column) is _Level or not _holds(column, value):  # type: ignore[arg-type]  # then it is an array
        column = level.values[key] = _as_objects(column, mask)
    column[row] = value  # type: ignore[index]  # likewise
    mask[row] = True


def _column(value: Any, count: int) -> np.ndarray:
    if type(value) is int and not -(2**63) <= value < 2**63:
        return np.full(count, None, object)
    if type(value) in (bool, int, float) or isinstance(value, np.number | np.bool_):
        return np.zeros(count, type(value))
    if isinstance(value, np.ndarray) and value.dtype != object:
        return np.zeros((count, *value.shape), value.dtype)
    return np.full(count, None, object)


def _holds(array: np.ndarray, value: Any) -> bool:
    """Whether the column can take the value without losing anything."""
    if array.dtype == object:
        return True
    if not isinstance(value, bool | int | float | np.number | np.bool_ | np.ndarray):
        return False
    return np.shape(value) == array.shape[1:] and np.can_cast(np.asarray(value).dtype, array.dtype, "safe")


def _as_objects(column: Any, mask: np.ndarray) -> np.ndarray:
    """A column for envs that disagree on the type: it keeps every value as it is."""
    nested = column.as_dict() if type(column) is _Level else None
    out = np.full(len(mask), None, object)
    for row in np.flatnonzero(mask):
        out[row] = column[row] if nested is None else _info_of_row(nested, int(row))
    return out


# ---- what is wrong -------------------------------------------------------------------------------


def _find_broken(infos: Sequence[EnvInfo], count: int, taken: frozenset[str]) -> dict[int, BaseException]:
    """The rows whose infos cannot be merged, and why: first those broken by themselves, else those that clash."""
    broken = {one[0]: failure for one in infos if (failure := _failure(_merge, [one], count, taken)) is not None}
    if broken:
        return broken
    seen: dict[Any, Any] = {}
    for row, _, info in infos:
        failure = _failure(_check_keys, seen, info, taken)
        if failure is None:
            _add_keys(seen, info, taken)
        else:
            broken[row] = failure
    return broken


def _failure(work: Callable[..., Any], *args: Any) -> BaseException | None:
    try:
        work(*args)
    except BaseException as error:
        return error
    return None


def _check_keys(seen: dict[Any, Any], info: Mapping[Any, Any], taken: frozenset[str] = frozenset()) -> None:
    """Raises if a key of an info is the mask of another key, in this info or in ``seen``, at any level of dicts."""
    together = {**seen, **{key: {} for key in info if key not in taken}}
    if any(f"_{key}" in together for key in together):
        raise _clash(together)
    for key, value in info.items():
        if isinstance(value, dict) and key not in taken:
            _check_keys(seen.get(key, {}), value)


def _add_keys(seen: dict[Any, Any], info: Mapping[Any, Any], taken: frozenset[str] = frozenset()) -> None:
    for key, value in info.items():
        if key not in taken:
            _add_keys(seen.setdefault(key, {}), value if isinstance(value, dict) else {})
