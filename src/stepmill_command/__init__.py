"""What the shell starts as ``stepmill``.

Not part of the package: if that cannot be imported, because numpy or Gymnasium is missing, too old or broken, one line
says so, and what to do.
"""

from __future__ import annotations

import os
import signal
import sys

__all__ = ["main"]


def main() -> int:
    """Runs one command and returns its exit code."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)  # until a command begins, and after its end
    try:
        from stepmill.tools.cli.entry import main as run
    except Exception as error:  # a broken package raises anything
        what = " ".join(f"{type(error).__name__}: {error}".split())
        sys.stderr.write(f"stepmill: the installation is broken: {what}. {_advice()}\n")
        return 1
    return run()


def _end(*_: object) -> None:
    """Ctrl-C while modules are imported: there is nothing to finish, and a KeyboardInterrupt may get lost there."""
    os._exit(130)


def _advice() -> str:
    """What is installed of that which every part of stepmill needs."""
    from importlib import metadata  # takes a while, and is seldom needed

    needed = [line for line in metadata.requires("stepmill") or [] if ";" not in line]
    found = ", ".join(f"{line} ({_version(line)})" for line in needed)
    return f"It needs {found}: pip install --upgrade --force-reinstall 'stepmill[cli]'"


def _version(requirement: str) -> str:
    from importlib import metadata

    name = requirement.partition(">")[0].strip()
    try:
        return f"{metadata.version(name)} is installed"
    except metadata.PackageNotFoundError:
        return "not installed"
