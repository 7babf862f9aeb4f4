"""The envs of a pool: native ones, or Python envs, each with how it is built. ``find_source`` finds them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

import gymnasium
from gymnasium import spaces

from stepmill import _native
from stepmill.errors import ConfigError, EnvError, MissingConfigError, StepmillError, summary
from stepmill.registry.description import EnvDescription, blind_wrapper, defines_coroutines
from stepmill.registry.factories import (
    REQUIRED,
    WRAPPERS,
    WRAPPERS_HINT,
    EnvFactory,
    close_quietly,
    default_values,
    parameters_of,
)
from stepmill.sources.configurations import for_each, once
from stepmill.sources.models.env_model import ModelConfig
from stepmill.sources.simulator import SimulatorSource
from stepmill.values.trees import Tree


class Library(Protocol):
    """An env class that is not compiled into the engine. Its pickle makes the class known where that is read."""

    @property
    def env_class(self) -> str:
        """The name under which the engine knows it."""

    @property
    def worker_environ(self) -> Mapping[str, str]:
        """What its workers need in their environment from their start on; if anything, it runs only in such workers."""

    @property
    def code(self) -> str:
        """Of what it was compiled: saved states are for envs of the same code."""


@dataclass(frozen=True)
class NativeSource:
    """Native envs: of a class compiled into the engine, or loaded into it (``library``).

    There is one configuration per env; equal ones given by the user share one dict.
    """

    id: str
    env_class: str
    library: Library | None
    configs: list[dict[str, Any]]
    observation_space: spaces.Space[Any]
    action_space: spaces.Space[Any]
    info_space: spaces.Dict  # its own infos, each of which a row may lack
    observation_tree: Tree
    action_tree: Tree
    max_num_players: int
    max_episode_steps: int | None
    reward_threshold: float | None
    simulators: SimulatorSource | None
    render_mode: str | None
    drawer: Any  # a class that is a ``drawing.Drawer``; None if nothing draws these envs

    @property
    def code(self) -> str:
        """What their class was compiled of, if it is not a part of stepmill."""
        return "" if self.library is None else self.library.code

    @property
    def config(self) -> dict[str, Any]:
        """The configuration of the first env, with every key."""
        return self.env_configs[0]

    @property
    def env_configs(self) -> list[dict[str, Any]]:
        """The configuration of every env, with every key."""
        drawn = {} if self.render_mode is None else {"render_mode": self.render_mode}
        defaults = {**_native.default_config(self.env_class), **drawn}
        whole = for_each(self.configs, lambda one: {**defaults, **one})
        if self.simulators is None:
            return whole
        keys = self.simulators.family.keys
        parts = zip(whole, self.simulators.configs, self.simulators.models, strict=True)
        return [{**one, **keys, **read_in_python, **_shown(model)} for one, read_in_python, model in parts]

    @property
    def worker_environ(self) -> Mapping[str, str]:
        """See ``Library``."""
        return {} if self.library is None else self.library.worker_environ

    def part(self, first: int, last: int, first_worker: int = 0) -> NativeSource:
        """Some of the envs, neighbours, counted from 0. They are given no ids."""
        simulators = None if self.simulators is None else self.simulators.part(first, last)
        return replace(self, configs=self.configs[first:last], simulators=simulators)

    @property
    def metadata(self) -> dict[str, Any]:
        """The ``metadata`` of Gymnasium's env; empty if nothing draws these envs."""
        return {} if self.drawer is None else dict(self.drawer.metadata(self))


@dataclass(frozen=True)
class EnvBlueprint:
    """How one Python env is built, and the time limit that the engine puts on it.

    The factory of an env on an island is an ``IslandTask``: the island makes its own blueprint of it.
    """

    factory: Callable[..., Any]
    config: dict[str, Any]
    max_episode_steps: int | None
    model: ModelConfig | None = None  # what changes in its model before its first reset
    python: str | None = None  # the interpreter of its worker, if it is not the caller's

    def shown_config(self) -> dict[str, Any]:
        where = {} if self.python is None else {"python": self.python}
        return {**self.config, **_shown(self.model), **where}

    def described(self) -> EnvDescription | None:
        """What the env will be like, if its factory can tell."""
        return self.factory.describe(self.config) if isinstance(self.factory, EnvFactory) else None


