"""Spaces of an author's own on a GPU: in whatever order a class describes its arrays, and however many there are."""

from __future__ import annotations

import operator
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stepmill
from stepmill import _native, errors
from stepmill.device.cuda import driver
from stepmill.values.trees import map_tree
from support.cuda_pools import Both, HostGpu
from support.host_kernels import MODES
from support.own_env import own_env
from support.probes import assert_same

Make = Callable[..., Both]

# The keys in an order that is not that of a Dict, with arrays of different sizes and types.
UNSORTED = """
    spec.observation_tree = spec.action_tree = Tree::kDict;
    spec.observation = {box<double>({2}, {0}, {9}, "zeta"), box<float>({3}, {0}, {9}, "alpha"), discrete(9, "mid")};
    spec.action = {discrete(3, "z"), box<float>({2}, {-1.0}, {1.0}, "push"), box<std::int32_t>({}, {-5}, {5}, "a")};
    spec.info = {box<float>({2}, {0.0}, {9.0}, "y"), discrete(9, "b"), box<bool>({}, {0}, {1}, "m")};
"""
STEP = """
    z_ = action.index(); push_ = action.get<float>(1)[0] + action.get<float>(1)[1]; a_ = *action.get<std::int32_t>(2);
    x_ = rng.random();
    return {x_, x_ < 0.1, x_ > 0.95};
"""
OBSERVE = """
    row.observation<double>(0)[0] = x_, row.observation<double>(0)[1] = push_;
    for (int i = 0; i < 3; ++i) row.observation<float>(1)[i] = static_cast<float>(x_ + i);
    *row.observation<std::int64_t>(2) = z_ + a_;
    if (x_ > 0.3) row.info<float>(0)[0] = static_cast<float>(x_), row.info<float>(0)[1] = 2.0F;
    if (x_ < 0.6) *row.info<std::int64_t>(1) = z_;
    *row.info<bool>(2) = x_ > 0.5;
"""


@pytest.fixture
def unsorted(tmp_path: Path) -> str:
    members = "double push_ = 0.0; std::int64_t z_ = 0, a_ = 0;"
    return own_env(tmp_path / "own.h", spec=UNSORTED, step=STEP, observe=OBSERVE, members=members)


def assert_both(pools: Both, call: Callable[[Any], Any]) -> Any:
    got, expected = pools.do(call)
    assert_same(got, expected)
    return expected


@pytest.mark.parametrize("mode", MODES)
def test_arrays_are_in_the_order_of_the_class(both: Make, unsorted: str, mode: str) -> None:
    pools = both(unsorted, autoreset=mode)
    assert [*pools.gpu.single_observation_space.spaces] == ["alpha", "mid", "zeta"]
    assert_both(pools, lambda pool: pool.reset())
    for _ in range(40):
        _, _, terminated, truncated, _ = assert_both(pools, operator.methodcaller("step", pools.actions()))
        over = np.flatnonzero(terminated | truncated)
        if mode == "disabled" and len(over):
            assert_both(pools, operator.methodcaller("reset", over))
    if mode != "disabled":
        assert_both(pools, operator.methodcaller("step", pools.actions(2), [3, 1]))


def test_they_are_saved_in_that_order(both: Make, unsorted: str) -> None:
    pools = both(unsorted)
    assert_both(pools, lambda pool: pool.reset())
    states = [pool.save() for pool in pools.pools]
    actions = [pools.actions() for _ in range(9)]
    before = [assert_both(pools, operator.methodcaller("step", action)) for action in actions]
    for pool, state in zip(pools.pools, states, strict=True):
        pool.restore(state)
    assert_same([assert_both(pools, operator.methodcaller("step", action)) for action in actions], before)


@pytest.mark.torch
@pytest.mark.parametrize("mode", MODES[:2])
def test_tensors_are_in_that_order(both: Make, unsorted: str, mode: str) -> None:
    torch = pytest.importorskip("torch")
    pools = both(unsorted, autoreset=mode, output="torch")
    assert_same(map_tree(np.asarray, pools.gpu.reset()[0]), pools.cpu.reset()[0])
    ends = 0
    for turn in range(30):
        action = pools.actions()
        tensors = {key: torch.from_numpy(part) for key, part in reversed(action.items())}  # in another order than ours
        expected = pools.cpu.step(action)
        got = map_tree(np.asarray, pools.gpu.step(tensors) if turn % 2 else pools.gpu.graph_step(tensors))
        assert_same(got[0], expected[0])
        for name in ("y", "b", "m"):
            has = expected[4].get(f"_{name}", np.zeros(5, bool))
            np.testing.assert_array_equal(got[4][f"_{name}"], has)
            np.testing.assert_array_equal(got[4][name][has], expected[4].get(name, has)[has])
        for env in np.flatnonzero(expected[4].get("_final_obs", [])):
            ends += 1
            for key, part in expected[4]["final_obs"][env].items():
                np.testing.assert_array_equal(got[4]["final_obs"][key][env], part)
    assert mode != "same_step" or ends > 3


