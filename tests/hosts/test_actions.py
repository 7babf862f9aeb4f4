"""A bad action is refused and changes nothing; an unusual one is taken with its values."""

from __future__ import annotations

import array
import shutil
import traceback
from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import stepmill
from stepmill import StepmillError, errors
from support.envs.many_spaces import EchoEnv, env_of
from support.own_env import own_env
from support.probes import KINDS, VIEWS, assert_same, make_probe, reset_obs, seen
from support.subprocesses import run_well
from support.twins import GOOD, N, assert_like_twin, assert_refused

# ---- actions -------------------------------------------------------------------------------------


SHAPE = (errors.ActionError, ValueError, "expected shape (3,)")
RANGE = (errors.ActionError, ValueError, "expected a whole number in [0, 1]")
TYPE = (errors.ActionTypeError, TypeError, "expected numbers that int64 can hold")
KEYS = (errors.ActionError, ValueError, "expected", "got the keys")


BAD_ACTIONS = {
    "int": (0, *SHAPE, "shape ()"),
    "0-d": (np.array(0), *SHAPE, "shape ()"),
    "numpy-scalar": (np.int64(1), *SHAPE, "shape ()"),
    "none": (None, *SHAPE, "NoneType"),
    "text": ("abc", *SHAPE, "str"),
    "bytes": (b"abc", *SHAPE, "bytes"),
    "set": ({0, 1}, *SHAPE, "set"),
    "generator": ((x for x in GOOD), *SHAPE, "generator"),
    "object": (object(), *SHAPE, "object"),
    "too-few": ([0, 1], *SHAPE, "shape (2,)"),
    "too-many": ([0, 1, 0, 1], *SHAPE, "shape (4,)"),
    "empty-list": ([], *SHAPE, "shape (0,)"),
    "empty-array": (np.zeros((0, 3), int), *SHAPE, "shape (0, 3)"),
    "no-columns": (np.zeros((3, 0), int), *SHAPE, "shape (3, 0)"),
    "column": ([[0], [1], [0]], *SHAPE, "shape (3, 1)"),
    "too-large": ([0, 2, 0], *RANGE, "env 1", "got 2"),
    "negative": ([0, 0, -1], *RANGE, "env 2", "got -1"),
    "huge": ([2**62, 0, 0], *RANGE, "env 0"),
    "unsigned-huge": (np.array([2**64 - 1, 0, 0], np.uint64), *RANGE, "env 0"),
    "small-type-too-large": (np.array([0, 0, 5], np.uint8), *RANGE, "env 2", "got 5"),
    "fraction": ([0.0, 0.5, 1.0], *RANGE, "env 1", "got 0.5"),
    "nan": ([0.0, np.nan, 1.0], *RANGE, "env 1", "got nan"),
    "inf": ([np.inf, 0.0, 1.0], *RANGE, "env 0", "got inf"),
    "half-precision-fraction": (np.array([0, 0.25, 1], np.float16), *RANGE, "env 1", "got 0.25"),
    "beyond-64-bits": ([2**100, 0, 0], *TYPE, "object"),
    "objects": (np.array([0, 1, 0], object), *TYPE, "object"),
    "none-inside": ([0, None, 0], *TYPE, "object"),
    "texts": (["0", "1", "0"], *TYPE, "<U1"),
    "complex": (np.zeros(3, np.complex64), *TYPE, "complex64"),
    "dates": (np.zeros(3, "M8[s]"), *TYPE, "datetime64"),
    "records": (np.zeros(3, [("a", np.int64)]), *TYPE),
    "ragged": ([[0], [0, 1], 0], errors.ActionTypeError, TypeError, "expected an array", "list"),
    "empty-dict": ({}, *KEYS, "'action'", "[]"),
    "only-ids": ({"env_id": [0, 1, 2]}, *KEYS, "'action'"),
    "misspelt-action": ({"actions": GOOD}, *KEYS, "'action'", "'actions'"),
    "misspelt-ids": ({"action": GOOD[:1], "env_ids": [0]}, *KEYS, "'env_ids'"),
    "dict-in-dict": ({"action": {"action": GOOD}}, *SHAPE, "dict"),
}


@pytest.mark.parametrize("name", BAD_ACTIONS)
def test_a_bad_action_is_refused_and_changes_nothing(pair: tuple[Any, Any], name: str) -> None:
    pool, twin = pair
    action, *expected = BAD_ACTIONS[name]
    assert_refused(pool, lambda: pool.send(action), *expected)
    assert_refused(pool, lambda: pool.step(action), *expected)
    assert_like_twin(pool, twin)


