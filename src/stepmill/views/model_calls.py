"""``set_model`` and ``get_model`` of a pool."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from stepmill.errors import InputError
from stepmill.hosts.host import Host
from stepmill.sources.models.env_model import naming
from stepmill.sources.models.fields import ModelChange, check_names, read_values, value_for
from stepmill.values.arguments import true_or_false


def set_model(host: Host, env_ids: Sequence[int], fields: Any, set_const: Any) -> None:
    """Checks everything, then tells the envs, none of which may be in flight."""
    set_const = true_or_false("set_const", set_const)
    values = read_values(check_names(fields))
    described = host.ask_models("describe_model", [list(values)] * len(env_ids), env_ids)
    changes = []
    for row, env_id in enumerate(env_ids):
        with naming(env_id):
            own = {
                name: value_for(name, value, field, row, len(env_ids))
                for (name, value), field in zip(values.items(), described[row], strict=True)
            }
        changes.append(ModelChange.of(own, set_const))
    if any(change.may_be_refused for change in changes):
        host.ask_models("try_model", changes, env_ids)
    host.ask_models("set_model", changes, env_ids)


def get_model(host: Host, env_ids: Sequence[int], names: Any) -> dict[str, np.ndarray]:
    """The values of every field, with a row per env."""
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        raise InputError(f"names: expected a list of names such as ['body_mass', 'opt.gravity'], got {names!r:.200}")
    if not env_ids:
        raise InputError("env_ids: expected at least one env, got none")
    columns = zip(*host.ask_models("get_model", [names] * len(env_ids), env_ids), strict=True)
    return {name: _stack(name, list(rows), env_ids) for name, rows in zip(names, columns, strict=True)}


def _stack(name: str, rows: list[np.ndarray], env_ids: Sequence[int]) -> np.ndarray:
    for env_id, row in zip(env_ids, rows, strict=True):
        if row.shape != rows[0].shape:
            raise InputError(
                f"field {name!r} has shape {rows[0].shape} in env {env_ids[0]} and {row.shape} in env {env_id}: ask "
                "for envs with the same kind of model"
            )
    return np.stack(rows)