def _shown(model: ModelConfig | None) -> dict[str, Any]:
    return {} if model is None else model.shown()


def _is_elsewhere() -> None:
    """The factory of an env that another interpreter builds."""


_ELSEWHERE = EnvBlueprint(_is_elsewhere, {}, None)


@dataclass(frozen=True)
class IslandFacts:
    """What an island has found out: by env id, defaults of the configurations; of its first env, what a pool shows."""

    defaults: dict[int, dict[str, Any]]
    max_episode_steps: int | None
    reward_threshold: float | None


@dataclass(frozen=True)
class PythonSource:
    """Python envs, each built from its own factory."""

    id: str
    envs: list[EnvBlueprint]
    max_episode_steps: int | None
    reward_threshold: float | None
    found: IslandFacts | None = None  # on an island
    first_env: int = 0  # of a part of a pool: the id that factories are given for its first env
    first_worker: int = 0  # and for its first worker
    threads: bool = False  # whether each env has a thread of its own

    def part(self, first: int, last: int, first_worker: int = 0) -> PythonSource:
        """Some of the envs, neighbours, counted from 0; their factories are given the same ids as before.

        ``first_worker``: the id that they are given for the first worker of this part.
        """
        return replace(self, envs=self.envs[first:last], first_env=self.first_env + first, first_worker=first_worker)

    @property
    def config(self) -> dict[str, Any]:
        """The configuration of the first env."""
        return self.envs[0].shown_config()

    @property
    def has_islands(self) -> bool:
        """Whether envs run with other interpreters."""
        return any(env.python is not None for env in once(self.envs))

    @property
    def has_coroutines(self) -> bool:
        """Whether a class among the factories says that the methods of its envs are coroutines."""
        return any(_says_coroutines(env.factory) for env in once(self.envs))

    def part_for(self, python: str | None) -> PythonSource:
        """The envs that one interpreter runs; of the others, only their number is the same."""
        if not self.has_islands:
            return self
        return replace(self, envs=[env if env.python == python else _ELSEWHERE for env in self.envs])

    def completed(self, founds: Iterable[IslandFacts]) -> PythonSource:
        """The source with what islands have found out."""
        envs = list(self.envs)
        limit, threshold = self.max_episode_steps, self.reward_threshold
        for found in founds:
            for env_id, defaults in found.defaults.items():
                envs[env_id] = replace(envs[env_id], config={**defaults, **envs[env_id].config})
            if 0 in found.defaults:
                limit, threshold = found.max_episode_steps, found.reward_threshold
        return replace(self, envs=envs, max_episode_steps=limit, reward_threshold=threshold)

    @property
    def env_configs(self) -> list[dict[str, Any]]:
        """The configuration of every env."""
        return [env.shown_config() for env in self.envs]

    def preload(self) -> None:
        """Imports what the envs need, as far as their factories tell."""
        for blueprint in once(self.envs):
            if isinstance(blueprint.factory, EnvFactory):
                blueprint.factory.preload(blueprint.config)

    def call_factory(self, env_id: int, worker_id: int = 0) -> Any:
        """One env as its factory makes it, of any kind."""
        blueprint = self.envs[env_id]
        return blueprint.factory(**_with_ids(blueprint, self.first_env + env_id, self.first_worker + worker_id))

    def build(self, env_id: int, worker_id: int = 0) -> Any:
        """Builds one env. If its constructor raises, that exception is the cause of our ``EnvError``.

        What an env of ours refuses, an option that it does not have for one, is raised as it is.
        """
        if not self.threads:
            return self._build(env_id, worker_id)
        from stepmill.sources.threaded_env import ThreadedEnv

        return ThreadedEnv(functools.partial(self._build, env_id, worker_id), f"env {env_id}")

    def _build(self, env_id: int, worker_id: int) -> Any:
        blueprint = self.envs[env_id]
        try:
            env = self.call_factory(env_id, worker_id)
            if not isinstance(env, gymnasium.Env) or hasattr(env, "create_collector_env_cfg"):
                from stepmill.envs.adapters import as_pool_env

                env = as_pool_env(env, env_id)
        except KeyboardInterrupt:  # Ctrl-C, most likely
            raise
        except BaseException as error:  # SystemExit too: an env must not end the program that builds it
            if _is_complete(error, blueprint.factory):
                raise
            _explain_arguments(self.id, blueprint, error)
            raise EnvError(
                f"the constructor of env {env_id} ({self.id}) failed: {summary(error)}",
                env_id=env_id,
                phase="constructor",
            ) from error
        fault = _fault(env)
        if fault is not None:
            close_quietly(env)
            raise ConfigError(f"env {env_id} ({self.id}): {fault}")
        return env


