"""The scenarios by EnvPool's names, and how a game is configured for one."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stepmill.errors import ConfigError, MissingConfigError, MissingPackageError


@dataclass(frozen=True)
class Scenario:
    """What is played: a file of ViZDoom's wheel, or a map with settings that the wheel has no file for."""

    id: str
    config: str | None = None  # a .cfg of the wheel
    wad: str | None = None  # without a .cfg: a map of the wheel, or of the package envpool-assets
    settings: dict[str, Any] = field(default_factory=dict)
    game_args: str = ""

    def configure(self, game: Any, cfg_path: str) -> None:
        """Sets up a game, but for the map of a scenario that has no ``.cfg``."""
        import vizdoom

        if cfg_path or self.config is not None:
            _load_config(self.id, game, cfg_path or os.path.join(vizdoom.scenarios_path, str(self.config)))
        elif self.wad is None:
            raise MissingConfigError(f"{self.id} needs cfg_path, the .cfg file of a scenario")
        else:
            game.set_config(self.settings)
        if self.game_args:
            game.add_game_args(self.game_args)

    def find_wad(self) -> str:
        """Returns the file of the map."""
        import vizdoom

        assets = importlib.util.find_spec("envpool_assets")
        places = [] if assets is None else assets.submodule_search_locations or ()
        for folder in (Path(vizdoom.scenarios_path), *(Path(one, "vizdoom", "maps") for one in places)):
            if (folder / str(self.wad)).is_file():
                return str(folder / str(self.wad))
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
    # It says what is wrong to the standard error of its process, and nowhere else.
    code = "import sys; sys.path[:] = sys.argv[2:]; import vizdoom; vizdoom.DoomGame().load_config(sys.argv[1])"
    arguments = [sys.executable, "-c", code, whole, *sys.path]
    run = subprocess.run(arguments, capture_output=True, text=True, errors="replace", check=False)
    said = run.stderr.replace("WARNING! Loading config from:", "").replace(f'"{whole}".', "")
    raise ConfigError(f"{user}: cfg_path: {path!r} has errors: {' '.join(said.split())}")


_OF_THE_WHEEL = (
    *("basic", "basic_audio", "basic_notifications", "deadly_corridor", "deathmatch", "defend_the_center"),
    *("defend_the_line", "health_gathering", "health_gathering_supreme", "my_way_home", "predict_position"),
    *("rocket_basic", "simpler_basic", "take_cover"),
)
# Arenas: they have places where players start in a deathmatch, and none for one who plays alone.
_ARENAS = ("cig", "multi_duel")

# The four of "Learning to Act by Predicting the Future", as EnvPool sets them up. Two play on maps of the wheel.
_SMALL_AND_GREY = {
    "doom_map": "map01",
    "screen_resolution": "RES_160X120",
    "screen_format": "GRAY8",
    "render_hud": False,
    "render_decals": False,
    "render_particles": False,
    "episode_timeout": 2100,
    "mode": "PLAYER",
}
_GATHER = {
    **_SMALL_AND_GREY,
    "render_crosshair": False,
    "render_weapon": False,
    "living_reward": 1,
    "available_buttons": ["TURN_LEFT", "TURN_RIGHT", "MOVE_FORWARD"],
    "available_game_variables": ["HEALTH"],
}
_BATTLE = {
    **_SMALL_AND_GREY,
    "render_crosshair": True,
    "render_weapon": True,
    "doom_skill": 2,
    "available_buttons": [
        *("MOVE_FORWARD", "MOVE_BACKWARD", "MOVE_RIGHT", "MOVE_LEFT"),
        *("TURN_LEFT", "TURN_RIGHT", "ATTACK", "SPEED"),
    ],
    "available_game_variables": ["AMMO2", "HEALTH", "USER2"],
}


def _id_of(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("_")) + "-v1"


SCENARIOS = (
    *(Scenario(_id_of(name), f"{name}.cfg") for name in _OF_THE_WHEEL),
    *(Scenario(_id_of(name), f"{name}.cfg", game_args="-deathmatch") for name in _ARENAS),
    Scenario("D1Basic-v1", wad="health_gathering.wad", settings=_GATHER),
    Scenario("D2Navigation-v1", wad="health_gathering_supreme.wad", settings=_GATHER),
    Scenario("D3Battle-v1", wad="D3_battle.wad", settings=_BATTLE),
    Scenario("D4Battle2-v1", wad="D4_battle2.wad", settings=_BATTLE),
    Scenario("VizdoomCustom-v1"),
)
