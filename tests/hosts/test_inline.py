"""Python envs in the calling thread: the reference of every other backend, held against Gymnasium's vector env."""

from __future__ import annotations

import warnings
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import stepmill
from stepmill.errors import (
    ActionError,
    ConfigError,
    EnvError,
)
from support.backends import own
from support.envs import CountingEnv, FailingEnv, InfoEnv, ProbeTwin
from support.envs.many_spaces import SpaceEnv
from support.probes import zeros


def assert_same(got: Any, expected: Any) -> None:
    """Equal in structure, type and value."""
    if isinstance(expected, np.ndarray) and expected.dtype != object:
        assert isinstance(got, np.ndarray)
        assert (got.dtype, got.shape) == (expected.dtype, expected.shape)
        assert got.tobytes() == expected.tobytes()
        return
    if isinstance(expected, np.integer):  # this env returns numpy's; in `final_obs` we have Python's, as most envs
        expected = int(expected) if type(got) is int else expected
    assert type(got) is type(expected), (got, expected)
    if isinstance(expected, dict):
        assert got.keys() == expected.keys()
        for key in expected:
            assert_same(got[key], expected[key])
    elif isinstance(expected, list | tuple | np.ndarray):
        assert len(got) == len(expected)
        for mine, theirs in zip(got, expected, strict=True):
            assert_same(mine, theirs)
    else:
        assert got == expected


# ---- spaces --------------------------------------------------------------------------------------


NUMBERS = [np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64]
NUMBERS += [np.float16, np.float32, np.float64]
BOXES = {f"Box {dtype.__name__}": spaces.Box(0, 100, (2, 3), dtype) for dtype in NUMBERS}
SPACES = {
    **BOXES,
    "Box bool": spaces.Box(0, 1, (2, 3), np.bool_),
    "Box unbounded": spaces.Box(-np.inf, np.inf, (4,), np.float32),
    "Box scalar": spaces.Box(-1.0, 1.0, (), np.float64),
    "Box of many bounds": spaces.Box(np.array([-1, 0], np.float32), np.array([1, 5], np.float32)),
    "Discrete": spaces.Discrete(5),
    "Discrete from -2": spaces.Discrete(5, start=-2),
    "MultiDiscrete": spaces.MultiDiscrete([3, 4, 5]),
    "MultiDiscrete from": spaces.MultiDiscrete([[3, 4], [5, 6]], start=[[1, -2], [0, 7]]),
    "MultiBinary": spaces.MultiBinary(4),
    "MultiBinary 2-d": spaces.MultiBinary((2, 3)),
    "Dict": spaces.Dict({"b": spaces.Discrete(3), "a": spaces.Box(0, 1, (2,), np.float32)}),
    "Tuple": spaces.Tuple([spaces.Discrete(3, start=1), spaces.Box(-1, 1, (2, 2), np.float64)]),
    "nested": spaces.Dict(
        {
            "pair": spaces.Tuple([spaces.MultiBinary(2), spaces.Dict({"x": spaces.Box(0, 255, (3,), np.uint8)})]),
            "one": spaces.Dict({"y": spaces.Discrete(2)}),
        }
    ),
    "Text": spaces.Text(6),
    "Sequence": spaces.Sequence(spaces.Box(0, 1, (2,), np.float32)),
    "Graph": spaces.Graph(spaces.Box(0, 1, (2,), np.float32), spaces.Discrete(4)),
    "OneOf": spaces.OneOf([spaces.Discrete(2), spaces.Box(0, 1, (2,), np.float32)]),
    "arrays and objects": spaces.Dict(
        {
            "text": spaces.Text(4),
            "box": spaces.Box(0, 1, (2,), np.float32),
            "pair": spaces.Tuple([spaces.Text(3), spaces.Discrete(4)]),
        }
    ),
}


def build_both(
    make: Any, observation_space: Any, action_space: Any, autoreset: str
) -> tuple[Any, SyncVectorEnv, list[SpaceEnv]]:
    """A pool and Gymnasium's vector env over the same envs, and the envs of the pool."""
    envs: list[SpaceEnv] = []

    def build() -> SpaceEnv:
        envs.append(SpaceEnv(observation_space, action_space))
        return envs[-1]

    pool = make(build, num_envs=3, autoreset=autoreset)
    oracle = SyncVectorEnv(
        [lambda: SpaceEnv(observation_space, action_space)] * 3, autoreset_mode=AutoresetMode[autoreset.upper()]
    )
    return pool, oracle, envs


