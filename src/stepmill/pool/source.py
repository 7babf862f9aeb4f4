"""Finds what a task id stands for: native envs, or factories of Python envs."""

from __future__ import annotations

import itertools
import logging
import operator
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import gymnasium
from gymnasium import spaces

from stepmill import _native
from stepmill.description import EnvDescription
from stepmill.errors import ConfigError, EnvError, StepmillError, UnknownEnvError, UnsupportedError, summary
from stepmill.factories import EnvFactory, accepted_keys, check_keys, close_quietly, imported, parameters_of
from stepmill.interpreters import interpreter
from stepmill.pool.island_task import IslandTask
from stepmill.pool.models.config import MODEL_KEYS, GivenModel, is_argument_of
from stepmill.pool.render_modes import is_drawn_on_request, shared_render_mode
from stepmill.pool.settings import refuse_processes
from stepmill.pool.simulator import SimulatorFamily, SimulatorSource, UnsuitableSimulator
from stepmill.registry import EnvRecord, GymnasiumFactory, drawer_of, find
from stepmill.spaces import native_tree, space_of
from stepmill.trees import Tree

__all__ = ["Found", "NativeSource", "PythonSource", "find_source"]

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True)
class NativeSource:
    """Envs compiled into the engine, with one configuration per env; equal ones given by the user share one dict."""

    id: str
    env_class: str
    configs: list[dict[str, Any]]
    observation_space: spaces.Space[Any]
    action_space: spaces.Space[Any]
    observation_tree: Tree
    action_tree: Tree
    max_num_players: int
    max_episode_steps: int | None
    reward_threshold: float | None
    simulators: SimulatorSource | None
    render_mode: str | None
    drawer: Any  # a class that is a ``pool.drawing.Drawer``; None if nothing draws these envs

    @property
    def config(self) -> dict[str, Any]:
        """The configuration of the first env, with every key."""
        return self.env_configs[0]

    @property
    def env_configs(self) -> list[dict[str, Any]]:
        """The configuration of every env, with every key."""
        drawn = {} if self.render_mode is None else {"render_mode": self.render_mode}
        defaults = {**_native.default_config(self.env_class), **drawn}
        whole = _for_each(self.configs, lambda one: {**defaults, **one})
        if self.simulators is None:
            return whole
        keys = self.simulators.family.keys
        parts = zip(whole, self.simulators.configs, self.simulators.models, strict=True)
        return [{**one, **keys, **read_in_python, **_shown(model)} for one, read_in_python, model in parts]

    @property
    def metadata(self) -> dict[str, Any]:
        """That of Gymnasium's env; empty if nothing draws these envs."""
        return {} if self.drawer is None else dict(self.drawer.metadata(self))


@dataclass(frozen=True)
class EnvBlueprint:
    """How one Python env is built, and the time limit that the engine puts on it.

    Of an env on an island, the factory is an ``IslandTask``: the island makes its own blueprint of it.
    """

    factory: Callable[..., Any]
    config: dict[str, Any]
    max_episode_steps: int | None
    model: GivenModel | None = None  # what changes in its model before its first reset
    python: str | None = None  # the interpreter of its worker, if it is not the caller's

    def shown_config(self) -> dict[str, Any]:
        where = {} if self.python is None else {"python": self.python}
        return {**self.config, **_shown(self.model), **where}

    def described(self) -> EnvDescription | None:
        """What the env will be like, if its factory can tell."""
        return self.factory.describe(self.config) if isinstance(self.factory, EnvFactory) else None


def _is_elsewhere() -> None:
    """The factory of an env that another interpreter builds."""


_ELSEWHERE = EnvBlueprint(_is_elsewhere, {}, None)


