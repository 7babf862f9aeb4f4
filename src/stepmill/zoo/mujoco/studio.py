"""Gymnasium's renderer for several envs. Everything here runs in the thread that has the GL contexts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stepmill.errors import ResourceError
from stepmill.zoo.mujoco.warned import WarningLog

__all__ = ["Studio", "Studios"]


class Studio:
    """A renderer of Gymnasium, made for one model and one configuration, and the camera of each env that it draws.

    Envs with the same of both share it, because opening one is slow and takes much memory without a GPU. What envs do
    not share is the camera: Gymnasium points it at an env when it first draws that env, and leaves it there.
    """

    def __init__(self, simulator: Any, render_mode: str, arguments: Mapping[str, Any], config: object) -> None:
        from gymnasium.envs.mujoco.mujoco_rendering import MujocoRenderer

        self.model = simulator.model
        self.config = config
        self._render_mode = render_mode
        self._size = arguments["width"], arguments["height"]
        self._renderer: Any = MujocoRenderer(simulator.model, simulator.data, **arguments)
        self._cameras: dict[int, Any] = {}

    def draw(self, env_id: int, simulator: Any) -> Any:
        """A picture of an env. The first call opens a GL context."""
        if self._renderer.viewer is None:
            return self._open(env_id)
        self._turn_to(env_id, simulator)
        return self._renderer.render(self._render_mode)

    def _open(self, env_id: int) -> Any:
        try:
            frame = self._renderer.render(self._render_mode)
        except Exception as error:
            if "framebuffer" not in str(error):
                raise
            width, height = self._size
            raise ResourceError(
                f"width, height: OpenGL cannot draw pictures of {width} x {height} on this machine ({error})"
            ) from error
        self._cameras[env_id] = self._renderer.viewer.cam
        return frame

    def _turn_to(self, env_id: int, simulator: Any) -> None:
        """Shows the viewer another env. Its model may be another one than at the first picture."""
        viewer = self._renderer.viewer
        viewer.make_context_current()
        viewer.model, viewer.data = simulator.model, simulator.data
        if env_id in self._cameras:
            viewer.cam = self._cameras[env_id]
            return
        viewer.cam = type(viewer.cam)()
        viewer._init_camera()
        self._renderer._set_cam_config()
        self._cameras[env_id] = viewer.cam

    def close(self) -> None:
        """Frees the GL context."""
        viewer = self._renderer.viewer
        if viewer is not None:
            viewer.make_context_current()
            viewer.con.free()
            viewer.free()  # not close(), which also ends GLFW, and with it the windows of others


class Studios:
    """The studios of a pool, or of a worker process."""

    def __init__(self, warnings: WarningLog) -> None:
        self._warnings = warnings
        self._all: list[Studio] = []
        self._by_env: dict[int, Studio] = {}

    def of(self, env_id: int, model: Any, config: object) -> Studio | None:
        """The studio of an env: at its first picture one made for its model and configuration, later always that one.

        As in Gymnasium, where a model that is changed after the first picture leaves the renderer as it is.
        """
        if env_id not in self._by_env:
            found = next((one for one in self._all if one.model is model and one.config is config), None)
            if found is None:
                return None
            self._by_env[env_id] = found
        return self._by_env[env_id]

    def add(self, env_id: int, studio: Studio) -> None:
        self._all.append(studio)
        self._by_env[env_id] = studio

    def close(self) -> None:
        self._by_env.clear()
        with self._warnings.listening():
            while self._all:
                self._all.pop().close()
