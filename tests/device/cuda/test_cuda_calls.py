"""Random calls, right and wrong, of a pool on a GPU, and of one on threads: the same results, or the same error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from stepmill import StepmillError
from support.cuda_pools import Both
from support.host_kernels import MODES
from support.probes import VIEWS, assert_same

N = 3
LIMIT = 4

some_ids = st.lists(st.integers(0, N - 1), min_size=1, max_size=N, unique=True)
any_ids = st.one_of(some_ids, some_ids, some_ids, st.lists(st.integers(-1, N), max_size=N + 1))
good = st.integers(0, 3)
values = st.one_of(good, good, good, good, st.sampled_from([4, -1, 1.0, 0.5, np.nan, True, None]))
actions = st.lists(values, min_size=N + 1, max_size=N + 1)
seeds = st.one_of(st.none(), st.integers(0, 2**40), st.sampled_from([-1, 2**63, [1, None, 3], [1, 2]]))


class Machine(RuleBasedStateMachine):
    """Does the same to both pools."""

    make: Callable[[], Both]

    def __init__(self) -> None:
        super().__init__()
        self.pools = self.make()
        self.states: dict[Any, Any] = {}

    def teardown(self) -> None:
        self.pools.close()

    def both(self, call: Callable[[Any], Any]) -> None:
        def outcome(pool: Any) -> Any:
            try:
                return call(pool)
            except StepmillError as error:
                return type(error), str(error)

        assert_same(*self.pools.do(outcome))

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
            self.states[pool] = states = pool.save(ids)
            return len(states)

        self.both(save)

    @rule(ids=st.one_of(st.none(), any_ids), one=st.booleans())
    def restore(self, ids: list[int] | None, one: bool) -> None:
        if len(self.states) == 2:
            self.both(lambda pool: pool.restore(self.states[pool][0] if one else self.states[pool], ids))

    @rule(source=st.integers(0, N), ids=any_ids)
    def fork(self, source: int, ids: list[int]) -> None:
        self.both(lambda pool: pool.fork(source, ids))

    @rule(steps=st.integers(1, 5))
    def rollout(self, steps: int) -> None:
        def policy(observations: Any, env_ids: Any, generators: Any) -> Any:
            return [int(one.integers(0, 4)) for one in generators]

        def roll(pool: Any) -> Any:
            rolled = vars(pool.rollout(policy, steps))
            return {**rolled, "rewards": rolled["rewards"].astype(np.float32)}

        self.both(roll)

    @invariant()
    def in_flight(self) -> None:
        assert self.pools.gpu.in_flight == self.pools.cpu.in_flight
        assert self.pools.gpu.np_random_seed == self.pools.cpu.np_random_seed


CASES = [("FrozenLake-v1", mode, "gymnasium") for mode in MODES]
CASES += [("FrozenLake-v1", mode, view) for mode, view in zip(MODES, ("gym", "dm", "dm"), strict=True)]
CASES += [("Blackjack-v1", mode, view) for mode, view in zip(MODES, VIEWS, strict=True)]


@pytest.mark.parametrize(("task", "mode", "view"), CASES)
def test_calls_do_what_they_do_on_threads(both: Any, task: str, mode: str, view: str) -> None:
    make = lambda self: both(task, view, num_envs=N, autoreset=mode, seed=11, max_episode_steps=LIMIT)  # noqa: E731
    run_state_machine_as_test(
        type("BothPools", (Machine,), {"make": make}),
        settings=settings(
            max_examples=10,
            stateful_step_count=25,
            deadline=None,
            derandomize=True,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        ),
    )
