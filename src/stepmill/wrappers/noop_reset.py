"""``NoopResetEnv``: episodes that start at different moments."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium.utils import RecordConstructorArgs

from stepmill.values.arguments import whole_number
from stepmill.wrappers.action_meanings import NOOP, require_noop
from stepmill.wrappers.base import Shapes, ShapeTeller

__all__ = ["NoopResetEnv"]


class NoopResetEnv(ShapeTeller, gymnasium.Wrapper[Any, Any, Any, Any], RecordConstructorArgs):
    """After each reset, takes action 0 between 1 and ``noop_max`` times.

    Takes any observation, also a Dict, and Discrete actions; if the env says what they mean, 0 must be NOOP.

    - The number is drawn from the generator that ``reset(seed=...)`` seeded, ``np_random`` of the unwrapped env: same
      seed, same episodes. If an env does not use that generator, the wrapper has its own.
    - If an episode ends during the no-ops, a new one starts, and the remaining no-ops are taken in it.
    - The info is that of the reset, updated with those of the no-ops.

    Args:
        env: The env to wrap.
        noop_max: The most no-ops, at least 1.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], noop_max: int = 30) -> None:
        self.noop_max = whole_number("NoopResetEnv: noop_max", noop_max, 1)
        RecordConstructorArgs.__init__(self, noop_max=noop_max)
        gymnasium.Wrapper.__init__(self, env)
        require_noop("NoopResetEnv", env)
        self._own_generator: np.random.Generator | None = None

    @staticmethod
    def new_shape(obs_shape: Any, act_shape: Any, rew_shape: Any, noop_max: int = 30) -> Shapes:
        """All shapes stay the same."""
        whole_number("NoopResetEnv: noop_max", noop_max, 1)
        return obs_shape, act_shape, rew_shape

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Starts an episode and lets a random number of steps pass."""
        obs, said = self._seeded_reset(seed, options)
        info = dict(said)  # the env may write its next info into the same dict
        generator = self.unwrapped.np_random if self._own_generator is None else self._own_generator
        for _ in range(int(generator.integers(1, self.noop_max + 1))):
            obs, _, terminated, truncated, said = self.env.step(NOOP)
            info = {**info, **said}
            if terminated or truncated:
                # Without the seed: with it the new episode would equal the one that just ended.
                obs, said = self.env.reset(options=options)
                info = dict(said)
        return obs, info

    def _seeded_reset(self, seed: int | None, options: dict[str, Any] | None) -> tuple[Any, dict[str, Any]]:
        if seed is None:
            return self.env.reset(options=options)
        before = self.unwrapped.np_random
        obs, info = self.env.reset(seed=seed, options=options)
        # Seeding makes a new generator. If it is still the old one, the env uses another source of randomness.
        untouched = self.unwrapped.np_random is before
        self._own_generator = np.random.default_rng(seed) if untouched else None
        return obs, info
