"""Ends coroutines whose result nobody needs."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Coroutine
from typing import Any

_ending: set[asyncio.Task[Any]] = set()  # a loop itself holds its tasks only weakly


def let_end(coroutine: Coroutine[Any, Any, Any]) -> None:
    """Runs a coroutine to its end: beside what else the loop of this thread does, or at once if there is none."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        asyncio.run(coroutine)
        return
    task = loop.create_task(coroutine, context=contextvars.Context())
    _ending.add(task)
    task.add_done_callback(_end_quietly)


def _end_quietly(task: asyncio.Task[Any]) -> None:
    _ending.discard(task)
    if not task.cancelled():
        task.exception()  # looked at: otherwise asyncio would show it
