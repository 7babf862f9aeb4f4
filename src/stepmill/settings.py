"""The settings of a pool: one list of names, defaults and checks. ``make`` has an argument for each."""

from __future__ import annotations

import math
import re
import secrets
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

from gymnasium.vector import AutoresetMode

from stepmill import _native
from stepmill.errors import ConfigError, UnknownConfigError, UnsupportedError
from stepmill.system.interpreters import interpreter
from stepmill.values.arguments import one_of, seconds, whole_number

# The words that settings can be. Type checkers read them here, and the checks below take them from here.

Backend = Literal[
    "auto", "thread", "process", "inline", "ray", "jax", "cuda"
]  # or an object that says more, such as Ray
Autoreset = Literal["next_step", "same_step", "disabled"]  # in the order of sm_autoreset in cpp/core/env/env_table.h
OnError = Literal["raise", "restart"]
ActionBounds = Literal["pass", "clip", "error"]  # in the order of Bounds in cpp/bindings/input/array_input.h
OutputLibrary = Literal["numpy", "torch", "jax"]

AUTORESET_MODES: tuple[Autoreset, ...] = get_args(Autoreset)
ACTION_BOUNDS: tuple[ActionBounds, ...] = get_args(ActionBounds)
GYMNASIUM_MODES: dict[Autoreset, AutoresetMode] = dict(
    zip(AUTORESET_MODES, (AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP, AutoresetMode.DISABLED), strict=True)
)
# `make` also takes the values of Gymnasium's enum: a test compares them with it.
AutoresetWord = Autoreset | Literal["NextStep", "SameStep", "Disabled"]

SEED_LIMIT = 2**63
DRAWN_SEED_LIMIT = 2**31  # of seeds that nobody gave: numpy's old generator and many simulators take no more
# Beyond this the lists that describe the envs would fill the memory before an error could.
MOST_ENVS = 2**24
MOST_RESTARTS = 2**16 - 1  # SM_MOST_FAILURES in cpp/core/env/env_table.h


# ---- checks: from a name and an argument to a value of the right type ----------------------------

Check = Callable[[str, Any], Any]


def _as_given(name: str, given: Any) -> Any:
    """For settings whose check depends on another setting: see ``check_settings``."""
    return given


def _whole(low: int, high: int) -> Check:
    return lambda name, given: whole_number(name, given, low, high)


def _word(known: Any) -> Check:
    """One of the words of a ``Literal``."""
    return lambda name, given: one_of(name, given, get_args(known))


def _or_none(check: Check) -> Check:
    return lambda name, given: None if given is None else check(name, given)


def _autoreset(name: str, given: Any) -> Autoreset:
    """A mode by our name, by Gymnasium's name, or as a member of Gymnasium's enum."""
    for own, mode in GYMNASIUM_MODES.items():
        if given is mode or (isinstance(given, str) and given in (own, mode.value)):
            return own
    known = ", ".join(map(repr, AUTORESET_MODES))
    raise ConfigError(f"{name}: expected one of {known}, or gymnasium.vector.AutoresetMode, got {given!r}")


def _restarts(name: str, given: Any) -> int | None:
    if given is None or (isinstance(given, float) and given == math.inf):
        return None
    try:
        return whole_number(name, given, 0, MOST_RESTARTS)
    except ConfigError as error:
        raise ConfigError(f"{error}. None means to never give up") from None


def _device(name: str, given: Any) -> str:
    """A device by its name, or torch's object for it."""
    device = str(given) if type(given).__module__ == "torch" else given
    if isinstance(device, str) and re.fullmatch(r"cpu|cuda(:\d{1,3})?", device):
        return device
    raise ConfigError(f"{name}: expected 'cpu', 'cuda', or one of several GPUs, such as 'cuda:1', got {given!r}")


def _text(name: str, given: Any) -> str:
    if isinstance(given, str) and given:
        return given
    raise ConfigError(f"{name}: expected a text, got {given!r}")


def _resources(name: str, given: Any) -> dict[str, float]:
    """Amounts by name."""
    expected = f"{name}: expected a dict of amounts by name, such as {{'CPU': 2, 'fast_disk': 1}}"
    if not isinstance(given, Mapping):
        raise ConfigError(f"{expected}, got {given!r}")
    for key, amount in given.items():
        if not isinstance(key, str) or isinstance(amount, bool) or not isinstance(amount, int | float):
            raise ConfigError(f"{expected}, got {given!r}")
        if not 0 <= amount < math.inf:
            raise ConfigError(f"{name}[{key!r}]: expected a number from 0 on, got {amount!r}")
    return {key: float(amount) for key, amount in given.items()}


