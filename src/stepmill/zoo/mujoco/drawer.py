"""Pictures of MuJoCo's envs: Gymnasium's renderer, on the env's own model and state.

::

    MujocoDrawer     one per pool, or per worker process; has a thread for OpenGL
      Studios        what lives in that thread
        Studio       one per model: Gymnasium's renderer with a GL context, and a camera for each env
"""

from __future__ import annotations

import importlib
import inspect
from typing import Any

import gymnasium
import numpy as np

from stepmill.sources.drawing import Scene
from stepmill.sources.source import NativeSource
from stepmill.system.headless import drawing_in_gymnasium
from stepmill.system.optional import MUJOCO, require
from stepmill.zoo.mujoco.gl_thread import GlThread
from stepmill.zoo.mujoco.render_arguments import RENDER_KEYS
from stepmill.zoo.mujoco.studio import Studio, Studios
from stepmill.zoo.mujoco.warned import WarningLog

__all__ = ["MujocoDrawer"]

_CAMERA_KEY = "default_camera_config"


class MujocoDrawer:
    """A ``Drawer``: see ``stepmill.sources.drawing``."""

    def __init__(self, source: NativeSource) -> None:
        self._source = source
        self._user = f"render_mode={source.render_mode!r} of {source.id}"
        for package in ("glfw", "imageio"):  # of Gymnasium's renderer; neither Gymnasium nor MuJoCo requires both
            require(package, package, MUJOCO.extra, self._user)
        self._warnings = warnings = WarningLog(source.env_class)
        self._thread = GlThread(f"stepmill draws {source.id}", lambda: Studios(warnings))

    @classmethod
    def render_modes(cls) -> list[str]:
        return ["human", "rgb_array", "depth_array", "rgbd_tuple"]

    @classmethod
    def metadata(cls, source: NativeSource) -> dict[str, Any]:
        modes = {"render_modes": cls.render_modes()}
        try:
            return {**modes, "render_fps": _render_fps(source)}
        except ModuleNotFoundError:  # what only pictures need may be missing
            return modes

    def draw(self, scene: Scene) -> Any:
        return self._thread.run(lambda studios: self._draw(studios, scene.env_id, scene.simulator))

    def _draw(self, studios: Studios, env_id: int, simulator: Any) -> Any:
        assert self._source.simulators is not None
        config = self._source.simulators.configs[env_id]
        studio = studios.of(env_id, simulator.model, config)
        with self._warnings.listening():
            if studio is not None:
                return studio.draw(env_id, simulator)
            studio = Studio(simulator, str(self._source.render_mode), self._arguments(env_id), config)
            with drawing_in_gymnasium(self._user):
                frame = studio.draw(env_id, simulator)
        studios.add(env_id, studio)
        return frame

    def _arguments(self, env_id: int) -> dict[str, Any]:
        """Those of Gymnasium's renderer."""
        assert self._source.simulators is not None
        given = self._source.simulators.configs[env_id]
        arguments = {name: given.get(name, default) for name, default in RENDER_KEYS.items()}
        camera = given[_CAMERA_KEY] if _CAMERA_KEY in given else _default_camera(self._source.env_class)
        return {**arguments, "visual_options": arguments["visual_options"] or {}, "default_cam_config": camera}

    def close(self) -> None:
        self._thread.end()


def _render_fps(source: NativeSource) -> int:
    """From the time that a step takes, or for v4 a constant."""
    if source.env_class.endswith("v4"):
        return int(_gymnasium_class(source.env_class).metadata["render_fps"])
    assert source.simulators is not None
    model: Any = source.simulators.kind(0)
    return int(np.round(1.0 / (model.model.opt.timestep * source.config["frame_skip"])))


def _default_camera(env_class: str) -> Any:
    """The camera of Gymnasium's class: a default in its signature or, for v4, a constant of its module."""
    gymnasium_class = _gymnasium_class(env_class)
    parameter = inspect.signature(gymnasium_class).parameters.get(_CAMERA_KEY)
    if parameter is not None:
        return parameter.default
    return getattr(inspect.getmodule(gymnasium_class), _CAMERA_KEY.upper(), None)


def _gymnasium_class(env_class: str) -> Any:
    module, _, name = str(gymnasium.registry[env_class].entry_point).partition(":")
    return getattr(importlib.import_module(module), name)