def many(count: int, parts: list[str]) -> str:
    """A description in which these parts have so many arrays each."""
    spec = "spec.action_tree = spec.observation_tree = Tree::kTuple;"
    for part in ("observation", "action", "info"):
        names = "std::to_string(i)" if part == "info" else '""'
        times = count if part in parts else 1
        spec += (
            f"for (int i = 0; i < {times}; ++i) spec.{part}.push_back(box<double>({{}}, {{0.0}}, {{9.0}}, {names}));"
        )
    return spec


def test_as_many_arrays_as_a_kernel_takes(both: Make, tmp_path: Path) -> None:
    spec = many(_native.MOST_GPU_ARRAYS, ["observation", "action", "info"])
    step = "x_ = *action.get<double>(31); return {x_, x_ < 1.0, false};"
    observe = "for (int i = 0; i < 32; ++i) *row.observation<double>(i) = x_ + i, *row.info<double>(i) = x_ - i;"
    pools = both(own_env(tmp_path / "own.h", spec=spec, step=step, observe=observe), autoreset="same_step")
    assert_both(pools, lambda pool: pool.reset())
    for _ in range(20):
        assert_both(pools, operator.methodcaller("step", pools.actions()))


@pytest.mark.parametrize(
    ("part", "words"),
    [("observation", "an observation has"), ("action", "an action has"), ("info", "the infos have")],
)
def test_more_arrays_are_refused(gpu: HostGpu, tmp_path: Path, part: str, words: str) -> None:
    file = own_env(tmp_path / "own.h", spec=many(33, [part]), observe="")
    with pytest.raises(
        errors.UnsupportedError, match=rf"own\.h: {words} 33 arrays: a kernel takes at most 32: .* backend='thread'"
    ):
        stepmill.make(file, backend="cuda")


def test_the_engine_takes_no_more_than_it_has_places_for(gpu: HostGpu, tmp_path: Path) -> None:
    library = stepmill.compile(own_env(tmp_path / "own.h", spec=many(33, ["action"]), observe=""))
    with pytest.raises(ValueError, match="Own: expected at most 32 arrays"):
        _native.GpuEnvs(
            library=driver.LIBRARY,
            memory_kind=driver.MEMORY_KIND,
            device=0,
            image=b"",
            env_class=library.env_class,
            configs=[{}],
            seeds=[1],
            same_step=False,
            max_episode_steps=0,
            hides_streams=False,
        )


@pytest.mark.parametrize("bounds", ["{}, {}", "{0}, {1}"])
def test_arrays_without_elements(both: Make, tmp_path: Path, bounds: str) -> None:
    spec = f"""
        spec.observation_tree = spec.action_tree = Tree::kTuple;
        spec.observation = {{box<float>({{2, 0}}, {bounds}), box<double>({{}}, {{0}}, {{1}})}};
        spec.action = {{box<float>({{0}}, {bounds})}};
    """
    pools = both(own_env(tmp_path / "own.h", spec=spec, observe="*row.observation<double>(1) = x_;"))
    assert_both(pools, lambda pool: pool.reset())
    for _ in range(5):
        assert_both(pools, operator.methodcaller("step", pools.actions()))


