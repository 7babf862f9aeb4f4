"""The random numbers of a real GPU are those of the host: millions of them, by every way that an env can draw."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import stepmill

pytestmark = pytest.mark.usefixtures("one_cache")

NUM_ENVS, STEPS = 1000, 500
# normal(), 6 of them; random(); uniform(); integers() below 2**32 and above
SOURCE = """
#include <stepmill/env.h>
#include <limits>
class Draws {
 public:
  static constexpr bool kPlainMemory = true;
  static stepmill::EnvSpec spec(const stepmill::Config&) {
    stepmill::EnvSpec spec;
    const std::vector<double> most(10, std::numeric_limits<double>::infinity()), least(10, -most[0]);
    spec.observation = {stepmill::box<double>({10}, least, most)};
    spec.action = {stepmill::discrete(1)};
    return spec;
  }
  explicit Draws(const stepmill::Config&) {}
  void reset(stepmill::Rng& rng, const stepmill::Options&) { draw(rng); }
  stepmill::Outcome step(const stepmill::ActionRow&, stepmill::Rng& rng) {
    draw(rng);
    return {0.0, false, false};
  }
  void observe(const stepmill::Row& row) const {
    for (int i = 0; i < 10; ++i) row.observation<double>()[i] = drawn_[i];
  }

 private:
  void draw(stepmill::Rng& rng) {
    for (int i = 0; i < 6; ++i) drawn_[i] = rng.normal();
    drawn_[6] = rng.random();
    drawn_[7] = rng.uniform(-3.0, 11.0);
    drawn_[8] = static_cast<double>(rng.integers(0, 1000003));
    drawn_[9] = static_cast<double>(rng.integers(0, 3LL << 40));
  }
  double drawn_[10] = {};
};
"""
TAIL = 3.6  # beyond this, a draw is a logarithm, which a GPU may round in another way


def test_all_ways_to_draw(tmp_path: Path, record_property: Callable[[str, object], None]) -> None:
    file = tmp_path / "draws.h"
    file.write_text(SOURCE)
    action = np.zeros(NUM_ENVS, np.int64)
    tails = differ = 0
    with (
        stepmill.make(str(file), num_envs=NUM_ENVS, seed=11, backend="cuda") as gpu,
        stepmill.make(str(file), num_envs=NUM_ENVS, seed=11, backend="thread") as threads,
    ):
        got, expected = gpu.reset()[0], threads.reset()[0]
        for _ in range(STEPS):
            tail = np.abs(expected) > TAIL
            tail[:, 6:] = False
            np.testing.assert_array_equal(got[~tail], expected[~tail])
            np.testing.assert_allclose(got[tail], expected[tail], rtol=2**-51)
            tails, differ = tails + tail.sum(), differ + (got != expected).sum()
            got, expected = gpu.step(action)[0], threads.step(action)[0]
    assert tails > 500
    record_property("normal numbers", 6 * NUM_ENVS * STEPS)
    record_property("of the tail", int(tails))
    record_property("different in a last bit", int(differ))
