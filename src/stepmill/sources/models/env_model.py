"""The model of one env, as hosts ask for it and as the configuration sets it, wherever the env lives."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np

from stepmill.errors import ConfigError, InputError, UnknownAttributeError, UnknownConfigError, UnsupportedError
from stepmill.registry.factories import accepted_keys, parameters_of
from stepmill.sources.models.fields import Field, ModelChange, check_names, read_values, value_for
from stepmill.system.uninterrupted import uninterrupted
from stepmill.values.arguments import true_or_false

ModelQuestion = Literal["describe_model", "get_model", "try_model", "set_model"]  # the methods below


class EnvModel(Protocol):
    """The model as it will be from the env's next reset on: changes wait until then."""

    def describe_model(self, names: Sequence[str]) -> list[Field]:
        """What values the fields take. Raises ``UnknownAttributeError`` if there is no such field."""
        ...

    def get_model(self, names: Sequence[str]) -> list[np.ndarray]:
        """Copies of the values of fields."""
        ...

    def try_model(self, change: ModelChange) -> None:
        """Raises ``InputError`` if MuJoCo refuses the change, see ``may_be_refused``. Changes nothing."""
        ...

    def set_model(self, change: ModelChange) -> None:
        """The values fit the fields, and MuJoCo was asked if need be. Not called while the env is stepped."""
        ...


def ask_model(model: EnvModel | None, env_id: int, question: ModelQuestion, argument: Any) -> Any:
    """Calls a method of the model. Errors about the question say which env it is."""
    with naming(env_id):
        if model is None:
            raise UnsupportedError("it is native and has no MuJoCo model")
        return getattr(model, question)(argument)


def ask_each(
    question: ModelQuestion, arguments: Sequence[Any], env_ids: Sequence[int], ask: Callable[[int, Any], Any]
) -> list[Any]:
    """``ask(env_id, argument)`` for each env. A signal does not interrupt a change.

    Otherwise some envs would not use the model that ``get_model`` shows.
    """

    def ask_all(_: int | None) -> list[Any]:
        return [ask(env_id, argument) for env_id, argument in zip(env_ids, arguments, strict=True)]

    return uninterrupted(ask_all) if question == "set_model" else ask_all(None)


@contextlib.contextmanager
def naming(env_id: int) -> Iterator[None]:
    """Makes errors about what the user gave say which env it is."""
    try:
        yield
    except (InputError, UnsupportedError) as error:
        raise type(error)(f"env {env_id}: {error}") from error.__cause__


# ---- in the configuration of an env --------------------------------------------------------------

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
