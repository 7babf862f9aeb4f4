"""``info_space``: the infos that an env declares travel as arrays, equal to those that are merged from dicts."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import stepmill
from stepmill.errors import ConfigError, EnvError
from stepmill.managers import BaseEnvManager
from support.backends import INLINE, TWO, Backend
from support.probes import assert_same

pytestmark = pytest.mark.usefixtures("server")

BACKENDS = pytest.mark.parametrize("backend", [INLINE, TWO], ids=str)
SPACE = {
    "count": spaces.Box(-(2**31), 2**31 - 1, (), np.int32),
    "large": spaces.Box(-(2**63), 2**63 - 1, (), np.int64),
    "small": spaces.Box(-np.inf, np.inf, (), np.float32),
    "exact": spaces.Box(-np.inf, np.inf, (), np.float64),
    "kind": spaces.Discrete(9),
    "memory": spaces.Box(0, 255, (3,), np.uint8),
    "flag": spaces.MultiBinary(2),
}
TYPES = {"count": np.int32, "small": np.float32}  # where a merged number has another type


class Telling(gymnasium.Env[Any, Any]):
    """Tells ``infos[n]`` at its n-th call; ends after three steps."""

    observation_space = spaces.Box(0, 99, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, env_id: int, infos: Any = None, declared: bool = True, space: Any = None) -> None:
        if declared:
            self.info_space = spaces.Dict(SPACE) if space is None else space
        self._id, self._infos, self._calls, self._steps = env_id, infos or usual, 0, 0

    def _tell(self) -> tuple[np.ndarray, dict[str, Any]]:
        self._calls += 1
        return np.full(1, self._calls, np.float32), self._infos(self._id, self._calls)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self._steps = 0
        return self._tell()

    def step(self, action: Any) -> Any:
        self._steps += 1
        observation, info = self._tell()
        return observation, 1.0, self._steps == 3 + self._id, False, info


def usual(env_id: int, call: int) -> dict[str, Any]:
    info: dict[str, Any] = {
        "count": 10 * env_id + call,
        "large": 2**40 + call,
        "small": call / 4,
        "exact": call / 3,
        "kind": np.int64(call % 9),
        "memory": np.array([env_id, call, 255], np.uint8),
        "flag": np.array([1, call % 2], np.int8),
    }
    if call % 3 == 0:
        del info["small"], info["memory"]
    if call % 2 == env_id % 2:
        info["other"] = f"text {call}"
    return info


def play(backend: Backend, **arguments: Any) -> list[Any]:
    pool = backend.make(Telling, num_envs=3, **arguments)
    out = [pool.reset(), *(pool.step(np.zeros(3, int)) for _ in range(12))]
    out.append(pool.reset([1]))
    out.append(pool.step([1], [2]))
    pool.close()
    return out


def as_declared(info: dict[str, Any]) -> dict[str, Any]:
    cast = {key: value.astype(TYPES[key]) if key in TYPES else value for key, value in info.items()}
    if "final_info" in cast:
        cast["final_info"] = as_declared(cast["final_info"])
    return cast


@BACKENDS
@pytest.mark.parametrize("autoreset", ["next_step", "same_step"])
def test_they_are_those_that_would_be_merged(backend: Backend, autoreset: str) -> None:
    arrays, merged = (play(backend, autoreset=autoreset, declared=declared) for declared in (True, False))
    for ours, theirs in zip(arrays, merged, strict=True):
        assert_same(ours[:-1], theirs[:-1])
        assert_same(dict(sorted(ours[-1].items())), dict(sorted(as_declared(theirs[-1]).items())))
    assert any("final_info" in one[-1] for one in arrays) == (autoreset == "same_step")
    assert {one[-1]["count"].dtype for one in arrays if "count" in one[-1]} == {np.dtype(np.int32)}


@BACKENDS
@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("count", 2**31, "of env 1: expected a number in .* that int32 can hold"),
        ("count", "x", "numbers that int32 can hold"),
        ("memory", np.zeros(4, np.uint8), r"expected shape \(3,\)"),
        ("small", 1e300, "float32"),
    ],
)
def test_an_info_that_is_not_as_declared_fails_its_row(backend: Backend, key: str, value: Any, expected: str) -> None:
    def infos(env_id: int, call: int) -> dict[str, Any]:
        return {**usual(env_id, call), key: value} if (env_id, call) == (1, 2) else usual(env_id, call)

    pool = backend.make(Telling, num_envs=3, infos=infos)
    pool.reset()
    with pytest.raises(EnvError, match=rf"env 1 failed in step.*info\['{key}'\].*{expected}") as caught:
        pool.step(np.zeros(3, int))
    info = caught.value.batch[-1]
    assert info["abnormal"].tolist() == [False, True, False]
    assert info["_count"].tolist() == [True, False, True]
    assert pool.step(np.zeros(3, int))[-1]["_count"].all()
    pool.close()


@BACKENDS
def test_the_envs_own_dict_is_not_changed(backend: Backend) -> None:
    kept = {"count": 5, "other": 1.0}
    pool = backend.make(Telling, num_envs=1, infos=lambda *_: kept)
    for _ in range(3):
        info = pool.reset()[1]
        assert (info["count"].tolist(), info["other"].tolist()) == ([5], [1.0])
    pool.close()


@BACKENDS
def test_envs_that_declare_different_ones_share_a_pool(backend: Backend) -> None:
    config = [{"declared": True}, {"declared": False}, {"declared": True}]
    pool = backend.make(Telling, num_envs=3, env_config=config)
    info = pool.reset()[1]
    assert info["count"].dtype == np.int64  # merged, as none is declared for all
    assert info["count"].tolist() == [1, 11, 21]
    pool.close()


@pytest.mark.parametrize(
    ("space", "expected"),
    [
        ({"elapsed_step": spaces.Discrete(2)}, "keys that are not the pool's own, got elapsed_step"),
        ({"a": spaces.Dict(b=spaces.Discrete(2))}, "expected a Dict of Box, Discrete"),
        ({"a": spaces.Text(3)}, "expected a Dict of Box, Discrete"),
        ({"a": spaces.Discrete(2), "_a": spaces.Discrete(2)}, "expected no key '_a', which says which rows have 'a'"),
    ],
    ids=["taken", "nested", "text", "mask"],
)
def test_an_invalid_space_is_an_error(space: Any, expected: str) -> None:
    with pytest.raises(ConfigError, match=f"info_space: {expected}|info_space: .*{expected}"):
        stepmill.make(Telling, num_envs=1, space=spaces.Dict(space))


def test_managers_keep_dicts() -> None:
    manager = BaseEnvManager(lambda cfg: Telling(cfg), [0, 1], 2)
    manager.launch()
    steps = manager.step({0: 0, 1: 1})
    assert steps[1].info["count"] == 12
    assert steps[1].info["memory"].tolist() == [1, 2, 255]
    manager.close()


@BACKENDS
def test_the_spec_of_a_pool_shows_them(backend: Backend) -> None:
    with backend.make(Telling, num_envs=2) as pool:
        assert pool.spec.info_space == spaces.Dict(SPACE)
    with backend.make(Telling, declared=False) as pool:
        assert pool.spec.info_space == spaces.Dict({})
    assert stepmill.make_spec(Telling).info_space == spaces.Dict(SPACE)


def test_the_spec_of_native_envs_shows_all_of_them() -> None:
    assert list(stepmill.make_spec("Taxi-v3").info_space) == ["action_mask", "prob"]
    with stepmill.make("Taxi-v3", backend="process") as pool:
        assert pool.spec.info_space == stepmill.make_spec("Taxi-v3").info_space
    assert not stepmill.make_spec("CartPole-v1").info_space
