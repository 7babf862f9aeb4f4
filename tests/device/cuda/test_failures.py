"""An env that throws in a kernel: its row, what is noted, how it goes on."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import stepmill
from stepmill.errors import EnvError
from stepmill.sources.files.env_library import EnvLibrary
from support.host_kernels import HAS_SEED, MODES, ROOT, SM_ENDED, SM_RESET, Kernels, Row, State, Twin, differences

pytestmark = pytest.mark.usefixtures("one_cache")

NUM_ENVS = 5
IN_RESET, IN_STEP, IN_OBSERVE, AFTER_A_DRAW_IN_RESET, AFTER_A_DRAW_IN_STEP, AFTER_A_RESET = 1, 2, 3, 4, 5, 6


@pytest.fixture(scope="module")
def library(one_cache: None) -> EnvLibrary:
    return stepmill.compile(ROOT / "tests/support/fails.h")


def play(twin: Twin, steps: int) -> Iterator[tuple[Row, Row]]:
    """The rows of both after each step; an error of the pool carries its batch."""
    for _ in range(steps):
        action = twin.sample()
        try:
            result = twin.pool.step(action)
        except EnvError as error:
            result = error.batch
        yield twin.engine_row(*result), twin.kernel_step(action)


@pytest.mark.parametrize("autoreset", ["next_step", "same_step"])
@pytest.mark.parametrize("where", [IN_STEP, IN_OBSERVE, AFTER_A_DRAW_IN_RESET, AFTER_A_DRAW_IN_STEP, AFTER_A_RESET])
def test_an_env_that_fails_has_the_engines_rows_and_goes_on_as_there(
    kernels: Kernels, library: EnvLibrary, where: int, autoreset: str
) -> None:
    """Also the good end whose reset fails, and the numbers that are drawn after a failure."""
    fails = [{"where": where if i in (1, 4) else 0} for i in range(NUM_ENVS)]
    twin = Twin(kernels, library, num_envs=NUM_ENVS, autoreset=autoreset, env_config=fails)
    try:
        if where == AFTER_A_RESET:  # so may the first, with the seed of the pool: then a step is the first reset
            twin.command(twin.no_action(), which=bytes(NUM_ENVS))
        else:
            twin.reset()
        failed = ends = 0
        for engine, kernel in play(twin, 120):
            apart = differences(engine, kernel)
            if where == AFTER_A_RESET:
                assert (State.read(twin.envs, NUM_ENVS).elapsed[kernel["abnormal"]] == 0).all()
                # Members are as they were before the reset, the count of them too.
                apart = {name: count for name, count in apart.items() if not name.endswith("info resets")}
            assert apart == {}
            failed += int(kernel["abnormal"].sum())
            ends += int((kernel["abnormal"] & kernel["ended"]).sum())
        assert failed > 4
        assert (ends > 1) == (where in (AFTER_A_DRAW_IN_RESET, AFTER_A_RESET) and autoreset == "same_step")
        assert twin.envs.notes(0) == (failed, None, 1)
        assert twin.envs.episodes(0) == twin.pool.stats()["episodes"]
        twin.envs.forget_failed()
        assert twin.envs.notes(0) == (failed, None, None)
    finally:
        twin.close()


def test_a_seed_is_not_lost_if_its_reset_fails(kernels: Kernels, library: EnvLibrary) -> None:
    """The next reset begins with it, until one has gone well."""
    twin = Twin(kernels, library, num_envs=NUM_ENVS, where=IN_RESET, when=2)
    good = Twin(kernels, library, num_envs=NUM_ENVS)
    try:
        twin.reset(), good.reset()
        given = {"has_seed": b"\1" * NUM_ENVS, "seed": np.full(NUM_ENVS, 99, np.uint64).tobytes()}
        reset = bytes([SM_RESET]) * NUM_ENVS
        expected = good.kernel_row(good.command(good.no_action(), command=reset, **given))
        assert twin.kernel_row(twin.command(twin.no_action(), command=reset, **given))["abnormal"].all()
        state = State.read(twin.envs, NUM_ENVS)
        assert (state.phase & HAS_SEED).all()
        state.memory[1] = 99  # of the resets, the one that fails
        state.write(twin.envs)
        row = twin.kernel_row(twin.command(twin.no_action(), command=reset))
        assert np.array_equal(row["observation 0"], expected["observation 0"])
        assert not (State.read(twin.envs, NUM_ENVS).phase & HAS_SEED).any()
    finally:
        twin.close()
        good.close()


def test_a_reset_that_fails_is_tried_again_by_the_next_action(kernels: Kernels, library: EnvLibrary) -> None:
    twin = Twin(kernels, library, num_envs=NUM_ENVS, where=IN_RESET, when=1)
    try:
        action = twin.no_action()
        for failures in (1, 2, 3):
            row = twin.kernel_row(twin.command(action, command=bytes([SM_RESET]) * NUM_ENVS))
            assert row["truncated"].all()
            state = State.read(twin.envs, NUM_ENVS)
            assert (state.phase == (SM_ENDED | HAS_SEED | failures << 16)).all()
            assert twin.envs.notes(0) == (failures * NUM_ENVS, None, 0)
    finally:
        twin.close()


@pytest.mark.parametrize("autoreset", MODES)
def test_a_failed_step_leaves_the_env_as_it_was(kernels: Kernels, library: EnvLibrary, autoreset: str) -> None:
    twin = Twin(kernels, library, num_envs=NUM_ENVS, autoreset=autoreset, where=IN_STEP, when=3)
    try:
        twin.reset()
        for _ in range(2):
            twin.kernel_step(twin.sample())
        before = State.read(twin.envs, NUM_ENVS)
        row = twin.kernel_step(twin.sample())
        after = State.read(twin.envs, NUM_ENVS)
        assert row["truncated"].all()
        assert (row["elapsed_step"] == 2).all()
        assert np.array_equal(before.memory, after.memory)
        assert np.array_equal(before.seldom, after.seldom)
        assert (after.phase == (SM_ENDED | 1 << 16)).all()
        # A good step forgets the failures.
        twin.kernel_row(twin.command(twin.no_action(), command=bytes([SM_RESET]) * NUM_ENVS))
        twin.kernel_step(twin.sample())
        assert (State.read(twin.envs, NUM_ENVS).phase == 1).all()
    finally:
        twin.close()


def test_the_envs_around_one_that_fails_do_not_notice(kernels: Kernels, library: EnvLibrary) -> None:
    good = Twin(kernels, library, num_envs=NUM_ENVS)
    mixed = Twin(
        kernels, library, num_envs=NUM_ENVS, env_config=[{"where": IN_STEP if i == 2 else 0} for i in range(NUM_ENVS)]
    )
    try:
        others = np.arange(NUM_ENVS) != 2
        for _ in range(30):
            action = good.sample()
            one, other = good.kernel_step(action), mixed.kernel_step(action)
            for name in one:
                assert np.array_equal(one[name][others], other[name][others]), name
        assert mixed.envs.notes(0)[2] == 2
    finally:
        good.close()
        mixed.close()
