"""What MuJoCo warns of, in our log instead of a file in the working directory."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterator

__all__ = ["WarningLog"]

_listening = threading.Lock()  # MuJoCo has one handler of warnings for all threads


class WarningLog:
    """Logs each warning once. ``is_silent``: another process logs them."""

    def __init__(self, env_class: str, is_silent: bool = False) -> None:
        self._env_class = env_class
        self._is_silent = is_silent
        self._logged: set[str] = set()

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """Listens to MuJoCo while something inside runs."""
        import mujoco

        warnings: list[str] = []
        with _listening:
            former = mujoco.get_mju_user_warning()
            mujoco.set_mju_user_warning(warnings.append)
            try:
                yield
            finally:
                mujoco.set_mju_user_warning(former)
                self._log(warnings)

    def _log(self, warnings: list[str]) -> None:
        for text in dict.fromkeys(warnings):
            if not self._is_silent and text not in self._logged:
                self._logged.add(text)
                logging.getLogger("stepmill").warning("%s: MuJoCo warns: %s", self._env_class, text)
