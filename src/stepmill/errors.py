"""Every exception that stepmill raises.

::

    StepmillError
    ├── ConfigError             (ValueError)         an invalid argument of make(), or an invalid seed
    │   ├── UnknownEnvError     (KeyError)           no env has that id
    │   ├── UnknownConfigError  (KeyError)           the env has no such configuration key
    │   ├── MissingConfigError  (KeyError)           a configuration lacks a key that the env needs
    │   ├── SpaceError          (TypeError)          a wrapper or an adapter cannot handle that space
    │   └── CompileError                             the file of an env does not compile, or cannot be loaded
    ├── InputError              (ValueError)         invalid input to send, step, reset or call
    │   ├── ActionError                              wrong shape, count or value
    │   │   └── ActionTypeError (TypeError)          not numbers, or numbers of the wrong type
    │   ├── EnvIdError          (IndexError)         out of range, repeated or missing
    │   ├── ResetOptionError                         the env has no such reset option
    │   ├── StateError                               a saved state that is damaged, or of another env
    │   └── UnknownAttributeError (AttributeError)   a native env has no such attribute
    ├── UsageError              (RuntimeError)       the right call at the wrong time
    │   ├── InFlightError                            that env has an action under way
    │   ├── NothingInFlightError                     recv() would wait forever
    │   ├── NeedsResetError                          the episode is over and autoreset is off
    │   ├── ClosedError                              the pool is closed
    │   ├── ForkedError                              the pool belongs to the parent process
    │   ├── ConcurrentUseError                       another call is inside the pool
    │   └── UnsupportedError    (NotImplementedError) the backend, the env or the view cannot do that
    │       └── CopyError       (TypeError)          a pool or a manager cannot be copied or pickled
    ├── BrokenPoolError         (RuntimeError)       envs overwrote memory of the pool: close it
    ├── MissingPackageError     (ImportError)        an optional package is not installed
    ├── ResourceError           (OSError)            the system refuses descriptors, processes or threads
    │   └── OutOfMemoryError    (MemoryError)        or memory
    ├── RecvTimeoutError        (TimeoutError)       recv(timeout=...) found no complete batch
    ├── SessionTimeoutError     (TimeoutError)       session(timeout=...) found no env that is free
    ├── RemoteEnvError                               stands for an exception of a worker that cannot be pickled
    └── EnvError                (RuntimeError)       an env failed; carries the whole batch
        ├── ObservationError    (ValueError)         an observation does not fit its space
        ├── EnvTimeoutError     (TimeoutError)       an env, or its construction, took longer than allowed
        └── WorkerDiedError                          the process that ran the env is gone

The standard type in brackets is a base class too, so ``except ValueError`` works. So is Gymnasium's own error if it has
one: ``UnregisteredEnv`` of UnknownEnvError, ``InvalidAction`` of ActionError, ``AlreadyPendingCallError`` of
InFlightError, ``NoAsyncCallError`` of NothingInFlightError, ``ResetNeeded`` of NeedsResetError,
``ClosedEnvironmentError`` of ClosedError, ``DependencyNotInstalled`` of MissingPackageError.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from gymnasium import error as gymnasium_error

__all__ = [
    "ActionError",
    "ActionTypeError",
    "BrokenPoolError",
    "ClosedError",
    "CompileError",
    "ConcurrentUseError",
    "ConfigError",
    "CopyError",
    "EnvError",
    "EnvIdError",
    "EnvTimeoutError",
    "ForkedError",
    "InFlightError",
    "InputError",
    "MissingConfigError",
    "MissingPackageError",
    "NeedsResetError",
    "NothingInFlightError",
    "ObservationError",
    "OutOfMemoryError",
    "RecvTimeoutError",
    "RemoteEnvError",
    "ResetOptionError",
    "ResourceError",
    "SessionTimeoutError",
    "SpaceError",
    "StateError",
    "StepmillError",
    "UnknownAttributeError",
    "UnknownConfigError",
    "UnknownEnvError",
    "UnsupportedError",
    "UsageError",
    "WorkerDiedError",
]


def summary(error: BaseException) -> str:
    """``ValueError: what it says``, even if its ``__str__`` raises. For our messages, not part of the interface."""
    name = type(error).__name__
    try:
        text = str(error)
    except KeyboardInterrupt:
        raise
    except BaseException as broken:
        text = f"<its __str__ raised {type(broken).__name__}>"
    if isinstance(error, RemoteEnvError):  # its text has the name of the original
        return text
    text += import_hint(error)
    return f"{name}: {text}" if text else name


def import_hint(error: BaseException) -> str:
    """What to add if ``gymnasium.make``, in an env's own code, does not know an id."""
    if not isinstance(error, gymnasium_error.NameNotFound | gymnasium_error.NamespaceNotFound):
        return ""
    return " Gymnasium knows the ids of a package once it is imported: for Atari, add `import ale_py` to your env"


class StepmillError(Exception):
    """The root: every exception of stepmill is one."""

    # KeyError would show the repr of the message.
    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class ConfigError(StepmillError, ValueError):
    """An invalid argument of ``make``, or an invalid seed."""


class UnknownEnvError(ConfigError, KeyError, gymnasium_error.UnregisteredEnv):
    """No env has that id; the message suggests similar ones."""


class UnknownConfigError(ConfigError, KeyError):
    """The env has no such configuration key; the message lists the known ones."""


class MissingConfigError(ConfigError, KeyError):
    """A configuration lacks a key; the message names the required and the present ones."""


class SpaceError(ConfigError, TypeError):
    """A wrapper or an adapter cannot handle that space."""


