"""Random sequences of calls with saves, restores and forks between them, against a plain model.

The model of a saved state is what happened to the env so far, from its seed on. An env that is given it does all that
again, alone; what it shows then is what the pool has to show. Envs in flight, and those that no call names, go on as if
there had been none.
"""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import gymnasium
import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    multiple,
    precondition,
    rule,
    run_state_machine_as_test,
)

import stepmill
from stepmill import errors
from support.envs import ProbeTwin
from support.pool_model import LIMIT, ModelEnv, Row
from support.probes import MODES

N = 4
SEED = 11


@dataclass
class Life:
    """One env: what has happened to it, ``None`` for a reset, a seed in a list, or an action."""

    reference: Callable[[], gymnasium.Env[Any, Any]]
    mode: str
    events: list[Any] = field(default_factory=list)

    def live(self) -> tuple[ModelEnv, Row]:
        """It begins anew, and does everything again. Where it stands then, and the last row."""
        env, row = ModelEnv(self.reference(), self.mode, None), Row(None)
        for event in self.events:
            if isinstance(event, list):
                env.seed = event[0]
            else:
                row = env.reset() if event is None else env.act(event)
        return env, row

    @property
    def state(self) -> str:
        return self.live()[0].state

    def add(self, *events: Any) -> Row:
        self.events.extend(events)
        return self.live()[1]


@dataclass(frozen=True)
class Saved:
    """A state, and what had happened to the env before."""

    state: stepmill.SavedState
    events: tuple[Any, ...]


TASKS: dict[str, tuple[Any, Callable[[], Any], dict[str, Any]]] = {
    "native": ("Probe-v0", lambda: ProbeTwin(length=2), {"length": 2}),
    "methods": (ProbeTwin, lambda: ProbeTwin(length=2), {"length": 2, "backend": "inline"}),
    "methods-process": (ProbeTwin, lambda: ProbeTwin(length=2), {"length": 2, "backend": "process", "num_workers": 2}),
}
some_ids = st.lists(st.integers(0, N - 1), min_size=1, max_size=N, unique=True)
numbers = st.lists(st.integers(0, 16), min_size=N, max_size=N)
seeds = st.one_of(st.none(), st.integers(0, 2**32))


