"""Which render modes native envs can have, and which of them need Gymnasium's Python env instead."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stepmill.errors import ConfigError, UnsupportedError


def shared_render_mode(id: str, modes: Sequence[Any]) -> str | None:
    """The render mode of all envs of a native pool, from that of each."""
    for mode in modes:
        if mode is not None and not isinstance(mode, str):
            raise ConfigError(f"render_mode: expected None or a str, got {mode!r:.200}")
        if mode != modes[0]:
            raise ConfigError(
                f"env_config: the envs of one pool share their render_mode, but got {modes[0]!r} and {mode!r}. Python "
                f"envs may differ: make('gymnasium:{id}', ...) runs Gymnasium's own"
            )
    mode = modes[0]
    return None if mode is None else str(mode)


def is_drawn_on_request(id: str, mode: str | None, modes: Sequence[str], backend: str) -> bool:
    """Whether nothing is drawn in this mode unless ``render`` is called. Then the env can be native.

    In the other modes Gymnasium's env draws at every step, into a window or a list. So it has to run itself, and cannot
    on threads. ``modes`` are those of Gymnasium's env; there are none if native envs of this id cannot be drawn.
    """
    drawn = [one for one in modes if one != "human"]
    if mode is None or mode in drawn:
        return True
    every_step = ["human", *(f"{one}_list" for one in drawn)]
    if drawn and mode not in every_step:
        known = ", ".join(map(repr, [*drawn, *every_step]))
        raise ConfigError(f"render_mode: expected None or a mode of {id}, which are {known}, got {mode!r}")
    if backend == "thread":
        why = f"in mode {mode!r} it would be drawn at every step" if drawn else "cannot be drawn"
        raise UnsupportedError(
            f"render_mode: {id} is native, and {why}. make('gymnasium:{id}', backend='inline', render_mode={mode!r}) "
            "runs Gymnasium's own env, if it has one"
        )
    return False
