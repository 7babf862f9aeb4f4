"""A bad call changes nothing.

The right error says what was expected and what came, and the pool goes on as a twin that never saw the call.
Inputs that are only unusual are taken, with their values.
"""

from __future__ import annotations

import array
from collections.abc import Callable, Iterator
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import stepmill
from stepmill import StepmillError, errors
from support.probes import KINDS, VIEWS, ProbeTwin, assert_equal, make_probe, reset_obs, seen, thread_count
from support.subprocesses import run, run_well

TASKS = {"native": "CartPole-v1", "python": "gymnasium:CartPole-v1"}
BACKENDS = {"native": "thread", "python": "inline"}
N = 3
GOOD = np.array([0, 1, 0])


@pytest.fixture(params=[(kind, view) for kind in KINDS for view in VIEWS], ids="-".join)
def pair(request: pytest.FixtureRequest) -> Iterator[tuple[Any, Any]]:
    """A pool and its twin, both reset, each on its way."""
    kind, view = request.param
    pools = [stepmill.make(TASKS[kind], view, num_envs=N, seed=7, backend=BACKENDS[kind]) for _ in range(2)]
    for pool in pools:
        pool.reset()
        pool.step(GOOD)
    yield pools[0], pools[1]
    for pool in pools:
        pool.close()


def counts(pool: Any) -> dict[str, Any]:
    """What only a call of ours changes, and not time or a thread that is done."""
    return {key: value for key, value in pool.stats().items() if key not in ("step_cost_ns", "steps_per_second")}


def assert_refused(
    pool: Any, call: Callable[[], Any], error: type[Exception], standard: type[Exception], *words: str
) -> None:
    """The call raises, says what the words say, and leaves everything in flight as it was."""
    before = counts(pool)
    with pytest.raises(error) as caught:
        call()
    assert isinstance(caught.value, StepmillError)
    assert isinstance(caught.value, standard)
    for word in words:
        assert word in str(caught.value)
    assert counts(pool) == before


def assert_like_twin(pool: Any, twin: Any) -> None:
    for action in (GOOD, 1 - GOOD, GOOD):
        assert_equal(pool.step(action), twin.step(action))


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
    assert_refused(pool, lambda: pool.send(GOOD, Hostile()), errors.EnvIdError, IndexError, "Hostile")
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


# ---- ids -----------------------------------------------------------------------------------------

ID = (errors.EnvIdError, IndexError)
NOT_IDS = (*ID, "expected a 1-d array of integers")

BAD_IDS = {
    "out-of-range": ([3], *ID, "env_id 3", "[0, 3)"),
    "far-out": ([2**31], *ID, "env_id 2147483648", "[0, 3)"),
    "farther-out": ([2**32], *ID, "env_id 4294967296", "[0, 3)"),
    "unsigned": (np.array([2**64 - 1], np.uint64), *ID, "out of range [0, 3)"),
    "beyond-64-bits": ([2**70], *NOT_IDS, "object"),
    "negative": ([-1], *ID, "env_id -1", "[0, 3)"),
    "repeated": ([1, 1], *ID, "env_id 1 is given twice"),
    "too-many": ([0, 1, 2, 0], *ID, "expected at most 3", "got 4"),
    "far-too-many": (np.zeros(10_000, int), *ID, "expected at most 3", "got 10000"),
    "none": ([], *ID, "expected at least one"),
    "scalar": (0, *NOT_IDS, "shape ()"),
    "0-d": (np.array(0), *NOT_IDS, "shape ()"),
    "2-d": ([[0, 1, 2]], *NOT_IDS, "shape (1, 3)"),
    "floats": ([0.0], *NOT_IDS, "float64"),
    "nan": ([np.nan], *NOT_IDS, "float64"),
    "bools": ([True, False, True], *NOT_IDS, "bool"),
    "texts": (["0"], *NOT_IDS, "<U1"),
    "text": ("0", *NOT_IDS, "shape ()"),
    "none-inside": ([None], *NOT_IDS, "object"),
    "objects": (np.array([0], object), *NOT_IDS, "object"),
    "complex": ([0j], *NOT_IDS, "complex128"),
    "ragged": ([[0], [0, 1]], *ID, "expected an array or a list of env ids", "list"),
    "dict": ({"env_id": [0]}, *NOT_IDS, "shape ()"),
}