@dataclass(frozen=True)
class Found:
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
    found: Found | None = None  # on an island

    @property
    def config(self) -> dict[str, Any]:
        """The configuration of the first env."""
        return self.envs[0].shown_config()

    @property
    def has_islands(self) -> bool:
        """Whether envs run with other interpreters."""
        return any(env.python is not None for env in _once(self.envs))

    def part_for(self, python: str | None) -> PythonSource:
        """The envs that one interpreter runs; of the others, only their number is the same."""
        if not self.has_islands:
            return self
        return replace(self, envs=[env if env.python == python else _ELSEWHERE for env in self.envs])

    def resolved(self) -> PythonSource:
        """On an island, where the ids and factories are looked up; elsewhere the source itself."""
        if not self.has_islands:
            return self
        made = {id(env): _resolved(env) for env in _once(self.envs)}
        envs = [made[id(env)] for env in self.envs]
        new = {
            id(env): {key: value for key, value in made[id(env)].shown_config().items() if key not in env.config}
            for env in _once(self.envs)
        }
        defaults = {env_id: new[id(env)] for env_id, env in enumerate(self.envs) if env.python is not None}
        first = next(env for env in self.envs if env.python is not None)
        assert isinstance(first.factory, IslandTask)
        limit, threshold = _limit_and_threshold(first.factory.task, made[id(first)], first.max_episode_steps)
        return replace(self, envs=envs, found=Found(defaults, limit, threshold))

    def completed(self, founds: Iterable[Found]) -> PythonSource:
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
        for blueprint in _once(self.envs):
            if isinstance(blueprint.factory, EnvFactory):
                blueprint.factory.preload(blueprint.config)

    def build(self, env_id: int, worker_id: int = 0) -> Any:
        """Builds one env. If its constructor raises, that exception is the cause of our ``EnvError``.

        What an env of ours refuses, an option that it does not have for one, is raised as it is.
        """
        blueprint = self.envs[env_id]
        try:
            env = blueprint.factory(**_with_ids(blueprint, env_id, worker_id))
            if not isinstance(env, gymnasium.Env) or hasattr(env, "create_collector_env_cfg"):
                from stepmill.envs.adapters import as_pool_env

                env = as_pool_env(env, env_id)
        except KeyboardInterrupt:  # Ctrl-C, most likely
            raise
        except BaseException as error:  # SystemExit too: an env must not end the program that builds it
            if _is_complete(error, blueprint.factory):
                raise
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


def _is_complete(error: BaseException, factory: Callable[..., Any]) -> bool:
    """Whether an error says all there is to say: an env of ours has refused an option, or lacks something."""
    return isinstance(factory, EnvFactory) and isinstance(error, StepmillError) and not isinstance(error, EnvError)


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
    return None


def find_source(
    task_id: Any,
    num_envs: int,
    config: Mapping[str, Any],
    env_config: Sequence[Mapping[str, Any]] | None,
    backend: str,
    max_episode_steps: int | None,
    max_num_players: int | None,
    python: str | None = None,
) -> NativeSource | PythonSource:
    """Finds the envs of a pool, without building any. Those on islands are only found there."""
    tasks = list(task_id) if isinstance(task_id, list | tuple) else [task_id] * num_envs
    if len(tasks) != num_envs:
        raise ConfigError(f"task_id: expected a list of num_envs={num_envs} envs, got {len(tasks)}")
    configs = _configs(num_envs, config, env_config)
    configs, pythons = _split_python(configs, python)
    if pythons is not None:
        if backend in ("thread", "inline"):
            refuse_processes("python")
        if max_num_players not in (None, 1):
            raise UnsupportedError("max_num_players is for native envs of many players; islands run Python envs")
        return _island_source(tasks, configs, max_episode_steps, pythons)
    if isinstance(tasks[0], str) and all(task == tasks[0] for task in _once(tasks)):
        record = _find(tasks[0])
        if record.native is not None:
            source = _native_source(record, configs, backend, max_episode_steps, max_num_players)
            if source is not None:
                return source
    if backend == "thread":
        raise UnsupportedError(
            f"backend='thread' runs native envs, and {_name(tasks[0])} is not one: use backend='process', 'inline' or "
            "'auto'"
        )
    if max_num_players not in (None, 1):
        raise UnsupportedError("max_num_players is for native envs of many players; this is a Python env")
    envs = _blueprints(tasks, configs, lambda task, one: _python_env(task, one, max_episode_steps))
    return PythonSource(_name(tasks[0]), envs, *_limit_and_threshold(tasks[0], envs[0], max_episode_steps))


