"""Python envs in the calling thread: the reference that every other backend is tested against.

The engine checks and queues actions and assembles batches, as for native envs; between the two, this
loop takes the queued envs one by one and writes the row of each.
"""

from __future__ import annotations

import contextlib
import functools
import math
import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Concatenate, ParamSpec, TypeVar

import numpy as np
from gymnasium import spaces

from stepmill import _native
from stepmill.errors import ActionError, ConcurrentUseError, ConfigError, EnvError, InputError, RecvTimeoutError
from stepmill.pool.faults import Fault, FaultPolicy
from stepmill.pool.infos import ENGINE_KEYS, add_info
from stepmill.pool.settings import ACTION_BOUNDS, AUTORESET_MODES, Settings
from stepmill.pool.source import PythonSource
from stepmill.pool.stepper import EnvStepper, ResetRequest, Row
from stepmill.spaces import FlatSpace, Tree, flatten, map_object_leaves, object_leaves, own_objects

__all__ = ["InlinePool", "python_spaces"]


P = ParamSpec("P")
R = TypeVar("R")


def one_at_a_time(
    method: Callable[Concatenate[InlinePool, P], R],
) -> Callable[Concatenate[InlinePool, P], R]:
    """Refuses a call while another one is inside the pool: of another thread, of an env or a signal handler."""

    @functools.wraps(method)
    def guarded(self: InlinePool, /, *args: P.args, **kwargs: P.kwargs) -> R:
        self._core.check_usable()
        inside, call = self._inside, [threading.get_ident()]
        try:
            if (other := inside.setdefault("call", call)) is not call:  # looks and enters in one step
                raise ConcurrentUseError(_REFUSALS[other[0] == call[0]])
            return method(self, *args, **kwargs)
        finally:
            # Nothing is called before the way is free again: Ctrl-C could come in between.
            if inside and inside["call"] is call:
                inside.clear()

    return guarded


_REFUSALS = {
    False: "another thread is inside this pool: a pool serves one thread at a time. Use a lock, or a pool for each "
    "thread",
    True: "this thread is inside this pool already: neither an env nor a signal handler can use the pool that runs it. "
    "Wait until the call has returned",
}


