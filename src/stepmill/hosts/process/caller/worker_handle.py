"""The caller's end of a worker."""

from __future__ import annotations

from dataclasses import dataclass, field

from stepmill.hosts.process.stack import read_stack
from stepmill.hosts.process.wire import Wire, close_all


@dataclass
class WorkerHandle:
    """A worker process and the caller's ends of it. Its stack can be read from ``dump_fd``."""

    worker_id: int
    incarnation: int
    envs: tuple[int, int]
    wire: Wire
    pidfd: int
    pid: int
    dump_fd: int
    template: int  # the pid of the process that forked it; the worker dies with it
    ready_payload: bytes | None = None
    is_ready: bool = False
    is_closed: bool = field(default=False, repr=False)

    def stack(self) -> str:
        """The Python stack of the worker; takes at most half a second."""
        return read_stack(self.pidfd, self.dump_fd, self.pid)

    def close(self) -> None:
        """Closes the descriptors. Does not end the process."""
        if not self.is_closed:
            self.is_closed = True
            self.wire.close()
            close_all((self.pidfd, self.dump_fd))
