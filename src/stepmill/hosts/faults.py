"""What a failed env means for the caller: an error with the whole batch, or a marked row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from stepmill.errors import EnvError, EnvTimeoutError, WorkerDiedError, import_hint, summary

# In the order of sm_fault_phase in cpp/core/env/env_table.h.
_PHASES = ("reset", "step", "observe", "constructor", "call")
# In the order of Fault::Kind in cpp/core/fault_log.h.
_KINDS = (EnvError, WorkerDiedError, EnvTimeoutError, WorkerDiedError)
_UNPLACED = 3


class _NoteOfError(Protocol):
    """The exception of an env that came with its row: a ``Note``."""

    @property
    def error(self) -> BaseException | None: ...
    @property
    def phase(self) -> str | None: ...
    @property
    def message(self) -> str | None: ...


@dataclass(frozen=True)
class Fault:
    """One failure of one env. ``failures`` counts consecutive ones, without a good step between them."""

    env_id: int
    phase: str
    episode: int
    step: int
    failures: int
    message: str
    kind: type[EnvError] = EnvError
    cause: BaseException | None = None
    is_final: bool = False  # to go on would only fail again

    @classmethod
    def read(cls, fault: tuple[int, int, int, int, int, str, int]) -> Fault:
        """Reads a fault from the tuple that the engine reports."""
        env_id, phase, episode, step, failures, message, kind = fault
        return cls(env_id, _PHASES[phase], episode, step, failures, message, _KINDS[kind], is_final=kind == _UNPLACED)

    @classmethod
    def in_call(cls, env_id: int, phase: str, error: BaseException) -> EnvError:
        """The error for what an env raised outside of its steps and resets."""
        return cls(env_id, phase, 0, 0, 1, "").caused_by(error).error()

    def caused_by(self, cause: BaseException | None, phase: str | None = None, message: str | None = None) -> Fault:
        """The same fault with the env's own exception, if it is known; ``message`` is that exception's text."""
        if cause is None:
            return self
        said = summary(cause) if message is None else message + import_hint(cause)
        return replace(self, cause=cause, message=said, phase=phase or self.phase)

    def with_cause(self, raised: _NoteOfError | None) -> Fault:
        """The same fault with the exception that came with the env's row, if any."""
        if raised is None:
            return self
        if isinstance(raised.error, EnvTimeoutError):  # ours: the worker has interrupted the env at its deadline
            return replace(self, kind=EnvTimeoutError, message=str(raised.error), phase=raised.phase or self.phase)
        return self.caused_by(raised.error, raised.phase, raised.message or self.message)

    def error(self) -> EnvError:
        text = f"env {self.env_id} failed in {self.phase} (episode {self.episode}, step {self.step}): {self.message}"
        # The class of the cause if it is one of ours. A subclass of the user's may have another constructor.
        kinds = type(self.cause).__mro__ if isinstance(self.cause, EnvError) else ()
        kind = next((one for one in kinds if one.__module__ == EnvError.__module__), self.kind)
        error: EnvError = kind(text, env_id=self.env_id, phase=self.phase, episode=self.episode, step=self.step)
        error.__cause__ = self.cause
        return error


@dataclass
class FaultPolicy:
    """``on_error`` and ``max_restarts`` of a pool."""

    on_error: str
    max_restarts: int | None  # None: never give up
    raises_all: bool = False  # in sessions: each failure is raised, to the owner of the env

    def error_of(self, faults: Sequence[Fault]) -> EnvError | None:
        """The error that the engine raises with the batch; None if nothing failed, or every failure is tolerated."""
        if not faults or (self._tolerates_some and all(map(self._is_tolerated, faults))):
            return None
        return EnvError.gather([fault.error() for fault in faults])

    @property
    def _tolerates_some(self) -> bool:
        return self.on_error == "restart" and not self.raises_all

    def _is_tolerated(self, fault: Fault) -> bool:
        return not fault.is_final and (self.max_restarts is None or fault.failures < max(self.max_restarts, 1))


class contained:  # used like a function
    """Turns exceptions that would end the caller's program, above all ``sys.exit`` in an env, into an ``EnvError``.

    KeyboardInterrupt passes through: it may be the user's Ctrl-C. A class and not a generator, because a signal handler
    that raises before the block begins would close the generator with an exception of the same kind.
    """

    def __init__(self, env_id: int, phase: str) -> None:
        self._env_id = env_id
        self._phase = phase

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if error is None or isinstance(error, Exception | KeyboardInterrupt):
            return
        raise Fault.in_call(self._env_id, self._phase, error) from error
