"""The actors of a pool: how they are started, what is on its way to them, and how their answers come."""

from __future__ import annotations

import itertools
import os
import re
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import Any, Literal

from stepmill import errors
from stepmill.hosts.process.payload import pack_sources
from stepmill.hosts.process.remote_error import rebuild
from stepmill.hosts.process.remote_error import summary as summary_of
from stepmill.hosts.ray.cluster import ActorPlan
from stepmill.hosts.ray.env_actor import VERSION, ActorReport, EnvActor, RolloutOrder, task_for, workers_of
from stepmill.hosts.rows import RowFinisher
from stepmill.hosts.shares import Share
from stepmill.settings import Settings
from stepmill.sources.models.fields import ModelChange
from stepmill.sources.source import NativeSource, PythonSource

# Signs of life are asked for on a thread of their own, so that an actor gives them while its envs step.
_HEALTH = "health"
# How long a question waits before it looks whether the actor is late.
_LOOK_S = 0.2
# Ray colours its texts, also where nobody has a terminal.
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
# How long `stats` waits for actors that are busy.
_STATS_S = 2.0


@dataclass(frozen=True)
class Loss:
    """Takes the place of an answer: the actor is gone, and why.

    ``kind``: it died, was late, or could not be started (``Fault::Kind``).
    """

    why: str
    kind: Literal["died", "late", "unplaced"] = "died"


@dataclass
class _Actor:
    """One life of the actor of a group. Answers of an earlier life are never looked at: its references are gone."""

    handle: Any
    placed: Any  # a reference to a sign that it has a place, given before it builds anything
    started: Any  # a reference: its `describe`
    since: float  # when the group had to have another one
    model_changes: dict[int, ModelChange]
    trouble: str = ""  # what became of the last one that was to be started in this place before
    lost_starts: int = 0  # how many of those there were
    is_ready: bool = False
    requests: deque[Any] = field(default_factory=deque)  # references to answers
    # What waits until it is ready: one that is lost before costs nothing then, and the next one gets it.
    unsent: deque[tuple[Any, RolloutOrder]] = field(default_factory=deque)
    called_off: int | None = None  # the last rollout of which nothing more is wanted
    ping: Any = None  # a reference to a sign of life that was asked for
    looked: float = 0.0  # when somebody last waited for it
    silent: float = 0.0  # how long it has been waited for without one

    def sign_of_life(self) -> Any:
        """A reference to one."""
        return self.handle.ping.options(concurrency_group=_HEALTH).remote()

    def is_heard(self) -> None:
        self.ping, self.silent = None, 0.0


class _Bell:
    """Rings a descriptor from any thread, until it is muted."""

    def __init__(self, event: int) -> None:
        self._lock = threading.Lock()
        self._event = os.dup(event)

    def __call__(self, _: object) -> None:
        with self._lock:
            if self._event >= 0:
                os.eventfd_write(self._event, 1)

    def mute(self) -> None:
        with self._lock:
            event, self._event = self._event, -1
        if event >= 0:
            os.close(event)


