"""The configurations of the envs of a pool: one per env, and mostly the same one for all of them.

A million envs usually share one dict. So what is computed from configurations is computed once per object.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from stepmill.errors import ConfigError
from stepmill.system.interpreters import interpreter

T = TypeVar("T")
R = TypeVar("R")


def configs_of(
    num_envs: int, config: Mapping[str, Any], env_config: Sequence[Mapping[str, Any]] | None
) -> list[dict[str, Any]]:
    """What ``config`` says for all envs, and ``env_config`` for each."""
    if env_config is None:
        return [dict(config)] * num_envs
    if isinstance(env_config, Mapping) or not isinstance(env_config, Sequence):
        raise ConfigError(f"env_config: expected a list of dicts, one per env, got a {type(env_config).__name__}")
    if len(env_config) != num_envs:
        raise ConfigError(f"env_config: expected {num_envs} dicts, one per env, got {len(env_config)}")
    for i, one in enumerate(env_config):
        if not isinstance(one, Mapping):
            raise ConfigError(f"env_config[{i}]: expected a dict, got {one!r}")
    return [{**config, **one} for one in env_config]


def split_python(
    configs: list[dict[str, Any]], python: str | None
) -> tuple[list[dict[str, Any]], list[str | None] | None]:
    """The configurations without ``python``, and the interpreter of each env; None if none has one of its own."""
    if python is None and not any("python" in one for one in once(configs)):
        return configs, None
    pythons = for_each(
        configs, lambda one: python if one.get("python", python) is python else _checked_python(one["python"])
    )
    rest = for_each(configs, lambda one: {key: value for key, value in one.items() if key != "python"})
    return rest, None if all(one is None for one in pythons) else pythons


def _checked_python(given: Any) -> str | None:
    return None if given is None else interpreter("env_config: python", given)


def once(objects: Sequence[T], key: Callable[[T], Any] = id) -> list[T]:
    """Each object once, in order."""
    if all(map(operator.is_, objects, itertools.repeat(objects[0]))):
        return [objects[0]]
    first: dict[Any, T] = {}
    for one in objects:
        first.setdefault(key(one), one)
    return list(first.values())


def for_each(configs: Sequence[T], function: Callable[[T], R]) -> list[R]:
    """``function(one)`` for each configuration, called once per object."""
    objects = once(configs)
    if len(objects) == 1:
        return [function(objects[0])] * len(configs)
    done = {id(one): function(one) for one in objects}
    return [done[id(one)] for one in configs]


def interned(configs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same configurations, equal ones as one dict: their envs share what is prepared for it."""
    first: dict[Any, dict[str, Any]] = {}
    out = []
    for one in configs:
        try:
            key = tuple(sorted((name, type(value).__name__, value) for name, value in one.items()))
            out.append(first.setdefault(key, one))
        except TypeError:  # a value that cannot be hashed or compared
            out.append(one)
    return out


def distinct(configs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each different configuration once."""
    return list({tuple(sorted((key, repr(value)) for key, value in one.items())): one for one in configs}.values())