class InlinePool:
    """Has the methods of ``_native.Pool``, over Python envs."""

    is_native = False

    def __init__(self, source: PythonSource, settings: Settings) -> None:
        self._settings = settings
        self._policy = FaultPolicy(settings.on_error, settings.max_restarts)
        self._source = source
        self._envs = self._build(source, settings)
        first = self._envs[0]
        self.metadata = dict(getattr(first, "metadata", None) or {})
        self.render_mode = getattr(first, "render_mode", None)
        self.observation = flatten(first.observation_space)
        self.action = flatten(first.action_space)
        self._core = _core(self.observation, self.action, settings)
        # Arrays are copied into the batch; what an env shows beside them would stay the env's.
        tree = self.observation.tree
        own = functools.partial(own_objects, tree) if self.observation.object_spaces else None
        self._steppers = [
            EnvStepper(
                env,
                i,
                settings.autoreset,
                source.envs[i].max_episode_steps,
                settings.seeds[i],
                self._core.check_observation,
                own,
                settings.on_error == "restart",
            )
            for i, env in enumerate(self._envs)
        ]
        self._zeros = _zeros(self.observation.tree, self.observation)
        # What arrays cannot carry, by env id, from the step to the batch with its row.
        self._rows: dict[int, Row] = {}
        self._object_actions: dict[int, list[Any]] = {}
        self._result_ids: list[int] = []
        self._inside: dict[str, list[int]] = {}
        self._pid = os.getpid()

    @staticmethod
    def _build(source: PythonSource, settings: Settings) -> list[Any]:
        envs: list[Any] = []
        try:
            for i in range(settings.num_envs):
                envs.append(source.build(i))
                for name in ("observation_space", "action_space"):
                    expected, got = getattr(envs[0], name), getattr(envs[i], name)
                    if expected != got:
                        raise ConfigError(
                            f"env {i}: expected the {name} of env 0, {expected}, got {got}. The envs of one pool "
                            "share their spaces"
                        )
        except BaseException:
            for env in envs:
                _close_quietly(env)
            raise
        return envs

    # ---- send and recv -----------------------------------------------------------------------

    @one_at_a_time
    def send(self, action: Any, env_id: Any = None) -> None:
        self._send(action, env_id)

    @one_at_a_time
    def recv(self, timeout: float | None = None) -> Any:
        self._work(timeout)
        return self._finish()

    @one_at_a_time
    def step(self, actions: Any, env_id: Any = None) -> Any:
        self._send(actions, env_id)
        self._work()
        return self._finish()

    def _send(self, action: Any, env_id: Any) -> None:
        objects = self._read_objects(action, env_id) if self.action.object_spaces else {}
        self._core.send(action, env_id)
        self._object_actions.update(objects)

    def _work(self, timeout: float | None = None) -> None:
        """Steps queued envs until the batch is complete. A deadline is looked at between two envs."""
        if self._core.in_flight_count == 0:
            self._core.recv(timeout)  # raises: nothing in flight
        end = None if timeout is None else time.monotonic() + check_timeout(timeout)
        while not self._core.ready():
            if end is not None and time.monotonic() >= end:
                raise RecvTimeoutError(f"recv(timeout={timeout}): the batch is not complete. Call recv() again")
            env_id = self._core.next_env()
            stepper = self._steppers[env_id]
            try:
                self._write(env_id, stepper, stepper.advance(self._action(env_id)))
            except BaseException as error:  # Ctrl-C inside the env: its action is answered, then it goes on
                if self._core.next_env() == env_id:
                    self._write(env_id, stepper, stepper.fail("step", error))
                raise

    def _action(self, env_id: int) -> Any:
        action = self._core.action_of(env_id)
        if self.action.object_spaces:
            objects = self._object_actions.pop(env_id, None)
            if objects is not None:  # else a reset, which takes none
                return map_object_leaves(self.action.tree, action, objects)
        return action

    def _write(self, env_id: int, stepper: EnvStepper, row: Row) -> None:
        observation = row.observation
        if observation is None:  # failed: the last good one where failures are borne, else zeros
            keep = self._settings.on_error == "restart" and stepper.last_observation is not None
            observation = row.observation = stepper.show_last() if keep else self._zeros
        self._rows[env_id] = row
        self._core.write_row(
            env_id,
            observation,
            row.reward,
            row.terminated,
            row.truncated,
            row.elapsed,
            row.ended,
            row.episode_return,
            row.episode_length,
            stepper.needs_reset,
            row.final_observation,
        )

    def _finish(self) -> Any:
        observation, reward, terminated, truncated, info = self._core.take_result()
        self._result_ids = ids = info["env_id"].tolist()
        rows = [self._rows.pop(env_id) for env_id in ids]
        count = len(rows)
        if self.observation.object_spaces:
            observation = self._with_objects(observation, [row.observation for row in rows])
            for i in np.flatnonzero(info.get("_final_obs", ())):
                objects = list(object_leaves(self.observation.tree, rows[i].final_observation))
                info["final_obs"][i] = map_object_leaves(self.observation.tree, info["final_obs"][i], objects)
        add_info(info, ((i, row.info) for i, row in enumerate(rows) if row.info), count, ENGINE_KEYS)
        if "final_info" in info:
            info["final_info"] = {}
            add_info(info["final_info"], ((i, row.final_info) for i, row in enumerate(rows) if row.final_info), count)
        result = (observation, reward, terminated, truncated, info)
        faults = [row.fault for row in rows if row.fault is not None]
        if not faults:
            return result
        info["abnormal"] = np.array([row.fault is not None for row in rows])
        info["_abnormal"] = np.ones(count, np.bool_)
        return self._policy.settle(result, faults)

    def _with_objects(self, batch: Any, observations: Sequence[Any]) -> Any:
        columns = zip(*(object_leaves(self.observation.tree, one) for one in observations), strict=True)
        return map_object_leaves(self.observation.tree, batch, [tuple(column) for column in columns])

    def _read_objects(self, action: Any, env_id: Any) -> dict[int, list[Any]]:
        """The parts of an action that arrays cannot carry, checked, by env id."""
        tree, spaces_ = self.action.tree, self.action.object_spaces
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
        return {one: [column[i] for column in columns] for i, one in enumerate(ids)}

    def _sent_ids(self, action: Any, env_id: Any) -> list[int]:
        if env_id is None and isinstance(action, dict):
            env_id = action.get("env_id")
        if env_id is not None:
            return [int(one) for one in env_id]
        return self._result_ids if self._settings.is_async else list(range(self._settings.num_envs))

    # ---- reset -------------------------------------------------------------------------------

    @one_at_a_time
    def send_reset(self, env_id: Any, seeds: Sequence[int | None] | None, options: dict[str, Any] | None) -> None:
        self._queue_reset(env_id, seeds, options, gather=False)

    @one_at_a_time
    def reset(
        self,
        env_id: Any,
        seeds: Sequence[int | None] | None,
        options: dict[str, Any] | None,
        mask: np.ndarray | None = None,
    ) -> Any:
        if env_id is None and mask is None:
            self._drain()
        self._queue_reset(env_id, seeds, options, gather=True, mask=mask)
        self._work()
        try:
            result = self._finish()
        except EnvError as error:
            error.batch = (error.batch[0], error.batch[4])
            raise
        return result[0], result[4]

    def _queue_reset(
        self,
        env_id: Any,
        seeds: Sequence[int | None] | None,
        options: dict[str, Any] | None,
        *,
        gather: bool,
        mask: np.ndarray | None = None,
    ) -> None:
        self._core.queue_external_reset(env_id, gather)
        ids = range(self._settings.num_envs) if env_id is None else [int(one) for one in env_id]
        for i, one in enumerate(ids):
            if mask is not None and not mask[i]:
                self._steppers[one].request_look()
                continue
            self._steppers[one].request_reset(ResetRequest(seeds[i] if seeds is not None else None, options))

    def _drain(self) -> None:
        while self._core.in_flight_count:
            self._work()
            for env_id in self._core.take_result()[4]["env_id"].tolist():
                self._rows.pop(env_id)

    # ---- the envs themselves -----------------------------------------------------------------

    @one_at_a_time
    def call(self, name: str, env_ids: Sequence[int], args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        out = []
        for env_id in env_ids:
            attribute = self._attribute(env_id, name)
            out.append(attribute(*args, **kwargs) if callable(attribute) else attribute)
        return out

    @one_at_a_time
    def get_attr(self, name: str, env_ids: Sequence[int]) -> list[Any]:
        return [self._attribute(env_id, name) for env_id in env_ids]

    def _attribute(self, env_id: int, name: str) -> Any:
        env = self._envs[env_id]
        return env.get_wrapper_attr(name) if hasattr(env, "get_wrapper_attr") else getattr(env, name)

    @one_at_a_time
    def set_attr(self, name: str, values: Sequence[Any], env_ids: Sequence[int]) -> None:
        for env_id, value in zip(env_ids, values, strict=True):
            env = self._envs[env_id]
            if hasattr(env, "set_wrapper_attr"):
                env.set_wrapper_attr(name, value)
            else:
                setattr(env, name, value)

    @one_at_a_time
    def render(self, env_ids: Sequence[int]) -> tuple[Any, ...]:
        frames = []
        for env_id in env_ids:
            try:
                frames.append(self._envs[env_id].render())
            except Exception as error:
                raise Fault(env_id, "render", 0, 0, 1, f"{type(error).__name__}: {error}", error).error() from error
        return tuple(frames)

    # ---- ending ------------------------------------------------------------------------------

    @property
    def closed(self) -> bool:
        return self._core.closed

    @property
    def in_flight_count(self) -> int:
        return self._core.in_flight_count

    @one_at_a_time
    def check_usable(self) -> None:
        """Raises where the pool cannot be used: it is closed, the parent's, or busy."""

    def stats(self) -> dict[str, Any]:
        return self._core.stats()

    def close(self) -> None:
        if self._core.closed:
            return
        if os.getpid() != self._pid:
            self._core.close()  # the envs are the parent's
            return
        self._end()
        errors = []
        for env_id, env in enumerate(self._envs):
            try:
                env.close()
            except Exception as error:
                errors.append(Fault(env_id, "close", 0, 0, 1, f"{type(error).__name__}: {error}", error).error())
        self._rows.clear()
        if errors:
            raise EnvError.gather(errors)

    @one_at_a_time
    def _end(self) -> None:
        self._core.close()

    def __del__(self) -> None:
        """Ends with its last user: the view, or one of its methods that somebody kept."""
        with contextlib.suppress(Exception):  # nobody is there to hear of it; or it was never built
            self.close()


def check_timeout(timeout: Any) -> float:
    """Seconds to wait, or an error that says what they should be."""
    try:
        good = not math.isnan(timeout) and timeout >= 0
    except (TypeError, OverflowError):
        good = False
    if not good:
        raise InputError(f"recv(timeout={timeout!r}): expected seconds >= 0, or None to wait for as long as it takes")
    return float(timeout)


def python_spaces(source: PythonSource) -> tuple[spaces.Space[Any], spaces.Space[Any]]:
    """The spaces of a Python env, which only an env knows: one is built and closed again."""
    env = source.build(0)
    try:
        return env.observation_space, env.action_space
    finally:
        _close_quietly(env)


def _core(observation: FlatSpace, action: FlatSpace, settings: Settings) -> _native.Pool:
    return _native.Pool.make(
        env_class=None,
        configs=[],
        spec={
            "observation": [leaf.as_dict() for leaf in observation.leaves],
            "action": [leaf.as_dict() for leaf in action.leaves],
        },
        observation_tree=observation.tree,
        action_tree=action.tree,
        seeds=list(settings.seeds),
        num_envs=settings.num_envs,
        batch_size=settings.batch_size,
        num_threads=0,
        affinity_offset=-1,
        autoreset=AUTORESET_MODES.index(settings.autoreset),
        max_episode_steps=0,
        reward_is_float32=settings.reward_dtype == "float32",
        keep_last_observation=False,
        bounds=ACTION_BOUNDS.index(settings.action_bounds),
        on_faults=None,
    )


def _zeros(tree: Tree, flat: FlatSpace) -> Any:
    """The observation of a row that has none."""
    if isinstance(tree, dict):
        return {key: _zeros(child, flat) for key, child in tree.items()}
    if isinstance(tree, tuple):
        return tuple(_zeros(child, flat) for child in tree)
    if tree < 0:
        return None
    leaf = flat.leaves[tree]
    return np.zeros(leaf.shape, leaf.dtype)


def _close_quietly(env: Any) -> None:
    """Closes an env of a pool that could not be built; its error would hide the real one."""
    with contextlib.suppress(Exception):
        env.close()