class Hostile:
    """Raises when it is asked to become an array."""

    def __array__(self, *_: Any, **__: Any) -> np.ndarray:
        raise RuntimeError("not today")


def test_an_object_that_refuses_to_become_an_array_is_refused(pair: tuple[Any, Any]) -> None:
    pool, twin = pair
    assert_refused(pool, lambda: pool.send(Hostile()), errors.ActionTypeError, TypeError, "Hostile", "not today")
    assert_refused(pool, lambda: pool.send(GOOD, Hostile()), errors.EnvIdError, IndexError, "Hostile", "not today")
    assert_like_twin(pool, twin)


class Reentrant:
    """Uses the pool while the pool reads it."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self.call = call

    def __array__(self, *_: Any, **__: Any) -> np.ndarray:
        self.call()
        return GOOD


@pytest.mark.parametrize("method", ["recv", "close", "async_reset"])
def test_an_action_cannot_use_the_pool_that_reads_it(pair: tuple[Any, Any], method: str) -> None:
    pool, twin = pair
    with pytest.raises(StepmillError):
        pool.send(Reentrant(getattr(pool, method)))
    assert_like_twin(pool, twin)


# ---- unusual, but right --------------------------------------------------------------------------


def _read_only(values: np.ndarray) -> np.ndarray:
    values.flags.writeable = False
    return values


UNUSUAL_ACTIONS = {
    "list": [0.25, -0.5, 1.0],
    "tuple": (0.25, -0.5, 1.0),
    "float64": np.array([0.25, -0.5, 1.0]),
    "float16": np.array([0.25, -0.5, 1.0], np.float16),
    "long-double": np.array([0.25, -0.5, 1.0], np.longdouble),
    "big-endian": np.array([0.25, -0.5, 1.0], ">f4"),
    "big-endian-double": np.array([0.25, -0.5, 1.0], ">f8"),
    "reversed": np.array([1.0, -0.5, 0.25], np.float32)[::-1],
    "strided": np.array([0.25, 9, -0.5, 9, 1.0, 9], np.float32)[::2],
    "column": np.array([[0.25, 9], [-0.5, 9], [1.0, 9]], np.float32)[:, 0],
    "unaligned": np.frombuffer(b"\0" + np.array([0.25, -0.5, 1.0], np.float32).tobytes(), np.float32, offset=1),
    "read-only": _read_only(np.array([0.25, -0.5, 1.0], np.float32)),
    "memoryview": memoryview(np.array([0.25, -0.5, 1.0], np.float32)),
    "array.array": array.array("f", [0.25, -0.5, 1.0]),
    "masked": np.ma.masked_array(np.array([0.25, -0.5, 1.0], np.float32)),
    "dict": {"action": np.array([0.25, -0.5, 1.0], np.float32)},
    "dict-with-ids": {"action": np.array([0.25, -0.5, 1.0]), "env_id": [0, 1, 2], "players.env_id": [0, 1, 2]},
}


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", UNUSUAL_ACTIONS)
def test_an_unusual_action_is_taken_with_its_values(kind: str, view: str, name: str) -> None:
    with make_probe(kind, view, num_envs=N) as pool:
        pool.reset()
        assert seen(view, pool.step(UNUSUAL_ACTIONS[name])).reward.tolist() == [0.25, -0.5, 1.0]


WHOLE = {
    "floats": np.ones(N),
    "float16": np.ones(N, np.float16),
    "bools": np.ones(N, bool),
    "int8": np.ones(N, np.int8),
    "uint64": np.ones(N, np.uint64),
    "big-endian": np.ones(N, ">i2"),
    "reversed": np.ones(N, np.int64)[::-1],
    "python-bools": [True] * N,
}


@pytest.mark.parametrize("name", WHOLE)
def test_whole_numbers_of_any_type_are_discrete_actions(pair: tuple[Any, Any], name: str) -> None:
    pool, twin = pair
    assert_same(pool.step(WHOLE[name]), twin.step(np.ones(N, np.int64)))


GOOD_IDS = {
    "list": [2, 0],
    "tuple": (2, 0),
    "range": range(2, -1, -2),
    "int8": np.array([2, 0], np.int8),
    "uint64": np.array([2, 0], np.uint64),
    "big-endian": np.array([2, 0], ">i4"),
    "reversed": np.array([0, 2])[::-1],
    "strided": np.array([2, 9, 0, 9])[::2],
    "read-only": _read_only(np.array([2, 0])),
    "numpy-scalars": [np.int32(2), np.uint8(0)],
}


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", GOOD_IDS)
def test_ids_of_any_integer_type_are_taken_in_their_order(kind: str, view: str, name: str) -> None:
    with make_probe(kind, view, num_envs=N) as pool:
        pool.reset()
        batch = seen(view, pool.step([0.5, 0.25], GOOD_IDS[name]))
        assert batch.ids == [2, 0]
        assert batch.reward.tolist() == [0.5, 0.25]
        assert reset_obs(view, pool.reset(GOOD_IDS[name]))[:, 1].tolist() == [0.0, 0.0]


@pytest.mark.torch
@pytest.mark.parametrize("kind", KINDS)
def test_torch_tensors_are_taken_and_checked(kind: str) -> None:
    import torch

    with make_probe(kind, num_envs=N) as pool:
        pool.reset()
        action = torch.tensor([[0.25, 9], [-0.5, 9], [1.0, 9]])[:, 0]
        assert pool.step(action, torch.arange(N))[1].tolist() == [0.25, -0.5, 1.0]
        assert pool.step(action.to(torch.float64))[1].tolist() == [0.25, -0.5, 1.0]
        short, floats, sparse = torch.zeros(2), torch.zeros(N), torch.zeros(N).to_sparse()
        assert_refused(pool, lambda: pool.send(sparse), errors.ActionTypeError, TypeError, "Tensor", "to_dense")
        assert_refused(pool, lambda: pool.send(short), errors.ActionError, ValueError, "(3,)", "(2,)")
        assert_refused(pool, lambda: pool.send(floats, floats), errors.EnvIdError, IndexError, "float32")


# ---- bounds --------------------------------------------------------------------------------------


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("kind", KINDS)
class TestBounds:
    """Box actions outside their bounds."""

    def test_pass_gives_them_to_the_env(self, kind: str, view: str) -> None:
        with make_probe(kind, view, num_envs=N, action_bounds="pass") as pool:
            pool.reset()
            assert seen(view, pool.step([3.0, -4.0, np.inf])).reward.tolist() == [3.0, -4.0, np.inf]

    def test_clip_brings_them_to_the_bound(self, kind: str, view: str) -> None:
        with make_probe(kind, view, num_envs=N, action_bounds="clip") as pool:
            pool.reset()
            assert seen(view, pool.step([3.0, -np.inf, 0.5])).reward.tolist() == [1.0, -1.0, 0.5]
            assert seen(view, pool.step(np.array([3, -7, 0]))).reward.tolist() == [1.0, -1.0, 0.0]

    def test_error_refuses_them(self, kind: str, view: str) -> None:
        with make_probe(kind, view, num_envs=N, action_bounds="error") as pool:
            pool.reset()
            for action in ([0, 1.5, 0], [0, np.inf, 0], np.array([0, 2, 0])):
                expected = (errors.ActionError, ValueError, "env 1", "a number in [-1, 1]")
                assert_refused(pool, lambda action=action: pool.send(action), *expected)
            assert seen(view, pool.step([1.0, -1.0, 0.0])).reward.tolist() == [1.0, -1.0, 0.0]

    @pytest.mark.parametrize("bounds", ["pass", "clip", "error"])
    def test_nan_and_what_the_type_cannot_hold_are_refused(self, kind: str, view: str, bounds: str) -> None:
        with make_probe(kind, view, num_envs=N, action_bounds=bounds) as pool:
            pool.reset()
            for dtype in (np.float16, np.float32, np.float64):
                action = np.array([0, 0, np.nan], dtype)
                assert_refused(pool, lambda a=action: pool.send(a), errors.ActionError, ValueError, "env 2", "got nan")
            if bounds == "pass":
                expected = (errors.ActionError, ValueError, "env 0", "float32 can hold", "1e+300")
                assert_refused(pool, lambda: pool.send([1e300, 0, 0]), *expected)


SIZE = 24
LOW, HIGH = np.exp(np.random.default_rng(7).normal(0.0, 3.0, (2, SIZE))) * [[-1.0], [1.0]]  # float32 has none of them
BOUNDED_SPEC = f"""
    const std::vector<double> low{{{str(LOW.tolist())[1:-1]}}}, high{{{str(HIGH.tolist())[1:-1]}}};
    spec.action_tree = spec.observation_tree = Tree::kTuple;
    spec.action = {{box<float>({{{SIZE}}}, low, high), box<float>({{{SIZE}}}, low, high)}};
    spec.action[1].dtype = DType::kFloat16;
    spec.observation = spec.action;
