"""Infos come out of worker processes as inline gives them, and as Gymnasium's vector envs give them."""

from __future__ import annotations

import types
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.backends import INLINE, PROCESSES, TWO, Backend, own
from support.envs import InfoEnv, RewritingEnv
from support.envs.many_spaces import Colour, Pair, Thing
from support.probes import assert_same

pytestmark = pytest.mark.usefixtures("server")

on_processes = pytest.mark.parametrize("backend", PROCESSES, ids=str)


# What the envs of a pool tell in one step, env by env. Gymnasium tells the same of these.
AGREED: dict[str, list[dict[str, Any]]] = {
    "nothing": [{}, {}, {}],
    "an int": [{"x": 1}, {"x": -2}, {"x": 3}],
    "a float": [{"x": 0.5}, {"x": -0.0}, {"x": np.nan}],
    "a bool": [{"x": True}, {"x": False}, {"x": True}],
    "numpy scalars": [{"x": np.float32(1.5), "y": np.int8(3)}] * 3,
    "arrays": [{"x": np.arange(3, dtype=np.int16) + i, "y": np.full((2, 2), i / 3)} for i in range(3)],
    "bool arrays": [{"x": np.array([True, False])}] * 3,
    "text": [{"x": "one"}, {"x": ""}, {"x": "drei\N{SNOWMAN}"}],
    "nothing as a value": [{"x": None}, {"x": None}, {"x": None}],
    "lists": [{"x": [1, 2]}, {"x": []}, {"x": [None, "a"]}],
    "tuples": [{"x": (1, 2)}, {"x": ("a",)}, {"x": ()}],
    "bytes and sets": [{"x": b"ab", "y": {1, 2}, "z": frozenset("a"), "c": 1j}] * 3,
    "some tell it": [{}, {"x": 3}, {"x": 4, "y": "text"}],
    "the last tells it": [{}, {}, {"x": np.ones(2)}],
    "nested": [{"a": {"b": 1.5, "t": "x"}}, {"a": {"c": {"d": np.ones(2)}}}, {}],
    "nested in some": [{}, {"a": {"b": {"c": {"d": 1}}}}, {"a": {"b": {}}}],
    "nested and empty": [{"a": {}}, {"a": {"b": 1}}, {}],
    "objects": [{"x": Thing("a", [1])}, {"x": Thing("b", Thing("c"))}, {}],
    "named things": [{"x": Pair(1, "b"), "y": Colour.RED, "z": int, "f": len}] * 3,
    "a long text": [{"x": "x" * 100_000}, {"x": ""}, {}],
    "a large array": [{"x": np.arange(200_000) + i} for i in range(3)],
}

# Here Gymnasium would lose something or raise.
OURS_ALONE: dict[str, list[dict[str, Any]]] = {
    "int then float": [{"x": 1}, {"x": 2.5}, {"x": 3}],
    "int then text": [{"x": 1}, {"x": "one"}, {}],
    "text then array": [{"x": "a"}, {"x": np.ones(2)}, {"x": None}],
    "shapes that differ": [{"x": np.zeros(2)}, {"x": np.zeros(3)}, {"x": np.zeros((1, 1))}],
    "types that differ": [{"x": np.zeros(2, np.int8)}, {"x": np.zeros(2)}, {"x": np.zeros(2, np.int64)}],
    "dict then number": [{"x": {"y": 1}}, {"x": 2}, {"x": {"z": 1}}],
    "number then dict": [{"x": 2}, {"x": {"y": 1}}, {}],
    "beyond 64 bits": [{"x": 2**70}, {"x": 1}, {"x": -(2**63)}],
    "beyond 64 bits, later": [{"x": 1}, {"x": 2**63}, {}],
    "unsigned": [{"x": np.uint64(2**64 - 1)}, {"x": 5}, {}],
    "arrays of objects": [{"x": np.array([None, "a", Thing("b")], object)}, {}, {}],
    "arrays of text": [{"x": np.array(["a", "bcd"])}, {"x": np.array(["efghi", ""])}, {}],
    "dates": [{"x": np.datetime64("2020-01-01")}, {"x": np.array(["2021-01-01"], "M8[D]")}, {}],
    "records": [{"x": np.zeros(2, [("a", "f4"), ("b", "i8")])}, {}, {}],
    "empty arrays": [{"x": np.zeros((0, 3))}, {"x": np.zeros((0, 3))}, {}],
    "0-d arrays": [{"x": np.array(3)}, {"x": np.array(4.5)}, {}],
    "complex": [{"x": np.complex64(1j)}, {"x": np.zeros(2, complex)}, {}],
    "float16 and longer": [{"x": np.float16(0.1)}, {"x": np.float64(0.1)}, {}],
    "keys of the engine": [{"env_id": 9, "elapsed_step": 9, "abnormal": 9, "final_obs": 9, "episode_return": 9}] * 3,
    "keys that look like masks": [{"_x": 3}, {"_x": 4, "x": 1}, {"x": 2}],
    "an ordered dict": [OrderedDict(b=1, a=OrderedDict(c=2)), {}, {}],
    "a mapping that is no dict": [types.MappingProxyType({"x": 1, "y": "b"}), {"x": 2}, {}],
    "a bool of numpy's": [{"x": np.bool_(True)}, {}, {}],
}


