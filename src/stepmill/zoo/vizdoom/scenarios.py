"""The scenarios by EnvPool's names, and how a game is configured for one."""

from __future__ import annotations

import importlib.util
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stepmill.errors import ConfigError, MissingConfigError, MissingPackageError

_OWN_CONFIGS = Path(__file__).parent / "configs"

WHY_NO_STATE = "a saved game of ViZDoom does not go on as the game did: rewards and counters of hits differ"


@dataclass(frozen=True)
class Scenario:
    """What is played: a ``.cfg`` of ViZDoom's wheel, or one of ours with a map of the wheel or of envpool-assets."""

    id: str
    config: str | None = None
    wad: str | None = None
    game_args: str = ""

    def configure(self, game: Any, cfg_path: str) -> None:
        """Sets up a game, but for the map of a ``.cfg`` of ours."""
        import vizdoom

        folder = vizdoom.scenarios_path if self.wad is None else _OWN_CONFIGS
        if not cfg_path and self.config is None:
            raise MissingConfigError(f"{self.id} needs cfg_path, the .cfg file of a scenario")
        _load_config(self.id, game, cfg_path or os.path.join(folder, str(self.config)))
        if self.game_args:
            game.add_game_args(self.game_args)

    def find_wad(self) -> str:
        """Returns the file of the map."""
        import vizdoom

        assets = importlib.util.find_spec("envpool_assets")
        places = [] if assets is None else assets.submodule_search_locations or ()
        for folder in (vizdoom.scenarios_path, *(os.path.join(one, "vizdoom", "maps") for one in places)):
            path = os.path.join(folder, str(self.wad))
            if os.path.isfile(path):
                return path
        raise MissingPackageError(
            f"{self.id} needs {self.wad}, which ViZDoom does not have: pip install envpool-assets, or say where it is "
            "with wad_path"
        )


def _load_config(user: str, game: Any, path: str) -> None:
    """Reads a ``.cfg``. ViZDoom skips the lines that it does not understand; here they are an error."""
    whole = os.path.abspath(path)
    if not os.path.isfile(whole):
        raise ConfigError(f"{user}: cfg_path: expected a .cfg file, got {path!r}, which is none")
    if game.load_config(whole):
        return
    from stepmill.zoo.vizdoom.start import run_apart

    # It says what is wrong to the standard error of its process, and nowhere else.
    _, said = run_apart("import vizdoom; vizdoom.DoomGame().load_config(*arguments)", whole)
    raise ConfigError(f"{user}: cfg_path: {path!r} has errors: {said}")


_OF_THE_WHEEL = (
    *("basic", "basic_audio", "basic_notifications", "deadly_corridor", "deathmatch", "defend_the_center"),
    *("defend_the_line", "health_gathering", "health_gathering_supreme", "my_way_home", "predict_position"),
    *("rocket_basic", "simpler_basic", "take_cover"),
)
# Arenas: they have places where players start in a deathmatch, and none for one who plays alone.
_ARENAS = ("cig", "multi_duel")


def _id_of(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("_")) + "-v1"


SCENARIOS = (
    *(Scenario(_id_of(name), f"{name}.cfg") for name in _OF_THE_WHEEL),
    *(Scenario(_id_of(name), f"{name}.cfg", game_args="-deathmatch") for name in _ARENAS),
    # The four of "Learning to Act by Predicting the Future", as EnvPool sets them up.
    Scenario("D1Basic-v1", "gather.cfg", "health_gathering.wad"),
    Scenario("D2Navigation-v1", "gather.cfg", "health_gathering_supreme.wad"),
    Scenario("D3Battle-v1", "battle.cfg", "D3_battle.wad"),
    Scenario("D4Battle2-v1", "battle.cfg", "D4_battle2.wad"),
    Scenario("VizdoomCustom-v1"),
)