"""
BOUNDED_STEP = f"""
    for (int i = 0; i < {SIZE}; ++i) wide_[i] = action.get<float>(0)[i], half_[i] = action.get<std::uint16_t>(1)[i];
    return {{0.0, false, false}};
"""
BOUNDED_OBSERVE = f"""
    for (int i = 0; i < {SIZE}; ++i) row.observation<float>(0)[i] = wide_[i];
    for (int i = 0; i < {SIZE}; ++i) row.observation<std::uint16_t>(1)[i] = half_[i];
"""


class BoundedEnv(gymnasium.Env[Any, Any]):
    """Shows its action, like the class above."""

    observation_space = action_space = spaces.Tuple(
        [spaces.Box(LOW.astype(dtype), HIGH.astype(dtype), dtype=dtype) for dtype in (np.float32, np.float16)]
    )

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        return self.action_space.sample(), {}

    def step(self, action: Any) -> Any:
        return action, 0.0, False, False, {}


@pytest.fixture(scope="module")
def bounded(tmp_path_factory: pytest.TempPathFactory, one_cache: None) -> str:
    if shutil.which("g++") is None:
        pytest.skip("needs g++")
    members = f"float wide_[{SIZE}]{{}}; std::uint16_t half_[{SIZE}]{{}};"
    path = tmp_path_factory.mktemp("bounded") / "own.h"
    return own_env(path, spec=BOUNDED_SPEC, step=BOUNDED_STEP, observe=BOUNDED_OBSERVE, members=members)


@pytest.mark.parametrize("backend", ["thread", "process", "inline", "python-process", "python-inline"])
def test_bounds_are_those_of_the_space(bounded: str, backend: str) -> None:
    """Its own, in its type: 0.4 in float32 is more than 0.4."""
    task = BoundedEnv if backend.startswith("python-") else bounded
    make = partial(stepmill.make, task, num_envs=1, backend=backend.removeprefix("python-"))
    with make(action_bounds="error") as strict, make(action_bounds="clip") as clipped:
        strict.reset()
        clipped.reset()
        low, high = ([getattr(box, end)[None] for box in strict.single_action_space] for end in ("low", "high"))
        for ends, given, away in ((low, LOW, -np.inf), (high, HIGH, np.inf)):
            for pool in (strict, clipped):
                assert_same(list(pool.step(tuple(ends))[0]), ends)
                assert_same(list(pool.step((given[None], given[None]))[0]), ends)  # which rounds to the bound
            beyond = [np.nextafter(end, end.dtype.type(away)) for end in ends]
            assert_same(list(clipped.step(tuple(beyond))[0]), ends)
            for part in range(2):
                for element in range(SIZE):
                    action = [end.copy() for end in ends]
                    action[part][0, element] = beyond[part][0, element]
                    words = f"env 0, element {element}: expected a number in ["
                    assert_refused(
                        strict, lambda a=action: strict.send(tuple(a)), errors.ActionError, ValueError, words
                    )


# ---- spaces of many parts ------------------------------------------------------------------------


# A part for every kind of leaf.
MIXED = spaces.Dict(
    {
        "box": spaces.Box(-1.5, 0.5, (2,), np.float32),
        "half": spaces.Box(-np.inf, np.inf, (), np.float16),
        "byte": spaces.Box(0, 255, (2,), np.uint8),
        "choice": spaces.Discrete(3, start=-1),
        "many": spaces.MultiDiscrete([2, 3]),
        "bits": spaces.MultiBinary(2),
        "pair": spaces.Tuple([spaces.Discrete(2), spaces.Box(-1, 1, (1,), np.float64)]),
    }
)


def mixed() -> EchoEnv:
    return EchoEnv(MIXED)


def mixed_action(count: int | None, **parts: Any) -> dict[str, Any]:
    """A good action for ``count`` envs (None: for one, without a batch), but for ``parts``."""
    lead = () if count is None else (count,)
    good = {
        "box": np.full((*lead, 2), 0.25, np.float32),
        "half": np.full(lead, 0.5, np.float16),
        "byte": np.full((*lead, 2), 200, np.uint8),
        "choice": np.full(lead, -1),
        "many": np.full((*lead, 2), 1),
        "bits": np.full((*lead, 2), 1, np.int8),
        "pair": (np.full(lead, 1), np.full((*lead, 1), 0.75)),
    }
    return {**good, **parts}


BAD_PARTS = {
    "wrong-width": ({"box": np.zeros((2, 3))}, "'box'", "(2, 2)", "(2, 3)"),
    "nan": ({"box": [[0, 0], [0, np.nan]]}, "'box'", "env 1", "element 1", "nan"),
    "too-large-for-float16": ({"half": [1e5, 0]}, "'half'", "env 0", "float16", "100000"),
    "too-large-for-float32-too": ({"half": [0, 1e300]}, "'half'", "env 1", "1e+300"),
    "too-large-for-byte": ({"byte": [[0, 256], [0, 0]]}, "'byte'", "env 0", "element 1", "uint8", "256"),
    "negative-byte": ({"byte": [[0, 0], [-1, 0]]}, "'byte'", "env 1", "-1"),
    "fraction-of-a-byte": ({"byte": [[0, 0], [0.5, 0]]}, "'byte'", "env 1", "0.5"),
    "choice": ({"choice": [0, 2]}, "'choice'", "env 1", "[-1, 1]", "got 2"),
    "many": ({"many": [[0, 0], [0, 3]]}, "'many'", "env 1", "element 1", "[0, 2]", "got 3"),
    "bits": ({"bits": [[0, 2], [0, 0]]}, "'bits'", "env 0", "got 2"),
    "pair-too-short": ({"pair": ([0, 0],)}, "tuple of 2 parts"),
    "pair-no-tuple": ({"pair": 5}, "tuple of 2 parts", "int"),
    "pair-part": ({"pair": ([0, 5], np.zeros((2, 1)))}, "env 1", "[0, 1]", "got 5"),
    "extra-key": ({"bogus": 1}, "expected only the keys", "'bogus'"),
}


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("name", BAD_PARTS)
def test_a_bad_part_is_named_and_refused(view: str, name: str) -> None:
    parts, *words = BAD_PARTS[name]
    with stepmill.make(mixed, view, num_envs=2, backend="inline") as pool:
        pool.reset()
        assert_refused(pool, lambda: pool.send(mixed_action(2, **parts)), errors.ActionError, ValueError, *words)
        assert_same(seen(view, pool.step(mixed_action(2))).obs, mixed_action(2))


@pytest.mark.parametrize("view", VIEWS)
def test_a_missing_part_is_named_and_refused(view: str) -> None:
    with stepmill.make(mixed, view, num_envs=2, backend="inline") as pool:
        pool.reset()
        action = mixed_action(2)
        del action["choice"]
        assert_refused(pool, lambda: pool.send(action), errors.ActionError, ValueError, "got one without 'choice'")
        assert_refused(pool, lambda: pool.send(GOOD), errors.ActionError, ValueError, "dict with the keys", "'box'")


def test_the_env_named_is_the_env_that_was_sent_to() -> None:
    with stepmill.make(mixed, num_envs=3, backend="inline") as pool:
        pool.reset()
        for parts in ({"choice": [5, 0]}, {"half": [1e5, 0]}, {"box": [[np.nan, 0], [0, 0]]}):
            action = mixed_action(2, **parts)
            assert_refused(pool, lambda a=action: pool.send(a, [2, 0]), errors.ActionError, ValueError, "env 2")


def test_clipping_reaches_the_bound_itself_for_whole_numbers_too() -> None:
    with stepmill.make(mixed, num_envs=2, backend="inline", action_bounds="clip") as pool:
        pool.reset()
        obs = pool.step(mixed_action(2, box=np.array([[-9, 9], [0, -1]])))[0]
        assert obs["box"].tolist() == [[-1.5, 0.5], [0.0, -1.0]]


@pytest.mark.parametrize("batch_size", [2, 1], ids=["sync", "async"])
@pytest.mark.parametrize("view", VIEWS)
def test_actions_that_are_python_objects_are_checked_before_they_are_queued(view: str, batch_size: int) -> None:
    with stepmill.make(
        lambda: EchoEnv(spaces.Text(5)), view, num_envs=2, batch_size=batch_size, backend="inline"
    ) as pool:
        pool.async_reset()
        while pool.stats()["in_flight"]:
            batch = seen(view, pool.recv())
        ids = batch.ids
        for action in (["a"] * (len(ids) + 1), "ab", 5, None, ["much too long"] * len(ids), [1] * len(ids)):
            assert_refused(pool, lambda a=action: pool.send(a), errors.ActionError, ValueError, "Text", "got")
        assert_refused(pool, lambda: pool.send(["a"], [2]), errors.EnvIdError, IndexError, "2")
        batch = seen(view, pool.step(["ab", "cd"][: len(ids)]))
        assert (batch.ids, list(batch.obs)) == (ids, ["ab", "cd"][: len(ids)])


class Raises:
    """An array that cannot be had."""

    def __init__(self, error: type[BaseException] | BaseException) -> None:
        self.error = error

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        raise self.error

    __float__ = __index__ = __array__


# ---- code of the user that reads an action runs --------------------------------------------------


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


class Keyless(dict[str, Any]):
    def keys(self) -> Any:
        raise RuntimeError("a dict's own keys are asked")


@pytest.mark.parametrize(
    ("action", "message"),
    [
        ({"a": 3, "b": [0]}, r"action\['a'\]: expected an empty dict, got an int"),
        ({"a": {"c": 1}, "b": [0]}, r"action\['a'\]: expected an empty dict, got \['c'\]"),
        ({"a": Keyless(c=1), "b": [0]}, r"action\['a'\]: expected an empty dict, got \['c'\]"),
        (Keyless(b=[0]), "expected a dict with the keys 'a', 'b', got one without 'a'"),
        (Keyless(a={}, b=[0], c=1), r"expected only the keys 'a', 'b'.* got the keys \['a', 'b', 'c'\]"),
    ],
)
def test_dicts_of_another_shape_are_refused_with_both(action: Any, message: str) -> None:
    env = env_of(spaces.Dict(a=spaces.Dict(), b=spaces.Discrete(2)))
    with stepmill.make(env, backend="inline") as pool:
        pool.reset()
        with pytest.raises(errors.ActionError, match=message):
            pool.step(action)
        assert pool.step({"a": {}, "b": [1]})[-1]["got"]["b"] == [1]


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


@pytest.mark.parametrize("error", [ZeroDivisionError, ValueError, TypeError])
def test_other_errors_are_told_in_our_words_with_their_own(error: type[Exception]) -> None:
    bad = Raises(error)
    with stepmill.make("Pendulum-v1") as pool:
        pool.reset()
        for call, kind in (
            (lambda: pool.step(bad), errors.ActionTypeError),
            (lambda: pool.step([[0.0]], bad), errors.EnvIdError),
            (lambda: pool.reset(bad), errors.EnvIdError),
        ):
            with pytest.raises(kind, match=f"numpy cannot read: {error.__name__}") as caught:
                call()
            cause = caught.value.__cause__
            assert type(cause) is error
            assert [one.name for one in traceback.extract_tb(cause.__traceback__)] == ["__array__"]


class MuteError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


@pytest.mark.parametrize(("error", "said"), [(MuteError, "MuteError"), (partial(ValueError, ""), "ValueError")])
def test_errors_without_words_are_told_by_their_type(error: Any, said: str) -> None:
    with stepmill.make("Pendulum-v1") as pool:
        pool.reset()
        for call, kind in (
            (lambda: pool.step(Raises(error())), errors.ActionTypeError),
            (lambda: pool.step([[0.0]], Raises(error())), errors.EnvIdError),
        ):
            with pytest.raises(kind, match=f"numpy cannot read: {said}$") as caught:
                call()
            assert type(caught.value.__cause__).__name__ == said


def test_no_memory_for_an_action_is_a_memory_error() -> None:
    huge = np.broadcast_to(np.float32(0), (2**60,))
    with stepmill.make("Pendulum-v1") as pool:
        pool.reset()
        for call in (lambda: pool.send(huge), lambda: pool.send([[0.0]], Raises(MemoryError))):
            with pytest.raises(MemoryError):
                call()
        assert pool.step([[0.0]])[1].shape == (1,)


def test_an_array_that_numpy_cannot_read_is_described() -> None:
    """Which calls Python, and that must not see the error."""

    class Unread(np.ndarray):
        def __array_finalize__(self, other: Any) -> None:
            if refuses:
                raise ValueError("not a copy")

    refuses = False
    array = np.zeros((1, 1), ">f4").view(Unread)
    refuses = True
    with stepmill.make("Pendulum-v1") as pool:
        pool.reset()
        with pytest.raises(errors.ActionTypeError, match=r"an array of shape .1, 1. and dtype >f4 that numpy"):
            pool.send(array)
