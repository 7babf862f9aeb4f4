"""The configuration of an env: checked, with defaults, and copied for each env of a run."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from typing import Any

from stepmill.errors import ConfigError, MissingConfigError
from stepmill.values.arguments import whole_number


def env_cfgs(cfg: Any, count_key: str, is_train: bool) -> list[Any]:
    """``cfg[count_key]`` independent copies (1 if that key is absent) without that key and with ``is_train`` set."""
    check_mapping("cfg", cfg)
    count = whole_number(count_key, cfg.get(count_key, 1), 1)
    return [_copy_without(cfg, count_key, is_train) for _ in range(count)]


def _copy_without(cfg: Any, key: str, is_train: bool) -> Any:
    out = copy_cfg("cfg", cfg)
    out.pop(key, None)
    out["is_train"] = is_train
    return out


def read_cfg(
    owner: str, cfg: Any, required: Iterable[str] = (), defaults: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The configuration of an env with its defaults, or an error that names what is missing.

    Keys that the env does not know are kept: a cfg often contains keys for other readers.
    """
    check_mapping(f"{owner}: cfg", cfg)
    missing = [key for key in required if key not in cfg]
    if missing:
        there = ", ".join(map(str, cfg)) or "nothing"
        raise MissingConfigError(
            f"{owner}: expected a cfg with the key{'s' * (len(missing) > 1)} {', '.join(missing)}, got one with {there}"
        )
    return {**(defaults or {}), **cfg}


def copy_cfg(name: str, cfg: Any) -> Any:
    """A copy that shares nothing with the original."""
    try:
        return copy.deepcopy(cfg)
    except KeyError as error:
        raise ConfigError(
            f"{name}: expected a dict that can be copied, got a {type(cfg).__name__} where looking for the attribute "
            f"{error} is a KeyError: a __getattr__ of its own, such as dict.__getitem__, must raise AttributeError"
        ) from error


def check_mapping(name: str, cfg: Any) -> None:
    if not isinstance(cfg, Mapping):
        raise ConfigError(f"{name}: expected a dict, got {cfg!r}")
