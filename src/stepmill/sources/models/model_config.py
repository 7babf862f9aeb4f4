"""``model`` and ``set_const`` in the configuration of an env: changes of its model before its first reset."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from stepmill.errors import ConfigError, InputError, UnknownAttributeError, UnknownConfigError, UnsupportedError
from stepmill.registry.factories import accepted_keys, parameters_of
from stepmill.sources.models.env_model import EnvModel
from stepmill.sources.models.fields import Field, ModelChange, check_names, read_values, value_for
from stepmill.values.arguments import true_or_false

MODEL_KEYS: Mapping[str, Any] = {"model": None, "set_const": False}  # with their defaults


class _Describer(Protocol):
    def describe_model(self, names: Sequence[str]) -> list[Field]: ...


def is_argument_of(creator: Callable[..., Any]) -> bool:
    """Whether an env has its own argument ``model``, or takes any argument: then it means what the env says.

    Gymnasium's MuJoCo envs take any, and pass them on to their base class, which has no such argument.
    """
    if "model" in parameters_of(creator):
        return True
    is_mujoco = any("mujoco" in base.__name__.lower() for base in getattr(creator, "__mro__", ()))
    return accepted_keys(creator) is None and not is_mujoco


@dataclass(frozen=True)
class ModelConfig:
    """What the user gave."""

    fields: Mapping[str, Any]
    set_const: bool

    @classmethod
    def take(cls, config: dict[str, Any]) -> tuple[dict[str, Any], ModelConfig | None]:
        """Splits a configuration: what is left for the env, and what changes in its model."""
        rest = {key: value for key, value in config.items() if key not in MODEL_KEYS}
        fields, set_const = (config.get(key, default) for key, default in MODEL_KEYS.items())
        set_const = true_or_false("set_const", set_const)
        if fields is None and not set_const:
            return rest, None
        try:
            values = read_values(check_names({} if fields is None else fields))
        except InputError as error:
            raise ConfigError(f"model: {error}") from None
        return rest, cls({name: value.copy() for name, value in values.items()}, set_const)

    def change_for(self, model: _Describer, env_id: int) -> ModelChange:
        """Raises ``ConfigError`` if the env has no such model, or if a value does not fit."""
        with _config_errors(env_id):
            described = model.describe_model(list(self.fields))
            values = {
                name: value_for(name, value, field)
                for (name, value), field in zip(self.fields.items(), described, strict=True)
            }
            return ModelChange.of(values, self.set_const)

    def put_into(self, model: EnvModel, env_id: int) -> None:
        """Changes the model of an env that was just built. Raises ``ConfigError``."""
        change = self.change_for(model, env_id)
        with _config_errors(env_id):
            if change.may_be_refused:
                model.try_model(change)
            model.set_model(change)

    def shown(self) -> dict[str, Any]:
        """What the configuration shows of it."""
        return {"model": dict(self.fields), "set_const": self.set_const}


@contextlib.contextmanager
def _config_errors(env_id: int) -> Iterator[None]:
    try:
        yield
    except (UnknownAttributeError, UnsupportedError) as error:
        raise UnknownConfigError(f"model: env {env_id}: {error}") from error.__cause__
    except InputError as error:
        raise ConfigError(f"model: env {env_id}: {error}") from error.__cause__
