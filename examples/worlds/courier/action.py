"""The action: the agent's number becomes a verb."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from stepmill.envs import EnvElement, EnvElementRunner
from stepmill.errors import ActionError, ActionTypeError

from .world import Verb

__all__ = ["CourierAction", "CourierActionRunner"]

_VERBS = tuple(Verb)


class CourierAction(EnvElement):
    """One of the verbs, chosen by its number."""

    _name = "CourierAction"

    def _init(self) -> None:
        self._shape = (len(_VERBS),)
        self._value = {"min": 0, "max": len(_VERBS), "dtype": np.int64}
        self._to_agent_processor = None
        self._from_agent_processor = verb_of

    def _details(self) -> str:
        return ", ".join(f"{verb.value} {verb.name.lower()}" for verb in _VERBS)


class _Engine(Protocol):
    @property
    def agent_action(self) -> Any: ...


class CourierActionRunner(EnvElementRunner):
    """The verb that the agent chose. Remembers it for the picture."""

    def _init(self) -> None:
        self._core = CourierAction()
        self.last: Verb | None = None

    def get(self, engine: _Engine) -> Verb:
        self.last = verb_of(engine.agent_action)
        return self.last

    def reset(self) -> None:
        self.last = None


def verb_of(action: Any) -> Verb:
    """A whole number, or an array with one."""
    number = action.item() if isinstance(action, np.ndarray) and action.size == 1 else action
    if isinstance(number, bool) or not isinstance(number, int | np.integer):
        raise ActionTypeError(f"CourierEnv: expected one whole number as action, got {action!r}")
    if not 0 <= number < len(_VERBS):
        raise ActionError(f"CourierEnv: expected an action from 0 to {len(_VERBS) - 1}, got {number}")
    return _VERBS[number]