@pytest.mark.parametrize("name", BAD_IDS)
def test_bad_ids_are_refused_and_change_nothing(pair: tuple[Any, Any], name: str) -> None:
    pool, twin = pair
    ids, *expected = BAD_IDS[name]
    try:
        count = len(ids)
    except TypeError:
        count = 1
    action = np.zeros(count, int)
    assert_refused(pool, lambda: pool.send(action, ids), *expected)
    assert_refused(pool, lambda: pool.step(action, ids), *expected)
    assert_refused(pool, lambda: pool.send({"action": action, "env_id": ids}), *expected)
    assert_refused(pool, lambda: pool.reset(ids), *expected)
    assert_like_twin(pool, twin)


def test_a_row_for_each_id_is_asked_for(pair: tuple[Any, Any]) -> None:
    pool, twin = pair
    assert_refused(pool, lambda: pool.send(GOOD, [0, 1]), errors.ActionError, ValueError, "(2,)", "(3,)")
    assert_refused(pool, lambda: pool.send([0], [0, 1]), errors.ActionError, ValueError, "(2,)", "(1,)")
    assert_like_twin(pool, twin)


def test_ids_given_twice_are_refused(pair: tuple[Any, Any]) -> None:
    pool, twin = pair
    both = {"action": GOOD, "env_id": [0, 1, 2]}
    assert_refused(pool, lambda: pool.send(both, [0, 1, 2]), errors.ActionError, ValueError, "given twice")
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
    assert_equal(pool.step(WHOLE[name]), twin.step(np.ones(N, np.int64)))


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
        graph = torch.zeros(N, requires_grad=True)
        assert_refused(pool, lambda: pool.send(graph), errors.ActionTypeError, TypeError, "Tensor", "requires grad")
        short, floats = torch.zeros(2), torch.zeros(N)
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


# ---- spaces of many parts ------------------------------------------------------------------------


class Mixed(gymnasium.Env[Any, Any]):
    """Takes an action of every kind of leaf and shows it as its observation."""

    action_space = spaces.Dict(
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
    observation_space = action_space

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict]:
        return {**mixed_action(None), "pair": (0, np.zeros(1))}, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict]:
        return action, 0.0, False, False, {}


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
    with stepmill.make(Mixed, view, num_envs=2, backend="inline") as pool:
        pool.reset()
        assert_refused(pool, lambda: pool.send(mixed_action(2, **parts)), errors.ActionError, ValueError, *words)
        assert_equal(seen(view, pool.step(mixed_action(2))).obs, mixed_action(2))


@pytest.mark.parametrize("view", VIEWS)
def test_a_missing_part_is_named_and_refused(view: str) -> None:
    with stepmill.make(Mixed, view, num_envs=2, backend="inline") as pool:
        pool.reset()
        action = mixed_action(2)
        del action["choice"]
        assert_refused(pool, lambda: pool.send(action), errors.ActionError, ValueError, "'choice' is missing")
        assert_refused(pool, lambda: pool.send(GOOD), errors.ActionError, ValueError, "dict with the keys", "'box'")


def test_the_env_named_is_the_env_that_was_sent_to() -> None:
    with stepmill.make(Mixed, num_envs=3, backend="inline") as pool:
        pool.reset()
        for parts in ({"choice": [5, 0]}, {"half": [1e5, 0]}, {"box": [[np.nan, 0], [0, 0]]}):
            action = mixed_action(2, **parts)
            assert_refused(pool, lambda a=action: pool.send(a, [2, 0]), errors.ActionError, ValueError, "env 2")


def test_clipping_reaches_the_bound_itself_for_whole_numbers_too() -> None:
    with stepmill.make(Mixed, num_envs=2, backend="inline", action_bounds="clip") as pool:
        pool.reset()
        obs = pool.step(mixed_action(2, box=np.array([[-9, 9], [0, -1]])))[0]
        assert obs["box"].tolist() == [[-1.5, 0.5], [0.0, -1.0]]


