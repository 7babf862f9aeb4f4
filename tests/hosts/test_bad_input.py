"""A bad call changes nothing.

The right error says what was expected and what came, and the pool goes on as a twin that never saw the call.
Inputs that are only unusual are taken, with their values.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

import stepmill
from stepmill import StepmillError, errors
from support.envs import ProbeTwin
from support.envs.many_spaces import env_of
from support.probes import KINDS, VIEWS, assert_same, make_probe, seen
from support.subprocesses import run, run_well
from support.twins import BACKENDS, GOOD, TASKS, N, assert_like_twin, assert_refused

# ---- ids -----------------------------------------------------------------------------------------


ID = (errors.EnvIdError, IndexError)
NOT_IDS = (*ID, "expected a 1-d array of integers")


BAD_IDS = {
    "out-of-range": ([3], *ID, "env_id 3", "[0, 3)"),
    "far-out": ([2**31], *ID, "env_id 2147483648", "[0, 3)"),
    "farther-out": ([2**32], *ID, "env_id 4294967296", "[0, 3)"),
    "unsigned": (np.array([2**64 - 1], np.uint64), *ID, "env_id 18446744073709551615 is out of range"),
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
    assert_same(pool.recv(), twin.step(GOOD))


@pytest.mark.parametrize("timeout", [None, 60, 60.0, np.float32(60), float("inf"), 1e300, True])
def test_a_good_timeout_is_taken(pair: tuple[Any, Any], timeout: Any) -> None:
    pool, twin = pair
    pool.send(GOOD)
    assert_same(pool.recv(timeout), twin.step(GOOD))


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
    assert_same(pool.recv(), twin.step(GOOD))
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
@pytest.mark.parametrize("kind", [*KINDS, "python-process"])
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
@pytest.mark.parametrize(
    ("task", "backend"), [*((TASKS[kind], BACKENDS[kind]) for kind in KINDS), (TASKS["python"], "process")]
)
def test_a_closed_pool_refuses_everything_but_close(task: str, backend: str, view: str, in_flight: bool) -> None:
    pool = stepmill.make(task, view, num_envs=N, backend=backend)
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
    "seed-text": ({"seed": "abc"}, *SEED, "'abc'"),
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
    "mask-none": ({"options": {"reset_mask": np.zeros(3, bool)}}, errors.ResetOptionError, ValueError, "got all False"),
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


# ---- a bad reset drops nothing -------------------------------------------------------------------


@pytest.mark.parametrize("count", [0, 1, 3, 4097])
def test_seeds_of_another_number_than_envs_are_refused(count: int) -> None:
    code = f"""
    import stepmill
    from stepmill.errors import StepmillError

    pool = stepmill.make("CartPole-v1", num_envs=2)
    pool.reset(seed=5)
    pool.send([0, 0])
    try:
        pool._engine.reset(None, [1] * {count}, None)
    except StepmillError as error:
        assert "2 seeds" in str(error), error
    else:
        raise AssertionError
    assert pool._engine.in_flight_count == 2
    pool.recv()
    """
    run_well(code)


def test_a_bad_reset_drops_nothing_in_flight() -> None:
    with stepmill.make("CartPole-v1", num_envs=2) as pool:
        pool.reset()
        pool.send([0, 0])
        with pytest.raises(errors.ResetOptionError):
            pool.reset(options={"nope": 1})
        assert pool.recv()[4]["elapsed_step"].tolist() == [1, 1]


@pytest.mark.parametrize("backend", ["thread", "inline", "process"])
def test_step_takes_an_action_and_ids_and_nothing_else(backend: str) -> None:
    with stepmill.make("Probe-v0" if backend == "thread" else ProbeTwin, num_envs=2, backend=backend) as pool:
        pool.reset()
        for objects in ({5: b"x"}, {-1: []}, {"a": 1}, None):
            with pytest.raises(TypeError):
                pool.step([0.0, 0.0], None, objects)
        assert pool.step([0.25, 0.5])[1].tolist() == [0.25, 0.5]


@pytest.mark.parametrize("backend", ["inline", "process"])
def test_objects_of_envs_that_an_action_is_not_for_are_left_alone(backend: str) -> None:
    """The engine's own `send`, which managers call with what they have read themselves."""
    with stepmill.make(ProbeTwin, num_envs=2, backend=backend) as pool:
        pool.reset()
        pool._engine.send([0.25, 0.5], None, {5: b"x", -1: b"x", 10**6: b"x", "a": 1})
        assert pool.recv()[1].tolist() == [0.25, 0.5]


@pytest.mark.parametrize("backend", ["inline", "process"])
def test_an_action_that_makes_its_space_raise_is_an_action_error(backend: str) -> None:
    env = env_of(spaces.Sequence(spaces.Box(0, 1, (2,)), stack=True))
    with stepmill.make(env, num_envs=2, backend=backend) as pool:
        pool.reset()
        with pytest.raises(errors.ActionError, match="action of env 0: expected a value of Sequence"):
            pool.step([1, 1])
        assert pool.stats()["in_flight"] == 0
