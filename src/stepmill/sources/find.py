"""Finds what a task id stands for: native envs, or factories of Python envs. Builds none."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from stepmill import _native
from stepmill.errors import ConfigError, UnknownEnvError, UnsupportedError
from stepmill.registry.factories import EnvFactory, accepted_keys, check_keys
from stepmill.registry.records import EnvRecord, GymnasiumFactory, drawer_of, find, python_twin, registered
from stepmill.settings import ARGUMENTS, refuse_islands_on_ray, refuse_options_of_ray, refuse_processes
from stepmill.sources.configurations import configs_of, distinct, for_each, interned, once, split_python
from stepmill.sources.files import env_library
from stepmill.sources.files.env_library import EnvLibrary
from stepmill.sources.files.task_file import is_file_task
from stepmill.sources.islands import IslandTask
from stepmill.sources.jit.jit_class import JitClass
from stepmill.sources.models.env_model import MODEL_KEYS, ModelConfig, is_argument_of
from stepmill.sources.simulator import SimulatorFamily, SimulatorSource, UnsuitableSimulator
from stepmill.sources.source import EnvBlueprint, IslandFacts, Library, NativeSource, PythonSource
from stepmill.sources.world_source import WorldSource, find_world
from stepmill.system.optional import imported
from stepmill.system.warn_once import warn_once
from stepmill.values.spaces import info_space_of, native_tree, space_of


def find_source(
    task_id: Any,
    num_envs: int,
    config: Mapping[str, Any],
    env_config: Sequence[Mapping[str, Any]] | None,
    backend: str,
    max_episode_steps: int | None,
    max_num_players: int | None,
    python: str | None = None,
) -> NativeSource | PythonSource | WorldSource:
    """Finds the envs of a pool, without building any. Those on islands are only found there."""
    tasks = list(task_id) if isinstance(task_id, list | tuple) else [task_id] * num_envs
    if len(tasks) != num_envs:
        raise ConfigError(f"task_id: expected a list of num_envs={num_envs} envs, got {len(tasks)}")
    configs = configs_of(num_envs, config, env_config)
    world = find_world(tasks, configs, backend, max_episode_steps)
    if world is not None:
        return world
    configs, pythons = split_python(configs, python)
    if pythons is not None:
        if backend in ("thread", "inline"):
            refuse_processes("python")
        if backend == "ray":
            refuse_islands_on_ray()
        if max_num_players not in (None, 1):
            raise UnsupportedError("max_num_players is for native envs of many players; islands run Python envs")
        return _island_source(tasks, configs, max_episode_steps, pythons)
    if isinstance(tasks[0], str | EnvLibrary | JitClass) and all(task == tasks[0] for task in once(tasks)):
        record, library = _find_native(tasks[0], configs, backend)
        if record.native is not None:
            source = _native_source(record, library, configs, backend, max_episode_steps, max_num_players)
            if source is not None:
                return source
    if backend == "thread":
        raise UnsupportedError(
            f"backend='thread' runs native envs, and {_name(tasks[0])} is not one: use backend='process', 'inline' or "
            "'auto'"
        )
    if backend == "cuda":
        other = next((task for task in tasks if task != tasks[0]), None)
        if other is not None:
            raise UnsupportedError(
                f"backend='cuda' runs one kernel: expected the same task for all envs, got {_name(tasks[0])} and "
                f"{_name(other)}"
            )
        raise UnsupportedError(
            f"backend='cuda' compiles env classes of C++ for a GPU, and {_name(tasks[0])} is none: use another backend "
            "or write the env in one file"
        )
    if max_num_players not in (None, 1):
        raise UnsupportedError("max_num_players is for native envs of many players; this is a Python env")
    envs = _blueprints(tasks, configs, lambda task, one: _python_env(task, one, max_episode_steps))
    return PythonSource(_name(tasks[0]), envs, *_limit_and_threshold(tasks[0], envs[0], max_episode_steps))


def _check_task(task: Any) -> None:
    if not isinstance(task, str) and not callable(task):
        made = ". An env that exists already cannot be copied: pass a function that makes one"
        raise ConfigError(
            f"task_id: expected an id, an env class, a factory or a list of these, got {task!r}"
            f"{made if hasattr(task, 'step') else ''}"
        )


def _check_keys(name: str, config: Mapping[str, Any], given: Mapping[str, Any], known: list[str] | None) -> None:
    """``config``: from the user; ``given``: with what the id was registered with."""
    refuse_options_of_ray(config, known or ())
    check_keys(name, given, known, ARGUMENTS)


def _find_native(
    task: str | EnvLibrary | JitClass, configs: list[dict[str, Any]], backend: str
) -> tuple[EnvRecord, Library | None]:
    """The record of a task, and the library that has its class, if that is not compiled into the engine."""
    library: Library
    if isinstance(task, EnvLibrary):
        if task.sanitized is not None and backend not in ("process", "auto"):
            raise UnsupportedError(
                f"{task.task} was compiled with debug=True, and runs in worker processes that have the sanitizers: "
                f"expected backend='process' or 'auto', got {backend!r}"
            )
        record, library = EnvRecord(task.task), task
    else:
        record = EnvRecord(task.__name__, factory=task) if isinstance(task, JitClass) else _find(task)
        if record.file is not None:
            library = env_library.compile(record.file)
        elif isinstance(record.factory, JitClass) and _is_compiled(record, configs):
            library = record.factory.library()
        else:
            return record, None
    return replace(record, native=library.env_class), library


def _is_compiled(record: EnvRecord, configs: list[dict[str, Any]]) -> bool:
    """Whether the envs of a ``stepmill.jit`` class run natively: unless ``jit=False``."""
    wanted = [{**record.config, **one}.get("jit", True) for one in once(configs)]
    for one in wanted:
        if not isinstance(one, bool):
            raise ConfigError(f"jit: expected True or False, got {one!r:.200}")
        if one != wanted[0]:
            raise ConfigError(
                "env_config: the envs of one pool are compiled or in Python, but got jit=True and jit=False"
            )
    return bool(wanted[0])


def _find(task: str) -> EnvRecord:
    """The record of an id, or one for what ``"module:name"`` names."""
    if is_file_task(task) and registered(task) is None:
        return EnvRecord(task, file=task)
    try:
        return find(task)
    except UnknownEnvError:
        module, _, name = task.rpartition(":")
        factory = getattr(sys.modules.get(module), name, None)
        if not callable(factory):
            raise
        return EnvRecord(task, factory=factory)


def _name(task: Any) -> str:
    return task if isinstance(task, str) else getattr(task, "__name__", type(task).__name__)


# ---- native envs ---------------------------------------------------------------------------------


def _native_source(
    record: EnvRecord,
    library: Library | None,
    configs: list[dict[str, Any]],
    backend: str,
    max_episode_steps: int | None,
    max_num_players: int | None,
) -> NativeSource | None:
    """Native envs; None if Gymnasium's Python env of that id must run instead: for its render mode or its simulator."""
    env_class = record.native
    assert env_class is not None
    drawer = drawer_of(env_class)
    render_mode = _shared_render_mode(record.id, [{**record.config, **one}.get("render_mode") for one in once(configs)])
    modes = () if drawer is None else drawer.render_modes()
    if not _is_drawn_on_request(record.id, render_mode, modes, backend, library is not None):
        if drawer is not None:
            warn_once(
                f"render_mode={render_mode!r} draws {record.id} at every step, so a Python env runs in place of the "
                "native one: the same episodes, but slower. render_mode='rgb_array' keeps it native, and render() draws"
            )
        return None
    family = _load_family(record, backend)
    if record.simulator is not None and family is None:
        return None
    defaults = _native.default_config(env_class)
    known = {**defaults, **({**family.keys, **MODEL_KEYS} if family is not None else {})}
    whole = for_each(configs, lambda one: _native_config(record, one, known, max_num_players))
    native = for_each(whole, lambda one: {key: value for key, value in one.items() if key in defaults})
    simulators = None
    if family is not None:
        read_in_python = for_each(
            whole,
            lambda one: ModelConfig.take({key: value for key, value in one.items() if key not in defaults}),
        )
        simulators = SimulatorSource(
            family, interned([one for one, _ in read_in_python]), [model for _, model in read_in_python]
        )
    spec = _shared_description(record, env_class, native, simulators)
    if simulators is not None:
        for env_id in once(range(len(configs)), lambda i: id(simulators.models[i])):
            simulators.check_model(env_id)
    observation_tree = native_tree(spec["observation_tree"], spec["observation"])
    action_tree = native_tree(spec["action_tree"], spec["action"])
    declared = record.factory if isinstance(record.factory, JitClass) else None
    return NativeSource(
        id=record.id,
        env_class=env_class,
        library=library,
        configs=native,
        observation_space=declared.observation.space if declared else space_of(observation_tree, spec["observation"]),
        action_space=declared.action.space if declared else space_of(action_tree, spec["action"]),
        info_space=info_space_of(spec["info"]),
        observation_tree=observation_tree,
        action_tree=action_tree,
        max_num_players=spec["max_num_players"],
        max_episode_steps=max_episode_steps or record.max_episode_steps,
        reward_threshold=record.reward_threshold,
        simulators=simulators,
        render_mode=render_mode,
        drawer=drawer,
    )


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


