"""highway-env: its own envs, under its own ids, and infos that the seed decides.

The info of its resets has an action that nobody took, drawn from a space that it never seeds. Here that is seeded too.
"""

from __future__ import annotations

from typing import Any

import gymnasium

from stepmill.optional import HIGHWAY
from stepmill.registry import Family, GymnasiumFactory, add_family
from stepmill.zoo.further_seeds import FurtherSeeds

__all__ = ["HighwayFactory", "SeededHighway"]


class HighwayFactory(GymnasiumFactory):
    """Makes envs of highway-env whose infos repeat too."""

    def __call__(self, **config: Any) -> Any:
        return SeededHighway(super().__call__(**config))


class SeededHighway(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Draws the action in the info of a reset from the seed, and on from there. Everything else is as it was."""

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__(env)
        self._seeds = FurtherSeeds()

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Its reset makes a new action space, so that cannot be seeded before."""
        observation, _ = self.env.reset(seed=seed, options=options)
        inside: Any = self.unwrapped
        inside.action_space.seed(int(self._seeds.after(seed).integers(2**31)))
        return observation, inside._info(observation, action=inside.action_space.sample())


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