class Talking(gymnasium.Env[Any, Any]):
    """Its actions are words, which no array carries."""

    action_space = spaces.Text(5)
    observation_space = spaces.Text(5)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[str, dict]:
        return "start", {}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict]:
        return action, 0.0, False, False, {}


@pytest.mark.parametrize("batch_size", [2, 1], ids=["sync", "async"])
@pytest.mark.parametrize("view", VIEWS)
def test_actions_that_are_python_objects_are_checked_before_they_are_queued(view: str, batch_size: int) -> None:
    with stepmill.make(Talking, view, num_envs=2, batch_size=batch_size, backend="inline") as pool:
        pool.async_reset()
        while pool.stats()["in_flight"]:
            batch = seen(view, pool.recv())
        ids = batch.ids
        for action in (["a"] * (len(ids) + 1), "ab", 5, None, ["much too long"] * len(ids), [1] * len(ids)):
            assert_refused(pool, lambda a=action: pool.send(a), errors.ActionError, ValueError, "Text", "got")
        assert_refused(pool, lambda: pool.send(["a"], [2]), errors.EnvIdError, IndexError, "2")
        batch = seen(view, pool.step(["ab", "cd"][: len(ids)]))
        assert (batch.ids, list(batch.obs)) == (ids, ["ab", "cd"][: len(ids)])


# ---- at the wrong time ---------------------------------------------------------------------------


def test_recv_with_nothing_in_flight_is_refused(pair: tuple[Any, Any]) -> None:
    pool, twin = pair
    for call in (pool.recv, lambda: pool.recv(0), lambda: pool.recv(timeout=1e300)):
        assert_refused(pool, call, errors.NothingInFlightError, RuntimeError, "nothing in flight")
    assert_like_twin(pool, twin)


BAD_TIMEOUTS = [-1, -0.001, float("-inf"), float("nan"), "1", "soon", [1], 1j, object(), -(10**400)]


@pytest.mark.parametrize("timeout", BAD_TIMEOUTS, ids=lambda one: repr(one)[:12])
def test_a_bad_timeout_is_refused(pair: tuple[Any, Any], timeout: Any) -> None:
    pool, twin = pair
    for in_flight in (0, N):
        if in_flight:
            pool.send(GOOD)
        assert_refused(pool, lambda: pool.recv(timeout), errors.InputError, ValueError, "expected seconds >= 0")
    assert_equal(pool.recv(), twin.step(GOOD))


@pytest.mark.parametrize("timeout", [None, 60, 60.0, np.float32(60), float("inf"), 1e300, True])
def test_a_good_timeout_is_taken(pair: tuple[Any, Any], timeout: Any) -> None:
    pool, twin = pair
    pool.send(GOOD)
    assert_equal(pool.recv(timeout), twin.step(GOOD))


