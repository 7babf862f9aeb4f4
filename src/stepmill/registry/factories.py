"""What a function that makes envs accepts, where one is, and how to close an env that is not needed."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from stepmill.errors import UnknownConfigError
from stepmill.registry.description import EnvDescription

REQUIRED = inspect.Parameter.empty
"""Stands for the default of an argument that has none."""

# How other libraries call an argument with wrappers, and what to do here.
WRAPPERS = frozenset({"wrapper", "wrappers", "wrapper_class"})
WRAPPERS_HINT = ": pass a function that makes the env and wraps it, such as make(lambda: Wrapper(Env()), num_envs=8)"


class EnvFactory:
    """A factory of envs that can also tell what it accepts, and what it would make, without making it."""

    # A step takes far longer than it takes to wake a process: `auto` means worker processes, without a trial.
    is_heavy = False

    def __call__(self, **config: Any) -> Any:
        raise NotImplementedError

    def known_keys(self) -> list[str] | None:
        """The keys of a configuration; None if any is accepted."""
        return accepted_keys(self)

    def defaults(self) -> Mapping[str, Any]:
        """The keys that are known, with their defaults: for people who want to know what they can choose."""
        return default_values(self)

    def describe(self, config: Mapping[str, Any]) -> EnvDescription | None:
        """Spaces and the like; None if only an env can tell."""
        return None

    def limited(
        self, config: dict[str, Any], given: int | None, registered: int | None
    ) -> tuple[dict[str, Any], int | None]:
        """The configuration of an env with a time limit, ``given`` by the user or ``registered`` with its id.

        Also returns the limit that the engine applies; None if the env applies it itself.
        """
        return config, given or registered

    def preload(self, config: Mapping[str, Any]) -> None:
        """Imports what an env with this configuration needs: once, in the process that workers are forked from."""


def accepted_keys(factory: Callable[..., Any]) -> list[str] | None:
    """The keyword arguments of a factory; None if it accepts any."""
    if any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters_of(factory).values()):
        return None
    return list(default_values(factory))


def default_values(factory: Callable[..., Any]) -> dict[str, Any]:
    """The keyword arguments of a factory that have a name, with their defaults, or ``REQUIRED``."""
    parameters = parameters_of(factory).items()
    return {n: p.default for n, p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}


def check_keys(name: str, given: Mapping[str, Any], known: Iterable[str] | None, arguments: Iterable[str] = ()) -> None:
    """Raises if a key is not known; the error names it, the nearest known key, and all known keys.

    ``arguments`` are those of ``make``: what is not one of them was taken for a key of the env.
    """
    if known is None:
        return
    known, arguments = list(known), list(arguments)
    for key in given:
        if key in known:
            continue
        listing = ", ".join(known) if known else "none"
        raise UnknownConfigError(
            f"{name} has no config key {key!r}{_hint(key, known, arguments)} Known keys: {listing}"
        )


def _hint(key: Any, known: list[str], arguments: list[str]) -> str:
    if key in WRAPPERS:
        return f"{WRAPPERS_HINT}."
    if key in arguments:
        return ": it is an argument of make, for all envs."
    near = difflib.get_close_matches(str(key), [*known, *arguments], n=1)
    if not near:
        return "."
    if near[0] in known:
        return f", did you mean {near[0]!r}?"
    return f", and make has no such argument: did you mean {near[0]}?"


def parameters_of(factory: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    """The parameters by name. A builtin without a signature accepts anything."""
    try:
        return inspect.signature(factory).parameters
    except (TypeError, ValueError):
        return {"kwargs": inspect.Parameter("kwargs", inspect.Parameter.VAR_KEYWORD)}


def accepts(function: Callable[..., Any], *args: Any, **kwargs: Any) -> bool:
    """Whether a function can be called with these arguments; False if it does not say."""
    try:
        inspect.signature(function).bind(*args, **kwargs)
    except (TypeError, ValueError):
        return False
    return True


def close_env(env: Any) -> Any:
    """Closes an env, if it has a ``close``. Returns what that returns: it may be a coroutine."""
    return env.close() if hasattr(env, "close") else None


def close_quietly(env: Any, finish: Callable[[Any], Any] | None = None) -> None:
    """Closes an env that is not needed. Errors are dropped, they would hide the one that led here; Ctrl-C is not.

    ``finish`` runs a ``close`` that is a coroutine to its end, where the env has a loop.
    """
    try:
        closing = close_env(env)
        if inspect.iscoroutine(closing):
            from stepmill.system.unawaited import let_end

            (finish or let_end)(closing)
    except KeyboardInterrupt:
        raise
    except BaseException:
        pass
