"""A task of dm_control's suite as a Gymnasium env. See ``zoo/dm_control.py`` for what there is."""

from __future__ import annotations

import contextlib
import sys
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np

from stepmill.envs.adapters.dm_adapter import SEED_MODULUS, DmAsGymnasium, space_of_spec
from stepmill.system.headless import drawing
from stepmill.system.optional import DM_CONTROL, explained_misfit, require

# Domains whose models are drawn from the seed at construction: another seed is another model.
_RANDOM_MODELS = ("lqr",)
# Tasks that need OpenGL for a reset, even if nobody looks.
_DRAWN_AT_RESET = ("quadruped-escape",)


@dataclass(frozen=True)
class SuiteTask:
    """How a task is built. ``picture`` has the keyword arguments of ``physics.render``."""

    domain: str
    task: str
    flat_observation: bool
    from_pixels: bool
    pixels_only: bool
    picture: dict[str, Any]
    visualize_reward: bool
    task_kwargs: dict[str, Any]
    environment_kwargs: dict[str, Any]

    def __str__(self) -> str:
        return f"{self.domain}-{self.task}"

    def build(self, seed: int | None = None) -> Any:
        """A ``dm_env.Environment``; without a seed, dm_control draws one."""
        suite = _import_suite(str(self))
        environment = dict(self.environment_kwargs)
        if self.flat_observation:
            environment["flat_observation"] = True
        with explained_misfit(DM_CONTROL, "mujoco", str(self)):
            env = suite.load(
                self.domain, self.task, {**self.task_kwargs, "random": seed}, environment, self.visualize_reward
            )
        if not self.from_pixels:
            return env
        from dm_control.suite.wrappers import pixels

        with self.drawing():
            return pixels.Wrapper(env, self.pixels_only, self.picture)

    def drawing(self) -> contextlib.AbstractContextManager[None]:
        """Returns a context to draw in."""
        return drawing(str(self), sys.modules["dm_control._render"].BACKEND)


def _import_suite(user: str) -> Any:
    module = "dm_control.suite"
    if module in sys.modules:
        return sys.modules[module]
    with warnings.catch_warnings(), drawing(user):
        # Without a display, GLFW warns at import: nothing to worry about unless something is drawn.
        warnings.filterwarnings("ignore", ".*(X11|Wayland|DISPLAY)", UserWarning)
        return require(module, DM_CONTROL.name, DM_CONTROL.extra, user)


class SuiteEnv(DmAsGymnasium):
    """Equal to ``suite.load(..., task_kwargs={"random": seed})`` from ``reset(seed=seed)`` on, over all episodes."""

    def __init__(self, task: SuiteTask) -> None:
        self._task = task
        super().__init__(task.build())
        observed = dict(self.dm_env.observation_spec())
        if task.from_pixels:
            pixels = observed["pixels"]
            observed["pixels"] = pixels.replace(shape=(pixels.shape[-1], *pixels.shape[:-1]))
        self._only = next(iter(observed)) if task.flat_observation and len(observed) == 1 else None
        self.observation_space = space_of_spec(observed if self._only is None else observed[self._only])
        self.metadata = {"render_modes": ["rgb_array"], "render_fps": 1 / self.dm_env.control_timestep()}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        with self._task.drawing() if str(self) in _DRAWN_AT_RESET else contextlib.nullcontext():
            return super().reset(seed=seed, options=options)

    def _seed(self, seed: int) -> None:
        if self._task.domain in _RANDOM_MODELS:
            self.dm_env.physics.free()
            self.dm_env = self._task.build(seed % SEED_MODULUS)
        else:
            super()._seed(seed)

    def _seen(self, timestep: Any) -> Any:
        seen = dict(timestep.observation)
        if self._task.from_pixels:
            seen["pixels"] = np.ascontiguousarray(np.moveaxis(seen["pixels"], -1, 0))
        return seen if self._only is None else seen[self._only]

    def render(self) -> Any:
        with self._task.drawing():
            return self.dm_env.physics.render(**self._task.picture)

    def close(self) -> None:
        super().close()
        self.dm_env.physics.free()  # its context of OpenGL above all

    def __str__(self) -> str:
        return str(self._task)