@pytest.mark.parametrize("bounds", ["clip", "error"])
def test_bounds_are_those_of_the_space(both: Make, tmp_path: Path, bounds: str) -> None:
    """Its own, in its type: 0.4 in float32 is more than 0.4."""
    spec = "spec.action = spec.observation = {box<float>({2}, {-0.4, -0.7}, {0.4, 0.1})};"
    step = "for (int i = 0; i < 2; ++i) a_[i] = action.get<float>()[i]; return {0.0, false, false};"
    observe = "for (int i = 0; i < 2; ++i) row.observation<float>()[i] = a_[i];"
    file = own_env(tmp_path / "own.h", spec=spec, step=step, observe=observe, members="float a_[2]{};")
    pools = both(file, num_envs=2, action_bounds=bounds)
    assert_both(pools, lambda pool: pool.reset())
    space = pools.gpu.single_action_space
    ends = np.stack([space.low, space.high])
    assert_same(assert_both(pools, operator.methodcaller("step", ends))[0], ends)
    beyond = np.nextafter(ends, np.float32([[-np.inf], [np.inf]]))
    for pool in pools.pools:
        if bounds == "clip":
            assert_same(pool.step(beyond)[0], ends)
        else:
            with pytest.raises(errors.ActionError, match=r"expected a number in \[-0\.4, 0\.4\]"):
                pool.step(beyond)
    pools.gpu.check()


@pytest.mark.torch
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_bounds_of_tensors_are_those_of_the_space(both: Make, tmp_path: Path, dtype: str) -> None:
    torch = pytest.importorskip("torch")
    spec = "spec.action = {box<float>({}, {-0.7}, {0.4})}; spec.observation = {box<float>({}, {-0.7}, {0.4})};"
    step = "x_ = *action.get<float>(); return {0.0, false, false};"
    observe = "*row.observation<float>() = static_cast<float>(x_);"
    pool = both(
        own_env(tmp_path / "own.h", spec=spec, step=step, observe=observe),
        num_envs=2,
        action_bounds="error",
        output="torch",
    ).gpu
    pool.reset()
    space = pool.single_action_space
    ends = np.array([space.low, space.high])
    shown = pool.step(torch.from_numpy(ends).to(getattr(torch, dtype)))[0]
    assert_same(np.asarray(shown), ends)
    pool.check()
    pool.step(torch.from_numpy(np.nextafter(ends, np.float32([0, np.inf]))))
    with pytest.raises(errors.ActionError, match="env 1"):
        pool.check()


@pytest.mark.parametrize("bounds", ["clip", "error"])
def test_actions_as_wide_as_64_bits(both: Make, tmp_path: Path, bounds: str) -> None:
    """As floats, the bounds are more than the types have."""
    spec = """
        spec.action_tree = spec.observation_tree = Tree::kTuple;
        spec.action = {box<std::int64_t>({2}, {-0x1p63}, {0x1p63}), box<std::uint64_t>({2}, {0.0}, {0x1p64})};
        spec.observation = spec.action;
    """
    step = (
        "for (int i = 0; i < 2; ++i) a_[i] = action.get<std::int64_t>(0)[i], b_[i] = action.get<std::uint64_t>(1)[i];"
    )
    observe = "for (int i = 0; i < 2; ++i) row.observation<std::int64_t>(0)[i] = a_[i];"
    observe += "for (int i = 0; i < 2; ++i) row.observation<std::uint64_t>(1)[i] = b_[i];"
    members = "std::int64_t a_[2]{}; std::uint64_t b_[2]{};"
    step += "return {0.0, false, false};"
    file = own_env(tmp_path / "own.h", spec=spec, step=step, observe=observe, members=members)
    pools = both(file, num_envs=1, action_bounds=bounds)
    assert_both(pools, lambda pool: pool.reset())
    signed, unsigned = pools.gpu.single_action_space
    assert (signed.low.tolist(), signed.high.tolist()) == ([-(2**63)] * 2, [2**63 - 1] * 2)
    assert (unsigned.low.tolist(), unsigned.high.tolist()) == ([0] * 2, [2**64 - 1] * 2)
    ends = signed.low, signed.high, unsigned.low, unsigned.high
    for action in ((ends[0], ends[2]), (ends[1], ends[3]), (ends[0] // 3, ends[3] // 3)):
        shown = assert_both(pools, operator.methodcaller("step", tuple(part[None] for part in action)))[0]
        assert_same([part[0] for part in shown], list(action))
    pools.gpu.check()


def test_actions_in_float16_are_refused(gpu: HostGpu, tmp_path: Path) -> None:
    spec = "spec.action = {box<float>({2}, {-1}, {1})}; spec.action[0].dtype = DType::kFloat16;"
    spec += "spec.observation = {box<double>({}, {0}, {1})};"
    with pytest.raises(errors.UnsupportedError, match=r"own\.h: an action has numbers in float16, .* expected float32"):
        stepmill.make(own_env(tmp_path / "own.h", spec=spec), backend="cuda")