def test_an_env_in_flight_takes_no_second_action(pair: tuple[Any, Any]) -> None:
    pool, twin = pair
    pool.send(GOOD)
    refused = (errors.InFlightError, RuntimeError)
    assert_refused(pool, lambda: pool.send(GOOD), *refused, "env 0 is in flight")
    assert_refused(pool, lambda: pool.step(GOOD), *refused, "env 0 is in flight")
    assert_refused(pool, lambda: pool.send([1], [2]), *refused, "env 2 is in flight")
    assert_refused(pool, lambda: pool.reset([1]), *refused, "env 1 is in flight")
    assert_refused(pool, lambda: pool.reset(options={"reset_mask": np.ones(N, bool)}), *refused)
    assert_refused(pool, pool.async_reset, *refused, "env 0 is in flight")
    assert_equal(pool.recv(), twin.step(GOOD))
    assert_like_twin(pool, twin)


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("kind", KINDS)
def test_no_reset_of_idle_envs_while_others_are_in_flight_in_sync(kind: str, view: str) -> None:
    with make_probe(kind, view, num_envs=N) as pool:
        pool.reset()
        pool.send([0.5], [1])
        assert_refused(pool, lambda: pool.reset([0]), errors.InFlightError, RuntimeError, "in flight")
        assert seen(view, pool.recv()).ids == [1]


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("kind", KINDS)
def test_with_autoreset_off_an_ended_env_takes_only_a_reset(kind: str, view: str) -> None:
    with make_probe(kind, view, num_envs=N, length=1, autoreset="disabled") as pool:
        pool.reset()
        pool.step([0.0], [1])
        refused = (errors.NeedsResetError, RuntimeError, "env 1", "reset(env_id=[1])")
        assert_refused(pool, lambda: pool.send([0.0] * N), *refused)
        assert_refused(pool, lambda: pool.step([0.0], [1]), *refused)
        pool.reset([1])
        assert seen(view, pool.step([0.5] * N)).done.tolist() == [True] * N


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("kind", KINDS)
def test_in_async_a_send_without_ids_needs_a_batch_before_it(kind: str, view: str) -> None:
    with make_probe(kind, view, num_envs=N, batch_size=2) as pool:
        assert_refused(pool, lambda: pool.send([0.0]), errors.EnvIdError, IndexError, "last recv()")
        if view == "gym":
            assert_refused(pool, pool.reset, errors.UnsupportedError, NotImplementedError, "async_reset()")
        pool.async_reset()
        assert len(seen(view, pool.recv()).ids) == 2


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("kind", KINDS)
def test_ten_sends_without_recv(kind: str, view: str) -> None:
    with make_probe(kind, view, num_envs=N, batch_size=1) as pool:
        pool.send([0.0] * N, range(N))
        for _ in range(10):
            assert_refused(pool, lambda: pool.send([0.0], [0]), errors.InFlightError, RuntimeError, "env 0")
        assert sorted(seen(view, pool.recv()).ids[0] for _ in range(N)) == list(range(N))


@pytest.mark.parametrize("in_flight", [False, True], ids=["idle", "in-flight"])
@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_closed_pool_refuses_everything_but_close(kind: str, view: str, in_flight: bool) -> None:
    pool = stepmill.make(TASKS[kind], view, num_envs=N, backend=BACKENDS[kind])
    pool.reset()
    if in_flight:
        pool.send(GOOD)
    pool.close()
    calls = [
        lambda: pool.send(GOOD),
        lambda: pool.send(None, [99]),
        lambda: pool.step(GOOD),
        lambda: pool.recv(),
        lambda: pool.recv("soon"),
        lambda: pool.reset(),
        lambda: pool.reset([99], seed=-1),
        lambda: pool.async_reset(seed=-1),
        lambda: pool.get_attr("gravity"),
        lambda: pool.set_attr("gravity", 1.0),
        lambda: pool.render(),
        lambda: pool.stats(),
    ]
    for call in calls:
        with pytest.raises(errors.ClosedError, match="closed") as caught:
            call()
        assert isinstance(caught.value, RuntimeError)
    pool.close()
    assert pool.closed
    assert "closed" in repr(pool)


# ---- reset ---------------------------------------------------------------------------------------

SEED = (StepmillError, ValueError, "seed: expected")

BAD_RESETS = {
    "seed-bool": ({"seed": True}, *SEED, "True"),
    "seed-negative": ({"seed": -1}, *SEED, "-1"),
    "seed-too-large": ({"seed": 2**63}, *SEED, str(2**63)),
    "seed-too-large-for-the-last": ({"seed": 2**63 - 2}, *SEED),
    "seed-fraction": ({"seed": 1.5}, *SEED, "1.5"),
    "seed-text": ({"seed": "abc"}, *SEED, "'a'"),
    "seed-dict": ({"seed": {0: 1}}, *SEED),
    "seeds-too-few": ({"seed": [1, 2]}, *SEED, "3 seeds", "got 2"),
    "seeds-too-many": ({"seed": [1, 2, 3, 4]}, *SEED, "3 seeds", "got 4"),
    "seeds-for-other-envs": ({"env_id": [0], "seed": [1, 2]}, *SEED, "1 seeds", "got 2"),
    "seeds-one-bad": ({"seed": [1, -2, 3]}, *SEED, "-2"),
    "seeds-floats": ({"seed": np.ones(3)}, *SEED, "1.0"),
    "options-list": ({"options": [1]}, errors.ResetOptionError, ValueError, "a list of dicts", "got 1"),
    "mask-list": ({"options": {"reset_mask": [True] * 3}}, errors.ResetOptionError, ValueError, "bool array"),
    "mask-ints": ({"options": {"reset_mask": np.ones(3, int)}}, errors.ResetOptionError, ValueError, "int64"),
    "mask-short": ({"options": {"reset_mask": np.ones(2, bool)}}, errors.ResetOptionError, ValueError, "(3,)", "(2,)"),
    "mask-none": ({"options": {"reset_mask": np.zeros(3, bool)}}, errors.ResetOptionError, ValueError, "without any"),
    "mask-and-ids": (
        {"env_id": [0], "options": {"reset_mask": np.ones(3, bool)}},
        errors.ResetOptionError,
        ValueError,
        "got both",
    ),
}


