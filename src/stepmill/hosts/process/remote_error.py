"""An exception on its way from a worker to the caller."""

from __future__ import annotations

import builtins
import pickle
import traceback
from typing import Any

from stepmill.errors import EnvError, RemoteEnvError, StateError
from stepmill.hosts.process import outgoing
from stepmill.system.uninterrupted import try_or


def describe(error: BaseException) -> bytes:
    """Packs an exception. Never fails: parts that cannot be packed are left out."""
    return pickle.dumps(
        {
            "type": type(error).__name__,
            "base": _base(error),
            "message": _message(error),
            "traceback": _traceback(error),
            "pickled": _pickled(error),
            "cause": _cause(error),
        }
    )


def rebuild(description: bytes) -> BaseException:
    """The exception itself if it could be pickled, otherwise a stand-in; with the worker's traceback as a note."""
    parts: dict[str, Any] = pickle.loads(description)
    pickled: bytes | None = parts["pickled"]
    error = None if pickled is None else try_or(lambda: pickle.loads(pickled), lambda _: None)
    if not isinstance(error, BaseException):
        error = RemoteEnvError(parts["type"], parts["message"], getattr(builtins, parts["base"], Exception))
    if parts["cause"] is not None:
        error.__cause__ = rebuild(parts["cause"])
    note = f"In the worker process:\n{parts['traceback']}"
    try_or(lambda: BaseException.add_note(error, note), lambda _: None)  # a frozen dataclass takes no notes
    return error


def summary(description: bytes) -> str:
    """The name of the exception and its message, as ``str`` returned it in the worker."""
    parts: dict[str, Any] = pickle.loads(description)
    return f"{parts['type']}: {parts['message']}" if parts["message"] else str(parts["type"])


# An exception may be the env's own class: its __str__, its __reduce__ and its constructor may raise anything.


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except BaseException as broken:
        return f"<its __str__ raised {type(broken).__name__}>"


def _base(error: BaseException) -> str:
    """The name of its nearest built-in class. ``__module__`` does not tell: some extensions say "builtins"."""
    try:
        return next(str(one.__name__) for one in type(error).__mro__ if getattr(builtins, one.__name__, None) is one)
    except BaseException:
        return "Exception"


def _traceback(error: BaseException) -> str:
    try:
        return "".join(traceback.format_exception(error)).rstrip()
    except BaseException:
        lines = "".join(traceback.format_tb(error.__traceback__))
        return f"Traceback (most recent call last):\n{lines}{type(error).__name__}: {_message(error)}"


def _cause(error: BaseException) -> bytes | None:
    """What the env raised, which pickling leaves out of our own errors about an env."""
    cause = error.__cause__ if isinstance(error, EnvError | StateError) else None
    return None if cause is None or isinstance(cause, EnvError) else describe(cause)


def _pickled(error: BaseException) -> bytes | None:
    try:
        pickled = outgoing.pickled(error)
        # An exception whose constructor takes other arguments than it passes to its base fails only on unpickling.
        return pickled if isinstance(pickle.loads(pickled), BaseException) else None
    except BaseException:
        return None
