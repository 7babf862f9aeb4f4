"""EnvPool's interface over our pools.

A program that was written for EnvPool 1.x changes one line::

    import stepmill.interop.envpool as envpool

docs/from-envpool.md says what else is different. For programs of EnvPool 0.x, whose steps return four results, there is
``stepmill.interop.envpool.legacy``.
"""

from __future__ import annotations

import functools
import operator
import warnings
from collections.abc import Callable, Mapping
from typing import Any, Literal, NoReturn, overload

import dm_env
import gymnasium
import numpy as np
from gymnasium.vector import VectorEnv

import stepmill.registry.listing
from stepmill.errors import EnvIdError, UnsupportedError
from stepmill.interop.envpool.arguments import IDS, Extras, read
from stepmill.interop.envpool.spec import ArraySpec, EnvSpec, Results, is_field, named, names_of_observation
from stepmill.make import make_gym as make_pool
from stepmill.make import make_spec as make_pool_spec
from stepmill.system.optional import require
from stepmill.values.arguments import one_of
from stepmill.views.direct import Call, direct
from stepmill.views.dm import first_timestep_of, timestep_of
from stepmill.views.pool import PoolView

__all__ = [
    "ArraySpec",
    "DMEnvPool",
    "EnvPool",
    "EnvSpec",
    "GymnasiumEnvPool",
    "__version__",
    "list_all_envs",
    "make",
    "make_dm",
    "make_gym",
    "make_gymnasium",
    "make_spec",
    "register",
]

__version__ = "1.2.7"  # the EnvPool whose interface this is


@overload
def make(task_id: Any, env_type: Literal["gym", "gymnasium"], **kwargs: Any) -> GymnasiumEnvPool: ...
@overload
def make(task_id: Any, env_type: Literal["dm"], **kwargs: Any) -> DMEnvPool: ...
def make(task_id: Any, env_type: str, **kwargs: Any) -> GymnasiumEnvPool | DMEnvPool:
    """Makes a pool.

    Args:
        task_id: An id, or anything else that ``stepmill.make`` takes.
        env_type: ``"gym"`` or ``"gymnasium"``, which are the same, or ``"dm"``.
        **kwargs: EnvPool's arguments and the env's own configuration. Those of ``stepmill.make`` work too.
    """
    one_of("env_type", env_type, ("dm", "gym", "gymnasium"))
    ours, extras = read(task_id, kwargs)
    view = DMEnvPool if env_type == "dm" else GymnasiumEnvPool
    return view.over(make_pool(**ours), extras=extras)


def make_gymnasium(task_id: Any, **kwargs: Any) -> GymnasiumEnvPool:
    """``make(task_id, "gymnasium", ...)``."""
    return make(task_id, "gymnasium", **kwargs)


def make_gym(task_id: Any, **kwargs: Any) -> GymnasiumEnvPool:
    """``make_gymnasium``: EnvPool's ``gym`` has followed Gymnasium since version 1.0."""
    return make_gymnasium(task_id, **kwargs)


def make_dm(task_id: Any, **kwargs: Any) -> DMEnvPool:
    """``make(task_id, "dm", ...)``."""
    return make(task_id, "dm", **kwargs)


def make_spec(task_id: Any, **kwargs: Any) -> EnvSpec:
    """The spaces and the configuration of the pool that ``make`` would return, without making it."""
    ours, extras = read(task_id, kwargs)
    return EnvSpec(make_pool_spec(**ours, env_type="gym"), extras)


def list_all_envs() -> list[str]:
    """The ids that can be made here, those that only EnvPool has included."""
    ids = stepmill.registry.listing.list_all_envs()
    return sorted({*ids, *(theirs for theirs, ours in IDS.items() if ours in ids)})


def register(*args: Any, **kwargs: Any) -> NoReturn:
    """Raises: envs that were compiled with EnvPool cannot be used here."""
    raise UnsupportedError(
        "register: envs compiled with EnvPool cannot be used here. stepmill.register gives an env of your own an id"
    )


# ---- what `make` returns -------------------------------------------------------------------------


