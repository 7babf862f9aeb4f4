"""NetHack (nle): its own envs, under its own ids, with seeds that decide the whole game.

nle's ``reset(seed=...)`` leaves the game's random numbers alone: they have their own seeds, ``env.seed(core, disp)``.
Here those are drawn from the seed of the reset, for the games that follow too.
"""

from __future__ import annotations

from typing import Any

import gymnasium

from stepmill.registry.records import Family, GymnasiumFactory, add_family
from stepmill.system.optional import NLE
from stepmill.zoo.further_seeds import FurtherSeeds

_UNSEEDED = "NetHackChallenge"  # refuses seeds, as the competition did


class NetHackFactory(GymnasiumFactory):
    """Makes envs of nle that can be seeded."""

    def __call__(self, **config: Any) -> Any:
        if _UNSEEDED in self.id:
            return super().__call__(**config)
        # Else the phase of the moon, Friday the 13th and midnight of the day on which it runs change the game.
        config.setdefault("fix_moon_phase", True)
        return SeededNetHack(super().__call__(**config))


class SeededNetHack(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Draws the two seeds of each game: from the seed of a reset, or on from where the last one was."""

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__(env)
        self._seeds = FurtherSeeds()

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Starts a game. NetHack must not mix in true randomness, as it does now and then by itself."""
        core, disp = (int(one) for one in self._seeds.after(seed).integers(2**62, size=2))
        self.unwrapped.seed(core, disp, reseed=False)  # type: ignore[attr-defined]
        return self.env.reset(seed=seed, options=options)


add_family(
    Family(
        NLE,
        (r"NetHack\w*-v\d+",),
        factory="stepmill.zoo.nethack:NetHackFactory",
        example="NetHackScore-v0",
        at_least=9,
    )
)
