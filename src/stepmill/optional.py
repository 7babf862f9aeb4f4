"""Packages that only some users need: imported when they are used, missed with a message that helps."""

from __future__ import annotations

import importlib
from types import ModuleType

from stepmill.errors import MissingPackageError

__all__ = ["require"]


def require(module: str, package: str, extra: str, user: str) -> ModuleType:
    """Imports ``module``, or says that ``user`` needs ``package``, and that ``stepmill[extra]`` has it."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise  # it is there, and misses another one: a broken install, which nobody should hide
        raise MissingPackageError(
            f"{user} needs {package}, which is not installed: pip install 'stepmill[{extra}]'"
        ) from error
