"""The action: the agent's number becomes a move of the boat."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from stepmill.envs import EnvElement, EnvElementRunner
from stepmill.errors import ActionError, ActionTypeError

from .world import Move

_MOVES = tuple(Move)


class TemplateAction(EnvElement):
    """One of the moves, by its number. An element describes; it has no state, and one instance for all envs."""

    _name = "TemplateAction"

    def _init(self) -> None:
        self._shape = (len(_MOVES),)
        self._value = {"min": 0, "max": len(_MOVES), "dtype": np.int64}
        self._to_agent_processor = None
        self._from_agent_processor = move_of

    def _details(self) -> str:
        return ", ".join(f"{number} {move.name.lower()}" for number, move in enumerate(_MOVES))


class _Engine(Protocol):
    @property
    def agent_action(self) -> Any: ...


class TemplateActionRunner(EnvElementRunner):
    """The move that the agent chose."""

    def _init(self) -> None:
        self._core = TemplateAction()

    def get(self, engine: _Engine) -> Move:
        """Reads the action that the env was given."""
        return move_of(engine.agent_action)

    def reset(self) -> None:
        """Nothing to forget."""


def move_of(action: Any) -> Move:
    """From a whole number, or an array with one."""
    number = action.item() if isinstance(action, np.ndarray) and action.size == 1 else action
    if isinstance(number, bool) or not isinstance(number, int | np.integer):
        raise ActionTypeError(f"TemplateEnv: action: expected one whole number, got {action!r}")
    if not 0 <= number < len(_MOVES):
        raise ActionError(f"TemplateEnv: action: expected a number from 0 to {len(_MOVES) - 1}, got {number}")
    return _MOVES[number]
