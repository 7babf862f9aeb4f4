"""One thread that makes pools, one after the other, and keeps each of them busy."""

from __future__ import annotations

import contextlib
import gc
import random
import threading
import time
import traceback
from collections import Counter, deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import stepmill
from stepmill.errors import EnvError, NeedsResetError, RecvTimeoutError, StepmillError
from support.soak.env import LATE, Order, SoakEnv
from support.soak.ledger import Counts, Harm, Ledger, Violation
from support.soak.shapes import Shape

_MAX_RESTARTS = 3
_HELD = 4  # batches kept for a while, to see that they stay as they were
_SAVED = 64  # states kept for a while, to be restored
_CALL = 2000  # bytes that a call carries at most
_MAIL = 16 * _CALL  # that calls of growing size may take, for each env

# Of all actions that reach an env; the bad ones come by the clock instead.
_ORDERS = (Order.STEP, Order.END, Order.END_BADLY, Order.BULK, Order.LINGER)
_WEIGHTS = (0.97, 0.015, 0.003, 0.01, 0.002)
_FAULTS = {
    Order.RAISE: 4,
    Order.RAISE_ODDLY: 2,
    Order.SYS_EXIT: 1,
    Order.EXIT: 2,
    Order.SEGFAULT: 2,
    Order.ABORT: 1,
    Order.STALL: 2,
    Order.SPIN: 2,
}