def _runtime_env(name: str, given: Any) -> dict[str, Any]:
    if isinstance(given, Mapping):
        return dict(given)
    raise ConfigError(f"{name}: expected a dict as Ray takes it, such as {{'pip': ['my-envs']}}, got {given!r}")


def _flag(name: str, given: Any) -> bool:
    if isinstance(given, bool):
        return given
    raise ConfigError(f"{name}: expected True or False, got {given!r}")


def _backend(name: str, given: Any) -> Any:
    if isinstance(given, Ray | Process):
        return given
    try:
        return one_of(name, given, get_args(Backend))
    except ConfigError as error:
        raise ConfigError(
            f"{error}. stepmill.Ray(...) is 'ray' with options, and stepmill.Process(...) is 'process'"
        ) from None


# ---- backends with options -----------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Ray:
    """``backend=stepmill.Ray(...)``: the envs of a pool run in actors of a Ray cluster.

    ``backend="ray"`` is ``stepmill.Ray()``. Each actor has ``num_threads`` threads or ``num_workers`` processes, by
    default as many as it has CPUs.

    Args:
        num_actors: How many actors share the envs; by default one per node.
        resources: What each actor needs, by name, such as ``{"GPU": 0.1}``; ``"CPU"`` is a CPU per thread or process by
            default.
        address: ``"host:port"`` of a cluster, ``"auto"`` for one that runs on this machine, or ``"local"`` for a new
            one here; by default the one that this process is in, else that of ``RAY_ADDRESS``, else one that runs on
            this machine, else a new one.
        node_timeout: The number of seconds without a sign of life after which an actor is given up.
        runtime_env: What the actors have besides, such as packages, files and variables, in Ray's words.
    """

    num_actors: int | None = None
    resources: Mapping[str, float] | None = None
    address: str | None = None
    node_timeout: float = 30
    runtime_env: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        for name, check in _RAY_CHECKS.items():
            object.__setattr__(self, name, check(name, getattr(self, name)))


@dataclass(frozen=True, kw_only=True)
class Process:
    """``backend=stepmill.Process(...)``: the envs of a pool run in worker processes. ``"process"`` is ``Process()``.

    Args:
        max_running: How many steps and resets of the pool are at work at once, at most; by default as many as there are
            envs whose methods are coroutines, and one per worker of other envs. An env over the bound waits for its
            turn, and its deadline with it.
        threads: Whether each env has a thread of its own for its life, from its constructor on: for libraries that
            block while they wait, such as drivers of browsers.
    """

    max_running: int | None = None
    threads: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "max_running", _or_none(_whole(1, MOST_ENVS))("max_running", self.max_running))
        _flag("threads", self.threads)


_RAY_CHECKS: dict[str, Check] = {
    "num_actors": _or_none(_whole(1, 2**15)),
    "resources": _or_none(_resources),
    "address": _or_none(_text),
    "node_timeout": seconds,
    "runtime_env": _or_none(_runtime_env),
}


# ---- the list ------------------------------------------------------------------------------------


class Setting(NamedTuple):
    """An argument of ``make``."""

    default: Any
    check: Check


