"""The options of the preprocessed envs, with EnvPool's names and defaults."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from stepmill.errors import ConfigError
from stepmill.values.arguments import one_of, true_or_false, whole_number
from stepmill.zoo.vizdoom.rewards import read_reward_config

__all__ = ["OPTIONS", "DoomOptions", "read_options"]


@dataclass(frozen=True)
class DoomOptions:
    """See docs/zoo.md for what each means. Those of buttons and weapons are checked when the game is known."""

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
_NUMBERS = tuple(one.name for one in fields(DoomOptions) if type(one.default) is int)
_FLAGS = tuple(one.name for one in fields(DoomOptions) if type(one.default) is bool)
_TEXTS = ("map_id", "game_args")
_PATHS = ("lmp_save_dir", "cfg_path", "wad_path", "iwad_path", "vzd_path")


def read_options(given: Mapping[str, Any]) -> DoomOptions:
    """Checks the values of options whose names are known."""
    read = dict(given)
    key = "reward_config"
    if "reward_metric" in read:  # the same by another name
        if key in read:
            raise ConfigError("reward_config and reward_metric are one option: expected one of them, got both")
        read["reward_config"] = read.pop(key := "reward_metric")
    options = DoomOptions(**read)
    checked: dict[str, Any] = {"reward_config": read_reward_config(key, options.reward_config)}
    checked |= {name: whole_number(name, getattr(options, name), 1) for name in _NUMBERS}
    checked |= {name: true_or_false(name, getattr(options, name)) for name in _FLAGS}
    checked |= {name: _text(name, getattr(options, name)) for name in _TEXTS}
    checked |= {
        name: _text(name, os.fspath(path) if isinstance(path := getattr(options, name), os.PathLike) else path)
        for name in _PATHS
    }
    if checked["img_height"] * checked["img_width"] * checked["stack_num"] > 1 << 28:
        raise ConfigError(
            "img_height, img_width, stack_num: expected observations of at most 256 MB per channel, got "
            f"{options.stack_num} frames of {options.img_height} x {options.img_width}"
        )
    if options.render_mode is not None:
        one_of("render_mode", options.render_mode, ("rgb_array",))
    if options.force_speed and not options.use_combined_action:
        raise ConfigError("force_speed=True needs use_combined_action=True: other actions name every button themselves")
    return DoomOptions(**{**vars(options), **checked})


def _text(name: str, value: Any) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        raise ConfigError(f"{name}: expected a str, got {value!r}")
    return value
