"""Attributes of an env by name, through the adapter around it."""

from __future__ import annotations

from typing import Any

import gymnasium

__all__ = ["InnerAttributes"]


class InnerAttributes(gymnasium.Env[Any, Any]):
    """An adapter whose ``get_wrapper_attr`` also finds the attributes of ``_inner``, the env inside."""

    _inner: Any

    def _owner(self, name: str) -> Any:
        """The object that has an attribute: this one if it is its own, else the env."""
        return self if name in vars(self) or not hasattr(self._inner, name) else self._inner

    def has_wrapper_attr(self, name: str) -> bool:
        return hasattr(self._owner(name), name)

    def get_wrapper_attr(self, name: str) -> Any:
        return getattr(self._owner(name), name)

    def set_wrapper_attr(self, name: str, value: Any, *, force: bool = True) -> bool:
        known = self.has_wrapper_attr(name)
        if not known and not force:
            return False
        setattr(self._owner(name) if known else self._inner, name, value)
        return True