@dataclass(frozen=True)
class Settings:
    """How a pool runs its envs.

    This is the list of all settings, in the order of ``make``'s signature and of ``spec.config``. Each has the type of
    its checked value, its default as a user would write it, and its check. The docstring of ``make`` explains them.
    """

    num_envs: Annotated[int, Setting(1, _whole(1, MOST_ENVS))]
    batch_size: Annotated[int, Setting(None, _as_given)]
    num_threads: Annotated[int, Setting(None, _or_none(_whole(0, 4096)))]  # on Ray: of each actor; 0: as it has CPUs
    num_workers: Annotated[int, Setting(None, _or_none(_whole(1, 4096)))]  # as num_threads
    seed: Annotated[Sequence[int], Setting(42, _as_given)]  # one per env
    backend: Annotated[Backend, Setting("auto", _backend)]
    autoreset: Annotated[Autoreset, Setting("next_step", _autoreset)]
    max_episode_steps: Annotated[int | None, Setting(None, _or_none(_whole(1, 2**31 - 1)))]
    max_num_players: Annotated[int | None, Setting(None, _or_none(_whole(1, 2**15)))]  # None: as the id has it
    thread_affinity_offset: Annotated[int, Setting(-1, _whole(-1, 2**15))]
    step_timeout: Annotated[float | None, Setting(None, _or_none(seconds))]
    reset_timeout: Annotated[float | None, Setting(None, _or_none(seconds))]
    start_timeout: Annotated[float, Setting(60, seconds)]
    on_error: Annotated[OnError, Setting("raise", _word(OnError))]
    max_restarts: Annotated[int | None, Setting(3, _restarts)]  # None: never give up
    action_bounds: Annotated[ActionBounds, Setting("pass", _word(ActionBounds))]
    output: Annotated[OutputLibrary, Setting("numpy", _word(OutputLibrary))]
    device: Annotated[str, Setting("cpu", _device)]
    python: Annotated[str | None, Setting(None, _or_none(interpreter))]  # the path of an interpreter

    # Not arguments of `make`.
    ray: Ray  # the options of the backend "ray"
    process: Process  # and of "process"
    only_processes: str | None  # the name of a setting that was given and that only worker processes have
    reward_dtype: str
    # Return results as they are ready, even if a batch holds all envs. Env managers use this.
    as_ready: bool = False
    # Whether whoever takes the results waits for all envs; None: if a batch holds all of them. For envs that serve
    # another pool, which is told as they are ready.
    in_step: bool | None = None

    @property
    def is_async(self) -> bool:
        return self.batch_size < self.num_envs

    @property
    def waits_for_all(self) -> bool:
        return not (self.is_async or self.as_ready) if self.in_step is None else self.in_step


SETTINGS: dict[str, Setting] = {
    name: hint.__metadata__[0]
    for name, hint in get_type_hints(Settings, include_extras=True).items()
    if get_origin(hint) is Annotated
}
# All named arguments of `make`, for hints; anything else is for the env.
ARGUMENTS = ("task_id", "env_type", *SETTINGS, "env_config")


def check_settings(*, reward_dtype: str, as_ready: bool = False, **given: Any) -> Settings:
    """Checks the arguments, and fills in the defaults and what depends on other settings or on the machine."""
    one = {name: check(name, given.pop(name, default)) for name, (default, check) in SETTINGS.items()}
    ray = one["backend"] if isinstance(one["backend"], Ray) else Ray()
    process = one["backend"] if isinstance(one["backend"], Process) else Process()
    one["backend"] = "ray" if one["backend"] is ray else "process" if one["backend"] is process else one["backend"]
    asked = (name for name in ("python", "num_workers", "step_timeout", "reset_timeout") if one[name] is not None)
    only_processes = next(asked, None)
    if one["backend"] in ("thread", "inline"):
        refuse_processes(only_processes)
    if one["backend"] == "ray" and one["python"] is not None:
        refuse_islands_on_ray()
    envs = one["num_envs"]
    batch = envs if one["batch_size"] is None else whole_number("batch_size", one["batch_size"], 1, envs)
    one["batch_size"] = batch
    if one["backend"] == "ray":
        one |= {name: min(one[name] or 0, envs) for name in ("num_threads", "num_workers")}
    else:
        one["num_threads"] = min(one["num_threads"] or min(batch, _native.available_cores()), envs)
        one["num_workers"] = _num_workers(one["num_workers"], envs, batch, process.max_running)
    one["seed"] = _all_seeds(one["seed"], envs)
    one |= {"ray": ray, "process": process, "only_processes": only_processes}
    return Settings(**one, **given, reward_dtype=reward_dtype, as_ready=as_ready)


# ---- how many workers ----------------------------------------------------------------------------

# A worker steps its envs one at a time, the one that has used the least time first. With so many of them a slow one
# gets its share of the worker and no more. With fewer, the worker again and again finds nothing but the slow one to do,
# while the caller has the others, and these wait for it at every step.
_ENOUGH_ENVS = 4
# With two workers per core, even envs are 6 to 16 % slower, with four up to 60 % (32 and 64 envs of 0 to 300 µs on 16
# cores). And each worker takes some 7 MB and 6 file descriptors, of which a process often may have only 1024.
_MOST_WORKERS = 32


def _num_workers(asked: int | None, num_envs: int, batch_size: int, max_running: int | None) -> int:
    if asked is not None and max_running is not None and asked > max_running:
        raise ConfigError(
            f"num_workers: expected at most max_running={max_running}, as each worker runs an env, got {asked}"
        )
    workers = asked or default_workers(num_envs, waits_for_all=batch_size == num_envs)
    return min(workers, num_envs, max_running or num_envs)


