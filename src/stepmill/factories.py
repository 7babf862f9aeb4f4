"""Functions that make envs, and the end of an env that nobody uses."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["accepted_keys", "close_quietly", "parameters_of"]


def accepted_keys(factory: Callable[..., Any]) -> list[str] | None:
    """The keyword arguments of a factory; None where it takes any."""
    parameters = parameters_of(factory)
    if any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values()):
        return None
    return [n for n, p in parameters.items() if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]


def parameters_of(factory: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    """Its parameters by name. Of a builtin that does not say: any."""
    try:
        return inspect.signature(factory).parameters
    except (TypeError, ValueError):
        return {"kwargs": inspect.Parameter("kwargs", inspect.Parameter.VAR_KEYWORD)}


def close_quietly(env: Any) -> None:
    """Closes an env that nobody uses; its error would hide the one that led here. Ctrl-C is no error of it."""
    try:
        env.close()
    except KeyboardInterrupt:
        raise
    except BaseException:
        pass
