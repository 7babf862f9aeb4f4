"""What a collection is of: two calls of ``collect`` belong together if this is equal."""

from __future__ import annotations

import copy
import json
import warnings
from dataclasses import asdict, dataclass, fields, is_dataclass
from typing import Any, Self

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec

from stepmill.errors import SpaceError, StepmillError, UnsupportedError
from stepmill.interop import pools
from stepmill.make import make_spec
from stepmill.registry.records import GymnasiumFactory, find, gymnasium_spec
from stepmill.values.trees import step_into
from stepmill.views.gymnasium import GymnasiumPool


@dataclass(frozen=True)
class Origin:
    """Env, seed and policy of a collection, as JSON has them."""

    env: str
    config: Any
    max_episode_steps: int | None
    observation_space: str
    action_space: str
    action_bounds: str
    seed: int
    policy: str
    unknown: list[str]  # what has no name of its own: two that look alike may differ

    @classmethod
    def of(cls, pool: GymnasiumPool, seed: int, policy: str) -> Self:
        spec = pool.spec
        unknown = ["env"] if "<" in spec.id else []
        config = _plain(_config_of(pool), "config", unknown)
        seen = repr(spec.observation_space), repr(spec.action_space), pool.settings.action_bounds
        return cls(spec.id, config, spec.max_episode_steps, *seen, seed, policy, unknown)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    def difference(self, other: Any) -> str | None:
        """Where another collection, as JSON, differs from this one; None if it does not."""
        if not isinstance(other, dict):
            return "its origin is not known"
        for key, own in self.as_dict().items():
            if json.dumps(other.get(key), sort_keys=True) != json.dumps(own, sort_keys=True):  # NaN equals NaN
                return f"{key}: there {other.get(key)!r}, here {own!r}"
        return None

    def warn_of_unknown(self, where: str) -> None:
        """If something in it cannot be compared, says so: what goes on here may be of another env."""
        if self.unknown:
            warnings.warn(
                f"collect: {where} has episodes of an env that looks the same, but {' and '.join(self.unknown)} cannot "
                "be compared. If it differs, use another name for the data set. What can be compared: functions and "
                "classes of a module, and configurations of numbers, texts and data classes",
                UserWarning,
                stacklevel=4,
            )


def _plain(value: Any, path: str, unknown: list[str]) -> Any:
    """A part of a configuration as JSON has it, equal in every process. Adds what has only a type's name to unknown."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, dict):
        return {str(key): _plain(one, step_into(path, key), unknown) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one, step_into(path, i), unknown) for i, one in enumerate(value)]
    if is_dataclass(value) and not isinstance(value, type):
        parts = {field.name: getattr(value, field.name) for field in fields(value)}
        return {"": _name(type(value)), **_plain(parts, path, unknown)}
    name = _name(value if hasattr(value, "__qualname__") else type(value))
    if "<" in name or not hasattr(value, "__qualname__"):
        unknown.append(path)
    return name


def _name(of: Any) -> str:
    return f"{of.__module__}.{of.__qualname__}"


# ---- the pool ------------------------------------------------------------------------------------


def check_pool(pool: Any) -> None:
    """Raises if the episodes of a pool cannot be collected."""
    pools.check_pool(pool, "collect", "Minari", tensors=True)
    configs = pool.spec.env_configs
    if any(one is not configs[0] and one != configs[0] for one in configs):
        raise UnsupportedError(
            "collect: the envs of this pool have different configurations, so an episode would depend on which of them "
            "plays it. Make a pool, and a data set, for each configuration; minari.combine_datasets joins them"
        )
    _check_space(pool.spec.observation_space, "observation")
    _check_space(pool.spec.action_space, "action")


_STORED = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary, spaces.Text)


def _check_space(space: spaces.Space[Any], path: str) -> None:
    """Raises if Minari cannot store values of a space."""
    if isinstance(space, spaces.Dict):
        for key, part in space.items():
            if not isinstance(key, str) or "/" in key or key in ("", ".", ".."):
                raise SpaceError(f"collect: {path}: expected keys that HDF5 can take, without '/', got {key!r}")
            _check_space(part, step_into(path, key))
    elif isinstance(space, spaces.Tuple):
        for i, part in enumerate(space):
            _check_space(part, step_into(path, i))
    elif not isinstance(space, _STORED):
        known = ", ".join(one.__name__ for one in _STORED)
        raise SpaceError(f"collect: {path}: Minari stores {known}, Dict and Tuple, got {space}")


def env_spec(pool: GymnasiumPool) -> EnvSpec | None:
    """With which ``gymnasium.make`` makes the env of a pool, if it is one that Gymnasium has."""
    id = pool.spec.id
    try:
        record = find(id)
        if record.native is None and not isinstance(record.factory, GymnasiumFactory):
            return None
        spec: EnvSpec = copy.deepcopy(gymnasium_spec(id))
        # A native env has every key, and Gymnasium's env may have fewer.
        defaults = make_spec(id).env_configs[0] if pool.is_native else {}
        config = {key: value for key, value in _config_of(pool).items() if key != "max_episode_steps"}
        given = {key: value for key, value in config.items() if key not in defaults or defaults[key] != value}
        known = GymnasiumFactory(id).known_keys()
        if known is not None and not given.keys() <= set(known):
            return None
        spec.kwargs.update(given)
        spec.max_episode_steps = pool.spec.max_episode_steps
        spec.to_json()
    except (StepmillError, gymnasium.error.Error, ImportError, TypeError, ValueError):
        return None  # it is not in Gymnasium's registry, or has something that JSON cannot express
    return spec


def _config_of(pool: GymnasiumPool) -> dict[str, Any]:
    """The configuration of every env, without how it is drawn."""
    return {key: value for key, value in pool.spec.env_configs[0].items() if key != "render_mode"}
