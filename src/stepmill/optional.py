"""Packages that only some users need: imported when they are used, with a helpful error if they are missing."""

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
            raise  # it is installed, but a package that it needs is not: do not hide a broken install
        raise MissingPackageError(
            f"{user} needs {package}, which is not installed: pip install 'stepmill[{extra}]'"
        ) from error
