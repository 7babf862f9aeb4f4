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

__all__ = ["SCENARIOS", "Scenario", "load_config"]


@dataclass(frozen=True)
class Scenario:
    """What is played: a file of ViZDoom's wheel, or a map with settings that the wheel has no file for."""

    id: str
    config: str | None = None  # a .cfg of the wheel
    wad: str | None = None  # without a .cfg: a map of the wheel, or of the package envpool-assets
    settings: dict[str, Any] = field(default_factory=dict)
    game_args: str = ""

    def configure(self, game: Any, cfg_path: str, wad_path: str, takes_any_wad: bool = False) -> None:
        """Sets up a game. ``takes_any_wad``: for a description, which does not need the map."""
        import vizdoom

        if cfg_path:
            load_config(self.id, game, cfg_path)
        elif self.config is not None:
            load_config(self.id, game, os.path.join(vizdoom.scenarios_path, self.config))
        elif self.wad is None:
            raise MissingConfigError(f"{self.id} needs cfg_path, the .cfg file of a scenario")
        else:
            game.set_config(self.settings)
        if wad_path:
            game.set_doom_scenario_path(os.path.abspath(wad_path))
        elif not cfg_path and self.wad is not None and not takes_any_wad:
            game.set_doom_scenario_path(self._find_wad(self.wad))
        if self.game_args:
            game.add_game_args(self.game_args)

    def _find_wad(self, wad: str) -> str:
        import vizdoom

        folders = [Path(vizdoom.scenarios_path)]
        assets = importlib.util.find_spec("envpool_assets")
        if assets is not None:
            folders += [Path(one) / "vizdoom" / "maps" for one in assets.submodule_search_locations or ()]
        for folder in folders:
            if (folder / wad).is_file():
                return str(folder / wad)
        raise MissingPackageError(
            f"{self.id} needs {wad}, which ViZDoom does not have: pip install envpool-assets, or say where it is with "
            "wad_path"
        )


def load_config(user: str, game: Any, path: str) -> None:
    """Reads a ``.cfg``. ViZDoom skips the lines that it does not understand; here they are an error."""
    whole = os.path.abspath(path)
    if not os.path.isfile(whole):
        raise ConfigError(f"{user}: cfg_path: expected a .cfg file, got {path!r}, which is none")
    if not game.load_config(whole):
        raise ConfigError(f"{user}: cfg_path: {path!r} has errors: {_complaints(whole)}")


def _complaints(path: str) -> str:
    """What ViZDoom writes about a ``.cfg``, which it does only to the standard error of its process."""
    program = "import sys; path = sys.argv.pop(); sys.path[:] = sys.argv[1:]; import vizdoom; "
    program += "vizdoom.DoomGame().load_config(path)"
    arguments = [sys.executable, "-c", program, *sys.path, path]
    run = subprocess.run(arguments, capture_output=True, text=True, errors="replace", check=False)
    return " ".join(run.stderr.replace("WARNING! Loading config from:", "").replace(f'"{path}".', "").split())


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
