"""The random numbers of a kernel are numpy's, bit by bit."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from support.host_kernels import ROOT, Kernels

SOURCE = """
#include "gpu/prelude.h"
#include "core/env/rng.h"

extern "C" void* begin(std::uint64_t seed) {
  static stepmill::Rng here;
  here.reseed(seed);
  return &here;
}
extern "C" void bounded(stepmill::Rng* rng, std::uint64_t range, long count, std::uint64_t* out) {
  for (long i = 0; i < count; ++i) out[i] = stepmill::gpu::bounded_uint64(*rng, 0, range);
}
extern "C" void integers(stepmill::Rng* rng, std::int64_t low, std::int64_t high, long count, std::int64_t* out) {
  for (long i = 0; i < count; ++i) out[i] = rng->integers(low, high);
}
extern "C" void normal(stepmill::Rng* rng, long count, double* out) {
  for (long i = 0; i < count; ++i) out[i] = rng->normal();
}
extern "C" void random(stepmill::Rng* rng, long count, double* out) {
  for (long i = 0; i < count; ++i) out[i] = rng->random();
}
"""
EDGES = [0, 1, 2, 3, 2**31, 2**32 - 2, 2**32 - 1, 2**32, 2**32 + 1, 2**63, 2**64 - 2, 2**64 - 1]
POWERS = [2**bits + offset for bits in range(2, 64) for offset in (-1, 0)]


class Draws:
    """A generator in a kernel, with numpy's methods."""

    def __init__(self, library: ctypes.CDLL, seed: int) -> None:
        self.library = library
        library.begin.restype = ctypes.c_void_p
        self.rng = ctypes.c_void_p(library.begin(ctypes.c_uint64(seed)))

    def bounded(self, most: int, count: int) -> np.ndarray:
        return self._fill("bounded", np.uint64, count, ctypes.c_uint64(most))

    def integers(self, low: int, high: int, count: int) -> np.ndarray:
        return self._fill("integers", np.int64, count, ctypes.c_int64(low), ctypes.c_int64(high))

    def normal(self, count: int) -> np.ndarray:
        return self._fill("normal", np.float64, count)

    def random(self, count: int) -> np.ndarray:
        return self._fill("random", np.float64, count)

    def _fill(self, name: str, dtype: Any, count: int, *given: Any) -> np.ndarray:
        out = np.empty(count, dtype)
        self.library[name](self.rng, *given, ctypes.c_long(count), ctypes.c_void_p(out.ctypes.data))
        return out


@pytest.fixture(scope="session")
def library(kernels: Kernels) -> ctypes.CDLL:
    return ctypes.CDLL(str(kernels.compile(SOURCE, "-O2", "-ldl")))


def test_normal_draws_are_numpys(library: ctypes.CDLL) -> None:
    for seed in [*range(40), 2**32, 2**64 - 1]:
        ours, numpys = Draws(library, seed), np.random.default_rng(seed)
        expected = numpys.standard_normal(100_000)
        assert np.array_equal(ours.normal(100_000).view(np.uint64), expected.view(np.uint64)), f"seed {seed}"
        assert np.array_equal(ours.random(5), numpys.random(5))  # both have drawn the same words


def test_the_tail_of_normal_draws_is_reached(library: ctypes.CDLL) -> None:
    drawn = Draws(library, 0).normal(1_000_000)
    assert drawn.max() > 4
    assert drawn.min() < -4


def test_whole_numbers_are_numpys_between_other_draws(library: ctypes.CDLL) -> None:
    for seed in range(4):
        ours, numpys = Draws(library, seed), np.random.default_rng(seed)
        plan = np.random.default_rng(100 + seed)
        words = plan.integers(2**64 - 1, size=600, dtype=np.uint64)
        ranges = [*EDGES, *POWERS, *(int(x) >> int(y) for x, y in zip(words, plan.integers(64, size=600), strict=True))]
        plan.shuffle(ranges)
        for most in ranges:
            count = int(plan.integers(1, 1500))  # odd or even: half a word is left, or none
            expected = numpys.integers(0, most, size=count, dtype=np.uint64, endpoint=True)
            assert np.array_equal(ours.bounded(most, count), expected), f"0 to {most}"
            if plan.random() < 0.3:
                assert np.array_equal(ours.normal(3), numpys.standard_normal(3))
            if plan.random() < 0.3:
                assert np.array_equal(ours.random(3), numpys.random(3))


def test_integers_of_a_kernel_are_those_of_a_generator(library: ctypes.CDLL) -> None:
    ours, numpys = Draws(library, 5), np.random.default_rng(5)
    for low, high in [(0, 1), (-3, 4), (0, 2**32), (-(2**63), 2**63 - 1), (-(2**31), 2**31), (7, 107)]:
        assert np.array_equal(ours.integers(low, high, 1001), numpys.integers(low, high, size=1001))


def test_the_tables_are_those_that_the_script_writes() -> None:
    script = ROOT / "scripts/normal_tables.py"
    written = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True)
    assert written.stdout == (ROOT / "cpp/gpu/normal_tables.h").read_text()
