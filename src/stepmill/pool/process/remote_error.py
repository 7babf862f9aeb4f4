"""An exception on its way from a worker to the caller."""

from __future__ import annotations

import contextlib
import pickle
import traceback
from typing import Any

import cloudpickle

from stepmill.errors import RemoteEnvError

__all__ = ["RemoteEnvError", "describe", "rebuild", "summary"]


def describe(error: BaseException) -> bytes:
    """Packs an exception. Never fails: what cannot be had of it is left out."""
    return pickle.dumps(
        {
            "type": type(error).__name__,
            "message": _message(error),
            "traceback": _traceback(error),
            "pickled": _pickled(error),
        }
    )


def rebuild(description: bytes) -> BaseException:
    """The exception itself where it could be pickled, else a stand-in; with the worker's traceback as a note."""
    parts: dict[str, Any] = pickle.loads(description)
    error = _unpickled(parts["pickled"])
    if error is None:
        error = RemoteEnvError(parts["type"], parts["message"])
    with contextlib.suppress(Exception):  # a frozen dataclass takes no notes
        error.add_note(f"In the worker process:\n{parts['traceback']}")
    return error


def summary(description: bytes) -> str:
    """The name of the exception and its message: what ``str`` gave in the worker."""
    parts: dict[str, Any] = pickle.loads(description)
    return f"{parts['type']}: {parts['message']}" if parts["message"] else str(parts["type"])


# An exception is code of the env: its __str__, its __reduce__ and its constructor may raise anything.


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as broken:
        return f"<its __str__ raised {type(broken).__name__}>"


def _traceback(error: BaseException) -> str:
    try:
        return "".join(traceback.format_exception(error)).rstrip()
    except Exception:
        lines = "".join(traceback.format_tb(error.__traceback__))
        return f"Traceback (most recent call last):\n{lines}{type(error).__name__}: {_message(error)}"


def _pickled(error: BaseException) -> bytes | None:
    try:
        pickled: bytes = cloudpickle.dumps(error)
    except Exception:
        return None
    # One whose constructor takes other arguments than it passed on fails only when it is read.
    return pickled if _unpickled(pickled) is not None else None


def _unpickled(pickled: bytes | None) -> BaseException | None:
    if pickled is None:
        return None
    try:
        error = pickle.loads(pickled)
    except Exception:
        return None
    return error if isinstance(error, BaseException) else None
