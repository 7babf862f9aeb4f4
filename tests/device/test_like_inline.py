"""Random calls, right and wrong, of a pool on a device, and of one in this thread whose envs call the same functions.

Whatever the second one shows, the first one shows too: the same results, bit for bit, or the same error in the same
words.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

jax = pytest.importorskip("jax")

from hypothesis import HealthCheck, Phase, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test  # noqa: E402

from stepmill import StepmillError  # noqa: E402
from support.jax_worlds import counting_world  # noqa: E402
from support.probes import MODES, VIEWS, assert_same  # noqa: E402
from support.world_twin import twin_of  # noqa: E402

N = 3
SEED = 11
LIMIT = 4
WORLDS = {cheap: counting_world(3, cheap=cheap, discount=cheap) for cheap in (True, False)}
TWINS = {cheap: twin_of(world) for cheap, world in WORLDS.items()}

some_ids = st.lists(st.integers(0, N - 1), min_size=1, max_size=N, unique=True)
any_ids = st.one_of(some_ids, some_ids, some_ids, st.lists(st.integers(-1, N), max_size=N + 1))
good = st.integers(0, 3)
values = st.one_of(good, good, good, good, st.sampled_from([4, -1, 1.0, 0.5, np.nan, True, None]))
actions = st.lists(values, min_size=N + 1, max_size=N + 1)
seeds = st.one_of(st.none(), st.integers(0, 2**40), st.sampled_from([-1, 2**63, [1, None, 3], [1, 2]]))


def outcome(call: Callable[[Any], Any], pool: Any) -> Any:
    try:
        return call(pool)
    except StepmillError as error:
        return type(error), str(error)


class Machine(RuleBasedStateMachine):
    """Does the same to both pools."""

    make: Callable[[], Any]
    make_twin: Callable[[], Any]

    def __init__(self) -> None:
        super().__init__()
        self.pools = self.make(), self.make_twin()
        self.states: list[Any] = [None, None]

    def teardown(self) -> None:
        self.pools[1].close()

    def both(self, call: Callable[[Any], Any]) -> None:
        got, expected = (outcome(call, pool) for pool in self.pools)
        assert_same(got, expected)

    @rule(given=actions, ids=st.one_of(st.none(), st.none(), any_ids), method=st.sampled_from(["send", "step", "step"]))
    def act(self, given: list[Any], ids: list[int] | None, method: str) -> None:
        sent = given[: N if ids is None else len(ids)]
        self.both(lambda pool: getattr(pool, method)(sent, ids))

    @rule(given=st.lists(good, min_size=N, max_size=N), steps=st.integers(1, 2 * LIMIT))
    def play(self, given: list[int], steps: int) -> None:
        for _ in range(steps):
            self.both(lambda pool: pool.step(given))

    @rule(timeout=st.sampled_from([None, 60.0, -1, "soon"]))
    def recv(self, timeout: Any) -> None:
        self.both(lambda pool: pool.recv(timeout))

    @rule(ids=st.one_of(st.none(), any_ids), seed=seeds)
    def reset(self, ids: list[int] | None, seed: Any) -> None:
        self.both(lambda pool: pool.reset(ids, seed=seed))

    @rule(mask=st.lists(st.booleans(), min_size=N, max_size=N), seed=seeds)
    def reset_masked(self, mask: list[bool], seed: Any) -> None:
        self.both(lambda pool: pool.reset(options={"reset_mask": np.array(mask)}, seed=seed))

    @rule(ids=st.one_of(st.none(), any_ids), seed=seeds)
    def async_reset(self, ids: list[int] | None, seed: Any) -> None:
        self.both(lambda pool: pool.async_reset(ids, seed=seed))

    @rule(ids=st.one_of(st.none(), any_ids))
    def save(self, ids: list[int] | None) -> None:
        def save(pool: Any) -> Any:
            self.states[self.pools.index(pool)] = states = pool.save(ids)
            return len(states)

        self.both(save)

    @rule(ids=st.one_of(st.none(), any_ids), one=st.booleans())
    def restore(self, ids: list[int] | None, one: bool) -> None:
        if self.states[0] is not None and self.states[1] is not None:

            def restore(pool: Any) -> Any:
                states = self.states[self.pools.index(pool)]
                return pool.restore(states[0] if one else states, ids)

            self.both(restore)

    @rule(source=st.integers(0, N), ids=any_ids)
    def fork(self, source: int, ids: list[int]) -> None:
        self.both(lambda pool: pool.fork(source, ids))

    @rule(steps=st.integers(1, 5))
    def rollout(self, steps: int) -> None:
        def policy(observations: Any, env_ids: Any, generators: Any) -> Any:
            return [int(one.integers(0, 4)) for one in generators]

        self.both(lambda pool: vars(pool.rollout(policy, steps)))

    @invariant()
    def in_flight(self) -> None:
        assert self.pools[0].in_flight == self.pools[1].in_flight


# Whether resets are cheap is the third.
CASES = [(mode, "gymnasium", False) for mode in MODES]
CASES += [(mode, view, True) for mode, view in zip((*MODES, "same_step"), (*VIEWS, "dm"), strict=True)]


@pytest.mark.parametrize(("mode", "view", "cheap"), CASES)
def test_calls_do_what_they_do_elsewhere(fresh_pool: Any, mode: str, view: str, cheap: bool) -> None:
    arguments = {"num_envs": N, "autoreset": mode, "seed": SEED, "max_episode_steps": LIMIT}
    members = {
        "make": functools.partial(fresh_pool, WORLDS[cheap], view, **arguments),
        "make_twin": functools.partial(TWINS[cheap], view, **arguments),
    }
    run_state_machine_as_test(
        type("BothPools", (Machine,), members),
        settings=settings(
            max_examples=10,
            stateful_step_count=25,
            deadline=None,
            derandomize=True,
            database=None,
            phases=[Phase.generate],  # a pool is used again and again: nothing is learnt from shorter sequences
            suppress_health_check=list(HealthCheck),
        ),
    )