def _blueprints(
    tasks: list[Any], configs: list[dict[str, Any]], make: Callable[[Any, dict[str, Any]], EnvBlueprint]
) -> list[EnvBlueprint]:
    """One per env; envs with the same task and the same configuration share theirs."""
    pairs = list(zip(tasks, configs, strict=True))
    made = {_ids(pair): make(*pair) for pair in _once(pairs, _ids)}
    return [made[_ids(pair)] for pair in pairs]


def _limit_and_threshold(
    task: Any, env: EnvBlueprint, max_episode_steps: int | None
) -> tuple[int | None, float | None]:
    """What the configuration of a pool shows."""
    limit = max_episode_steps or env.max_episode_steps
    known = _find(task) if isinstance(task, str) else None
    return (limit, None) if known is None else (limit or known.max_episode_steps, known.reward_threshold)


# ---- islands -------------------------------------------------------------------------------------


def _split_python(
    configs: list[dict[str, Any]], python: str | None
) -> tuple[list[dict[str, Any]], list[str | None] | None]:
    """The configurations without ``python``, and the interpreter of each env; None if none has one of its own."""
    if python is None and not any("python" in one for one in _once(configs)):
        return configs, None
    pythons = _for_each(
        configs, lambda one: python if one.get("python", python) is python else _checked_python(one["python"])
    )
    rest = _for_each(configs, lambda one: {key: value for key, value in one.items() if key != "python"})
    return rest, None if all(one is None for one in pythons) else pythons


def _checked_python(given: Any) -> str | None:
    return None if given is None else interpreter("env_config: python", given)


def _island_source(
    tasks: list[Any], configs: list[dict[str, Any]], max_episode_steps: int | None, pythons: list[str | None]
) -> PythonSource:
    """Envs of which some run with other interpreters."""
    python_of = {id(config): python for config, python in zip(configs, pythons, strict=True)}

    def blueprint(task: Any, config: dict[str, Any]) -> EnvBlueprint:
        python = python_of[id(config)]
        if python is None:
            return _python_env(task, config, max_episode_steps)
        _check_task(task)
        return EnvBlueprint(IslandTask.of(task), config, max_episode_steps, None, python)

    envs = _blueprints(tasks, configs, blueprint)
    if envs[0].python is not None:
        return PythonSource(_name(tasks[0]), envs, max_episode_steps, None)
    return PythonSource(_name(tasks[0]), envs, *_limit_and_threshold(tasks[0], envs[0], max_episode_steps))


def _resolved(env: EnvBlueprint) -> EnvBlueprint:
    if env.python is None:
        return env
    assert isinstance(env.factory, IslandTask)
    return _python_env(env.factory.look_up(), env.config, env.max_episode_steps)


# ---- configurations ------------------------------------------------------------------------------


def _configs(
    num_envs: int, config: Mapping[str, Any], env_config: Sequence[Mapping[str, Any]] | None
) -> list[dict[str, Any]]:
    if env_config is None:
        return [dict(config)] * num_envs
    if isinstance(env_config, Mapping) or not isinstance(env_config, Sequence):
        raise ConfigError(f"env_config: expected a list of dicts, one per env, got a {type(env_config).__name__}")
    if len(env_config) != num_envs:
        raise ConfigError(f"env_config: expected {num_envs} dicts, one per env, got {len(env_config)}")
    for i, one in enumerate(env_config):
        if not isinstance(one, Mapping):
            raise ConfigError(f"env_config[{i}]: expected a dict, got {one!r}")
    return [{**config, **one} for one in env_config]


def _load_family(record: EnvRecord, backend: str) -> SimulatorFamily | None:
    """The Python half of a native family; None if it has none, or if the installed simulator cannot be used."""
    if record.simulator is None or record.native is None:
        return None
    try:
        family: SimulatorFamily = imported(record.simulator)(record.native)
        return family
    except UnsuitableSimulator as error:
        if backend == "thread":
            raise UnsupportedError(
                f"{record.id} cannot run natively here: {error}. backend='auto' runs it in Python"
            ) from error
        logging.getLogger("stepmill").warning("%s runs in Python, not natively: %s", record.id, error)
        return None


