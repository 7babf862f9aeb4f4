"""Attributes and methods of a single env, through its wrappers, in any process."""

from __future__ import annotations

from typing import Any

import gymnasium


def has_attribute(env: Any, name: str) -> bool:
    """Whether the env or one of its wrappers has the attribute."""
    return env.has_wrapper_attr(name) if hasattr(env, "has_wrapper_attr") else hasattr(env, name)


def get_attribute(env: Any, name: str) -> Any:
    """The attribute of the outermost wrapper that has it."""
    return env.get_wrapper_attr(name) if hasattr(env, "get_wrapper_attr") else getattr(env, name)


def set_attribute(env: Any, name: str, value: Any) -> None:
    """Sets an attribute on the layer that has it, or else on the outermost wrapper."""
    if hasattr(env, "set_wrapper_attr"):
        env.set_wrapper_attr(name, value)
    else:
        setattr(env, name, value)


def call_env(env: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Calls a method; an attribute that is not callable is returned as it is."""
    attribute = get_attribute(env, name)
    return attribute(*args, **kwargs) if callable(attribute) else attribute


def class_name(cls: type) -> str:
    """What a class is called in any process; the ``__qualname__`` of a pickled one may change on the way."""
    return f"{cls.__module__}.{cls.__name__}"


def wrapper_names(env: Any) -> set[str]:
    """The names of the classes of an env's wrappers, and of their base classes."""
    names = set()
    while isinstance(env, gymnasium.Wrapper):
        names |= {class_name(one) for one in type(env).__mro__}
        env = env.env
    return names
