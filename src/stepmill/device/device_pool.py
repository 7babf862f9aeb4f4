"""A pool whose envs are arrays on a device: what views hold in the place of an engine and its host.

It checks what the caller gives as the engine does. A step whose action is on the device does not wait for it, unless
results are to be numpy's.
All envs move together, so it is always sync: ``send`` starts the step, and ``recv`` hands out what it will have given.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np

from stepmill import _native
from stepmill.device.device_results import DeviceResults
from stepmill.errors import (
    ActionError,
    ClosedError,
    ConcurrentUseError,
    EnvError,
    ForkedError,
    InFlightError,
    InputError,
    NeedsResetError,
    NothingInFlightError,
    ResetOptionError,
    ResourceError,
    UnsupportedError,
    UsageError,
)
from stepmill.hosts.host import Uncopyable
from stepmill.settings import ACTION_BOUNDS, Settings
from stepmill.sources.source import NativeSource
from stepmill.sources.world_source import WorldSource
from stepmill.values.spaces import ArrayLeaf, FlatSpace
from stepmill.values.trees import leaves, map_tree, map_trees

R = TypeVar("R")

_NUMBERS = frozenset("biuf")  # kinds of numpy's types

_ARRAYS_ALONE = "the envs of this pool are rows of arrays on a device, and no objects"
# Calls of a pool that this one cannot do, and why.
REFUSALS = {
    **dict.fromkeys(("call", "apply", "set_attr"), _ARRAYS_ALONE),
    **dict.fromkeys(
        ("set_model", "get_model"), "the envs of this pool are one compiled program, without a model of each"
    ),
    "session": "the envs of this pool move together: none of them can step alone",
    "watch": "looking at the envs of this pool would make it wait for its device: stats() tells how it is doing",
}


class PoolStanding(NamedTuple):
    """What a pool knows of its envs without asking the device. Nothing in it ever changes."""

    seeds: np.ndarray
    waits: np.ndarray  # whether an env has not begun with its seed yet
    in_flight: np.ndarray | None = None  # the ids of the envs whose rows were not received, in order; None: no env's
    steps: int = 0  # rows that were received
    batches: int = 0


class DevicePool(Uncopyable):
    """Checks, what is in flight, and results; a program moves the envs: ``JaxProgram`` or ``CudaProgram``.

    A signal handler may raise between any two instructions. So what stands is one value, as the envs are; and of what
    moves the envs it is said beforehand what will stand then: the envs themselves tell whether it came to that.
    """

    is_native = True
    converts = True  # it hands out arrays of the library that ``output`` says
    num_players, player_kinds = 1, ()
    episode_limits: Sequence[int | None] = ()
    state_ways, state_kind = ("arrays",), "arrays"

    def __init__(
        self,
        source: WorldSource | NativeSource,
        settings: Settings,
        program: Any,
        results: DeviceResults,
        observation: FlatSpace,
        action: FlatSpace,
    ) -> None:
        self.source, self._settings, self.program, self._results = source, settings, program, results
        self.backend, self.keeper = program.backend, program.keeper
        self.refusals = {**REFUSALS, **program.refusals}
        self.num_envs = settings.num_envs
        self.observation, self.action = observation, action
        self.info_space = None
        self.code = source.code if isinstance(source, NativeSource) else ""
        self.device: str = program.place
        self.render_mode = source.render_mode
        self._draw = source.world.draw if isinstance(source, WorldSource) else None
        self.metadata: dict[str, Any] = {"render_modes": [] if self._draw is None else ["rgb_array"]}
        self._reader: _native.ActionReader | None = None  # made when there is something for it to read
        self._all_ids = np.arange(self.num_envs, dtype=np.int32)
        self._stood = PoolStanding(np.array(settings.seed, np.uint64), np.ones(self.num_envs, bool))
        self._planned: tuple[Any, PoolStanding] | None = None  # what stands as soon as the envs are not these any more
        self._none = np.zeros(self.num_envs, bool)  # never written to
        self._began_at = time.monotonic()
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

    def _free(self) -> threading.Lock:
        """The lock of this pool, for the caller to take. Raises if it is no time for a call.

        Two threads that come here in the same moment wait for each other. The lock is taken by a ``with``, in which no
        signal handler can raise between taking it and seeing to it that it is let go.
        """
        if self._closed:
            raise ClosedError("the pool is closed: make a new one")
        if self.forked:
            raise ForkedError(
                "the pool was made before a fork and belongs to the parent process: its arrays are of no use in this "
                "one. Make a pool in this process instead"
            )
        if self._lock.locked():
            raise ConcurrentUseError(
                "this thread is already inside this pool: a signal handler cannot use the pool that it interrupts"
                if self._user == threading.get_ident()
                else "another thread is inside this pool: a pool serves one thread at a time. Use a lock, or one pool "
                "per thread"
            )
        self._user = threading.get_ident()
        return self._lock

    def check_usable(self) -> None:
        self._free()

    def use(self, function: Callable[..., R], /, *args: Any) -> R:
        with self._free():
            result = function(*args)
        return result

    def plainly(self, function: Callable[..., R], /, *args: Any) -> R:
        """Calls a function during which results are those of the gymnasium view, in arrays of numpy."""
        self.check_usable()
        with self._results.plain():
            return function(*args)

    def show_as(self, step: Any, reset: Any, players: bool = False) -> None:
        self._results.show_as(step, reset, players)

    # ---- sending -----------------------------------------------------------------------------

    def send(self, action: Any, env_id: Any = None) -> None:
        with self._free():
            self._send(action, env_id)

    def step(self, action: Any, env_id: Any = None) -> Any:
        with self._free():
            self._send(action, env_id)
            result, shown = self._shown(False)
        return self._hand_out(result, shown)

    step_all = step

    def graph_step(self, action: Any) -> Any:
        """Steps all envs into arrays that are the same each time, by nothing that a CUDA graph cannot record."""
        with self._free():
            if self._settings.autoreset == "disabled":
                raise UnsupportedError(
                    "graph_step: with autoreset='disabled' the pool would wait for the GPU to learn whose episode is "
                    "over: make it with autoreset='next_step' or 'same_step'"
                )
            self._check_can_act()
            results: Any = self._results  # of a program on a GPU: views refuse it elsewhere
            results.check_graph_step(self.action, action)
            now = self.standing
            steps, batches = now.steps + self.num_envs, now.batches + 1
            self._stood = now._replace(waits=self._none, steps=steps, batches=batches)
            result = results.of_graph_step(self.program, self.action, action)
        return result

    def _send(self, action: Any, env_id: Any) -> None:
        moved = self._on_device(action) if env_id is None else None
        ids = None
        if moved is None:
            ids = self._checking_reader().read(action, env_id)
            moved = self.program.on_device(map_tree(lambda leaf: self._rows_read[leaf], self.action.tree))
        else:
            self._check_can_act()
        if ids is None:
            self._move(self._begun(None), self.program.step, moved)
        else:
            self._move(self._begun(ids), self.program.step_some, moved, self._mask(ids))

    @property
    def standing(self) -> PoolStanding:
        """What stands now."""
        if self._planned is not None:
            before, planned = self._planned
            if self.program.stands is not before:
                self._stood = planned
            self._planned = None
        return self._stood

    def _begun(self, ids: np.ndarray | None) -> PoolStanding:
        """What stands when these envs have moved, too; None: all of them."""
        now = self.standing
        if ids is None and now.in_flight is None:
            return PoolStanding(now.seeds, self._none, self._all_ids, now.steps, now.batches)  # faster than _replace
        ids = self._all_ids if ids is None else ids
        in_flight = ids if now.in_flight is None else np.concatenate([now.in_flight, ids])
        return now._replace(waits=now.waits & ~self._mask(ids), in_flight=in_flight)

    def _move(self, standing: PoolStanding, function: Callable[..., None], *args: Any) -> None:
        """Moves envs, whereupon this stands."""
        self._planned = self.program.stands, standing
        function(*args)

    def _checking_reader(self) -> _native.ActionReader:
        """The reader, which knows of which envs it must refuse actions."""
        if self._reader is None:
            spec = {"observation": [], "action": [leaf.as_dict() for leaf in self.action.leaves], "info": []}
            players = {"num_players": 1, "player_kinds": [], "players_vary": False}
            reader = _native.ActionReader(
                num_envs=self.num_envs,
                is_disabled=self._settings.autoreset == "disabled",
                spec={**spec, **players},
                action_tree=self.action.tree,
                bounds=ACTION_BOUNDS.index(self._settings.action_bounds),
            )
            self._rows_read = reader.rows()
            self._told_in_flight: np.ndarray | None = None
            self._reader = reader  # last: a signal handler may raise in between
        in_flight = self.standing.in_flight
        if self._told_in_flight is not in_flight:
            self._told_in_flight = self._none  # something else, if a signal handler raises now
            self._reader.set_in_flight(None, False)
            if in_flight is not None:
                self._reader.set_in_flight(in_flight, True)
            self._told_in_flight = in_flight
        if self._settings.autoreset == "disabled":
            self._reader.set_over(self._over())
        return self._reader

    def _over(self) -> np.ndarray:
        """Whose episode is over and whose next one has not begun. Waits for the device."""
        over: np.ndarray = self.program.over() & ~self.standing.waits
        return over

    def _on_device(self, action: Any) -> Any:
        """An action of all envs that is on a device, as arrays of its library, unread; None if it is something else."""
        if isinstance(self.action.tree, int):  # one array, as of most envs: trees take as long as all the rest
            part = self._results.array_on_device(action)
            return None if part is None else self._checked(self.action.leaves[self.action.tree], part)
        try:
            parts = list(leaves(map_trees(lambda _, part: part, self.action.tree, action)))
        except (LookupError, TypeError, ValueError):
            return None
        if isinstance(self.action.tree, dict) and len(action) != len(self.action.tree):
            return None  # it has ids as well
        moved = [self._results.array_on_device(part) for part in parts]
        if not moved or any(part is None for part in moved):
            return None
        given = iter([self._checked(*pair) for pair in zip(self.action.leaves, moved, strict=True)])
        return map_tree(lambda _: next(given), self.action.tree)

    def _checked(self, leaf: ArrayLeaf, part: Any) -> Any:
        """An array of an action, whose form is right."""
        expected = (self.num_envs, *leaf.shape)
        is_number = self._results.kind_of(part) in _NUMBERS
        if part.shape == expected and is_number:
            return part
        name = f"action {leaf.name!r}" if leaf.name else "action"
        if part.shape != expected:
            raise ActionError(f"{name}: expected shape {expected} (one row per env), got shape {part.shape}")
        raise ActionError(
            f"{name}: expected bools, whole numbers or floats, which become {leaf.dtype}, got type {part.dtype}"
        )

    def _check_can_act(self) -> None:
        if self.standing.in_flight is not None:
            first = self.in_flight_ids[0]
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
        mask = np.zeros(self.num_envs, bool)
        mask[slice(None) if ids is None else ids] = True
        return mask

    # ---- resets ------------------------------------------------------------------------------

    def send_reset(
        self, env_id: Any, seeds: Sequence[int | None] | None, options: Any, preparation: Any = None
    ) -> None:
        with self._free():
            ids, read = self._read_reset(env_id, options)
            self._refuse_in_flight(ids)
            self._begin(ids, seeds, read, self._mask(ids), self._begun(ids))

    def reset(self, env_id: Any, seeds: Sequence[int | None] | None, options: Any, mask: Any = None) -> Any:
        with self._free():
            ids, read = self._read_reset(env_id, options)
            if env_id is not None or mask is not None:  # else what was in flight is void
                self._refuse_in_flight(ids)
            chosen = self._mask(ids)
            if mask is not None:
                waiting = self.standing.waits & ~mask  # they have nothing to show yet, so they begin, too
                if read is not None and waiting.any():  # without these options
                    self._begin(None, None, None, waiting, self.standing._replace(waits=self.standing.waits & mask))
                chosen = mask | waiting & self.standing.waits
                seeds = seeds and [seed if one else None for seed, one in zip(seeds, mask, strict=True)]
            standing = self._begun(ids)._replace(in_flight=self._all_ids if ids is None else ids)
            self._begin(ids, seeds, read, chosen, standing, mask is not None)
            result, shown = self._shown(True, None if mask is None else chosen)
        return self._hand_out(result, shown)

    def _read_reset(self, env_id: Any, options: Any) -> tuple[np.ndarray | None, Any]:
        """The envs to reset, in order, None for all; and the options, as the program has them."""
        ids: np.ndarray | None = None if env_id is None else self._checking_reader().read_envs(env_id)
        count = self.num_envs if ids is None else len(ids)
        if isinstance(options, list):
            if len(options) != count:
                raise ResetOptionError(f"options: expected {count} dicts, one per env, got {len(options)}")
            if any(one != options[0] for one in options):
                raise ResetOptionError(
                    "options: expected the same dict for all envs, as one program resets them: call reset(env_id=...) "
                    "for each group of envs that has options of its own"
                )
            options = options[0] if options else None
        return ids, self.program.read_options(options)

    def _refuse_in_flight(self, ids: np.ndarray | None) -> None:
        """All that is in flight is received at once, so that nothing else can be reset or restored meanwhile."""
        in_flight = self.standing.in_flight
        if in_flight is None:
            return
        for one in self._all_ids if ids is None else ids:
            if one in in_flight:
                raise InFlightError(
                    f"env {one} is in flight: recv() its result before you reset it, or reset() all envs"
                )
        raise InFlightError("cannot reset or restore some envs while others are in flight: recv() their results first")

    def _begin(
        self,
        ids: np.ndarray | None,
        seeds: Sequence[int | None] | None,
        options: Any,
        chosen: np.ndarray,
        standing: PoolStanding,
        shows_all: bool = False,
    ) -> None:
        """Begins episodes of the chosen envs, whereupon this stands. ``seeds`` are those of ``ids``, or of all.

        ``shows_all``: whether the others are shown, too.
        """
        has_seed = numbers = None
        if seeds is not None:
            has_seed, numbers = np.zeros(self.num_envs, bool), standing.seeds.copy()
            for env_id, seed in zip(self._all_ids if ids is None else ids, seeds, strict=True):
                if seed is not None:
                    has_seed[env_id], numbers[env_id] = True, seed
            standing = standing._replace(seeds=numbers)
        which = None if chosen.all() else chosen
        self._move(standing, self.program.reset, which, numbers, has_seed, options, shows_all)

    # ---- receiving ---------------------------------------------------------------------------

    def recv(self, timeout: float | None = None, at_least: int | None = None) -> Any:
        """What was sent. It may still be on its way to the arrays: nothing here waits, so nothing can take too long."""
        with self._free():
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
            if self.standing.in_flight is None:
                raise NothingInFlightError(
                    "recv() with nothing in flight would wait forever: send() actions or async_reset() first"
                )
            result, shown = self._shown(False)
        return self._hand_out(result, shown)

    def _shown(self, as_reset: bool, told: np.ndarray | None = None) -> tuple[Any, PoolStanding]:
        """The rows in flight, and what stands; the infos of those in ``told`` alone."""
        now = self.standing
        ids = now.in_flight
        assert ids is not None
        rows = None if ids is self._all_ids or np.array_equal(ids, self._all_ids) else ids
        return self._results.of(self.program.shown(told), rows, as_reset), now

    def _hand_out(self, result: R, shown: PoolStanding) -> R:
        """The result, which is not in flight any more. Between the two no signal handler can raise.

        ``shown`` is what stood when it was made. Another thread may have come in since: then its call is what stands.
        """
        if self.standing is shown:
            count = 0 if shown.in_flight is None else len(shown.in_flight)
            self._stood = PoolStanding(shown.seeds, shown.waits, None, shown.steps + count, shown.batches + 1)
        if self._results.is_plain:
            self._raise_failures(result)
        return result

    def _raise_failures(self, result: Any) -> None:
        """Raises what every other pool would: rollouts look at all rows anyway."""
        info = result[-1]
        if "abnormal" not in info:
            return
        failed = self.program.failed(info["env_id"])
        if not len(failed):  # envs say so of themselves
            return
        self.program.notes()
        self.program.forget_failed()  # as it is told now
        raise EnvError.gather([_failure(int(one)) for one in failed], result)

    @property
    def in_flight_count(self) -> int:
        return len(self.in_flight_ids)

    @property
    def in_flight_ids(self) -> list[int]:
        in_flight = None if self._closed else self.standing.in_flight
        return [] if in_flight is None else sorted(in_flight.tolist())

    @property
    def rows_received(self) -> int:
        return self.standing.steps

    @property
    def moves_unseen(self) -> bool:
        """Whether envs may move without a call of the pool."""
        return getattr(self.program, "is_in_graph", False)

    def count_elsewhere(self, steps: int, episodes: int, failures: int) -> None:
        """Nothing is counted elsewhere."""

    # ---- states ------------------------------------------------------------------------------

    def refuse_unready(self, what: str, ids: np.ndarray | None) -> None:
        """Raises if one of these envs cannot be saved or restored now."""
        asked = self._all_ids if ids is None else ids
        in_flight = self.standing.in_flight
        if in_flight is not None:
            for one in asked:
                if one in in_flight:
                    raise InFlightError(f"env {one} is in flight, and its state is in use: recv() its result first")
            if what == "restore":
                self._refuse_in_flight(ids)
        waiting = asked[self.standing.waits[asked]]
        if what == "save" and len(waiting):
            raise NeedsResetError(
                f"env {waiting[0]} was never reset, so that there is nothing to save: its seed is its state. "
                "reset() it first"
            )

    def restore(self, read: Callable[..., Any], given: Any, env_ids: Any) -> Any:
        """Gives envs what was read from saved states, and returns what they show.

        ``read`` gives it, whose that is, and what seeds all envs have then; None: those that they have.
        """
        with self._free():
            rows, ids, seeds = read(given, env_ids)
            standing = self._begun(ids)
            standing = standing if seeds is None else standing._replace(seeds=seeds)
            self._move(standing, self.program.load, *rows, self._all_ids if ids is None else ids)
            result, shown = self._shown(True)
        return self._hand_out(result, shown)

    def read_envs(self, env_ids: Any) -> np.ndarray | None:
        ids: np.ndarray | None = None if env_ids is None else self._checking_reader().read_envs(env_ids)
        return ids

    @property
    def known_seeds(self) -> np.ndarray:
        """The last seed of every env."""
        return self.standing.seeds

    @property
    def seconds(self) -> float:
        """How long the run has taken, in earlier pools too."""
        return time.monotonic() - self._began_at

    def memory(self) -> tuple[Any, PoolStanding, float]:
        """All that decides how the pool goes on, and for how long it has."""
        return self.program.whole(), self.standing, self.seconds

    def set_memory(self, now: Any, standing: PoolStanding, seconds: float) -> None:
        self.program.set_now(now)
        self._stood = standing
        self._began_at = time.monotonic() - seconds

    # ---- what views ask ----------------------------------------------------------------------

    def seeds(self, env_ids: Sequence[int]) -> list[tuple[int, bool]]:
        now = self.standing
        return [(int(now.seeds[one]), bool(now.waits[one])) for one in env_ids]

    def random_states(self, env_ids: Sequence[int]) -> Any:
        raise UnsupportedError(f"np_random: {self.refusals['np_random']}")

    def render(self, env_ids: Sequence[int]) -> tuple[Any, ...]:
        if "render" in self.refusals:
            raise UnsupportedError(f"render: {self.refusals['render']}")
        if self.render_mode is None:
            raise UnsupportedError(f"render: {self.source.id} was made without render_mode='rgb_array'")
        pictures: tuple[Any, ...] = self.program.render(self._draw, np.asarray(env_ids, np.int32))
        return pictures

    def figures(self) -> dict[str, Any]:
        """For ``stats``. Waits for the device, and raises what ``check`` raises."""
        return self.use(self._figures)

    def _figures(self) -> dict[str, Any]:
        failures = self._check()
        now = self.standing
        return {
            "batches": now.batches,
            "steps": now.steps,
            "episodes": self.program.episodes(),
            "failures": failures,
            "restarts": 0,
            "steps_per_second": now.steps / self.seconds,
            "in_flight": self.in_flight_count,
            "memory_bytes": self.program.size(),
        }

    def check(self) -> None:
        """Raises if an env had a bad action on the device, or failed, since this was asked. Waits for the device."""
        self.use(self._check)

    def _check(self) -> int:
        """Raises what ``check`` raises; else returns how many steps and resets have ever failed."""
        notes: tuple[int, int | None, int | None] = self.program.notes()
        failures, bad, failed = notes
        if bad is not None:
            misused = ActionError(
                f"env {bad} was given an action outside {self.source.action_space}, in an array on the device, which "
                "nobody looked at then. It acted with the nearest one in the space, or with NaN. Check what your "
                "program sends, or send numpy's arrays, which are checked at once"
            )
            self.program.forget_bad()
            raise misused
        if failed is not None:
            error = _failure(failed)
            self.program.forget_failed()  # of a GPU: worlds do not fail
            raise error
        return failures

    def functional(self) -> Any:
        """The rules of this pool as pure functions."""
        if self._settings.autoreset == "disabled":
            raise UnsupportedError(
                "functional: with autoreset='disabled' nobody would reset an env whose episode is over: make the pool "
                "with autoreset='next_step' or 'same_step'"
            )
        return self.program.functional(self._settings.seed)

    # ---- ending ------------------------------------------------------------------------------

    def close(self) -> None:
        """Lets go of the arrays, then raises what ``check`` raises, if nobody was told of it."""
        if self._closed:
            return
        if self.forked:
            self._closed = True
            return
        with self._free():
            with contextlib.suppress(ResourceError):  # a GPU that is broken is let go of, and then says so
                self.program.check_moment()
            self._closed = True
            try:
                if not self.program.is_lost():
                    self._check()
            finally:
                del self.program, self._results, self._planned
                self._reader = None


def _failure(env_id: int) -> EnvError:
    """The error of an env on a GPU."""
    return EnvError(
        f"env {env_id} failed: its code threw an exception that a GPU cannot show. info['abnormal'] marks the row, and "
        "the env has to be reset, which the next step does unless autoreset is disabled. backend='thread' shows the "
        "exception",
        env_id=env_id,
    )
