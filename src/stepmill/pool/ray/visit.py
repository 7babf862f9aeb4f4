"""A rollout where the envs live: a policy comes to visit, steps some of them, and what they did goes back in one block.

While envs are lent, their state is here, and the engine of the caller knows nothing of their steps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import cloudpickle
import numpy as np

from stepmill import _native
from stepmill.pool.rollout.plan import Plan
from stepmill.pool.rollout.play import play
from stepmill.pool.rollout.record import Record
from stepmill.trees import map_tree

__all__ = ["Return", "Trip", "visit"]


class Trip(NamedTuple):
    """What goes to an actor beside the policy. Its envs are counted from the actor's first one, ``first``."""

    states: bytes
    env_ids: Sequence[int]
    first: int
    rollout: int  # which one of the pool
    observation: Any
    plan: Plan


class Return(NamedTuple):
    """What comes back: the states in any case, and the record, or what was raised and what the envs show."""

    states: bytes
    record: Record | None
    observation: Any
    failure: bytes | None


def visit(
    engine: _native.Engine,
    pickled_policy: bytes,
    trip: Trip,
    is_called_off: Callable[[], bool],
    described: Callable[[BaseException], bytes],
) -> Return:
    """Plays with the envs of a trip. Raises only if the states cannot be had back: then the envs are lost.

    ``is_called_off`` is asked before each call of the policy: the caller has no use for the rest then.
    """
    engine.take_states(trip.states)
    record: Record | None = None
    try:
        record = Record(trip.plan, len(trip.env_ids), trip.observation, engine.host.action.space)
        record.see(0, trip.observation)
        policy = cloudpickle.loads(pickled_policy)
        observation = map_tree(np.array, trip.observation)  # Ray's arrays cannot be written to

        def visitor(*arguments: Any) -> Any:
            if is_called_off():
                raise KeyboardInterrupt
            return policy(*arguments)

        play(engine, visitor, trip.plan, observation, record, trip.env_ids, trip.first)
    except BaseException as error:  # whatever a policy raises belongs to the caller, also a SystemExit
        shown = trip.observation if record is None else record.last_seen()
        return Return(engine.give_states(trip.env_ids), None, shown, described(error))
    return Return(engine.give_states(trip.env_ids), record, None, None)
