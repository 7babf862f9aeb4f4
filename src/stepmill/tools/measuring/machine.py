"""Which machine and which versions a result belongs to. No host names."""

from __future__ import annotations

import datetime
import importlib.metadata
import platform
from typing import Any

from stepmill import _native

PACKAGES = ("stepmill", "envpool", "gymnasium", "numpy", "stable-baselines3", "tianshou", "torch", "jax", "ray")


def cores() -> int:
    """Cores this process may use: affinity mask and cgroup quota included."""
    return _native.available_cores()


def up_to(most: int) -> list[int]:
    """1, 2, 4 and so on, and the number itself."""
    found = [1]
    while found[-1] * 2 < most:
        found.append(found[-1] * 2)
    return sorted({*found, most})


def name() -> str:
    return f"{platform.machine()}-{cores()}"


def describe() -> dict[str, Any]:
    return {
        "machine": name(),
        "architecture": platform.machine(),
        "cores": cores(),
        "cpu": _cpu(),
        "python": platform.python_version(),
        "packages": {package: version(package) for package in PACKAGES},
        "date": datetime.date.today().isoformat(),
    }


def version(package: str) -> str | None:
    """The installed version, or None. A source tree on the path has no metadata: ask the module."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        if package == "stepmill":
            import stepmill

            return stepmill.__version__
        return None


def _cpu() -> str | None:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            for line in file:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        pass
    return None
