"""What ``stepmill_command`` starts. Without the packages that the command line draws with, it says how to get them."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from stepmill.errors import MissingPackageError
from stepmill.optional import require

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code."""
    try:
        for package in ("click", "rich"):
            require(package, package, "cli", "the command line")
    except MissingPackageError as error:
        sys.stderr.write(f"stepmill: {error}\n")
        return 2
    from stepmill.cli.program import run

    return run(arguments)