def _native_source(
    record: EnvRecord,
    configs: list[dict[str, Any]],
    backend: str,
    max_episode_steps: int | None,
    max_num_players: int | None,
) -> NativeSource | None:
    """Native envs; None if Gymnasium's Python env of that id must run instead: for its render mode or its simulator."""
    env_class = record.native
    assert env_class is not None
    drawer = drawer_of(env_class)
    render_mode = shared_render_mode(record.id, [{**record.config, **one}.get("render_mode") for one in _once(configs)])
    if not is_drawn_on_request(record.id, render_mode, () if drawer is None else drawer.render_modes(), backend):
        return None
    family = _load_family(record, backend)
    if record.simulator is not None and family is None:
        return None
    defaults = _native.default_config(env_class)
    known = {**defaults, **({**family.keys, **MODEL_KEYS} if family is not None else {})}
    whole = _for_each(configs, lambda one: _native_config(record, one, known, max_num_players))
    native = _for_each(whole, lambda one: {key: value for key, value in one.items() if key in defaults})
    simulators = None
    if family is not None:
        read_in_python = _for_each(
            whole,
            lambda one: GivenModel.take({key: value for key, value in one.items() if key not in defaults}),
        )
        simulators = SimulatorSource(
            family, _interned([one for one, _ in read_in_python]), [model for _, model in read_in_python]
        )
    spec = _shared_description(record, env_class, native, simulators)
    if simulators is not None:
        for env_id in _once(range(len(configs)), lambda i: id(simulators.models[i])):
            simulators.check_model(env_id)
    observation_tree = native_tree(spec["observation_tree"], spec["observation"])
    action_tree = native_tree(spec["action_tree"], spec["action"])
    return NativeSource(
        id=record.id,
        env_class=env_class,
        configs=native,
        observation_space=space_of(observation_tree, spec["observation"]),
        action_space=space_of(action_tree, spec["action"]),
        observation_tree=observation_tree,
        action_tree=action_tree,
        max_num_players=spec["max_num_players"],
        max_episode_steps=max_episode_steps or record.max_episode_steps,
        reward_threshold=record.reward_threshold,
        simulators=simulators,
        render_mode=render_mode,
        drawer=drawer,
    )


def _shared_description(
    record: EnvRecord, env_class: str, configs: list[dict[str, Any]], simulators: SimulatorSource | None
) -> dict[str, Any]:
    """The description of all envs, which must be the same."""
    if simulators is None:
        described = [_native.describe(env_class, one, None) for one in _distinct(_once(configs))]
    else:
        env_ids = _once(range(len(configs)), lambda i: (id(configs[i]), id(simulators.configs[i])))
        described = [_native.describe(env_class, configs[i], simulators.kind(i).sizes) for i in env_ids]
    for other in described[1:]:
        if other != described[0]:
            raise ConfigError(f"env_config: the envs of one pool share their spaces, but these {record.id} differ")
    return described[0]


def _native_config(
    record: EnvRecord, config: dict[str, Any], known: Mapping[str, Any], max_num_players: int | None
) -> dict[str, Any]:
    given = {**record.config, **config}
    given.pop("render_mode", None)  # not the env's own business: what is drawn, and when, is decided outside
    if "max_num_players" in known:
        if max_num_players is not None:
            given["max_num_players"] = max_num_players
        given.setdefault("max_num_players", 1)
    elif max_num_players not in (None, 1):
        raise ConfigError(f"max_num_players: {record.id} has one player per env, got {max_num_players}")
    check_keys(record.id, given, [*known, "render_mode"])
    return given


def _once(objects: Sequence[T], key: Callable[[T], Any] = id) -> list[T]:
    """Each object once, in order: a million envs usually share one task and one configuration."""
    if all(map(operator.is_, objects, itertools.repeat(objects[0]))):
        return [objects[0]]
    first: dict[Any, T] = {}
    for one in objects:
        first.setdefault(key(one), one)
    return list(first.values())


