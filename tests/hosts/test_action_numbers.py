"""The numbers of an action are those that the env gets, or it is refused: whole ones beyond floats, bounds, float16."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

import stepmill
from stepmill import errors
from support.envs.many_spaces import env_of
from support.own_env import own_env
from support.probes import assert_same
from support.twins import assert_refused


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
        for beyond in (np.uint64(2**63), np.uint64(2**64 - 1), np.float64(2**63), np.float64(1e19), np.inf):
            assert pool.step(np.array([[beyond]]))[4]["got"].tolist() == [[limits.max]]
    with stepmill.make(env_of(space)) as pool:
        pool.reset()
        for value in (np.uint64(2**63), np.float64(2**63), np.float64(1e19)):
            with pytest.raises(errors.ActionError, match=f"in .{limits.min}, {limits.max}. that int64 can hold"):
                pool.step(np.array([[value]]))


WIDE = 2**53 + 1  # no float


@pytest.mark.parametrize("dtype", [np.int64, np.uint64])
def test_bounds_that_a_float_cannot_hold(dtype: type[np.integer[Any]]) -> None:
    """Next to a bound, every number is on its own side."""
    many = spaces.Box(np.array([WIDE, 0], dtype), np.array([WIDE + 2, WIDE], dtype), dtype=dtype)
    one = spaces.Box(WIDE, WIDE + 2, (2,), dtype)
    for space in (many, one):
        with (
            stepmill.make(env_of(space), action_bounds="error") as strict,
            stepmill.make(env_of(space), action_bounds="clip") as clipped,
        ):
            strict.reset()
            clipped.reset()
            for row in (space.low, space.high):
                for pool in (strict, clipped):
                    assert_same(pool.step(row[None])[4]["got"], row[None])
            for row, ends in ((space.low - 1, space.low), (space.high + 1, space.high)):
                for i in range(2):
                    if space.low[i] == 0 and ends is space.low:
                        continue  # there is none below, in uint64
                    action = ends[None].copy()
                    action[0, i] = row[i]
                    words = f"in [{space.low[i]}, {space.high[i]}]", f"got {row[i]}"
                    assert_refused(strict, lambda a=action: strict.send(a), errors.ActionError, ValueError, *words)
                    assert_same(clipped.step(action)[4]["got"], ends[None])


def test_discrete_actions_that_a_float_cannot_hold() -> None:
    for space, shape in ((spaces.Discrete(2, start=WIDE), (1,)), (spaces.MultiDiscrete([2], start=[WIDE]), (1, 1))):
        with stepmill.make(env_of(space)) as pool:
            pool.reset()
            for good in (WIDE, WIDE + 1):
                assert pool.step(np.full(shape, good))[4]["got"].ravel().tolist() == [good]
            for bad in (WIDE - 1, WIDE + 2):
                action = np.full(shape, bad)
                words = f"a whole number in [{WIDE}, {WIDE + 1}], got {bad}"
                assert_refused(pool, lambda a=action: pool.send(a), errors.ActionError, ValueError, words)


# What a class says, the type, and what its space has of that.
STATED = {
    "uint8": ("std::uint8_t", "0", "300", 0, 255),
    "int8": ("std::int8_t", "-1000", "1000", -128, 127),
    "int32": ("std::int32_t", "-0.5", "2.5", 0, 2),
    "uint32": ("std::uint32_t", "-1.0 / 0.0", "1.0 / 0.0", 0, 2**32 - 1),
    "int64": ("std::int64_t", "-9.3e18", "9.3e18", -(2**63), 2**63 - 1),
    "uint64": ("std::uint64_t", "0", "0x1p64", 0, 2**64 - 1),
    "a part of int64": ("std::int64_t", "0", "0x1p53", 0, 2**53),
}


@pytest.mark.parametrize("name", STATED)
def test_whole_numbers_are_held_to_the_bounds_of_the_space(tmp_path: Path, one_cache: None, name: str) -> None:
    if shutil.which("g++") is None:
        pytest.skip("needs g++")
    c_type, low, high, least, most = STATED[name]
    spec = f"spec.action = {{box<{c_type}>({{1}}, {{{low}}}, {{{high}}})}}; spec.observation = spec.action;"
    task = own_env(
        tmp_path / "own.h",
        spec=spec,
        step=f"got_ = *action.get<{c_type}>(); return {{0.0, false, false}};",
        observe=f"*row.observation<{c_type}>() = got_;",
        members=f"{c_type} got_{{}};",
    )
    with (
        stepmill.make(task, action_bounds="error") as strict,
        stepmill.make(task, action_bounds="clip") as clipped,
    ):
        strict.reset()
        clipped.reset()
        box: Any = strict.single_action_space
        assert (box.low.tolist(), box.high.tolist()) == ([least], [most])
        for pool in (strict, clipped):
            for inside in (least, most):
                assert pool.step(np.array([[inside]], box.dtype))[0].tolist() == [[inside]]
        beyond: list[tuple[Any, int]] = [(1e30, most), (np.inf, most), (-1e30, least), (-np.inf, least)]
        if most < 2**64 - 1:
            beyond.append((np.uint64(most + 1), most))
        if least > -(2**63):
            beyond.append((np.int64(least - 1), least))
        for value, end in beyond:
            action = np.array([[value]])
            words = f"a number in [{least}, {most}] that {box.dtype} can hold"
            assert_refused(strict, lambda a=action: strict.send(a), errors.ActionError, ValueError, words)
            assert clipped.step(action)[0].tolist() == [[end]]
        for pool in (strict, clipped):
            assert pool.step([[1.0]])[0].tolist() == [[1]]
            with pytest.raises(errors.ActionError, match=r"got 1\.5"):
                pool.step([[1.5]])


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


# ---- float16 -------------------------------------------------------------------------------------


HALVES = np.arange(2**16, dtype=np.uint16).view(np.float16)
HALVES = np.sort(HALVES[np.isfinite(HALVES)])


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.longdouble, np.int16, np.uint64])
def test_float16_is_rounded_as_numpy_does(dtype: Any) -> None:
    """Whatever `np.seterr` says."""
    wide = HALVES.astype(np.float64)
    middles = (wide[1:] + wide[:-1]) / 2
    numbers = np.concatenate([wide, middles, *(np.nextafter(middles, away) for away in (-np.inf, np.inf))])
    numbers = np.append(numbers, [np.nextafter(65520, 0), -np.inf, np.inf, 1e-300])
    if np.dtype(dtype).kind in "iu":
        numbers = np.arange(0, 32768, dtype=dtype)
    with np.errstate(all="ignore"):
        given = numbers.astype(dtype)
        given = given[~(np.isfinite(given) & (given >= 65520))]  # to which float32 may have rounded
        expected = given.astype(np.float64).astype(np.float16)
    space = spaces.Box(-np.inf, np.inf, given.shape, np.float16)
    with np.errstate(all="raise"), stepmill.make(env_of(space)) as pool:
        pool.reset()
        for _ in range(2):
            assert pool.step(given[None])[4]["got"].tobytes() == expected.tobytes()
        for bad in (65520.0, -65520.0, 1e300):
            with pytest.raises(errors.ActionError, match=r"element 7: .* that float16 can hold, got -?(65520|1e\+300)"):
                pool.step(np.where(np.arange(len(given)) == 7, bad, 0.0)[None])


def test_numbers_of_float16_are_checked_without_rounding() -> None:
    with np.errstate(over="ignore"):
        low, high = HALVES[[20_000, 50_000]]
        expected = HALVES.clip(low, high)
    space = spaces.Box(low, high, HALVES.shape, np.float16)
    with stepmill.make(env_of(space), action_bounds="clip") as pool:
        pool.reset()
        assert_same(pool.step(HALVES[None])[4]["got"], expected[None])
        assert_same(pool.step(-HALVES[None])[4]["got"], (-HALVES).clip(low, high)[None])
    for bounds in ("pass", "clip", "error"):
        with stepmill.make(env_of(space), action_bounds=bounds) as pool:
            pool.reset()
            for nan in np.array([np.nan, -np.nan], np.float16):
                with pytest.raises(errors.ActionError, match="element 9: expected a number, got nan"):
                    pool.step(np.where(np.arange(len(HALVES)) == 9, nan, low)[None])


def test_messages_of_float16_name_the_type_and_the_number_that_was_given() -> None:
    space = spaces.Box(-0.1, 0.1, (1,), np.float16)
    with stepmill.make(env_of(space), action_bounds="error") as pool:
        pool.reset()
        words = "in [-0.0999755859, 0.0999755859] that float16 can hold, got 0.10001"
        for dtype in (np.float32, np.float64):
            action = np.array([[0.10001]], dtype)
            assert_refused(pool, lambda a=action: pool.send(a), errors.ActionError, ValueError, words)
