"""What all views of a pool share: properties, checks of arguments, and the calls that need no translation."""

from __future__ import annotations

import operator
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from gymnasium.vector import AutoresetMode
from typing_extensions import TypeVar

from stepmill import _native
from stepmill.errors import (
    ConfigError,
    EnvError,
    EnvIdError,
    InFlightError,
    InputError,
    ResetOptionError,
    StepmillError,
    UnknownAttributeError,
    UnsupportedError,
)
from stepmill.hosts.generators import generators_of, seeds_of
from stepmill.hosts.host import Host, PythonHost, Uncopyable
from stepmill.hosts.infos import rows_of_info
from stepmill.hosts.observing import WatchedPool, stats_of
from stepmill.hosts.process.caller.servers import describe_servers
from stepmill.hosts.rollout.policy import Policy
from stepmill.hosts.rollout.result import Rollout
from stepmill.hosts.rollout.roll_out import Rollouts
from stepmill.hosts.rollout.steps import StepBatch, play_on
from stepmill.hosts.saving import StateKeeper
from stepmill.settings import GYMNASIUM_MODES, SEED_LIMIT, OutputLibrary, Settings, check_seeds
from stepmill.spec import PoolSpec
from stepmill.values.arguments import seconds, whole_number
from stepmill.values.saved_states import SavedState, SavedStates
from stepmill.views.checkpoint import Checkpoint, MakeArguments, Place
from stepmill.views.direct import Call, direct
from stepmill.views.model_calls import get_model, set_model
from stepmill.views.order import record_order, replay_order
from stepmill.views.outputs import CONVERTERS, Converter, Output

if TYPE_CHECKING:  # imported when it is used: it brings a server
    from stepmill.hosts.process.caller.clones import CloneTickets
    from stepmill.tools.watching.watch import Watch
    from stepmill.views.session import Session
    from stepmill.views.sessions import Sessions

__all__ = ["Array", "PoolView"]

Array = TypeVar("Array", default=np.ndarray)  # what ``output`` says: rewards and flags are of this type
R = TypeVar("R")


