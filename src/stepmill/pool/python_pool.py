"""What pools of Python envs have in common, wherever the envs run."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Concatenate, ParamSpec, TypeVar

import numpy as np

from stepmill import _native
from stepmill.errors import ActionError
from stepmill.factories import close_quietly
from stepmill.pool.attributes import contained
from stepmill.pool.description import EnvDescription
from stepmill.pool.direct import Call, direct
from stepmill.pool.settings import ACTION_BOUNDS, AUTORESET_MODES, Settings
from stepmill.pool.source import PythonSource
from stepmill.spaces import FlatSpace, object_leaves
from stepmill.uncopyable import Uncopyable

__all__ = ["Preparation", "PythonPool", "describe_source", "engine_arguments", "guarded"]

P = ParamSpec("P")
R = TypeVar("R")
Pool = TypeVar("Pool", bound="PythonPool")


def guarded(method: Callable[Concatenate[Pool, P], R]) -> Callable[Concatenate[Pool, P], R]:
    """Makes a method refuse what the engine's own refuse: a closed pool, a forked child, a call inside another."""

    @functools.wraps(method)
    def call(self: Pool, /, *args: P.args, **kwargs: P.kwargs) -> R:
        token = object()
        try:
            self._core.enter(token)
            return method(self, *args, **kwargs)
        finally:
            self._core.leave(token)  # does nothing unless this call is the one inside

    return call


@dataclass(frozen=True)
class Preparation:
    """What is done to an env before it is reset: it is built anew, it is told something."""

    renew: bool = False
    tell: Callable[[Any], None] | None = None


