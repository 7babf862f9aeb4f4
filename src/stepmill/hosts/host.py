"""What a host offers: the place where the envs of a pool live.

The engine (``_native.Engine``) checks actions, waits and returns batches, on top of any host. A host is one class with
two halves. The engine talks to the native half (``cpp/bindings/host.h``) while envs step. This file describes the other
half: values that do not fit in arrays, calls of the envs' methods, and the end. There are four hosts:
``native_host.py``, ``inline_host.py``, ``process/process_host.py`` and ``ray/ray_host.py``.
"""

from __future__ import annotations

import atexit
import weakref
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Any, NoReturn, Protocol, SupportsIndex

from gymnasium import spaces

from stepmill import _native
from stepmill.errors import ConcurrentUseError, CopyError, EnvError
from stepmill.hosts.faults import FaultPolicy, contained
from stepmill.hosts.frames import Frame
from stepmill.registry.description import EnvDescription
from stepmill.registry.factories import close_quietly
from stepmill.settings import ACTION_BOUNDS, AUTORESET_MODES, Settings
from stepmill.sources.models.env_model import ModelQuestion
from stepmill.sources.simulator import Simulator, SimulatorSource
from stepmill.sources.source import NativeSource, PythonSource
from stepmill.values.spaces import ArrayLeaf, FlatSpace
from stepmill.values.trees import leaves

# How long an env may run without a deadline before a warning names it.
SLOW_S = 60.0


@dataclass(frozen=True)
class Preparation:
    """What happens to an env before it is reset: ``renew`` builds it again, ``tell`` is called with it."""

    renew: bool = False
    tell: Callable[[Any], None] | None = None


class Host(Protocol):
    """Where envs live. A class that implements this derives from one of ``_native``'s hosts.

    Only the engine calls these methods, or ``engine.use`` does. So calls on a closed pool, in a forked child or during
    another call are refused in one place.
    """

    backend: str  # the user's name for it
    is_native: bool
    observation: FlatSpace
    action: FlatSpace
    info_space: spaces.Dict | None  # the envs' own infos that travel as arrays; None: nobody knows
    num_players: int
    player_kinds: tuple[str, ...]  # of each player; empty if all have the same spaces
    policy: FaultPolicy
    episode_limits: Sequence[int | None]  # the time limit of each env; empty if all have that of the pool
    code: str  # what a state here is of besides: see ``StateOrigin``
    metadata: dict[str, Any]
    render_mode: str | None

    @property
    def forked(self) -> bool:
        """Whether this process was forked after the host was made. It comes with the native half."""
        ...

    @property
    def runs_beside_the_caller(self) -> bool:
        """Whether envs step while the caller does something else. It comes with the native half."""
        ...

    def serve_sessions(self, event: int | None) -> None:
        """From now on each env is waited for alone, and the descriptor is rung when rows may have come. None: no more.

        The native half of a host whose rows come without the caller has rung it anyway.
        """
        ...

    def finish_rows(self, result: Any, notes: Sequence[Any], faults: Sequence[Any]) -> tuple[Any, EnvError | None]:
        """Adds what does not fit in arrays to a batch. Returns the result, and the error to raise with it, if any.

        Called for batches that have notes (``take_notes`` of the native half) or failed rows. Does not change its
        arguments: if a signal handler raises in the middle, it is called again.
        """
        ...

    def render(self, env_ids: Sequence[int]) -> tuple[Any, ...]:
        """A picture of each env."""
        ...

    @property
    def crews(self) -> Sequence[range]:
        """The envs of each worker, by number: those of one are drawn one after another."""
        ...

    def ask_frames(self, env_ids: Sequence[int], most: int) -> list[int]:
        """Asks for a small picture of each of these envs, none of which may be in flight, without waiting for it.

        Returns the envs that will be drawn; the others are busy. See ``frame_of`` for ``most``.
        """
        ...

    def take_frames(self) -> list[Frame]:
        """The pictures that are ready."""
        ...

    def ask_models(self, question: ModelQuestion, arguments: Sequence[Any], env_ids: Sequence[int]) -> list[Any]:
        """Asks the model of each env, see ``EnvModel``, with one argument per env. What is set survives the env."""
        ...

    @property
    def state_kind(self) -> str:
        """How envs are saved, in a word, or ``"none: "`` and why they cannot be. May ask the envs."""
        ...

    @property
    def state_ways(self) -> tuple[str, ...]:
        """The kinds of states that envs here may take, the usual one first."""
        ...

    def fingerprint(self, env_id: int) -> str:
        """For envs that are saved as ``"simulator"``: which simulator and model their states are of."""
        ...

    def close(self) -> None:
        """Closes the envs, then raises what they raised. Continues where an earlier call was interrupted."""
        ...


