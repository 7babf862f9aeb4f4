"""What every view of a pool has: names, checks of arguments, and the calls that need no translation."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, Self

import numpy as np
from gymnasium.vector import AutoresetMode

from stepmill.errors import (
    ConfigError,
    EnvIdError,
    InputError,
    ResetOptionError,
    UnknownAttributeError,
    UnsupportedError,
)
from stepmill.pool.generators import generators_of, seeds_of
from stepmill.pool.settings import GYMNASIUM_MODES, Settings, check_seeds
from stepmill.spec import PoolSpec
from stepmill.uncopyable import Uncopyable

__all__ = ["Core", "PoolView"]


class Core(Protocol):
    """The engine under a view: ``_native.Engine``, or one with the same methods."""

    is_native: bool

    @property
    def closed(self) -> bool: ...
    @property
    def in_flight_count(self) -> int: ...
    def send(self, action: Any, env_id: Any = None) -> None: ...
    def recv(self, timeout: float | None = None) -> Any: ...
    def step(self, actions: Any, env_id: Any = None) -> Any: ...
    def reset(self, env_id: Any, seeds: Any, options: Any, mask: Any = None) -> Any: ...
    def send_reset(self, env_id: Any, seeds: Any, options: Any) -> None: ...
    def show_as(
        self, step: Callable[[Any], Any] | None, reset: Callable[[Any], Any] | None, players: bool = False
    ) -> None: ...
    def check_usable(self) -> None: ...
    def seeds(self, env_ids: Sequence[int]) -> list[tuple[int, bool]]: ...
    def stats(self) -> dict[str, Any]: ...
    def close(self) -> None: ...


class PoolView(Uncopyable):
    """A pool of envs. Subclasses tell the engine how to show results, and hand them out as they come from there.

    Nothing is done to a result in between: a signal handler that raised there would lose it. See ``pool/direct.py``.
    """

    _core: Core
    spec: Any

    def __init__(self, core: Core, spec: PoolSpec, settings: Settings, backend: str) -> None:
        self._core = core
        self._settings = settings
        self._pool_spec = spec
        self.spec = spec
        self._backend = backend
        self.num_envs = settings.num_envs

    # ---- what it is --------------------------------------------------------------------------

    @property
    def batch_size(self) -> int:
        """How many results make a batch."""
        return self._settings.batch_size

    @property
    def backend(self) -> str:
        """Where the envs run: ``"thread"``, ``"process"`` or ``"inline"``."""
        return getattr(self._core, "backend", self._backend)

    @property
    def is_async(self) -> bool:
        """Whether ``recv`` returns as soon as ``batch_size`` of the envs are done."""
        return self._settings.is_async

    @property
    def autoreset_mode(self) -> AutoresetMode:
        """When envs whose episode is over are reset, as Gymnasium names it."""
        return GYMNASIUM_MODES[self._settings.autoreset]

    @property
    def is_native(self) -> bool:
        """Whether compiled envs run, rather than Python ones."""
        return self._core.is_native

    @property
    def all_env_ids(self) -> np.ndarray:
        """The ids of all envs, in order."""
        return np.arange(self.num_envs, dtype=np.int32)

    @property
    def config(self) -> dict[str, Any]:
        """Everything ``make`` settled: the pool's settings and the env's configuration."""
        return dict(self._pool_spec.config)

    @property
    def np_random_seed(self) -> tuple[int, ...]:
        """The seed that every env was given last, -1 where an env does not know."""
        return tuple(seeds_of(self._core, self._reachable(None)))

    @property
    def np_random(self) -> tuple[np.random.Generator, ...]:
        """The random generator of every env.

        Of native envs and of those in worker processes it is a copy, which draws what the env would draw next; to draw
        from it changes nothing. An env that waits for a seed is shown with the generator that this seed gives it.
        """
        return tuple(generators_of(self._core, self._reachable(None)))

    @property
    def closed(self) -> bool:
        """Whether ``close`` was called."""
        return self._core.closed

    def __len__(self) -> int:
        return self.num_envs

    def __repr__(self) -> str:
        parts = [self._pool_spec.id, f"num_envs={self.num_envs}"]
        if self.is_async:
            parts.append(f"batch_size={self.batch_size}")
        parts.append(f"backend={self.backend!r}")
        if self.closed:
            parts.append("closed")
        return f"{type(self).__name__}({', '.join(parts)})"

    # ---- sending -----------------------------------------------------------------------------

    def send(self, action: Any, env_id: Any = None) -> None:
        """Queues actions and returns at once.

        Args:
            action: An array with a row per env, or a dict ``{"action": ..., "env_id": ...}``.
            env_id: Whose actions they are: by default all envs, in async mode those of the last ``recv``.
        """
        self._core.send(action, env_id)

    def async_reset(self, *, seed: Any = None, options: Mapping[str, Any] | None = None) -> None:
        """Queues a reset of every env and returns at once; ``recv`` gives the results."""
        self._core.check_usable()
        seeds = None if seed is None else check_seeds(seed, range(self.num_envs), allow_none=True)
        self._core.send_reset(None, seeds, self._check_options(options))

    def _reset_arguments(self, env_id: Any, seed: Any, options: Mapping[str, Any] | None) -> tuple[Any, ...]:
        """For the engine's ``reset``: of all envs, the ids asked for, or those that a mask chooses."""
        self._core.check_usable()
        options = self._check_options(options)
        mask = None
        if isinstance(options, dict) and "reset_mask" in options:
            if env_id is not None:
                raise ResetOptionError("reset: expected env_id or options['reset_mask'], got both")
            mask = self._check_mask(options.pop("reset_mask"))
        seeds = None
        if seed is not None:
            seeds = check_seeds(seed, self._ids(env_id), allow_none=True)
        return env_id, seeds, None if options == {} else options, mask

    def _take_engine_calls(self, view: type[PoolView]) -> None:
        """Makes calls go straight to the engine, unless a subclass of ``view`` has methods of its own."""
        for name in ("step", "recv"):
            if getattr(type(self), name) is getattr(view, name):
                setattr(self, name, getattr(self._core, name))

    def _check_options(self, options: Any) -> Any:
        if isinstance(options, list | tuple):  # one per env
            if any(isinstance(one, Mapping) and "reset_mask" in one for one in options):
                raise ResetOptionError("options: expected 'reset_mask' in one dict for all envs, got it in a list")
            return [self._check_options(one) for one in options]
        if options is None:
            return None
        if not isinstance(options, Mapping):
            raise ResetOptionError(f"options: expected a dict, or a list of dicts, one per env, got {options!r}")
        return dict(options)  # the caller's stays as it was

    def _check_mask(self, mask: Any) -> np.ndarray:
        expected = f"a bool array of shape ({self.num_envs},) with at least one True"
        if not isinstance(mask, np.ndarray) or mask.dtype != np.bool_ or mask.shape != (self.num_envs,):
            got = f"{mask.dtype} array of shape {mask.shape}" if isinstance(mask, np.ndarray) else repr(mask)
            raise ResetOptionError(f"options['reset_mask']: expected {expected}, got {got}")
        if not mask.any():
            raise ResetOptionError(f"options['reset_mask']: expected {expected}, got one without any")
        return np.ascontiguousarray(mask)

    # ---- the envs themselves -----------------------------------------------------------------

    def call(self, name: str, *args: Any, env_ids: Sequence[int] | None = None, **kwargs: Any) -> tuple[Any, ...]:
        """Calls a method of every env, or of those named; an attribute is returned as it is."""
        _check_name("call", name)
        return tuple(self._python_envs("call").call(name, self._reachable(env_ids), args, kwargs))

    def get_attr(self, name: str, env_ids: Sequence[int] | None = None) -> tuple[Any, ...]:
        """An attribute of every env, or of those named. Of a native env: its configuration, spaces and generator."""
        _check_name("get_attr", name)
        ids = self._reachable(env_ids)
        if self._core.is_native:
            return self._native_attribute(name, ids)
        return tuple(self._python_envs("get_attr").get_attr(name, ids))

    def set_attr(self, name: str, values: Any, env_ids: Sequence[int] | None = None) -> None:
        """Sets an attribute of every env, or of those named: one value for all, or a list, one per env."""
        _check_name("set_attr", name)
        ids = self._reachable(env_ids)
        if not isinstance(values, list | tuple):
            values = [values] * len(ids)
        if len(values) != len(ids):
            raise ConfigError(f"set_attr({name!r}): expected {len(ids)} values, one per env, got {len(values)}")
        self._python_envs("set_attr").set_attr(name, values, ids)

    def render(self, env_ids: Sequence[int] | None = None) -> Any:
        """A picture of every env, or of those named."""
        return self._python_envs("render").render(self._reachable(env_ids))

    def stats(self) -> dict[str, Any]:
        """Counts since the pool was made: steps, episodes, batches; the cost of a step, memory held."""
        self._core.check_usable()
        return {"backend": self.backend, "num_envs": self.num_envs, **self._core.stats()}

    def _native_attribute(self, name: str, env_ids: Sequence[int]) -> tuple[Any, ...]:
        spec = self._pool_spec
        if name == "np_random":
            return tuple(generators_of(self._core, env_ids))
        if name == "np_random_seed":
            return tuple(seeds_of(self._core, env_ids))
        shared: dict[str, Any] = {
            "max_episode_steps": spec.max_episode_steps,
            "observation_space": spec.observation_space,
            "action_space": spec.action_space,
            "spec": spec,
            "metadata": {},
            "render_mode": None,
        }
        if name in shared:
            return (shared[name],) * len(env_ids)
        if name in spec.env_configs[0]:
            return tuple(spec.env_configs[env_id][name] for env_id in env_ids)
        known = ", ".join([*spec.env_configs[0], *shared, "np_random", "np_random_seed"])
        raise UnknownAttributeError(f"{spec.id} is native and has no attribute {name!r}: get_attr knows {known}")

    def _python_envs(self, what: str) -> Any:
        self._core.check_usable()
        if self._core.is_native:
            raise UnsupportedError(
                f"{what}: {self._pool_spec.id} is native and has no Python object. "
                f"make('gymnasium:{self._pool_spec.id}') runs Gymnasium's own env, where it has one"
            )
        return self._core

    def _ids(self, env_ids: Any) -> list[int]:
        if env_ids is None:
            return list(range(self.num_envs))
        try:
            ids = [operator.index(one) for one in env_ids]
        except TypeError:
            raise EnvIdError(f"env_id: expected a 1-d array of integers, got {env_ids!r}") from None
        for one in ids:
            if not 0 <= one < self.num_envs:
                raise EnvIdError(f"env_id {one} is out of range [0, {self.num_envs})")
        return ids

    def _reachable(self, env_ids: Sequence[int] | None) -> list[int]:
        """Ids of envs to call. In the calling thread no step runs beside us: a queued one has not begun."""
        self._core.check_usable()
        return self._ids(env_ids)

    # ---- ending ------------------------------------------------------------------------------

    def close(self) -> None:
        """Ends the pool's threads and frees its memory, but for the batches you still hold. Idempotent."""
        self._core.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _check_name(what: str, name: Any) -> None:
    if not isinstance(name, str):
        raise InputError(f"{what}: expected the name of an attribute or a method, got {name!r}")