def default_workers(num_envs: int, *, waits_for_all: bool, cores: int | None = None) -> int:
    """The number of worker processes where none was asked for: one per core, or one per env if that is fewer.

    Where the caller takes results as they come and the envs are few, one per env in any case: a slow env must not
    hold back the others. It costs a switch of processes for each step, which is little beside any but the cheapest.
    A caller that waits for all of them waits for the slow one too, and gains nothing.
    """
    cores = _native.available_cores() if cores is None else cores
    are_few = num_envs < _ENOUGH_ENVS * cores and num_envs <= _MOST_WORKERS
    return num_envs if are_few and not waits_for_all else min(num_envs, cores)


# ---- settings that do not go together ------------------------------------------------------------


def check_players(players: int, settings: Settings) -> None:
    """Raises if envs with this many players do not go with the settings."""
    if settings.max_num_players is not None and players > settings.max_num_players:
        raise ConfigError(
            f"max_num_players: these envs have up to {players} players each, got {settings.max_num_players}. A Python "
            "env says itself how many it has: leave this argument out"
        )
    if players > 1 and settings.autoreset == "same_step":
        raise UnsupportedError(
            "autoreset='same_step' does not work with many players: the last row of an episode would hold the rewards "
            "of its players and the observations of the next episode's players, and their numbers may differ. Use "
            "'next_step'"
        )


def refuse_numpy_elsewhere(settings: Settings) -> None:
    """Raises if arrays of numpy were asked for on a GPU."""
    if settings.output == "numpy" and settings.device != "cpu":
        raise ConfigError(f"device={settings.device!r}: numpy's arrays are on the CPU: use output='torch' or 'jax'")


def refuse_processes(name: str | None) -> None:
    """Raises if a setting that only worker processes have was given to another backend."""
    if name == "python":
        raise UnsupportedError(
            "python: another interpreter runs envs in worker processes: use backend='process' or 'auto'"
        )
    if name == "num_workers":
        raise UnsupportedError("num_workers: this backend has no worker processes: use backend='process'")
    if name is not None:
        raise UnsupportedError(
            f"{name}: only an env in a worker process can be interrupted at a deadline: use backend='process'. "
            "recv(timeout=...) limits how long the caller waits"
        )


def refuse_islands_on_ray() -> None:
    """Raises: Ray has its own way to other packages."""
    raise UnsupportedError("python: on Ray, Ray(runtime_env=...) says which packages the envs have: use that instead")


def refuse_options_of_ray(given: Mapping[str, Any], known: Container[str]) -> None:
    """Raises if an option of ``Ray`` was given in its place, as a key that is not ``known``."""
    for key, value in given.items():
        if key in _RAY_CHECKS and key not in known:
            raise UnknownConfigError(f"{key}: this is an option of Ray: use backend=stepmill.Ray({key}={value!r})")


# ---- seeds ---------------------------------------------------------------------------------------


def check_seeds(seed: Any, env_ids: Sequence[int], *, allow_none: bool = False) -> list[int | None]:
    """One seed per env: ``seed + env_id`` for a number, or the entries of a list."""
    if _is_list(seed):
        if len(seed) != len(env_ids):
            raise ConfigError(f"seed: expected a list of {len(env_ids)} seeds, one per env, got {len(seed)}")
        return [None if allow_none and one is None else _seed(one) for one in seed]
    first = _seed(seed)
    last = first + max(env_ids, default=0)
    if last >= SEED_LIMIT:
        raise ConfigError(f"seed: expected seed + env id below 2**63, got {last}")
    return [first + env_id for env_id in env_ids]


def _all_seeds(seed: Any, num_envs: int) -> Sequence[int]:
    """The seeds of all envs of a pool; for a number they are a range, since there may be a million envs."""
    if seed is None:
        seed = secrets.randbelow(DRAWN_SEED_LIMIT - num_envs + 1)
    if _is_list(seed):
        return tuple(one for one in check_seeds(seed, range(num_envs)) if one is not None)
    first, *_ = check_seeds(seed, (0,))
    check_seeds(seed, (num_envs - 1,))
    assert first is not None
    return range(first, first + num_envs)


def _is_list(seed: Any) -> bool:
    return (isinstance(seed, Sequence) and not isinstance(seed, str | bytes)) or getattr(seed, "ndim", 0) != 0


def _seed(value: Any) -> int:
    return whole_number("seed", value, 0, SEED_LIMIT - 1)