class PoolView(Uncopyable):
    """A pool of envs. Subclasses tell the engine how to show results, and return them as the engine does.

    No Python code runs in between: if a signal handler raised there, the result would be lost. See ``views/direct.py``.
    """

    spec: Any
    _page: Watch | None = None  # the page that shows this pool
    _rollouts: Rollouts | None = None
    _states: StateKeeper | None = None
    _made_with: MakeArguments | None = None
    _sessions: Sessions | None = None

    def __init__(
        self, engine: _native.Engine, spec: PoolSpec, settings: Settings, converter: Converter | None = None
    ) -> None:
        self._engine = engine
        self._host: Host = engine.host
        self._settings = settings
        self._pool_spec = spec
        self.spec = spec
        self.num_envs = settings.num_envs
        # What hands out the arrays of a batch as those of another library; None: numpy's, as they are.
        self._output: Output | None = None
        if settings.output != "numpy" and not getattr(self._host, "converts", False):
            made = CONVERTERS[settings.output](settings.device) if converter is None else converter
            self._output = Output(settings.output, made, self._host.observation)
            if self._output.reader is not None:
                engine.lock_pages(self._output.reader)

    @classmethod
    def over(cls, pool: PoolView, *, output: OutputLibrary | None = None, **arguments: Any) -> Self:
        """Makes a view of this class over the pool behind another one, which must not be used any more.

        Args:
            pool: The view that it takes the place of.
            output: What arrays the new view hands out; by default those that the other one did.
            **arguments: What the constructor of this class takes besides, if it is one of yours.

        Raises:
            UnsupportedError: The pool is on a device, and hands out other arrays.
        """
        if output not in (None, pool.settings.output) and getattr(pool._host, "converts", False):
            raise UnsupportedError(
                f"over(output={output!r}): the results of this pool are made on its device, for "
                f"{pool.settings.output}: make it with output={output!r}"
            )
        settings = pool.settings if output is None else replace(pool.settings, output=output)
        view = cls(pool._engine, pool._pool_spec, settings, **arguments)
        view._made_with = pool._made_with
        return view

    # ---- properties --------------------------------------------------------------------------

    @property
    def settings(self) -> Settings:
        """The settings of the pool, frozen: an attribute per argument of ``make``, with defaults filled in."""
        return self._settings

    @property
    def batch_size(self) -> int:
        """How many results make a batch."""
        return self._settings.batch_size

    @property
    def backend(self) -> str:
        """Where the envs run: ``"thread"``, ``"process"``, ``"inline"``, ``"ray"``, ``"jax"`` or ``"cuda"``."""
        return self._host.backend

    @property
    def is_async(self) -> bool:
        """Whether ``recv`` returns as soon as ``batch_size`` envs are done."""
        return self._settings.is_async

    @property
    def autoreset_mode(self) -> AutoresetMode:
        """When envs whose episode is over are reset, as a member of Gymnasium's enum."""
        return GYMNASIUM_MODES[self._settings.autoreset]

    @property
    def is_native(self) -> bool:
        """Whether the envs are compiled, rather than Python objects."""
        return self._host.is_native

    @property
    def device(self) -> str:
        """Where the arrays are that the pool hands out: ``"cpu"``, or the GPU, such as ``"cuda:0"``."""
        gpu = None if self._output is None else self._output.reader
        place: str = getattr(self._host, "device", self._settings.device)
        return place if gpu is None else f"cuda:{gpu}"

    @property
    def num_players(self) -> int:
        """How many players an env may have; each has a row in observations and rewards."""
        return self._host.num_players

    @property
    def player_kinds(self) -> tuple[str, ...]:
        """The kind of each player of an env, in the order of their numbers; empty if all have the same spaces."""
        return self._host.player_kinds

    @property
    def in_flight(self) -> list[int]:
        """The ids of the envs that were sent an action or a reset and whose result was not received yet."""
        return self._engine.in_flight_ids if self._engine.in_flight_count else []

    @property
    def all_env_ids(self) -> np.ndarray:
        """The ids of all envs, in order."""
        return np.arange(self.num_envs, dtype=np.int32)

    @property
    def config(self) -> dict[str, Any]:
        """Everything that ``make`` decided: the pool's settings and the env's configuration."""
        return dict(self._pool_spec.config)

    @property
    def np_random_seed(self) -> tuple[int, ...]:
        """The last seed of every env; -1 for an env that does not know it."""
        return tuple(seeds_of(self._engine, self._reachable(None)))

    @property
    def np_random(self) -> tuple[np.random.Generator, ...]:
        """The random generator of every env.

        For native envs and envs in other processes it is a copy, which draws what the env would draw next; drawing
        from it does not change the env. For an env that waits for a seed, it is the generator that this seed gives it.
        """
        return tuple(generators_of(self._engine, self._reachable(None)))

    @property
    def closed(self) -> bool:
        """Whether ``close`` was called."""
        return self._engine.closed

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
        """Queues actions and returns at once; ``recv`` returns the results.

        Args:
            action: One action per env: an array with a row for each, a list, a tensor, or a dict
                ``{"action": ..., "env_id": ...}``.
            env_id: The envs that the actions are for: by default all envs, in async mode those of the last ``recv``.

        Raises:
            InputError: The actions do not fit the action space (``ActionError``), or the ids are invalid
                (``EnvIdError``). Nothing was sent.
            UsageError: One of the envs is in flight (``InFlightError``), its episode is over and autoreset is disabled
                (``NeedsResetError``), or the pool is closed (``ClosedError``). Nothing was sent.

        Example:
            >>> pool = stepmill.make("CartPole-v1", num_envs=4)
            >>> pool.send(np.zeros(4, int))  # resets, as every first action does
            >>> results = pool.recv()
            >>> pool.send([1, 0], env_id=[2, 3])
            >>> results = pool.recv()  # of these two
        """
        self._engine.send(action, env_id)

    def async_reset(self, env_id: Any = None, *, seed: Any = None, options: Mapping[str, Any] | None = None) -> None:
        """Queues a reset of all envs, or of those of ``env_id``, and returns at once; ``recv`` returns the results.

        Seeds and options are those of ``reset``. Of a ``reset_mask``, only the envs that it selects come back.
        """
        env_id, seeds, options, mask = self._reset_arguments(env_id, seed, options)
        if mask is not None:
            env_id = np.flatnonzero(mask)
            seeds = None if seeds is None else [seeds[one] for one in env_id]
        self._engine.send_reset(env_id, seeds, options)

    def recv_into(self, owner: object, name: str, timeout: float | None = None, at_least: int | None = None) -> None:
        """Receives a batch and makes it an attribute: ``owner.name = pool.recv(...)``, with nothing in between.

        A signal handler may raise between any two instructions of Python, as Ctrl-C does. After this call the batch is
        the attribute, or it is still in flight: it cannot be lost on the way.
        """
        _native.call_into(owner, name, self._engine.recv, timeout, at_least)

    def drain(self) -> list[Any]:
        """Receives all that is in flight, such as what an interrupted call has left, and returns it.

        Returns:
            The batches, as ``recv`` returns them; none if nothing was in flight. An env that failed is an abnormal row
            in its batch, and raises nothing. If the call is interrupted itself, what it has received is dropped, and
            the rest stays in flight.

        Example:
            >>> pool = stepmill.make("CartPole-v1", num_envs=4)
            >>> pool.send(np.zeros(4, int))
            >>> pool.in_flight
            [0, 1, 2, 3]
            >>> batches = pool.drain()
            >>> len(batches), pool.in_flight
            (1, [])
        """
        self._engine.check_usable()
        self._take_from_sessions("drain")
        batches = []
        while self._engine.in_flight_count:
            try:
                batches.append(self._engine.recv(None))
            except EnvError as error:
                if error.batch is None:
                    raise
                batches.append(error.batch)
        return batches

    @staticmethod
    def info_rows(info: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Splits the info of a batch: a dict per row with what the env of this row has told.

        ``abnormal``, ``final_obs`` and ``final_info`` are there as well, in the rows that they are true of; what the
        pool counts is not. Numbers become Python's own. Arrays are copied: a row that is kept does not keep the batch.
        """
        return rows_of_info(info)

    def rollout(self, policy: Policy, steps: int, *, seed: int | None = None, observation: Any = None) -> Rollout:
        """Lets every env make ``steps`` steps, with a policy that chooses the actions, and returns all of it.

        On a cluster (``backend="ray"``) the policy goes to the envs, and only the result travels.

        Args:
            policy: ``policy(observations, env_ids, generators)`` returns actions, one per row of the observations, or a
                tuple of actions and anything else to be recorded, each with a row per env:
                ``(actions, log_probs, values)``. It is called with numpy arrays whatever the view or ``output``, with
                the ids of the envs that the rows belong to, and with a ``numpy.random.Generator`` for each of them.
                Where the action space is a Tuple, it always returns a tuple that begins with actions: ``(actions,)``.
                ``stepmill.per_env`` makes a policy of a function of one observation. A policy that remembers something
                has a method ``begin(env_ids)``, which is called when episodes of these envs start, and before the
                first call for envs whose episodes it has not seen so far.
            steps: The number of steps of each env. A reset after the end of an episode counts as one, as in ``step``.
            seed: The generator of env i is ``numpy.random.default_rng((seed, i))``, made anew for each rollout. By
                default the number of the rollout: 0 for the pool's first one.
            observation: What the envs show now, with a row for every env. By default a rollout goes on where the last
                one has ended; the first one of a new pool resets all envs.

        Returns:
            A ``stepmill.Rollout``: arrays with the axes (step, env, ...). It is the same, bit for bit, on every
            backend, if each action depends on its own row and generator alone.

        Raises:
            UsageError: Envs are in flight (``InFlightError``), or have moved since the last rollout and there is no
                ``observation``; or the pool cannot do that (``UnsupportedError``: autoreset is disabled, or envs have
                several players, or observations that are no arrays).
            InputError: The policy returned something else than actions (``ActionError``), or the observation does not
                fit its space.
            EnvError: An env failed, under ``on_error="raise"``. What the policy raises comes as it is. In any case
                nothing is in flight afterwards.

        Example:
            >>> def lean(observations, env_ids, generators):
            ...     return (observations[:, 2] > 0).astype(int)
            >>> pool = stepmill.make("CartPole-v1", num_envs=4, seed=7)
            >>> rollout = pool.rollout(lean, 100)
            >>> rollout.observations.shape, rollout.rewards.shape
            ((100, 4, 4), (100, 4))
            >>> more = pool.rollout(lean, 100)  # goes on
        """
        self._take_from_sessions("rollout")
        self.check()  # of failures before it, nothing would be told after its own
        return self._all_rollouts()(policy, steps, seed, observation)

    def _all_rollouts(self) -> Rollouts:
        if self._rollouts is None:
            self._rollouts = Rollouts(self._engine, self._settings)
        return self._rollouts

    def play(
        self, policy: Policy, *, seed: int = 0, episodes: Iterable[int | None] | None = None, raise_errors: bool = True
    ) -> Iterator[StepBatch]:
        """Resets envs and lets them play with a policy, for as long as you ask for the next batch.

        It is the loop of ``rollout``, but nothing is kept: you get every batch when it comes, with its infos, and do
        with it what you like. Between two batches you may render envs, or read their attributes.

        Args:
            policy: See ``rollout``. It may have any action space, and envs may have several players: then ``env_ids``
                and ``generators`` have an entry per row, which is a player. Texts, graphs and sequences come as arrays
                of objects. What it returns beside actions is dropped.
            seed: The generator of env i is ``numpy.random.default_rng((seed, i))``.
            episodes: The seeds of the episodes to play. Each env plays the next one when its episode has ended or
                failed, with the generator ``numpy.random.default_rng((seed, its seed))``, and the play ends when all
                have ended: an episode does not depend on which env plays it. The next seeds are taken after you have
                seen the batch in which episodes end. None instead of a seed goes on with the env's own random numbers.
                Without ``episodes``, envs go on as ``autoreset`` says, for ever.
            raise_errors: Whether errors of envs end the play. Otherwise the batch has them, and the next action resets
                the envs that failed, or they begin their next episode.

        Returns:
            An iterator of batches, the first with the observations after the reset. In async mode a batch has those
            envs that were ready first. If you leave the loop, envs may be in flight: ``reset`` all of them.

        Raises:
            UsageError: Envs are in flight (``InFlightError``), or autoreset is disabled and there are no ``episodes``
                (``UnsupportedError``), or the policy calls the pool.
            InputError: It is no policy, or it returned something else than actions (``ActionError``).
            EnvError: An env failed, under ``on_error="raise"``.

        Example:
            >>> @stepmill.per_env
            ... def lean(observation, generator):
            ...     return int(observation[2] > 0)
            >>> pool = stepmill.make("CartPole-v1", num_envs=4)
            >>> returns = []
            >>> for batch in pool.play(lean, episodes=range(10)):
            ...     if batch.ended.any():
            ...         returns += batch.info["episode_return"][batch.ended].tolist()
            >>> len(returns)
            10
        """
        self._take_from_sessions("play")
        self.check()  # as in rollout
        return play_on(self._engine, self._settings, policy, seed, episodes, raise_errors)

    def _reset_arguments(self, env_id: Any, seed: Any, options: Mapping[str, Any] | None) -> tuple[Any, ...]:
        """Arguments for the engine's ``reset``: of all envs, of the given ids, or of those that a mask selects."""
        self._engine.check_usable()
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
        """Makes calls go straight to the engine, unless a subclass of ``view`` has overridden the methods."""
        engine = self._engine
        for name in ("step", "recv"):
            if (method := getattr(type(self), name)) is getattr(view, name):
                setattr(self, name, method.made_by(getattr(type(engine), name), engine))

    def _check_options(self, options: Any) -> Any:
        if isinstance(options, list | tuple):  # one per env
            if any(isinstance(one, Mapping) and "reset_mask" in one for one in options):
                raise ResetOptionError("options: expected 'reset_mask' in one dict for all envs, got it in a list")
            return [self._check_options(one) for one in options]
        if options is None:
            return None
        if not isinstance(options, Mapping):
            raise ResetOptionError(f"options: expected a dict, or a list of dicts, one per env, got {options!r}")
        return dict(options)  # a copy: the caller's dict is not changed

    def _check_mask(self, mask: Any) -> np.ndarray:
        expected = f"a bool array of shape ({self.num_envs},) with at least one True"
        if hasattr(mask, "__array__"):  # of torch or JAX, such as the flags of the last step
            mask = np.asarray(_native.without_torch(mask))
        if not isinstance(mask, np.ndarray) or mask.dtype != np.bool_ or mask.shape != (self.num_envs,):
            got = f"{mask.dtype} array of shape {mask.shape}" if isinstance(mask, np.ndarray) else repr(mask)
            raise ResetOptionError(f"options['reset_mask']: expected {expected}, got {got}")
        if not mask.any():
            raise ResetOptionError(f"options['reset_mask']: expected {expected}, got all False")
        return np.ascontiguousarray(mask)

    # ---- saved states ------------------------------------------------------------------------

    @property
    def state_kind(self) -> str:
        """How ``save`` finds the state of an env, or ``"none: "`` and why it cannot.

        ``"memory"``: a copy of the memory of a native env. ``"methods"``: ``get_state()`` of a Python env. ``"fork"``:
        a copy of the worker process of any other Python env, which sleeps. ``"arrays"``: a copy of rows on a device.
        """
        return self._keeper().kind

    @property
    def clone_limit(self) -> int:
        """How many states by fork may be in use at a time, each with a sleeping process: 64, until you set it.

        On Ray, in each actor.
        """
        return self._clones("clone_limit").limit

    @clone_limit.setter
    def clone_limit(self, limit: int) -> None:
        self._clones("clone_limit").limit = whole_number("clone_limit", limit, 0)

    @property
    def clone_memory(self) -> int | None:
        """How many bytes of memory these processes may have; None, until you set it: a quarter of what is free.

        On Ray, in each actor.
        """
        return self._clones("clone_memory").memory

    @clone_memory.setter
    def clone_memory(self, size: int | None) -> None:
        self._clones("clone_memory").memory = None if size is None else whole_number("clone_memory", size, 0)

    def _clones(self, name: str) -> CloneTickets[Any]:
        clones: CloneTickets[Any] | None = getattr(self._host, "clones", None)
        if clones is None:
            raise UnsupportedError(f"{name}: only worker processes are saved by fork (backend='process')")
        return clones

    def save(self, env_ids: Any = None, *, by: str | None = None) -> SavedStates:
        """Saves envs as they are now: everything that decides how they go on.

        That is their memory and their random numbers, the return and length of the episode so far, whether it is over,
        and what the next reset is given.

        Args:
            env_ids: The envs, none of which may be in flight; by default all.
            by: ``"pickle"`` pickles Python envs as they are, though they have no ``get_state()``. Not every env that
                can be pickled keeps its state, so the first save of a pool compares how an env and its copy go on.
                ``"fork"`` copies the worker process of an env, as is done anyway if it has no ``get_state()``.

        Returns:
            A sequence of states, one per env, for ``restore``. They cannot change, and can be pickled.

        Raises:
            UsageError: One of the envs is in flight (``InFlightError``) or was never reset (``NeedsResetError``), or
                envs of this kind cannot be saved (``UnsupportedError``); ``state_kind`` says why.
            ResourceError: There are too many states by fork, or they have too much memory; see ``clone_limit``.

        Example:
            >>> pool = stepmill.make("CartPole-v1", num_envs=4)
            >>> obs, info = pool.reset(seed=7)
            >>> states = pool.save()
            >>> first = pool.step(np.ones(4, int))[0]
            >>> again, info = pool.restore(states)
            >>> bool((again == obs).all()), bool((pool.step(np.ones(4, int))[0] == first).all())
            (True, True)
        """
        return self._keeper().save(env_ids, by)

    @direct
    def restore(self, states: SavedStates | SavedState | Sequence[SavedState], env_ids: Any = None) -> Call[Any]:
        """Gives envs saved states, and they go on from there.

        Args:
            states: What ``save`` returned, here or elsewhere: one state per env, or a single one (``states[0]``) for
                all of them. They must be of the same env and configuration.
            env_ids: The envs, none of which may be in flight; by default all.

        Returns:
            What ``reset`` returns: the observations that the saved envs showed last, and their infos.

        Raises:
            InputError: A state is damaged, of another env or configuration, or their number is another one
                (``StateError``). Nothing has changed.
            UsageError: One of the envs is in flight (``InFlightError``).

        Example:
            >>> pool = stepmill.make("CartPole-v1", num_envs=4)
            >>> obs, info = pool.reset(seed=7)
            >>> obs, info = pool.restore(pool.save([0])[0], [1, 2, 3])  # all four are in the same state now
        """
        return self._keeper().restoring(states, env_ids)

    @direct
    def fork(self, source: int, targets: Any) -> Call[Any]:
        """Gives envs the state of another one: ``restore(save([source])[0], targets)``.

        Args:
            source: The env to copy.
            targets: The envs that get its state.

        Returns:
            What ``reset`` returns, with a row for each of the targets.
        """
        keeper = self._keeper()
        return keeper.restoring(keeper.save(self._ids([source]))[0], targets)

    def checkpoint(self, path: Place, *, by: str | None = None) -> None:
        """Writes the whole pool to a file, from which ``stepmill.resume`` goes on as this pool does.

        It waits until every action that was sent has its result. Results that were not received yet are part of the
        checkpoint, and stay in flight.

        Args:
            path: The file. It is complete or as it was, whatever happens meanwhile. Or a binary file that is open for
                writing, such as an ``io.BytesIO``.
            by: As in ``save``.

        Raises:
            UnsupportedError: Envs of this kind cannot be saved; ``state_kind`` says why.
            EnvError: The worker of an idle env is gone. The env's next action tells of it, and then it can be saved.
            ResourceError: The file cannot be written. The former one is as it was.

        Example:
            >>> pool = stepmill.make("CartPole-v1", num_envs=4)
            >>> obs, info = pool.reset(seed=7)
            >>> pool.checkpoint("run.pool")
            >>> again = stepmill.resume("run.pool")
            >>> bool((again.step(np.ones(4, int))[0] == pool.step(np.ones(4, int))[0]).all())
            True
        """
        if self._made_with is None:
            raise UnsupportedError("checkpoint: this pool was not made by stepmill.make, so that it cannot be resumed")
        memory = self._keeper().save_all(by)
        rollouts = None if self._rollouts is None else self._rollouts.memory
        Checkpoint(self._made_with.packed(), memory, rollouts).write(path)

    def _go_on_from(self, checkpoint: Checkpoint) -> None:
        self._keeper().restore_all(checkpoint.memory)
        if checkpoint.rollouts is not None:
            self._all_rollouts().memory = checkpoint.rollouts

    def _keeper(self) -> StateKeeper:
        if self._states is None:
            spec = self._pool_spec
            keeper: type[StateKeeper] = getattr(self._host, "keeper", StateKeeper)
            self._states = keeper(self._engine, spec.id, spec.env_configs, spec.max_episode_steps)
        return self._states

    # ---- the order of results ----------------------------------------------------------------

    def record_order(self, path: str | os.PathLike[str]) -> None:
        """Writes the order in which this async pool's results are received to a file, two bytes per row.

        What each env does depends on its own actions alone. So a program that draws its random numbers with fixed
        seeds does the same again, bit for bit, if it gets the results in the same order: see ``replay_order``. A batch
        is in the file before you get it, and stays there if the program is killed.

        Args:
            path: The file; one that exists is replaced. It is complete at any moment, until the pool is closed.

        Raises:
            UsageError: Envs were sent actions or resets before, or the pool is sync (``UnsupportedError``).
            ResourceError: The file cannot be written. From ``recv`` and ``step`` too, if the disk is full: no result is
                lost, and the next ``recv`` returns it.

        Example:
            >>> pool = stepmill.make("CartPole-v1", num_envs=4, batch_size=2)
            >>> pool.record_order("order.bin")
            >>> pool.async_reset()
            >>> first = pool.recv()[4]["env_id"]
            >>> again = stepmill.make("CartPole-v1", num_envs=4, batch_size=2)
            >>> again.replay_order("order.bin")
            >>> again.async_reset()
            >>> bool((again.recv()[4]["env_id"] == first).all())
            True
        """
        record_order(self._engine, self._pool_spec, self._settings, path)

    def replay_order(self, path: str | os.PathLike[str]) -> None:
        """Makes ``recv`` and ``step`` return results in the order that ``record_order`` has written to a file.

        Envs run as they always do. Results that come too early are kept until it is their turn; a timeout of ``recv``
        runs out where it did then, and nowhere else. The number of threads, worker processes and the backend may be
        others.

        Args:
            path: The file.

        Raises:
            InputError: The file is no such file, or was recorded with another task, configuration, seed, ``num_envs``
                or ``batch_size`` (``StateError``). From ``recv`` and ``step`` too, where the run departs from the
                recorded one: an env that was received then was not sent anything, or has failed only then or only
                now, or the file ends.
            UsageError: Envs were sent actions or resets before, or the pool is sync (``UnsupportedError``).
        """
        replay_order(self._engine, self._pool_spec, self._settings, path)

    # ---- one env per task --------------------------------------------------------------------

    def session(
        self, *, seed: int | None = None, options: Mapping[str, Any] | None = None, timeout: float | None = None
    ) -> Session:
        """One env of this pool, for one task of an asyncio program, instead of batches.

        As many tasks as the pool has envs run at a time; others wait until one is free, in the order in which they
        came. While sessions are open they have the pool: ``step``, ``send`` and the like are refused. ``autoreset`` is
        ignored: a step after the end of an episode is an error until you ``reset``.

        Args:
            seed: That of the first ``reset``. Without one the env goes on with its own random numbers, so that results
                depend on which task gets which env.
            options: Those of every ``reset``.
            timeout: Seconds to wait for an env that is free; None: no limit.

        Returns:
            A context manager for ``async with``. It gives an env with ``await env.reset()``,
            ``await env.step(action)`` and ``env.env_id``, whose results are those of a single Gymnasium env, whatever
            the view and ``output``. Leaving it with a step in flight does not wait: the env is free when its row comes.

        Raises:
            ConfigError: An invalid seed or timeout. ``ResetOptionError``: invalid options.
            SessionTimeoutError: When it is entered: no env became free in time.
            UsageError: When it is entered: envs are in flight (``InFlightError``), or the sessions of this pool belong
                to another event loop.

        Example:
            >>> import asyncio
            >>> async def episode(pool, seed):
            ...     async with pool.session(seed=seed) as env:
            ...         obs, info = await env.reset()
            ...         terminated = truncated = False
            ...         while not (terminated or truncated):
            ...             obs, reward, terminated, truncated, info = await env.step(int(obs[2] > 0))
            ...         return info["episode_length"]
            >>> async def main():
            ...     with stepmill.make("CartPole-v1", num_envs=4) as pool:
            ...         return await asyncio.gather(*(episode(pool, seed) for seed in range(10)))
            >>> len(asyncio.run(main()))
            10
        """
        from stepmill.views.session import Session
        from stepmill.views.sessions import Sessions

        self._check_can("session")
        self._engine.check_usable()
        own = self._check_options(options)
        if isinstance(own, list) or (own and "reset_mask" in own):
            raise ResetOptionError(f"options: expected a dict of options for one env, got {options!r}")
        seed = None if seed is None else whole_number("seed", seed, 0, SEED_LIMIT - 1)
        if timeout is not None:
            timeout = seconds("timeout", timeout)
        if self._sessions is None:
            self._sessions = Sessions(self._engine, self._settings.autoreset)
        return Session(self._sessions, seed, own, timeout)

    def _take_from_sessions(self, call: str) -> None:
        """Raises if sessions are open. The engine does so itself; this is for calls that look at other things first."""
        if self._sessions is not None:
            self._sessions.make_way(call)

    # ---- the envs themselves -----------------------------------------------------------------

    def call(self, name: str, *args: Any, env_ids: Sequence[int] | None = None, **kwargs: Any) -> tuple[Any, ...]:
        """Calls a method of every env, or of the given ones; an attribute is returned as it is."""
        _check_name("call", name)
        host = self._python_host("call")
        return tuple(self._engine.use(host.call, name, self._reachable(env_ids), args, kwargs))

    def apply(self, function: Callable[[Any], R], env_ids: Sequence[int] | None = None) -> tuple[R, ...]:
        """Calls ``function(env)`` for every env, or for the given ones, where the env runs, and returns the results.

        In another process a function of a module is imported there, any other is sent; what it returns is pickled.
        """
        if not callable(function):
            raise InputError(f"apply: expected a function of an env, got {function!r}")
        host = self._python_host("apply")
        return tuple(self._engine.use(host.apply, function, self._reachable(env_ids)))

    def get_attr(self, name: str, env_ids: Sequence[int] | None = None) -> tuple[Any, ...]:
        """An attribute of every env, or of the given ones. Native envs have configuration, spaces and generator."""
        _check_name("get_attr", name)
        ids = self._reachable(env_ids)
        if self._host.is_native:
            return self._native_attribute(name, ids)
        return tuple(self._engine.use(self._python_host("get_attr").get_attr, name, ids))

    def set_attr(self, name: str, values: Any, env_ids: Sequence[int] | None = None) -> None:
        """Sets an attribute of every env, or of the given ones: one value for all, or a list with one per env."""
        _check_name("set_attr", name)
        ids = self._reachable(env_ids)
        if not isinstance(values, list | tuple):
            values = [values] * len(ids)
        if len(values) != len(ids):
            raise ConfigError(f"set_attr({name!r}): expected {len(ids)} values, one per env, got {len(values)}")
        self._engine.use(self._python_host("set_attr").set_attr, name, values, ids)

    def set_model(self, env_ids: Sequence[int] | None, fields: Mapping[str, Any], *, set_const: bool = False) -> None:
        """Changes the physics models of envs, from the next reset of each on: domain randomisation.

        Everything is checked first: if a name or a value is invalid, nothing changes. What is set stays set, also if an
        env is built again, or its worker process or actor is replaced.

        Args:
            env_ids: The envs, none of which may be in flight; ``None`` for all.
            fields: Values by the names of fields, such as ``"body_mass"`` or ``"opt.gravity"``: whole arrays, each in
                the shape of the field, or with one more axis in front, with a row per env.
            set_const: Whether to call ``mj_setConst``, which computes what MuJoCo derives from these fields.
        """
        self._check_can("set_model")
        ids = self._reachable(env_ids)
        if len(set(ids)) != len(ids):
            raise EnvIdError(f"set_model: expected each env once, got {ids}")
        if self._engine.in_flight_count:
            for one in set(self._engine.in_flight_ids).intersection(ids):
                raise InFlightError(f"env {one} is in flight, and its model is in use: recv() its result first")
        self._engine.use(set_model, self._host, ids, fields, set_const)

    def get_model(self, env_ids: Sequence[int] | None, names: Sequence[str]) -> dict[str, np.ndarray]:
        """Fields of the envs' physics models, as they will be from each env's next reset on: a row per env."""
        self._check_can("get_model")
        return self._engine.use(get_model, self._host, self._reachable(env_ids), names)

    def functional(self) -> Any:
        """The envs of a JAX world as pure functions, for ``jax.lax.scan``: a whole training can be one program.

        Returns:
            ``(reset, step)``. ``reset(seed=None)`` begins an episode of every env, as ``pool.reset(seed=...)`` does,
            and returns ``(envs, result)``; ``step(envs, action)`` returns the same. ``envs`` is what the next step
            needs; ``result`` has the fields observation, reward, terminated, truncated and info, with what the pool
            counts. Nobody looks at actions here, and this pool itself does not change.

        Raises:
            UnsupportedError: These envs are no functions of JAX; or autoreset is disabled, so that nobody would reset
                an env whose episode is over.
        """
        pure = getattr(self._host, "functional", None)
        if pure is None:
            raise UnsupportedError(
                f"functional: {self._pool_spec.id} is not a JAX world: xla() steps its pool inside of jax.jit"
            )
        return self._engine.use(pure)

    def xla(self) -> tuple[Any, Callable[..., Any], Callable[..., Any], Callable[..., Any]]:
        """The pool as functions for programs that JAX compiles: ``jax.jit``, ``lax.scan``, ``fori_loop``.

        The results have the shape of this view, with arrays of JAX: always ``batch_size`` rows, and always the same
        infos, in which what a batch does not have is 0, and False in the mask beside it. Without x64, 64-bit numbers
        become 32-bit ones. While such a program runs, it has the pool: other calls are a ``ConcurrentUseError``, and
        Ctrl-C is seen after the program's call. If one fails, JAX raises an error of its own with the text; the pool's
        next call raises ours, as ``xla_error`` shows it.

        Returns:
            ``(handle, recv, send, step)``. ``recv(handle)`` and ``step(handle, action, env_id=None)`` return
            ``(handle, results)``; ``send(handle, action, env_id=None)`` returns ``handle``. Each call takes the handle
            of the one before it, which is what keeps them in order.

        Raises:
            MissingPackageError: JAX is not installed.
            UnsupportedError: JAX is too old; or these envs do not fit a program: they have several players or parts
                that are not arrays, or live on a cluster, or are a JAX world, which ``functional`` is for.

        Example:
            >>> import jax, jax.numpy as jnp
            >>> pool = stepmill.make("CartPole-v1", num_envs=4)
            >>> handle, recv, send, step = pool.xla()
            >>> obs, info = pool.reset()
            >>> @jax.jit
            ... def lean(handle, obs):
            ...     def once(carry, _):
            ...         handle, obs = carry
            ...         handle, (obs, reward, *_) = step(handle, (obs[:, 2] > 0).astype(int))
            ...         return (handle, obs), reward
            ...     return jax.lax.scan(once, (handle, obs), length=100)
            >>> _, rewards = lean(handle, jnp.asarray(obs))
            >>> rewards.shape
            (100, 4)
        """
        from stepmill.views.xla import xla_functions

        self._check_can("xla")
        self._engine.check_usable()
        return xla_functions(self._engine, self._settings, *self._show_in_programs())

    @property
    def xla_error(self) -> BaseException | None:
        """The last exception inside of a program of ``xla``; None if there was none.

        The next call of the pool raises it, unless you have looked at it here.
        """
        return None if not isinstance(self._engine, _native.Engine) else _native.EngineXla.error(self._engine)

    def _show_in_programs(self) -> tuple[Callable[[Any], Any], bool]:
        """What makes a result of this view from one of the gymnasium view; and whether infos show players."""
        return lambda result: result, False

    def graph_step(self, action: Any) -> Any:
        """Steps all envs on a GPU as ``step`` does, **into the same tensors each time**: for CUDA graphs of torch.

        A graph that has recorded this call steps the envs whenever it is replayed, with what is in the action's tensor
        then, and the tensors of the first call have the results. So copy what you need longer than until the next call
        or replay. The call is one launch, which allocates nothing and waits for nothing; but the first call makes the
        tensors, and has to come before the capture. ``stats`` counts calls, not replays. As long as somebody keeps
        these tensors, a graph may be replayed, even after the pool is closed.

        Args:
            action: One action per env: contiguous tensors on the pool's GPU, of the types of the action space.

        Returns:
            What ``step`` returns: the same tensors each time.

        Raises:
            ActionError: A graph cannot record that action. Nothing was stepped.
            UsageError: Envs are in flight (``InFlightError``), or the first call is being captured.
            UnsupportedError: Autoreset is disabled, or the pool lacks ``backend="cuda"`` or ``output="torch"``.
        """
        self._engine.check_usable()
        if (self.backend, self._settings.output) != ("cuda", "torch"):
            raise UnsupportedError(
                "graph_step: CUDA graphs of torch record it: expected a pool with backend='cuda' and output='torch', "
                f"got backend={self.backend!r} and output={self._settings.output!r}"
            )
        step: Callable[[Any], Any] = self._engine.graph_step  # type: ignore[attr-defined]  # of what takes its place
        return step(action)

    def check(self) -> None:
        """Raises if, since the last check, an env failed on a GPU, or was given a bad action in an array on a device.

        ``step`` does not look at such arrays; all other actions were checked when they were sent. ``stats`` and
        ``close`` check as well.

        Raises:
            ActionError: An action was outside its space.
            EnvError: An env has failed.
        """
        self._engine.check_usable()
        look = getattr(self._host, "check", None)
        if look is not None:
            look()

    def render(self, env_ids: Sequence[int] | None = None) -> Any:
        """A picture of every env, or of the given ones; for text modes a text."""
        return self._engine.use(self._host.render, self._reachable(env_ids))

    def stats(self) -> dict[str, Any]:
        """Counts since the pool was made: steps, episodes, batches, failures, restarts; the cost of a step, memory.

        And, as ``servers``, the processes from which this process starts workers, for this pool or for others.
        """
        self._engine.check_usable()
        common = {"backend": self.backend, "num_envs": self.num_envs, "servers": describe_servers()}
        return {**common, **stats_of(self._engine)}

    def watch(self, *, port: int = 0, open_browser: bool | None = None) -> Watch:
        """Opens a page on this machine that shows the pool while you use it: a live grid of its envs, returns, speed.

        The pool goes on as it would: what it returns is looked at on its way to you. Pictures are sampled. They take at
        most 5 % of the workers' time, and none if no browser shows the page. They need ``render_mode="rgb_array"`` in
        ``make``. Called again, this returns the page that is open.

        Args:
            port: The port of the page, on this machine's own address; 0: any that is free.
            open_browser: Whether to open it in the default browser; by default if there is a terminal and a display.

        Returns:
            The page, which ends with ``close()``, at the end of a ``with`` block, or with the pool. Its ``file`` opens
            it in a browser; other users of the machine can neither read that nor see the page.

        Example:
            >>> pool = stepmill.make("CartPole-v1", num_envs=16, render_mode="rgb_array")
            >>> page = pool.watch(open_browser=False)
            >>> obs, info = pool.reset()
            >>> page.close()
        """
        if self.closed or self._host.forked:
            self._engine.check_usable()  # raises; not otherwise, as another thread may be using the pool
        from stepmill.tools.watching.watch import page_of

        self._page = page_of(watched(self), self._page, port, open_browser)
        return self._page

    def _native_attribute(self, name: str, env_ids: Sequence[int]) -> tuple[Any, ...]:
        spec = self._pool_spec
        if name == "np_random":
            return tuple(generators_of(self._engine, env_ids))
        if name == "np_random_seed":
            return tuple(seeds_of(self._engine, env_ids))
        shared: dict[str, Any] = {
            "max_episode_steps": spec.max_episode_steps,
            "observation_space": spec.observation_space,
            "action_space": spec.action_space,
            "spec": spec,
            "metadata": self._host.metadata,
            "render_mode": self._host.render_mode,
        }
        if name in shared:
            return (shared[name],) * len(env_ids)
        if name in spec.env_configs[0]:
            return tuple(spec.env_configs[env_id][name] for env_id in env_ids)
        known = ", ".join([*spec.env_configs[0], *shared, "np_random", "np_random_seed"])
        raise UnknownAttributeError(f"{spec.id} is native and has no attribute {name!r}: get_attr knows {known}")

    def _check_can(self, what: str) -> None:
        """Raises if pools of this kind have no such call."""
        why = getattr(self._host, "refusals", {}).get(what)
        if why is not None:
            self._engine.check_usable()
            raise UnsupportedError(f"{what}: {why}")

    def _python_host(self, what: str) -> PythonHost:
        self._engine.check_usable()
        self._check_can(what)
        if self._host.is_native:
            raise UnsupportedError(
                f"{what}: {self._pool_spec.id} is native and has no Python object. "
                f"make('gymnasium:{self._pool_spec.id}') runs Gymnasium's own env, if it has one"
            )
        host: PythonHost = self._engine.host
        return host

    def _ids(self, env_ids: Any) -> list[int]:
        if env_ids is None:
            return list(range(self.num_envs))
        try:
            ids = [_whole(one) for one in env_ids]
        except TypeError:
            raise EnvIdError(f"env_id: expected a 1-d array of integers, got {env_ids!r}") from None
        for one in ids:
            if not 0 <= one < self.num_envs:
                raise EnvIdError(f"env_id {one} is out of range [0, {self.num_envs})")
        return ids

    def _reachable(self, env_ids: Sequence[int] | None) -> list[int]:
        """The ids of envs to call. In the calling thread no step runs meanwhile: a queued one has not started."""
        self._engine.check_usable()
        return self._ids(env_ids)

    # ---- ending ------------------------------------------------------------------------------

    def close(self) -> None:
        """Ends the pool's workers and frees its memory, except for the batches you still hold. Idempotent."""
        try:
            if self._sessions is None:
                self._engine.close()
            else:
                self._sessions.close(self._engine.close)
        finally:
            if self._page is not None and self.closed:  # else it refused, and nothing has changed
                self._page.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, error_type: object, *_: object) -> None:
        try:
            self.close()
        except StepmillError:
            if error_type is None or not self.closed:  # else what ends the block says more than what closing it finds
                raise


def watched(pool: PoolView) -> WatchedPool:
    """What a page shows of a pool. Raises if no page can show it."""
    pool._check_can("watch")
    batches = f"async, batches of {pool.batch_size}" if pool.is_async else "sync"
    facts = [f"{pool.num_envs:,} env{'s' if pool.num_envs > 1 else ''}", f"backend {pool.backend}", batches]
    return WatchedPool(pool._engine, pool._pool_spec.id, pool.num_envs, facts)


def _whole(number: Any) -> int:
    """A number as an int. Raises TypeError if it is no whole number, or a bool."""
    if isinstance(number, bool):
        raise TypeError("a bool is no id")
    return operator.index(number)


def _check_name(what: str, name: Any) -> None:
    if not isinstance(name, str):
        raise InputError(f"{what}: expected the name of an attribute or a method, got {name!r}")
