"""What the operating system refuses, as an error that says what to do about it."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator

from stepmill.errors import OutOfMemoryError, ResourceError, StepmillError

_FEWER = "or use fewer envs or workers, or close unused pools"
_ADVICE = {
    errno.EMFILE: f"This process has no descriptors left: raise the limit (ulimit -n), {_FEWER}",
    errno.ENFILE: f"The machine has no descriptors left: raise fs.file-max, {_FEWER}",
    errno.EAGAIN: f"No more processes or threads are allowed: raise the limit (ulimit -u, or pids.max of the "
    f"container's cgroup), {_FEWER}",
    errno.ENOMEM: f"There is no memory or no address space left: raise the limit (ulimit -v, or memory.max of the "
    f"container's cgroup), {_FEWER}",
    errno.ENOSPC: f"There is no shared memory left: raise the limit of the container, {_FEWER}",
}


def refusal(number: int, what: str) -> ResourceError:
    """The error for a call that failed with ``number``, an errno."""
    kind = OutOfMemoryError if number == errno.ENOMEM else ResourceError
    return kind(f"{what}. {_ADVICE.get(number, 'The operating system does not allow it')}", number)


@contextlib.contextmanager
def explained_refusals(what: str) -> Iterator[None]:
    """Turns what the system refuses inside into a ``ResourceError``. ``what`` says what could not be done."""
    try:
        yield
    except StepmillError:
        raise
    except MemoryError as error:
        raise refusal(errno.ENOMEM, f"{what}: {type(error).__name__}") from error
    except OSError as error:
        if error.errno is None:  # raised by Python code, such as a TimeoutError of a signal handler
            raise
        raise refusal(error.errno, f"{what}: {error}") from error