class Actors:
    """One actor per group of envs. Ray restarts and retries nothing: an action must not be done twice."""

    def __init__(
        self,
        ray: ModuleType,
        source: PythonSource | NativeSource,
        settings: Settings,
        shares: Sequence[Share],
        plan: ActorPlan,
        finisher: type[RowFinisher],
    ) -> None:
        self._ray = ray
        self._membership = _membership(ray)
        self._settings = settings
        self._shares = shares
        self._plan = plan
        self._finisher = finisher
        counts = [workers_of(settings, share.last - share.first, plan.workers) for share in shares]
        first_workers = itertools.accumulate(counts[:-1], initial=0)
        self._payloads = pack_sources(
            source.part(share.first, share.last, worker) for share, worker in zip(shares, first_workers, strict=True)
        )
        self._bell: _Bell | None = None
        try:
            self._class = ray.remote(concurrency_groups={_HEALTH: 1})(EnvActor).options(
                **plan.options(),
                scheduling_strategy="SPREAD",
                runtime_env=settings.ray.runtime_env,
                max_restarts=0,
                max_task_retries=0,
            )
            self._actors = [self._start(group, {}) for group in range(len(shares))]
        except (ValueError, TypeError) as error:  # what only Ray knows, such as how finely a resource can be divided
            raise errors.ConfigError(f"resources or runtime_env: Ray refuses them: {errors.summary(error)}") from error
        self.restarts = 0

    def __len__(self) -> int:
        return len(self._shares)

    def check_cluster(self) -> None:
        """Raises if this process has left the cluster. Ray would start another one at the next call, unasked."""
        if not self._is_in_cluster():
            raise errors.UsageError(
                "this process has left the Ray cluster that the envs were on (ray.shutdown()), which has ended them: "
                "close() the pool and make it again"
            )

    def _is_in_cluster(self) -> bool:
        ray = self._ray
        return bool(ray.is_initialized() and _membership(ray) == self._membership)

    # ---- starting ----------------------------------------------------------------------------

    def _start(self, group: int, model_changes: dict[int, ModelChange]) -> _Actor:
        share = self._shares[group]
        task = task_for(self._payloads[group], self._settings, share, self._plan.workers, model_changes, self._finisher)
        handle = self._class.remote(VERSION, task)
        # On the thread that then builds the envs: there may be no later sign, if they keep the interpreter's lock.
        placed = handle.ping.remote()
        return _Actor(handle, placed, self._heard(handle.describe.remote()), time.monotonic(), model_changes)

    def _start_again(self, group: int, trouble: str) -> None:
        """In the place of one that was lost before it had an action, on a node that is dying perhaps."""
        last = self._actors[group]
        self._ray.kill(last.handle, no_restart=True)
        self._actors[group] = replace(
            self._start(group, last.model_changes),
            since=last.since,
            trouble=trouble,
            lost_starts=last.lost_starts + 1,
            unsent=last.unsent,
            called_off=last.called_off,
        )

    def describe_all(self) -> list[ActorReport]:
        """What the envs of each actor are like, as soon as all have built theirs. Raises what building them raised."""
        end = time.monotonic() + self._settings.start_timeout
        groups = {actor.started: group for group, actor in enumerate(self._actors)}
        told: dict[int, ActorReport] = {}
        waited = list(groups)
        while waited:  # an error is raised at once, however long the others take
            ready, waited = self._ray.wait(waited, num_returns=1, timeout=max(0.0, end - time.monotonic()))
            if not ready:
                raise self._never_started(waited)
            group = groups[ready[0]]
            told[group] = self._describe(group)
        for actor in self._actors:
            actor.is_ready = True
        return [told[group] for group in range(len(self))]

    def _describe(self, group: int) -> ActorReport:
        try:
            told: ActorReport = self._ray.get(self._actors[group].started)
        except self._ray.exceptions.RayError as error:
            first, last = self._shares[group].first, self._shares[group].last - 1
            which = f"env {first}" if first == last else f"one of envs {first} to {last}"
            raise errors.WorkerDiedError(f"{which} could not be built: {_why(error)}", phase="make") from error
        if told.failure is not None:
            raise _explained(rebuild(told.failure))
        return told

    def _never_started(self, waited: Sequence[Any]) -> errors.StepmillError:
        """Tells actors that have no place from those that have one, and whose envs take too long to build."""
        late = [actor for actor in self._actors if actor.started in waited]
        placed = self._count_placed(late)
        if placed < len(waited):
            return errors.ResourceError(f"{len(waited) - placed} of {len(self)} actors were {self._not_ready()}")
        return errors.EnvTimeoutError(
            f"{placed} of {len(self)} actors have a place in the cluster, but had not built their envs within "
            f"{self._limit}: make it larger, or look at what their constructors do",
            phase="make",
        )

    def _count_placed(self, late: Sequence[_Actor]) -> int:
        return len(self._arrived([actor.placed for actor in late], _STATS_S))

    @property
    def _limit(self) -> str:
        return f"start_timeout={self._settings.start_timeout:g} s"

    def _not_ready(self) -> str:
        needs = self._plan.shown_needs
        also = ""
        if self._settings.ray.runtime_env:
            also = ". Or its runtime_env is still being installed, and needs a larger start_timeout"
        return (
            f"not ready within {self._limit}. Each needs {needs} of one node; all nodes together have free: "
            f"{self._free()}{also}"
        )

    def _free(self) -> str:
        free = {name: amount for name, amount in self._ray.available_resources().items() if ":" not in name}
        amounts = (
            f"{amount / 2**30:.1f} GiB {name}" if "memory" in name else f"{amount:g} {name}"
            for name, amount in sorted(free.items())
        )
        return ", ".join(amounts) or "nothing"

    # ---- requests ----------------------------------------------------------------------------

    def under_way(self, group: int) -> int:
        """How many requests its actor has not answered yet."""
        actor = self._actors[group]
        return len(actor.requests) + len(actor.unsent)

    def is_ready(self, group: int) -> bool:
        """Whether it has built its envs."""
        return self._actors[group].is_ready

    def ring(self, event: int | None) -> None:
        """From now on, what comes rings this descriptor; None: no longer."""
        if self._bell is not None:
            self._bell.mute()
        self._bell = None if event is None else _Bell(event)
        for actor in self._actors:
            for reference in (*actor.requests, *(() if actor.is_ready else (actor.started,))):
                self._heard(reference)

    def _heard(self, reference: Any) -> Any:
        """The same reference: when its value comes, that is told to whoever waits in an event loop."""
        if self._bell is not None:
            reference.future().add_done_callback(self._bell)
        return reference

    def request(self, group: int, order: bytes) -> None:
        """Sends an order, to be answered with another parcel: bytes, or an array of them."""
        actor = self._actors[group]
        actor.requests.append(self._heard(actor.handle.exchange.remote(order)))

    def put(self, value: bytes) -> Any:
        """A reference to a value that many actors need."""
        self.check_cluster()
        return self._ray.put(value)

    def send_out(self, group: int, policy: Any, order: RolloutOrder) -> None:
        """Sends a policy, by its reference, to be answered with a ``RolloutAnswer``, as soon as the actor is ready."""
        actor = self._actors[group]
        actor.unsent.append((policy, order))
        if actor.is_ready:
            self._send_unsent(actor)

    def _send_unsent(self, actor: _Actor) -> None:
        while actor.unsent:
            actor.requests.append(actor.handle.rollout.remote(*actor.unsent[0]))
            actor.unsent.popleft()

    def call_off(self, group: int, rollout: int) -> None:
        """Ends what was sent out for a rollout. It is answered sooner then."""
        actor = self._actors[group]
        actor.called_off = rollout
        self._call_off(actor, rollout)

    def _call_off(self, actor: _Actor, rollout: int) -> None:
        actor.handle.call_off.options(concurrency_group=_HEALTH).remote(rollout)

    def answers(self, seconds: float) -> Iterator[tuple[int, Any]]:
        """What has come within that time, or is there at once: what an actor answered, or its ``Loss``.

        An actor that is lost has to be replaced. ``check_cluster`` comes first.
        """
        busy = [group for group, actor in enumerate(self._actors) if actor.requests or not actor.is_ready]
        if not busy:
            return
        waited = {}
        for group in busy:
            actor = self._actors[group]
            waited[actor.requests[0] if actor.is_ready else actor.started] = group
            if actor.ping is not None:
                waited[actor.ping] = group
        ready, _ = self._ray.wait(list(waited), num_returns=1, timeout=seconds)
        if ready and len(waited) > 1:
            ready = self._arrived(list(waited), 0)
        for reference in ready:
            group = waited[reference]
            answer = self._read(group, reference)
            if answer is not None:
                yield group, answer
        for group in busy:
            lost = self._judge(self._actors[group])
            if lost is not None:
                yield group, lost

    def _read(self, group: int, reference: Any) -> Any:
        """What has come; None for a sign of life."""
        actor = self._actors[group]
        if reference not in (actor.started, actor.ping, *itertools.islice(actor.requests, 1)):
            return None  # it was lost a moment ago, by another sign
        try:
            value = self._ray.get(reference)
        except self._ray.exceptions.RayError as error:
            if actor.is_ready:
                return Loss(_why(error))
            self._start_again(group, _why(error))
            return None
        actor.is_heard()
        if reference == actor.started:
            actor.is_ready = value.failure is None
            if value.failure is not None:
                return Loss(f"its env could not be built again: {summary_of(value.failure)}")
            try:
                if actor.called_off is not None:  # perhaps it was one before it, now lost, that was told
                    self._call_off(actor, actor.called_off)
                self._send_unsent(actor)
            except Exception as error:  # such as an object store that is full: nobody will answer
                return Loss(f"it could not be sent to its Ray actor: {errors.summary(error)}")
        elif actor.requests and reference == actor.requests[0]:
            actor.requests.popleft()
            return value
        return None

    def _judge(self, actor: _Actor) -> Loss | None:
        """Whether to give an actor up that does not answer."""
        if actor.is_ready:
            return self._judge_silence(actor) if actor.requests else None
        if time.monotonic() - actor.since <= self._settings.start_timeout:
            return None
        if self._count_placed([actor]):
            return Loss(
                f"another actor has a place for it, but had not built its envs within {self._limit}", "unplaced"
            )
        trouble = ""
        if actor.lost_starts:
            trouble = f". {actor.lost_starts} were lost before they had built their envs, the last one: {actor.trouble}"
        return Loss(f"no actor could be started for it: it was {self._not_ready()}{trouble}", "unplaced")

    def _judge_silence(self, actor: _Actor) -> Loss | None:
        """Whether to give an actor up that is to answer. Asks it for a sign of life, now and then."""
        now = time.monotonic()
        limit = self._settings.ray.node_timeout
        # Looks count for little each: if this process itself was stopped for an hour, that says nothing.
        actor.silent += min(now - actor.looked, limit / 8, 1.0)
        actor.looked = now
        if actor.ping is None and actor.silent > min(limit / 4, 1.0):
            actor.ping = actor.sign_of_life()
        if actor.silent > limit:
            return Loss(
                f"the Ray actor that ran it gave no sign of life for node_timeout={limit:g} s: its machine may be gone",
                "late",
            )
        return None

    def replace(self, group: int, model_changes: dict[int, ModelChange]) -> None:
        """Ends an actor and starts another one in its place, wherever the cluster has room."""
        self.check_cluster()
        self._ray.kill(self._actors[group].handle, no_restart=True)
        self._actors[group] = self._start(group, model_changes)
        self.restarts += 1

    # ---- questions ---------------------------------------------------------------------------

    def wait_until_ready(self, group: int) -> Loss | None:
        """Waits for an actor that builds its envs."""
        self.check_cluster()
        while not (actor := self._actors[group]).is_ready:
            ready, _ = self._ray.wait([actor.started], timeout=_LOOK_S)
            lost = self._read(group, actor.started) if ready else None
            lost = lost if isinstance(lost, Loss) else self._judge(self._actors[group])
            if lost is not None:
                return lost
        return None

    def ask(self, group: int, method: str, pickled_arguments: bytes) -> Any:
        """A reference to what ``EnvActor.ask`` will answer. The actor is ready."""
        return self._actors[group].handle.ask.remote(pickled_arguments, method)

    def reply(self, group: int, reference: Any) -> bytes | Loss:
        """What it refers to."""
        actor = self._actors[group]
        while True:
            waited = [reference] if actor.ping is None else [reference, actor.ping]
            ready, _ = self._ray.wait(waited, num_returns=1, timeout=_LOOK_S)
            if reference in ready:
                try:
                    reply: bytes = self._ray.get(reference)
                except self._ray.exceptions.RayError as error:
                    return Loss(_why(error))
                actor.is_heard()
                return reply
            lost = self._read(group, ready[0]) if ready else self._judge_silence(actor)
            if isinstance(lost, Loss):
                return lost

    def stats(self) -> list[dict[str, Any] | None]:
        """What each actor counts; None for one that does not answer soon, as its envs are slow or it is starting."""
        self.check_cluster()
        references = [actor.handle.stats.remote() if actor.is_ready else None for actor in self._actors]
        ready = self._arrived([one for one in references if one is not None], _STATS_S)
        out: list[dict[str, Any] | None] = []
        for reference in references:
            try:
                out.append(self._ray.get(reference) if reference in ready else None)
            except self._ray.exceptions.RayError:
                out.append(None)
        return out

    # ---- ending ------------------------------------------------------------------------------

    def close(self, seconds: float) -> list[bytes]:
        """Closes what was built within that time, then kills the actors. Returns what their envs raised."""
        self.ring(None)
        if not self._is_in_cluster():  # leaving it has ended the actors
            return []
        raised = []
        try:
            for reference in self._arrived([actor.handle.close.remote() for actor in self._built()], seconds):
                try:
                    raised.append(self._ray.get(reference))
                except self._ray.exceptions.RayError:
                    continue  # it is gone already
        finally:
            for actor in self._actors:
                self._ray.kill(actor.handle, no_restart=True)
            self._actors = []
        return [one for one in raised if one is not None]

    def _built(self) -> list[_Actor]:
        """The actors that have built their envs. The others are not worth the wait: they may have no place."""
        started = self._arrived([actor.started for actor in self._actors], 0)
        return [actor for actor in self._actors if actor.is_ready or actor.started in started]

    def _arrived(self, references: Sequence[Any], seconds: float) -> list[Any]:
        """The references whose values are there within that time. Ray refuses to wait for nothing."""
        if not references:
            return []
        ready: list[Any] = self._ray.wait(references, num_returns=len(references), timeout=seconds)[0]
        return ready


