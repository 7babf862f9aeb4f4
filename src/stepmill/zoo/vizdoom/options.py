"""The options of the preprocessed envs, with EnvPool's names and defaults."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from stepmill.errors import ConfigError
from stepmill.system.optional import VIZDOOM, require
from stepmill.values.arguments import real_number, whole_number
from stepmill.zoo.frame_options import checked_options


@dataclass(frozen=True)
class DoomOptions:
    """See docs/zoo.md for what each means. Those of buttons are checked when the game is known."""

    img_height: int = 84
    img_width: int = 84
    stack_num: int = 4
    frame_skip: int = 4
    use_inter_area_resize: bool = True
    use_combined_action: bool = False
    force_speed: bool = False
    delta_button_config: Any = field(default_factory=dict)
    reward_config: Any = "default"  # EnvPool's table; None is the scenario's own reward
    selected_weapon_reward_config: Any = "default"
    weapon_duration: int = 5
    episodic_life: bool = False
    scenario_timeout: bool = False
    lmp_save_dir: str = ""
    cfg_path: str = ""
    wad_path: str = ""
    iwad_path: str = ""
    vzd_path: str = ""
    map_id: str = ""
    game_args: str = ""
    render_mode: str | None = "rgb_array"


OPTIONS: Mapping[str, Any] = {**vars(DoomOptions()), "reward_metric": "default"}  # with their defaults
_TEXTS = [name for name, default in OPTIONS.items() if default == ""]


def read_options(given: Mapping[str, Any]) -> DoomOptions:
    """Checks the values of options whose names are known."""
    read, key = dict(given), "reward_config"
    if "reward_metric" in read:  # the same by another name
        if key in read:
            raise ConfigError("reward_config and reward_metric are one option: expected one of them, got both")
        read["reward_config"] = read.pop(key := "reward_metric")
    options = checked_options("", DoomOptions, read, ("rgb_array",))
    options["reward_config"] = read_rewards(key, options["reward_config"])
    options["selected_weapon_reward_config"] = read_weapons(options["selected_weapon_reward_config"])
    for name in _TEXTS:
        text = options[name]
        options[name] = os.fspath(text) if isinstance(text, os.PathLike) else text or ""
        if not isinstance(options[name], str):
            raise ConfigError(f"{name}: expected a str, got {text!r}")
    if options["force_speed"] and not options["use_combined_action"]:
        raise ConfigError("force_speed=True needs use_combined_action=True: other actions name every button themselves")
    return DoomOptions(**options)


def read_rewards(name: str, given: Any) -> Any:
    """Checks ``reward_config``, under the name that it was given by: a dict, None or ``"default"``."""
    if given is None or given == "default":
        return given
    known = require(*VIZDOOM, name).GameVariable.__members__ if isinstance(given, Mapping) else ()
    return _read_table(name, given, "(rise, fall)", known, "names of ViZDoom's game variables, such as 'HEALTH'")


def read_weapons(given: Any) -> Any:
    """Checks ``selected_weapon_reward_config``."""
    if given == "default":
        return given
    by_weapon = {key: (value,) for key, value in given.items()} if isinstance(given, Mapping) else given
    table = _read_table("selected_weapon_reward_config", by_weapon, "(reward)", range(10), "weapons, 0 to 9")
    return {weapon: reward for weapon, (reward,) in table.items()}


def read_deltas(given: Any, available: Sequence[str]) -> dict[str, tuple[int, float, float]]:
    """Checks ``delta_button_config`` for a scenario that has these buttons."""
    known = [name for name in available if name.endswith("_DELTA")]
    keys = f"buttons with values that the scenario has, which are {', '.join(known) or 'none'}"
    table = _read_table("delta_button_config", given, "(number, first, last)", known, keys)
    numbers = {name: whole_number(f"delta_button_config[{name!r}]", given[name][0], 2) for name in table}
    return {name: (numbers[name], *table[name][1:]) for name in table}


def _read_table(name: str, given: Any, row: str, known: Collection[Any], keys: str) -> dict[Any, Any]:
    """Checks a dict of numbers. ``row`` shows what each key has, ``keys`` says what the known keys are."""
    if not isinstance(given, Mapping):
        raise ConfigError(f"{name}: expected a dict of {row} by {keys}, got {given!r}")
    for key, values in given.items():
        if key not in known:
            raise ConfigError(f"{name}: expected {keys}, got {key!r}")
        if not isinstance(values, list | tuple) or len(values) != len(row.split(",")):
            raise ConfigError(f"{name}[{key!r}]: expected {row}, got {values!r}")
    return {key: tuple(real_number(f"{name}[{key!r}]", one) for one in values) for key, values in given.items()}
