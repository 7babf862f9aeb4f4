"""Where a stuck process is: a signal handler in C writes its Python stack, even while it is busy."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import select
import signal
import time

DUMP_SIGNAL = signal.SIGRTMAX - 3

_ANSWER_S = 0.5
_QUIET_S = 0.05  # after this long without more text, the dump is complete


def answer_with_stack(fd: int) -> None:
    """Makes this process write its stack to ``fd`` on ``DUMP_SIGNAL``. A full pipe drops text and never blocks."""
    os.set_blocking(fd, False)
    faulthandler.register(DUMP_SIGNAL, file=fd, all_threads=True, chain=False)


def stop_answering() -> None:
    """Undoes ``answer_with_stack``; the signal does nothing from then on."""
    faulthandler.unregister(DUMP_SIGNAL)
    signal.signal(DUMP_SIGNAL, signal.SIG_IGN)


def read_stack(pidfd: int, dump_fd: int, pid: int) -> str:
    """The stacks of all threads of a process that answers on ``dump_fd``, or why there is none. Takes at most 0.5 s."""
    state = process_state(pid)
    if state in ("T", "t"):
        return f"process {pid} is stopped (by a signal or a debugger)"
    os.set_blocking(dump_fd, False)
    _read_some(dump_fd)  # drops what is left of an earlier dump
    try:
        signal.pidfd_send_signal(pidfd, DUMP_SIGNAL)
    except ProcessLookupError:
        return f"process {pid} is gone"
    text = _read_until_quiet(dump_fd).decode("utf-8", "replace").strip()
    return text or f"process {pid} did not answer; its state is {process_state(pid) or 'unknown'}"


def _read_until_quiet(fd: int) -> bytes:
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    end = time.monotonic() + _ANSWER_S
    text = b""
    while (left := end - time.monotonic()) > 0:
        if not poll.poll((min(left, _QUIET_S) if text else left) * 1000):
            break
        some = _read_some(fd)
        if not some:  # the process is gone
            break
        text += some
    return text


def _read_some(fd: int) -> bytes:
    try:
        return os.read(fd, 1 << 20)
    except BlockingIOError:
        return b""


def process_state(pid: int) -> str:
    """The kernel's letter for what a process does, such as T if it is stopped; empty if that cannot be read."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/stat", "rb") as file:
        # The name of the program, in brackets, may contain anything.
        return file.read().rpartition(b")")[2].split()[0].decode()
    return ""