@pytest.mark.parametrize("autoreset", ["next_step", "same_step"])
@pytest.mark.parametrize("name", SPACES)
def test_observations_of_every_space_are_those_of_gymnasium(make: Any, name: str, autoreset: str) -> None:
    pool, oracle, _ = build_both(make, SPACES[name], spaces.Discrete(2), autoreset)
    assert pool.single_observation_space == oracle.single_observation_space
    assert pool.observation_space == oracle.observation_space
    (obs, info), (expected, expected_info) = pool.reset(), oracle.reset(seed=42)
    assert_same(obs, expected)
    assert_same(own(info), expected_info)
    for _ in range(9):
        got, wanted = pool.step(zeros(3)), oracle.step(zeros(3))
        for mine, theirs in zip(got[:4], wanted[:4], strict=True):
            assert_same(mine, theirs)
        assert_same(own(got[4]), wanted[4])
    oracle.close()


@pytest.mark.parametrize("name", SPACES)
def test_actions_of_every_space_reach_the_env_as_gymnasium_passes_them(make: Any, name: str) -> None:
    pool, oracle, envs = build_both(make, spaces.Discrete(2), SPACES[name], "next_step")
    assert pool.action_space == oracle.action_space
    oracle.action_space.seed(3)
    pool.reset()
    oracle.reset(seed=42)
    for _ in range(9):
        actions = oracle.action_space.sample()
        pool.step(actions)
        oracle.step(actions)
    for mine, theirs in zip(envs, oracle.envs, strict=True):
        assert len(mine.received) == 8, "the action of a reset is discarded"
        if name == "Box scalar":  # Gymnasium passes np.float64 there, which its own space then has to cast
            assert_same(mine.received, [np.array(one) for one in theirs.received])
        else:
            assert_same(mine.received, theirs.received)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert all(action in pool.single_action_space for action in mine.received)
    oracle.close()


def test_hybrid_actions(make: Any) -> None:
    space = spaces.Tuple([spaces.Discrete(3), spaces.Box(-1, 1, (2,), np.float32)])
    pool, oracle, envs = build_both(make, spaces.Discrete(2), space, "next_step")
    pool.reset()
    moves = np.array([[0.5, -0.5], [0.25, 1.0]], np.float32)
    pool.step((np.array([2, 0]), moves), [2, 0])
    assert_same(envs[2].received, [(np.int64(2), moves[0])])
    assert_same(envs[0].received, [(np.int64(0), moves[1])])
    assert envs[1].received == []
    oracle.close()


def test_dict_actions_have_one_key_per_leaf_and_may_carry_ids(make: Any) -> None:
    pool, oracle, envs = build_both(make, spaces.Discrete(2), SPACES["Dict"], "next_step")
    pool.reset()
    push = np.array([[0.5, 0.25], [1.0, 0.0]], np.float32)
    pool.step({"a": push, "b": [1, 2], "env_id": [1, 0]})
    pool.step({"action": {"a": push, "b": [0, 1]}, "env_id": [1, 0]})
    assert_same(envs[1].received, [{"a": push[0], "b": np.int64(1)}, {"a": push[0], "b": np.int64(0)}])
    assert_same(envs[0].received, [{"a": push[1], "b": np.int64(2)}, {"a": push[1], "b": np.int64(1)}])
    with pytest.raises(ActionError, match="got one without 'b'"):
        pool.step({"a": push, "env_id": [1, 0]})
    oracle.close()


def test_actions_are_the_envs_own(make: Any) -> None:
    """An env may keep its action; what the caller or the engine does later does not reach it."""
    kept: list[Any] = []

    class Keeper(SpaceEnv):
        def step(self, action: Any) -> Any:
            kept.append(action)
            return super().step(action)

    pool = make(lambda: Keeper(spaces.Discrete(2), spaces.Box(-1, 1, (2,), np.float32)))
    pool.reset()
    actions = np.full((1, 2), 0.5, np.float32)
    pool.step(actions)
    actions[:] = 0.75
    pool.step(actions)
    assert [action.tolist() for action in kept] == [[0.5, 0.5], [0.75, 0.75]]


def test_observations_are_the_callers_own(make: Any) -> None:
    """An env may show the same array again and again."""

    class Reuser(CountingEnv):
        _buffer = np.zeros(1, np.float32)

        def _observe(self) -> np.ndarray:
            self._buffer[:] = self.count
            return self._buffer

    pool = make(Reuser, autoreset="same_step", max_episode_steps=2)
    first, _ = pool.reset()
    second = pool.step(zeros(1))[0]
    third, *_, info = pool.step(zeros(1))
    assert [batch.item() for batch in (first, second, third)] == [0.0, 1.0, 0.0]
    assert info["final_obs"][0].tolist() == [2.0]