@pytest.mark.parametrize("name", BAD_RESETS)
def test_a_bad_reset_is_refused_and_changes_nothing(pair: tuple[Any, Any], name: str) -> None:
    pool, twin = pair
    arguments, *expected = BAD_RESETS[name]
    assert_refused(pool, lambda: pool.reset(**arguments), *expected)
    if "env_id" not in arguments and "reset_mask" not in (arguments.get("options") or ()):
        assert_refused(pool, lambda: pool.async_reset(**arguments), *expected)
    assert_like_twin(pool, twin)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"lwo": -0.1}, ["unknown reset option 'lwo'", "low, high"]),
        ({5: 1}, ["unknown reset option '5'"]),
        ({"low": "x"}, ["'low'", "expected a number", "str"]),
        ({"low": np.nan}, ["'low'", "expected a number", "nan"]),
        ({"low": None}, ["'low'", "expected a number", "NoneType"]),
        ({"low": 1.0, "high": -1.0}, []),
    ],
    ids=str,
)
@pytest.mark.parametrize("view", VIEWS)
def test_a_native_env_refuses_options_that_it_does_not_take(view: str, options: dict, words: list[str]) -> None:
    with (
        stepmill.make("CartPole-v1", view, num_envs=N) as pool,
        stepmill.make("CartPole-v1", view, num_envs=N) as twin,
    ):
        pool.reset()
        twin.reset()
        assert_refused(pool, lambda: pool.reset(options=options), errors.ResetOptionError, ValueError, *words)
        assert_refused(pool, lambda: pool.async_reset(options=options), errors.ResetOptionError, ValueError, *words)
        assert_like_twin(pool, twin)


def test_the_options_of_the_caller_stay_as_they_were(pair: tuple[Any, Any]) -> None:
    pool, _ = pair
    options = {"reset_mask": np.array([True, False, True])}
    pool.reset(options=options)
    assert list(options) == ["reset_mask"]
    assert options["reset_mask"].tolist() == [True, False, True]


# ---- make ----------------------------------------------------------------------------------------

CONFIG = (errors.ConfigError, ValueError)
UNSUPPORTED = (errors.UnsupportedError, NotImplementedError)


def _case(*expected: Any, **arguments: Any) -> Any:
    text = ",".join(f"{key}={value!r:.20}" for key, value in arguments.items())
    return pytest.param(arguments, expected, id=text)


