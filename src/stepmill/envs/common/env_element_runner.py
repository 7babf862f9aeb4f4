"""Runners of env elements: they keep what changes during an episode."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from stepmill.envs.common.env_element import EnvElement, IEnvElement
from stepmill.errors import ConfigError

__all__ = ["EnvElementRunner", "IEnvElementRunner"]


class IEnvElementRunner(IEnvElement):
    """An element at work in one env."""

    @abstractmethod
    def get(self, engine: Any) -> Any:
        """The element's current value. ``engine`` is the env: read it here, and keep no reference to it."""

    @abstractmethod
    def reset(self, *args: Any, **kwargs: Any) -> None:
        """Forgets the last episode. The env calls it when one starts, with what the runner needs to know about it."""


class EnvElementRunner(IEnvElementRunner):
    """Keeps the state of one element in one env; ``info`` and ``repr`` are the element's.

    A subclass writes ``_init``, which sets ``_core`` (the ``EnvElement``) and its own state, ``get`` and ``reset``; it
    may extend ``_check`` (call the inherited one first).
    """

    _core: EnvElement

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._init(*args, **kwargs)
        self._check()

    @abstractmethod
    def _init(self, *args: Any, **kwargs: Any) -> None:
        """Sets ``_core`` and the state."""

    def _check(self) -> None:
        """Raises a ``ConfigError`` if the runner has no element."""
        expected = f"{type(self).__name__}: expected _init to set _core to an EnvElement, got "
        if not hasattr(self, "_core"):
            raise ConfigError(f"{expected}no _core")
        if not isinstance(self._core, EnvElement):
            forgotten = isinstance(self._core, type) and issubclass(self._core, EnvElement)
            raise ConfigError(f"{expected}{self._core!r}{', the class itself: call it' if forgotten else ''}")

    @property
    def info(self) -> Any:
        """The element's own."""
        return self._core.info

    def __repr__(self) -> str:
        return repr(self._core)
