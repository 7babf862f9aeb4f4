"""Envs on a Ray cluster: carries parcels between the engine and the actors, and replaces those that are lost."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from gymnasium import spaces

from stepmill import _native
from stepmill.errors import EnvError, EnvTimeoutError, StepmillError, WorkerDiedError
from stepmill.hosts.faults import Fault, FaultPolicy
from stepmill.hosts.frames import Frame
from stepmill.hosts.host import host_arguments, native_env_arguments, native_spaces, python_env_arguments
from stepmill.hosts.infos import info_leaves
from stepmill.hosts.mail import PickledMail
from stepmill.hosts.process.notes import read_notes
from stepmill.hosts.process.pickling import ON_RAY, dumps_argument
from stepmill.hosts.process.remote_error import rebuild
from stepmill.hosts.ray.actors import Actors, Lost
from stepmill.hosts.ray.cluster import connect, plan_actors
from stepmill.hosts.ray.letters import Answer, Order
from stepmill.hosts.ray.pace import Pace
from stepmill.hosts.ray.place import Described, description_of
from stepmill.hosts.ray.ray_rollout import RemoteRollout
from stepmill.hosts.rollout.plan import Plan
from stepmill.hosts.rollout.policy import Policy
from stepmill.hosts.rollout.record import Record
from stepmill.hosts.rows import Note, RowFinisher
from stepmill.hosts.shares import share_out
from stepmill.settings import Settings, check_players
from stepmill.sources.models.env_model import ModelQuestion
from stepmill.sources.models.fields import ModelChange
from stepmill.sources.source import NativeSource, PythonSource
from stepmill.system.uninterrupted import LastingThread, uninterrupted
from stepmill.values.spaces import flatten

__all__ = ["RayHost"]

# How long actors may take to close their envs.
_CLOSE_S = 10.0
# In a forked child: what its parent uses. If Ray's handles went, they would end the actors, over its connection.
_OF_PARENTS: list[Actors] = []


class RayHost(PickledMail, _native.RemoteHost):
    """A ``Host`` for envs of any kind, in actors of a Ray cluster that this process is connected to."""

    backend = "ray"
    player_kinds: tuple[str, ...] = ()
    info_space: spaces.Dict | None
    _actors: Actors | None = None
    _destination = ON_RAY
    _is_built = False
    _rollouts = 0

    def __init__(
        self,
        source: PythonSource | NativeSource,
        settings: Settings,
        finisher: type[RowFinisher] = RowFinisher,
    ) -> None:
        self.is_native = isinstance(source, NativeSource)
        self._thread: LastingThread | None = LastingThread()
        ray = connect(settings)
        # Worker processes have deadlines; so native envs have some too, if they are asked for one.
        plan = plan_actors(ray.nodes(), settings, on_threads=self.is_native and not settings.only_processes)
        shares = share_out(source, settings.num_envs, plan.num_actors)
        self._first = [share.first for share in shares]
        self._sizes = [share.last - share.first for share in shares]
        self._model_changes: dict[int, ModelChange] = {}  # by env id: all that was set since the pool was made
        self._pace = Pace(self._sizes, plan.workers, settings.batch_size, settings.as_ready)
        self._actors = Actors(ray, source, settings, shares, plan, finisher)
        try:
            self._read_spaces(source, self._actors.describe_all())
            check_players(self.num_players, settings)
            policy = FaultPolicy(settings.on_error, settings.max_restarts)
            self._finisher = finisher(self.observation, policy, settings.autoreset)
            self._build(source, settings)
        except BaseException:
            self._actors.close(_CLOSE_S)
            raise
        self._is_built = True

    # ---- starting ----------------------------------------------------------------------------

    def _read_spaces(self, source: PythonSource | NativeSource, told: Sequence[Described]) -> None:
        if isinstance(source, NativeSource):
            self.metadata, self.render_mode = source.metadata, source.render_mode
            self.num_players = source.max_num_players
            self.observation, self.action = native_spaces(source)
            self.info_space = source.info_space
            return
        described = [description_of(one.envs) for one in told if one.envs is not None]
        common = described[0]
        for first, one in zip(self._first[1:], described[1:], strict=True):
            one.check_like(first, common, 0)
            common = common.common(one)
        self.described = common
        self.metadata, self.render_mode = common.metadata, common.render_mode
        self.num_players, self.player_kinds = common.num_players, common.player_kinds
        self.observation, self.action = flatten(common.observation_space), flatten(common.action_space)
        self.info_space = common.info_space

    def _build(self, source: PythonSource | NativeSource, settings: Settings) -> None:
        limit = None
        if isinstance(source, NativeSource):
            envs, limit = native_env_arguments(source), source.max_episode_steps
        else:
            info_space = self.described.info_space if self._finisher.takes_info_arrays else None
            infos = info_leaves(info_space, settings.autoreset)
            envs = python_env_arguments(self.observation, self.action, self.described, infos)
        super().__init__(**host_arguments(source.id, self.backend, settings, limit), **envs, first_envs=self._first)

    # ---- rows --------------------------------------------------------------------------------

    def dispatch(self) -> None:
        """Sends what waits, as far as its actors take it now."""
        uninterrupted(lambda _: self._dispatch(), self._thread)

    def exchange(self, seconds: float) -> None:
        """Sends what waits, then takes what has come within that time."""
        uninterrupted(lambda _: self._exchange(seconds), self._thread)

    def _dispatch(self) -> None:
        self._check_cluster()
        self._send_waiting()
        if any(self.waiting(group) for group in range(len(self._sizes))):
            # An answer that nobody has read takes the place of a request, and its actor may stand still.
            self._take_answers(0.0)
            self._send_waiting()

    def _exchange(self, seconds: float) -> None:
        self._check_cluster()
        self._send_waiting()
        self._ask_for_the_rest()
        patience = self._pace.patience(time.monotonic())
        self._take_answers(seconds if patience is None else min(seconds, patience))

    def _ask_for_the_rest(self) -> None:
        """Sends requests for what was to spare, to actors that have no other."""
        actors = self._actors
        assert actors is not None
        groups = range(len(actors))
        unasked = [one for one in groups if actors.is_ready(one) and not actors.under_way(one) and self.away(one)]
        is_another_asked = any(actors.under_way(group) for group in groups)
        for group in self._pace.due(unasked, is_another_asked, time.monotonic()):
            actors.request(group, Order(self.away(group) // 2, None, {}, {}))

    def _check_cluster(self) -> None:
        """Raises if this process has left it: before anything is packed, and lost then."""
        assert self._actors is not None
        self._actors.check_cluster()

    def _take_answers(self, seconds: float) -> None:
        assert self._actors is not None
        for group, letter in self._actors.answers(seconds):
            if isinstance(letter, Lost):
                self._lose(group, letter)
                continue
            try:
                answer = Answer.read(letter)
                if answer.parcel is None:  # all of its envs are slow
                    continue
                self.unpack(group, answer.parcel, answer.notes, answer.faults)
            except Exception as error:
                self._lose(group, Lost(f"the Ray actor that ran it answered with something other than rows: {error}"))
            else:
                self._pace.rows_came(group, time.monotonic())

    def _lose(self, group: int, lost: Lost) -> None:
        """Marks the rows of a group, and starts another actor for its envs."""
        assert self._actors is not None
        self.lose(group, lost.why, lost.kind)
        first = self._first[group]
        there = range(first, first + self._sizes[group])
        changes = {env_id - first: change for env_id, change in self._model_changes.items() if env_id in there}
        self._actors.replace(group, changes)

    def _send_waiting(self) -> None:
        actors, pace = self._actors, self._pace
        assert actors is not None
        for group in range(len(actors)):
            if not actors.is_ready(group):
                continue
            while self.waiting(group) and actors.under_way(group) < pace.most_requests:
                actors.request(group, Order(pace.spare(group), *self.pack(group, pace.most(group))))

    def pack_policy(self, policy: Policy) -> bytes:
        """A policy, as ``play`` takes it."""
        return dumps_argument("rollout(policy)", policy, to=ON_RAY)

    def play(self, policy: bytes, plan: Plan, observation: Any, record: Record) -> None:
        """A rollout of all envs, where they are."""
        assert self._actors is not None
        self._rollouts += 1
        rollout = RemoteRollout(
            self, self._actors, self._lose, self._finisher.policy, policy, plan, record, number=self._rollouts
        )
        rollout.play(observation)

    def finish_rows(
        self, result: Any, notes: Sequence[tuple[int, int, bytes]], faults: Sequence[Any]
    ) -> tuple[Any, EnvError | None]:
        """See ``RowFinisher``."""
        read: list[Note] = []
        messages: dict[int, str] = {}
        for note, (_, env_id, _) in zip(read_notes(notes), notes, strict=True):
            if isinstance(note, str):  # what a native env threw
                messages[env_id] = note
            elif note is not None:
                read.append(note)
        known = [Fault.read(one) for one in faults]
        known = [replace(one, message=messages.get(one.env_id, one.message)) for one in known]
        return self._finisher(result, read, known)

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
        """The states of the native envs' generators, see ``pool.generators``."""
        return self._ask("random_states", env_ids, lambda ids, _: (ids,))

    def render(self, env_ids: Sequence[int]) -> tuple[Any, ...]:
        """Pictures, drawn where the envs live."""
        return tuple(self._ask("render", env_ids, lambda ids, _: (ids,)))

    def ask_models(self, question: ModelQuestion, arguments: Sequence[Any], env_ids: Sequence[int]) -> list[Any]:
        """What is set is remembered here, for actors that take the place of dead ones."""
        if question == "set_model":
            for env_id, change in zip(env_ids, arguments, strict=True):
                self._model_changes[env_id] = self._model_changes.get(env_id, ModelChange()).then(change)
        return self._ask("ask_models", env_ids, lambda ids, places: (question, [arguments[i] for i in places], ids))

    @property
    def crews(self) -> list[range]:
        return [range(first, first + size) for first, size in zip(self._first, self._sizes, strict=True)]

    def ask_frames(self, env_ids: Sequence[int], most: int) -> list[int]:
        """Draws none: pictures of envs on other machines would hold up their steps."""
        return []

    def take_frames(self) -> list[Frame]:
        return []

    def _ask(
        self, method: str, env_ids: Sequence[int], arguments: Callable[[list[int], list[int]], tuple[Any, ...]]
    ) -> list[Any]:
        """Calls a method of the host of each group that has some of these envs, all of them at once.

        ``arguments`` is given the envs as the group counts them, and where they are in ``env_ids``.
        """
        assert self._actors is not None
        questions = []
        for group, crew in enumerate(self.crews):
            places = [i for i, env_id in enumerate(env_ids) if env_id in crew]
            if places:
                there = [env_ids[i] - crew.start for i in places]
                questions.append((group, places, dumps_argument(method, arguments(there, places), to=ON_RAY)))
        for group, places, _ in questions:  # what cannot be asked is known before any env is
            self._check(method, group, env_ids[places[0]], self._actors.wait_until_ready(group))
        asked = [(*one[:2], self._actors.ask(one[0], method, one[2])) for one in questions]
        out: list[Any] = [None] * len(env_ids)
        for group, places, reference in asked:
            reply = self._check(method, group, env_ids[places[0]], self._actors.reply(group, reference))
            good, value = pickle.loads(reply)
            if not good:
                raise rebuild(value)
            if value is not None:
                for i, one in zip(places, value, strict=True):
                    out[i] = one
        return out

    def _check(self, method: str, group: int, env_id: int, reply: Any) -> Any:
        """A reply, unless the actor is lost: then another one is started, and the question has failed."""
        if isinstance(reply, Lost):
            uninterrupted(lambda _: self._lose(group, reply))
            kind = EnvTimeoutError if reply.kind == "late" else WorkerDiedError
            raise kind(f"env {env_id} failed in {method}: {reply.why}", env_id=env_id, phase=method)
        return reply

    def describe(self) -> dict[str, Any]:
        """For ``stats``: what each actor counts, and how often one was replaced."""
        assert self._actors is not None
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

    def __del__(self) -> None:
        """Ends the actors when the engine is gone."""
        try:  # when the interpreter ends, contextlib may be gone
            if self._is_built:
                self.close()
        except Exception:  # there is no caller to raise it to
            pass
