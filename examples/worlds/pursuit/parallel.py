"""Pursuit as a PettingZoo ``ParallelEnv``: the world of ``env.py``, with its agents by name. Needs PettingZoo."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray
from pettingzoo import ParallelEnv

from stepmill.errors import ActionError, ConfigError, NeedsResetError
from stepmill.values.arguments import whole_number

from .env import (
    MOVES,
    RUNNERS,
    TIME_LIMIT,
    Fate,
    PursuitWorld,
    begin_episode,
    draw,
    observation_bounds,
    read_move,
)

__all__ = ["PursuitParallelEnv"]

_Dict = dict[str, Any]


class PursuitParallelEnv(ParallelEnv):  # type: ignore[misc]
    """Two agents, ``runner_0`` and ``runner_1``.

    A runner that gets out or is caught terminates at once, and the other one plays on. Both are truncated after
    ``time_limit`` steps. The infos have ``is_success``: that runner got out. The same seed gives the same episodes as
    in ``PursuitEnv``.
    """

    metadata: _Dict = {"name": "pursuit_v0", "render_modes": ["rgb_array"], "render_fps": 20}  # noqa: RUF012

    def __init__(self, render_mode: str | None = None, time_limit: int = TIME_LIMIT) -> None:
        if render_mode not in (None, "rgb_array"):
            raise ConfigError(f"pursuit_v0: render_mode: expected None or 'rgb_array', got {render_mode!r}")
        self.render_mode = render_mode
        self.possible_agents = [f"runner_{i}" for i in range(RUNNERS)]
        self.agents: list[str] = []
        low, high = (np.array(bounds, np.float32) for bounds in observation_bounds())
        self.observation_spaces = {name: spaces.Box(low, high) for name in self.possible_agents}
        self.action_spaces = {name: spaces.Discrete(len(MOVES)) for name in self.possible_agents}
        self._time_limit = whole_number("pursuit_v0: time_limit", time_limit, 1)
        self._random: np.random.Generator | None = None
        self._world: PursuitWorld | None = None

    def observation_space(self, agent: str) -> spaces.Box:
        """The same object for an agent, every time."""
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> spaces.Discrete:
        """The same object for an agent, every time."""
        return self.action_spaces[agent]

    def reset(self, seed: int | None = None, options: _Dict | None = None) -> tuple[_Dict, _Dict]:
        """Starts an episode with both runners. It has no options."""
        if seed is not None or self._random is None:
            self._random = np.random.default_rng(seed)
        self._world = begin_episode(self._random, self._time_limit)
        self.agents = self.possible_agents.copy()
        return self._observe(self._world), {name: {"is_success": False} for name in self.agents}

    def step(self, actions: _Dict) -> tuple[_Dict, _Dict, _Dict, _Dict, _Dict]:
        """Moves the runners in play. There are results for all of them, also those that leave in this step."""
        world = self._world
        if world is None or not self.agents:
            raise NeedsResetError("pursuit_v0: step: the episode is over, call reset first")
        rewards = world.step(self._moves(actions))
        names = {name: i for i, name in enumerate(self.possible_agents) if name in self.agents}
        observations = self._observe(world)
        terminated = {name: not world.in_play(i) for name, i in names.items()}
        truncated = {name: world.out_of_time and not terminated[name] for name in names}
        infos = {name: {"is_success": world.fates[i] is Fate.OUT} for name, i in names.items()}
        self.agents = [name for name in names if not (terminated[name] or truncated[name])]
        return observations, {name: rewards[i] for name, i in names.items()}, terminated, truncated, infos

    def render(self) -> NDArray[np.uint8] | None:
        """A picture of the current state; None if ``render_mode`` is None."""
        if self.render_mode is None:
            return None
        if self._world is None:
            raise NeedsResetError("pursuit_v0: render: call reset first")
        return draw(self._world)

    def _moves(self, actions: _Dict) -> list[int]:
        if set(actions) != set(self.agents):
            expected, got = ", ".join(self.agents), ", ".join(map(str, actions)) or "none"
            raise ActionError(f"pursuit_v0: actions: expected one for each agent in play, {expected}, got {got}")
        return [read_move("pursuit_v0", actions[name]) if name in actions else 0 for name in self.possible_agents]

    def _observe(self, world: PursuitWorld) -> _Dict:
        return {name: world.observe(i) for i, name in enumerate(self.possible_agents) if name in self.agents}
