"""What a failed env means for the caller: an error with the whole batch, or a marked row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from stepmill.errors import EnvError

__all__ = ["Fault", "FaultPolicy"]

# In the order of sm_fault_phase in cpp/core/env_table.h.
_PHASES = ("reset", "step", "observe")


@dataclass(frozen=True)
class Fault:
    """One failure of one env. ``failures`` counts those in a row, with no good step between."""

    env_id: int
    phase: str
    episode: int
    step: int
    failures: int
    message: str
    cause: BaseException | None = None

    def error(self) -> EnvError:
        text = f"env {self.env_id} failed in {self.phase} (episode {self.episode}, step {self.step}): {self.message}"
        kind = type(self.cause) if isinstance(self.cause, EnvError) else EnvError
        error = kind(text, env_id=self.env_id, phase=self.phase, episode=self.episode, step=self.step)
        error.__cause__ = self.cause
        return error


@dataclass(frozen=True)
class FaultPolicy:
    """``on_error`` and ``max_restarts`` of a pool."""

    on_error: str
    max_restarts: int

    def settle_native(self, result: Any, faults: Sequence[tuple[int, int, int, int, int, str]]) -> Any:
        """Called by the engine with a batch that has failed rows."""
        return self.settle(result, [Fault(f[0], _PHASES[f[1]], *f[2:]) for f in faults])

    def settle(self, result: Any, faults: Sequence[Fault]) -> Any:
        """Raises an error that carries the batch, or returns the batch where failures are borne."""
        if self.on_error == "restart" and all(f.failures < max(self.max_restarts, 1) for f in faults):
            return result
        raise EnvError.gather([fault.error() for fault in faults], result)
