"""The arguments of Gymnasium's MuJoCo envs that only pictures depend on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from stepmill.errors import ConfigError, summary
from stepmill.values.arguments import whole_number

# With Gymnasium's defaults.
RENDER_KEYS: Mapping[str, Any] = {
    "width": 480,
    "height": 480,
    "camera_id": None,
    "camera_name": None,
    "max_geom": 1000,
    "visual_options": None,
}
_MOST = 2**31 - 1  # MuJoCo counts in C's int


def check_render_arguments(config: Mapping[str, Any], mujoco: Any, model: Any) -> None:
    """Raises ``ConfigError`` for what would fail when the first picture is drawn, or end the process then."""
    for name, low in (("width", 1), ("height", 1), ("max_geom", 0)):
        whole_number(name, config[name], low, _MOST)
    camera_id, camera_name = config["camera_id"], config["camera_name"]
    if camera_id is not None:
        whole_number("camera_id", camera_id, -1, model.ncam - 1)  # MuJoCo ends the process if there is no such camera
    if camera_name is not None and not isinstance(camera_name, str):
        raise ConfigError(f"camera_name: expected None or a str, got {camera_name!r}")
    if camera_id is not None and camera_name is not None:
        raise ConfigError(f"camera_id, camera_name: expected one of them, got {camera_id} and {camera_name!r}")
    _check_items("visual_options", config["visual_options"], mujoco.MjvOption().flags, _set_item)
    _check_items("default_camera_config", config.get("default_camera_config"), mujoco.MjvCamera(), _set_attribute)


def _check_items(name: str, values: Any, target: Any, put: Any) -> None:
    """Tries what the renderer will do with each item."""
    if values is None:
        return
    if not isinstance(values, Mapping):
        raise ConfigError(f"{name}: expected None or a dict, got {values!r}")
    for key, value in values.items():
        try:
            put(target, key, value)
        except (AttributeError, IndexError, TypeError, ValueError) as error:
            raise ConfigError(f"{name}: MuJoCo does not take {key!r}: {value!r} ({summary(error)})") from error


def _set_item(target: Any, key: Any, value: Any) -> None:
    target[key] = value


def _set_attribute(target: Any, key: Any, value: Any) -> None:
    if isinstance(value, np.ndarray):
        getattr(target, key)[:] = value
    else:
        setattr(target, key, value)


def fit_offscreen_buffer(config: Mapping[str, Any], model: Any) -> None:
    """Makes room for pictures of that size, as Gymnasium does."""
    size = model.vis.global_
    size.offwidth = max(size.offwidth, config["width"])
    size.offheight = max(size.offheight, config["height"])
