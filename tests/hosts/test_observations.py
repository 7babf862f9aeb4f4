"""What Python envs show and tell that they should not: nothing is lost. See also test_backends_spaces.py."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

import stepmill
from stepmill import EnvError
from support.envs import CountingEnv, ProbeTwin
from support.envs.many_spaces import ShowEnv
from support.probes import VIEWS, seen, zeros
from support.subprocesses import run_well


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