class CompileError(ConfigError):
    """The file of an env does not compile, or the library cannot be loaded.

    ``output`` is all that the compiler said.
    """

    def __init__(self, message: str, output: str = "") -> None:
        super().__init__(message)
        self.output = output

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self), self.output)


class InputError(StepmillError, ValueError):
    """Invalid input to ``send``, ``step``, ``reset``, ``call`` or the like. Nothing was queued."""


class ActionError(InputError, gymnasium_error.InvalidAction):
    """An action of the wrong shape, count or value."""


class ActionTypeError(ActionError, TypeError):
    """An action that is not numeric, or has the wrong type of numbers."""


class EnvIdError(InputError, IndexError):
    """Env ids that are out of range, repeated or missing."""


class ResetOptionError(InputError):
    """The env has no such reset option."""


class StateError(InputError):
    """A saved state that is damaged, of another env or configuration, or saved by another version."""


class UnknownAttributeError(InputError, AttributeError):
    """A native env has no such attribute, or a model no such field; the message lists or suggests others."""


class UsageError(StepmillError, RuntimeError):
    """The right call at the wrong time. Nothing was changed."""


class InFlightError(UsageError, gymnasium_error.AlreadyPendingCallError):
    """The env has an action under way."""

    name = "send"  # the name of the call, an attribute of Gymnasium's error

    def __init__(self, message: str) -> None:
        RuntimeError.__init__(self, message)


class NothingInFlightError(UsageError, gymnasium_error.NoAsyncCallError):
    """``recv`` with nothing in flight would wait forever."""

    name = "recv"

    def __init__(self, message: str) -> None:
        RuntimeError.__init__(self, message)


class NeedsResetError(UsageError, gymnasium_error.ResetNeeded):
    """The episode is over and autoreset is disabled."""


class ClosedError(UsageError, gymnasium_error.ClosedEnvironmentError):
    """The pool is closed."""


class ForkedError(UsageError):
    """The pool was made by the parent of this forked process."""


class ConcurrentUseError(UsageError):
    """Another call is inside the pool: from another thread, or further up in this one."""


class UnsupportedError(UsageError, NotImplementedError):
    """The backend, the env or the view cannot do that."""


class CopyError(UnsupportedError, TypeError):
    """A pool or a manager cannot be copied or pickled: its threads, processes and envs exist once."""


class BrokenPoolError(StepmillError, RuntimeError):
    """An env overwrote memory that the pool shares with its workers, and it cannot be repaired.

    Every later call raises this too. ``close()`` the pool and make it again.
    """


class MissingPackageError(StepmillError, ImportError, gymnasium_error.DependencyNotInstalled):
    """An optional package is not installed; the message says how to install it."""


class ResourceError(StepmillError, OSError):
    """The operating system refuses what a pool needs; ``errno`` says why, and the message what to do."""

    def __init__(self, message: str, number: int | None = None) -> None:
        super().__init__(message)
        self.errno = number
        self.strerror = None if number is None else os.strerror(number)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self), self.errno)


class OutOfMemoryError(ResourceError, MemoryError):
    """The operating system refuses memory or address space."""


class RecvTimeoutError(StepmillError, TimeoutError):
    """``recv(timeout=...)`` found no complete batch in time. Everything stays in flight."""


class SessionTimeoutError(StepmillError, TimeoutError):
    """``session(timeout=...)``: no env of the pool became free in time."""


class RemoteEnvError(StepmillError):
    """Stands for an exception of a worker process that cannot be pickled: its name, its message, its traceback.

    Never raised directly: it is the ``__cause__`` of an ``EnvError``. ``base`` is the nearest built-in base class.
    """

    def __init__(self, type_name: str, message: str, base: type[BaseException] = Exception) -> None:
        super().__init__(type_name, message)
        self.type_name = type_name
        self.message = message
        self.base = base

    def __str__(self) -> str:
        return f"{self.type_name}: {self.message}" if self.message else self.type_name


class EnvError(StepmillError, RuntimeError):
    """An env failed: in its constructor, ``reset``, ``step`` or elsewhere.

    Raised by ``recv``, ``step`` and ``reset`` after the batch is complete, so nothing is lost:
    ``batch`` is what the call would have returned, with the failed rows marked in
    ``info["abnormal"]``, and ``errors`` has one error for every failed row, this one first.
    For a Python env, its own exception is the ``__cause__``.
    """

    batch: Any = None

    def __init__(
        self,
        message: str,
        *,
        env_id: int | None = None,
        phase: str | None = None,
        episode: int | None = None,
        step: int | None = None,
    ) -> None:
        super().__init__(message)
        self.env_id = env_id
        self.phase = phase
        self.episode = episode
        self.step = step
        self._others: tuple[EnvError, ...] = ()

    @property
    def errors(self) -> list[EnvError]:
        """One error per failed row. Made on demand: an error that held itself would keep its batch alive."""
        return [self, *self._others]

    @classmethod
    def gather(cls, errors: Sequence[EnvError], batch: Any = None) -> EnvError:
        """The first of the errors, carrying the others and the batch."""
        first = errors[0]
        first._others = tuple(errors[1:])
        first.batch = batch
        return first


class ObservationError(EnvError, ValueError):
    """An env returned an observation that does not fit its space; docs/interface.md says what is checked."""


class EnvTimeoutError(EnvError, TimeoutError):
    """An env ran longer than ``step_timeout`` or ``reset_timeout``, or was not built within ``start_timeout``.

    The message contains the Python stack of the worker process at that time. Also: an actor of Ray was silent for more
    than its ``node_timeout``.
    """


class WorkerDiedError(EnvError):
    """What ran the env, a worker process or an actor, is gone: it exited, crashed, or was killed or ended."""
