"""Where in the user's own code something failed."""

from __future__ import annotations

import importlib
import re
import traceback
from pathlib import Path

import stepmill

__all__ = ["place_of"]

_FRAME = re.compile(r'File "(.+)", line (\d+), in (.+)')
_NOT_THE_USERS = ("<frozen", *(str(Path(str(module.__file__)).parent) for module in (stepmill, importlib)))


def place_of(error: BaseException | None) -> str:
    """`` (my_envs.py, line 20, in step)``, or nothing if that is not known.

    Of an error from a worker process, the traceback is a note.
    """
    if error is None:
        return ""
    text = [*traceback.format_tb(error.__traceback__), *getattr(error, "__notes__", ())]
    frames = [one for one in _FRAME.findall("\n".join(text)) if not one[0].startswith(_NOT_THE_USERS)]
    return f" ({frames[-1][0]}, line {frames[-1][1]}, in {frames[-1][2]})" if frames else ""
