"""Rows of native envs have the info keys that their env tells at that moment, as in Gymnasium and as Python envs do.

With ``info``, a probe tells ``draw`` in the rows of resets, ``steps`` in those of steps, and ``both`` in all.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import stepmill
from support.backends import INLINE, THREAD, TWO, Backend
from support.envs import ProbeTwin
from support.probes import MODES, assert_same

pytestmark = pytest.mark.usefixtures("server")

SEED = 5
LENGTHS = (2, 3, 4, 2, 5)
N = len(LENGTHS)
OWN = {"draw", "steps", "both"}
ENGINE = {"env_id", "elapsed_step", "episode_return", "episode_length"}
BACKENDS = pytest.mark.parametrize("backend", [THREAD, INLINE, TWO], ids=str)
ALL_MODES = pytest.mark.parametrize("mode", MODES)


def native(backend: Backend, mode: str, **arguments: Any) -> Any:
    configs = arguments.pop("env_config", [{"length": length} for length in LENGTHS])
    pool = backend.make("Probe-v0", num_envs=N, autoreset=mode, seed=SEED, info=True, env_config=configs, **arguments)
    assert pool.is_native
    assert pool.backend == backend.name
    return pool


def twin(mode: str, **arguments: Any) -> Any:
    configs = arguments.pop("env_config", [{"length": length} for length in LENGTHS])
    return INLINE.make(ProbeTwin, num_envs=N, autoreset=mode, seed=SEED, info=True, env_config=configs, **arguments)


def zeros(count: int = N) -> np.ndarray:
    return np.zeros(count, np.float32)


def run(env: Any, mode: str, steps: int = 14) -> Iterator[Any]:
    """Resets and steps, with ends between; in ``disabled``, masked resets follow a step with an end."""
    yield env.reset(seed=SEED)
    for _ in range(steps):
        result = env.step(zeros())
        yield result
        ended = result[2] | result[3]
        while mode == "disabled" and ended.any():
            result = env.reset(options={"reset_mask": ended})
            yield result
            ended = result[1].get("abnormal", np.zeros(N, np.bool_))  # such a reset must be made again
    yield env.reset(options={"reset_mask": np.array([False, True, False, True, False])})
    yield env.step(zeros())
    yield env.reset()


def run_parts(pool: Any, mode: str) -> Iterator[Any]:
    """Some of the envs, in other orders."""
    yield pool.reset()
    for ids in ([3, 1], [3], [0, 4, 2], [1, 3], [4, 3, 0], [1]):
        if mode == "disabled":
            yield pool.reset(ids)
        yield pool.step(zeros(len(ids)), ids)
    yield pool.reset([4, 0])


def without(info: dict[str, Any], keys: set[str]) -> dict[str, Any]:
    return {key: value for key, value in info.items() if key.removeprefix("_") not in keys}


# ---- equal to Python envs and to Gymnasium --------------------------------------------------------


@ALL_MODES
@BACKENDS
@pytest.mark.parametrize("script", [run, run_parts], ids=["all", "parts"])
def test_results_are_those_of_python_envs(backend: Backend, mode: str, script: Callable[..., Any]) -> None:
    with native(backend, mode) as pool, twin(mode) as oracle:
        for got, expected in zip(script(pool, mode), script(oracle, mode), strict=True):
            assert_same(got, expected)


@ALL_MODES
@BACKENDS
def test_infos_are_those_of_gymnasium(backend: Backend, mode: str) -> None:
    envs = [functools.partial(ProbeTwin, length=length, info=True) for length in LENGTHS]
    oracle = SyncVectorEnv(envs, autoreset_mode=AutoresetMode[mode.upper()])
    with native(backend, mode) as pool:
        seen = set()
        for got, expected in zip(run(pool, mode), run(oracle, mode), strict=True):
            info = without(got[-1], ENGINE)
            assert_same(info, expected[-1])
            seen.add(frozenset(info))
        assert len(seen) == (2 if mode == "disabled" else 3), "batches of resets, of steps, and of both"
    oracle.close()


@pytest.mark.parametrize("task", ["FrozenLake-v1", "CliffWalking-v1", "Taxi-v4", "Blackjack-v1", "CartPole-v1"])
def test_reset_and_step_have_the_keys_of_gymnasium(task: str) -> None:
    with stepmill.make(task, num_envs=2, backend="thread") as pool:
        oracle = SyncVectorEnv([lambda: gymnasium.make(task)] * 2)
        assert pool.is_native
        assert without(pool.reset()[1], ENGINE).keys() == oracle.reset()[1].keys()
        assert without(pool.step(np.zeros(2, int))[4], ENGINE).keys() == oracle.step(np.zeros(2, int))[4].keys()
        oracle.close()


# ---- async ---------------------------------------------------------------------------------------


def rows_of(info: dict[str, Any]) -> list[dict[str, Any]]:
    """The env's own keys of each row. Rows without a key that others have must show zeros."""
    rows: list[dict[str, Any]] = [{} for _ in info["env_id"]]
    for key in OWN & info.keys():
        assert info[f"_{key}"].dtype == np.bool_
        assert info[f"_{key}"].any()
        for row, has in enumerate(info[f"_{key}"]):
            if has:
                rows[row][key] = info[key][row].tolist()
            else:
                assert not info[key][row].any()
    return rows


