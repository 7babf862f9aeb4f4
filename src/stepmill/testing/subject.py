"""What is checked: envs of one kind. They are made, called and closed only here."""

from __future__ import annotations

import contextlib
import inspect
import pickle
import random
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from stepmill.envs import as_base_env
from stepmill.envs.adapters import refuse_coroutines
from stepmill.envs.adapters.native_env import NativeEnv
from stepmill.envs.base_env import seed_env
from stepmill.envs.configs import copy_cfg
from stepmill.errors import ConfigError, UnsupportedError, summary
from stepmill.registry.description import has_coroutines
from stepmill.sources.files.env_library import EnvLibrary
from stepmill.sources.find import find_source
from stepmill.sources.jit.jit_class import JitClass
from stepmill.sources.source import NativeSource, PythonSource
from stepmill.sources.world_source import WorldSource

# What counts as a failure of the env, as in pools: sys.exit() in a step does not end the check.
FAILURES = (Exception, SystemExit)


class StopTrial(Exception):
    """The trial cannot go on, with the reason."""


@dataclass(frozen=True)
class CallFailure:
    """An exception that an env raised."""

    call: str
    where: str
    kind: type[BaseException]
    error: str


@dataclass(frozen=True)
class GeneratorUse:
    """A call that changed the state of a global generator."""

    call: str
    where: str
    generator: str


