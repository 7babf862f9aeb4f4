"""ViZDoom: its own envs by their own ids, and its scenarios preprocessed, by EnvPool's names (``Basic-v1``).

Nothing of ViZDoom is imported before such an env is asked for. In reading order: ``scenarios.py`` has what is played,
``options.py`` what users may choose, ``env.py`` the preprocessed env; ``start.py`` and ``start_game.py`` start games,
which leave nothing behind.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import gymnasium

from stepmill.errors import UnknownConfigError
from stepmill.registry.description import EnvDescription
from stepmill.registry.factories import EnvFactory
from stepmill.registry.records import EnvRecord, Family, GymnasiumFactory, add, add_family
from stepmill.system.optional import VIZDOOM, require
from stepmill.zoo.vizdoom.options import OPTIONS, read_options
from stepmill.zoo.vizdoom.scenarios import SCENARIOS, WHY_NO_STATE, Scenario

MAX_EPISODE_STEPS = 525  # EnvPool's: a minute of play
Limited = tuple[dict[str, Any], int | None]


@dataclass(frozen=True)
class DoomFactory(EnvFactory):
    """Makes preprocessed envs of a scenario."""

    scenario: Scenario
    is_heavy = True

    def __call__(self, env_id: int = 0, **config: Any) -> Any:
        from stepmill.zoo.vizdoom.env import DoomEnv

        env = DoomEnv(self.scenario, read_options(config), env_id)
        try:
            env.start()
        except BaseException:
            env.close()
            raise
        return env

    def known_keys(self) -> list[str]:
        return list(OPTIONS)

    def defaults(self) -> Mapping[str, Any]:
        return OPTIONS

    def limited(self, config: dict[str, Any], given: int | None, registered: int | None) -> Limited:
        options = read_options(config)  # wrong values are an error before any env is made
        return super().limited(dict(vars(options)), given, registered)

    def preload(self, config: Mapping[str, Any]) -> None:
        require(*VIZDOOM, self.scenario.id)
        require("cv2", "opencv-python-headless", VIZDOOM.extra, self.scenario.id)

    def describe(self, config: Mapping[str, Any]) -> EnvDescription:
        from stepmill.zoo.vizdoom.env import DoomEnv

        return EnvDescription.of(DoomEnv(self.scenario, read_options(config)))  # no game is started


@dataclass(frozen=True)
class VizdoomFactory(GymnasiumFactory):
    """Makes the envs that ViZDoom registers with Gymnasium, as they are. They start their game at the first reset."""

    is_heavy = True

    def __call__(self, **config: Any) -> Any:
        return LeavesNothing(super().__call__(**config), self.id)

    def known_keys(self) -> list[str] | None:
        return None  # all that ViZDoom's .cfg files may contain

    def limited(self, config: dict[str, Any], given: int | None, registered: int | None) -> Limited:
        """ViZDoom ignores settings that it does not understand: here they are an error."""
        import vizdoom

        arguments = {*inspect.signature(self.creator()).parameters, "max_episode_steps", "disable_env_checker"}
        settings = {key: value for key, value in config.items() if key not in arguments}
        unknown = [key for key, value in settings.items() if not vizdoom.DoomGame().set_config({key: value})]
        if unknown:
            raise UnknownConfigError(
                f"{self.id}: expected arguments of ViZDoom's envs or settings of its .cfg files, got "
                f"{', '.join(f'{key}={settings[key]!r}' for key in unknown)}"
            )
        return super().limited(config, given, registered)

    def describe(self, config: Mapping[str, Any]) -> EnvDescription:
        return EnvDescription.of(super().__call__(**config))  # no game is started


class LeavesNothing(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Starts the game of an env where it leaves nothing behind."""

    _why_no_state = WHY_NO_STATE

    def __init__(self, env: gymnasium.Env[Any, Any], id: str) -> None:
        super().__init__(env)
        self._id, self._game = id, env.get_wrapper_attr("game")
        self._program = self._game.get_vizdoom_path()

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        from stepmill.zoo.vizdoom.start import starting

        if self._game.is_running():
            return self.env.reset(seed=seed, options=options)
        with starting(self._game, self._id, self._program):
            return self.env.reset(seed=seed, options=options)


for _scenario in SCENARIOS:
    _factory = DoomFactory(_scenario)
    add(EnvRecord(_scenario.id, factory=_factory, max_episode_steps=MAX_EPISODE_STEPS, needs=VIZDOOM))
add_family(
    Family(
        VIZDOOM._replace(module="vizdoom.gymnasium_wrapper"),  # registers the ids; a plain import leaves it out
        (r"Vizdoom.*-v\d+",),
        factory="stepmill.zoo.vizdoom:VizdoomFactory",
        example="VizdoomBasic-v1",
        at_least=704,
    )
)
