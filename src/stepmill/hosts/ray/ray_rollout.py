"""Rollouts of a pool on Ray: sends the policy to the actors, and puts together what comes back.

An actor that is lost costs each of its envs a step, which is marked. Another actor makes the steps that are left: at
first a quarter of those that the lost one was to make, and twice as many after each answer. So what is done comes home,
however often actors are lost.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, Protocol

from stepmill.errors import summary
from stepmill.hosts.faults import Fault, FaultPolicy
from stepmill.hosts.process.remote_error import rebuild
from stepmill.hosts.ray.actors import Actors, Loss
from stepmill.hosts.ray.env_actor import RolloutAnswer, RolloutOrder
from stepmill.hosts.rollout.plan import Plan
from stepmill.hosts.rollout.record import Record
from stepmill.system.uninterrupted import uninterrupted
from stepmill.values.spaces import FlatSpace
from stepmill.values.trees import leaves, map_tree

# How long to wait before we look whether an actor is late.
_LOOK_S = 0.5


class _Host(Protocol):
    """What is used of ``RayHost``."""

    observation: FlatSpace
    action: FlatSpace

    @property
    def crews(self) -> list[range]: ...
    def lend(self, group: int, env_ids: Sequence[int]) -> bytes: ...
    def take_back(self, group: int, parcel: bytes) -> None: ...
    def keep_last(self, env_ids: Sequence[int], leaves: list[bytes]) -> None: ...
    def take_losses(self, env_ids: Sequence[int]) -> list[Any]: ...


class _Loan(NamedTuple):
    """Envs that are on their way, in the order of the pool, and which of their steps they make."""

    env_ids: list[int]
    step: int  # the first one
    steps: int
    begin: int  # the first one since the rollout began, or since they were lost


class RemoteRollout:
    """One rollout. It ends with all envs at home, and with all of the record written, or with an exception."""

    def __init__(
        self,
        host: _Host,
        actors: Actors,
        lose: Callable[[int, Loss], None],
        faults: FaultPolicy,
        policy: bytes,
        plan: Plan,
        record: Record,
        number: int,
    ) -> None:
        """``policy``: pickled. ``lose``: see ``RayHost``; it starts another actor for a group whose actor is gone."""
        self._host, self._actors, self._replace, self._faults, self._plan = host, actors, lose, faults, plan
        self._record, self._number = record, number
        self._policy = actors.put(policy)  # once, however many actors there are
        self._lent: dict[int, list[_Loan]] = {group: [] for group in range(len(actors))}
        self._most_steps = [plan.steps] * len(actors)  # at once
        self._errors: list[BaseException] = []

    def play(self, observation: Any) -> None:
        """``observation``: of all envs."""
        self._record.see(0, observation)
        try:
            uninterrupted(lambda _: self._lend_all(self._host.crews))
            while any(self._lent.values()):
                uninterrupted(lambda _: self._look())
        finally:
            self._bring_home()
        if self._errors:
            raise self._errors[0]

    def _lend_all(self, crews: Sequence[range]) -> None:
        for group, crew in enumerate(crews):
            failed = self._fail_lost(list(crew), 0)  # that were lost before
            self._lend(group, [one for one in crew if one not in failed], 0)
            self._lend(group, [one for one in crew if one in failed], 1)

    def _lend(self, group: int, env_ids: list[int], step: int, begin: int | None = None) -> None:
        """Sends envs to their actor for steps that are left, unless there is none. ``begin``: see ``_Loan``."""
        if not env_ids or step == self._plan.steps or self._errors:
            return
        crew = self._host.crews[group]
        rows = slice(env_ids[0], env_ids[-1] + 1) if len(env_ids) == len(crew) else env_ids
        observation = map_tree(operator.itemgetter((step, rows)), self._record.observations)
        there = [one - crew.start for one in env_ids]
        begin = step if begin is None else begin
        steps = min(self._plan.steps - step, self._most_steps[group])
        batch_size = self._batch_size(len(env_ids), crew)
        plan = replace(self._plan, steps=steps, begin=begin, batch_size=batch_size, begins=step == begin)
        order = RolloutOrder(
            self._host.lend(group, env_ids),
            there,
            crew.start,
            self._number,
            observation,
            plan,
            goes_on=step > begin,
            is_last=step + steps == self._plan.steps,
        )
        self._lent[group].append(_Loan(env_ids, step, steps, begin))
        try:
            self._actors.send_out(group, self._policy, order)
        except Exception as error:  # such as an object store that is full: nobody will answer
            self._fail(error)
            self._lose(group, Loss(f"it could not be sent to its Ray actor: {summary(error)}"))

    def _batch_size(self, count: int, crew: range) -> int | None:
        """The same part of the envs as in the whole pool. All of an actor's envs can step together, some cannot."""
        if self._plan.batch_size is None:
            return None if count == len(crew) else count
        return max(1, round(count * self._plan.batch_size / self._record.count))

    # ---- answers ---------------------------------------------------------------------------------

    def _look(self) -> None:
        self._actors.check_cluster()
        for group, answer in self._actors.answers(_LOOK_S):
            if isinstance(answer, Loss):
                self._lose(group, answer)
                continue
            try:
                self._take(group, answer)
            except (ValueError, TypeError, AttributeError) as error:
                why = f"the Ray actor that ran it answered with something other than a rollout: {error}"
                self._lose(group, Loss(why))
        for group, lent in self._lent.items():
            if lent and not self._actors.under_way(group):  # an exception came between an answer and its reader
                self._lose(group, Loss("the answer of its Ray actor could not be read"))

    def _take(self, group: int, answer: Any) -> None:
        answer = RolloutAnswer(*answer)
        lent = self._lent[group][0]
        record: Record | None = answer.record
        shown = answer.observation if record is None else record.last_seen()
        rows = dict(zip(leaves(self._host.observation.tree), leaves(shown), strict=True))
        self._host.keep_last(lent.env_ids, [rows[number].tobytes() for number in range(len(rows))])
        self._host.take_back(group, answer.states)
        self._lent[group].pop(0)  # from here on they are at home, whatever is wrong with what they did
        if answer.failure is not None:
            self._fail(rebuild(answer.failure))
        elif record is not None and not self._errors:
            try:
                self._record.paste(lent.step, lent.env_ids, record)
            except (ValueError, TypeError, AttributeError) as error:
                self._fail(error)
                return
            self._most_steps[group] = min(2 * self._most_steps[group], self._plan.steps)
            self._lend(group, lent.env_ids, lent.step + lent.steps, lent.begin)

    def _fail(self, error: BaseException) -> None:
        """The rollout will raise: nothing is sent out any more, and what is under way ends at its next step."""
        self._errors.append(error)
        if len(self._errors) == 1:
            for group, lent in self._lent.items():
                if lent:
                    self._actors.call_off(group, self._number)

    def _lose(self, group: int, lost: Loss) -> None:
        """Whatever was on its way with that actor has failed, and goes on with the next one."""
        lent, self._lent[group] = self._lent[group], []
        if lent and self._actors.is_ready(group):
            self._most_steps[group] = max(1, lent[0].steps // 4)
        self._replace(group, lost)
        for one in lent:
            failed = self._fail_lost(one.env_ids, one.step)
            self._lend(group, [env_id for env_id in one.env_ids if env_id in failed], one.step + 1)

    def _fail_lost(self, env_ids: list[int], step: int) -> set[int]:
        """Writes the rows of those that were lost; raises in the end if that is not tolerated."""
        then = f"(this was in a rollout, after its step {step}: episode and step are those of then)"
        faults = [Fault.read(one) for one in self._host.take_losses(env_ids)]
        faults = [replace(one, message=f"{one.message} {then}") for one in faults]
        failed = [one.env_id for one in faults]
        if failed:
            self._record.fail(step, failed)
            error = self._faults.error_of(faults)
            if error is not None:
                self._fail(error)
        return set(failed)

    def _bring_home(self) -> None:
        """What is still on its way: Ctrl-C came in between. Whoever presses it again gives these envs up."""
        if not any(self._lent.values()):
            return
        self._fail(KeyboardInterrupt())
        try:
            while any(self._lent.values()):
                uninterrupted(lambda _: self._look())
        finally:
            uninterrupted(lambda _: self._give_up())

    def _give_up(self) -> None:
        for group, lent in self._lent.items():
            if lent:
                lent.clear()
                self._replace(group, Loss("the rollout was interrupted"))