def _native_config(
    record: EnvRecord, config: dict[str, Any], known: Mapping[str, Any], max_num_players: int | None
) -> dict[str, Any]:
    given = {**record.config, **config}
    if isinstance(record.factory, JitClass):
        given.pop("jit", None)
    given.pop("render_mode", None)  # not the env's own business: what is drawn, and when, is decided outside
    if "max_num_players" in known:
        if max_num_players is not None:
            given["max_num_players"] = max_num_players
        given.setdefault("max_num_players", 1)
    elif max_num_players not in (None, 1):
        raise ConfigError(f"max_num_players: {record.id} has one player per env, got {max_num_players}")
    _check_keys(record.id, config, given, [*known, "render_mode"])
    return given


def _shared_description(
    record: EnvRecord, env_class: str, configs: list[dict[str, Any]], simulators: SimulatorSource | None
) -> dict[str, Any]:
    """The description of all envs, which must be the same."""
    if simulators is None:
        described = [_native.describe(env_class, one, None) for one in distinct(once(configs))]
    else:
        env_ids = once(range(len(configs)), lambda i: (id(configs[i]), id(simulators.configs[i])))
        described = [_native.describe(env_class, configs[i], simulators.kind(i).sizes) for i in env_ids]
    for other in described[1:]:
        if other != described[0]:
            raise ConfigError(f"env_config: the envs of one pool share their spaces, but these {record.id} differ")
    return described[0]


