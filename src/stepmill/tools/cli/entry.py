"""What ``stepmill_command`` starts. Without the packages that the command line draws with, it says how to get them."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from stepmill.errors import MissingPackageError
from stepmill.system.optional import require


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code."""
    _prepare_output()
    try:
        for package in ("click", "rich"):
            require(package, package, "cli", "the command line")
        from stepmill.tools.cli.program import run
    except MissingPackageError as error:
        sys.stderr.write(f"stepmill: {error}\n")
        return 2
    return run(arguments)


def _prepare_output() -> None:
    """Makes sure that everything can be written, also what the encoding of a terminal does not have.

    What the shell has closed (``stepmill list >&-``) leads nowhere: else another file would get that number, such as
    the memory of a pool, and what an env prints would be written into it.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest number that is free, which is this
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, "r" if number == 0 else "w", closefd=False))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
