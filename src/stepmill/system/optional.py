"""Packages that only some users need: imported when they are used, with a helpful error if they are missing."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import platform
from collections.abc import Iterator
from types import ModuleType
from typing import Any, NamedTuple

from stepmill.errors import MissingPackageError, summary


class Package(NamedTuple):
    """A package that an extra of ours installs. ``require(*package, user)`` imports it."""

    module: str
    name: str
    extra: str


# Packages of envs.
ALE = Package("ale_py", "ale-py", "atari")
MUJOCO = Package("mujoco", "mujoco", "mujoco")
DM_CONTROL = Package("dm_control", "dm-control", "dm-control")
ROBOTICS = Package("gymnasium_robotics", "gymnasium-robotics", "robotics")
VIZDOOM = Package("vizdoom", "vizdoom", "vizdoom")
MINIGRID = Package("minigrid", "minigrid", "minigrid")
PETTINGZOO = Package("pettingzoo", "pettingzoo", "pettingzoo")
MPE2 = Package("mpe2", "mpe2", "pettingzoo")
HIGHWAY = Package("highway_env", "highway-env", "highway")
BOX2D = Package("Box2D", "Box2D", "box2d")
METAWORLD = Package("metaworld", "metaworld", "metaworld")
NLE = Package("nle", "nle", "nethack")

# Suites of JAX worlds, see zoo/worlds.
GYMNAX = Package("gymnax", "gymnax", "jax-worlds")
BRAX = Package("brax", "brax", "jax-worlds")
JUMANJI = Package("jumanji", "jumanji", "jax-worlds")
PGX = Package("pgx", "pgx", "jax-worlds")
CRAFTAX = Package("craftax", "craftax", "jax-worlds")

# Other libraries, see interop/.
SB3 = Package("stable_baselines3", "stable-baselines3", "sb3")
TIANSHOU = Package("tianshou", "tianshou", "tianshou")
TORCHRL = Package("torchrl", "torchrl", "torchrl")

# Where a pool can run, see hosts/ray.
RAY = Package("ray", "ray", "ray")

# What a pool can hand out, see views/outputs.py.
TORCH = Package("torch", "torch", "torch")
JAX = Package("jax", "jax", "jax")

# What compiles envs in Python, see sources/jit.
NUMBA = Package("numba", "numba", "numba")

# What to know before an extra is installed on a machine that is not x86-64.
_ELSEWHERE = {
    "box2d": "Box2D has no wheel for {machine}: pip builds it from source, with a C++ compiler and the system's swig "
    "(apt install swig). With the swig of pip instead: pip install swig setuptools && pip install "
    "--no-build-isolation box2d-py",
}


def require(module: str, package: str, extra: str, user: str) -> ModuleType:
    """Imports ``module``, or says that ``user`` needs ``package``, and that ``stepmill[extra]`` has it."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise  # it is installed, but a package that it needs is not: do not hide a broken install
        raise missing(package, extra, user) from error


def is_installed(package: Package) -> bool:
    """Whether a package can be imported, without doing so."""
    return importlib.util.find_spec(package.module.partition(".")[0]) is not None


def check_installed(package: Package, user: str) -> None:
    """Says that ``user`` needs ``package`` if it is not there, without importing it."""
    if not is_installed(package):
        raise missing(package.name, package.extra, user)


def missing(package: str, extra: str, user: str) -> MissingPackageError:
    """The error that says so."""
    machine = platform.machine()
    advice = f". {_ELSEWHERE[extra].format(machine=machine)}" if extra in _ELSEWHERE and machine != "x86_64" else ""
    return MissingPackageError(
        f"{user} needs {package}, which is not installed: pip install 'stepmill[{extra}]'{advice}"
    )


@contextlib.contextmanager
def explained_misfit(package: Package, simulator: str, user: str) -> Iterator[None]:
    """Explains how ``package`` fails inside if it was written for another version of ``simulator``.

    Neither of them says so: an attribute is gone, or an assertion of the package fails.
    """
    try:
        yield
    except (AttributeError, AssertionError) as error:
        versions = f"{package.name} {_version(package.name)} with {simulator} {_version(simulator)}"
        raise MissingPackageError(
            f"{user} failed in {versions}: {summary(error)}. If these versions do not fit each other: "
            f"pip install 'stepmill[{package.extra}]' installs versions that do"
        ) from error


def _version(package: str) -> str:
    from importlib import metadata  # slow to import, and seldom needed

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "(not installed)"


def imported(place: str) -> Any:
    """What ``"module:name"`` names. The module is imported now."""
    module, _, name = place.partition(":")
    return getattr(importlib.import_module(module), name)
