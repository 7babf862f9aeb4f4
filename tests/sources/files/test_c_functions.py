"""What ``stepmill/c_env.h`` promises to an author, and what it refuses."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stepmill
from stepmill.errors import CompileError, ConfigError, EnvError, StateError, UnsupportedError

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")

COUNTER = """
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <stepmill/c_env.h>

#ifndef ALIGNED
#define ALIGNED 8
#endif
typedef struct { _Alignas(ALIGNED) double count; double* heap; } Counter;

static const stepmill_setting settings[] = {{KEY, TYPE, DEFAULT}};
static const stepmill_array number = {.kind = STEPMILL_BOX, .dtype = STEPMILL_FLOAT64, NUMBER};
static const stepmill_array choice = {.kind = STEPMILL_DISCRETE, .dtype = CHOICE, .low = 0, .high = 9};

static int init(void* env, const double* settings, char* error) {
  Counter* self = env;
  if ((size_t)env % ALIGNED || self->count != 0) return snprintf(error, STEPMILL_ERROR_SIZE, "not as promised");
  if (settings[0] == 1) return 7;
  self->heap = HELD;
  return 0;
}
static int reset(void* env, stepmill_random* random, const double* options, char* error) {
  ((Counter*)env)->count = random->integer(random, 5, 5) + 100 * random->integer(random, 3, 2) - 305;
  return 0;
}
static int step(void* env, const void* const* action, stepmill_random* random, stepmill_result* result, char* error) {
  Counter* self = env;
  const int64_t chosen = *(const int64_t*)action[0];
  if (chosen == 7) return 7;
  if (chosen == 8) { memset(error, 'x', STEPMILL_ERROR_SIZE); return 1; }
  if (chosen == 9) { strcpy(error, "caf\\xe9"); return 1; }
  self->count += chosen;
  result->terminated = chosen == 6 ? 255 : 0;
  return 0;
}
static int observe(const void* env, void* const* observation, void* const* info, char* error) {
  *(double*)observation[0] = ((const Counter*)env)->count;
  return 0;
}
static int save(const void* env, void* sink, void (*put)(void*, const void*, int64_t), char* error) {
  put(sink, &((const Counter*)env)->count, 8);
  put(sink, "!", 1);
  return 0;
}
static int load(void* env, const void* bytes, int64_t count, char* error) {
  Counter* self = env;
  memcpy(&self->count, bytes, 8);
  if (count != 9 || ((const char*)bytes)[8] != '!') return snprintf(error, STEPMILL_ERROR_SIZE, "not mine");
  if (self->count == 3 && self->heap) return snprintf(error, STEPMILL_ERROR_SIZE, "unlucky");
  return 0;
}
static void end(void* env) {
  free(((Counter*)env)->heap);
  puts("closed");
}
static const stepmill_env counter = {
  .version = STEPMILL_C_ENV_VERSION, .size = SIZE, .name = "Counter", .env_size = sizeof(Counter),
  .settings = settings, .setting_count = 1,
  .spaces = {.observation = &number, .action = &choice, .observation_count = 1, .action_count = 1},
  .init = init, .reset = reset, .step = step, .observe = observe, MORE
};
const stepmill_env* stepmill_c_env(void) { return &counter; }
"""
USUAL = {
    **{"KEY": '"fails"', "TYPE": "STEPMILL_INTEGER", "DEFAULT": "0", "NUMBER": ".low=0,.high=1e9"},
    **{"CHOICE": "STEPMILL_INT64", "SIZE": "sizeof(stepmill_env)", "HELD": "NULL", "MORE": ""},
}
Built = Callable[..., str]


@pytest.fixture
def built(tmp_path: Path) -> Built:
    def build(**changed: str) -> str:
        (tmp_path / "counter.c").write_text(COUNTER)
        defined = [f"-D{name}={value}" for name, value in {**USUAL, **changed}.items()]
        # Hidden, as a careful author builds it: the header exports what must be.
        command = ["gcc", "-Wall", "-Werror", "-Wno-unused", "-fvisibility=hidden", "-fPIC", "-shared"]
        include = f"-I{stepmill.get_include()}"
        subprocess.run([*command, include, *defined, "counter.c", "-o", "counter.so"], cwd=tmp_path, check=True)
        return str(tmp_path / "counter.so")

    return build


def counts(pool: Any, action: int = 0) -> list[float]:
    return list(pool.step(np.full(pool.num_envs, action))[0])


@pytest.mark.parametrize("aligned", [8, 16, 32, 64])
def test_memory_is_aligned_for_its_type_and_0_at_first(built: Built, aligned: int) -> None:
    with stepmill.make(built(ALIGNED=str(aligned)), num_envs=9) as pool:
        assert list(pool.reset()[0]) == [0] * 9  # also: an empty range of integers is its lower end
        assert counts(pool, 2) == [2] * 9
        states = pool.save([0])
        counts(pool, 1)
        pool.restore(states, [4])
        assert counts(pool) == [3, 3, 3, 3, 2, 3, 3, 3, 3]


@pytest.mark.parametrize(
    ("action", "said"), [(7, "it returned 7"), (8, "x" * 1000), (9, "caf\N{REPLACEMENT CHARACTER}")]
)
def test_an_error_is_a_message_or_a_code(built: Built, action: int, said: str) -> None:
    library = built()
    with stepmill.make(library, num_envs=2) as pool:
        pool.reset()
        with pytest.raises(EnvError, match=said):
            pool.step(np.array([1, action]))
        assert counts(pool, 1) == [2, 0]  # the other goes on, and this one was reset
    with pytest.raises(EnvError, match="it returned 7"):
        stepmill.make(library, fails=1)


def test_flags_other_than_0_are_true(built: Built) -> None:
    with stepmill.make(built(), num_envs=1) as pool:
        pool.reset()
        assert pool.step(np.array([6]))[2].view(np.uint8) == 1


def test_an_env_that_holds_more_than_its_memory_is_not_copied(built: Built) -> None:
    with stepmill.make(built(HELD="malloc(8)", MORE=".close=end"), num_envs=2) as pool:
        pool.reset()
        with pytest.raises(UnsupportedError, match="does not say how it can be saved"):
            pool.save()


def test_every_env_that_was_begun_is_closed(built: Built, capfd: pytest.CaptureFixture[str]) -> None:
    """And one whose init failed is not."""
    library = built(HELD='(puts("begun"),malloc(8))', MORE=".close=end")
    with stepmill.make(library, num_envs=3) as pool:
        pool.reset()
    with pytest.raises(EnvError, match="it returned 7"):
        stepmill.make(library, env_config=[{"fails": 0}, {"fails": 1}], num_envs=2)
    ctypes.CDLL(None).fflush(None)
    said = capfd.readouterr().out.split()
    assert (said.count("begun"), said.count("closed")) == (4, 4)


def test_save_and_load_are_the_authors(built: Built) -> None:
    more = ".close=end,.save=save,.load=load"
    with stepmill.make(built(HELD="malloc(8)", MORE=more), num_envs=2) as pool:
        pool.reset()
        counts(pool, 2)
        states = pool.save()
        counts(pool, 1)
        unlucky = pool.save()
        counts(pool, 2)
        with pytest.raises(StateError, match="unlucky"):
            pool.restore(unlucky)
        assert counts(pool) == [5, 5]  # as before
        pool.restore(states)
        assert counts(pool) == [2, 2]


@pytest.mark.parametrize("size", ["sizeof(stepmill_env)+8", "8"])
def test_a_size_that_is_not_known_is_refused(built: Built, size: str) -> None:
    with pytest.raises(CompileError, match=r"of version 1 and size \d+, expected version 1 and size"):
        stepmill.make(built(SIZE=size))


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"MORE": ".save=save"}, "has no load to go with its save"),
        ({"MORE": ".env_size=-1"}, "its env_size is -1 bytes"),
        ({"MORE": ".step=0"}, "has no step"),
        ({"MORE": ".setting_count=-1"}, "has no settings to go with its setting_count"),
        ({"TYPE": "3"}, "setting 'fails': expected a type from 0 to 2, got 3"),
        ({"DEFAULT": "1e300"}, "setting 'fails': expected a whole number, got 1"),
        ({"KEY": "NULL"}, "a setting of its stepmill_env has no key"),
        ({"MORE": ".options=(const char*[]){KEY,KEY,KEY,KEY,KEY,KEY,KEY,0}"}, "at most 6 reset options, got 7"),
    ],
)
def test_what_is_missing_is_named(built: Built, changed: dict[str, str], said: str) -> None:
    with pytest.raises(CompileError, match=said):
        stepmill.make(built(**changed))


def test_a_discrete_number_is_an_int64(built: Built) -> None:
    with pytest.raises(ConfigError, match="expected a DISCRETE one to be a single INT64, got dtype 5 and rank 0"):
        stepmill.make(built(CHOICE="STEPMILL_INT32"))


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (".low=1,.high=0", "observation: expected low <= high, got 1"),
        (".low=0.0/0.0,.high=0", "observation: expected low <= high, got nan"),
        (".rank=2,.shape=(int64_t[]){1ll<<40,1ll<<40}", "observation: a shape with 1099511627776 in it"),
        (".kind=STEPMILL_MULTI_BINARY,.high=1", "observation: expected binary numbers to be int8"),
        (".kind=STEPMILL_MULTI_DISCRETE,.high=1", "observation: expected discrete numbers to be of a whole type"),
        (".kind=STEPMILL_MULTI_DISCRETE,.high=1.5", "observation: expected whole numbers, low <= high, got 0.*1.5"),
    ],
)
def test_arrays_that_cannot_be_are_refused(built: Built, number: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        stepmill.make(built(NUMBER=number, MORE=""))


@pytest.mark.parametrize("name", ["elapsed_step", "env_id", ""])
def test_infos_have_names_that_are_not_the_engines(built: Built, name: str) -> None:
    more = f'.spaces.info=(stepmill_array[]){{{{.name="{name}"}}}},.spaces.info_count=1'
    with pytest.raises(ConfigError, match=f"info: expected a name that is not the engine's own, got '{name}'"):
        stepmill.make(built(MORE=more))


def test_an_info_that_says_that_something_went_wrong_is_one_bool(built: Built) -> None:
    more = '.spaces.info=(stepmill_array[]){{.name="abnormal",.dtype=STEPMILL_INT8}},.spaces.info_count=1'
    with pytest.raises(ConfigError, match="info 'abnormal': expected one bool"):
        stepmill.make(built(MORE=more))


def test_a_library_that_is_still_being_written_is_refused(built: Built) -> None:
    path = Path(built())
    whole = path.read_bytes()
    for count in (20, 100, 5000, len(whole) - 1):
        path.write_bytes(whole[:count])
        with pytest.raises(CompileError, match="the library is not whole"):
            stepmill.make(str(path))


def test_the_header_is_c_and_cpp(tmp_path: Path) -> None:
    (tmp_path / "one.c").write_text(
        "#include <stepmill/c_env.h>\nconst stepmill_env* stepmill_c_env(void) { return 0; }"
    )
    for language in (["-x", "c", "-std=c99"], ["-x", "c++", "-std=c++11"]):
        command = ["gcc", *language, "-Wall", "-Wextra", "-Wpedantic", "-Werror", f"-I{stepmill.get_include()}"]
        subprocess.run([*command, "-shared", "-fPIC", "one.c", "-o", "one.so"], cwd=tmp_path, check=True)
        with pytest.raises(CompileError, match=r"its stepmill_c_env\(\) returned NULL"):
            stepmill.make(str(tmp_path / "one.so"))