BAD_SETTINGS = [
    *(
        _case(*CONFIG, f"{name}: expected a whole number", repr(value), **{name: value})
        for name, values in {
            "num_envs": [0, -1, 2**40, 1.5, True, "2", None, [2], np.nan],
            "batch_size": [0, -1, 3, 1.5, True, "2"],
            "num_threads": [-1, 1.5, True, "2", 2**40],
            "seed": [True, -1, 2**63, 1.5, None, np.nan],
            "max_episode_steps": [0, -1, 1.5, True, 2**40, "3"],
            "max_num_players": [0, -1, 1.5, True],
            "max_restarts": [-1, 2**16, 0.5, "inf", True],
            "thread_affinity_offset": [-2, 0.5, None],
        }.items()
        for value in values
    ),
    _case(*CONFIG, "below 2**63", seed=2**63 - 1),
    _case(*CONFIG, "list of 2 seeds", "got 1", seed=[1]),
    _case(*CONFIG, "list of 2 seeds", "got 3", seed=(1, 2, 3)),
    _case(*CONFIG, "seed: expected a whole number", "None", seed=[1, None]),
    _case(*CONFIG, "seed: expected a whole number", "-1", seed=[1, -1]),
    *(
        _case(*CONFIG, f"{name}: expected one of", repr(value), **{name: value})
        for name in ("backend", "autoreset", "on_error", "action_bounds", "output", "env_type")
        for value in ("bogus", None, 1, ["pass"])
    ),
    _case(*CONFIG, "backend: expected one of", backend=np.array(["thread", "inline"])),
    *(_case(*CONFIG, "start_timeout: expected seconds > 0", start_timeout=v) for v in (0, -1, np.nan, "x", None, True)),
    _case(*UNSUPPORTED, "step_timeout", step_timeout=1.0, backend="inline"),
    _case(*UNSUPPORTED, "reset_timeout", reset_timeout=1.0, backend="inline"),
    _case(*UNSUPPORTED, "num_workers", num_workers=2, backend="inline"),
    _case(errors.StepmillError, Exception, "max_num_players", max_num_players=2),
    _case(*CONFIG, "env_config: expected a list of dicts", env_config={}),
    _case(*CONFIG, "env_config: expected 2 dicts", "got 1", env_config=[{}]),
    _case(*CONFIG, "env_config[1]: expected a dict", "5", env_config=[{}, 5]),
    _case(errors.UnknownConfigError, KeyError, "'bogus'", "Known keys", bogus=1),
    _case(errors.UnknownConfigError, KeyError, "'sutton_barto'", "did you mean", sutton_barto=True),
    _case(errors.UnknownConfigError, KeyError, "'bogus'", env_config=[{}, {"bogus": 1}]),
    _case(errors.UnknownConfigError, KeyError, "5", env_config=[{}, {5: 1}]),
]


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("arguments", "expected"), BAD_SETTINGS)
def test_make_refuses_what_cannot_be(kind: str, view: str, arguments: dict[str, Any], expected: tuple) -> None:
    error, standard, *words = expected
    before = thread_count()
    with pytest.raises(error) as caught:
        stepmill.make(TASKS[kind], **{"env_type": view, "num_envs": 2, **arguments})
    assert isinstance(caught.value, StepmillError)
    assert isinstance(caught.value, standard)
    for word in words:
        assert word in str(caught.value)
    assert thread_count() == before


def five() -> int:
    return 5


@pytest.mark.parametrize(
    ("task", "error", "standard", "words"),
    [
        ("CartPole-v9", errors.UnknownEnvError, KeyError, ["'CartPole-v9'", "did you mean", "CartPole-v1"]),
        ("cartpole", errors.UnknownEnvError, KeyError, ["'cartpole'"]),
        ("", errors.UnknownEnvError, KeyError, ["unknown env id ''"]),
        ("no_such_module:CartPole-v1", errors.UnknownEnvError, KeyError, ["no_such_module"]),
        (".relative:CartPole-v1", errors.UnknownEnvError, KeyError, [".relative"]),
        (":", errors.UnknownEnvError, KeyError, ["':'"]),
        ("\0", errors.UnknownEnvError, KeyError, []),
        (None, errors.ConfigError, ValueError, ["task_id: expected an id", "None"]),
        (5, errors.ConfigError, ValueError, ["task_id: expected an id", "5"]),
        (b"CartPole-v1", errors.ConfigError, ValueError, ["task_id: expected an id"]),
        ({"id": "CartPole-v1"}, errors.ConfigError, ValueError, ["task_id: expected an id"]),
        ([], errors.ConfigError, ValueError, ["expected"]),
        (["CartPole-v1"] * 3, errors.ConfigError, ValueError, ["num_envs=2", "got 3"]),
        (["CartPole-v1", None], errors.ConfigError, ValueError, ["task_id: expected an id", "None"]),
        (["gymnasium:CartPole-v1", "gymnasium:Pendulum-v1"], errors.ConfigError, ValueError, ["share their spaces"]),
        (five, errors.ConfigError, ValueError, ["expected a gymnasium.Env", "int"]),
        (ProbeTwin(), errors.ConfigError, ValueError, ["task_id: expected an id", "a function that makes one"]),
    ],
    ids=lambda one: getattr(one, "__name__", repr(one)[:30]) if not isinstance(one, type | list) else "",
)
def test_make_refuses_an_env_that_is_none(task: Any, error: type, standard: type, words: list[str]) -> None:
    with pytest.raises(error) as caught:
        stepmill.make(task, num_envs=2)
    assert isinstance(caught.value, standard)
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"length": "x"}, ["'length'", "a whole number", "'x'"]),
        ({"length": 1.5}, ["'length'", "a whole number", "1.5"]),
        ({"length": True}, ["'length'", "a whole number", "True"]),
        ({"length": 2**70}, ["'length'", "at most 64 bits"]),
        ({"fail_in": 5}, ["'fail_in'", "a string", "5"]),
        ({"obs_size": 1}, ["obs_size", "at least 2", "got 1"]),
        ({"obs_size": -(2**40)}, ["obs_size", "at least 2"]),
    ],
    ids=str,
)
def test_a_native_configuration_of_the_wrong_type_is_refused(config: dict[str, Any], words: list[str]) -> None:
    for make in (stepmill.make, stepmill.make_spec):
        with pytest.raises(errors.ConfigError) as caught:
            make("Probe-v0", num_envs=2, **config)
        for word in words:
            assert word in str(caught.value)


