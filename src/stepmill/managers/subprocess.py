"""Managers whose envs run in worker processes, on this machine or on a Ray cluster."""

from __future__ import annotations

from typing import Any

from stepmill.managers.base_manager import BaseEnvManager
from stepmill.managers.config import DEFAULTS
from stepmill.settings import Ray


class SubprocessEnvManager(BaseEnvManager):
    """Envs in worker processes. ``step`` returns what is ready after ``timeout``, but at least ``wait_num`` envs.

    Args:
        env_fn: See ``BaseEnvManager``.
        env_cfg: See there.
        env_num: See there.
        episode_num: See there.
        timeout: How many seconds ``step`` waits for all envs; None: it returns as soon as ``wait_num`` are ready.
        wait_num: How many envs ``step`` waits for in any case; at most those in flight.
        cfg: A dict over ``default_config()``.
    """

    _backend = "process"
    _defaults = {**DEFAULTS, "wait_num": 2, "step_wait_timeout": 0.01}  # noqa: RUF012  (read only)

    def __init__(
        self,
        env_fn: Any,
        env_cfg: Any = None,
        env_num: int | None = None,
        episode_num: Any = None,
        timeout: Any = ...,
        wait_num: Any = ...,
        *,
        cfg: Any = None,
        **settings: Any,
    ) -> None:
        if timeout is not ...:
            settings["step_wait_timeout"] = timeout
        if wait_num is not ...:
            settings["wait_num"] = wait_num
        super().__init__(env_fn, env_cfg, env_num, episode_num, cfg=cfg, **settings)

    @property
    def timeout(self) -> float | None:
        """How many seconds ``step`` waits for all envs."""
        return self._settings.wait_timeout

    @property
    def wait_num(self) -> float:
        """How many envs ``step`` waits for in any case; ``inf``: all of them."""
        return self._settings.wait_num

    @property
    def shared_memory(self) -> bool:
        """Whether observations travel in shared memory rather than pickled."""
        return self._settings.shared_memory


class AsyncSubprocessEnvManager(SubprocessEnvManager):
    """``SubprocessEnvManager`` under DI-engine's name."""


class SyncSubprocessEnvManager(SubprocessEnvManager):
    """Envs in worker processes; ``step`` returns when all actions are done."""

    _defaults = DEFAULTS


class RayEnvManager(SubprocessEnvManager):
    """``SubprocessEnvManager`` with envs in the actors of a Ray cluster.

    Its configuration has ``backend`` in addition: ``"ray"``, or ``stepmill.Ray(...)`` as for ``stepmill.make``.
    """

    _backend = "ray"
    _defaults = {**SubprocessEnvManager._defaults, "backend": Ray()}  # noqa: RUF012  (read only)