# ---- render modes --------------------------------------------------------------------------------


def _shared_render_mode(id: str, modes: Sequence[Any]) -> str | None:
    """The render mode of all envs of a native pool, from that of each."""
    for mode in modes:
        if mode is not None and not isinstance(mode, str):
            raise ConfigError(f"render_mode: expected None or a str, got {mode!r:.200}")
        if mode != modes[0]:
            raise ConfigError(
                f"env_config: the envs of one pool share their render_mode, but got {modes[0]!r} and {mode!r}. Python "
                f"envs may differ: make('gymnasium:{id}', ...) runs Gymnasium's own"
            )
    mode = modes[0]
    return None if mode is None else str(mode)


def _is_drawn_on_request(id: str, mode: str | None, modes: Sequence[str], backend: str, is_own: bool) -> bool:
    """Whether nothing is drawn in this mode unless ``render`` is called. Then the env can be native.

    In the other modes Gymnasium's env draws at every step, into a window or a list. So it has to run itself, and cannot
    on threads or on a GPU. ``modes`` are those of Gymnasium's env; there are none if native envs of this id cannot be
    drawn. An author's own env has no env in Gymnasium.
    """
    drawn = [one for one in modes if one != "human"]
    if mode is None or mode in drawn:
        return True
    every_step = ["human", *(f"{one}_list" for one in drawn)]
    if drawn and mode not in every_step:
        known = ", ".join(map(repr, [*drawn, *every_step]))
        raise ConfigError(f"render_mode: expected None or a mode of {id}, which are {known}, got {mode!r}")
    if backend in ("thread", "cuda"):
        why = f"in mode {mode!r} it would be drawn at every step" if drawn else "cannot be drawn"
        if is_own:
            raise UnsupportedError(f"render_mode: {id} is native, and {why}: leave it out")
        raise UnsupportedError(
            f"render_mode: {id} is native, and {why}. make('gymnasium:{id}', backend='inline', render_mode={mode!r}) "
            "runs Gymnasium's own env, if it has one"
        )
    return False


