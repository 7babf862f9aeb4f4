"""highway-env: its own envs, under its own ids, and infos that the seed decides.

The info of its resets has an action that nobody took, drawn from a space that it never seeds. Here that is seeded too.
Two of its ids reward every vehicle by itself, in a tuple: there, each vehicle is a player.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

from stepmill.errors import SpaceError
from stepmill.registry.records import Family, GymnasiumFactory, add_family
from stepmill.system.optional import HIGHWAY
from stepmill.zoo.further_seeds import FurtherSeeds


class HighwayFactory(GymnasiumFactory):
    """Makes envs of highway-env whose infos repeat too."""

    def __call__(self, **config: Any) -> Any:
        env = super().__call__(**config)
        if type(env).__name__ == "MultiAgentWrapper":
            return VehiclesAsPlayers(SeededHighway(env.env))
        return SeededHighway(env)


class SeededHighway(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Draws the action in the info of a reset from the seed, and on from there. Everything else is as it was."""

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__(env)
        self._seeds = FurtherSeeds()

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Starts an episode. It makes a new action space, which cannot be seeded before."""
        observation, _ = self.env.reset(seed=seed, options=options)
        inside: Any = self.unwrapped
        inside.action_space.seed(int(self._seeds.after(seed).integers(2**31)))
        return observation, inside._info(observation, action=inside.action_space.sample())


class VehiclesAsPlayers(gymnasium.Wrapper[Any, Any, Any, Any]):
    """What highway-env's ``MultiAgentWrapper`` gives as tuples, as rows: one per vehicle.

    The episode is over when the env inside says so, which is when a vehicle crashes or all have arrived. Which of them
    has ended, that wrapper's ``terminated``, is ``info["agents_terminated"]``.
    """

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__(env)
        seen, acts = self.env.observation_space, self.env.action_space
        if any(one != space[0] for space in (seen, acts) for one in space):  # type: ignore[attr-defined, index]
            raise SpaceError(f"{self}: expected vehicles with equal spaces, got {seen} and {acts}")
        self.observation_space, self.action_space = seen[0], acts[0]  # type: ignore[index]
        self.num_players = len(acts)  # type: ignore[arg-type]

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Starts an episode of the env inside."""
        observations, info = self.env.reset(seed=seed, options=options)
        return np.stack(observations), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Takes one action per vehicle."""
        observations, _, terminated, truncated, info = self.env.step(tuple(action))
        return np.stack(observations), np.array(info["agents_rewards"]), terminated, truncated, info


_BEGINNINGS = (
    *("exit", "highway", "intersection", "lane-keeping", "merge", "parking", "racetrack", "roundabout", "two-way"),
    "u-turn",
)

add_family(
    Family(
        HIGHWAY,
        tuple(rf"{one}(-.+)?-v\d+" for one in _BEGINNINGS),
        factory="stepmill.zoo.highway:HighwayFactory",
        example="highway-v0",
        at_least=31,
    )
)