def steps_of(backend: Backend, rows: list[Any], mode: str) -> list[dict[str, Any]]:
    """Infos of a reset and of steps, with ends between, of envs that tell these."""
    with backend.make([lambda row=row: InfoEnv(row, 2) for row in rows], autoreset=mode) as pool:
        infos = [pool.reset()[1], *(pool.step([0] * len(rows))[4] for _ in range(5))]
        return [*infos, pool.step([0, 0], [2, 0])[4]]


def steps_of_gymnasium(rows: list[Any], mode: str) -> list[dict[str, Any]]:
    envs = [lambda row=row: InfoEnv(row, 2) for row in rows]
    oracle = SyncVectorEnv(envs, autoreset_mode=AutoresetMode[mode.upper()])
    infos = [oracle.reset()[1], *(oracle.step([0] * len(rows))[4] for _ in range(5))]
    oracle.close()
    return infos


@pytest.mark.parametrize("name", [*AGREED, *OURS_ALONE])
def test_infos_are_those_of_inline_and_of_gymnasium(name: str) -> None:
    rows = {**AGREED, **OURS_ALONE}[name]
    mode = "next_step" if name in ("some tell it", "nested", "dict then number") else "same_step"
    infos = steps_of(TWO, rows, mode)
    assert_same(infos, steps_of(INLINE, rows, mode))
    if name in AGREED:
        assert_same([own(info) for info in infos[:6]], steps_of_gymnasium(rows, mode))


# ---- anything ------------------------------------------------------------------------------------

NUMBERS = st.one_of(st.integers(-(2**70), 2**70), st.floats(), st.booleans())
SCALARS = st.builds(
    lambda t, n: t(n), st.sampled_from([np.int8, np.float16, np.float32, np.uint64]), st.integers(0, 99)
)
ARRAYS = st.builds(
    lambda shape, dtype, fill: np.full(shape, fill, dtype),
    st.lists(st.integers(0, 2), max_size=2),
    st.sampled_from([np.bool_, np.int8, np.int64, np.float16, np.float64]),
    st.integers(0, 9),
)
LEAVES = st.one_of(NUMBERS, SCALARS, ARRAYS, st.none(), st.text(max_size=3), st.lists(st.integers(), max_size=2))
KEYS = st.sampled_from(["a", "b", "_a", "c d", ""])
INFOS = st.dictionaries(KEYS, st.recursive(LEAVES, lambda inner: st.dictionaries(KEYS, inner, max_size=2)), max_size=3)


@pytest.fixture(scope="module")
def pools() -> Iterator[list[Any]]:
    """One pool for all examples: what its envs tell can be set."""
    with TWO.make(InfoEnv, num_envs=3, length=3) as pool, INLINE.make(InfoEnv, num_envs=3, length=3) as oracle:
        for one in (pool, oracle):
            one.reset()
        yield [pool, oracle]


@settings(max_examples=150, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
@given(rows=st.lists(INFOS, min_size=3, max_size=3))
def test_any_info(pools: list[Any], rows: list[dict[str, Any]]) -> None:
    """Keys come and go, and values change their type, from env to env and from step to step."""
    results = []
    for pool in pools:
        pool.set_attr("info", rows)
        results.append([pool.step([0] * 3), pool.step([1] * 2, [2, 1])])
    assert_same(*results)


# ---- what an env keeps ---------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["next_step", "same_step"])
@pytest.mark.parametrize("backend", [INLINE, *PROCESSES], ids=str)
def test_an_info_stays_as_it_was_when_the_env_writes_over_it(backend: Backend, mode: str) -> None:
    with backend.make(RewritingEnv, num_envs=3, autoreset=mode, max_episode_steps=2) as pool:
        kept = [pool.reset()[1], *(pool.step([0] * 3)[4] for _ in range(3))]
    counts = [0, 1, 2, 0] if mode == "next_step" else [0, 1, 0, 1]
    for info, count in zip(kept, counts, strict=True):
        assert info["array"].tolist() == [[count] * 2] * 3
        assert info["deep"]["array"].tolist() == [[count]] * 3
        if backend is not INLINE:  # in one process an object is handed out as it is
            assert info["list"].tolist() == [[count]] * 3
    if mode == "same_step":
        final = kept[2]["final_info"]
        assert (final["array"].tolist(), final["deep"]["array"].tolist()) == ([[2, 2]] * 3, [[2]] * 3)


@on_processes
def test_objects_of_a_class_that_only_the_caller_has(backend: Backend) -> None:
    """It went to the worker by value; what comes back is of the caller's class."""

    class Local:
        def __init__(self, value: int) -> None:
            self.value = value

    with backend.make([lambda i=i: InfoEnv({"x": Local(i), "deep": {"y": [Local(-i)]}}) for i in range(3)]) as pool:
        info = pool.reset()[1]
    assert [type(one) is Local and one.value for one in info["x"]] == [0, 1, 2]
    assert [type(one[0]) is Local and one[0].value for one in info["deep"]["y"]] == [0, -1, -2]


def test_functions_come_back_and_work() -> None:
    with TWO.make([lambda i=i: InfoEnv({"x": lambda: i}) for i in range(3)]) as pool:
        assert [one() for one in pool.reset()[1]["x"]] == [0, 1, 2]
