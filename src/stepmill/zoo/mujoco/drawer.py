"""Pictures of MuJoCo's envs: Gymnasium's renderer, on the env's own model and state.

::

    MujocoDrawer     one per pool, or per worker process; has a GlThread
      Studios        what lives in that thread
        Studio       one per model: Gymnasium's renderer with a GL context, and a camera for each env
"""

from __future__ import annotations

import atexit
import functools
import importlib
import inspect
import os
import queue
import threading
import traceback
import weakref
from collections.abc import Callable, Mapping
from typing import Any, Generic, Protocol, TypeVar

import gymnasium
import numpy as np

from stepmill.errors import ClosedError, ResourceError
from stepmill.sources.drawing import Scene
from stepmill.sources.source import NativeSource
from stepmill.system.headless import drawing_in_gymnasium
from stepmill.system.optional import MUJOCO, require
from stepmill.system.uninterrupted import uninterrupted
from stepmill.zoo.mujoco.installed import WarningLog
from stepmill.zoo.mujoco.render_arguments import RENDER_KEYS

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
            simulator.find_contacts()
            if studio is not None:
                return studio.draw(env_id, simulator)
            studio = Studio(simulator, str(self._source.render_mode), self._arguments(env_id), config)
            with drawing_in_gymnasium(self._user):
                frame = studio.draw(env_id, simulator)
        studios.add(env_id, studio)
        return frame

    def _arguments(self, env_id: int) -> dict[str, Any]:
        """The arguments of Gymnasium's renderer."""
        assert self._source.simulators is not None
        given = self._source.simulators.configs[env_id]
        arguments = {name: given.get(name, default) for name, default in RENDER_KEYS.items()}
        camera = given[_CAMERA_KEY] if _CAMERA_KEY in given else _default_camera(self._source.env_class)
        return {**arguments, "visual_options": arguments["visual_options"] or {}, "default_cam_config": camera}

    def close(self) -> None:
        self._thread.end()


def _render_fps(source: NativeSource) -> int:
    """Pictures per second, from the time that a step takes; for v4 a constant."""
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


# ---- in the thread that has the GL contexts ------------------------------------------------------


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


# ---- the thread: a GL context belongs to the thread that made it ---------------------------------

R = TypeVar("R")


class Closable(Protocol):
    def close(self) -> None: ...


W = TypeVar("W", bound=Closable)


class GlThread(Generic[W]):
    """Runs functions one after another in a thread of its own. Each is passed what ``make_world`` made there.

    That object lives in the frame of the thread and nowhere else. So nothing of it is freed in a forked child, which
    has no such thread: its contexts are the parent's.
    """

    def __init__(self, name: str, make_world: Callable[[], W]) -> None:
        self._jobs: queue.SimpleQueue[_Job[W, Any] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._has_ended = False
        self._pid = os.getpid()
        # A daemon, because Python waits for other threads before it calls what we registered for the exit.
        self._thread = threading.Thread(target=_serve, args=(self._jobs, make_world), name=name, daemon=True)
        self._thread.start()
        _running.add(self)

    def run(self, function: Callable[[W], R]) -> R:
        """Calls the function there and returns its result. Ctrl-C waits for its end: it uses the caller's objects."""
        job = _Job(function)

        def ask(_: int | None) -> R:
            with self._lock:
                if self._has_ended:
                    raise ClosedError("render: the program is ending, and nothing draws any more")
                self._jobs.put(job)
            return job.wait()

        return uninterrupted(ask)

    def end(self) -> None:
        """Closes what was made there, and ends the thread."""
        if self._pid != os.getpid() or threading.get_ident() == self._thread.ident:
            return
        job: _Job[W, None] = _Job(lambda world: world.close())

        def ask(_: int | None) -> None:
            with self._lock:
                if self._has_ended:
                    return
                self._has_ended = True
                self._jobs.put(job)
                self._jobs.put(None)
            job.wait()

        uninterrupted(ask)
        self._thread.join()  # not in ``ask``: the threads that it may run in are unknown to the module of this one


class _Job(Generic[W, R]):
    def __init__(self, function: Callable[[W], R]) -> None:
        self._function: Callable[[W], R] | None = function
        self._outcome: queue.SimpleQueue[tuple[bool, Any]] = queue.SimpleQueue()

    def do(self, world: W) -> None:
        function, self._function = self._function, None
        assert function is not None
        try:
            outcome: tuple[bool, Any] = True, function(world)
        except BaseException as error:  # raised again in the thread that waits
            _drop_locals(error)
            outcome = False, error
        del function  # and what it holds of the caller
        self._outcome.put(outcome)

    def wait(self) -> R:
        is_good, value = self._outcome.get()
        if is_good:
            result: R = value
            return result
        raise value


def _drop_locals(error: BaseException | None) -> None:
    """So that contexts that were half made are freed here, not where the exception is dropped."""
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__


def _serve(jobs: queue.SimpleQueue[_Job[W, Any] | None], make_world: Callable[[], W]) -> None:
    world = make_world()
    while (job := jobs.get()) is not None:
        job.do(world)
        _end_threads_before_others()
        del job


# ---- the end of the program ------------------------------------------------------------------------

_running: weakref.WeakSet[GlThread[Any]] = weakref.WeakSet()


@functools.cache
def _end_threads_before_others() -> None:
    """Has the threads ended when the program ends, before what they use is.

    MuJoCo registers the end of EGL when it makes its first context, and what is registered last is called first: so
    this is called when there may be one.
    """
    atexit.register(_end_all)


def _end_all() -> None:
    for thread in list(_running):
        thread.end()
