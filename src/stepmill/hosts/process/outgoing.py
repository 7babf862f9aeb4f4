"""How values leave the processes that run envs: infos, objects, results of calls, exceptions, descriptions.

A worker of the caller's own interpreter pickles what it has, by value where the caller could not import it. One on an
island sends plain values and arrays.
"""

from __future__ import annotations

import contextlib
import pickle
from typing import Any

import cloudpickle

from stepmill.errors import UnsupportedError, summary
from stepmill.hosts.process import plain

_is_island = False


def set_island() -> None:
    """From now on, what leaves this process and those it forks is plain: the caller has other versions of packages."""
    global _is_island
    _is_island = True


def is_island() -> bool:
    """Whether this process runs on an island."""
    return _is_island


def plain_parts(values: dict[Any, Any]) -> dict[Any, Any]:
    """The values that can leave this process."""
    kept = {}
    for key, value in values.items():
        with contextlib.suppress(Exception):
            pickled((key, value))
            kept[key] = value
    return kept


def pickled(value: Any) -> bytes:
    """A value as a pickle that the caller can read. Raises whatever pickling an object of the user raises."""
    if _is_island:
        return plain.dumps(value)
    with contextlib.suppress(Exception):
        return pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)
    by_value: bytes = cloudpickle.dumps(value)  # lambdas, and classes that only this process knows
    return by_value


def pickled_answer(question: str, value: Any) -> bytes:
    """(True, value) as such a pickle. Raises ``UnsupportedError`` if the value cannot leave this process."""
    try:
        return pickled((True, value))
    except BaseException as error:  # it may be anything
        raise UnsupportedError(
            f"{question}: its value, a {type(value).__name__}, cannot be pickled, and stays where the env lives: "
            f"{summary(error)}. The call itself was made"
        ) from error
