"""Plays a pool and its twins side by side, and compares what they return."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium.vector.utils import concatenate, create_empty_array

from stepmill.errors import EnvError, summary
from stepmill.hosts.infos import engine_keys
from stepmill.settings import Settings
from stepmill.tools.verify.comparing import NOTHING, Mismatch, column_mismatch, info_mismatch
from stepmill.tools.verify.results import Difference
from stepmill.tools.verify.twins import Row, Twin

__all__ = ["SideBySide"]


class SideBySide:
    """Plays a pool and its twins, and compares them batch by batch."""

    def __init__(self, pool: Any, twins: Sequence[Twin], settings: Settings) -> None:
        self._pool = pool
        self._twins = twins
        self._autoreset = settings.autoreset
        # What the engine adds has no counterpart in a single env, except the end of an episode that it has reset.
        finals = {"final_obs", "_final_obs", "final_info", "_final_info"}
        self._left_out = engine_keys(settings.autoreset) - finals
        self._order = ("obs", "reward", "terminated", "truncated")
        if settings.autoreset == "same_step":  # if only one has ended, its observation is of another episode
            self._order = ("terminated", "truncated", "reward", "obs")

    def play(self, steps: int, progress: Callable[[int], None] = lambda steps: None) -> Difference | None:
        """Until so many steps are compared, or something differs. ``progress`` is told how many more there are."""
        ready: Sequence[int] = range(len(self._twins))
        difference = self._reset(ready)
        while difference is None and sum(twin.steps for twin in self._twins) < steps:
            self._pool.send(self._actions(ready), np.array(ready))
            ready, difference = self._receive()
            progress(len(ready))
            if difference is None and self._autoreset == "disabled":
                difference = self._reset([env_id for env_id in ready if self._twins[env_id].ended])
        return difference

    def _actions(self, env_ids: Sequence[int]) -> Any:
        space = self._pool.single_action_space
        actions = [self._twins[env_id].choose_action() for env_id in env_ids]
        empty: Any = create_empty_array(space, len(actions))
        return concatenate(space, actions, empty)

    def _reset(self, env_ids: Sequence[int]) -> Difference | None:
        if not env_ids:
            return None
        (obs, info), failures = _outcome(lambda: self._pool.reset(np.array(env_ids)))
        rows = ((row, self._twins[env_id], self._twins[env_id].reset) for row, env_id in enumerate(env_ids))
        return self._first_difference(rows, {"obs": obs}, info, failures)

    def _receive(self) -> tuple[list[int], Difference | None]:
        (*columns, info), failures = _outcome(self._pool.recv)
        fields = dict(zip(("obs", "reward", "terminated", "truncated"), columns, strict=True))
        env_ids: list[int] = info["env_id"].tolist()
        rows = ((row, self._twins[env_id], self._twins[env_id].step) for row, env_id in enumerate(env_ids))
        return env_ids, self._first_difference(rows, fields, info, failures)

    def _first_difference(
        self,
        rows: Iterable[tuple[int, Twin, Callable[[], Row]]],
        fields: Mapping[str, Any],
        info: Mapping[Any, Any],
        failures: Mapping[int, EnvError],
    ) -> Difference | None:
        """Plays the twins of these rows until one differs."""
        for row, twin, play in rows:
            found = self._row_mismatch(row, play, fields, info, failures.get(twin.env_id))
            if found is not None:
                return twin.difference(found)
        return None

    def _row_mismatch(
        self,
        row: int,
        play: Callable[[], Row],
        fields: Mapping[str, Any],
        info: Mapping[Any, Any],
        failure: EnvError | None,
    ) -> Mismatch | None:
        try:
            theirs = play()
        except Exception as error:
            if failure is not None:  # both failed, so there is nothing to compare
                raise failure from error
            return Mismatch("exception", NOTHING, summary(error))
        if failure is not None:
            return Mismatch("exception", summary(failure), NOTHING)
        for name in self._order:
            if name not in fields:  # a reset has only an observation
                continue
            found = column_mismatch(name, fields[name], row, theirs.fields[name])
            if found is not None:
                return found
        return info_mismatch("info", info, row, theirs.info, self._left_out)


def _outcome(call: Callable[[], Any]) -> tuple[Any, dict[int, EnvError]]:
    """What a call to the pool returned, and the errors of the envs that failed in it."""
    try:
        return call(), {}
    except EnvError as error:
        if error.batch is None:
            raise
        return error.batch, {one.env_id: one for one in error.errors if one.env_id is not None}
