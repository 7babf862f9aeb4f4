"""A Stable-Baselines3 ``VecEnv`` over a pool: what SB3 trains on, without a line of glue.

``make_vec_env`` makes a pool and its ``VecEnv`` in one call; ``StepmillVecEnv`` takes a pool that exists, or functions
that make envs, as SB3's own ``DummyVecEnv`` and ``SubprocVecEnv`` do.
"""

from __future__ import annotations

from stepmill.system.optional import SB3, require

require(*SB3, "stepmill.interop.sb3")

from stepmill.interop.sb3.env_util import make_vec_env  # noqa: E402  # these import SB3
from stepmill.interop.sb3.vec_env import StepmillVecEnv  # noqa: E402

__all__ = ["StepmillVecEnv", "make_vec_env"]
