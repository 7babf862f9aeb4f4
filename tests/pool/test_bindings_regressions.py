"""Bugs that were found in the bindings once: each as small as it can be shown."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

import stepmill
from stepmill import errors
from support.envs import env_of
from support.subprocesses import run_well


class Raises:
    """An array that cannot be had."""

    def __init__(self, error: type[BaseException]) -> None:
        self.error = error

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        raise self.error

    __float__ = __index__ = __array__


# ---- crashes -------------------------------------------------------------------------------------


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


@pytest.mark.parametrize("count", [0, 1, 3, 4097])
def test_seeds_of_another_number_than_envs_are_refused(count: int) -> None:
    code = f"""
    import stepmill
    from stepmill.errors import StepmillError

    pool = stepmill.make("CartPole-v1", num_envs=2)
    pool.reset(seed=5)
    pool.send([0, 0])
    try:
        pool._core.reset(None, [1] * {count}, None)
    except StepmillError as error:
        assert "2 seeds" in str(error), error
    else:
        raise AssertionError
    assert pool._core.in_flight_count == 2
    pool.recv()
    """
    run_well(code)


def test_a_dict_that_changes_while_it_is_read() -> None:
    code = """
    import gymnasium, numpy as np, stepmill
    from gymnasium import spaces

    pool = stepmill.make("CartPole-v1", num_envs=2)
    pool.reset()
    for _ in range(50):
        given = {}
        class Evil:
            def __array__(self, dtype=None, copy=None):
                given.clear()
                return np.array([0, 1])
        given.update(action=np.array([0, 1]), env_id=Evil())
        pool.step(given)

    class Env(gymnasium.Env):
        observation_space = spaces.Dict(a=spaces.Tuple([spaces.Discrete(2), spaces.Discrete(2)]), b=spaces.Discrete(2))
        action_space = spaces.Dict(a=spaces.Tuple([spaces.Discrete(2), spaces.Discrete(2)]), b=spaces.Discrete(2))
        def reset(self, *, seed=None, options=None):
            return {"a": (0, 0), "b": 0}, {}
        def step(self, action):
            return clearing(np.int64(1)), 0.0, False, False, {}

    def clearing(value):
        tree = {}
        parts = []
        class Evil:
            def __array__(self, dtype=None, copy=None):
                tree.clear()
                parts.clear()
                return np.asarray(value)
        parts.extend([Evil(), Evil()])
        tree.update(b=value, a=parts)
        return tree

    pool = stepmill.make(Env, num_envs=1, on_error="restart", max_restarts=255)
    pool.reset()
    for _ in range(50):
        try:
            pool.step(clearing(np.array([1])))
        except stepmill.StepmillError as error:
            assert "missing" in str(error) or "expected" in str(error), error
    """
    run_well(code)


def test_a_space_of_too_many_dimensions_is_refused() -> None:
    code = """
    import numpy as np, stepmill
    from gymnasium import spaces
    from support.envs import env_of

    space = spaces.Box(0, 1, (1,) * 33, np.float32)
    for args in ((spaces.Discrete(2), space), (space,)):
        try:
            stepmill.make(env_of(*args))
        except stepmill.errors.ConfigError as error:
            assert "33 dimensions" in str(error), error
        else:
            raise AssertionError
    """
    run_well(code)


# ---- errors that are not ours --------------------------------------------------------------------


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_interrupts_inside_of_user_code_come_through(error: type[BaseException]) -> None:
    bad = Raises(error)
    with stepmill.make("Pendulum-v1") as pool:
        pool.reset()
        for call in (
            lambda: pool.step(bad),
            lambda: pool.step([[0.0]], bad),
            lambda: pool.reset(options={"x_init": bad}),
        ):
            with pytest.raises(error):
                call()
        pool.send([[0.0]])
        with pytest.raises(error):
            pool.recv(timeout=bad)
        pool.recv()
    with pytest.raises(error):
        stepmill.make("Pendulum-v1", g=bad)
    with pytest.raises(error):
        stepmill.make("Probe-v0", length=bad)


def test_other_errors_are_told_in_our_words() -> None:
    with stepmill.make("Pendulum-v1") as pool:
        pool.reset()
        with pytest.raises(errors.ActionTypeError, match="numpy cannot read: ZeroDivisionError"):
            pool.step(Raises(ZeroDivisionError))
        with pytest.raises(errors.EnvIdError):
            pool.step([[0.0]], Raises(ZeroDivisionError))


# ---- text ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["\ud800", "4x4\0junk"])
def test_config_text_that_cannot_be_passed_on(text: str) -> None:
    for value in (text, [text]):
        with pytest.raises(errors.ConfigError, match="UTF-8"):
            stepmill.make("FrozenLake-v1", **{"map_name" if value is text else "desc": value})


def test_odd_characters_in_messages() -> None:
    for text in ("é" * 2000, "x" + "é" * 2000):  # cut within a character by the env's message buffer
        with pytest.raises(errors.StepmillError):
            stepmill.make("FrozenLake-v1", map_name=text)
    with stepmill.make("Pendulum-v1") as pool:
        with pytest.raises(errors.ResetOptionError, match="ud800"):
            pool.reset(options={"\ud800": 1})
        with pytest.raises(errors.ActionError):
            pool.step({"\ud800": 1})


# ---- a bad reset drops nothing -------------------------------------------------------------------


def test_a_bad_reset_drops_nothing_in_flight() -> None:
    with stepmill.make("CartPole-v1", num_envs=2) as pool:
        pool.reset()
        pool.send([0, 0])
        with pytest.raises(errors.ResetOptionError):
            pool.reset(options={"nope": 1})
        assert pool.recv()[4]["elapsed_step"].tolist() == [1, 1]


# ---- numbers -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value", [np.int32(2**31 - 1), np.int64(2**63 - 1), np.int64(2**24 + 1), np.uint64(2**64 - 1), np.int64(-(2**63))]
)
def test_integers_that_a_float_cannot_hold(value: Any) -> None:
    with stepmill.make("Pendulum-v1") as pool:
        pool.reset()
        with pytest.raises(errors.ActionError, match="float32 can hold"):
            pool.step(np.array([[value]]))
        pool.step(np.array([[2]], value.dtype))


def test_wide_integers_come_unrounded() -> None:
    limits = np.iinfo(np.int64)
    space = spaces.Box(limits.min, limits.max, (1,), np.int64)
    with stepmill.make(env_of(space), action_bounds="clip") as pool:
        pool.reset()
        for value in (np.uint64(2**53 + 1), np.int64(limits.max), np.int64(limits.min), np.float64(-1e19)):
            got = pool.step(np.array([[value]]))[4]["got"][0, 0]
            assert int(got) == max(int(value), limits.min)
        for value in (np.uint64(2**63), np.float64(1e19)):
            with pytest.raises(errors.ActionError):
                pool.step(np.array([[value]]))


def test_a_discrete_space_as_wide_as_int64() -> None:
    with stepmill.make(env_of(spaces.Discrete(2**63 - 1))) as pool:
        pool.reset()
        assert pool.step(np.array([2**62 + 1]))[4]["got"][0] == 2**62 + 1
        with pytest.raises(errors.ActionError):
            pool.step(np.array([-(2**63)]))
    with stepmill.make(env_of(spaces.Discrete(3, start=5))) as pool:
        pool.reset()
        with pytest.raises(errors.ActionError):
            pool.step(np.array([-(2**63)]))


# ---- players -------------------------------------------------------------------------------------


def test_ids_of_players_are_integers_in_a_row() -> None:
    with stepmill.make("Template-v0", num_envs=2, max_num_players=3) as pool:
        pool.reset()
        for ids in ([[0, 1]], [False, True], [0.0, 1.0], 0, "01"):
            with pytest.raises(errors.EnvIdError, match=r"players\.env_id"):
                pool.step({"action": np.ones(2, int), "env_id": [0, 1], "players.env_id": ids})
        with pytest.raises(errors.ActionError, match="a row for each player"):
            pool.step(np.ones(2, int))
        pool.step({"action": np.ones(2, int), "env_id": [0, 1], "players.env_id": [0, 1]})
