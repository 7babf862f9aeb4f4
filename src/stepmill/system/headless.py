"""Drawing with MuJoCo on a machine without a display: what is missing, and how to choose what is there."""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import os
import traceback
import warnings
from collections.abc import Iterator

from stepmill.errors import StepmillError, UnsupportedError, summary

# What MUJOCO_GL calls them, the libraries that they are, and the Debian package of these.
_BACKENDS = {
    "egl": (("libEGL.so.1",), "libegl1 and, without a GPU, libgl1-mesa-dri"),
    "osmesa": (("libOSMesa.so.8", "libOSMesa.so.6", "libOSMesa.so"), "libosmesa6"),
}
# The code that talks to OpenGL. Whatever it raises, drawing is what failed.
_DRAWING = (
    *("dm_control._render", "mujoco.egl", "mujoco.gl_context", "mujoco.glfw", "mujoco.osmesa", "mujoco.rendering"),
    "OpenGL",
)


# How MuJoCo failed to use OpenGL in this process. It aborts the process if it is asked a second time.
_failure: str | None = None
_first_pid: int | None = None  # of the process that used Gymnasium's renderer first, this one or an ancestor


@contextlib.contextmanager
def drawing(user: str, backend: str | None = None) -> Iterator[None]:
    """Turns a failure of OpenGL inside into an error that says what to do about it.

    ``backend`` is what will draw, if that is known: GLFW without a display is not even tried.
    """
    global _failure
    if _failure is not None:
        raise _cannot_draw(user, _failure)
    if backend == "glfw" and not _glfw_works():
        raise _cannot_draw(user, "GLFW needs a display")
    try:
        yield
    except StepmillError:
        raise
    except Exception as error:
        if not _is_of_drawing(error):
            raise
        if type(error).__name__ == "FatalError":  # of MuJoCo
            _failure = summary(error)
        raise _cannot_draw(user, summary(error)) from error


@contextlib.contextmanager
def drawing_in_gymnasium(user: str) -> Iterator[None]:
    """``drawing``, and the choice of what draws, for Gymnasium's own renderer inside.

    Without MUJOCO_GL that means to try GLFW, EGL and OSMesa in turn, but takes GLFW to work where there is no display.
    """
    global _first_pid
    if _first_pid not in (None, os.getpid()):  # it would wait forever for threads of OpenGL that only its parent has
        raise UnsupportedError(
            f"{user} cannot draw here: this process was forked from one that had drawn already, which OpenGL does not "
            "survive. Draw in the parent, in a pool with backend='process', or in a process that was not forked "
            "(multiprocessing's 'spawn')"
        )
    backend = _choose()
    with drawing(user, backend):
        if backend not in ("glfw", *_BACKENDS):
            raise _cannot_draw(user, "MUJOCO_GL has to be glfw, egl or osmesa")
        # What is wrong with it is said by this context: Gymnasium's viewer, half made, would complain at its end.
        importlib.import_module(f"mujoco.{backend}").GLContext(8, 8).free()
        former = os.environ.get("MUJOCO_GL")
        os.environ["MUJOCO_GL"] = backend
        try:
            yield
            _first_pid = os.getpid()
        finally:
            if former is None:
                del os.environ["MUJOCO_GL"]
            else:
                os.environ["MUJOCO_GL"] = former


def _choose() -> str:
    """What the user chose, or the first that may work here."""
    chosen = os.environ.get("MUJOCO_GL", "").lower().strip()
    if chosen:
        return chosen
    return "glfw" if _glfw_works() else next(iter(drawing_libraries()), "glfw")


def _cannot_draw(user: str, reason: str) -> UnsupportedError:
    return UnsupportedError(f"{user} cannot draw: {reason.rstrip('.')}. {_advice()}")


def _glfw_works() -> bool:
    import glfw

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns, and returns False
        return bool(glfw.init())


def _is_of_drawing(error: BaseException) -> bool:
    modules = [frame.f_globals.get("__name__", "") for frame, _ in traceback.walk_tb(error.__traceback__)]
    return "OpenGL" in str(error) or any(f"{module}.".startswith(f"{one}.") for module in modules for one in _DRAWING)


def _advice() -> str:
    """What this machine has for drawing without a display, and what to do."""
    chosen = os.environ.get("MUJOCO_GL")
    has_display = any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))
    there = drawing_libraries()
    missing = {name: package for name, (_, package) in _BACKENDS.items() if name not in there}
    facts = [
        f"MUJOCO_GL is {chosen!r}" if chosen else "MUJOCO_GL is not set",
        "there is a display" if has_display else "there is no display",
        *(f"{name.upper()} is installed" for name in there),
        *(f"{name.upper()} is missing (install {package})" for name, package in missing.items()),
    ]
    what = " or ".join(f"MUJOCO_GL={name}" for name in there or _BACKENDS)
    return f"{', '.join(facts)}: set {what} before Python starts"


def drawing_libraries() -> list[str]:
    """The installed renderers that draw without a display, as MUJOCO_GL calls them."""
    return [name for name, (files, _) in _BACKENDS.items() if any(map(_loads, files))]


def _loads(library: str) -> bool:
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True
