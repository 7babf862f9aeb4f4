"""What a failed env means for the caller: an error with the whole batch, or a marked row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from stepmill.errors import EnvError, EnvTimeoutError, WorkerDiedError, summary

__all__ = ["Fault", "FaultPolicy"]

# In the order of sm_fault_phase in cpp/core/env_table.h.
_PHASES = ("reset", "step", "observe", "constructor", "call")
# In the order of Fault::Kind in cpp/core/pool.h.
_KINDS = (EnvError, WorkerDiedError, EnvTimeoutError)


@dataclass(frozen=True)
class Fault:
    """One failure of one env. ``failures`` counts those in a row, with no good step between."""

    env_id: int
    phase: str
    episode: int
    step: int
    failures: int
    message: str
    kind: type[EnvError] = EnvError
    cause: BaseException | None = None

    @classmethod
    def read(cls, fault: tuple[int, int, int, int, int, str, int]) -> Fault:
        """One as the engine tells it."""
        env_id, phase, episode, step, failures, message, kind = fault
        return cls(env_id, _PHASES[phase], episode, step, failures, message, _KINDS[kind])

    def caused_by(self, cause: BaseException | None, phase: str | None = None) -> Fault:
        """The same with the env's own exception, where it is known."""
        if cause is None:
            return self
        return replace(self, cause=cause, message=summary(cause), phase=phase or self.phase)

    def error(self) -> EnvError:
        text = f"env {self.env_id} failed in {self.phase} (episode {self.episode}, step {self.step}): {self.message}"
        kind = type(self.cause) if isinstance(self.cause, EnvError) else self.kind
        error = kind(text, env_id=self.env_id, phase=self.phase, episode=self.episode, step=self.step)
        error.__cause__ = self.cause
        return error


@dataclass(frozen=True)
class FaultPolicy:
    """``on_error`` and ``max_restarts`` of a pool."""

    on_error: str
    max_restarts: int | None  # None: never give up

    def settle_native(self, result: Any, notes: Sequence[Any], faults: Sequence[Any]) -> Any:
        """Called by the engine with a batch of native envs that has failed rows."""
        return self.settle(result, [Fault.read(fault) for fault in faults])

    def settle(self, result: Any, faults: Sequence[Fault]) -> Any:
        """Raises an error that carries the batch, or returns the batch where failures are borne."""
        if self.on_error == "restart" and all(self._is_borne(fault) for fault in faults):
            return result
        raise EnvError.gather([fault.error() for fault in faults], result)

    def _is_borne(self, fault: Fault) -> bool:
        return self.max_restarts is None or fault.failures < max(self.max_restarts, 1)