class SavingMachine(RuleBasedStateMachine):
    """Does the same to a pool and to the model, and compares."""

    task: str
    mode: str
    batch_size: int
    saved: Bundle[Saved] = Bundle("saved")

    def __init__(self) -> None:
        super().__init__()
        task, reference, arguments = TASKS[self.task]
        self.pool = stepmill.make(
            task,
            num_envs=N,
            batch_size=self.batch_size,
            autoreset=self.mode,
            seed=SEED,
            max_episode_steps=LIMIT,
            **arguments,
        )
        self.lives = [Life(reference, self.mode, [[SEED + i]]) for i in range(N)]
        self.in_flight: dict[int, Row] = {}

    def teardown(self) -> None:
        self.pool.close()

    @property
    def idle(self) -> list[int]:
        return [one for one in range(N) if one not in self.in_flight]

    @property
    def is_async(self) -> bool:
        return self.batch_size < N

    # ---- actions ----

    @rule(ids=some_ids, values=numbers, times=st.integers(1, 4))
    def act(self, ids: list[int], values: list[int], times: int) -> None:
        """Sends to those that can go on, and with ``times`` above 1 plays on with whatever comes back."""
        for turn in range(times):
            going = [one for one in ids if one in self.idle and not self._has_to_be_reset(one)]
            if not going:
                return
            actions = np.array([(values[one] + turn) % 17 / 8 - 1 for one in going], np.float32)
            self.pool.send(actions, going)
            for one, action in zip(going, actions, strict=True):
                self.in_flight[one] = self.lives[one].add(action)
            if turn < times - 1:
                self.receive()

    def _has_to_be_reset(self, one: int) -> bool:
        return self.mode == "disabled" and self.lives[one].state == "ended"

    @precondition(lambda self: self.in_flight)
    @rule()
    def receive(self) -> None:
        obs, reward, terminated, truncated, info = self.pool.recv()
        for i, env_id in enumerate(info["env_id"].tolist()):
            row = self.in_flight.pop(env_id)
            np.testing.assert_array_equal(obs[i], row.obs)
            assert (reward[i], terminated[i], truncated[i]) == (row.reward, row.terminated, row.truncated)
            assert info["elapsed_step"][i] == row.elapsed
            if row.ended:
                assert info["episode_return"][i] == row.episode_return
            if row.final_obs is not None:
                np.testing.assert_array_equal(info["final_obs"][i], row.final_obs)

    @rule(ids=some_ids, seed=seeds)
    def reset(self, ids: list[int], seed: int | None) -> None:
        if set(ids) & set(self.in_flight) or (self.in_flight and not self.is_async):
            with pytest.raises(errors.InFlightError):
                self.pool.reset(ids, seed=seed)
            return
        obs, info = self.pool.reset(ids, seed=seed)
        assert info["env_id"].tolist() == ids
        for i, one in enumerate(ids):
            row = self.lives[one].add(*([] if seed is None else [[seed + one]]), None)
            np.testing.assert_array_equal(obs[i], row.obs)

    # ---- states ----

    @rule(target=saved, ids=some_ids)
    def save(self, ids: list[int]) -> Any:
        error = self._why_not_saved(ids)
        if error is not None:
            with pytest.raises(error):
                self.pool.save(ids)
            return multiple()
        states = self.pool.save(ids)
        return multiple(*(Saved(state, tuple(self.lives[one].events)) for one, state in zip(ids, states, strict=True)))

    def _why_not_saved(self, ids: list[int]) -> type[Exception] | None:
        if any(one in self.in_flight for one in ids):
            return errors.InFlightError
        return errors.NeedsResetError if any(self.lives[one].state == "fresh" for one in ids) else None

    @rule(target=saved, one=consumes(saved))
    def pickle_it(self, one: Saved) -> Saved:
        return Saved(pickle.loads(pickle.dumps(one.state)), one.events)

    @rule(given=st.lists(saved, min_size=1, max_size=N), ids=some_ids)
    def restore(self, given: list[Saved], ids: list[int]) -> None:
        """A state for each env; if they are too few, the first for all of them."""
        alone = len(given) < len(ids)
        given = [given[0]] * len(ids) if alone else given[: len(ids)]
        states = given[0].state if alone else [one.state for one in given]
        if not self._may_restore(ids):
            with pytest.raises(errors.InFlightError):
                self.pool.restore(states, ids)
            return
        self._restored(self.pool.restore(states, ids), ids, [list(one.events) for one in given])

    @rule(source=st.integers(0, N - 1), ids=some_ids)
    def fork(self, source: int, ids: list[int]) -> None:
        error = self._why_not_saved([source])
        if error is None and not self._may_restore(ids):
            error = errors.InFlightError
        if error is not None:
            with pytest.raises(error):
                self.pool.fork(source, ids)
            return
        events = self.lives[source].events
        self._restored(self.pool.fork(source, ids), ids, [list(events) for _ in ids])

    def _may_restore(self, ids: list[int]) -> bool:
        return not set(ids) & set(self.in_flight) and (self.is_async or not self.in_flight)

    def _restored(self, shown: Any, ids: list[int], events: list[list[Any]]) -> None:
        obs, info = shown
        assert info["env_id"].tolist() == ids
        for i, one in enumerate(ids):
            self.lives[one].events = copy.copy(events[i])
            env, _ = self.lives[one].live()
            np.testing.assert_array_equal(obs[i], env.obs)
            assert info["elapsed_step"][i] == env.elapsed


@pytest.mark.parametrize("batch_size", [N, 2, 1], ids=["sync", "async-2", "async-1"])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("task", TASKS)
def test_a_pool_with_saved_states_does_what_the_model_does(task: str, mode: str, batch_size: int) -> None:
    run_state_machine_as_test(
        type("Machine", (SavingMachine,), {"task": task, "mode": mode, "batch_size": batch_size}),
        settings=settings(
            max_examples=4 if task.endswith("process") else 12,
            stateful_step_count=25,
            deadline=None,
            derandomize=True,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