def _membership(ray: ModuleType) -> tuple[str, str]:
    """Another one after each `ray.init`. Drivers are counted by their cluster, so the first ones of two are alike."""
    context = ray.get_runtime_context()
    return context.get_node_id(), context.get_worker_id()


def _why(error: BaseException) -> str:
    """The reason that Ray gives. It is at the end of a long text if the actor could not be made or has raised."""
    cause = getattr(error, "cause", None)
    if isinstance(cause, BaseException):  # what a method of the actor raised, which none should
        return f"the Ray actor that ran it raised {errors.summary(cause)}"
    lines = [line.strip() for line in _COLOURS.sub("", str(error)).splitlines() if line.strip()]
    at_the_end = any(word in line for line in lines for word in ("creation task", "runtime environment"))
    text = (lines[-1] if at_the_end else lines[0]) if lines else type(error).__name__
    return f"the Ray actor that ran it is gone: {type(error).__name__}: {text}"


def _explained(error: BaseException) -> BaseException:
    """An exception of an actor that was to build its envs, with what to do if its machine lacks something."""
    if not isinstance(error, ModuleNotFoundError) or isinstance(error, errors.StepmillError):
        return error
    explained = errors.MissingPackageError(
        f"a node of the cluster has no module {error.name!r}, which the envs need: Ray(runtime_env={{'pip': [...]}}) "
        "installs packages there; ray.init(runtime_env={'working_dir': '.'}) before make sends your own files"
    )
    explained.__cause__ = error
    return explained
