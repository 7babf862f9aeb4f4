"""A pool whose envs are arrays on a device: what views hold in the place of an engine and its host.

It checks what the caller gives as the engine does, and never waits for the device, unless results are to be numpy's.
All envs move together, so it is always sync: ``send`` starts the step, and ``recv`` hands out what it will have given.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from stepmill import _native
from stepmill.device.device_results import DeviceResults
from stepmill.device.device_states import DeviceKeeper
from stepmill.device.functional import Functional, functional, keys_of
from stepmill.device.jax_program import JaxProgram
from stepmill.errors import (
    ActionError,
    ClosedError,
    ConcurrentUseError,
    ForkedError,
    InFlightError,
    InputError,
    NeedsResetError,
    NothingInFlightError,
    ResetOptionError,
    UnsupportedError,
    UsageError,
)
from stepmill.settings import ACTION_BOUNDS, Settings
from stepmill.sources.world_source import WorldSource
from stepmill.values.spaces import ArrayLeaf, flatten
from stepmill.values.trees import leaves, map_tree, map_trees

R = TypeVar("R")

_ARRAYS_ALONE = "the envs of this pool are rows of arrays on a device, and no objects"
# Calls of a pool that this one cannot do, and why.
REFUSALS = {
    **dict.fromkeys(("call", "apply", "set_attr"), _ARRAYS_ALONE),
    **dict.fromkeys(
        ("set_model", "get_model"), "the envs of this pool are one compiled program, without a model of each"
    ),
    "np_random": "the envs of this pool draw from keys of JAX, and have no generators of numpy",
    "session": "the envs of this pool move together: none of them can step alone",
    "watch": "looking at the envs of this pool would make it wait for its device: stats() tells how it is doing",
    "xla": "the envs of this pool are functions of JAX already: functional() returns them",
}


class _Inside:
    """One thread inside a pool. Written out: a generator as context manager costs a step some µs more."""

    __slots__ = ("_pool",)

    def __init__(self, pool: DevicePool) -> None:
        self._pool = pool

    def __enter__(self) -> None:
        self._pool.enter()

    def __exit__(self, *error: object) -> None:
        self._pool.leave()


class DevicePool:
    """Checks, what is in flight, and results; a ``JaxProgram`` moves the envs."""

    backend = "jax"
    is_native = True
    converts = True  # it hands out arrays of the library that ``output`` says
    num_players, player_kinds = 1, ()
    episode_limits: Sequence[int | None] = ()
    keeper = DeviceKeeper
    refusals = REFUSALS
    code = ""

    def __init__(self, source: WorldSource, settings: Settings, program: JaxProgram) -> None:
        self.source, self._settings, self.program = source, settings, program
        self.num_envs = settings.num_envs
        self.observation, self.action = flatten(source.observation_space), flatten(source.action_space)
        self.info_space = None
        self.render_mode = source.render_mode
        self.metadata: dict[str, Any] = {"render_modes": [] if source.world.draw is None else ["rgb_array"]}
        self._results = DeviceResults(self.observation, settings, program)
        self._reader: _native.ActionReader | None = None  # made when there is something for it to read
        self._seeds = np.array(settings.seed, np.uint64)
        self._waits = np.ones(self.num_envs, bool)  # whether an env has not begun with its seed yet
        self._in_flight: np.ndarray | None = None  # flags of the envs whose rows were not received; None: no env's
        self._all = np.ones(self.num_envs, bool)  # what the above is after most calls: never written to
        self._steps = self._batches = 0
        self._made_at = time.monotonic()
        self._pid = os.getpid()
        self._closed = False
        self._lock = threading.Lock()
        self._user = 0  # the thread inside

    # ---- who may call ------------------------------------------------------------------------

    @property
    def host(self) -> DevicePool:
        """What is asked about envs: there is nothing below."""
        return self

    @property
    def closed(self) -> bool:
        return self._closed

    @property
    def forked(self) -> bool:
        return os.getpid() != self._pid

    def _inside(self) -> _Inside:
        return _Inside(self)

    def enter(self) -> None:
        """Takes the lock for this thread, or says why it cannot."""
        if self._closed:
            raise ClosedError("the pool is closed: make a new one")
        if self.forked:
            raise ForkedError(
                "the pool was made before a fork and belongs to the parent process: its arrays are of no use in this "
                "one. Make a pool in this process instead"
            )
        if not self._lock.acquire(blocking=False):
            raise ConcurrentUseError(
                "this thread is already inside this pool: a signal handler cannot use the pool that it interrupts"
                if self._user == threading.get_ident()
                else "another thread is inside this pool: a pool serves one thread at a time. Use a lock, or one pool "
                "per thread"
            )
        self._user = threading.get_ident()

    def leave(self) -> None:
        self._lock.release()

    def check_usable(self) -> None:
        with self._inside():
            pass

    def use(self, function: Callable[..., R], /, *args: Any) -> R:
        with self._inside():
            return function(*args)

    def plainly(self, function: Callable[..., R], /, *args: Any) -> R:
        """Calls a function during which results are those of the gymnasium view, in arrays of numpy."""
        self.check_usable()
        with self._results.plain():
            return function(*args)

    def show_as(self, step: Any, reset: Any, players: bool = False) -> None:
        self._results.show_as(step, reset, players)

    # ---- sending -----------------------------------------------------------------------------

    def send(self, action: Any, env_id: Any = None) -> None:
        with self._inside():
            self._send(action, env_id)

    def step(self, action: Any, env_id: Any = None) -> Any:
        with self._inside():
            self._send(action, env_id)
            return self._recv(False)

    step_all = step

    def _send(self, action: Any, env_id: Any) -> None:
        moved = self._on_device(action) if env_id is None else None
        if moved is None:
            which = self._checking_reader().read(action, env_id)
            moved = self.program.on_device(map_tree(lambda leaf: self._rows_read[leaf], self.action.tree))
        else:
            which = None
            self._check_can_act()
        if which is None and self._in_flight is None:
            self.program.step(moved)
            self._in_flight = self._all
            self._waits.fill(False)
        else:
            mask = self._mask(which)
            self.program.step_some(moved, mask)
            self._in_flight = mask if self._in_flight is None else self._in_flight | mask
            self._waits &= ~self._in_flight

    def _checking_reader(self) -> _native.ActionReader:
        """The reader, which knows of which envs it must refuse actions."""
        if self._reader is None:
            spec = {"observation": [], "action": [leaf.as_dict() for leaf in self.action.leaves], "info": []}
            players = {"num_players": 1, "player_kinds": [], "players_vary": False}
            self._reader = _native.ActionReader(
                num_envs=self.num_envs,
                is_disabled=self._settings.autoreset == "disabled",
                spec={**spec, **players},
                action_tree=self.action.tree,
                bounds=ACTION_BOUNDS.index(self._settings.action_bounds),
            )
            self._rows_read = self._reader.rows()
            self._told_in_flight: np.ndarray | None = None
        if self._told_in_flight is not self._in_flight:
            self._reader.set_in_flight(None, False)
            if self._in_flight is not None:
                self._reader.set_in_flight(np.flatnonzero(self._in_flight), True)
            self._told_in_flight = self._in_flight
        if self._settings.autoreset == "disabled":
            self._reader.set_over(self._over())
        return self._reader

    def _over(self) -> np.ndarray:
        """Whose episode is over and whose next one has not begun. Waits for the device."""
        over: np.ndarray = np.asarray(self.program.now.envs.is_over) & ~self._waits
        return over

    def _on_device(self, action: Any) -> Any:
        """An action of all envs that is on a device, as arrays of JAX, unread; None if it is something else."""
        if isinstance(self.action.tree, int):  # an array, as of most envs: without what trees need, which takes longer
            return self._leaf_on_device(self.action.leaves[self.action.tree], action)
        try:
            parts = list(leaves(map_trees(lambda _, part: part, self.action.tree, action)))
        except (LookupError, TypeError, ValueError):
            return None
        if isinstance(action, Mapping) and len(action) != len(self.action.tree):
            return None
        moved = [self._leaf_on_device(*pair) for pair in zip(self.action.leaves, parts, strict=True)]
        if not moved or any(part is None for part in moved):
            return None
        given = iter(moved)
        return map_tree(lambda _: next(given), self.action.tree)

    def _leaf_on_device(self, leaf: ArrayLeaf, given: Any) -> Any:
        part = self._results.array_on_device(given)
        if part is None:
            return None
        expected = (self.num_envs, *leaf.shape)
        if part.shape != expected or part.dtype.kind not in "biuf":
            name = f"action {leaf.name!r}" if leaf.name else "action"
            if part.shape != expected:
                raise ActionError(f"{name}: expected shape {expected} (one row per env), got shape {part.shape}")
            raise ActionError(f"{name}: expected numbers that {leaf.dtype} can hold, got type {part.dtype}")
        return part

    def _check_can_act(self) -> None:
        if self._in_flight is not None:
            first = int(np.flatnonzero(self._in_flight)[0])
            raise InFlightError(
                f"env {first} is in flight: its last action has no result yet. Call recv() until its id is in "
                "info['env_id'], then send to it again"
            )
        if self._settings.autoreset == "disabled" and (over := self._over()).any():
            first = int(np.flatnonzero(over)[0])
            raise NeedsResetError(
                f"the episode of env {first} is over and autoreset is disabled: call reset(env_id=[{first}]) before "
                "the next action"
            )

    def _mask(self, ids: np.ndarray | None) -> np.ndarray:
        if ids is None:
            return np.ones(self.num_envs, bool)
        mask = np.zeros(self.num_envs, bool)
        mask[ids] = True
        return mask

    # ---- resets ------------------------------------------------------------------------------

    def send_reset(
        self, env_id: Any, seeds: Sequence[int | None] | None, options: Any, preparation: Any = None
    ) -> None:
        with self._inside():
            ids = self._read_reset(env_id, options)
            self._refuse_in_flight(ids)
            self._begin(ids, None, seeds)

    def reset(self, env_id: Any, seeds: Sequence[int | None] | None, options: Any, mask: Any = None) -> Any:
        with self._inside():
            ids = self._read_reset(env_id, options)
            if ids is None and env_id is None and mask is None:
                self._in_flight = None  # what was in flight is void
            self._refuse_in_flight(ids)
            if self._in_flight is not None:
                raise InFlightError(
                    "cannot reset or restore some envs while others are in flight: recv() their results first"
                )
            self._begin(ids, mask, seeds)
            rows = ids if mask is None else None
            self._in_flight = self._mask(rows)
            return self._recv(True, rows)

    def _read_reset(self, env_id: Any, options: Any) -> np.ndarray | None:
        """The envs to reset, in order; None: all."""
        for one in options if isinstance(options, list) else [options]:
            if one:
                name = next(iter(one))
                raise ResetOptionError(
                    f"unknown reset option {str(name)!r}, expected one of: none (this env takes no options)"
                )
        ids: np.ndarray | None = None if env_id is None else self._checking_reader().read_envs(env_id)
        count = self.num_envs if ids is None else len(ids)
        if isinstance(options, list) and len(options) != count:
            raise ResetOptionError(f"options: expected {count} dicts, one per env, got {len(options)}")
        return ids

    def _refuse_in_flight(self, ids: np.ndarray | None) -> None:
        if self._in_flight is None:
            return
        asked = np.flatnonzero(self._in_flight if ids is None else self._in_flight & self._mask(ids))
        if len(asked):
            raise InFlightError(
                f"env {asked[0]} is in flight: recv() its result before you reset it, or reset() all envs"
            )

    def _begin(self, ids: np.ndarray | None, mask: Any, seeds: Sequence[int | None] | None) -> None:
        """Begins episodes of some envs: of those of a mask, or of all whose ids were given."""
        which = None if ids is None and mask is None else self._mask(ids) if mask is None else np.asarray(mask)
        keys = has_key = None
        if seeds is not None:
            has_key, numbers = np.zeros(self.num_envs, bool), self._seeds.copy()
            for env_id, seed in zip(range(self.num_envs) if ids is None else ids, seeds, strict=True):
                if seed is not None and (mask is None or mask[env_id]):
                    has_key[env_id], numbers[env_id] = True, seed
            keys = keys_of(numbers)
        self.program.reset(which, keys, has_key)
        if seeds is not None:
            self._seeds = numbers
        mask = np.ones(self.num_envs, bool) if which is None else which
        self._waits &= ~mask
        self._in_flight = mask if self._in_flight is None else self._in_flight | mask

    # ---- receiving ---------------------------------------------------------------------------

    def recv(self, timeout: float | None = None, at_least: int | None = None) -> Any:
        """What was sent. It may still be on its way to the arrays: nothing here waits, so nothing can take too long."""
        with self._inside():
            try:
                is_good = timeout is None or float(timeout) >= 0
            except (TypeError, ValueError, OverflowError):
                is_good = False
            if not is_good:
                raise InputError(
                    f"recv(timeout={timeout!r}): expected seconds >= 0, or None to wait for as long as it takes"
                )
            if at_least is not None:
                raise UsageError(
                    f"recv(at_least={at_least}) is for async pools: here batch_size=num_envs, and a batch has a row "
                    "for every env that was sent to"
                )
            if self._in_flight is None:
                raise NothingInFlightError(
                    "recv() with nothing in flight would wait forever: send() actions or async_reset() first"
                )
            return self._recv(False)

    def _recv(self, as_reset: bool, ids: np.ndarray | None = None) -> Any:
        """The rows in flight, in the order of their ids, or in that of ``ids``."""
        assert self._in_flight is not None
        if ids is None and self._in_flight is not self._all and not self._in_flight.all():
            ids = np.flatnonzero(self._in_flight).astype(np.int32)
        result = self._results.of(self.program.now, ids, as_reset)
        self._steps += self.num_envs if ids is None else len(ids)
        self._batches += 1
        self._in_flight = None
        return result

    @property
    def in_flight_count(self) -> int:
        return 0 if self._in_flight is None else int(self._in_flight.sum())

    @property
    def in_flight_ids(self) -> list[int]:
        return [] if self._in_flight is None else np.flatnonzero(self._in_flight).tolist()

    @property
    def rows_received(self) -> int:
        return self._steps

    def count_elsewhere(self, steps: int, episodes: int, failures: int) -> None:
        """Nothing is counted elsewhere."""

    # ---- states ------------------------------------------------------------------------------

    def refuse_unready(self, what: str, ids: np.ndarray | None) -> None:
        """Raises if one of these envs cannot be saved or restored now."""
        if self._in_flight is not None:
            first = int(np.flatnonzero(self._in_flight)[0])
            raise InFlightError(f"{what}: env {first} is in flight: recv() its result first")
        waiting = np.flatnonzero(self._waits if ids is None else self._waits[ids])
        if what == "save" and len(waiting):
            env = waiting[0] if ids is None else ids[waiting[0]]
            raise NeedsResetError(f"save: env {env} was never reset: call reset() first")

    def restored(self, ids: np.ndarray | None) -> Any:
        """What these envs show, after they were given states."""
        self._waits &= ~self._mask(ids)
        self._in_flight = self._mask(ids)
        return self._recv(True, ids)

    def read_envs(self, env_ids: Any) -> np.ndarray | None:
        ids: np.ndarray | None = None if env_ids is None else self._checking_reader().read_envs(env_ids)
        return ids

    def rest(self) -> dict[str, Any]:
        """What a checkpoint has besides the arrays on the device."""
        names = "_seeds", "_waits", "_in_flight", "_steps", "_batches"
        return {name: getattr(self, name) for name in names}

    def set_rest(self, rest: Mapping[str, Any]) -> None:
        for name, value in rest.items():
            setattr(self, name, value)

    # ---- what views ask ----------------------------------------------------------------------

    def seeds(self, env_ids: Sequence[int]) -> list[tuple[int, bool]]:
        return [(int(self._seeds[one]), bool(self._waits[one])) for one in env_ids]

    def random_states(self, env_ids: Sequence[int]) -> Any:
        raise UnsupportedError(f"np_random: {REFUSALS['np_random']}")

    def render(self, env_ids: Sequence[int]) -> tuple[Any, ...]:
        if self.render_mode is None:
            raise UnsupportedError(f"render: {self.source.id} was made without render_mode='rgb_array'")
        draw = self.source.world.draw
        assert draw is not None
        ids = np.asarray(env_ids, np.int32)
        states = self._results.on_host(self.program.take(self.program.now.envs.state, ids))
        return tuple(draw(self._results.row(states, i)) for i in range(len(ids)))

    def figures(self) -> dict[str, Any]:
        """For ``stats``. Waits for the device, and raises if an env was given a bad action there."""
        self.check()
        seconds = time.monotonic() - self._made_at
        arrays = self._results.arrays_in(self.program.now)
        return {
            "batches": self._batches,
            "steps": self._steps,
            "episodes": self.program.episodes(),
            "failures": 0,
            "restarts": 0,
            "steps_per_second": self._steps / seconds,
            "in_flight": self.in_flight_count,
            "memory_bytes": sum(one.nbytes for one in arrays),
        }

    def check(self) -> None:
        """Raises if an env was given a bad action on the device since this was asked. Waits for the device."""
        bad = self.program.take_bad()
        if bad is not None:
            raise ActionError(
                f"env {bad} was given an action outside {self.source.action_space}, in an array on the device, which "
                "nobody looked at then. It acted with the nearest one in the space, or with NaN. Check what your "
                "program sends, or send numpy's arrays, which are checked at once"
            )

    def functional(self) -> Functional:
        """The rules of this pool as pure functions."""
        if self._settings.autoreset == "disabled":
            raise UnsupportedError(
                "functional: with autoreset='disabled' nobody would reset an env whose episode is over: make the pool "
                "with autoreset='next_step' or 'same_step'"
            )
        return functional(self.program.rules, self._settings.seed)

    # ---- ending ------------------------------------------------------------------------------

    def close(self) -> None:
        """Lets go of the arrays, then raises if an env was given a bad action that nobody was told of."""
        if self._closed:
            return
        if self.forked:
            self._closed = True
            return
        with self._inside():
            self._closed = True
            try:
                self.check()
            finally:
                del self.program, self._results
                self._reader = self._in_flight = None
