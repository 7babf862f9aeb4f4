"""Runs a build and shows how far it is: ``python scripts/show_build.py pip install -v ...``.

What the build itself prints is shown only if it fails. In a terminal one line is redrawn; else there is a line every
quarter of the way.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections import deque

COMPILED = re.compile(r"\[(\d+)/(\d+)\] (.*)")  # what ninja says of each file
KEPT_LINES = 400


def show(done: int, total: int, shown: int) -> int:
    """Says how many files are compiled, if that is news; returns what was said last."""
    if sys.stdout.isatty():
        sys.stdout.write(f"\r    {done} of {total}" + ("\n" if done == total else ""))
    elif done == total or done >= shown + total / 4:
        sys.stdout.write(f"    {done} of {total}\n")
    else:
        return shown
    sys.stdout.flush()
    return done


def main(command: list[str]) -> int:
    lines: deque[str] = deque(maxlen=KEPT_LINES)
    shown = 0
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as build:
        assert build.stdout is not None
        for line in build.stdout:
            lines.append(line)
            if found := COMPILED.search(line):
                shown = show(int(found[1]), int(found[2]), shown)
    if build.returncode:
        sys.stdout.write("\n" + "".join(lines))
    return build.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
