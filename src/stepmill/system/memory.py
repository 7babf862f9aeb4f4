"""How much memory is free, and how much a process has."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path


def free_bytes() -> int:
    """The memory that is available to this process: of the machine, and of the cgroups that it is in."""
    found = re.findall(r"^MemAvailable:\s*(\d+) kB", Path("/proc/meminfo").read_text(), re.MULTILINE)
    free = [int(kilobytes) << 10 for kilobytes in found]
    with contextlib.suppress(OSError, ValueError):  # no cgroup of version 2
        path = Path("/proc/self/cgroup").read_text().rpartition("::")[2].strip()
        folder = Path("/sys/fs/cgroup", path.lstrip("/"))
        for one in (folder, *folder.parents):
            with contextlib.suppress(OSError, ValueError):  # "max"; or the folder is above all cgroups
                free.append(int((one / "memory.max").read_text()) - int((one / "memory.current").read_text()))
    return max(min(free, default=0), 0)


def memory_of(pid: int | None) -> int:
    """The share of a process in the machine's memory (PSS), in bytes; 0 if it cannot be read."""
    try:
        with open(f"/proc/{pid}/smaps_rollup") as lines:
            return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
    except (OSError, StopIteration):
        return 0
