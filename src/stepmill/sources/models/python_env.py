"""The models of Python envs: ``env.unwrapped.model``, or that of a dm_control env's ``physics``."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from stepmill.errors import UnsupportedError
from stepmill.sources.models import fields
from stepmill.sources.models.env_model import ModelConfig
from stepmill.sources.models.fields import Field, ModelChange


class PythonModel:
    """An ``EnvModel``. ``apply`` is to be called right before the env's next reset."""

    def __init__(self, env: Any) -> None:
        self._env = env
        self._kept = ModelChange()  # all that was ever set: for a new env in the place of this one
        self._waiting: ModelChange | None = None  # the part that the next reset applies

    def describe_model(self, names: Sequence[str]) -> list[Field]:
        return fields.describe(_part(self._env, "model", "MjModel"), names)

    def get_model(self, names: Sequence[str]) -> list[np.ndarray]:
        return fields.read(self._preview(self._waiting), names)

    def try_model(self, change: ModelChange) -> None:
        model = self._preview(change if self._waiting is None else self._waiting.then(change))
        fields.check(change, model, sys.modules["mujoco"].MjData(model))

    def set_model(self, change: ModelChange) -> None:
        self._kept = self._kept.then(change)
        self._waiting = change if self._waiting is None else self._waiting.then(change)

    def replace_env(self, env: Any) -> None:
        """All that was set waits for the first reset of the new env."""
        self._env = env
        self._waiting = self._kept

    def apply(self) -> None:
        if self._waiting is not None:
            fields.apply(self._waiting, _part(self._env, "model", "MjModel"), self._data(self._waiting))
            self._waiting = None

    def _preview(self, change: ModelChange | None) -> Any:
        """The model as it will be after a change."""
        model = _part(self._env, "model", "MjModel")
        if change is not None:
            model = copy.copy(model)
            fields.apply(change, model, copy.copy(self._data(change)))
        return model

    def _data(self, change: ModelChange) -> Any:
        return _part(self._env, "data", "MjData") if change.set_const else None


class PythonModels:
    """The models of the Python envs in this process, as far as anybody has asked for them."""

    def __init__(self, given: Sequence[ModelConfig | None]) -> None:
        self._given = given  # in the configuration of each env
        self._models: dict[int, PythonModel] = {}

    def of(self, env_id: int, env: Any) -> PythonModel:
        model = self._models.get(env_id)
        if model is None:
            model = self._models[env_id] = PythonModel(env)
        return model

    def add_built(self, env_id: int, env: Any) -> None:
        """Takes note of an env that was just built, or built again. Raises ``ConfigError``."""
        given = self._given[env_id]
        if env_id in self._models:
            self._models[env_id].replace_env(env)
        elif given is not None:
            model = PythonModel(env)
            given.put_into(model, env_id)
            self._models[env_id] = model

    def before_reset(self, env_id: int) -> Callable[[], None] | None:
        """What has to be called right before the env's next reset, if anything."""
        model = self._models.get(env_id)
        return None if model is None else model.apply

    def move(self, env_id: int, to: int) -> None:
        """Gives an env another number."""
        if env_id in self._models:
            self._models[to] = self._models.pop(env_id)

    def forget(self) -> None:
        """Drops all references to envs."""
        self._models.clear()

    def __iter__(self) -> Iterator[int]:
        return iter(self._models)


def _part(env: Any, name: str, kind: str) -> Any:
    """The model or the data of an env."""
    mujoco = sys.modules.get("mujoco")  # an env that has a model has imported it
    base = getattr(env, "unwrapped", env)
    part = getattr(base, name, None)
    physics = getattr(getattr(base, "dm_env", None), "physics", None)
    if physics is not None:
        part = getattr(getattr(physics, name, None), "ptr", None)
    if mujoco is None or not isinstance(part, getattr(mujoco, kind)):
        raise UnsupportedError(
            f"expected a MuJoCo {name} (mujoco.{kind}) in env.unwrapped.{name}, got "
            f"{'nothing' if part is None else f'a {type(part).__name__}'} in {type(base).__name__}"
        )
    return part
