"""What envs of one file may do to others, and where that ends: in the worker process that runs them."""

from __future__ import annotations

import ctypes
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stepmill
from stepmill.errors import EnvTimeoutError, WorkerDiedError
from stepmill.sources.files import compiler as compilers

pytestmark = [
    pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc"),
    pytest.mark.usefixtures("server", "deadline"),
]

# In C, which compiles in no time. The observation says whether numbers are rounded as usual (1), and the locale is (2).
WILD = """
#include <fenv.h>
#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <stepmill/c_env.h>

static const stepmill_array number = {0, STEPMILL_DISCRETE, STEPMILL_INT64, 0, 0, 0, 9};

static int fine(void* env, stepmill_random* random, const double* options, char* error) { return 0; }
static int do_this(int64_t action) {
  volatile int loops = 1;
  switch (action) {
    case 1: *(volatile int*)16 = 1; break;
    case 2: exit(3);
    case 3: while (loops) {} break;
    case 4: fesetround(FE_UPWARD); break;
    case 5: setlocale(LC_TIME, "C.UTF-8"); break;
    case 6: {
      sigset_t all;
      for (int one = 1; one < 65; ++one) signal(one, SIG_IGN);
      sigfillset(&all);
      sigprocmask(SIG_BLOCK, &all, 0);
      break;
    }
    case 7: puts("what the env prints"); break;
    case 8: abort();
  }
  return 0;
}
static int init(void* env, const double* settings, char* error) { return do_this((int64_t)settings[0]); }
static int step(void* env, const void* const* action, stepmill_random* random, stepmill_result* result, char* error) {
  return do_this(*(const int64_t*)action[0]);
}
static int observe(const void* env, void* const* observation, void* const* info, char* error) {
  *(int64_t*)observation[0] = (fegetround() == FE_TONEAREST) + 2 * !strcmp(setlocale(LC_TIME, 0), "C");
  return 0;
}
static const stepmill_setting settings[] = {{"in_init", STEPMILL_INTEGER, 0}};
static const stepmill_env wild = {
  .version = STEPMILL_C_ENV_VERSION, .size = sizeof(stepmill_env), .name = "Wild", .env_size = 8,
  .settings = settings, .setting_count = 1,
  .spaces = {.observation = &number, .action = &number, .observation_count = 1, .action_count = 1},
  .init = init, .reset = fine, .step = step, .observe = observe,
};
const stepmill_env* stepmill_c_env(void) { return &wild; }
"""
NOTHING, SEGFAULT, EXIT, LOOP, ROUND_UP, OTHER_LOCALE, IGNORE_SIGNALS, PRINT, ABORT = range(9)
USUAL = 3


@pytest.fixture(scope="module")
def wild(tmp_path_factory: pytest.TempPathFactory) -> str:
    return library(tmp_path_factory.mktemp("wild"))


def library(folder: Path, *flags: str) -> str:
    (folder / "wild.c").write_text(WILD)
    command = ["gcc", "-O1", "-fPIC", "-shared", f"-I{compilers.INCLUDES}", *flags, "wild.c", "-o", "libwild.so", "-lm"]
    subprocess.run(command, cwd=folder, check=True)
    return str(folder / "libwild.so")


def goes_on(pool: Any) -> None:
    pool.reset()
    assert list(pool.step(np.zeros(pool.num_envs, int))[0]) == [USUAL] * pool.num_envs


@pytest.mark.parametrize(
    ("action", "says"),
    [(SEGFAULT, "was killed by SIGSEGV"), (EXIT, "exited with code 3"), (ABORT, "was killed by SIGABRT")],
)
def test_what_ends_a_worker_costs_its_rows(wild: str, action: int, says: str) -> None:
    with stepmill.make(wild, num_envs=2, num_workers=2, backend="process") as pool:
        pool.reset()
        with pytest.raises(WorkerDiedError, match=says) as caught:
            pool.step(np.array([NOTHING, action]))
        assert list(caught.value.batch[-1]["abnormal"]) == [False, True]
        goes_on(pool)


def test_an_endless_loop_ends_at_the_deadline_whatever_it_did_to_signals(wild: str) -> None:
    with stepmill.make(wild, num_envs=2, batch_size=1, num_workers=2, backend="process", step_timeout=0.5) as pool:
        pool.async_reset()
        pool.recv()
        pool.recv()
        while True:  # a busy machine may miss the deadline here too
            pool.send(np.array([IGNORE_SIGNALS]), np.array([1]))
            try:
                pool.recv()
                break
            except EnvTimeoutError:
                continue
        pool.send(np.array([LOOP]), np.array([1]))
        with pytest.raises(EnvTimeoutError, match=r"env 1 .*step_timeout=0.5"):
            pool.recv()
        pool.reset()


@pytest.mark.parametrize("change", [ROUND_UP, OTHER_LOCALE])
def test_what_an_env_changes_for_its_process_does_not_change_its_neighbours(wild: str, change: int) -> None:
    with stepmill.make(wild, num_envs=3, num_workers=1, backend="process") as pool:
        pool.reset()
        seen = pool.step(np.array([change, NOTHING, NOTHING]))[0]
        assert seen[0] != USUAL  # while it ran
        assert list(seen[1:]) == [USUAL, USUAL]
        goes_on(pool)


@pytest.mark.parametrize("backend", ["inline", "process"])
@pytest.mark.parametrize("change", [ROUND_UP, OTHER_LOCALE])
def test_what_a_constructor_changes_does_not_stay(wild: str, change: int, backend: str) -> None:
    with stepmill.make(wild, num_envs=2, num_workers=None, backend=backend, in_init=change) as pool:
        goes_on(pool)


def test_a_library_that_flushes_small_numbers_to_zero_does_so_to_no_others(tmp_path: Path) -> None:
    fast = library(tmp_path, "-ffast-math")  # gcc adds what does it when the library is loaded
    with stepmill.make(fast, num_envs=2) as pool:
        pool.reset()
        assert np.float64(5e-324) * 1.0 != 0.0


def test_signal_handlers_of_the_caller_are_its_own(wild: str) -> None:
    before = [signal.getsignal(one) for one in signal.valid_signals()]
    with stepmill.make(wild, num_envs=2, num_workers=1, backend="process") as pool:
        pool.reset()
        pool.step(np.full(2, IGNORE_SIGNALS))
        goes_on(pool)
    assert [signal.getsignal(one) for one in signal.valid_signals()] == before


@pytest.mark.parametrize("backend", ["thread", "process"])
def test_what_an_env_prints_is_shown(wild: str, backend: str, capfd: Any) -> None:
    with stepmill.make(wild, num_envs=2, backend=backend) as pool:
        pool.reset()
        pool.step(np.full(2, PRINT))
    ctypes.CDLL(None).fflush(None)  # C keeps it until the program ends
    assert capfd.readouterr().out.count("what the env prints") == 2
