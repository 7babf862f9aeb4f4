"""A manager whose envs run on a Ray cluster."""

from __future__ import annotations

from stepmill.managers.subprocess import SubprocessEnvManager
from stepmill.settings import Ray

__all__ = ["RayEnvManager"]


class RayEnvManager(SubprocessEnvManager):
    """``SubprocessEnvManager`` with envs in the actors of a Ray cluster.

    Its configuration has ``backend`` in addition: ``"ray"``, or ``stepmill.Ray(...)`` as for ``stepmill.make``.
    """

    _backend = "ray"
    _defaults = {**SubprocessEnvManager._defaults, "backend": Ray()}  # noqa: RUF012  (read only)
