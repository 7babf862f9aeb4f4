"""Every class in a kernel beside the same one in the engine: the same rows, the same random numbers, the same memory.

Kernels are compiled for the host here, and do not call its ``sin`` and ``cos``, as on a GPU. So they show where a GPU
computes something else. ``STEPMILL_LONG_PARITY=1 pytest -rP`` counts it in 640,000 steps of each id.
"""

from __future__ import annotations

import os
import sys

import numpy as np
import pytest

from support.host_kernels import MODES, SM_RESET, Kernels, Row, State, Tally, Twin, differences

# Only + - * / and square roots, and whole numbers: every bit is the same.
EXACT = [
    "FrozenLake-v1",
    "FrozenLake8x8-v1",
    "CliffWalking-v1",
    "CliffWalkingSlippery-v1",
    "Taxi-v3",
    "Taxi-v4",
    "Blackjack-v1",
    "Catch-v0",
    "NChain-v0",
    "Template-v0",
]
# With sines, which are rounded, and how many words of their memory are read later than by a drawing.
WITH_SINES = {
    "CartPole-v1": None,
    "Pendulum-v1": None,
    "MountainCar-v0": None,
    "MountainCarContinuous-v0": None,
    "Acrobot-v1": None,
    "Moving-v0": 18,
    "Sliding-v0": 18,
}
IS_LONG = "STEPMILL_LONG_PARITY" in os.environ
NUM_ENVS = 64 if IS_LONG else 16
STEPS = 10_000 if IS_LONG else 200


def begin_again(twin: Twin, row: Row) -> None:
    """With ``disabled``, the caller resets what has ended."""
    ended = row["terminated"] | row["truncated"]
    if twin.form.autoreset != "disabled" or not ended.any():
        return
    observation, info = twin.pool.reset(options={"reset_mask": ended})
    reset = twin.kernel_row(
        twin.command(twin.no_action(), which=ended.tobytes(), command=bytes([SM_RESET]) * twin.num_envs)
    )
    engine = twin.engine_row(observation, None, None, None, info)
    for name in engine:
        assert np.array_equal(engine[name][ended], reset[name][ended]), name


@pytest.mark.all_cases
@pytest.mark.parametrize("autoreset", MODES)
@pytest.mark.parametrize("task", EXACT)
def test_every_bit_of_every_row_is_the_same(kernels: Kernels, task: str, autoreset: str) -> None:
    twin = Twin(kernels, task, num_envs=NUM_ENVS, autoreset=autoreset, max_episode_steps=50)
    try:
        assert differences(*twin.reset()) == {}
        ended = 0
        for step in range(STEPS):
            engine, kernel = twin.step(twin.sample())
            assert differences(engine, kernel) == {}, f"step {step}"
            ended += int(engine["ended"].sum())
            begin_again(twin, engine)
        assert ended
        assert twin.envs.episodes(0) == ended
        assert twin.envs.notes(0) == (0, None, None)
        if not task.startswith("FrozenLake"):  # which saves itself in a way of its own
            expected = State.of_engine(twin.pool)
            assert_same_standing(expected, State.read(twin.envs, NUM_ENVS))
            fresh = Twin(kernels, task, num_envs=NUM_ENVS, autoreset=autoreset, seed=77, max_episode_steps=50)
            try:  # one that goes on from there
                expected.write(fresh.envs)
                for _ in range(20):
                    action = twin.sample()
                    engine, _ = twin.step(action)
                    assert differences(engine, fresh.kernel_step(action)) == {}
                    if (engine["terminated"] | engine["truncated"]).any() and autoreset == "disabled":
                        break
            finally:
                fresh.close()
    finally:
        twin.close()


@pytest.mark.all_cases
@pytest.mark.parametrize("autoreset", MODES)
@pytest.mark.parametrize("task", WITH_SINES)
def test_of_the_same_state_only_the_last_bits_of_floats_differ(kernels: Kernels, task: str, autoreset: str) -> None:
    twin = Twin(kernels, task, num_envs=NUM_ENVS, autoreset=autoreset)
    try:
        assert differences(*twin.reset()) == {}
        rows, words, totals, envs = Tally(), Tally(), Tally(), 0
        for _ in range(STEPS):
            before = State.of_engine(twin.pool)
            before.write(twin.envs)
            engine, kernel = twin.step(twin.sample())
            for name in differences(engine, kernel):
                assert engine[name].dtype.kind == "f", name
                (totals if name == "episode_return" else rows).add(engine[name], kernel[name])
            expected, found = State.of_engine(twin.pool), State.read(twin.envs, NUM_ENVS)
            assert_same_standing(expected, found)
            totals.add(expected.episode_return, found.episode_return)
            expected.memory, found.memory = (one.memory[: WITH_SINES[task]] for one in (expected, found))
            differ = expected.memory != found.memory
            envs += int(differ.any(axis=0).sum())
            one, other = (state.memory[differ].view(np.float64) for state in (expected, found))
            words.add(one, other)
            # What a sum has left when its terms cancel out is small, and its last bit smaller than theirs.
            assert (np.abs(one - other) <= 2.0**-49 * np.maximum(1.0, np.abs(one))).all()
            assert np.allclose(expected.episode_return, found.episode_return, rtol=1e-10, atol=1e-9)
            begin_again(twin, engine)
        sys.stdout.write(
            f"| {task} | {autoreset} | {NUM_ENVS * STEPS:,} | {envs:,} | {words.furthest} "
            f"| {rows.differ} | {rows.furthest} | {totals.differ} |\n"
        )
        assert rows.furthest <= 1
        assert envs <= NUM_ENVS * STEPS * 0.02
    finally:
        twin.close()


def assert_same_standing(expected: State, found: State) -> None:
    """All that nobody computes with floats."""
    assert np.array_equal(expected.seldom["random"], found.seldom["random"])
    assert np.array_equal(expected.elapsed, found.elapsed)
    assert np.array_equal(expected.phase, found.phase)


@pytest.mark.parametrize("task", ["CartPole-v1", "Taxi-v3"])
def test_an_env_does_the_same_whatever_envs_are_around_it(kernels: Kernels, task: str) -> None:
    alone, among = Twin(kernels, task, num_envs=1, seed=11), Twin(kernels, task, num_envs=9, seed=6)
    try:
        one, many = alone.reset()[1], among.reset()[1]
        for _ in range(100):
            assert all(np.array_equal(one[name][0], many[name][5]) for name in one)
            actions = among.sample()
            one, many = alone.step(actions[5:6])[1], among.step(actions)[1]
    finally:
        alone.close()
        among.close()
