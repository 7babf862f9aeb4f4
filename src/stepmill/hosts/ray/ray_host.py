"""Envs on a Ray cluster: carries parcels between the engine and the actors, and replaces those that are lost."""

from __future__ import annotations

import bisect
import pickle
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

from stepmill import _native
from stepmill.errors import EnvError, EnvTimeoutError, StepmillError, WorkerDiedError
from stepmill.hosts.elsewhere import EnvsElsewhere
from stepmill.hosts.faults import FaultPolicy
from stepmill.hosts.frames import Frame
from stepmill.hosts.host import NativeStates
from stepmill.hosts.process.caller.clones import is_ticket
from stepmill.hosts.process.pickling import ON_RAY, dumps_argument
from stepmill.hosts.process.remote_error import rebuild
from stepmill.hosts.python_states import WAYS, common_kind, raise_first
from stepmill.hosts.ray.actors import Actors, Loss
from stepmill.hosts.ray.cluster import connect, plan_actors
from stepmill.hosts.ray.ray_rollout import RemoteRollout
from stepmill.hosts.ray.remote_clones import RemoteClones
from stepmill.hosts.rollout.plan import Plan
from stepmill.hosts.rollout.policy import Policy
from stepmill.hosts.rollout.record import Record
from stepmill.hosts.rows import RowFinisher
from stepmill.hosts.shares import share_out
from stepmill.settings import Settings, check_players
from stepmill.sources.models.env_model import ModelQuestion
from stepmill.sources.source import NativeSource, PythonSource
from stepmill.system.uninterrupted import LastingThread, uninterrupted

# How long actors may take to close their envs.
_CLOSE_S = 10.0
# In a forked child: what its parent uses. If Ray's handles went, they would end the actors, over its connection.
_OF_PARENTS: list[Actors] = []
# The longest and the shortest time that actors without a request are left alone.
_LONGEST_S, _SHORTEST_S = 2e-2, 5e-4


class _Question(NamedTuple):
    """What the host of a group is asked about some envs."""

    group: int
    places: list[int]  # of these envs, in the list of all that are asked
    arguments: bytes