def play(pool: Any, rounds: int) -> list[list[Any]]:
    """What each env tells in each of its rows, with the infos of ends."""
    told: list[list[Any]] = [[] for _ in range(N)]
    pool.async_reset()
    while min(map(len, told)) < rounds:
        result = pool.recv()
        info = result[-1]
        finals = rows_of({**info["final_info"], "env_id": info["env_id"]}) if "final_info" in info else None
        for row, (env_id, own) in enumerate(zip(info["env_id"], rows_of(info), strict=True)):
            told[env_id].append((own, finals[row] if finals and info["_final_info"][row] else None))
        pool.send(zeros(len(info["env_id"])))
    return [rows[:rounds] for rows in told]


@pytest.mark.parametrize("mode", ["next_step", "same_step"])
@BACKENDS
def test_every_env_of_an_async_pool_tells_what_it_would_alone(backend: Backend, mode: str) -> None:
    with native(backend, mode, batch_size=2) as pool, twin(mode, batch_size=2) as oracle:
        assert play(pool, 12) == play(oracle, 12)


# ---- failures ------------------------------------------------------------------------------------


def failing(where: str, at: int, count: int = 1) -> list[dict[str, Any]]:
    """Envs 1 and 3 fail."""
    configs: list[dict[str, Any]] = [{"length": length} for length in LENGTHS]
    for env in (1, 3):
        configs[env] |= {"fail_in": where, "fail_at": at, "fail_count": count}
    return configs


# Not `observe` in `disabled`: the masked resets of that run observe native envs once more.
FAILURES = [(where, mode) for where in ("step", "reset", "observe") for mode in MODES]
FAILURES.remove(("observe", "disabled"))


@pytest.mark.parametrize(("where", "mode"), FAILURES)
@BACKENDS
def test_abnormal_rows_are_those_of_python_envs(backend: Backend, mode: str, where: str) -> None:
    for at, count in ((2, 1), (3, 2), (4, 1), (5, 1)):
        arguments: dict[str, Any] = {"env_config": failing(where, at, count), "on_error": "restart"}
        # An env that fails to observe has made its step: that counts it, while the twin fails inside the step.
        hidden = {"elapsed_step"} if where == "observe" else set()
        with native(backend, mode, **arguments) as pool, twin(mode, **arguments) as oracle:
            abnormal = 0
            for got, expected in zip(run(pool, mode), run(oracle, mode), strict=True):
                assert_same(without(got[-1], hidden), without(expected[-1], hidden))
                abnormal += int(got[-1]["abnormal"].sum()) if "abnormal" in got[-1] else 0
            assert abnormal


@ALL_MODES
@BACKENDS
def test_an_abnormal_row_has_none_of_its_envs_keys(backend: Backend, mode: str) -> None:
    with native(backend, mode, env_config=failing("step", 1), on_error="restart") as pool:
        pool.reset()
        info = pool.step(zeros())[4]
        good = [True, False, True, False, True]
        assert info["_steps"].tolist() == info["_both"].tolist() == good
        assert info["steps"].tolist() == [1, 0, 1, 0, 1]
        assert not info["both"][[1, 3]].any()
        assert "draw" not in info


@BACKENDS
def test_a_batch_of_failures_has_no_keys_of_envs(backend: Backend) -> None:
    configs = [{"fail_in": "step", "length": length} for length in LENGTHS]
    with native(backend, "next_step", env_config=configs, on_error="restart") as pool:
        pool.reset()
        assert without(pool.step(zeros())[4], ENGINE).keys() == {"abnormal", "_abnormal"}


# ---- masks ---------------------------------------------------------------------------------------


@BACKENDS
def test_a_mask_of_some_rows_belongs_to_the_caller(backend: Backend) -> None:
    with native(backend, "same_step") as pool:
        pool.reset()
        pool.step(zeros())
        info = pool.step(zeros())[4]
        kept = {key: info[key].copy() for key in ("_steps", "_draw")}
        info["_steps"][:] = True  # of this key in this batch only
        assert_same(info["_draw"], kept["_draw"])
        for _ in range(3):
            pool.step(zeros())
        assert info["_steps"].all()
        assert_same(info["_draw"], kept["_draw"])


@BACKENDS
def test_values_of_older_batches_do_not_show(backend: Backend) -> None:
    """Buffers are used again: what an older batch had in a row that has no such key now must be gone."""
    with native(backend, "same_step", env_config=[{"length": 2 + i % 2} for i in range(N)]) as pool:
        pool.reset()
        for _ in range(40):
            info = pool.step(zeros())[4]
            rows_of(info)
            if "final_info" in info:
                assert "draw" not in info["final_info"]
                rows_of({**info["final_info"], "env_id": info["env_id"]})