class CheckedEnvs:
    """Envs of one kind, each as a ``BaseEnv``. Every call to them goes through here and is watched.

    Attributes:
        makes_many: Whether there can be several at once; else all checks use one env, which is seeded again.
        is_adapted: Whether the envs are a ``BaseEnv`` only through an adapter.
        is_gymnasium: Whether they are of Gymnasium's kind.
        given_cfg: The configuration that was passed.
        first_cfg: The copy of it that the first env was built with.
        raised: The exceptions that calls raised.
        touched: The calls that used global generators.
    """

    def __init__(self, env: Any, cfg: Any = None) -> None:
        if isinstance(env, str | EnvLibrary | JitClass):
            env = EnvOfId(env)
        self.makes_many = inspect.isclass(env) or (callable(env) and not hasattr(env, "step"))
        self.is_adapted = False
        self.is_gymnasium = False
        self.given_cfg = cfg
        self.first_cfg: Any = None
        self.raised: list[CallFailure] = []
        self.touched: list[GeneratorUse] = []
        self._env = env
        self._last = env  # the env itself, without an adapter
        self._open: list[Any] = []
        self._generators = _generators()
        if self.makes_many:
            return
        if not all(hasattr(env, name) for name in ("reset", "step")):
            raise ConfigError(
                f"check_env: expected an env, an env class, a function that makes one or an id, got {env!r}"
            )
        if cfg is not None:
            raise ConfigError("check_env: cfg is for a class or a function, but this env exists already")

    @property
    def name(self) -> str:
        """The name of the class or function; for one env, or a function without a name, that of the env's class."""
        if not self.makes_many:
            return type(self._last).__name__
        name = getattr(self._env, "__name__", type(self._last).__name__)
        return name if name != "<lambda>" or self._last is self._env else type(self._last).__name__

    # ---- calls -------------------------------------------------------------------------------

    def call(self, call: str, where: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Calls the function; if it raises, notes that and raises ``StopTrial``."""
        try:
            return function(*args, **kwargs)
        except FAILURES as error:
            self.raised.append(CallFailure(call, where, type(error), _last_line(error)))
            raise StopTrial(f"{where} raised") from error
        finally:
            # Between two calls nothing draws from them, so the state after one call is the state before the next:
            # reading it is the expensive part of a call.
            before, self._generators = self._generators, _generators()
            changed = [name for name in before if before[name] != self._generators[name]]
            self.touched += [GeneratorUse(call, where, name) for name in changed]

    def attempt(self, call: str, where: str, function: Callable[..., Any], *args: Any) -> Any:
        """A call that the rest does not depend on; None if it raises."""
        with contextlib.suppress(StopTrial):
            return self.call(call, where, function, *args)
        return None

    def has(self, env: Any, name: str) -> bool:
        """Whether an env has that attribute. If ``__getattr__`` raises another error, that is noted."""
        return bool(self.attempt("hasattr", f"hasattr(env, {name!r})", hasattr, env, name))

    # ---- the life of an env ------------------------------------------------------------------

    def new(self, who: str) -> Any:
        """An unused env; if there is only one, that one."""
        made = self.call("__init__", f"the constructor{f' of {who}' if who else ''}", self._build)
        if not self.has(made, "step"):
            raise ConfigError(f"check_env: expected {self.name} to make an env, got {made!r}")
        if has_coroutines(made):
            refuse_coroutines("check_env", made)
        env = self.call("as_base_env", "as_base_env(env)", as_base_env, made)
        self.is_adapted = env is not made
        self.is_gymnasium = isinstance(made, gymnasium.Env)
        self._last = made.unwrapped if self.has(made, "unwrapped") else made
        self._open.append(env)
        return env

    def _build(self) -> Any:
        if not self.makes_many:
            return self._env
        if self.given_cfg is None:
            return self._env()
        cfg = copy_cfg("cfg", self.given_cfg)
        self.first_cfg = cfg if self.first_cfg is None else self.first_cfg
        is_class = inspect.isclass(self._env) and issubclass(self._env, gymnasium.Env)
        if (is_class or isinstance(self._env, EnvOfId)) and isinstance(cfg, Mapping):
            return self._env(**cfg)
        return self._env(cfg)

    def seed(self, env: Any, seed: int, dynamic: bool) -> None:
        """Seeds the following episodes."""
        if self.has(env, "seed"):  # optional if nothing is random
            self.call("seed", f"seed({seed}, dynamic_seed={dynamic})", seed_env, env, seed, dynamic)

    def leave(self, env: Any) -> None:
        """Closes an env that is not needed any more."""
        if self.makes_many:
            self.close(env)

    def close(self, env: Any) -> None:
        """Closes an env."""
        self._open = [one for one in self._open if one is not env]
        self.call("close", "close()", env.close)

    def close_all(self) -> None:
        """Closes what is open after a trial that stopped early; further errors would hide the reason."""
        for env in self._open:
            with contextlib.suppress(*FAILURES):
                env.close()


def _generators() -> dict[str, Any]:
    return {"np.random": pickle.dumps(np.random.get_state(legacy=False)), "random": random.getstate()}


def _last_line(error: BaseException) -> str:
    """``KeyError: 'speed' (my_env.py:31)``: what was raised, and where."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    file = Path(frame.filename)
    is_ours = file.parent == Path(__file__).parent  # raised before the call reached the env
    return summary(error) if is_ours else f"{summary(error)} ({file.name}:{frame.lineno})"


# ---- ids -----------------------------------------------------------------------------------------


class EnvOfId:
    """A function that makes envs: Python envs as they are, native ones in a pool of one."""

    def __init__(self, task: str | EnvLibrary | JitClass) -> None:
        self._task = task
        source = find_source(task, 1, {}, None, "auto", None, None)  # raises if there is no such id
        self.__name__ = source.id
        if isinstance(source, WorldSource):
            raise UnsupportedError(f"check_env: {source.id} is a JAX world, expected an env that is stepped alone")
        if isinstance(source, NativeSource) and source.max_num_players > 1:
            raise UnsupportedError(f"check_env: {source.id} is native and has several players, expected an env of one")

    def __call__(self, **config: Any) -> Any:
        source = find_source(self._task, 1, config, None, "auto", None, None)
        if isinstance(source, NativeSource):
            return NativeEnv(self._task, **config)
        assert isinstance(source, PythonSource)
        return source.call_factory(0)
