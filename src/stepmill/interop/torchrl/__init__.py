"""Pools as envs of TorchRL: its rollouts, collectors, transforms and objectives take a ``PoolEnv``.

``make_env`` makes a pool and its env in one call. ``PoolCollector`` collects from async pools: it acts for those envs
that are ready first, and yields complete transitions.
"""

from stepmill.system.optional import TORCHRL, require

require(*TORCHRL, "stepmill.interop.torchrl")

from stepmill.interop.torchrl.collector import PoolCollector  # noqa: E402
from stepmill.interop.torchrl.env import PoolEnv, make_env  # noqa: E402

__all__ = ["PoolCollector", "PoolEnv", "make_env"]
