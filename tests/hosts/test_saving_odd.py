"""Saved states of odd envs: what they return, what they raise, what they share, and what they are given."""

from __future__ import annotations

import copy
import pickle
from typing import Any, ClassVar

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import stepmill
from stepmill import errors
from stepmill.values.saved_states import SavedStates
from support.envs import ProbeTwin
from support.probes import assert_same

BACKENDS = ("inline", "process")


def make(task: Any, backend: str, **arguments: Any) -> Any:
    workers = {"num_workers": 1} if backend == "process" else {}
    return stepmill.make(task, num_envs=3, backend=backend, **workers, **arguments)


def step(pool: Any) -> Any:
    return pool.step(np.full(pool.num_envs, 0.5, np.float32))


class Sized(ProbeTwin):
    """Its spaces are told by an argument that nobody else sees."""

    def __init__(self, size: int = 2, dtype: Any = np.float64, high: float = 1.0) -> None:
        super().__init__(obs_size=size)
        self.observation_space = spaces.Box(-np.inf, np.inf, (size,), dtype)
        self.action_space = spaces.Box(-1, high, (), np.float32)

    def _observe(self) -> np.ndarray:
        return super()._observe().astype(self.observation_space.dtype)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("other", "what"),
    [
        (lambda: Sized(50), r"observation_space: it was saved with 'float64\(50,\)"),
        (lambda: Sized(dtype=np.float32), r"observation_space: it was saved with 'float32\(2,\)"),
        (lambda: Sized(high=2.0), r"action_space: it was saved with 'float32\(\) in \[-1, 2\]"),
    ],
    ids=["shape", "dtype", "bounds"],
)
def test_states_of_envs_with_other_spaces_are_refused(other: Any, what: str, backend: str) -> None:
    with make(lambda: Sized(), backend) as pool, make(other, backend) as its:
        pool.reset()
        its.reset()
        before = [bytes(one) for one in pool.save()]
        with pytest.raises(errors.StateError, match=f"env 0 cannot take a state of another {what}"):
            pool.restore(its.save())
        assert [bytes(one) for one in pool.save()] == before


class Living(gymnasium.Env[Any, Any]):
    """``get_state`` returns its own memory, and ``set_state`` takes what it is given: nothing is copied."""

    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float64)
    action_space = spaces.Box(-1, 1, (), np.float32)

    def __init__(self) -> None:
        self.memory: dict[str, Any] = {"sum": np.zeros(2), "log": []}
        self.memory["itself"] = self.memory

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.memory["sum"][:] = self.np_random.random(2)
        self.memory["log"].clear()
        return self.memory["sum"], {"log": self.memory["log"]}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.memory["sum"] += action
        self.memory["log"].append(float(action))
        return self.memory["sum"], float(len(self.memory["log"])), False, False, {"log": self.memory["log"]}

    def get_state(self) -> Any:
        return self.memory

    def set_state(self, state: Any) -> None:
        self.memory = state


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_state_that_is_the_live_memory_of_an_env_stays_as_it_was(backend: str) -> None:
    with make(Living, backend) as pool:
        pool.reset()
        step(pool)
        states = pool.save()
        expected = [step(pool)[:2] for _ in range(3)]
        for _ in range(2):  # a second time, from the same state
            pool.restore(states)
            assert_same([step(pool)[:2] for _ in range(3)], expected)
        pool.restore(states[0], [0, 1, 2])
        pool.step(np.ones(1, np.float32), [1])
        observation, reward, *_ = step(pool)
        assert reward.tolist() == [2.0, 3.0, 2.0]  # each has memory of its own
        assert (observation[0] == observation[2]).all()
        assert (observation[0] != observation[1]).any()


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_env_that_takes_half_of_a_state_goes_back(backend: str) -> None:
    class Half(ProbeTwin):
        fails = False

        def set_state(self, state: Any) -> None:
            self._draw = state[0]
            if self.fails and state[1] == 0:
                raise KeyError("steps")
            super().set_state(state)

    with make(Half, backend) as pool:
        pool.reset()
        states = pool.save()
        step(pool)
        pool.reset([2])
        step(pool)
        before = [bytes(one) for one in pool.save()]
        pool.set_attr("fails", [False, False, True])
        with pytest.raises(errors.StateError, match=r"env 2: set_state\(\) raised KeyError: 'steps'") as caught:
            pool.restore(states)
        assert backend == "process" or isinstance(caught.value.__cause__, KeyError)
        assert [bytes(one) for one in pool.save()] == before


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_env_that_cannot_go_back_says_so(backend: str) -> None:
    class Broken(ProbeTwin):
        broken = False

        def set_state(self, state: Any) -> None:
            if self.broken:
                raise ValueError("broken")
            super().set_state(state)

    with make(Broken, backend) as pool:
        pool.reset()
        states = pool.save()
        step(pool)
        before = [bytes(one) for one in pool.save([0, 2])]
        pool.set_attr("broken", [False, True, False])
        with pytest.raises(errors.StateError, match=r"broken\. It is neither what it was nor .*: reset it"):
            pool.restore(states)
        assert [bytes(one) for one in pool.save([0, 2])] == before  # the others are what they were
        pool.set_attr("broken", [False, False, False])
        pool.reset([1])
        pool.restore(states)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_state_that_cannot_be_read_changes_nothing(backend: str) -> None:
    class Unread:
        def __reduce__(self) -> Any:
            return int, ("no number",)

    class Odd(ProbeTwin):
        odd = False

        def get_state(self) -> Any:
            return (super().get_state(), Unread() if self.odd else None)

        def set_state(self, state: Any) -> None:
            super().set_state(state[0])

    with make(Odd, backend) as pool:
        pool.reset()
        pool.set_attr("odd", [False, True, False])
        states = pool.save()
        pool.set_attr("odd", [False, False, False])
        step(pool)
        before = [bytes(one) for one in pool.save()]
        with pytest.raises(errors.StateError, match="the state for env 1 cannot be read here: ValueError"):
            pool.restore(states)
        assert [bytes(one) for one in pool.save()] == before


