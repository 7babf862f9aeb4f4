"""What is watched: a pool, whoever has it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from stepmill import _native

__all__ = ["Subject"]


class Subject(NamedTuple):
    """A pool that is watched.

    Attributes:
        engine: Its engine.
        name: What the page is called.
        num_envs: How many envs it has.
        facts: To be shown below it.
        rows: Makes ``(obs, reward, terminated, truncated, info)`` from what the engine returns, if it is not that.
    """

    engine: _native.Engine
    name: str
    num_envs: int
    facts: Sequence[str]
    rows: Callable[[Any], Any] | None = None