# ---- Python envs ---------------------------------------------------------------------------------

_WHY_PYTHON = (
    "A pool with several kinds of envs, or with a render_mode in which a native env cannot be drawn, runs Python envs"
)


def _blueprints(
    tasks: list[Any], configs: list[dict[str, Any]], make: Callable[[Any, dict[str, Any]], EnvBlueprint]
) -> list[EnvBlueprint]:
    """One per env; envs with the same task and the same configuration share theirs."""
    pairs = list(zip(tasks, configs, strict=True))
    made = {_ids(pair): make(*pair) for pair in once(pairs, _ids)}
    return [made[_ids(pair)] for pair in pairs]


def _ids(pair: tuple[Any, Any]) -> tuple[int, int]:
    return id(pair[0]), id(pair[1])


def _python_env(task: Any, config: dict[str, Any], max_episode_steps: int | None) -> EnvBlueprint:
    if isinstance(task, EnvLibrary):
        return EnvBlueprint(_native_factory(task, task.task), config, max_episode_steps)
    if isinstance(task, str):
        record, factory = _python_twin(_find(task), config)
        given, model = _split_model(factory, {**record.config, **config})
        limit = max_episode_steps or record.max_episode_steps
        if isinstance(factory, EnvFactory):
            _check_keys(task, config, given, factory.known_keys())
            given, limit = factory.limited(given, max_episode_steps, record.max_episode_steps)
        else:
            _check_keys(task, config, given, accepted_keys(factory))
        return EnvBlueprint(factory, given, limit, model)
    _check_task(task)
    given, model = _split_model(task, config)
    _check_keys(_name(task), config, given, accepted_keys(task))
    return EnvBlueprint(task, given, max_episode_steps, model)


def _python_twin(record: EnvRecord, config: Mapping[str, Any]) -> tuple[EnvRecord, Callable[..., Any]]:
    """The Python env of an id. One that is native only, or of a file, is wrapped: but then nothing draws it."""
    try:
        return python_twin(record, _WHY_PYTHON)
    except UnsupportedError:
        if {**record.config, **config}.get("render_mode") is not None:
            raise
        task = record.id if record.file is None else env_library.compile(record.file)
        return record, _native_factory(task, record.id)


def _native_factory(task: str | EnvLibrary, name: str) -> EnvFactory:
    from stepmill.envs.adapters.native_env import NativeFactory

    return NativeFactory(task, name)


def _split_model(factory: Callable[..., Any], config: dict[str, Any]) -> tuple[dict[str, Any], ModelConfig | None]:
    """A configuration without what changes in the env's model, and that."""
    if "model" not in config:
        return config, None
    creator = factory.creator() if isinstance(factory, GymnasiumFactory) else factory
    return (config, None) if is_argument_of(creator) else ModelConfig.take(config)


def _limit_and_threshold(
    task: Any, env: EnvBlueprint, max_episode_steps: int | None
) -> tuple[int | None, float | None]:
    """What the configuration of a pool shows."""
    limit = max_episode_steps or env.max_episode_steps
    known = _find(task) if isinstance(task, str) else None
    return (limit, None) if known is None else (limit or known.max_episode_steps, known.reward_threshold)


# ---- islands -------------------------------------------------------------------------------------


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


def resolved(source: PythonSource) -> PythonSource:
    """On an island, where the ids and factories are looked up; elsewhere the source itself."""
    if not source.has_islands:
        return source
    made = {id(env): _resolved_env(env) for env in once(source.envs)}
    envs = [made[id(env)] for env in source.envs]
    new = {
        id(env): {key: value for key, value in made[id(env)].shown_config().items() if key not in env.config}
        for env in once(source.envs)
    }
    defaults = {env_id: new[id(env)] for env_id, env in enumerate(source.envs) if env.python is not None}
    first = next(env for env in source.envs if env.python is not None)
    assert isinstance(first.factory, IslandTask)
    limit, threshold = _limit_and_threshold(first.factory.task, made[id(first)], first.max_episode_steps)
    return replace(source, envs=envs, found=IslandFacts(defaults, limit, threshold))


def _resolved_env(env: EnvBlueprint) -> EnvBlueprint:
    if env.python is None:
        return env
    assert isinstance(env.factory, IslandTask)
    return _python_env(env.factory.look_up(), env.config, env.max_episode_steps)
