"""The MuJoCo that is installed: the file of its bindings, and what it warns of, in our log instead of a file."""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import threading
from collections.abc import Iterator

from stepmill import _native
from stepmill.sources.simulator import UnsuitableSimulator


@functools.cache
def bindings_path() -> str:
    """The file of the bindings, which are linked to the library that MuJoCo's Python objects belong to."""
    import mujoco

    path = getattr(getattr(mujoco, "_functions", None), "__file__", None)
    if path is None:
        raise UnsuitableSimulator(f"there is no module mujoco._functions in {mujoco.__file__}")
    return str(path)


# ---- warnings ----------------------------------------------------------------------------------------

_listening = threading.Lock()


def _make_new_lock() -> None:
    """Gives a forked child a lock of its own: nobody would release the parent's."""
    global _listening
    _listening = threading.Lock()


os.register_at_fork(after_in_child=_make_new_lock)


class WarningLog:
    """Logs each warning once. ``is_silent``: another process logs them."""

    def __init__(self, env_class: str, is_silent: bool = False) -> None:
        self._env_class = env_class
        self._is_silent = is_silent
        self._logged: set[str] = set()

    @contextlib.contextmanager
    def listening(self, tells_deprecations: bool = True) -> Iterator[None]:
        """Keeps what MuJoCo warns of in this thread while something runs. One thread at a time, as GLFW needs it.

        A handler of warnings that the user has set is left in its place, and gets them.
        """
        with _listening:
            _native.listen_to_mujoco(bindings_path())
            try:
                yield
            finally:
                heard = _native.heard_from_mujoco()
                self._log([text for text in heard if tells_deprecations or "deprecated" not in text])

    def _log(self, warnings: list[str]) -> None:
        for text in dict.fromkeys(warnings):
            if not self._is_silent and text not in self._logged:
                self._logged.add(text)
                logging.getLogger("stepmill").warning("%s: MuJoCo warns: %s", self._env_class, text)
