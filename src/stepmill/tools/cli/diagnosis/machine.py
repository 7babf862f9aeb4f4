"""The machine: cores, memory, and what the kernel or a container allows."""

from __future__ import annotations

import os
import platform
import resource
import sys
from pathlib import Path

from stepmill import _native
from stepmill.system.headless import drawing_libraries
from stepmill.system.numpy_parity import float32_trig_mismatches
from stepmill.system.optional import MUJOCO, is_installed
from stepmill.tools.cli.diagnosis.part import Part

__all__ = ["look_at_limits", "look_at_machine"]

_PER_WORKER = 6  # descriptors
_FEW_FILES = 1024
_FEW_PROCESSES = 64
_SMALL = 1 << 30  # of /dev/shm


def look_at_machine(root: Path = Path("/")) -> Part:
    """Processor, cores, memory, Python."""
    part = Part("machine")
    usable, allowed = _native.available_cores(), len(os.sched_getaffinity(0))
    quota = cgroup_quota(root)
    part.facts = {
        "system": f"{platform.system()} {platform.release()}, {platform.machine()}",
        "processor": _processor(root),
        "cores": f"{usable} for pools, {allowed} allowed, {os.cpu_count()} in the machine",
        "cgroup quota": "none" if quota is None else f"{quota:g} cores",
        "memory": _memory(root),
        "Python": f"{platform.python_version()}, {sys.executable}",
    }
    _look_at_drawing(part)
    if usable == 1:
        part.add("note", "there is one core for pools", "more workers or threads than one will not make envs faster")
    if (least := min(map(float32_trig_mismatches, range(_native.FLOAT32_TRIG_COUNT)))) > 0:
        part.add(
            "warning",
            f"numpy's float32 sine and cosine differ from all of ours, in {least} of some thousand points",
            "observations of Acrobot-v1 may differ from Gymnasium's in the last bit; another version of numpy may help",
        )
    return part


def _look_at_drawing(part: Part) -> None:
    """What MuJoCo's envs can be drawn with; the others draw without any of it."""
    displays = [name for name in ("DISPLAY", "WAYLAND_DISPLAY") if os.environ.get(name)]
    there = [*displays, *(name.upper() for name in drawing_libraries())]
    part.facts["drawing"] = ", ".join(there) if there else "no display, no EGL, no OSMesa"
    if not there and is_installed(MUJOCO):
        part.add(
            "note",
            "MuJoCo's envs cannot be drawn here: there is no display, no EGL and no OSMesa",
            "apt install libegl1 libgl1-mesa-dri (or libosmesa6); to step them, nothing is missing",
        )


def look_at_limits(root: Path = Path("/")) -> Part:
    """Descriptors, processes, memory, and the kernel's own calls."""
    part = Part("limits")
    _look_at_files(part)
    _look_at_processes(part, root)
    _look_at_memory(part)
    _look_at_shared_memory(part, root)
    _look_at_kernel(part, root)
    return part


def _look_at_files(part: Part) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    part.facts["open files"] = f"{_count(soft)}, up to {_count(hard)} with ulimit -n"
    if soft != resource.RLIM_INFINITY and soft < _FEW_FILES:
        workers = soft // _PER_WORKER
        part.add(
            "warning",
            f"a process may have only {soft:,} open files, which is enough for some {workers} worker processes",
            f"ulimit -n {65536 if hard == resource.RLIM_INFINITY else hard}",
        )


def _look_at_processes(part: Part, root: Path) -> None:
    soft, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    most, now = (_number(_cgroup(root, "pids", name)) for name in ("pids.max", "pids.current"))
    part.facts["processes"] = _count(soft) + ("" if most is None else f", {most:,} in this cgroup ({now or 0:,} now)")
    if soft != resource.RLIM_INFINITY and soft < _FEW_PROCESSES:
        part.add("warning", f"this user may have only {soft:,} processes and threads", "raise it: ulimit -u")
    if most is not None and most - (now or 0) < _FEW_PROCESSES:
        part.add(
            "warning",
            f"the cgroup allows {most - (now or 0):,} more processes and threads",
            "raise pids.max of the container (docker run --pids-limit), or use fewer workers",
        )


def _look_at_memory(part: Part) -> None:
    space, _ = resource.getrlimit(resource.RLIMIT_AS)
    locked, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    part.facts["address space"] = _size(space)
    part.facts["locked memory"] = _size(locked)
    if space != resource.RLIM_INFINITY:
        part.add(
            "warning",
            f"the address space is limited to {_size(space)}: pools reserve more than they use",
            "ulimit -v unlimited; to limit memory use a cgroup",
        )


