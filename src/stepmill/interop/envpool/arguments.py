"""From the arguments of ``envpool.make`` to ours."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from stepmill.errors import ConfigError, UnsupportedError
from stepmill.make import make_spec
from stepmill.values.arguments import one_of, whole_number
from stepmill.zoo.dm_control import TASKS


def _dm_control_id(domain: str, task: str) -> str:
    """What EnvPool calls a task of dm_control's suite: ``CartpoleTwoPoles-v1``."""
    return "".join(word[0].upper() + word[1:] for word in f"{domain}_{task}".split("_")) + "-v1"


# Envs that have another id here: those that Gymnasium has renamed, and dm_control's tasks.
IDS = {"CliffWalking-v0": "CliffWalking-v1"}
IDS |= {
    _dm_control_id(domain, one): f"dm_control/{domain}-{one}-v0" for domain, tasks in TASKS.items() for one in tasks
}

# Keys of envs that have another name in Gymnasium, whose names ours are: the first that the env has.
_NAMES = {
    "ctrl_cost_weight": ("ctrl_cost_weight", "reward_control_weight"),
    "dist_cost_weight": ("reward_dist_weight",),
    "use_contact_force": ("use_contact_forces", "include_cfrc_ext_in_observation"),
}


@dataclass(frozen=True)
class Extras:
    """Arguments that the engine does not need."""

    reward_threshold: float | None = None  # instead of the env's own
    reset_returns_info: bool = True
    shows_windows: bool = False
    render_env_id: int = 0
    render_size: tuple[int, int] | None = None  # width and height, if the env cannot draw in that size itself


def read(task_id: Any, given: Mapping[str, Any]) -> tuple[dict[str, Any], Extras]:
    """The arguments for our ``make``, and the others. What only ours has, such as ``backend``, goes through."""
    ours = {"task_id": IDS.get(task_id, task_id) if isinstance(task_id, str) else task_id, **given}
    ours.pop("base_path", None)  # where EnvPool's own files are
    if not ours.pop("gym_reset_return_info", True):
        raise ConfigError(
            "gym_reset_return_info: EnvPool 1.x always returns (obs, info). stepmill.interop.envpool.legacy returns "
            "observations alone, as EnvPool 0.x did"
        )
    for name, only in (("output", "numpy"), ("device", "cpu")):
        if ours.get(name, only) != only:
            raise ConfigError(
                f"{name}: EnvPool's pools hand out numpy arrays, got {ours[name]!r}. stepmill.make has this argument"
            )
    if ours.pop("from_pixels", False):
        raise UnsupportedError("from_pixels: these envs have no pixel observations; render() draws them")
    for name in ("batch_size", "num_threads"):
        if ours.get(name) == 0:  # EnvPool's word for "the default"
            del ours[name]
    env_seed = ours.pop("env_seed", None)
    if env_seed is not None:
        if isinstance(env_seed, str) or not hasattr(env_seed, "__len__"):
            raise ConfigError(f"env_seed: expected a list of seeds, one per env, got {env_seed!r}")
        if len(env_seed):  # an empty list is EnvPool's default
            ours["seed"] = env_seed
    threshold = ours.pop("reward_threshold", None)
    drawing = _read_drawing(ours)
    _rename(ours)
    return ours, Extras(reward_threshold=threshold, **drawing)


def _read_drawing(ours: dict[str, Any]) -> dict[str, Any]:
    """Takes the ``render_...`` keys out, and says how pictures are drawn."""
    mode = ours.pop("render_mode", None)
    if mode is not None:
        one_of("render_mode", mode, ("rgb_array", "human"))
        ours["render_mode"] = "rgb_array"  # a window shows the same picture
    env_id = whole_number("render_env_id", ours.pop("render_env_id", 0), 0)
    width, height = ours.pop("render_width", None), ours.pop("render_height", None)
    camera = ours.pop("render_camera_id", None)
    asked = {"width": width, "height": height, "camera_id": None if camera == -1 else camera}
    asked = {key: value for key, value in asked.items() if value is not None}
    size = None
    if asked and "camera_id" in _config_of(ours):  # the env draws in any size
        ours.update(asked)
    elif "camera_id" in asked:
        raise UnsupportedError(f"render_camera_id: {ours['task_id']} has no cameras")
    elif len(asked) == 1:
        raise ConfigError("render_width, render_height: expected both or neither, got one")
    elif asked:
        size = whole_number("render_width", width, 1), whole_number("render_height", height, 1)
    return {"shows_windows": mode == "human", "render_env_id": env_id, "render_size": size}


def _rename(ours: dict[str, Any]) -> None:
    """Gives the env's keys the names that we know them by."""
    ends = [key for key in ours if key.endswith(("_min", "_max"))]
    if not ends and ours.keys().isdisjoint(_NAMES) and "size" not in ours:
        return
    config = _config_of(ours)
    for key in ours.keys() & _NAMES.keys():
        known = next((name for name in _NAMES[key] if name in config), key)
        ours[known] = ours.pop(key)
    for key in ends:
        whole, end = f"{key[:-4]}_range", key[-3:]
        if key not in config and whole in config:
            low, high = ours.get(whole, config[whole])
            value = ours.pop(key)
            ours[whole] = (value, high) if end == "min" else (low, value)
    if "map_name" in config and "size" in ours:
        size = ours.pop("size")
        ours["map_name"] = f"{size}x{size}"


def _config_of(ours: Mapping[str, Any]) -> dict[str, Any]:
    """The env's own keys, with their defaults."""
    return make_spec(ours["task_id"]).env_configs[0]