def _says_coroutines(factory: Callable[..., Any]) -> bool:
    while isinstance(factory, functools.partial):
        factory = factory.func
    return isinstance(factory, type) and defines_coroutines(factory)


def _is_complete(error: BaseException, factory: Callable[..., Any]) -> bool:
    """Whether an error says all there is to say: an env of ours has refused an option, or lacks something."""
    return isinstance(factory, EnvFactory) and isinstance(error, StepmillError) and not isinstance(error, EnvError)


def _explain_arguments(name: str, blueprint: EnvBlueprint, error: BaseException) -> None:
    """Says which argument of ``make`` a constructor lacks, or that ``make`` has none for wrappers."""
    if not isinstance(error, TypeError):
        return
    factory, given = blueprint.factory, _with_ids(blueprint, 0, 0)
    known = factory.defaults() if isinstance(factory, EnvFactory) else default_values(factory)
    wrappers = WRAPPERS & given.keys() - known.keys()
    if wrappers:
        raise ConfigError(f"{name} failed with {summary(error)}{WRAPPERS_HINT}") from error
    lacking = [key for key, default in known.items() if default is REQUIRED and key not in given]
    if lacking:
        raise MissingConfigError(
            f"{name} needs {' and '.join(lacking)}, which make passes on: make(..., "
            f"{', '.join(f'{one}=...' for one in lacking)}). It failed with {summary(error)}"
        ) from error


def _with_ids(blueprint: EnvBlueprint, env_id: int, worker_id: int) -> dict[str, Any]:
    """The configuration, with the ids that the factory has parameters for."""
    config = dict(blueprint.config)
    parameters = parameters_of(blueprint.factory)
    for name, value in (("env_id", env_id), ("worker_id", worker_id)):
        if name in parameters and name not in config:
            config[name] = value
    return config


def _fault(env: Any) -> str | None:
    """Why a pool cannot step this object; None if it can."""
    missing = [n for n in ("reset", "step", "observation_space", "action_space") if not hasattr(env, n)]
    if missing or hasattr(env, "agent_iter"):
        from stepmill.envs.adapters import not_an_env

        return not_an_env(env) + (f" without {', '.join(missing)}" if missing else "")
    for name in ("observation_space", "action_space"):
        space = getattr(env, name)
        if not isinstance(space, spaces.Space):
            return f"{name}: expected a gymnasium.spaces.Space, got {space!r:.200}"
    if (wrapper := blind_wrapper(env)) is not None:
        return (
            f"the reset or step of {type(env.unwrapped).__name__} is a coroutine, and Gymnasium's "
            f"{type(wrapper).__name__} around it cannot await it: give make the class itself, or a function that makes "
            "the env, and max_episode_steps for a time limit"
        )
    return None