def _look_at_shared_memory(part: Part, root: Path) -> None:
    """Pools have anonymous memory that only a cgroup limits. Games of Doom, and torch's workers, use /dev/shm."""
    try:
        found = os.statvfs(root / "dev/shm")
    except OSError:
        part.facts["/dev/shm"] = "none"
        part.add("warning", "there is no /dev/shm", "pools do without it; ViZDoom needs it: mount a tmpfs there")
        return
    size, free = (found.f_frsize * blocks for blocks in (found.f_blocks, found.f_bavail))
    part.facts["/dev/shm"] = f"{_size(size)}, {_size(free)} free"
    if size < _SMALL:
        part.add(
            "note",
            f"/dev/shm has only {_size(size)}: pools do without it, but each game of ViZDoom takes 11 MB there",
            "docker run --shm-size=1g",
        )


def _look_at_kernel(part: Part, root: Path) -> None:
    """The calls that worker processes cannot do without, and how freely processes may look at each other."""
    for name, call in (("pidfd_open", _pidfd), ("memfd_create", _memfd)):
        try:
            os.close(call())
            part.facts[name] = "works"
        except OSError as error:
            part.facts[name] = f"fails: {error.strerror}"
            part.add(
                "broken",
                f"the system refuses {name}, which worker processes need: {error.strerror}",
                "Linux 5.3 or later has it; in a container, its seccomp profile must allow it (Docker 20.10 or later)",
            )
    scope = _number(_read(root / "proc/sys/kernel/yama/ptrace_scope"))
    part.facts["ptrace_scope"] = "none" if scope is None else str(scope)
    if scope is not None and scope > 1:
        part.add(
            "note",
            f"kernel.yama.ptrace_scope is {scope}: debuggers such as py-spy cannot look into a worker that hangs",
            "sysctl kernel.yama.ptrace_scope=1 allows it; errors of missed deadlines show the stack without it",
        )
    if _read(root / "proc/self/status") is None:
        part.facts["/proc"] = "none"
        part.add("broken", "/proc is not there", "mount it: worker processes are watched through it")


def _pidfd() -> int:
    return os.pidfd_open(os.getpid())


def _memfd() -> int:
    return os.memfd_create("stepmill-doctor", os.MFD_CLOEXEC)


# ---- cgroups -------------------------------------------------------------------------------------


def cgroup_quota(root: Path) -> float | None:
    """How many cores' worth of time a cgroup allows; None if it does not limit it."""
    limit, _, period = (_cgroup(root, "cpu", "cpu.max") or "").partition(" ")
    if not limit:  # version 1
        limit = _cgroup(root, "cpu", "cpu.cfs_quota_us") or ""
        period = _cgroup(root, "cpu", "cpu.cfs_period_us") or ""
    quota, whole = _number(limit), _number(period)
    return None if quota is None or quota < 0 or not whole else quota / whole


def _cgroup(root: Path, controller: str, name: str) -> str | None:
    """A file of this process's cgroup, of version 2 or 1; in a container it is at the top."""
    own = (_read(root / "proc/self/cgroup") or "").splitlines()
    for line in own:
        _, controllers, path = line.split(":", 2)
        top = root / "sys/fs/cgroup"
        if controllers:
            if controller not in controllers.split(","):
                continue
            top /= controller
        for folder in (top / path.lstrip("/"), top):
            found = _read(folder / name)
            if found is not None:
                return found
    return None


def _memory(root: Path) -> str:
    lines = (line.split() for line in (_read(root / "proc/meminfo") or "").splitlines())
    numbers = {words[0].rstrip(":"): int(words[1]) << 10 for words in lines if len(words) > 1}
    limit = _number(_cgroup(root, "memory", "memory.max") or _cgroup(root, "memory", "memory.limit_in_bytes"))
    text = f"{_size(numbers.get('MemTotal', 0))}, {_size(numbers.get('MemAvailable', 0))} available"
    limited = limit is not None and limit < numbers.get("MemTotal", 0)
    return f"{text}, {_size(limit)} in this cgroup" if limited and limit is not None else text


def _processor(root: Path) -> str:
    for line in (_read(root / "proc/cpuinfo") or "").splitlines():
        name, _, value = line.partition(":")
        if name.strip() in ("model name", "Model"):
            return value.strip()
    return platform.processor() or platform.machine()


# ---- numbers -------------------------------------------------------------------------------------


def _read(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return None


def _number(text: str | None) -> int | None:
    """None for "max", and for what is not there."""
    try:
        return None if text is None else int(text)
    except ValueError:
        return None


def _count(limit: int) -> str:
    return "unlimited" if limit == resource.RLIM_INFINITY else f"{limit:,}"


def _size(size: int) -> str:
    if size == resource.RLIM_INFINITY:
        return "unlimited"
    return f"{size / (1 << 30):.1f} GB" if size >= 1 << 30 else f"{size / (1 << 20):.0f} MB"