class EnvPool(PoolView):
    """What both kinds share."""

    spec: EnvSpec

    def __init__(self, *pool: Any, extras: Extras) -> None:
        super().__init__(*pool)
        self._extras = extras
        self._results = Results(self._pool_spec)
        self.spec = EnvSpec(self._pool_spec, extras)

    @property
    def config(self) -> dict[str, Any]:
        """The settings of the pool and of its envs."""
        config: dict[str, Any] = self.spec.config._asdict()
        return config

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.spec.id}, {self.spec.settings()})"

    __str__ = __repr__  # Gymnasium's has only the id

    def seed(self, seed: Any = None) -> None:
        """Does nothing but warn, as in EnvPool: ``make(seed=...)`` and ``reset(seed=...)`` seed the envs."""
        warnings.warn("seed() has no effect: use make(..., seed=...) or reset(seed=...)", stacklevel=2)

    def _reset_call(self, env_id: Any, seed: Any, options: Mapping[str, Any] | None) -> Call[Any]:
        """A reset. That of all envs in async mode is sent at once, and the call receives those that are ready first."""
        if not self.is_async or env_id is not None or (options and "reset_mask" in options):
            return self._engine.reset, self._reset_arguments(env_id, seed, options)
        self._engine.check_usable()
        self.drain()  # results of the episodes that are given up
        self.async_reset(seed=seed, options=options)
        self._results.as_reset = True
        return self._engine.recv, (None,)

    # ---- pictures ----------------------------------------------------------------------------

    def render(self, env_ids: Any = None, camera_id: int | None = None) -> np.ndarray | None:
        """Pictures, ``(B, H, W, 3)``: of one env, of several, or by default of ``render_env_id``.

        With ``render_mode="human"`` one env is shown in a window, and nothing is returned.
        """
        if camera_id is not None:
            raise UnsupportedError("render: the camera is chosen by make(..., render_camera_id=...)")
        ids = self._drawn(env_ids)
        frames = np.stack([self._resized(frame) for frame in PoolView.render(self, ids)])
        if not self._extras.shows_windows:
            return frames
        if len(ids) != 1:
            raise EnvIdError(f"render: render_mode='human' shows one env, got {len(ids)} ids")
        cv2 = _opencv("render_mode='human'")
        try:
            cv2.imshow(f"{self.spec.id}, env {ids[0]}", frames[0][..., ::-1])
        except cv2.error as error:
            raise UnsupportedError(
                f"render_mode='human': {error}. Windows need opencv-python, not the headless one"
            ) from error
        cv2.waitKey(1)
        return None

    def _drawn(self, env_ids: Any) -> list[int]:
        if self._host.render_mode is None:
            raise UnsupportedError("render: expected a pool made with render_mode='rgb_array' or 'human'")
        if env_ids is None:
            env_ids = self._extras.render_env_id
        try:
            return self._ids([operator.index(env_ids)])
        except TypeError:
            return self._ids(env_ids)

    def _resized(self, frame: np.ndarray) -> np.ndarray:
        size = self._extras.render_size
        if size is None:
            return frame
        cv2 = _opencv("render_width and render_height")
        resized: np.ndarray = cv2.resize(frame, size, interpolation=cv2.INTER_AREA)
        return resized


class GymnasiumEnvPool(EnvPool, VectorEnv[Any, Any, np.ndarray], gymnasium.Env[Any, Any]):  # type: ignore[misc, override]
    """Results are ``(obs, reward, terminated, truncated, info)``; rewards are float32, spaces those of one env."""

    is_vector_env = True

    def __init__(self, *pool: Any, extras: Extras) -> None:
        super().__init__(*pool, extras=extras)
        self.metadata = {**self._host.metadata, "render_modes": ["rgb_array", "human"]}
        self.metadata["autoreset_mode"] = self.autoreset_mode
        drawn = self._host.render_mode
        self.render_mode = "human" if extras.shows_windows else drawn
        self.observation_space = self.single_observation_space = self.spec.observation_space
        self.action_space = self.single_action_space = self.spec.action_space
        engine = self._engine
        engine.show_as(self._results.stepped, self._results.begun, players=True)
        if not self.is_async and type(self).step is GymnasiumEnvPool.step:
            method: Any = GymnasiumEnvPool.step
            self.step = method.made_by(type(engine).step, engine)  # the same, without a call in between

    def _show_in_programs(self) -> tuple[Callable[[Any], Any], bool]:
        return self._results.in_programs, True

    @direct
    def reset(
        self, env_id: Any = None, *, seed: Any = None, options: Mapping[str, Any] | None = None
    ) -> Call[tuple[Any, dict[str, Any]]]:
        """Resets all envs, or those of ``env_id`` in that order, and returns ``(obs, info)``.

        If ``batch_size < num_envs``, a reset of all returns the ``batch_size`` that are ready first; ``recv`` returns
        the others.
        """
        return self._reset_call(env_id, seed, options)

    @direct
    def step(  # type: ignore[override]  # Env has numbers here
        self, action: Any, env_id: Any = None
    ) -> Call[tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]]:
        """``send`` then ``recv``."""
        self._results.as_reset = False
        return self._engine.step, (action, env_id)

    @direct
    def recv(
        self, reset: bool = False, return_info: bool = True, *, timeout: float | None = None
    ) -> Call[tuple[Any, ...]]:
        """Waits for ``min(batch_size, in flight)`` envs and returns their results.

        Args:
            reset: Return ``(obs, info)``, as ``reset`` does.
            return_info: Has no effect: infos are always returned.
            timeout: Seconds after which to raise ``RecvTimeoutError``; everything stays in flight.
        """
        self._results.as_reset = reset
        return self._engine.recv, (timeout,)

    def close(self, **kwargs: Any) -> None:
        """Ends the pool's workers and frees its memory, except for the batches you still hold."""
        PoolView.close(self)

    def __del__(self) -> None:
        """Does nothing, unlike that of ``VectorEnv``: a kept ``pool.step`` still works, and the engine ends itself."""