class PythonHost(Host, Protocol):
    """Where Python envs live: what the engine and its users can do with them in addition."""

    # ---- what goes with actions and resets ---------------------------------------------------

    def pack_actions(self, action: Any, env_ids: Sequence[int]) -> dict[int, Any]:
        """The parts of an action that do not fit in arrays, checked, by env id, in the form the native half takes."""
        ...

    def pack_objects(self, objects: list[Any]) -> Any:
        """What ``pack_actions`` gives for one env, from parts that the caller has already read from its action."""
        ...

    def pack_options(self, options: dict[str, Any] | None, preparation: Preparation | None) -> Any:
        """The reset options of one env, in the form that the native half takes."""
        ...

    def prepare(self, preparation: Preparation, env_ids: Sequence[int]) -> None:
        """Prepares the envs, unless ``pack_options`` has passed it on. What an env raises fails its reset."""
        ...

    # ---- the envs themselves -----------------------------------------------------------------

    def call(self, name: str, env_ids: Sequence[int], args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        """Calls a method of each env; an attribute is returned as it is."""
        ...

    def get_attr(self, name: str, env_ids: Sequence[int]) -> list[Any]: ...

    def set_attr(self, name: str, values: Sequence[Any], env_ids: Sequence[int]) -> None: ...

    def apply(self, function: Callable[[Any], Any], env_ids: Sequence[int]) -> list[Any]:
        """``function(env)`` for each env, called where the env lives."""
        ...

    # ---- saved states, for envs that are not in flight; the native half calls these ----------

    def save_envs(self, env_ids: Sequence[int], by: str | None) -> list[bytes]:
        """The state of each env: by the way that the user asked for, or by the usual one. May be a ``StateTicket``."""
        ...

    def load_envs(self, env_ids: Sequence[int], states: Sequence[bytes], former: list[Any]) -> BaseException | None:
        """Gives each env a state. May add to ``former`` what they were, in the order of the envs.

        Returns what a signal handler raised, if all of them have their states nevertheless.
        """
        ...

    def put_back(self, env_ids: Sequence[int], former: Sequence[Any]) -> None:
        """Called if ``load_envs`` has raised, in a thread where no signal handler can: makes all what they were."""
        ...


class ClosedWhenDropped:
    """The base of hosts of Python objects: closes a host that was built whole when its engine is gone."""

    _is_built = False

    def __del__(self: Any) -> None:
        try:  # when the interpreter ends, contextlib may be gone
            if self._is_built:
                self.close()
        except Exception:  # there is no caller to raise it to
            pass


def open_engine(host: Host, settings: Settings) -> _native.Engine:
    """The engine on top of a host. It ends with its last user: a view, or one of its methods that the user kept."""
    engine = _native.Engine(
        host=host,
        observation_tree=host.observation.tree,
        action_tree=host.action.tree,
        has_object_actions=bool(host.action.object_spaces),
        bounds=ACTION_BOUNDS.index(settings.action_bounds),
        seeds=settings.seed,
    )
    _engines.add(engine)
    return engine


def host_arguments(name: str, backend: str, settings: Settings, max_episode_steps: int | None) -> dict[str, Any]:
    """Arguments for the native half of any host. ``max_episode_steps`` is None if each env has its own limit."""
    return {
        "name": name.encode("utf-8", "replace").decode(),
        "shown_backend": backend,
        "user": "manager" if settings.as_ready else "pool",
        "seeds": settings.seed,
        "num_envs": settings.num_envs,
        "batch_size": settings.batch_size,
        "as_ready": settings.as_ready,
        "autoreset": AUTORESET_MODES.index(settings.autoreset),
        "max_episode_steps": max_episode_steps or 0,
        "reward_is_float32": settings.reward_dtype == "float32",
        "keep_last_observation": settings.on_error == "restart",
        "slow_after": SLOW_S,
    }


def python_env_arguments(
    observation: FlatSpace, action: FlatSpace, described: EnvDescription, infos: Sequence[ArrayLeaf]
) -> dict[str, Any]:
    """Arguments for Python envs; each has its own time limit, see ``cpp/bindings/hosts/python_env.h``."""
    kinds = sorted(set(described.player_kinds))  # the order of a Dict space
    return {
        "env_class": None,
        "configs": [],
        "sizes": None,
        "spec": {
            "observation": _leaves(observation, kinds),
            "action": _leaves(action, kinds),
            "info": [leaf.as_dict() for leaf in infos],
            "num_players": described.num_players,
            "player_kinds": [kinds.index(kind) for kind in described.player_kinds],
            "players_vary": described.players_vary,
        },
        "observation_tree": observation.tree,
        "action_tree": action.tree,
    }


def _leaves(space: FlatSpace, kinds: Sequence[str]) -> list[dict[str, Any]]:
    """The leaves of a space as the engine reads them, with the number of the kind of player that each belongs to."""
    out = [leaf.as_dict() for leaf in space.leaves]
    for number, kind in enumerate(kinds):
        assert isinstance(space.tree, dict)
        for index in leaves(space.tree[kind]):
            out[index]["player_kind"] = number
    return out


def native_env_arguments(source: NativeSource) -> dict[str, Any]:
    """Arguments for native envs."""
    return {
        "env_class": source.env_class,
        "configs": source.configs,
        "sizes": None if source.simulators is None else source.simulators.kind(0).sizes,
        "spec": None,
        "observation_tree": source.observation_tree,
        "action_tree": source.action_tree,
    }


class NativeStates:
    """How a host of native envs says how they are saved; the base of hosts that may have some."""

    episode_limits: Sequence[int | None] = ()
    _simulators: SimulatorSource | None = None
    code = ""  # which code a state is of, if it is not a part of stepmill

    def _native_ways(self) -> tuple[str, ...]:
        return ("memory" if self._simulators is None else "simulator",)

    def _native_kind(self, id: str, can_save: bool) -> str:
        why_not = None if self._simulators is None else self._simulators.kind(0).why_unsaved
        if not can_save:
            why_not = (
                f"{id} does not say how it can be saved. If its members are numbers and arrays of them, and none is a "
                "pointer, put `static constexpr bool kPlainMemory = true;` into its class, under public; otherwise "
                "give it save and load (docs/adding-an-env.md)"
            )
        return self._native_ways()[0] if why_not is None else f"none: {why_not}"

    def fingerprint(self, env_id: int) -> str:
        """Which simulator and model the states of an env are of."""
        assert self._simulators is not None
        return self._simulators.kind(env_id).fingerprint


def make_simulators(source: SimulatorSource | None, env_ids: Iterable[int]) -> list[Simulator] | None:
    """A simulator for each env, if native envs need one."""
    if source is None:
        return None
    simulators = []
    for env_id in env_ids:
        with contained(env_id, "constructor"):
            simulators.append(source.build(env_id))
    return simulators


def native_spaces(source: NativeSource) -> tuple[FlatSpace, FlatSpace]:
    """The spaces of native envs; the env class describes their leaves."""
    return (
        FlatSpace(source.observation_space, source.observation_tree, [], []),
        FlatSpace(source.action_space, source.action_tree, [], []),
    )


def describe_source(source: PythonSource) -> EnvDescription:
    """What the first env is like, told by its factory, or else by an env that is built and closed again."""
    described = source.envs[0].described()
    if described is not None:
        return described
    env = source.build(0)
    try:
        with contained(0, "constructor"):
            return EnvDescription.of(env)
    finally:
        close_quietly(env)


# ---- the end of the program ----------------------------------------------------------------------

# Engines, not views: an engine outlives its view if the user kept one of its methods.
_engines: weakref.WeakSet[_native.Engine] = weakref.WeakSet()
_LEAVING_S = 1.0  # how long a daemon thread may take to leave an env's step; one that only waits leaves at once


@atexit.register
def _close_open_pools() -> None:
    """Ends the threads of every pool while the interpreter is still intact, even if closing one pool raises."""
    _native.begin_exit()
    with ExitStack() as stack:
        for engine in list(_engines):
            stack.callback(_close, engine)


def _close(engine: _native.Engine) -> None:
    engine.wait_until_left(_LEAVING_S)
    with suppress(ConcurrentUseError):  # a daemon thread is in an env: it ends with this process, and so do workers
        engine.close()


# ---- one of a kind -------------------------------------------------------------------------------


class Uncopyable:
    """The base of what owns an engine. Refuses ``copy``, ``deepcopy`` and ``pickle``: a copy would close it as well."""

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise CopyError(
            f"a {type(self).__name__} cannot be copied or pickled: its threads, processes and envs exist once. "
            "Make another one"
        )
