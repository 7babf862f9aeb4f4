"""An observation that does not fit its space is an error of its env, and nothing is lost."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

import stepmill
from stepmill import EnvError
from stepmill.errors import (
    ObservationError,
)
from support.envs import CountingEnv, ProbeTwin
from support.envs.many_spaces import ShowEnv
from support.probes import VIEWS, seen
from support.subprocesses import run_well


def zeros(count: int) -> np.ndarray:
    return np.zeros(count, np.int64)


class FailingResets(CountingEnv):
    """Its fourth reset is good, the others are not."""

    def __init__(self, wrong: Any) -> None:
        super().__init__()
        self.wrong, self.resets = wrong, 0

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        self.resets += 1
        if self.resets == 4:
            return super().reset(seed=seed, options=options)
        if self.wrong is ValueError:
            raise ValueError("no map")
        return self.wrong, {}


FLOAT2 = spaces.Box(-10, 10, (2,), np.float32)
NESTED = spaces.Dict({"a": FLOAT2, "b": spaces.Tuple([spaces.Discrete(3), FLOAT2])})
GOOD = np.zeros(2, np.float32)


@pytest.mark.parametrize(
    ("space", "show", "message"),
    [
        (FLOAT2, np.zeros(3, np.float32), r"observation of env 1: expected .*\(2,\).*got.*\(3,\)"),
        (FLOAT2, np.zeros((2, 1), np.float32), r"observation of env 1: expected .*\(2,\).*got.*\(2, 1\)"),
        (FLOAT2, np.float32(1), r"observation of env 1: expected .*\(2,\)"),
        (FLOAT2, "text", "observation of env 1: expected .*got"),
        (FLOAT2, None, "observation of env 1: expected .*got"),
        (FLOAT2, np.zeros(2, complex), "env 1 failed .*observation: expected .*got.*complex"),
        (spaces.Discrete(3), 1.5, "observation of env 1: expected .*got 1.5"),
        (NESTED, {"a": GOOD}, r"observation of env 1: expected a dict with the key 'b'"),
        (NESTED, {"a": GOOD, "b": (1,)}, r"observation\['b'\] of env 1: expected a tuple of 2 parts"),
        (NESTED, {"a": GOOD, "b": (1, np.zeros(5))}, r"observation\['b'\]\[1\].* of env 1: expected .*\(2,\).*\(5,\)"),
        (NESTED, GOOD, "observation of env 1: expected a dict"),
    ],
    ids=str,
)
def test_an_observation_that_does_not_fit_is_an_error(make: Any, space: Any, show: Any, message: str) -> None:
    pool = make([lambda: ShowEnv(space, show, at=9), lambda: ShowEnv(space, show)])
    pool.reset()
    with pytest.raises(ObservationError, match=message) as caught:
        pool.step(zeros(2))
    assert (caught.value.env_id, caught.value.phase) == (1, "step")
    assert isinstance(caught.value, ValueError)
    assert caught.value.batch[4]["abnormal"].tolist() == [False, True]
    assert not pool.step(zeros(2))[4].get("abnormal", zeros(2)).any(), "the pool goes on"


def test_an_observation_of_reset_is_checked_too(make: Any) -> None:
    pool = make(lambda: ShowEnv(FLOAT2, np.zeros(3), at=0))
    with pytest.raises(ObservationError, match="env 0") as caught:
        pool.reset()
    assert caught.value.phase == "reset"


@pytest.mark.parametrize(
    ("space", "show", "expected"),
    [
        (FLOAT2, np.array([1.5, 2.5]), [1.5, 2.5]),
        (FLOAT2, np.array([1, 2]), [1.0, 2.0]),
        (FLOAT2, [1.5, 2], [1.5, 2.0]),
        (FLOAT2, np.array([1.5, 2.5], ">f8"), [1.5, 2.5]),
        (FLOAT2, np.zeros((2, 2), np.float32)[:, 0], [0.0, 0.0]),
        (spaces.Discrete(3), 2, 2),
        (spaces.Discrete(3), np.int8(2), 2),
        (spaces.Discrete(3), True, 1),
        (spaces.MultiBinary(2), np.array([True, False]), [1, 0]),
        (spaces.Box(0, 255, (2,), np.uint8), np.array([255, 0]), [255, 0]),
        (spaces.Box(-np.inf, np.inf, (2,), np.float32), np.array([np.nan, np.inf]), [np.nan, np.inf]),
    ],
    ids=str,
)
def test_a_cast_that_changes_no_value_is_made(make: Any, space: Any, show: Any, expected: Any) -> None:
    pool = make(lambda: ShowEnv(space, show))
    pool.reset()
    obs = pool.step(zeros(1))[0]
    assert obs.dtype == space.dtype
    np.testing.assert_array_equal(obs[0], expected)


@pytest.mark.parametrize(
    ("space", "show"),
    [
        (spaces.Box(0, 255, (2,), np.uint8), [0.5, 0.0]),
        (spaces.Box(0, 255, (2,), np.uint8), [300, 0]),
        (FLOAT2, [1e300, 0.0]),
    ],
    ids=str,
)
def test_a_value_that_the_dtype_does_not_hold_is_an_error(make: Any, space: Any, show: Any) -> None:
    pool = make(lambda: ShowEnv(space, np.array(show)))
    pool.reset()
    with pytest.raises(ObservationError, match=f"element 0: expected a number in .* that {space.dtype} can hold"):
        pool.step(zeros(1))


@pytest.mark.parametrize(
    ("space", "show"),
    [
        (FLOAT2, np.array([11, np.nan], np.float32)),
        (spaces.Discrete(3), 7),
        (spaces.MultiDiscrete([2, 2]), np.array([5, -1])),
        (spaces.MultiBinary(2), np.array([2, 0])),
        (spaces.Text(3), "longer"),
        (spaces.Sequence(spaces.Discrete(2)), (0, 5)),
    ],
    ids=str,
)
def test_bounds_and_ranges_are_not_checked(make: Any, space: Any, show: Any) -> None:
    """docs/interface.md says so: it would take time in every step."""
    pool = make(lambda: ShowEnv(space, show))
    pool.reset()
    np.testing.assert_equal(np.asarray(pool.step(zeros(1))[0][0]), np.asarray(show))


def test_a_key_that_the_space_does_not_have_is_left_out(make: Any) -> None:
    pool = make(lambda: ShowEnv(spaces.Dict({"a": spaces.Discrete(2)}), {"a": 1, "more": 2}))
    pool.reset()
    assert pool.step(zeros(1))[0] == {"a": [1]}


@pytest.mark.parametrize("autoreset", ["next_step", "same_step", "disabled"])
@pytest.mark.parametrize("backend", ["inline", "process"])
@pytest.mark.parametrize("wrong", [ValueError, np.zeros(3, np.float32)], ids=["raises", "does not fit"])
def test_no_episode_has_begun_before_the_first_good_reset(backend: str, autoreset: str, wrong: Any) -> None:
    with stepmill.make(FailingResets, wrong=wrong, backend=backend, autoreset=autoreset) as pool:
        for _ in range(3):
            with pytest.raises(EnvError, match=r"failed in reset \(episode 0, step 0\)"):
                pool.reset()
        pool.reset()
        with pytest.raises(EnvError, match=r"failed in reset \(episode 1, step 0\)"):
            pool.reset()


N = 4
ACTION = np.array([0.25, 0.5, 0.75, 1.0], np.float32)


# ---- Python envs that return what they should not ------------------------------------------------


GOOD_STEP = (np.zeros(2), 0.5, False, False, {})


@pytest.mark.parametrize(
    ("returned", "words"),
    [
        ((np.zeros(3), *GOOD_STEP[1:]), ["observation", "(2,)", "(3,)"]),
        ((None, *GOOD_STEP[1:]), ["observation", "NoneType"]),
        (("text", *GOOD_STEP[1:]), ["observation", "str"]),
        ((np.array(["a", "b"]), *GOOD_STEP[1:]), ["observation", "<U1"]),
        ((GOOD_STEP[0], "much", *GOOD_STEP[2:]), ["reward", "str"]),
        ((GOOD_STEP[0], None, *GOOD_STEP[2:]), ["reward", "NoneType"]),
        ((GOOD_STEP[0], 0.5, np.zeros(2), False, {}), ["ambiguous"]),
        ((GOOD_STEP[0], 0.5, False, np.zeros(2), {}), ["ambiguous"]),
        ((*GOOD_STEP[:4], None), ["info: expected a dict", "NoneType"]),
        ((*GOOD_STEP[:4], [1, 2]), ["info: expected a dict", "list"]),
        (GOOD_STEP[:4], ["expected (observation, reward", "tuple"]),
        (None, ["expected (observation, reward", "got None"]),
    ],
    ids=lambda one: " ".join(one)[:40] if isinstance(one, list) else "",
)
@pytest.mark.parametrize("view", VIEWS)
def test_a_python_env_that_returns_nonsense_fails_its_row(view: str, returned: Any, words: list[str]) -> None:
    class Nonsense(ProbeTwin):
        def __init__(self, env_id: int) -> None:
            super().__init__()
            self.place = env_id

        def step(self, action: Any) -> Any:
            return returned if self.place == 1 else super().step(action)

    with stepmill.make(Nonsense, view, num_envs=N, backend="inline") as pool:
        pool.reset()
        with pytest.raises(EnvError) as caught:
            pool.step(ACTION)
        for word in words:
            assert word in str(caught.value)
        batch = seen(view, caught.value.batch)
        assert batch.abnormal == [False, True, False, False]
        assert batch.elapsed[0] == 1
        assert seen(view, pool.step(ACTION)).elapsed == [2, 0, 2, 2]


@pytest.mark.parametrize(
    "info",
    [
        {"env_id": 77, "elapsed_step": -1, "players": 3, "episode_return": "x", "abnormal": "x"},
        {"large": 2**70},
        {"text": "abc", "none": None, "list": [1, 2], "set": {1}},
        {"_key": 1, "key": "x"},
        {5: 1, ("a",): 2},
        {"nested": {"env_id": 5, "deeper": {"array": np.zeros((2, 2))}}},
    ],
    ids=lambda one: ",".join(map(str, one)),
)
@pytest.mark.parametrize("view", VIEWS)
def test_no_info_of_an_env_can_break_the_batch(view: str, info: dict[Any, Any]) -> None:
    class Informing(ProbeTwin):
        def step(self, action: Any) -> Any:
            return (*super().step(action)[:4], info)

    with stepmill.make(Informing, view, num_envs=N, backend="inline") as pool:
        pool.reset()
        for turn in (1, 2):
            batch = seen(view, pool.step(ACTION))
            assert batch.ids == [0, 1, 2, 3]
            assert batch.elapsed == [turn] * N
            assert "episode_return" not in batch.info
            assert batch.abnormal == [False] * N
        for key in ("large", "text", "none", "list"):
            if key in info:
                assert list(batch.info[key]) == [info[key]] * N


def test_infos_of_different_types_are_kept_as_they_are() -> None:
    values = [1, 2.5, "three", np.arange(2)]

    class Differing(ProbeTwin):
        def __init__(self, env_id: int) -> None:
            super().__init__()
            self.value = values[env_id]

        def step(self, action: Any) -> Any:
            return (*super().step(action)[:4], {"value": self.value})

    with stepmill.make(Differing, num_envs=N, backend="inline") as pool:
        pool.reset()
        got = pool.step(ACTION)[4]["value"]
        assert list(got[:3]) == values[:3]
        np.testing.assert_array_equal(got[3], values[3])


def test_system_exit_in_a_python_env_is_a_failure_and_no_exit() -> None:
    def leave() -> None:
        raise SystemExit(3)

    with stepmill.make(ProbeTwin, num_envs=2, backend="inline", on_step=leave) as pool:
        pool.reset()
        with pytest.raises(EnvError, match="SystemExit") as caught:
            pool.step([0.0, 0.0])
        assert len(caught.value.errors) == 2


# ---- what cannot be read -------------------------------------------------------------------------


@pytest.mark.parametrize("error", ["KeyboardInterrupt", "ValueError"])
def test_an_observation_that_cannot_be_read_leaks_no_row(error: str) -> None:
    code = f"""
    import gymnasium, numpy as np, stepmill
    from gymnasium import spaces

    class Lazy:
        n = 0
        def __array__(self, dtype=None, copy=None):
            Lazy.n += 1
            if Lazy.n % 5 == 0:
                raise {error}
            return np.zeros(2, np.float32)

    class Env(gymnasium.Env):
        observation_space = spaces.Box(0, 1, (2,), np.float32)
        action_space = spaces.Discrete(2)
        def reset(self, *, seed=None, options=None):
            return np.zeros(2, np.float32), {{}}
        def step(self, action):
            return Lazy(), 0.0, False, False, {{}}

    pool = stepmill.make(Env, num_envs=4, batch_size=2, backend="inline", on_error="restart", max_restarts=255)
    pool.async_reset()
    done = 0
    while done < 40:
        try:
            ids = pool.recv()[4]["env_id"]
        except (KeyboardInterrupt, stepmill.StepmillError):  # the row is answered all the same
            continue
        assert len(set(ids.tolist())) == 2
        pool.send(np.zeros(2, int), ids)
        done += 1
    pool.close()
    """
    run_well(code)
