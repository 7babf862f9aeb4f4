"""Observations and actions of every space come through worker processes as they do in the calling thread."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector.utils import iterate
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stepmill.errors import ActionError, ObservationError
from support.backends import INLINE, TWO, Actor, Backend, attempt, stack
from support.envs.many_spaces import EchoEnv, ShowEnv
from support.probes import assert_same

pytestmark = pytest.mark.usefixtures("server")

# ---- every kind ----------------------------------------------------------------------------------

INTEGERS = [np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64]
FLOATS = [np.float16, np.float32, np.float64]
HYBRID = (spaces.Discrete(3), spaces.Box(-1, 1, (2,), np.float32))
BOX2 = spaces.Box(0, 1, (2,), np.float32)

SPACES: dict[str, spaces.Space[Any]] = {
    **{f"Box {t.__name__}": spaces.Box(np.iinfo(t).min, np.iinfo(t).max, (2, 3), t) for t in INTEGERS},
    **{f"Box {t.__name__}": spaces.Box(-100, 100, (2, 3), t) for t in FLOATS},
    "Box bool": spaces.Box(0, 1, (2, 3), np.bool_),
    "Box unbounded": spaces.Box(-np.inf, np.inf, (4,), np.float32),
    "Box half bounded": spaces.Box(np.array([-np.inf, 0]), np.array([5, np.inf]), dtype=np.float64),
    "Box 0-d": spaces.Box(-1.0, 1.0, (), np.float64),
    "Box 0-d bool": spaces.Box(0, 1, (), np.bool_),
    "Box 0-d uint8": spaces.Box(0, 255, (), np.uint8),
    "Box empty": spaces.Box(0, 1, (0,), np.float32),
    "Box empty 3-d": spaces.Box(0, 1, (2, 0, 3), np.float16),
    "Box 5-d": spaces.Box(0, 9, (1, 2, 1, 3, 2), np.int16),
    "Box large": spaces.Box(0, 255, (4, 84, 84), np.uint8),
    "Discrete": spaces.Discrete(5),
    "Discrete from -2": spaces.Discrete(5, start=-2),
    "Discrete of one": spaces.Discrete(1, start=7),
    "Discrete int32": spaces.Discrete(3, dtype=np.int32),
    "Discrete of many": spaces.Discrete(2**62),
    "MultiDiscrete": spaces.MultiDiscrete([3, 4, 5]),
    "MultiDiscrete 2-d from": spaces.MultiDiscrete([[3, 4], [5, 6]], start=[[1, -2], [0, 7]]),
    "MultiDiscrete int8": spaces.MultiDiscrete([3, 4], dtype=np.int8),
    "MultiBinary": spaces.MultiBinary(4),
    "MultiBinary 2-d": spaces.MultiBinary((2, 3)),
    "Dict": spaces.Dict({"b": spaces.Discrete(3), "a": BOX2}),
    "Tuple": spaces.Tuple([spaces.Discrete(3, start=1), spaces.Box(-1, 1, (2, 2), np.float64)]),
    "Tuple of one": spaces.Tuple([BOX2]),
    "Tuple of none": spaces.Tuple(()),
    "Dict of none": spaces.Dict({}),
    "Dict with a Tuple of none": spaces.Dict({"a": spaces.Tuple(()), "b": spaces.Discrete(2)}),
    "hybrid Tuple": spaces.Tuple(HYBRID),
    "hybrid Dict": spaces.Dict({"kind": HYBRID[0], "amount": HYBRID[1]}),
    "Dict of hybrids": spaces.Dict({"one": spaces.Tuple(HYBRID), "two": spaces.Dict({"x": spaces.Tuple(HYBRID)})}),
    "deep": spaces.Dict({"a": spaces.Tuple([spaces.Dict({"b": spaces.Tuple([spaces.Dict({"c": BOX2})])})])}),
    "Text": spaces.Text(6),
    "Sequence": spaces.Sequence(BOX2),
    "Sequence stacked": spaces.Sequence(BOX2, stack=True),
    "Graph": spaces.Graph(BOX2, spaces.Discrete(4)),
    "Graph without edges": spaces.Graph(BOX2, None),
    "OneOf": spaces.OneOf([spaces.Discrete(2), BOX2]),
    "OneOf with a Dict": spaces.OneOf([spaces.Dict({"a": spaces.Discrete(2)}), spaces.Text(3)]),
    "arrays and objects": spaces.Dict(
        {
            "text": spaces.Text(4),
            "box": BOX2,
            "pair": spaces.Tuple([spaces.Text(3), spaces.Discrete(4)]),
            "path": spaces.Sequence(spaces.Dict({"at": BOX2, "name": spaces.Text(2)})),
        }
    ),
}


def echoes(backend: Backend, space: spaces.Space[Any], view: str = "gymnasium") -> list[Any]:
    """What a pool shows: samples at resets, the actions it was given after steps. Asserts the latter."""
    with backend.make(lambda: EchoEnv(space), view, num_envs=3, autoreset="same_step") as pool:
        spaces_ = [pool.spec.observation_space, pool.spec.action_space]
        results = [pool.reset(), pool.reset([1])]
        act = Actor(pool, 5)
        for turn in range(6):
            ids = [2, 0] if turn % 2 else [0, 1, 2]
            actions = [act.one() for _ in ids]
            results.append(pool.step(stack(space, actions), ids))
            told = results[-1][-1]
            for row, action in enumerate(actions):
                last = told["final_info"] if "final_info" in told and told["_final_info"][row] else told
                assert_same(last["action"][row], [as_given(space, action)])
        return [spaces_, *results]


def as_given(space: spaces.Space[Any], action: Any) -> Any:
    """An action as an env gets it: numbers of a Box are an array also where its shape is ()."""
    if isinstance(space, spaces.Dict):
        return {key: as_given(part, action[key]) for key, part in space.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(as_given(part, one) for part, one in zip(space.spaces, action, strict=True))
    return np.asarray(action) if isinstance(space, spaces.Box) else action


@pytest.mark.parametrize("name", SPACES)
def test_observations_and_actions_of_every_space(name: str) -> None:
    assert_same(echoes(TWO, SPACES[name]), echoes(INLINE, SPACES[name]))


@pytest.mark.parametrize("view", ["gym", "dm"])
@pytest.mark.parametrize("name", ["hybrid Dict", "arrays and objects", "Box empty"])
def test_every_view_has_them(name: str, view: str) -> None:
    def run(backend: Backend) -> list[Any]:
        with backend.make(lambda: EchoEnv(SPACES[name]), view, num_envs=3) as pool:
            act = Actor(pool, 5)
            return [pool.reset(), *(pool.step(act(3)) for _ in range(9))]

    assert_same(run(TWO), run(INLINE))


def test_async_echoes_reach_their_caller() -> None:
    space = SPACES["arrays and objects"]
    with TWO.make(lambda: EchoEnv(space, length=10**9), num_envs=5, batch_size=2) as pool:
        pool.async_reset()
        act, sent = Actor(pool, 7), dict[int, Any]()
        for _ in range(60):
            obs, *_, info = pool.recv()
            ids = info["env_id"].tolist()
            for one, shown in zip(ids, iterate(pool.observation_space, obs), strict=False):
                if one in sent:
                    assert_same(shown, sent[one])
            sent |= {one: act.one() for one in ids}
            pool.send(stack(space, [sent[one] for one in ids]), ids)
        assert len(sent) == 5


# ---- any space -----------------------------------------------------------------------------------

SHAPES = st.lists(st.integers(0, 3), max_size=3).map(tuple)


@st.composite
def boxes(draw: st.DrawFn) -> spaces.Box:
    dtype = np.dtype(draw(st.sampled_from([np.bool_, *INTEGERS, *FLOATS])))
    low, high = sorted(draw(st.lists(st.integers(0, 100), min_size=2, max_size=2)))
    if dtype.kind in "if" and draw(st.booleans()):
        low = -high
    if dtype.kind == "f" and draw(st.booleans()):
        return spaces.Box(-np.inf, np.inf, draw(SHAPES), dtype)
    return spaces.Box(0, 1, draw(SHAPES), dtype) if dtype == np.bool_ else spaces.Box(low, high, draw(SHAPES), dtype)


@st.composite
def multi_discretes(draw: st.DrawFn) -> spaces.MultiDiscrete:
    shape = draw(st.lists(st.integers(1, 3), min_size=1, max_size=2))
    count = int(np.prod(shape))
    nvec = draw(st.lists(st.integers(1, 9), min_size=count, max_size=count))
    start = draw(st.lists(st.integers(-9, 9), min_size=count, max_size=count))
    return spaces.MultiDiscrete(np.reshape(nvec, shape), start=np.reshape(start, shape))


# Gymnasium warns of its own samples of a 0-d Box, where another space looks at them.
PARTS = boxes().filter(lambda box: box.shape != ())
SIMPLE = st.one_of(
    boxes(),
    st.builds(lambda n, start: spaces.Discrete(n, start=start), st.integers(1, 10), st.integers(-5, 5)),
    multi_discretes(),
    st.builds(spaces.MultiBinary, st.lists(st.integers(1, 3), min_size=1, max_size=2)),
    st.builds(spaces.Text, st.integers(1, 5)),
    st.builds(spaces.Sequence, PARTS),
    st.lists(PARTS, min_size=1, max_size=2).map(spaces.OneOf),
)
NESTED = st.recursive(
    SIMPLE,
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map(spaces.Tuple),
        st.dictionaries(st.text("abc_", min_size=1, max_size=3), inner, min_size=1, max_size=3).map(spaces.Dict),
    ),
    max_leaves=8,
)


@settings(max_examples=40, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
@given(space=NESTED)
def test_any_space(space: spaces.Space[Any]) -> None:
    def run(backend: Backend) -> list[Any]:
        space.seed(11)
        actions = [[space.sample() for _ in range(2)] for _ in range(5)]
        with backend.make(lambda: EchoEnv(space), num_envs=2) as pool:
            spaces_ = [pool.observation_space, pool.action_space]
            return [*spaces_, pool.reset(), *(pool.step(stack(space, action)) for action in actions)]

    assert_same(run(TWO), run(INLINE))


# ---- observations that do not fit ----------------------------------------------------------------

FLOAT2 = spaces.Box(-10, 10, (2,), np.float32)
BYTES2 = spaces.Box(0, 255, (2,), np.uint8)
TREE = spaces.Dict({"a": FLOAT2, "b": spaces.Tuple([spaces.Discrete(3), FLOAT2]), "t": spaces.Text(3)})
GOOD = np.zeros(2, np.float32)

UNFIT: dict[str, tuple[spaces.Space[Any], Any, tuple[str, ...]]] = {
    "too long": (FLOAT2, np.zeros(3, np.float32), ("(2,)", "(3,)")),
    "too deep": (FLOAT2, np.zeros((2, 1), np.float32), ("(2,)", "(2, 1)")),
    "too flat": (FLOAT2, np.float32(1), ("(2,)",)),
    "empty": (FLOAT2, np.zeros(0, np.float32), ("(2,)", "(0,)")),
    "ragged": (FLOAT2, [[1.0], [1.0, 2.0]], ("(2,)",)),
    "text": (FLOAT2, "text", ("(2,)", "str")),
    "nothing": (FLOAT2, None, ("(2,)",)),
    "complex": (FLOAT2, np.zeros(2, complex), ("float32", "complex")),
    "objects": (FLOAT2, np.array([None, {}], object), ("float32", "object")),
    "a fraction": (BYTES2, np.array([1.0, 0.5]), ("element 1", "that uint8 can hold", "0.5")),
    "beyond float32": (FLOAT2, np.array([1e300, 0.0]), ("element 0", "that float32 can hold", "1e+300")),
    "beyond the type": (BYTES2, np.array([1, 256]), ("uint8", "256")),
    "below the type": (BYTES2, np.array([-1, 0]), ("uint8", "-1")),
    "nan as a whole number": (BYTES2, np.array([np.nan, 0]), ("a number", "nan")),
    "a fraction as Discrete": (spaces.Discrete(3), 1.5, ("1.5",)),
    "two for Discrete": (spaces.Discrete(3), np.array([1, 2]), ("(2,)",)),
    "a key missing": (TREE, {"a": GOOD, "t": ""}, ("a dict with the keys 'a', 'b', 't', got one without 'b'",)),
    "a part missing": (TREE, {"a": GOOD, "b": (1,), "t": ""}, ("observation['b']", "2 parts")),
    "a part too long": (TREE, {"a": GOOD, "b": (1, np.zeros(5)), "t": ""}, ("observation['b'][1]", "(2,)", "(5,)")),
    "a list for a dict": (TREE, [GOOD], ("a dict",)),
    "an array for a dict": (TREE, GOOD, ("a dict",)),
    "texts": (FLOAT2, np.array(["a", "b"]), ("<U1",)),
}


def told(backend: Backend, space: spaces.Space[Any], show: Any, at: int, mode: str) -> list[Any]:
    """Four envs, of which the third shows something else at the step ``at``, 0 being a reset."""
    configs = [{"at": at if env_id == 2 else 10**9} for env_id in range(4)]

    def build(at: int) -> ShowEnv:
        return ShowEnv(space, show, at)

    with backend.make(build, num_envs=4, env_config=configs, autoreset=mode) as pool:
        results = [attempt(pool.reset)]
        going = [0, 1, 3] if mode == "disabled" and at == 0 else [0, 1, 2, 3]
        results.append(attempt(lambda: pool.step([0] * len(going), going)))
        results.append(attempt(lambda: pool.reset([2]) if mode == "disabled" else pool.step([0] * 4, [3, 2, 1, 0])))
        return results


@pytest.mark.parametrize("name", UNFIT)
def test_an_observation_that_does_not_fit_is_an_error_of_the_same_words(name: str) -> None:
    space, show, words = UNFIT[name]
    got = told(TWO, space, show, 1, "next_step")
    assert_same(got, told(INLINE, space, show, 1, "next_step"))
    ((kind, text, env_id, phase, episode, step),) = got[1]["errors"]
    assert issubclass(kind, ObservationError)
    assert (env_id, phase, episode, step) == (2, "step", 1, 1)
    for word in ("env 2", "expected", "got", *words):
        assert word in text
    assert got[1]["batch"][4]["abnormal"].tolist() == [False, False, True, False]


@pytest.mark.parametrize("mode", ["next_step", "same_step", "disabled"])
@pytest.mark.parametrize("at", [0, 1])
def test_it_is_one_in_every_mode_and_phase(mode: str, at: int) -> None:
    got = told(TWO, FLOAT2, np.zeros(3), at, mode)
    assert_same(got, told(INLINE, FLOAT2, np.zeros(3), at, mode))
    (error,) = got[at]["errors"]
    assert error[3] == ("step" if at else "reset")


CASTS: dict[str, tuple[spaces.Space[Any], Any]] = {
    "float64": (FLOAT2, np.array([1.5, 0.1])),
    "float16": (FLOAT2, np.array([1.5, 2.5], np.float16)),
    "integers": (FLOAT2, np.array([1, 2])),
    "a list": (FLOAT2, [1.5, 2]),
    "a tuple": (FLOAT2, (1, 2)),
    "big endian": (FLOAT2, np.array([1.5, 2.5], ">f8")),
    "a column": (FLOAT2, np.arange(4, dtype=np.float32).reshape(2, 2)[:, 1]),
    "backwards": (FLOAT2, np.arange(2, dtype=np.float32)[::-1]),
    "read-only": (FLOAT2, np.frombuffer(np.ones(2, np.float32).tobytes(), np.float32)),
    "beyond the bounds": (FLOAT2, np.array([1e9, -1e9])),
    "nan and inf": (FLOAT2, np.array([np.nan, -np.inf])),
    "whole floats": (BYTES2, np.array([255.0, 0.0])),
    "wider integers": (BYTES2, np.array([255, 0])),
    "an int": (spaces.Discrete(3), 2),
    "a bool": (spaces.Discrete(3), True),
    "a 0-d array": (spaces.Discrete(3), np.array(2, np.int8)),
    "bools": (spaces.MultiBinary(2), np.array([True, False])),
    "a scalar": (spaces.Box(-1, 1, (), np.float64), 0.25),
}


@pytest.mark.parametrize("name", CASTS)
def test_a_cast_that_changes_no_value_is_made(name: str) -> None:
    space, show = CASTS[name]
    got = told(TWO, space, show, 1, "next_step")
    assert_same(got, told(INLINE, space, show, 1, "next_step"))
    obs = got[1][0]
    assert obs.dtype == space.dtype
    np.testing.assert_array_equal(obs[2], np.asarray(show).astype(space.dtype))


# ---- actions that do not fit ---------------------------------------------------------------------

TALK = spaces.Dict({"say": spaces.Text(3), "push": FLOAT2})


@pytest.mark.parametrize(
    "action",
    [
        {"say": ["abc", "toolong"], "push": np.zeros((2, 2))},
        {"say": ["abc"], "push": np.zeros((2, 2))},
        {"say": ["abc", 3], "push": np.zeros((2, 2))},
        {"say": ["abc", "a"], "push": np.zeros((2, 3))},
        {"say": ["abc", "a"], "push": np.full((2, 2), np.nan)},
        {"push": np.zeros((2, 2))},
        {"say": ["abc", "a"]},
        None,
    ],
    ids=str,
)
def test_a_bad_part_of_an_action_is_refused_with_the_same_words(action: Any) -> None:
    def run(backend: Backend) -> tuple[str, list[Any]]:
        with backend.make(lambda: EchoEnv(TALK), num_envs=2) as pool:
            results = [pool.reset()]
            with pytest.raises(ActionError) as caught:
                pool.step(action)
            assert pool.stats()["in_flight"] == 0
            results.append(pool.step({"say": ["a", "b"], "push": np.ones((2, 2))}))
            return str(caught.value), results

    assert_same(run(TWO), run(INLINE))
