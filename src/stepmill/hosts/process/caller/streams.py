"""Where our processes print to: the stdout and stderr of this process."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def standard_streams() -> Iterator[tuple[int, int]]:
    """Descriptors of stdout and stderr: those of the streams, else 1 and 2, else the null device."""
    with contextlib.ExitStack() as opened:
        yield _stream_fd(sys.stdout, 1, opened), _stream_fd(sys.stderr, 2, opened)


def _stream_fd(stream: Any, default: int, opened: contextlib.ExitStack) -> int:
    for find in (lambda: stream.fileno(), lambda: default):
        with contextlib.suppress(Exception):  # the stream of a notebook or a test may do anything
            fd: int = find()
            os.fstat(fd)
            return fd
    fd = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    opened.callback(os.close, fd)
    return fd