@pytest.mark.parametrize("autoreset", ["next_step", "same_step"])
def test_observations_that_are_objects_are_the_callers_own(make: Any, autoreset: str) -> None:
    """An env may show the same object again and again."""

    class Reuser(CountingEnv):
        def __init__(self) -> None:
            super().__init__()
            element = spaces.Box(-np.inf, np.inf, (1,), np.float32)
            self.observation_space = spaces.Dict({"path": spaces.Sequence(element), "count": element})
            self._shown = {"path": (np.zeros(1, np.float32),), "count": np.zeros(1, np.float32)}

        def _observe(self) -> Any:
            self._shown["path"][0][:] = self._shown["count"][:] = self.count
            return self._shown

    pool = make(Reuser, autoreset=autoreset, max_episode_steps=2, on_error="restart")
    batches = [pool.reset()[0], *(pool.step(zeros(1))[0] for _ in range(2))]
    ends = [0, 1, 0 if autoreset == "same_step" else 2]
    assert [batch["path"][0][0].item() for batch in batches] == ends
    assert [batch["count"].item() for batch in batches] == ends
    pool.reset()
    *_, info = [pool.step(zeros(1)) for _ in range(2)][-1]
    if autoreset == "same_step":
        assert info["final_obs"][0]["path"][0].tolist() == [2.0]


def test_the_last_good_observation_is_kept_from_an_env_that_writes_over_it(make: Any) -> None:
    class Spoiler(CountingEnv):
        _buffer = np.zeros(1, np.float32)

        def step(self, action: int) -> Any:
            if self.count == 1:
                self._buffer[:] = -1
                raise ValueError("half way")
            return super().step(action)

        def _observe(self) -> np.ndarray:
            self._buffer[:] = self.count
            return self._buffer

    pool = make(Spoiler, on_error="restart")
    pool.reset()
    pool.step(zeros(1))
    obs, *_, info = pool.step(zeros(1))
    assert (obs.tolist(), info["abnormal"].tolist()) == ([[1.0]], [True])


def test_async_pools_of_python_envs(make: Any) -> None:
    pool = make(CountingEnv, num_envs=5, batch_size=2, env_config=[{"start": 10 * i} for i in range(5)])
    pool.async_reset()
    counts = dict.fromkeys(range(5), 0)
    for _ in range(40):
        obs, *_, info = pool.recv()
        assert len(obs) == 2
        for value, one in zip(obs.ravel().tolist(), info["env_id"].tolist(), strict=True):
            assert value == 10 * one + counts[one]
            counts[one] += 1
        pool.send(zeros(2))
    assert min(counts.values()) > 10


# ---- infos ---------------------------------------------------------------------------------------


def infos_of(make: Any, *rows: dict[str, Any]) -> dict[str, Any]:
    """The info of one step of a pool whose envs tell these."""
    pool = make([lambda row=row: InfoEnv(row) for row in rows])
    pool.reset()
    info: dict[str, Any] = own(pool.step(zeros(len(rows)))[4])
    return info


def test_infos_of_different_types_lose_nothing(make: Any) -> None:
    """Gymnasium would cut 2.5 to 2 in a column that began with whole numbers."""
    assert infos_of(make, {"x": 1}, {"x": 2.5})["x"].tolist() == [1, 2.5]
    assert infos_of(make, {"x": 1}, {"x": "one"})["x"].tolist() == [1, "one"]
    assert infos_of(make, {"x": np.zeros(2)}, {"x": np.zeros(3)})["x"][1].shape == (3,)
    assert infos_of(make, {"x": {"y": 1}}, {"x": 2})["_x"].tolist() == [True, True]


def test_the_keys_of_the_engine_are_the_engines(make: Any) -> None:
    pool = make(lambda: InfoEnv({"env_id": 99, "elapsed_step": 99, "mine": 1}))
    pool.reset()
    info = pool.step(zeros(1))[4]
    assert (info["env_id"].tolist(), info["elapsed_step"].tolist(), info["mine"].tolist()) == ([0], [1], [1])


