"""An env that throws in a kernel: its row, what is noted, how it goes on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import stepmill
from stepmill.errors import EnvError
from stepmill.sources.files.env_library import EnvLibrary
from support.host_kernels import HAS_SEED, MODES, SM_ENDED, SM_RESET, Kernels, Row, State, Twin, differences

pytestmark = pytest.mark.usefixtures("one_cache")

NUM_ENVS = 5
# Throws in its how-many-eth reset, step or observation; here and there, as authors do.
SOURCE = """
#include <stepmill/env.h>
using namespace stepmill;

class Odd {
 public:
  static constexpr bool kNeverBlocks = true;
  static constexpr bool kPlainMemory = true;
  static std::vector<ConfigItem> configuration() {
    return {{"where", std::int64_t{0}}, {"when", std::int64_t{3}}, {"length", std::int64_t{8}}};
  }
  static EnvSpec spec(const Config&) {
    EnvSpec spec;
    spec.observation = {box<double>({2}, {-1e9}, {1e9})};
    spec.action = {box<float>({}, {-1.0}, {1.0})};
    spec.info = {box<double>({}, {0.0}, {1e9}, "resets")};
    return spec;
  }
  explicit Odd(const Config& config)
      : where_(config.integer("where")), when_(config.integer("when")), length_(config.integer("length")) {}

  void reset(Rng& rng, const Options&) {
    if (where_ == 1 && resets_ + 1 == when_) throw std::runtime_error("reset " + std::to_string(when_));
    draw_ = rng.random();
    if (where_ == 4 && resets_ > 0 && draw_ < 0.5) throw std::runtime_error("a bad draw");
    if (where_ == 4) half_ = static_cast<double>(rng.integers(0, 1000));  // leaves half of a word for the next
    resets_ += 1;
    steps_ = 0;
  }
  Outcome step(const ActionRow& action, Rng& rng) {
    if (where_ == 2) fail_at(steps_ + 1);
    if (where_ == 5 && rng.random() < 0.2) throw std::runtime_error("a bad draw");
    try {
      draw_ += rng.random() * *action.get<float>();
      steps_ += 1;
    } catch (...) {  // there are none on a GPU
      steps_ = -1;
    }
    return {draw_, steps_ >= length_, false};
  }
  void observe(const Row& row) const {
    if (where_ == 3 && steps_ == when_)
      throw std::out_of_range("nothing to see");
    else if (steps_ < 0)
      throw 3;
    double* out = row.observation<double>();
    out[0] = draw_ + half_;
    out[1] = static_cast<double>(steps_);
    *row.info<double>(0) = static_cast<double>(resets_);
  }

 private:
  void fail_at(std::int64_t step) const {
    if (step == when_) throw std::invalid_argument("step " + std::to_string(step));
  }
  std::int64_t where_, when_, length_;
  std::int64_t resets_ = 0, steps_ = 0;
  double draw_ = 0.0, half_ = 0.0;
};
"""
IN_RESET, IN_STEP, IN_OBSERVE, AFTER_A_DRAW_IN_RESET, AFTER_A_DRAW_IN_STEP = 1, 2, 3, 4, 5


@pytest.fixture(scope="module")
def library(one_cache: None, tmp_path_factory: pytest.TempPathFactory) -> EnvLibrary:
    path: Path = tmp_path_factory.mktemp("odd") / "odd.h"
    path.write_text(SOURCE)
    return stepmill.compile(path)


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
@pytest.mark.parametrize("where", [IN_STEP, IN_OBSERVE, AFTER_A_DRAW_IN_RESET, AFTER_A_DRAW_IN_STEP])
def test_an_env_that_fails_has_the_engines_rows_and_goes_on_as_there(
    kernels: Kernels, library: EnvLibrary, where: int, autoreset: str
) -> None:
    """Also the good end whose reset fails, and the numbers that are drawn after a failure."""
    fails = [{"where": where if i in (1, 4) else 0} for i in range(NUM_ENVS)]
    twin = Twin(kernels, library, num_envs=NUM_ENVS, autoreset=autoreset, env_config=fails)
    try:
        twin.reset()
        failed = ends = 0
        for engine, kernel in play(twin, 120):
            assert differences(engine, kernel) == {}
            failed += int(kernel["abnormal"].sum())
            ends += int((kernel["abnormal"] & kernel["ended"]).sum())
        assert failed > 4
        assert (ends > 1) == (where == AFTER_A_DRAW_IN_RESET and autoreset == "same_step")
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
            assert not state.seldom["resets"].any()
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
