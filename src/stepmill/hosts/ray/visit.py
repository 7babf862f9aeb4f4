"""A rollout where the envs live: a policy comes to visit, steps some of them, and what they did goes back in one block.

While envs are lent, their state is here, and the engine of the caller knows nothing of their steps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import cloudpickle
import numpy as np

from stepmill import _native
from stepmill.hosts.rollout.plan import Plan
from stepmill.hosts.rollout.play import play
from stepmill.hosts.rollout.policy import Generators, Policy
from stepmill.hosts.rollout.record import Record
from stepmill.values.trees import map_tree

__all__ = ["Return", "Trip", "Visitors", "visit"]


class Trip(NamedTuple):
    """What goes to an actor beside the policy. Its envs are counted from the actor's first one, ``first``."""

    states: bytes
    env_ids: Sequence[int]
    first: int
    rollout: int  # which one of the pool
    observation: Any
    plan: Plan
    goes_on: bool  # with the policy and the random numbers of these envs' last trip
    is_last: bool  # of these envs in this rollout


class Return(NamedTuple):
    """What comes back: the states in any case, and the record, or what was raised and what the envs show."""

    states: bytes
    record: Record | None
    observation: Any
    failure: bytes | None


class Visitor(NamedTuple):
    """A policy between two trips: it may have a memory."""

    policy: Policy
    generators: Generators


# By rollout, and the first env of their trip.
Visitors = dict[tuple[int, int], Visitor]


def visit(
    engine: _native.Engine,
    pickled_policy: bytes,
    trip: Trip,
    visitors: Visitors,
    is_called_off: Callable[[], bool],
    described: Callable[[BaseException], bytes],
) -> Return:
    """Plays with the envs of a trip. Raises only if the states cannot be had back: then the envs are lost.

    ``visitors``: those who will go on; of a rollout that was given up, they stay until the next one.
    ``is_called_off`` is asked before each call of the policy: the caller has no use for the rest then.
    """
    parcels = _native.ParcelServer(engine)
    parcels.take_states(trip.states)
    record: Record | None = None
    try:
        record = Record(trip.plan, len(trip.env_ids), trip.observation, engine.host.action.space)
        record.see(0, trip.observation)
        one = _take_visitor(visitors, pickled_policy, trip)
        observation = map_tree(np.array, trip.observation)  # Ray's arrays cannot be written to

        def visitor(*arguments: Any) -> Any:
            if is_called_off():
                raise KeyboardInterrupt
            return one.policy(*arguments)

        if hasattr(one.policy, "begin"):
            visitor.begin = one.policy.begin  # type: ignore[attr-defined]
        play(engine, visitor, trip.plan, observation, record, trip.env_ids, trip.first, one.generators)
        if not trip.is_last:
            visitors[trip.rollout, trip.env_ids[0]] = one
    except BaseException as error:  # whatever a policy raises belongs to the caller, also a SystemExit
        shown = trip.observation if record is None else record.last_seen()
        return Return(parcels.give_states(trip.env_ids), None, shown, described(error))
    return Return(parcels.give_states(trip.env_ids), record, None, None)


def _take_visitor(visitors: Visitors, pickled_policy: bytes, trip: Trip) -> Visitor:
    known = visitors.pop((trip.rollout, trip.env_ids[0]), None)
    for key in [one for one in visitors if one[0] != trip.rollout]:
        del visitors[key]
    if trip.goes_on and known is not None:
        return known
    return Visitor(cloudpickle.loads(pickled_policy), Generators(trip.plan.seed, trip.plan.begin))