def _ids(pair: tuple[Any, Any]) -> tuple[int, int]:
    return id(pair[0]), id(pair[1])


def _for_each(configs: Sequence[T], function: Callable[[T], R]) -> list[R]:
    """``function(one)`` for each configuration, called once per object."""
    once = _once(configs)
    if len(once) == 1:
        return [function(once[0])] * len(configs)
    done = {id(one): function(one) for one in once}
    return [done[id(one)] for one in configs]


def _interned(configs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same configurations, equal ones as one dict: their envs share what is prepared for it."""
    first: dict[Any, dict[str, Any]] = {}
    out = []
    for one in configs:
        try:
            key = tuple(sorted((name, type(value).__name__, value) for name, value in one.items()))
            out.append(first.setdefault(key, one))
        except TypeError:  # a value that cannot be hashed or compared
            out.append(one)
    return out


def _distinct(configs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each different configuration once."""
    return list({tuple(sorted((key, repr(value)) for key, value in one.items())): one for one in configs}.values())


def _find(task: str) -> EnvRecord:
    """The record of an id, or one for what ``"module:name"`` names."""
    try:
        return find(task)
    except UnknownEnvError:
        module, _, name = task.rpartition(":")
        factory = getattr(sys.modules.get(module), name, None)
        if not callable(factory):
            raise
        return EnvRecord(task, factory=factory)


def _python_env(task: Any, config: dict[str, Any], max_episode_steps: int | None) -> EnvBlueprint:
    if isinstance(task, str):
        record = _find(task)
        if record.factory is None:  # a native id that must run in Python: Gymnasium's env of that name
            try:
                record = find(f"gymnasium:{task}")
            except UnknownEnvError:
                raise UnsupportedError(
                    f"{task} is native only: there is no Python env of that name. A pool with several kinds of envs, "
                    "or with a render_mode in which a native env cannot be drawn, runs Python envs"
                ) from None
        assert record.factory is not None
        given, model = _split_model(record.factory, {**record.config, **config})
        limit = max_episode_steps or record.max_episode_steps
        factory = record.factory
        if isinstance(factory, EnvFactory):
            check_keys(task, given, factory.known_keys())
            given, limit = factory.limited(given, max_episode_steps, record.max_episode_steps)
        else:
            check_keys(task, given, accepted_keys(factory))
        return EnvBlueprint(factory, given, limit, model)
    _check_task(task)
    given, model = _split_model(task, config)
    check_keys(_name(task), given, accepted_keys(task))
    return EnvBlueprint(task, given, max_episode_steps, model)


def _check_task(task: Any) -> None:
    if not isinstance(task, str) and not callable(task):
        made = ". An env that exists already cannot be copied: pass a function that makes one"
        raise ConfigError(
            f"task_id: expected an id, an env class, a factory or a list of these, got {task!r}"
            f"{made if hasattr(task, 'step') else ''}"
        )


def _split_model(factory: Callable[..., Any], config: dict[str, Any]) -> tuple[dict[str, Any], GivenModel | None]:
    """A configuration without what changes in the env's model, and that."""
    if "model" not in config:
        return config, None
    creator = factory.creator() if isinstance(factory, GymnasiumFactory) else factory
    return (config, None) if is_argument_of(creator) else GivenModel.take(config)


def _shown(model: GivenModel | None) -> dict[str, Any]:
    return {} if model is None else model.shown()


def _with_ids(blueprint: EnvBlueprint, env_id: int, worker_id: int) -> dict[str, Any]:
    """The configuration, with the ids that the factory has parameters for."""
    config = dict(blueprint.config)
    parameters = parameters_of(blueprint.factory)
    for name, value in (("env_id", env_id), ("worker_id", worker_id)):
        if name in parameters and name not in config:
            config[name] = value
    return config


def _name(task: Any) -> str:
    return task if isinstance(task, str) else getattr(task, "__name__", type(task).__name__)