class RayHost(NativeStates, EnvsElsewhere, _native.RemoteHost):
    """A ``Host`` for envs of any kind, in actors of a Ray cluster that this process is connected to."""

    backend = "ray"
    _actors: Actors | None = None
    _destination = ON_RAY
    _rollouts = 0

    def __init__(
        self,
        source: PythonSource | NativeSource,
        settings: Settings,
        finisher: type[RowFinisher] = RowFinisher,
    ) -> None:
        self.is_native = isinstance(source, NativeSource)
        self._source_id = source.id
        if isinstance(source, NativeSource):
            self._simulators, self.code = source.simulators, source.code
        else:
            self.episode_limits = [env.max_episode_steps for env in source.envs]
        self._thread: LastingThread | None = LastingThread()
        ray = connect(settings)
        # Worker processes have deadlines; so native envs have some too, if they are asked for one.
        plan = plan_actors(ray.nodes(), settings, on_threads=self.is_native and not settings.only_processes)
        shares = share_out(source, settings.num_envs, plan.num_actors)
        self._first = [share.first for share in shares]
        self._sizes = [share.last - share.first for share in shares]
        self._model_changes = {}
        self.clones = RemoteClones()
        self._batches = self._pace = Pace(self._sizes, plan.workers, settings.batch_size, settings.as_ready)
        self._each = Pace(self._sizes, plan.workers, settings.batch_size, as_ready=True, each=True)
        self._actors = Actors(ray, source, settings, shares, plan, finisher)
        try:
            reports = self._actors.describe_all()
            self._read_spaces(source, [(share.first, one.envs) for share, one in zip(shares, reports, strict=True)])
            check_players(self.num_players, settings)
            self.policy = FaultPolicy(settings.on_error, settings.max_restarts)
            self._finisher = finisher(self.observation, self.policy, settings.autoreset)
            pool, envs = self._native_arguments(source, settings)
            super().__init__(**pool, **envs, first_envs=self._first)
        except BaseException:
            self._actors.close(_CLOSE_S)
            raise
        self._is_built = True

    # ---- rows --------------------------------------------------------------------------------

    def dispatch(self) -> None:
        """Sends what waits, as far as its actors take it now."""
        uninterrupted(lambda _: self._dispatch(), self._thread)

    def exchange(self, seconds: float) -> None:
        """Sends what waits, then takes what has come within that time."""
        uninterrupted(lambda _: self._exchange(seconds), self._thread)

    def _dispatch(self) -> None:
        self._check_cluster()
        self.clones.tidy(self._keep_clones)
        self._send_waiting()
        if any(self.waiting(group) for group in range(len(self._sizes))):
            # An answer that nobody has read takes the place of a request, and its actor may stand still.
            self._take_answers(0.0)
            self._send_waiting()

    def serve_sessions(self, event: int | None) -> None:
        """Answers ring the descriptor when they come, on a thread of Ray's."""
        assert self._actors is not None
        self._pace = self._batches if event is None else self._each
        self._actors.ring(event)

    def _exchange(self, seconds: float) -> None:
        self._check_cluster()
        self._send_waiting()
        self._ask_for_the_rest()
        patience = self._pace.patience(time.monotonic())
        self._take_answers(seconds if patience is None else min(seconds, patience))
        if self._pace is self._each:  # nobody calls again before something comes
            self._send_waiting()
            self._ask_for_the_rest()

    def _ask_for_the_rest(self) -> None:
        """Sends requests for what was to spare, to actors that have no other."""
        actors = self._actors
        assert actors is not None
        groups = range(len(actors))
        unasked = [one for one in groups if actors.is_ready(one) and not actors.under_way(one) and self.away(one)]
        is_another_asked = any(actors.under_way(group) for group in groups)
        for group in self._pace.due(unasked, is_another_asked, time.monotonic()):
            away = self.away(group)
            actors.request(group, self.pack(group, 0, away if self._pace is self._each else away // 2))

    def _check_cluster(self) -> None:
        """Raises if this process has left it: before anything is packed, and lost then."""
        assert self._actors is not None
        self._actors.check_cluster()

    def _take_answers(self, seconds: float) -> None:
        assert self._actors is not None
        for group, answer in self._actors.answers(seconds):
            if isinstance(answer, Loss):
                self._lose(group, answer)
                continue
            try:
                rows = self.unpack(group, answer)
            except Exception as error:
                self._lose(group, Loss(f"the Ray actor that ran it answered with something other than rows: {error}"))
                continue
            if rows:  # otherwise all of its envs are slow
                self._pace.rows_came(group, time.monotonic())

    def _lose(self, group: int, lost: Loss) -> None:
        """Marks the rows of a group, and starts another actor for its envs."""
        assert self._actors is not None
        self.lose(group, lost.why, lost.kind)
        self.clones.lose(group)
        crew = self.crews[group]
        changes = {env_id - crew.start: change for env_id, change in self._model_changes_of(crew).items()}
        self._actors.replace(group, changes)

    def _send_waiting(self) -> None:
        actors, pace = self._actors, self._pace
        assert actors is not None
        for group in range(len(actors)):
            if not actors.is_ready(group):
                continue
            while self.waiting(group) and actors.under_way(group) < pace.most_requests:
                actors.request(group, self.pack(group, pace.most(group), pace.spare(group)))

    def pack_policy(self, policy: Policy) -> bytes:
        """A policy, as ``play`` takes it."""
        return dumps_argument("rollout(policy)", policy, to=ON_RAY)

    def play(self, policy: bytes, plan: Plan, observation: Any, record: Record) -> None:
        """A rollout of all envs, where they are."""
        assert self._actors is not None
        self._rollouts += 1
        rollout = RemoteRollout(
            self, self._actors, self._lose, self.policy, policy, plan, record, number=self._rollouts
        )
        rollout.play(observation)

    # ---- saved states ------------------------------------------------------------------------

    @property
    def state_ways(self) -> tuple[str, ...]:
        return self._native_ways() if self.is_native else (*WAYS, "fork")

    @property
    def state_kind(self) -> str:
        if self.is_native:
            return self._native_kind(self._source_id, self.can_save)
        return common_kind(self._ask("state_kind", self._first, lambda ids, _: (ids,)))

    def fingerprint(self, env_id: int) -> str:
        """Which simulator and model the states of an env are of, on the machine that it is on."""
        (found,) = self._ask("fingerprint", [env_id], lambda ids, _: (ids,))
        return str(found)

    def save_envs(self, env_ids: Sequence[int], by: str | None) -> list[bytes]:
        try:
            saved = self._ask("save_envs", env_ids, lambda ids, _: (ids, by, self.clones.limits))
            return [self._saved(*one) for one in zip(env_ids, saved, strict=True)]
        except BaseException:  # some actors may have saved theirs
            for env_id in env_ids:
                self.clones.doubt(self._group_of(env_id))
            raise

    def _saved(self, env_id: int, state: bytes) -> bytes:
        if self.is_native or not is_ticket(state):
            return state
        return self.clones.add(self._group_of(env_id), state, self._model_changes.get(env_id))

    def load_envs(self, env_ids: Sequence[int], states: Sequence[bytes], former: list[Any]) -> None:
        """Asks all actors at once. Until its next order, an actor keeps what its envs were before."""
        given = dict(zip(env_ids, states, strict=True))
        tickets = {} if self.is_native else {env_id: one for env_id, one in given.items() if is_ticket(one)}
        clones = {env_id: self.clones.find_for(env_id, one, self._group_of(env_id)) for env_id, one in tickets.items()}
        self._remember_states(env_ids, states, former)
        if clones:
            former += map(self._model_changes.get, env_ids)
            self._remember_changes(list(clones), [one.about for one in clones.values()])
        given |= {env_id: one.its_ticket for env_id, one in clones.items()}
        self._ask("load_envs", env_ids, lambda ids, places: (ids, [given[env_ids[i]] for i in places]))

    def put_back(self, env_ids: Sequence[int], former: Sequence[Any]) -> None:
        self._remember_changes(env_ids, former)

        def ask(question: _Question) -> None:
            with suppress(WorkerDiedError, EnvTimeoutError):  # its envs are lost, as after a step
                self._answers("put_back", env_ids, [question])

        assert self._actors is not None
        asked = self._questions("put_back", env_ids, lambda ids, _: (ids,))
        # An actor that has just been started was given nothing.
        raise_first([partial(ask, one) for one in asked if self._actors.is_ready(one.group)])

    # ---- the envs themselves -----------------------------------------------------------------

    def call(self, name: str, env_ids: Sequence[int], args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        return self._ask("call", env_ids, lambda ids, _: (name, ids, args, kwargs))

    def get_attr(self, name: str, env_ids: Sequence[int]) -> list[Any]:
        return self._ask("get_attr", env_ids, lambda ids, _: (name, ids))

    def set_attr(self, name: str, values: Sequence[Any], env_ids: Sequence[int]) -> None:
        self._ask("set_attr", env_ids, lambda ids, places: (name, [values[i] for i in places], ids))

    def apply(self, function: Callable[[Any], Any], env_ids: Sequence[int]) -> list[Any]:
        """``function(env)`` for each env, called where the env lives."""
        return self._ask("apply", env_ids, lambda ids, _: (function, ids))

    def random_states(self, env_ids: Sequence[int]) -> list[Any]:
        """The states of the native envs' generators, see ``hosts.generators``."""
        return self._ask("random_states", env_ids, lambda ids, _: (ids,))

    def render(self, env_ids: Sequence[int]) -> tuple[Any, ...]:
        """Pictures, drawn where the envs live."""
        return tuple(self._ask("render", env_ids, lambda ids, _: (ids,)))

    def _model_questions(
        self, question: ModelQuestion, arguments: Sequence[Any], env_ids: Sequence[int]
    ) -> Callable[[], list[Any]]:
        packed = self._questions(
            "ask_models", env_ids, lambda ids, places: (question, [arguments[i] for i in places], ids)
        )
        return lambda: self._answers("ask_models", env_ids, packed)

    @property
    def crews(self) -> list[range]:
        return [range(first, first + size) for first, size in zip(self._first, self._sizes, strict=True)]

    def ask_frames(self, env_ids: Sequence[int], most: int) -> list[int]:
        """Draws none: pictures of envs on other machines would hold up their steps."""
        return []

    def take_frames(self) -> list[Frame]:
        return []

    def _group_of(self, env_id: int) -> int:
        return bisect.bisect_right(self._first, env_id) - 1

    def _keep_clones(self, group: int, tickets: list[bytes]) -> None:
        """Tells an actor which states by fork are still in use. One that is just being started has none."""
        assert self._actors is not None
        self._actors.check_cluster()
        if self._actors.is_ready(group):
            self._actors.ask(group, "keep_clones", pickle.dumps((tickets,)))

    def _ask(
        self, method: str, env_ids: Sequence[int], arguments: Callable[[list[int], list[int]], tuple[Any, ...]]
    ) -> list[Any]:
        """Calls a method of the host of each group that has some of these envs, all of them at once."""
        self.clones.tidy(self._keep_clones)
        return self._answers(method, env_ids, self._questions(method, env_ids, arguments))

    def _questions(
        self, method: str, env_ids: Sequence[int], arguments: Callable[[list[int], list[int]], tuple[Any, ...]]
    ) -> list[_Question]:
        """``arguments`` is given the envs as the group counts them, and where they are in ``env_ids``."""
        questions = []
        for group, crew in enumerate(self.crews):
            places = [i for i, env_id in enumerate(env_ids) if env_id in crew]
            if places:
                there = [env_ids[i] - crew.start for i in places]
                packed = dumps_argument(method, arguments(there, places), to=ON_RAY)
                questions.append(_Question(group, places, packed))
        return questions

    def _answers(self, method: str, env_ids: Sequence[int], questions: Sequence[_Question]) -> list[Any]:
        assert self._actors is not None
        for one in questions:  # what cannot be asked is known before any env is
            self._check(method, one.group, env_ids[one.places[0]], self._actors.wait_until_ready(one.group))
        replies = [self._actors.ask(one.group, method, one.arguments) for one in questions]
        out: list[Any] = [None] * len(env_ids)
        for one, reference in zip(questions, replies, strict=True):
            reply = self._actors.reply(one.group, reference)
            good, value = pickle.loads(self._check(method, one.group, env_ids[one.places[0]], reply))
            if not good:
                raise rebuild(value)
            if value is not None:
                for i, part in zip(one.places, value, strict=True):
                    out[i] = part
        return out

    def _check(self, method: str, group: int, env_id: int, reply: Any) -> Any:
        """A reply, unless the actor is lost: then another one is started, and the question has failed."""
        if isinstance(reply, Loss):
            uninterrupted(lambda _: self._lose(group, reply))
            kind = EnvTimeoutError if reply.kind == "late" else WorkerDiedError
            raise kind(f"env {env_id} failed in {method}: {reply.why}", env_id=env_id, phase=method)
        return reply

    def describe(self) -> dict[str, Any]:
        """For ``stats``: what each actor counts, and how often one was replaced."""
        assert self._actors is not None
        self.clones.tidy(self._keep_clones)
        return {"actors": self._actors.stats(), "restarts": self._actors.restarts}

    # ---- ending ------------------------------------------------------------------------------

    def close(self) -> None:
        """Closes the envs, wherever they are, and ends the actors."""
        super().close()
        self._thread = None
        actors, self._actors = self._actors, None
        if actors is None:
            return
        if self.forked:
            _OF_PARENTS.append(actors)
            return
        errors = [rebuild(one) for one in actors.close(_CLOSE_S)]
        of_envs = [error for error in errors if isinstance(error, EnvError)]
        if of_envs:
            raise EnvError.gather(of_envs)
        for error in errors:
            if isinstance(error, StepmillError):
                raise error


class Pace:
    """When an actor is sent a request, and how much of its work it answers with: of all actors, by group of envs.

    A request costs a millisecond or two of both machines, however many rows its answer has. So answers should be large,
    but rows that are done wait for them, and a worker that has no env to step waits too.
    """

    def __init__(
        self, sizes: Sequence[int], workers: int, batch_size: int, as_ready: bool, *, each: bool = False
    ) -> None:
        """``workers``: of each actor. ``as_ready``: see ``Settings``. ``each``: every env is waited for alone."""
        num_envs = sum(sizes)
        self._each = each
        # With two requests an actor works on one while the answer to the other is on its way.
        self.most_requests = 2 if batch_size <= num_envs // 2 or as_ready else 1
        self._most = [-(-size // self.most_requests) for size in sizes]
        if each:
            self._spare = list(sizes)
        elif as_ready:  # no batch is waited for
            self._spare = [max(workers, size // 4) for size in sizes]
        else:
            self._spare = [size - -(-size * batch_size // num_envs) for size in sizes]
        self._grace = _LONGEST_S
        self._left_alone: dict[int, float] = {}  # since when, by group
        self._asked_at_last: dict[int, float] = {}  # the same of those that were asked after all

    def most(self, group: int) -> int:
        """For how many envs a request is at most: the rest is for the other one, so that one is always on its way."""
        return self._most[group]

    def spare(self, group: int) -> int:
        """How many envs may still be at work when the actor answers: if all are, it answers with its part of a batch.

        They keep its workers busy until the next request is there.
        """
        return self._spare[group]

    # ---- actors that have envs at work, and no request ---------------------------------------

    def due(self, unasked: Collection[int], is_another_asked: bool, now: float) -> list[int]:
        """Which of them are to be sent a request for what they have.

        Mostly other actors complete the batch, and the next actions go in that request's place. So they are left alone
        for a while, if another actor is to answer. Where that is in vain, because others are slow, it is soon short.
        """
        if self._each:
            return list(unasked)
        since = {group: self._left_alone.get(group, now) for group in unasked}
        due = [group for group in unasked if not is_another_asked or now - since[group] >= self._grace]
        if due and is_another_asked:
            self._grace = max(self._grace / 2, _SHORTEST_S)
            self._asked_at_last = {group: since[group] for group in due}
        self._left_alone = {group: when for group, when in since.items() if group not in due}
        return due

    def patience(self, now: float) -> float | None:
        """How long until the first of those that are left alone is due; None if there is none."""
        if not self._left_alone:
            return None
        return max(0.0, min(self._left_alone.values()) + self._grace - now)

    def rows_came(self, group: int, now: float) -> None:
        """From an actor for whose sake others were left alone, or should have been a little longer."""
        for waits, factor in ((self._left_alone, 2), (self._asked_at_last, 4)):  # 4: the grace was halved then
            if any(other != group and now - since < _LONGEST_S for other, since in waits.items()):
                self._grace = min(factor * self._grace, _LONGEST_S)
        self._asked_at_last = {}
