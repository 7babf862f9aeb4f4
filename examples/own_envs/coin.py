"""Guess the side of a coin that may be biased: a gymnasium.Env, which the same env in other languages is compared with.

stepmill.verify("coin.h", reference=Coin) plays both side by side.
"""

from typing import Any

import gymnasium
from gymnasium import spaces


class Coin(gymnasium.Env[Any, Any]):
    observation_space = spaces.Discrete(2)  # the side that is up
    action_space = spaces.Discrete(2)  # a guess of the next

    def __init__(self, bias: float = 0.5) -> None:
        self.bias = bias

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[int, dict[str, Any]]:
        super().reset(seed=seed)
        self.side = int(self.np_random.random() < self.bias)
        return self.side, {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        self.side = int(self.np_random.random() < self.bias)
        return self.side, float(action == self.side), False, False, {}
