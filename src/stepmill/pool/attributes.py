"""Attributes and methods of a single env, through its wrappers: wherever it runs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from stepmill.pool.faults import Fault

__all__ = ["call_env", "contained", "get_attribute", "set_attribute"]


def get_attribute(env: Any, name: str) -> Any:
    """The attribute of the outermost wrapper that has it."""
    return env.get_wrapper_attr(name) if hasattr(env, "get_wrapper_attr") else getattr(env, name)


def set_attribute(env: Any, name: str, value: Any) -> None:
    """Sets it where it is, else on the outermost wrapper."""
    if hasattr(env, "set_wrapper_attr"):
        env.set_wrapper_attr(name, value)
    else:
        setattr(env, name, value)


def call_env(env: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Calls a method; what is not callable is returned as it is."""
    attribute = get_attribute(env, name)
    return attribute(*args, **kwargs) if callable(attribute) else attribute


@contextlib.contextmanager
def contained(env_id: int, phase: str) -> Iterator[None]:
    """Makes an ``EnvError`` of what would end the caller's program: ``sys.exit`` in an env, above all.

    KeyboardInterrupt stays what it is: it may well be the user's Ctrl-C.
    """
    try:
        yield
    except (Exception, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise Fault(env_id, phase, 0, 0, 1, "").caused_by(error).error() from error
