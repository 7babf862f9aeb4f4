"""What the shell starts as ``stepmill``.

Not part of the package: if that cannot be imported, because numpy or Gymnasium is missing, too old or broken, one line
says so, and what to do.
"""

from __future__ import annotations

import sys
from importlib import metadata

__all__ = ["main"]


def main() -> int:
    """Runs one command and returns its exit code."""
    try:
        from stepmill.cli.entry import main as run
    except KeyboardInterrupt:
        return 130
    except Exception as error:  # a broken package raises anything
        what = " ".join(f"{type(error).__name__}: {error}".split())
        sys.stderr.write(f"stepmill: the installation is broken: {what}. {_advice()}\n")
        return 1
    return run()


def _advice() -> str:
    """What is installed of that which every part of stepmill needs."""
    needed = [line for line in metadata.requires("stepmill") or [] if ";" not in line]
    found = ", ".join(f"{line} ({_version(line)})" for line in needed)
    return f"It needs {found}: pip install --upgrade --force-reinstall 'stepmill[cli]'"


def _version(requirement: str) -> str:
    name = requirement.partition(">")[0].strip()
    try:
        return f"{metadata.version(name)} is installed"
    except metadata.PackageNotFoundError:
        return "not installed"