class Sharing(ProbeTwin):
    """Envs of a process have one list together, which is no part of their states."""

    together: ClassVar[list[int]] = []

    def step(self, action: Any) -> Any:
        self.together.append(1)
        return super().step(action)


@pytest.mark.parametrize("by", [None, "pickle"])
def test_what_envs_share_is_not_taken_from_the_others(by: str | None) -> None:
    with make(Sharing, "inline") as pool:
        pool.reset()
        states = pool.save(by=by)
        Sharing.together.clear()
        step(pool)
        pool.restore(states)
        assert Sharing.together == [1, 1, 1]
        step(pool)
        assert Sharing.together == [1] * 6


# ---- states as objects ---------------------------------------------------------------------------


def test_states_cannot_be_changed() -> None:
    with stepmill.make("CartPole-v1", num_envs=3) as pool:
        pool.reset()
        states = pool.save()
        for name, value in (("origin", None), ("nbytes", 3), ("anything", 3)):
            with pytest.raises(AttributeError):
                setattr(states[0], name, value)
        with pytest.raises(ValueError, match="read-only"):
            states.parts[1][0] = 0
        with pytest.raises(ValueError, match="read-only"):
            states[1:].parts[1][0] = 0
        with pytest.raises(TypeError):
            states[0] = states[1]  # type: ignore[index]
        for again in (copy.copy(states), copy.deepcopy(states), pickle.loads(pickle.dumps(states))):
            assert [bytes(one) for one in again] == [bytes(one) for one in states]


def test_states_from_anywhere_are_one_sequence() -> None:
    with stepmill.make("CartPole-v1", num_envs=3) as pool:
        pool.reset()
        first = pool.save()
        pool.step([0, 1, 0])
        second = pool.save()
        chosen = [second[2], first[0], second[2]]
        together = SavedStates.of(chosen)
        assert [bytes(one) for one in together] == [bytes(one) for one in chosen]
        assert SavedStates.of([first[2], first[0]]).parts[0] is first.parts[0]  # nothing is copied
        shown = pool.restore(chosen)[0]
        assert (shown[0] == shown[2]).all()
        assert len(SavedStates.of([])) == 0


WILD: list[Any] = [{0, 1}, iter([0]), np.array(0), [None], [2**70], b"ab", [True, False, True], [0.0], "012", [[0]], []]


@pytest.mark.parametrize("task", ["CartPole-v1", ProbeTwin])
def test_wild_ids_are_refused_in_a_sentence(task: Any) -> None:
    with stepmill.make(task, num_envs=3, backend="inline") as pool:
        pool.reset()
        states = pool.save()
        before = [bytes(one) for one in states]
        for ids in WILD:
            for call in (
                lambda ids=ids: pool.save(ids),
                lambda ids=ids: pool.restore(states[0], ids),
                lambda ids=ids: pool.restore(states, ids),
                lambda ids=ids: pool.fork(0, ids),
            ):
                with pytest.raises((errors.EnvIdError, errors.StateError)):
                    call()
        for source in (None, 3, -1, "0", 0.5, [0, 1]):
            with pytest.raises(errors.InputError):
                pool.fork(source, [1])
        assert [bytes(one) for one in pool.save()] == before
