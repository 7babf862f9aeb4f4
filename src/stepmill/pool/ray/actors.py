"""The actors of a pool: how they are started, what is on its way to them, and how their answers come."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from stepmill.errors import ResourceError, WorkerDiedError, summary
from stepmill.pool.models.change import ModelChange
from stepmill.pool.process.pickling import dumps, dumps_argument
from stepmill.pool.process.remote_error import rebuild
from stepmill.pool.process.remote_error import summary as summary_of
from stepmill.pool.ray.place import Answer, Described, Order, Place, settings_for
from stepmill.pool.ray.visit import Trip
from stepmill.pool.settings import Settings
from stepmill.pool.shares import Share
from stepmill.pool.source import NativeSource, PythonSource

__all__ = ["Actors", "Lost"]


@dataclass(frozen=True)
class Lost:
    """Takes the place of an answer: the actor is gone, and why."""

    why: str


@dataclass
class _Actor:
    """One life of the actor of a group."""

    handle: Any
    started: Any  # a reference: its `describe`
    since: float
    is_ready: bool = False
    requests: deque[Any] = field(default_factory=deque)  # references to answers


class Actors:
    """One actor per group of envs. Ray restarts and retries nothing: an action must not be done twice."""

    def __init__(
        self,
        ray: ModuleType,
        source: PythonSource | NativeSource,
        settings: Settings,
        shares: Sequence[Share],
        cpus: float,
        resources: dict[str, float],
    ) -> None:
        self._ray = ray
        self._settings = settings
        self._shares = shares
        self._workers = max(1, int(cpus))
        self._pickled = [dumps(source.part(share.first, share.last)) for share in shares]
        self._needs = {"CPU": cpus, **resources}
        self._class = ray.remote(Place).options(
            scheduling_strategy="SPREAD", num_cpus=cpus, resources=resources, max_restarts=0, max_task_retries=0
        )
        self._actors = [self._start(group) for group in range(len(shares))]

    def __len__(self) -> int:
        return len(self._shares)

    def _start(self, group: int, model_changes: dict[int, ModelChange] | None = None) -> _Actor:
        first, last, _ = self._shares[group]
        its = settings_for(self._settings, first, last, self._workers)
        handle = self._class.remote(self._pickled[group], its, model_changes or {}, first)
        return _Actor(handle, handle.describe.remote(), time.monotonic())

    def describe_all(self) -> list[Described]:
        """What the envs of each actor are like, as soon as all have built theirs. Raises what building them raised."""
        timeout = self._settings.start_timeout
        references = [actor.started for actor in self._actors]
        _, missing = self._ray.wait(references, num_returns=len(references), timeout=timeout)
        if missing:
            raise ResourceError(f"{len(missing)} of {len(references)} actors were {self._not_ready()}")
        described: list[Described] = [self.get(one) for one in references]
        for actor, told in zip(self._actors, described, strict=True):
            if told.failure is not None:
                raise rebuild(told.failure)
            actor.is_ready = True
        return described

    def _not_ready(self) -> str:
        return (
            f"not ready within start_timeout={self._settings.start_timeout:g} s. Each needs {self._shown_needs()}, and "
            f"the cluster has free: {self._free()}"
        )

    def _shown_needs(self) -> str:
        return ", ".join(f"{amount:g} {name}" for name, amount in self._needs.items())

    def _free(self) -> str:
        free = {name: amount for name, amount in self._ray.available_resources().items() if ":" not in name}
        return ", ".join(f"{amount:g} {name}" for name, amount in sorted(free.items())) or "nothing"

    # ---- requests ----------------------------------------------------------------------------

    def under_way(self, group: int) -> int:
        """How many requests its actor has not answered yet."""
        return len(self._actors[group].requests)

    def is_ready(self, group: int) -> bool:
        """Whether it has built its envs."""
        return self._actors[group].is_ready

    def request(self, group: int, order: Order, rows: int) -> None:
        """Sends an order, to be answered with so many rows."""
        actor = self._actors[group]
        actor.requests.append(actor.handle.exchange.remote(order, rows))

    def put(self, value: bytes) -> Any:
        """A reference to a value that many actors need."""
        return self._ray.put(value)

    def send_out(self, group: int, policy: Any, trip: Trip) -> None:
        """Sends a policy, by its reference, to be answered with a ``Return``."""
        actor = self._actors[group]
        actor.requests.append(actor.handle.rollout.remote(policy, trip))

    def answers(self, seconds: float) -> Iterator[tuple[int, Answer | Lost]]:
        """What has come within that time, or is there at once. An actor that is lost has to be replaced."""
        waited = {actor.requests[0]: group for group, actor in enumerate(self._actors) if actor.requests}
        waited |= {actor.started: group for group, actor in enumerate(self._actors) if not actor.is_ready}
        if not waited:
            return
        for group, actor in enumerate(self._actors):
            if not actor.is_ready and time.monotonic() - actor.since > self._settings.start_timeout:
                yield group, Lost(f"no actor could be started for it: it was {self._not_ready()}")
                return  # the caller looks again
        ready, _ = self._ray.wait(list(waited), num_returns=1, timeout=seconds)
        if ready and len(waited) > 1:
            ready, _ = self._ray.wait(list(waited), num_returns=len(waited), timeout=0)
        for reference in ready:
            group = waited[reference]
            actor = self._actors[group]
            try:
                value = self._ray.get(reference)
            except self._ray.exceptions.RayError as error:
                yield group, Lost(_why(error))
                continue
            if reference == actor.started:
                actor.is_ready = value.failure is None
                if value.failure is not None:
                    yield group, Lost(f"its env could not be built again: {summary_of(value.failure)}")
                continue
            actor.requests.popleft()
            yield group, value

    def replace(self, group: int, model_changes: dict[int, ModelChange]) -> None:
        """Ends an actor and starts another one in its place, wherever the cluster has room."""
        self._ray.kill(self._actors[group].handle, no_restart=True)
        self._actors[group] = self._start(group, model_changes)

    def ask(self, group: int, method: str, *arguments: Any) -> Any:
        """A reference to what ``Place.ask`` will answer."""
        return self._actors[group].handle.ask.remote(dumps_argument(method, arguments), method)

    def get(self, reference: Any) -> Any:
        """What it refers to, when it is there."""
        try:
            return self._ray.get(reference)
        except self._ray.exceptions.RayError as error:
            raise WorkerDiedError(_why(error)) from error

    # ---- ending ------------------------------------------------------------------------------

    def close(self, seconds: float) -> list[bytes]:
        """Closes all places within that time, then kills the actors. Returns what their envs raised."""
        references = [actor.handle.close.remote() for actor in self._actors]
        raised = []
        try:
            ready, _ = self._ray.wait(references, num_returns=len(references), timeout=seconds)
            for reference in ready:
                try:
                    raised.append(self._ray.get(reference))
                except self._ray.exceptions.RayError:
                    continue  # it is gone already
        finally:
            for actor in self._actors:
                self._ray.kill(actor.handle, no_restart=True)
            self._actors = []
        return [one for one in raised if one is not None]


def _why(error: BaseException) -> str:
    return f"the Ray actor that ran it is gone: {summary(error).splitlines()[0]}"