class Lane(threading.Thread):
    """Goes round and round through its shapes, ``seconds`` for a pool of each, until told to stop."""

    def __init__(
        self, name: str, shapes: Sequence[Shape], seconds: float, fault_rate: float, rng: random.Random, folder: Path
    ) -> None:
        super().__init__(name=name, daemon=True)
        self._shapes = shapes
        self._seconds = seconds
        self._fault_rate = fault_rate
        self._rng = rng
        self._folder = folder
        self._ending = threading.Event()
        self._next_fault = 0.0
        self._next_fatal_call = 0.0
        self._pool: Any = None
        self._held: deque[tuple[np.ndarray, np.ndarray]] = deque(maxlen=_HELD)
        self._saved: deque[tuple[Any, Any]] = deque(maxlen=_SAVED)  # states, and where the envs were then
        self.alive_at = time.monotonic()
        self.doing = "starting"
        self.failure: str | None = None
        self.pools = 0
        self.events: Counter[str] = Counter()
        self.orders: Counter[Order] = Counter()
        self._restarts = 0
        self._restarts_now = 0  # of the pool there is now
        self.arena = 0  # bytes of the pool there is now
        self._done = Counts()
        # Of the pool there is now; chaos reads these.
        self.shape: Shape = shapes[0]
        self.harm: Harm | None = None
        self.ledger: Ledger | None = None

    @property
    def counts(self) -> Counts:
        """Of all its pools."""
        ledger = self.ledger
        return self._done if ledger is None else self._done + ledger.counts

    @property
    def restarts(self) -> int:
        """Of worker processes, in all its pools."""
        return self._restarts + self._restarts_now

    @property
    def rounds(self) -> int:
        """How many times it has gone through all of its shapes."""
        return self.pools // len(self._shapes)

    def stop(self) -> None:
        self._ending.set()

    def run(self) -> None:
        try:
            while not self._ending.is_set():
                self._live(self._shapes[self.pools % len(self._shapes)])
        except BaseException:
            self.failure = traceback.format_exc()
            with contextlib.suppress(Exception):  # the first failure is the one to tell
                self._pool.close()
        finally:
            self._pool = None
            self._held.clear()
            self.doing = "ended"

    # ---- one pool ------------------------------------------------------------------------------------

    def _live(self, shape: Shape) -> None:
        flaw = self._folder / f"{self.name}-{self.pools}"
        harm = Harm(flaw)
        ledger = Ledger(shape.num_envs, shape.autoreset, shape.on_error, _MAX_RESTARTS, harm)
        self.shape, self.harm = shape, harm
        self._pool = self._make(shape, flaw, harm)
        flaw.touch()  # from now on constructors may fail
        self.ledger = ledger
        until = time.monotonic() + self._seconds
        checked = 0.0
        while not self._ending.is_set() and (now := time.monotonic()) < until:
            self._round(shape, ledger)
            if now > checked:
                self._check_arena(shape)
                checked = now + 0.2
        self._end(ledger)
        self._saved.clear()
        self.events["constructors that raise"] += harm.failed_builds
        flaw.unlink()
        self.pools += 1

    def _make(self, shape: Shape, flaw: Path, harm: Harm) -> Any:
        while True:
            before = harm.wide
            self._mark("make")
            try:
                return stepmill.make(
                    SoakEnv,
                    num_envs=shape.num_envs,
                    num_workers=shape.num_workers,
                    batch_size=shape.batch_size,
                    backend="process",
                    autoreset=shape.autoreset,
                    on_error=shape.on_error,
                    max_restarts=_MAX_RESTARTS,
                    step_timeout=shape.step_timeout,
                    reset_timeout=shape.step_timeout,
                    width=shape.width,
                    flaw=str(flaw),
                )
            except StepmillError:
                if harm.wide == before:
                    raise
                self.events["make() without a server: repeated"] += 1  # the server died meanwhile: once more

    def _round(self, shape: Shape, ledger: Ledger) -> None:
        roll = self._rng.random()
        if roll < 0.01:
            self._call(shape, ledger)
        elif roll < 0.02:
            self._reset(ledger, self._some(ledger.idle if shape.is_async or not ledger.in_flight else []))
        elif roll < 0.021:
            self._reset_all(ledger)
        elif roll < 0.03:
            self._check_held()
        elif roll < 0.06 and (shape.is_async or not ledger.in_flight):
            self._save_and_restore(ledger)
        if shape.autoreset == "disabled":
            self._reset_ended(shape, ledger)
        refused = set(ledger.unreset) if shape.autoreset == "disabled" else ()
        sendable = [env_id for env_id in ledger.idle if env_id not in refused]
        if sendable and not shape.is_async and len(sendable) == shape.num_envs and self._rng.random() < 0.3:
            actions = ledger.actions(sendable, self._orders(shape, ledger, sendable))
            ledger.sent(sendable, actions)
            self._receive(ledger, "step", lambda: self._pool.step(actions))
            return
        for part in self._parts(sendable):
            actions = ledger.actions(part, self._orders(shape, ledger, part))
            self._mark("send")
            self._pool.send(actions, np.array(part))
            ledger.sent(part, actions)
        if ledger.in_flight:
            self._recv(ledger)

    def _end(self, ledger: Ledger) -> None:
        """Closes the pool in one of the ways there are; then everything must be accounted for."""
        how = self._rng.choice(["drained", "in flight", "collected"])
        if how == "drained":
            while ledger.in_flight:
                self._recv(ledger)
        else:
            idle = [] if self.shape.autoreset == "disabled" else ledger.idle
            if idle:
                actions = ledger.actions(idle, [Order.STEP] * len(idle))
                self._pool.send(actions, np.array(idle))
                ledger.sent(idle, actions)
            ledger.drop()
        self._check_held()
        self._restarts += self._pool.stats()["restarts"]
        self._restarts_now = 0
        self._mark(f"close, {how}")
        if how != "collected":
            self._pool.close()
        self._pool = None
        gc.collect()
        self.events[f"pools closed, {how}"] += 1
        ledger.settle()
        self.orders += ledger.orders
        self.ledger = None
        self._done += ledger.counts

    # ---- sending -------------------------------------------------------------------------------------

    def _some(self, ids: Sequence[int]) -> list[int]:
        return self._rng.sample(ids, self._rng.randint(1, len(ids))) if ids else []

    def _parts(self, ids: list[int]) -> list[list[int]]:
        """Mostly all at once; else some of them, or in two goes, in any order."""
        roll = self._rng.random()
        if not ids or roll < 0.8:
            return [ids] if ids else []
        ids = self._rng.sample(ids, len(ids))
        cut = self._rng.randint(0, len(ids) - 1)
        return [part for part in ((ids[cut:],) if roll < 0.9 else (ids[:cut], ids[cut:])) if part]

    def _orders(self, shape: Shape, ledger: Ledger, ids: Sequence[int]) -> list[Order]:
        orders = self._rng.choices(_ORDERS, _WEIGHTS, k=len(ids))
        if (now := time.monotonic()) < self._next_fault:
            return orders
        self._next_fault = now + self._rng.expovariate(self._fault_rate)
        live = [at for at, env_id in enumerate(ids) if ledger.is_live(env_id)]
        if live:
            orders[self._rng.choice(live)] = self._fault(shape)
        return orders

    def _fault(self, shape: Shape) -> Order:
        possible = {one: weight for one, weight in _FAULTS.items() if shape.step_timeout or one not in LATE}
        return self._rng.choices(list(possible), list(possible.values()))[0]

    # ---- receiving -----------------------------------------------------------------------------------

    def _recv(self, ledger: Ledger) -> None:
        while self._rng.random() < 0.1:
            try:
                self._receive(ledger, "recv", lambda: self._pool.recv(timeout=self._rng.random() * 0.002))
                return
            except RecvTimeoutError:
                self.events["recv(timeout) without a batch: repeated"] += 1
        self._receive(ledger, "recv", self._pool.recv)

    def _receive(self, ledger: Ledger, what: str, call: Callable[[], Any]) -> None:
        error = None
        self._mark(what)
        try:
            result = call()
        except EnvError as raised:
            if raised.batch is None:  # of a call, in which nothing was sent
                raise
            error, result = raised, raised.batch
        self._mark("check")
        ledger.received(result, error)
        error = None  # it holds this frame, which would hold it, and with it the batch
        if self._rng.random() < 0.02:
            self._held.append((result[0], result[0].copy()))

    def _check_held(self) -> None:
        for array, copy in self._held:
            if not np.array_equal(array, copy):
                raise Violation("a batch that was handed out has changed")

    # ---- resets and calls ----------------------------------------------------------------------------

    def _reset(self, ledger: Ledger, ids: list[int]) -> None:
        if not ids:
            return
        serial = ledger.next_reset()
        ledger.sent_reset(ids, serial)
        self._receive(ledger, "reset", lambda: self._pool.reset(ids, options={"serial": serial}))
        self.events["resets of chosen envs"] += 1

    def _reset_all(self, ledger: Ledger) -> None:
        """Whatever is in flight becomes void."""
        ledger.drop()
        serial = ledger.next_reset()
        ledger.sent_reset(range(self.shape.num_envs), serial)
        self._receive(ledger, "reset", lambda: self._pool.reset(options={"serial": serial}))
        self.events["resets of all envs"] += 1

    def _reset_ended(self, shape: Shape, ledger: Ledger) -> None:
        """With autoreset="disabled"."""
        while (ended := ledger.unreset) and (shape.is_async or not ledger.in_flight):
            if self._rng.random() < 0.05:
                try:
                    self._pool.send(np.zeros((1, 2), np.int64), np.array(ended[:1]))
                except NeedsResetError:
                    pass
                else:
                    raise Violation(f"env {ended[0]} took an action, and its episode was over")
            self._reset(ledger, ended)

    def _call(self, shape: Shape, ledger: Ledger) -> None:
        """Asks some envs, in flight or not. What they answer is theirs, or the soak has done something to them."""
        ids = self._some(range(shape.num_envs))
        kind = self._rng.choice(["echo", "get_attr", "render", "fatal"])
        token = self._rng.randbytes(self._rng.randint(0, _CALL))
        self._mark(f"call {kind}")
        try:
            if kind == "echo":
                good = self._pool.call("echo", token, env_ids=ids) == (token,) * len(ids)
            elif kind == "get_attr":
                good = self._pool.get_attr("env_id", ids) == tuple(ids)
            elif kind == "render":
                good = [int(frame[0, 0, 0]) for frame in self._pool.render(ids)] == ids
            else:
                good = self._call_fatally(shape, ledger, ids[0])
        except EnvError as error:
            self._failed_call(ledger, f"{kind} of envs {ids}", error)
            return
        if not good:
            raise Violation(f"{kind} of envs {ids}: a wrong answer")
        self.events["calls answered"] += 1

    def _save_and_restore(self, ledger: Ledger) -> None:
        """Saves some envs, and gives some the states that were saved now or some time ago, perhaps of others."""
        ids = self._some([one for one in ledger.idle if ledger.is_live(one)])
        if not ids:
            return
        self._mark("save")
        try:
            states = self._pool.save(ids)
            self._saved.extend((state, ledger.snapshot(one)) for one, state in zip(ids, states, strict=True))
        except EnvError as error:
            self._failed_call(ledger, f"save of envs {ids}", error)
            return
        chosen = self._rng.choices(self._saved, k=len(ids))
        ledger.sent_restore(ids, [snapshot for _, snapshot in chosen])
        try:
            self._receive(ledger, "restore", lambda: self._pool.restore([state for state, _ in chosen], ids))
        except EnvError as error:  # one that came without a batch
            ledger.refused_restore(ids)
            self._failed_call(ledger, f"restore of envs {ids}", error)
            return
        self.events["restores"] += 1

    def _failed_call(self, ledger: Ledger, what: str, error: EnvError) -> None:
        ledger.check_named(error)
        if not self.harm or not self.harm.count:
            raise Violation(f"{what} failed, and nothing was done to them") from error
        self.events["calls that failed"] += 1

    def _call_fatally(self, shape: Shape, ledger: Ledger, env_id: int) -> bool:
        """A call in which the env ends or stalls; True where this would be no fair test now."""
        if time.monotonic() < self._next_fatal_call or not ledger.is_live(env_id) or not self.harm:
            return True
        self._next_fatal_call = time.monotonic() + self._rng.expovariate(self._fault_rate / 8)
        order = self._rng.choice([Order.EXIT, Order.STALL] if shape.step_timeout else [Order.EXIT])
        self.harm.note([ledger.pid_of(env_id)])
        self.events[f"calls that {'wait for ever' if order is Order.STALL else 'call os._exit'}"] += 1
        self._pool.call("obey", int(order), env_ids=[env_id])
        return False

    # ---- the pool's memory ---------------------------------------------------------------------------

    def _check_arena(self, shape: Shape) -> None:
        """The arena holds tables and the batches that can exist at once, however many have been handed out."""
        stats = self._pool.stats()
        self.arena, self._restarts_now = stats["memory_bytes"], stats["restarts"]
        observation = shape.width * 8
        row = observation * (2 if shape.autoreset == "same_step" else 1) + 256
        open_batches = -(-shape.num_envs // shape.batch_size) + 4
        batches = (_HELD + open_batches) * shape.batch_size + (_HELD + 3) * shape.num_envs  # the latter for resets
        tables = shape.num_envs * (2 * observation + 4096 + _MAIL)
        if self.arena > batches * row + tables + 2**20:
            raise Violation(f"the arena has grown to {self.arena:,} bytes")

    def _mark(self, doing: str) -> None:
        self.doing = doing
        self.alive_at = time.monotonic()
