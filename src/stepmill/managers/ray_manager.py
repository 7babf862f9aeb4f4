"""A manager whose envs run on a Ray cluster."""

from __future__ import annotations

from stepmill.managers.subprocess import SubprocessEnvManager
from stepmill.settings import RAY_SETTINGS, SETTINGS


class RayEnvManager(SubprocessEnvManager):
    """``SubprocessEnvManager`` with envs in the actors of a Ray cluster.

    Its configuration has in addition what ``stepmill.make`` has for ``backend="ray"``: ``num_actors``, ``resources``,
    ``address``, ``node_timeout`` and ``runtime_env``.
    """

    _backend = "ray"
    _defaults = {  # noqa: RUF012  (read only)
        **SubprocessEnvManager._defaults,
        **{name: SETTINGS[name].default for name in RAY_SETTINGS},
    }
