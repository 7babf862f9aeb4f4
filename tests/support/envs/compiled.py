"""An env for pools inside of compiled programs: many arrays, declared infos, and ends at random.

Workers import this module, so it is quick to import.
"""

from __future__ import annotations

from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium import spaces


class ManyArrays(gymnasium.Env[Any, Any]):
    """All of it drawn from its own generator; what it shows contains the last action."""

    observation_space = spaces.Dict(
        {
            "image": spaces.Box(0, 255, (2, 3), np.uint8),
            "pair": spaces.Tuple([spaces.Box(-np.inf, np.inf, (), np.float64), spaces.Discrete(9, start=-4)]),
            "flags": spaces.MultiBinary(3),
            "half": spaces.Box(-1, 1, (2,), np.float16),
        }
    )
    action_space = spaces.Dict(
        {
            "push": spaces.Box(-10, 10, (2,), np.float64),
            "turn": spaces.Tuple([spaces.Discrete(3, start=1), spaces.MultiDiscrete([4, 5])]),
        }
    )
    info_space = spaces.Dict({"lives": spaces.Discrete(9), "view": spaces.Box(-np.inf, np.inf, (2,), np.float64)})
    metadata: ClassVar[dict[str, Any]] = {"render_modes": []}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return self._show(0.0), {"lives": 3}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        number = float(action["push"].sum()) + int(action["turn"][0]) + int(np.sum(action["turn"][1]))
        end, cut = self.np_random.random(2) < 0.1
        info = {"view": self.np_random.normal(size=2)} if self.np_random.random() < 0.5 else {}
        return self._show(number), self.np_random.normal(), bool(end), bool(cut), info

    def _show(self, number: float) -> Any:
        draw = self.np_random
        return {
            "image": draw.integers(0, 256, (2, 3), np.uint8),
            "pair": (np.asarray(number), int(draw.integers(-4, 5))),
            "flags": draw.integers(0, 2, 3, np.int8),
            "half": draw.random(2).astype(np.float16),
        }
