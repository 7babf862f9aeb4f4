"""The model of one env, as hosts ask for it, wherever the env lives."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, Protocol

import numpy as np

from stepmill.errors import InputError, UnsupportedError
from stepmill.sources.models.fields import Field, ModelChange
from stepmill.system.uninterrupted import uninterrupted

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
