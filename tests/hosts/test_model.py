"""Random sequences of calls, right and wrong, against a plain model of a pool.

The model steps reference envs in Python, one by one, and says for every call which error it raises or which rows
it returns. In async mode any of the envs in flight may come back first; everything else is settled.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import gymnasium
import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

import stepmill
from stepmill import errors
from support.envs import ProbeTwin
from support.pool_model import LIMIT, ModelEnv, Row
from support.probes import MODES

N = 4
SEED = 11


# ---- the model -----------------------------------------------------------------------------------


@dataclass
class Model:
    """A pool, as the contract describes it."""

    envs: list[ModelEnv]
    batch_size: int
    in_flight: dict[int, Row] = field(default_factory=dict)  # in the order of sending
    last_ids: list[int] = field(default_factory=list)
    closed: bool = False

    @property
    def is_async(self) -> bool:
        return self.batch_size < len(self.envs)

    def wrong_ids(self, ids: list[int]) -> bool:
        return not ids or len(set(ids)) < len(ids) or any(not 0 <= one < N for one in ids)

    def send_error(self, ids: list[int] | None, bad_action: bool) -> type[Exception] | None:
        if self.closed:
            return errors.ClosedError
        if ids is None:
            ids = self.last_ids if self.is_async else list(range(N))
        if self.wrong_ids(ids):
            return errors.EnvIdError
        if any(one in self.in_flight for one in ids):
            return errors.InFlightError
        if any(self.envs[one].mode == "disabled" and self.envs[one].state == "ended" for one in ids):
            return errors.NeedsResetError
        return errors.ActionError if bad_action else None

    def send(self, ids: list[int] | None, actions: np.ndarray) -> None:
        if ids is None:
            ids = self.last_ids if self.is_async else list(range(N))
        for one, action in zip(ids, actions, strict=True):
            self.in_flight[one] = self.envs[one].act(action)

    def reset_error(self, ids: list[int] | None, drains: bool) -> type[Exception] | None:
        if self.closed:
            return errors.ClosedError
        if ids is not None and self.wrong_ids(ids):
            return errors.EnvIdError
        if drains:
            return None
        busy = self.in_flight if ids is None or not self.is_async else [i for i in ids if i in self.in_flight]
        return errors.InFlightError if busy else None

    def recv_error(self) -> type[Exception] | None:
        if self.closed:
            return errors.ClosedError
        return None if self.in_flight else errors.NothingInFlightError

    def expect(self) -> tuple[set[int], int]:
        """Which envs may come back, and how many do."""
        return set(self.in_flight), min(self.batch_size, len(self.in_flight))

    def take(self, ids: list[int]) -> list[Row]:
        self.last_ids = ids
        return [self.in_flight.pop(one) for one in ids]


# ---- what is put against it ----------------------------------------------------------------------


@dataclass(frozen=True)
class Subject:
    """A pool to test and the env that tells what it should do."""

    make: Callable[..., Any]
    reference: Callable[[], gymnasium.Env[Any, Any]]
    action: Callable[[int], Any]
    bad_actions: tuple[Any, ...]


def _cartpole() -> gymnasium.Env[Any, Any]:
    return gymnasium.make("CartPole-v1").unwrapped


PROBE = {
    "reference": lambda: ProbeTwin(length=2),
    "action": lambda number: np.float32(number / 8 - 1),
    "bad_actions": (np.nan, None, 1e300),
}
CARTPOLE = {"reference": _cartpole, "action": lambda number: number % 2, "bad_actions": (2, -1, 0.5, None)}

SUBJECTS = {
    "native probe": Subject(lambda **k: stepmill.make("Probe-v0", length=2, **k), **PROBE),
    "python probe": Subject(lambda **k: stepmill.make(ProbeTwin, backend="inline", length=2, **k), **PROBE),
    "native cartpole": Subject(lambda **k: stepmill.make("CartPole-v1", **k), **CARTPOLE),
    "python cartpole": Subject(lambda **k: stepmill.make(_cartpole, backend="inline", **k), **CARTPOLE),
}

# Mostly good ids, in any order, and now and then one that is out of range or given twice.
some_ids = st.lists(st.integers(0, N - 1), min_size=1, max_size=N, unique=True)
any_ids = st.one_of(some_ids, some_ids, some_ids, st.lists(st.integers(-1, N), max_size=N + 1))
numbers = st.lists(st.integers(0, 16), min_size=N + 1, max_size=N + 1)
seeds = st.one_of(st.none(), st.integers(0, 2**32))


class PoolMachine(RuleBasedStateMachine):
    """Does the same to the pool and to the model, and compares."""

    subject: Subject
    mode: str
    batch_size: int

    def __init__(self) -> None:
        super().__init__()
        self.pool = self.subject.make(
            num_envs=N, batch_size=self.batch_size, autoreset=self.mode, seed=SEED, max_episode_steps=LIMIT
        )
        self.model = Model([ModelEnv(self.subject.reference(), self.mode, SEED + i) for i in range(N)], self.batch_size)

    def teardown(self) -> None:
        self.pool.close()

    # ---- the calls ----

    @rule(
        ids=st.one_of(st.none(), any_ids),
        values=numbers,
        bad=st.integers(0, 9),
        method=st.sampled_from(["send", "step"]),
    )
    def act(self, ids: list[int] | None, values: list[int], bad: int, method: str) -> None:
        model = self.model
        implied = model.last_ids if model.is_async else list(range(N))
        actions = [self.subject.action(values[i]) for i in range(len(implied if ids is None else ids))]
        bad_action = bad < len(self.subject.bad_actions) and bool(actions)
        sent: Any = list(actions)
        if bad_action:
            sent[-1] = self.subject.bad_actions[bad]
        call = getattr(self.pool, method)
        error = model.send_error(ids, bad_action)
        if error is not None:
            self.refused(error, lambda: call(sent, ids))
            return
        model.send(ids, np.array(actions))
        result = call(sent, ids)
        if method == "step":
            self.received(result)

    @rule(values=numbers, turns=st.integers(1, 2 * LIMIT))
    def play(self, values: list[int], turns: int) -> None:
        """Several good turns in a row, so that episodes reach their end in spite of all the resets."""
        for turn in range(turns):
            idle = [
                one
                for one, env in enumerate(self.model.envs)
                if one not in self.model.in_flight and not (self.mode == "disabled" and env.state == "ended")
            ]
            if self.model.closed or not idle:
                return
            actions = [self.subject.action(values[one] + turn) for one in idle]
            self.model.send(idle, np.array(actions))
            self.received(self.pool.step(actions, idle))

    @rule(timeout=st.sampled_from([None, 60.0]))
    def recv(self, timeout: float | None) -> None:
        error = self.model.recv_error()
        if error is not None:
            self.refused(error, lambda: self.pool.recv(timeout))
        else:
            self.received(self.pool.recv(timeout))

    @precondition(lambda self: self.model.is_async)
    @rule(at_least=st.integers(0, 2))
    def recv_what_is_ready(self, at_least: int) -> None:
        at_least = min(at_least, self.batch_size)
        error = self.model.recv_error()
        if error is not None:
            self.refused(error, lambda: self.pool.recv(0, at_least))
        else:
            self.received(self.pool.recv(0, at_least), at_least)

    @rule(seed=seeds)
    def reset_all(self, seed: int | None) -> None:
        error = self.model.reset_error(None, drains=True)
        if error is not None:
            self.refused(error, lambda: self.pool.reset(seed=seed))
            return
        self.model.in_flight.clear()
        self.reset_rows(list(range(N)), seed, self.pool.reset(seed=seed))

    @rule(ids=any_ids, seed=seeds)
    def reset_some(self, ids: list[int], seed: int | None) -> None:
        error = self.model.reset_error(ids, drains=False)
        if error is not None:
            self.refused(error, lambda: self.pool.reset(ids, seed=seed))
            return
        self.reset_rows(ids, seed, self.pool.reset(ids, seed=seed))

    @rule(mask=st.lists(st.booleans(), min_size=N, max_size=N), seed=seeds)
    def reset_masked(self, mask: list[bool], seed: int | None) -> None:
        options = {"reset_mask": np.array(mask)}
        error = self.model.reset_error(None, drains=False)
        if error is not errors.ClosedError and not any(mask):
            error = errors.ResetOptionError
        if error is not None:
            self.refused(error, lambda: self.pool.reset(options=options, seed=seed))
            return
        self.reset_rows(list(range(N)), seed, self.pool.reset(options=options, seed=seed), mask)

    @rule(seed=seeds)
    def async_reset(self, seed: int | None) -> None:
        error = self.model.reset_error(None, drains=False)
        if error is not None:
            self.refused(error, lambda: self.pool.async_reset(seed=seed))
            return
        self.pool.async_reset(seed=seed)
        for one in range(N):
            self.model.in_flight[one] = self.model_reset(one, seed)

    @precondition(lambda self: not self.model.closed)
    @rule(really=st.integers(0, 7))
    def close(self, really: int) -> None:
        if really == 0:  # seldom: little can be learnt afterwards
            self.pool.close()
            self.model.closed = True

    @invariant()
    def counts_agree(self) -> None:
        assert self.pool.closed == self.model.closed
        if not self.model.closed:
            assert self.pool.stats()["in_flight"] == len(self.model.in_flight)

    # ---- comparing ----

    def refused(self, error: type[Exception], call: Callable[[], Any]) -> None:
        with pytest.raises(error):
            call()

    def model_reset(self, one: int, seed: int | None) -> Row:
        env = self.model.envs[one]
        if seed is not None:
            env.seed = seed + one
        return env.reset()

    def reset_rows(self, ids: list[int], seed: int | None, result: Any, mask: list[bool] | None = None) -> None:
        rows = [
            self.model_reset(one, seed) if mask is None or mask[one] else self.model.envs[one].look() for one in ids
        ]
        obs, info = result
        assert info["env_id"].tolist() == ids
        self.model.last_ids = ids
        for i, row in enumerate(rows):
            np.testing.assert_array_equal(obs[i], row.obs)
            assert info["elapsed_step"][i] == row.elapsed

    def received(self, result: Any, at_least: int | None = None) -> None:
        obs, reward, terminated, truncated, info = result
        ids = info["env_id"].tolist()
        candidates, count = self.model.expect()
        assert min(count, count if at_least is None else at_least) <= len(ids) <= count
        assert len(set(ids)) == len(ids)
        assert set(ids) <= candidates
        if not self.model.is_async:
            assert ids == list(self.model.in_flight)
        rows = self.model.take(ids)
        assert ("episode_return" in info) == any(row.ended for row in rows)
        for i, row in enumerate(rows):
            np.testing.assert_array_equal(obs[i], row.obs)
            assert (reward[i], terminated[i], truncated[i]) == (row.reward, row.terminated, row.truncated)
            assert info["elapsed_step"][i] == row.elapsed
            if "episode_return" in info:
                assert info["_episode_return"][i] == row.ended
                assert info["episode_return"][i] == row.episode_return
            if row.final_obs is not None:
                np.testing.assert_array_equal(info["final_obs"][i], row.final_obs)


@pytest.mark.parametrize("batch_size", [N, 2, 1], ids=["sync", "async-2", "async-1"])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", SUBJECTS)
def test_a_pool_does_what_the_model_does(name: str, mode: str, batch_size: int) -> None:
    members = {"subject": SUBJECTS[name], "mode": mode, "batch_size": batch_size}
    run_state_machine_as_test(
        type("Machine", (PoolMachine,), members),
        settings=settings(
            max_examples=15,
            stateful_step_count=30,
            deadline=None,
            derandomize=True,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