class PythonPool(Uncopyable):
    """Has the methods of ``_native.Engine``, over Python envs. Subclasses say where these run."""

    is_native = False
    metadata: dict[str, Any]
    render_mode: str | None
    num_players: int

    def __init__(self, core: _native.Engine, observation: FlatSpace, action: FlatSpace, settings: Settings) -> None:
        self._core = core
        self._settings = settings
        self.observation = observation
        self.action = action

    # ---- send and recv -----------------------------------------------------------------------

    def send(self, action: Any, env_id: Any = None, objects: dict[int, Any] | None = None) -> None:
        """``objects``: what ``pack_objects`` made of the object parts, by env id, where the caller has read these."""
        self._core.send(action, env_id, self._read_objects(action, env_id) if objects is None else objects)

    @direct
    def recv(self, timeout: float | None = None) -> Call[Any]:
        return self._core.recv, (timeout,)

    @direct
    def recv_some(self, enough: int, at_least: int, timeout: float | None, steps_only: bool = False) -> Call[Any]:
        """What is ready, as soon as these are ``enough`` results, or once the time has passed at least so many.

        Returns None where nothing is ready, and nothing was asked for. ``steps_only``: results of resets come along,
        but are not what is waited for, as long as a step is in flight. For pools made with ``as_ready``.
        """
        return self._core.recv_some, (enough, at_least, timeout, steps_only)

    @direct
    def step(self, actions: Any, env_id: Any = None) -> Call[Any]:
        return self._core.step, (actions, env_id, self._read_objects(actions, env_id))

    def _read_objects(self, action: Any, env_id: Any) -> dict[int, Any] | None:
        """The parts of an action that arrays cannot carry, checked, by env id."""
        tree, spaces_ = self.action.tree, self.action.object_spaces
        if not spaces_:
            return None
        try:
            ids = self._sent_ids(action, env_id)
        except (TypeError, ValueError):
            return {}  # `send` says what is wrong with them
        if isinstance(action, dict) and "action" in action and not (isinstance(tree, dict) and "action" in tree):
            action = action["action"]
        try:
            columns = list(object_leaves(tree, action))
        except (KeyError, TypeError, ValueError):
            raise ActionError(f"action: expected the parts of {self.action.space}, got {action!r}") from None
        for space, column in zip(spaces_, columns, strict=True):
            if not isinstance(column, list | tuple | np.ndarray) or len(column) != len(ids):
                raise ActionError(f"action: expected a list of {len(ids)} values of {space}, got {column!r}")
            for one, value in zip(ids, column, strict=True):
                if not space.contains(value):
                    raise ActionError(f"action of env {one}: expected a value of {space}, got {value!r}")
        return {one: self.pack_objects([column[i] for column in columns]) for i, one in enumerate(ids)}

    def _sent_ids(self, action: Any, env_id: Any) -> list[int]:
        if env_id is None and isinstance(action, dict):
            env_id = action.get("env_id")
        if env_id is not None:
            return [int(one) for one in env_id]
        return self._core.last_ids if self._settings.is_async else list(range(self._settings.num_envs))

    # ---- reset -------------------------------------------------------------------------------

    def send_reset(
        self,
        env_id: Any,
        seeds: Sequence[int | None] | None,
        options: Any,
        *,
        prepare: Preparation | None = None,
    ) -> None:
        """``prepare``: what is done to each env before; where that fails, the reset failed."""
        self._core.send_reset(env_id, seeds, self._pack_all_options(options, prepare))

    @direct
    def reset(
        self,
        env_id: Any,
        seeds: Sequence[int | None] | None,
        options: Any,
        mask: np.ndarray | None = None,
    ) -> Call[Any]:
        return self._core.reset, (env_id, seeds, self._pack_all_options(options), mask)

    def _pack_all_options(self, options: Any, prepare: Preparation | None = None) -> Any:
        """One dict for all envs, or a list of dicts, one per env."""
        if isinstance(options, list):
            return [self._pack_options(one, prepare) for one in options]
        return self._pack_options(options, prepare)

    # ---- for subclasses ----------------------------------------------------------------------

    def pack_objects(self, objects: list[Any]) -> Any:
        """Object parts of an action, as the engine hands them to the env."""
        return objects

    def _pack_options(self, options: dict[str, Any] | None, prepare: Preparation | None) -> Any:
        """Reset options, as the engine hands them to the env."""
        return options

    # ---- the engine's ------------------------------------------------------------------------

    def show_as(
        self, step: Callable[[Any], Any] | None, reset: Callable[[Any], Any] | None, players: bool = False
    ) -> None:
        """Functions that turn results into what a view shows, and whether infos have ``players`` even for one each."""
        self._core.show_as(step, reset, players)

    def wait_until_left(self, most: float) -> bool:
        """Whether no other thread is inside a call, or none is any more after so many seconds."""
        return self._core.wait_until_left(most)

    @property
    def closed(self) -> bool:
        return self._core.closed

    @property
    def in_flight_count(self) -> int:
        return self._core.in_flight_count

    @property
    def in_flight_ids(self) -> list[int]:
        """The envs whose results are still to be received."""
        return self._core.in_flight_ids

    def check_usable(self) -> None:
        """Raises where the pool cannot be used: it is closed, the parent's, or busy."""
        self._core.check_usable()

    def seeds(self, env_ids: Sequence[int]) -> list[tuple[int, bool]]:
        """Of each env, the last seed it was given, and whether that still waits for its next reset."""
        return self._core.seeds(env_ids)

    def stats(self) -> dict[str, Any]:
        return self._core.stats()


def engine_arguments(observation: FlatSpace, action: FlatSpace, num_players: int, settings: Settings) -> dict[str, Any]:
    """What ``_native.Engine`` is told of Python envs."""
    return {
        "env_class": None,
        "configs": [],
        "spec": {
            "observation": [leaf.as_dict() for leaf in observation.leaves],
            "action": [leaf.as_dict() for leaf in action.leaves],
            "num_players": num_players,
        },
        "observation_tree": observation.tree,
        "action_tree": action.tree,
        "seeds": list(settings.seed),
        "num_envs": settings.num_envs,
        "batch_size": settings.batch_size,
        "as_ready": settings.as_ready,
        "autoreset": AUTORESET_MODES.index(settings.autoreset),
        "max_episode_steps": 0,  # each env has its own, see PythonEnv in cpp/bindings/python_env.h
        "reward_is_float32": settings.reward_dtype == "float32",
        "keep_last_observation": settings.on_error == "restart",
        "bounds": ACTION_BOUNDS.index(settings.action_bounds),
    }


def describe_source(source: PythonSource) -> EnvDescription:
    """What only an env knows: one is built and closed again."""
    env = source.build(0)
    try:
        with contained(0, "constructor"):
            return EnvDescription.of(env)
    finally:
        close_quietly(env)