class DMEnvPool(EnvPool, dm_env.Environment):  # type: ignore[misc]
    """Results are ``dm_env.TimeStep``, whose ``observation`` is a named tuple: env_id, players, obs, infos."""

    def __init__(self, *pool: Any, extras: Extras) -> None:
        super().__init__(*pool, extras=extras)
        names = names_of_observation(self.spec.observation_space)
        show = functools.partial(_with_state, self._results, names, tuple(filter(is_field, self.spec.info_space)))
        step = functools.partial(timestep_of, self.settings.autoreset == "same_step")
        self._show_step = functools.partial(show, step)
        self._engine.show_as(self._show_step, functools.partial(show, first_timestep_of), players=True)

    def _show_in_programs(self) -> tuple[Callable[[Any], Any], bool]:
        return self._show_step, True

    def observation_spec(self) -> Any:
        """The ``observation`` of a TimeStep, for one env."""
        return self.spec.observation_spec()

    def action_spec(self) -> Any:
        """The action of one env."""
        return self.spec.action_spec()

    def reward_spec(self) -> Any:
        """The reward of one env."""
        return self._pool_spec.reward_spec()

    def discount_spec(self) -> Any:
        """The discount of one env."""
        return self._pool_spec.discount_spec()

    @direct
    def reset(
        self, env_id: Any = None, *, seed: Any = None, options: Mapping[str, Any] | None = None
    ) -> Call[dm_env.TimeStep]:
        """Resets all envs, or those of ``env_id`` in that order: FIRST, reward 0, discount 1.

        If ``batch_size < num_envs``, a reset of all returns the ``batch_size`` that are ready first; ``recv`` returns
        the others.
        """
        return self._reset_call(env_id, seed, options)

    @direct
    def step(self, action: Any, env_id: Any = None) -> Call[dm_env.TimeStep]:
        """``send`` then ``recv``."""
        return self._engine.step, (action, env_id)

    @direct
    def recv(
        self, reset: bool = False, return_info: bool = True, *, timeout: float | None = None
    ) -> Call[dm_env.TimeStep]:
        """Waits for ``min(batch_size, in flight)`` envs and returns their results; the flags have no effect."""
        return self._engine.recv, (timeout,)


def _with_state(
    results: Results,
    names: list[str] | None,
    infos: tuple[str, ...],
    timestep: Callable[[Any], dm_env.TimeStep],
    result: tuple[Any, ...],
) -> dm_env.TimeStep:
    """A TimeStep whose observation has EnvPool's fields."""
    made = timestep(result)
    obs, info = results.parts(made.observation.obs, made.observation.info)
    players = info["players"]
    fields = {"env_id": info["env_id"], "players": named("players", tuple(players))(*players.values())}
    fields |= {"obs": obs} if names is None else {name: obs[name] for name in names}
    fields |= {key: info[key] for key in infos}
    return made._replace(observation=named("State", tuple(fields))(*fields.values()))


def _opencv(user: str) -> Any:
    return require("cv2", "opencv-python", "wrappers", user)
