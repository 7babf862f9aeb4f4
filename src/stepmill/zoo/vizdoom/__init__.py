"""ViZDoom: its own envs by their own ids, and its scenarios preprocessed, by EnvPool's names (``Basic-v1``).

Nothing of ViZDoom is imported before such an env is asked for. In reading order:

- ``scenarios.py``: what there is, and how a game is configured;
- ``options.py``: what users may choose; ``buttons.py``, ``rewards.py``, ``screens.py``: what that means;
- ``env.py``: the preprocessed env; ``gymnasium_ids.py``: ViZDoom's own;
- ``start.py``, ``private_folder.py``, ``trial.py``: how a game is started, and why it leaves nothing behind.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from stepmill.registry.description import EnvDescription
from stepmill.registry.factories import EnvFactory
from stepmill.registry.records import EnvRecord, Family, add, add_family
from stepmill.system.optional import VIZDOOM, require
from stepmill.zoo.vizdoom.options import OPTIONS, read_options
from stepmill.zoo.vizdoom.scenarios import SCENARIOS, Scenario

__all__ = ["DoomFactory"]

MAX_EPISODE_STEPS = 525  # EnvPool's: a minute of play


@dataclass(frozen=True)
class DoomFactory(EnvFactory):
    """Makes preprocessed envs of a scenario."""

    scenario: Scenario
    is_heavy = True

    def __call__(self, env_id: int = 0, **config: Any) -> Any:
        from stepmill.zoo.vizdoom.env import DoomEnv

        return DoomEnv(self.scenario, read_options(config), env_id)

    def known_keys(self) -> list[str]:
        return list(OPTIONS)

    def defaults(self) -> Mapping[str, Any]:
        return OPTIONS

    def limited(
        self, config: dict[str, Any], given: int | None, registered: int | None
    ) -> tuple[dict[str, Any], int | None]:
        options = read_options(config)  # wrong values are told before any env is made
        return super().limited(dict(vars(options)), given, registered)

    def preload(self, config: Mapping[str, Any]) -> None:
        require(*VIZDOOM, self.scenario.id)
        require("cv2", "opencv-python-headless", VIZDOOM.extra, self.scenario.id)

    def describe(self, config: Mapping[str, Any]) -> EnvDescription:
        from stepmill.zoo.vizdoom.env import describe

        return describe(self.scenario, read_options(config))


for _scenario in SCENARIOS:
    add(
        EnvRecord(
            _scenario.id,
            factory=DoomFactory(_scenario),
            max_episode_steps=MAX_EPISODE_STEPS,
            needs=VIZDOOM,
        )
    )
# It registers its ids in a part of it that a plain import leaves out.
add_family(
    Family(
        VIZDOOM._replace(module="vizdoom.gymnasium_wrapper"),
        (r"Vizdoom.*-v\d+",),
        factory="stepmill.zoo.vizdoom.gymnasium_ids:VizdoomFactory",
        example="VizdoomBasic-v1",
        at_least=704,
    )
)