def test_backend_thread_is_for_native_envs() -> None:
    with pytest.raises(errors.UnsupportedError, match="inline"):
        stepmill.make("gymnasium:CartPole-v1", backend="thread")


# ---- what kills or hangs others ------------------------------------------------------------------

# Each in a process of its own: they crash or hang EnvPool (see PEERS), and a regression here could do the same.
DEADLY = {
    "an env id out of range": "pool.send(np.zeros(1, int), [4096])",
    "more ids than envs": "pool.send(np.zeros(4, int), [0, 1, 2, 0])",
    "a 0-d action": "pool.step(np.array(0))",
    "an action out of range": "pool.step(np.full(3, 10**9))",
    "too few actions": "pool.step(np.zeros(1, int))",
    "too many actions": "pool.step(np.zeros(4096, int))",
    "the wrong width after a good call": "pool.step(np.zeros(3, int)); pool.step(np.zeros((3, 64), int))",
    "the same env twice": "pool.send(np.zeros(2, int), [1, 1])",
    "ten sends without recv": "[pool.send(np.zeros(3, int)) for _ in range(10)]",
    "recv with nothing pending": "pool.recv()",
    "negative threads": "stepmill.make(task, view, num_envs=3, num_threads=-1)",
    "no envs": "stepmill.make(task, view, num_envs=0)",
    "envs without end": "stepmill.make(task, view, num_envs=2**40)",
    "a reset of an env that is none": "pool.reset([3])",
    "use after close": "pool.close(); pool.step(np.zeros(3, int))",
    "recv after close with steps in flight": "pool.send(np.zeros(3, int)); pool.close(); pool.recv()",
}


@pytest.mark.parametrize("flags", [(), ("-O",)], ids=["plain", "-O"])
@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("kind", KINDS)
def test_what_crashes_or_hangs_others_is_an_error_here(kind: str, view: str, flags: tuple[str, ...]) -> None:
    cases = list(DEADLY.values())
    out = run_well(
        f"""
        import numpy as np
        import stepmill

        task, view = {TASKS[kind]!r}, {view!r}
        for case in {cases!r}:
            pool = stepmill.make(task, view, num_envs=3, backend={BACKENDS[kind]!r})
            pool.reset()
            try:
                exec(case)
            except stepmill.StepmillError:
                print("refused", flush=True)
            pool.close()
        """,
        flags=flags,
    )
    assert out.split() == ["refused"] * len(cases)


def test_a_snippet_that_hangs_or_dies_is_seen() -> None:
    """The tests above would be worth nothing if ``run`` did not tell."""
    assert run("import threading; threading.Event().wait()", deadline=1.0).code is None
    assert run("import os; os.abort()").code == -6
