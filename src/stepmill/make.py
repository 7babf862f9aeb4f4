"""``make`` and its variants: from an id, a class or a factory to a pool."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, Protocol, TypeVar, get_args, overload

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

from stepmill.device.open import open_cuda_pool, open_device_pool, settings_for, settings_on_gpu
from stepmill.errors import UnsupportedError
from stepmill.hosts.host import describe_source, open_engine
from stepmill.hosts.open_host import open_host
from stepmill.hosts.shares import with_workers_for
from stepmill.settings import (
    SETTINGS,
    ActionBounds,
    AutoresetWord,
    Backend,
    OnError,
    OutputLibrary,
    Process,
    Ray,
    Settings,
    check_players,
    check_settings,
    refuse_numpy_elsewhere,
)
from stepmill.sources.find import find_source
from stepmill.sources.source import NativeSource, PythonSource
from stepmill.sources.world_source import WorldSource
from stepmill.spec import PoolSpec
from stepmill.system.refusals import explained_refusals
from stepmill.values.arguments import one_of
from stepmill.views.checkpoint import Checkpoint, MakeArguments, Place, arguments_for
from stepmill.views.outputs import CONVERTERS

if TYPE_CHECKING:
    import jax
    import torch

    from stepmill.views.dm import DmPool
    from stepmill.views.gym import GymPool
    from stepmill.views.gymnasium import GymnasiumPool

EnvType = Literal["gymnasium", "gym", "dm"]


# ---- for type checkers ---------------------------------------------------------------------------

# The settings, `env_config` and the env's own configuration: all parameters of `make` but the first two.
P = ParamSpec("P")
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
NumpyPool = TypeVar("NumpyPool", covariant=True)
TorchPool = TypeVar("TorchPool", covariant=True)
JaxPool = TypeVar("JaxPool", covariant=True)


class Make(Protocol[P]):
    """``make``: ``env_type`` decides which pool it returns, and ``output`` of which arrays.

    Nothing can be said about one of the parameters in ``P`` without leaving out the others: if ``output`` is one of
    those below, the others are not checked.
    """

    @overload
    def __call__(
        self, task_id: Any, env_type: Literal["gymnasium"] = "gymnasium", *, output: Literal["torch"], **arguments: Any
    ) -> GymnasiumPool[torch.Tensor]: ...
    @overload
    def __call__(
        self, task_id: Any, env_type: Literal["gymnasium"] = "gymnasium", *, output: Literal["jax"], **arguments: Any
    ) -> GymnasiumPool[jax.Array]: ...
    @overload  # `make_gym` and `make_dm` know more
    def __call__(
        self, task_id: Any, env_type: Literal["gym", "dm"], *, output: Literal["torch", "jax"], **arguments: Any
    ) -> Any: ...
    @overload
    def __call__(
        self, task_id: Any, env_type: Literal["gymnasium"] = "gymnasium", *args: P.args, **arguments: P.kwargs
    ) -> GymnasiumPool: ...
    @overload
    def __call__(self, task_id: Any, env_type: Literal["gym"], *args: P.args, **arguments: P.kwargs) -> GymPool: ...
    @overload
    def __call__(self, task_id: Any, env_type: Literal["dm"], *args: P.args, **arguments: P.kwargs) -> DmPool: ...


class MakeView(Protocol[P, NumpyPool, TorchPool, JaxPool]):
    """``make_gymnasium``, ``make_gym`` or ``make_dm``: all parameters of ``make`` but ``env_type``."""

    @overload
    def __call__(self, task_id: Any, *, output: Literal["torch"], **arguments: Any) -> TorchPool: ...
    @overload
    def __call__(self, task_id: Any, *, output: Literal["jax"], **arguments: Any) -> JaxPool: ...
    @overload
    def __call__(self, task_id: Any, *args: P.args, **arguments: P.kwargs) -> NumpyPool: ...


class LikeMake(Protocol[P, T_co]):
    """A function with all parameters of ``make``."""

    def __call__(self, task_id: Any, env_type: EnvType = "gymnasium", *args: P.args, **arguments: P.kwargs) -> T_co: ...


def _pool_of_env_type(make: LikeMake[P, Any]) -> Make[P]:
    """Tells type checkers which pool each ``env_type`` and ``output`` return."""
    return make  # type: ignore[return-value]  # its parameters are in P, where nobody sees `output`


def _like_make(make: Make[P]) -> Callable[[Callable[..., T]], LikeMake[P, T]]:
    """Shows ``**arguments`` of a function of ``task_id`` and ``env_type`` as those of ``make``."""
    return lambda function: _show(function, make)


def _like_make_gymnasium(
    make: Make[P],
) -> Callable[[Callable[..., Any]], MakeView[P, GymnasiumPool, GymnasiumPool[torch.Tensor], GymnasiumPool[jax.Array]]]:
    """Shows ``**arguments`` of a function of ``task_id`` alone as those of ``make``."""
    return lambda function: _show(function, make)


def _like_make_gym(
    make: Make[P],
) -> Callable[[Callable[..., Any]], MakeView[P, GymPool, GymPool[torch.Tensor], GymPool[jax.Array]]]:
    return lambda function: _show(function, make)


def _like_make_dm(
    make: Make[P],
) -> Callable[[Callable[..., Any]], MakeView[P, DmPool, DmPool[torch.Tensor], DmPool[jax.Array]]]:
    return lambda function: _show(function, make)


def _show(function: Callable[..., Any], make: Any) -> Any:
    """The same function; ``inspect.signature`` shows the keywords of ``make`` instead of its ``**arguments``."""
    own, model = inspect.signature(function), inspect.signature(make)
    positional = [one for one in own.parameters.values() if one.kind is one.POSITIONAL_OR_KEYWORD]
    keywords = [one for one in model.parameters.values() if one.kind is not one.POSITIONAL_OR_KEYWORD]
    function.__signature__ = own.replace(parameters=[*positional, *keywords])  # type: ignore[attr-defined]
    return function


# ---- make ----------------------------------------------------------------------------------------


@_pool_of_env_type
def make(
    task_id: Any,
    env_type: EnvType = "gymnasium",
    *,
    num_envs: int = 1,
    batch_size: int | None = None,
    num_threads: int | None = None,
    num_workers: int | None = None,
    seed: int | Sequence[int] | None = 42,
    backend: Backend | Ray | Process = "auto",
    autoreset: AutoresetWord | AutoresetMode = "next_step",
    max_episode_steps: int | None = None,
    max_num_players: int | None = None,
    thread_affinity_offset: int = -1,
    step_timeout: float | None = None,
    reset_timeout: float | None = None,
    start_timeout: float = 60,
    on_error: OnError = "raise",
    max_restarts: float | None = 3,
    action_bounds: ActionBounds = "pass",
    output: OutputLibrary = "numpy",
    device: str | torch.device = "cpu",
    python: str | os.PathLike[str] | None = None,
    env_config: Sequence[Mapping[str, Any]] | None = None,
    **config: Any,
) -> Any:
    """Makes a pool of envs.

    Args:
        task_id: An id (``list_all_envs()``, or any of Gymnasium's), an env class or factory, or a list of
            these, one per env. A factory with a parameter ``env_id`` or ``worker_id`` is given it.
        env_type: The interface: ``"gymnasium"``, ``"gym"`` or ``"dm"``.
        num_envs: How many envs.
        batch_size: How many results make a batch; fewer than ``num_envs`` is async mode.
        num_threads: Threads that step native envs, including the calling one if it helps;
            ``min(batch_size, cores)`` by default.
        num_workers: Processes that step envs; ``min(num_envs, cores)`` by default. In async mode one per env if there
            are fewer than four envs per core, and at most 32, so that no env waits for a slow one. ``"auto"`` gives
            envs that mostly wait one each, up to 64.
        seed: Env i is seeded with ``seed + i``; or a list with one seed per env. None draws seeds, see ``config``.
        backend: ``"thread"`` (native envs on threads), ``"process"`` or ``stepmill.Process(...)`` (any env in worker
            processes), ``"inline"`` (all in the calling thread), ``"ray"`` or ``stepmill.Ray(...)`` (actors of a Ray
            cluster, each of which runs its envs by ``"auto"``) or ``"auto"``: threads for native envs; Python envs in
            worker processes, or in the calling thread if a short trial of one extra env shows that this is faster.
            ``"cuda"``: native envs on a GPU, for which their class is compiled. JAX worlds (``"gymnax:CartPole-v1"``)
            live in arrays, ``"jax"``, and nowhere else.
        autoreset: ``"next_step"``, ``"same_step"`` (not for many players) or ``"disabled"``; or Gymnasium's
            ``AutoresetMode``.
        max_episode_steps: The time limit of an episode; the env's own by default.
        max_num_players: How many rows a native env with many players may fill; by default what its id is registered
            with, or 1.
        thread_affinity_offset: The core that the first thread is bound to; -1 binds none.
        step_timeout: For worker processes: how many seconds a step may take.
        reset_timeout: For worker processes: how many seconds a reset may take.
        start_timeout: For worker processes and actors: how many seconds building the envs may take.
        on_error: ``"raise"`` an error that carries the batch when an env fails, or ``"restart"`` the env
            and only mark its row.
        max_restarts: With ``"restart"``: the number of consecutive failures of one env at which to raise after all, at
            most 65535; ``None`` or ``math.inf``: never.
        action_bounds: What happens to Box actions outside their bounds: ``"pass"``, ``"clip"``, ``"error"``.
        output: What observations, rewards and flags are: ``"numpy"`` arrays, ``"torch"`` tensors or ``"jax"`` arrays.
            Infos are numpy arrays in any case.
        device: Where they are: ``"cpu"``, or ``"cuda"`` (``"cuda:1"``) for tensors and JAX arrays on a GPU. Where envs
            run is ``backend``; but JAX worlds and the envs of ``backend="cuda"`` run where their arrays are.
        python: Another Python interpreter, or the folder of its environment, that runs the envs with its own packages,
            in worker processes. The same version of stepmill must be installed there.
        env_config: Configurations of single envs, one dict per env, which override ``config``. ``python`` in one of
            them is for that env.
        **config: The env's own configuration.
    """
    given = {
        "num_envs": num_envs,
        "batch_size": batch_size,
        "num_threads": num_threads,
        "num_workers": num_workers,
        "seed": seed,
        "backend": backend,
        "autoreset": autoreset,
        "max_episode_steps": max_episode_steps,
        "max_num_players": max_num_players,
        "thread_affinity_offset": thread_affinity_offset,
        "step_timeout": step_timeout,
        "reset_timeout": reset_timeout,
        "start_timeout": start_timeout,
        "on_error": on_error,
        "max_restarts": max_restarts,
        "action_bounds": action_bounds,
        "output": output,
        "device": device,
        "python": python,
    }
    source, settings, spec = _prepare(task_id, env_type, env_config, config, **given)
    converter = None
    if isinstance(source, WorldSource):
        host = engine = open_device_pool(source, settings)
    elif isinstance(source, NativeSource) and settings.backend == "cuda":
        host = engine = open_cuda_pool(source, settings)
    else:
        if settings.output in CONVERTERS:
            converter = CONVERTERS[settings.output](
                settings.device
            )  # raises if there is none, before anything is built
        with explained_refusals("the pool could not be made"):
            host = open_host(source, settings)
            engine = open_engine(host, settings)
    if spec is None:
        if isinstance(source, PythonSource) and source.has_islands:
            source = source.completed(host.found)
        if host.backend == "process":  # "auto" may have found that they need more
            settings = replace(settings, num_workers=len(host.crews))
        spec = _spec(source, settings, host.observation.space, host.action.space, host.info_space, host.num_players)
    try:
        pool = _view(env_type)(engine, spec, settings, converter)
    except UnsupportedError:  # the view cannot show such observations
        engine.close()
        raise
    pool._made_with = MakeArguments.of(task_id, env_type, env_config, config, given, settings)
    return pool


def resume(path: Place, task: Any = None, **arguments: Any) -> Any:
    """Makes a pool that goes on where another one was when it wrote a checkpoint, bit for bit.

    Whoever can write the file can make this run code, as with a pickle: resume only what you trust.

    Args:
        path: The file, or one that is open for reading.
        task: What ``make`` was given as ``task_id``. Only needed if it cannot be imported, such as a lambda.
        **arguments: ``num_threads``, ``num_workers`` and ``backend`` (but for ``"cuda"``) may differ from those of the
            former pool. Other arguments of ``make`` need not be given, and must be the same.

    Returns:
        A pool of the same view. Its first results are those that the former one had not handed out.

    Raises:
        StateError: The file is damaged, of another version of stepmill, or of another env or configuration.
        OSError: There is no such file.

    Example:
        >>> pool = stepmill.make("CartPole-v1", num_envs=4)
        >>> pool.async_reset()
        >>> pool.checkpoint("run.pool")
        >>> again = stepmill.resume("run.pool", backend="inline")
        >>> again.in_flight
        [0, 1, 2, 3]
    """
    checkpoint = Checkpoint.read(path)
    pool: Any = make(**arguments_for(checkpoint.arguments, task, arguments))
    try:
        pool._go_on_from(checkpoint)
    except BaseException:
        pool.close()
        raise
    return pool


@_like_make_gymnasium(make)
def make_gymnasium(task_id: Any, **arguments: Any) -> GymnasiumPool[Any]:
    """``make(task_id, "gymnasium", ...)``: a ``gymnasium.vector.VectorEnv``."""
    return make(task_id, "gymnasium", **arguments)


@_like_make_gym(make)
def make_gym(task_id: Any, **arguments: Any) -> GymPool[Any]:
    """``make(task_id, "gym", ...)``: a pool whose steps return four results, as Gym's did."""
    pool: GymPool[Any] = make(task_id, "gym", **arguments)
    return pool


@_like_make_dm(make)
def make_dm(task_id: Any, **arguments: Any) -> DmPool[Any]:
    """``make(task_id, "dm", ...)``: a pool whose steps return a ``dm_env.TimeStep``."""
    pool: DmPool[Any] = make(task_id, "dm", **arguments)
    return pool


@_like_make(make)
def make_spec(task_id: Any, env_type: EnvType = "gymnasium", **arguments: Any) -> PoolSpec:
    """The spaces and the configuration of the pool that ``make`` would return, without making it.

    Native envs are described without building one. A Python env has to exist to tell its spaces, so one is built and
    closed again.
    """
    given = {name: arguments.pop(name) for name in SETTINGS if name in arguments}
    source, settings, spec = _prepare(task_id, env_type, arguments.pop("env_config", None), arguments, **given)
    if spec is None:
        assert isinstance(source, PythonSource)
        if source.has_islands:
            from stepmill.hosts.process.caller.launcher import describe_source_in_worker

            source, env = describe_source_in_worker(source, settings)
        else:
            env = describe_source(source)
        check_players(env.num_players, settings)
        spec = _spec(source, settings, env.observation_space, env.action_space, env.info_space, env.num_players)
    return spec


def make_for_gymnasium(
    task_id: str, num_envs: int = 1, max_episode_steps: int | None = None, **arguments: Any
) -> GymnasiumPool[Any]:
    """What ``gymnasium.make_vec("stepmill/<id>")`` calls, with its keyword arguments; ``registry`` names it there."""
    return make_gymnasium(task_id, num_envs=num_envs, max_episode_steps=max_episode_steps, **arguments)


def _prepare(
    task_id: Any,
    env_type: Any,
    env_config: Sequence[Mapping[str, Any]] | None,
    config: dict[str, Any],
    **given: Any,
) -> tuple[NativeSource | PythonSource | WorldSource, Settings, PoolSpec | None]:
    one_of("env_type", env_type, get_args(EnvType))
    if isinstance(task_id, list | tuple) and given.get("num_envs", 1) == 1:
        given["num_envs"] = len(task_id)
    reward_dtype = "float64" if env_type == "gymnasium" else "float32"
    settings = check_settings(**given, reward_dtype=reward_dtype)
    source = find_source(
        task_id,
        settings.num_envs,
        config,
        env_config,
        settings.backend,
        settings.max_episode_steps,
        settings.max_num_players,
        settings.python,
    )
    if isinstance(source, WorldSource):
        settings = settings_for(source, settings)
        return source, settings, _spec(source, settings, source.observation_space, source.action_space, None, 1)
    if settings.backend == "cuda":
        settings = settings_on_gpu(source, settings)
    else:
        refuse_numpy_elsewhere(settings)
    if settings.process.threads:
        if not isinstance(source, PythonSource):
            raise UnsupportedError(f"threads=True is for Python envs that block while they wait: {source.id} is native")
        source = replace(source, threads=True)
    if isinstance(source, PythonSource):
        if settings.backend != "ray":
            settings = with_workers_for(source, settings, given.get("num_workers"))
        return source, settings, None
    described = source.observation_space, source.action_space, source.info_space, source.max_num_players
    return source, settings, _spec(source, settings, *described)


def _spec(
    source: NativeSource | PythonSource | WorldSource,
    settings: Settings,
    observation_space: spaces.Space[Any],
    action_space: spaces.Space[Any],
    info_space: spaces.Dict | None,
    players: int,
) -> PoolSpec:
    # All settings, except those that say how the envs run rather than what they do.
    hidden = ("backend", "output", "device")
    shown = {name: getattr(settings, name) for name in SETTINGS if name not in hidden}
    shown |= {"seed": list(settings.seed), "max_episode_steps": source.max_episode_steps, "max_num_players": players}
    return PoolSpec(
        id=source.id,
        observation_space=observation_space,
        action_space=action_space,
        reward_space=spaces.Box(-np.inf, np.inf, (), np.dtype(settings.reward_dtype).type),
        config={"task_id": source.id, **shown, **source.config},
        env_configs=source.env_configs,
        max_episode_steps=source.max_episode_steps,
        reward_threshold=source.reward_threshold,
        info_space=spaces.Dict() if info_space is None else info_space,
    )


def _view(env_type: EnvType) -> Any:
    if env_type == "gymnasium":
        from stepmill.views.gymnasium import GymnasiumPool

        return GymnasiumPool
    if env_type == "gym":
        from stepmill.views.gym import GymPool

        return GymPool
    from stepmill.views.dm import DmPool

    return DmPool