def test_reset_options_reach_the_envs(make: Any) -> None:
    pool, oracle, envs = build_both(make, spaces.Discrete(2), spaces.Discrete(2), "next_step")
    pool.reset(options={"level": 3})
    pool.reset([1], options={"level": 4, "name": "x"})
    pool.reset(options={"level": 5, "reset_mask": np.array([True, False, False])})
    assert [env.options for env in envs] == [
        [{"level": 3}, {"level": 5}],
        [{"level": 3}, {"level": 4, "name": "x"}],
        [{"level": 3}],
    ]
    oracle.close()


# ---- faults --------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [SystemExit, StopIteration, AssertionError])
def test_odd_exceptions_are_handled_like_any_other(make: Any, error: type[BaseException]) -> None:
    pool = make(FailingEnv, fail_in="step", fail_at={1}, error=error)
    pool.reset()
    with pytest.raises(EnvError) as caught:
        pool.step([0])
    assert isinstance(caught.value.__cause__, error)


def test_an_interrupt_inside_an_env_is_an_interrupt(make: Any) -> None:
    failing = {"fail_in": "step", "fail_at": {1}, "error": KeyboardInterrupt}
    pool = make(FailingEnv, num_envs=2, env_config=[{}, failing])
    pool.reset()
    with pytest.raises(KeyboardInterrupt):
        pool.step([0, 0])
    with pytest.raises(EnvError) as caught:
        pool.recv()
    assert caught.value.batch[4]["abnormal"].tolist() == [False, True], "every action has its result"
    assert pool.step([0, 0])[0].tolist() == [[2.0], [0.0]]


# ---- the envs themselves -------------------------------------------------------------------------


def test_call_calls_a_method_or_reads_an_attribute(make: Any) -> None:
    pool = make(CountingEnv, num_envs=3, env_config=[{"start": i} for i in range(3)])
    pool.reset()
    assert pool.call("add", 10, other=100) == (110, 111, 112)
    assert pool.call("start") == (0, 1, 2)
    assert pool.call("add", 1, env_ids=[2, 0]) == (3, 1)


def test_get_attr_and_set_attr(make: Any) -> None:
    pool = make(CountingEnv, num_envs=3)
    pool.set_attr("start", 4)
    assert pool.get_attr("start") == (4, 4, 4)
    pool.set_attr("start", [1, 2, 3])
    assert pool.get_attr("start") == (1, 2, 3)
    pool.set_attr("start", [9], env_ids=[1])
    assert pool.get_attr("start", [1, 0]) == (9, 1)
    assert pool.reset()[0].ravel().tolist() == [1.0, 9.0, 3.0]
    with pytest.raises(ConfigError, match="expected 3 values, one per env, got 2"):
        pool.set_attr("start", [1, 2])
    with pytest.raises(AttributeError):
        pool.get_attr("no_such_thing")


def test_attributes_are_found_through_wrappers(make: Any) -> None:
    pool = make(lambda: gymnasium.wrappers.TimeLimit(CountingEnv(start=6), 3))
    assert pool.get_attr("start") == (6,)
    pool.set_attr("start", 8)
    assert pool.reset()[0].tolist() == [[8.0]]


def test_render_gives_one_picture_per_env(make: Any) -> None:
    pool = make(CountingEnv, num_envs=2, render_mode="rgb_array")
    pool.reset()
    pool.step([0, 0])
    frames = pool.render()
    assert pool.render_mode == "rgb_array"
    assert [frame.shape for frame in frames] == [(2, 2, 3)] * 2
    assert frames[0].max() == 1
    assert len(pool.render([1])) == 1
    assert pool.metadata["render_fps"] == 30


def test_an_env_with_a_queued_action_can_be_called(make: Any) -> None:
    """Its step has not begun, so there is nothing to wait for, and nothing of the action is lost."""
    pool = make(CountingEnv, num_envs=2, render_mode="rgb_array")
    pool.reset()
    pool.send([0, 0])
    assert pool.call("add", 1) == (1, 1)
    assert len(pool.get_attr("start")) == 2
    assert len(pool.render()) == 2
    pool.recv()
    assert pool.call("add", 1) == (2, 2)


def test_envs_are_closed_if_the_pool_cannot_be_made_after_all(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[ProbeTwin] = []

    def factory() -> ProbeTwin:
        made.append(ProbeTwin())
        return made[-1]

    def refuse(*_: Any) -> Any:
        raise MemoryError

    monkeypatch.setattr("stepmill.hosts.inline_host.host_arguments", refuse)
    with pytest.raises(MemoryError):
        stepmill.make(factory, num_envs=3, backend="inline")
    assert [env.closed for env in made] == [True] * 3
