"""``backend="auto"`` for Python envs: worker processes or the calling thread, whichever turns out faster.

The envs begin in worker processes. Over the first batches the time that the caller spends in calls is held
against the time that the envs' own code took, which is what the calling thread alone would have needed. If
that is less, as with a few cheap envs, the envs move over, as they stand, with the next action that finds
none of them in flight. (An async pool that always has some in flight stays with its processes.)
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from stepmill.errors import summary
from stepmill.pool.inline import InlinePool
from stepmill.pool.process.pool import ProcessPool
from stepmill.pool.settings import Settings
from stepmill.pool.source import PythonSource

__all__ = ["AutoPool"]

# Batches of steps to look at, at least; the first ones, which find everything cold, are left out. Of quick
# batches as many as take so many seconds: it is a while until everything is warm.
_COLD, _MEASURED, _ENOUGH_S = 3, 12, 0.05
# What an env costs the calling thread beside its own code: the row, the action, the loop.
_INLINE_OVERHEAD_S = 1.5e-6

_log = logging.getLogger("stepmill")


class AutoPool:
    """Has the methods of ``PythonPool``, of whichever pool it has chosen."""

    is_native = False

    def __init__(self, source: PythonSource, settings: Settings) -> None:
        self._source = source
        self._settings = settings
        self._pool: InlinePool | ProcessPool
        # A single env has nobody to run beside.
        self._undecided = settings.num_envs > 1
        self._move_when_idle = False
        self._pool = ProcessPool(source, settings) if self._undecided else InlinePool(source, settings)
        self._batches = 0
        self._waited = 0.0  # by the caller, since the last batch
        self._measured = 0.0  # and in all batches that count
        self._costs: list[tuple[float, float]] = []  # of each batch: to the caller, and of the envs' own code
        self._busy = 0.0

    @property
    def backend(self) -> str:
        return self._pool.backend

    @property
    def observation(self) -> Any:
        return self._pool.observation

    @property
    def action(self) -> Any:
        return self._pool.action

    @property
    def metadata(self) -> dict[str, Any]:
        return self._pool.metadata

    @property
    def num_players(self) -> int:
        return self._pool.num_players

    @property
    def render_mode(self) -> str | None:
        return self._pool.render_mode

    # ---- send and recv -----------------------------------------------------------------------

    def send(self, action: Any, env_id: Any = None) -> None:
        if self._move_when_idle:
            self._move_inline()
        if not self._undecided:
            return self._pool.send(action, env_id)
        began = time.perf_counter()
        self._pool.send(action, env_id)
        self._waited += time.perf_counter() - began
        return None

    def recv(self, timeout: float | None = None) -> Any:
        if not self._undecided:
            return self._pool.recv(timeout)
        began = time.perf_counter()
        result = self._pool.recv(timeout)
        self._measure(began, len(result[1]))
        return result

    def step(self, actions: Any, env_id: Any = None) -> Any:
        if self._move_when_idle:
            self._move_inline()
        if not self._undecided:
            return self._pool.step(actions, env_id)
        began = time.perf_counter()
        result = self._pool.step(actions, env_id)
        self._measure(began, len(result[1]))
        return result

    def _measure(self, began: float, rows: int) -> None:
        waited, self._waited = self._waited + time.perf_counter() - began, 0.0
        busy = self._busy_seconds()
        self._batches += 1
        if self._batches > _COLD:
            self._costs.append((waited, busy - self._busy + rows * _INLINE_OVERHEAD_S))
            self._measured += waited
        self._busy = busy
        if len(self._costs) >= _MEASURED and self._measured >= _ENOUGH_S:
            warm = self._costs[len(self._costs) // 2 :]
            with_processes, alone = (float(np.median(column)) for column in zip(*warm, strict=True))
            self._undecided = False
            self._move_when_idle = alone < with_processes
            self._costs.clear()

    def _busy_seconds(self) -> float:
        return self._pool.busy_seconds

    def _move_inline(self) -> None:
        """Moves the envs, unless some are in flight or cannot be moved. Nothing of what was received is touched."""
        processes = self._pool
        if processes.in_flight_count != 0 or not isinstance(processes, ProcessPool):
            return
        self._move_when_idle = False
        inline: InlinePool | None = None
        try:
            envs, observations, states = processes.move_out()
            inline = InlinePool(self._source, self._settings, envs)
            inline.go_on_from(states, observations)
        except Exception as error:  # an env may refuse to be pickled with anything
            if inline is not None:
                inline.abandon()
            _log.info("the envs stay in worker processes, since they cannot be moved: %s", summary(error))
            return
        self._pool = inline
        processes.abandon()

    # ---- the same on both --------------------------------------------------------------------

    def send_reset(self, env_id: Any, seeds: Sequence[int | None] | None, options: dict[str, Any] | None) -> None:
        self._pool.send_reset(env_id, seeds, options)

    def reset(
        self,
        env_id: Any,
        seeds: Sequence[int | None] | None,
        options: dict[str, Any] | None,
        mask: np.ndarray | None = None,
    ) -> Any:
        return self._pool.reset(env_id, seeds, options, mask)

    def call(self, name: str, env_ids: Sequence[int], args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        return self._pool.call(name, env_ids, args, kwargs)

    def get_attr(self, name: str, env_ids: Sequence[int]) -> list[Any]:
        return self._pool.get_attr(name, env_ids)

    def apply(self, function: Any, env_ids: Sequence[int]) -> list[Any]:
        return self._pool.apply(function, env_ids)

    def seeds(self, env_ids: Sequence[int]) -> list[tuple[int, bool]]:
        return self._pool.seeds(env_ids)

    def set_attr(self, name: str, values: Sequence[Any], env_ids: Sequence[int]) -> None:
        self._pool.set_attr(name, values, env_ids)

    def render(self, env_ids: Sequence[int]) -> tuple[Any, ...]:
        return self._pool.render(env_ids)

    @property
    def closed(self) -> bool:
        return self._pool.closed

    @property
    def in_flight_count(self) -> int:
        return self._pool.in_flight_count

    def check_usable(self) -> None:
        self._pool.check_usable()

    def stats(self) -> dict[str, Any]:
        return self._pool.stats()

    def close(self) -> None:
        self._pool.close()
