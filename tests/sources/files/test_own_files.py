"""Envs of one file, compiled: in C++, and in C."""

from __future__ import annotations

import os
import pickle
import shutil
import subprocess
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stepmill
from stepmill.envs import DingEnvWrapper
from stepmill.errors import (
    CompileError,
    ConfigError,
    EnvError,
    MissingPackageError,
    StateError,
    StepmillError,
    UnknownConfigError,
    UnsupportedError,
)
from stepmill.managers import SyncSubprocessEnvManager
from stepmill.sources.files import compiler as compilers
from support.probes import assert_same

pytestmark = [
    pytest.mark.usefixtures("one_cache"),
    pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++"),
]

COIN = """
#include <stepmill/env.h>

namespace games {
using namespace stepmill;

class Coin {
 public:
  static constexpr bool kNeverBlocks = true;
  static constexpr bool kPlainMemory = true;
  static std::vector<ConfigItem> configuration() { return {{"bias", 0.5}}; }
  static EnvSpec spec(const Config& config) {
    if (config.real("bias") > 1.0) throw std::invalid_argument("bias: expected at most 1");
    EnvSpec spec;
    spec.observation = {discrete(2)};
    spec.action = {discrete(3)};
    return spec;
  }
  explicit Coin(const Config& config) : bias_(config.real("bias")) {
    if (bias_ < 0.0) throw std::runtime_error("no such coin");
  }
  void reset(Rng& rng, const Options&) { side_ = rng.random() < bias_; }
  Outcome step(const ActionRow& action, Rng& rng) {
    if (action.index() == 2) throw std::runtime_error("it fell off the table");
    side_ = rng.integers(0, 1000) < 1000 * bias_ + rng.normal() * 0.0;
    return {action.index() == side_ ? 1.0 : 0.0, false, false};
  }
  void observe(const Row& row) const { *row.observation<std::int64_t>() = side_; }

 private:
  double bias_;
  std::int64_t side_ = 0;
};
}  // namespace games
"""

C_COIN = """
#include <stepmill/c_env.h>
#include <stdio.h>

typedef struct { double bias; int64_t side; } Coin;
static const stepmill_setting settings[] = {{"bias", STEPMILL_REAL, 0.5}};
static const stepmill_array two = {0, STEPMILL_DISCRETE, STEPMILL_INT64, 0, 0, 0, 1};
static const stepmill_array three = {0, STEPMILL_DISCRETE, STEPMILL_INT64, 0, 0, 0, 2};

static int init(void* env, const double* settings, char* error) {
  ((Coin*)env)->bias = settings[0];
  if (settings[0] < 0) return snprintf(error, STEPMILL_ERROR_SIZE, "no such coin");
  return 0;
}
static int reset(void* env, stepmill_random* random, const double* options, char* error) {
  Coin* coin = env;
  coin->side = random->uniform(random) < coin->bias;
  return 0;
}
static int step(void* env, const void* const* action, stepmill_random* random, stepmill_result* result, char* error) {
  Coin* coin = env;
  const int64_t guess = *(const int64_t*)action[0];
  if (guess == 2) return snprintf(error, STEPMILL_ERROR_SIZE, "it fell off the table");
  const int64_t drawn = random->integer(random, 0, 1000);
  coin->side = drawn < 1000 * coin->bias + random->normal(random) * 0.0;
  result->reward = guess == coin->side;
  return 0;
}
static int observe(const void* env, void* const* observation, void* const* info, char* error) {
  *(int64_t*)observation[0] = ((const Coin*)env)->side;
  return 0;
}
static void step_many(int32_t count, void* const* envs, const void* const* actions, stepmill_random* const* randoms,
                      stepmill_result* results) {
  char error[STEPMILL_ERROR_SIZE];
  for (int i = 0; i < count; ++i) step(envs[i], actions + i, randoms[i], results + i, error);
}
static const stepmill_env coin = {
  .version = STEPMILL_C_ENV_VERSION, .size = sizeof(stepmill_env), .name = "Coin", .env_size = sizeof(Coin),
  .never_blocks = 1, .settings = settings, .setting_count = 1,
  .spaces = {.observation = &two, .action = &three, .observation_count = 1, .action_count = 1},
  .init = init, .reset = reset, .step = step, .observe = observe,
#ifdef MANY
  .step_many = step_many,
#endif
};
const stepmill_env* stepmill_c_env(void) { return &coin; }
"""


@pytest.fixture(scope="module")
def coin(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("coin") / "coin.h"
    path.write_text(COIN)
    return str(path)


@pytest.fixture(scope="module", params=["", "-DMANY"])
def c_coin(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("c")
    (folder / "coin.c").write_text(C_COIN)
    flags = [request.param] if request.param else []
    include = f"-I{compilers.INCLUDES}"
    command = ["gcc", "-O2", "-fPIC", "-shared", include, *flags, "coin.c", "-o", "libcoin.so"]
    subprocess.run(command, cwd=folder, check=True)
    return str(folder / "libcoin.so")


def played(task: Any, steps: int = 60, **arguments: Any) -> list[Any]:
    actions = np.random.default_rng(3).integers(0, 2, (steps, 5))
    with stepmill.make(task, num_envs=5, seed=7, max_episode_steps=9, **arguments) as pool:
        out = [pool.reset()[0]]
        for action in actions:
            *row, info = pool.step(action)
            out.append([*row, info.get("episode_return")])
    return out


def model(bias: float, steps: int = 60) -> list[Any]:
    """The same env in numpy: what its generators draw."""
    rngs = [np.random.Generator(np.random.PCG64(np.random.SeedSequence(7 + i))) for i in range(5)]
    actions = np.random.default_rng(3).integers(0, 2, (steps, 5))
    out: list[Any] = [np.array([rng.random() < bias for rng in rngs], int)]
    elapsed = 0
    for action in actions:
        if elapsed == 9:  # next_step: this action resets
            out.append((np.array([rng.random() < bias for rng in rngs], int), np.zeros(5)))
            elapsed = 0
            continue
        sides = []
        for rng in rngs:
            sides.append(int(rng.integers(0, 1000) < 1000 * bias))
            rng.standard_normal()
        out.append((np.array(sides), (action == sides).astype(float)))
        elapsed += 1
    return out


@pytest.mark.parametrize("backend", ["inline", "thread", "process"])
def test_a_file_is_an_env(coin: str, backend: str) -> None:
    found, expected = played(coin, bias=0.7, backend=backend), model(0.7)
    np.testing.assert_array_equal(found[0], expected[0])
    for row, (observation, reward) in zip(found[1:], expected[1:], strict=True):
        np.testing.assert_array_equal(row[0], observation)
        np.testing.assert_array_equal(row[1], reward)


@pytest.mark.parametrize("backend", ["inline", "thread", "process"])
def test_c_functions_are_an_env(coin: str, c_coin: str, backend: str) -> None:
    for mine, other in zip(played(coin, bias=0.7), played(c_coin, bias=0.7, backend=backend), strict=True):
        for one, another in zip(mine, other, strict=True):
            np.testing.assert_array_equal(one, another)


def test_files_have_ids_configurations_and_lists(coin: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(os.path.dirname(coin))
    stepmill.register("OwnCoin-v0", "coin.h", max_episode_steps=9, config={"bias": 0.7})
    monkeypatch.chdir("/")
    for given in ("OwnCoin-v0", ["OwnCoin-v0"] * 5, stepmill.compile(coin)):
        arguments = {"bias": 0.7} if not isinstance(given, str) else {}
        for mine, other in zip(played(coin, bias=0.7), played(given, **arguments), strict=True):
            np.testing.assert_array_equal(mine[0], other[0])
    assert stepmill.make_spec("OwnCoin-v0").config["bias"] == 0.7
    with stepmill.make(coin, env_config=[{"bias": 0.0}, {"bias": 1.0}], num_envs=2) as pool:
        assert list(pool.reset()[0]) == [0, 1]
    with stepmill.make([coin, stepmill.compile(coin), "OwnCoin-v0"], backend="inline", seed=3) as pool:  # one by one
        assert_same(pool.reset(), stepmill.make(coin, num_envs=3, seed=3).reset())


def test_managers_have_them_too(coin: str) -> None:
    with SyncSubprocessEnvManager(partial(DingEnvWrapper, coin), [{"max_episode_steps": 2}] * 2) as manager:
        manager.seed([3, 4])
        manager.launch()
        assert manager.state_kind == "methods"
        done = []
        while len(done) < 4:
            done += [one.done for one in manager.step(dict.fromkeys(manager.ready_obs, 0)).values()]
        assert done == [False, False, True, True]


def test_states_of_files_are_saved_and_restored(coin: str, c_coin: str) -> None:
    for task in (coin, c_coin):
        with stepmill.make(task, num_envs=3, seed=1) as pool:
            pool.reset()
            states = pool.save()
            rows = [pool.step(np.ones(3, int))[:2] for _ in range(20)]
            pool.restore(pickle.loads(pickle.dumps(states)))
            for row in rows:
                np.testing.assert_array_equal(pool.step(np.ones(3, int))[:2], row)


def test_what_a_class_throws_is_an_error_of_its_row(coin: str, c_coin: str) -> None:
    for task in (coin, c_coin):
        with stepmill.make(task, num_envs=2, seed=1) as pool:
            pool.reset()
            if _has_many(task):
                continue  # which cannot fail
            with pytest.raises(EnvError, match="it fell off the table"):
                pool.step(np.array([0, 2]))
            pool.step(np.zeros(2, int))
        with pytest.raises(EnvError, match="no such coin"):
            stepmill.make(task, bias=-1.0)
    with pytest.raises(ConfigError, match="bias: expected at most 1"):
        stepmill.make(coin, bias=2.0)
    with pytest.raises(UnknownConfigError, match="bias"):
        stepmill.make(coin, bais=0.1)


def _has_many(task: str) -> bool:
    return (
        task.endswith(".so") and " t step_many" in subprocess.run(["nm", task], capture_output=True, text=True).stdout
    )


@pytest.mark.slow
def test_an_edited_file_is_new_code_and_old_pools_keep_the_old(tmp_path: Path) -> None:
    file = tmp_path / "coin.h"
    file.write_text(COIN)
    old = stepmill.make(str(file), num_envs=2, seed=1)
    old.reset()
    states = old.save()
    file.write_text(COIN.replace("? 1.0 : 0.0", "? 5.0 : 5.0"))
    with stepmill.make(str(file), num_envs=2, seed=1) as new, old:
        new.reset()
        assert list(new.step(np.zeros(2, int))[1]) == [5.0, 5.0]
        assert max(old.step(np.zeros(2, int))[1]) <= 1.0
        with pytest.raises(StateError, match="a state of other code"):
            new.restore(states)
        old.restore(states)


@pytest.mark.slow
def test_an_edited_include_is_seen(tmp_path: Path) -> None:
    (tmp_path / "prize.h").write_text("constexpr double kPrize = 2.0;")
    file = tmp_path / "coin.h"
    file.write_text('#include "prize.h"\n' + COIN.replace("? 1.0 : 0.0", "? kPrize : kPrize"))
    for prize in (2.0, 3.0):
        (tmp_path / "prize.h").write_text(f"constexpr double kPrize = {prize};")
        with stepmill.make(str(file), num_envs=1, seed=1) as pool:
            pool.reset()
            assert pool.step(np.zeros(1, int))[1] == prize


@pytest.mark.slow
def test_any_path_and_a_class_that_only_its_file_knows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / 'it\'s a "game": $1 #2 größe\\'
    (folder / "parts").mkdir(parents=True)
    (folder / "parts" / "prize $1 #2.h").write_text("constexpr double kPrize = 2.0;")
    (tmp_path / "vendor").mkdir()
    (tmp_path / "vendor" / "more.h").write_text("constexpr double kMore = 1.0;")
    text = COIN.replace("namespace games {", "namespace games { namespace {").replace("}  // namespace games", "}}")
    text = text.replace("? 1.0 : 0.0", "? kPrize + kMore : kPrize + kMore")
    text = f'#include "parts/prize $1 #2.h"\n#include <more.h>\n{text}\nint main() {{}}\n'
    (folder / "my coin.cpp").write_text(text)
    monkeypatch.chdir(tmp_path)
    library = stepmill.compile(folder / "my coin.cpp", flags=["-Ivendor"])
    assert [Path(one).name for one in library.sources] == ["my coin.cpp", "prize $1 #2.h", "more.h"]
    assert library == stepmill.compile(folder / "my coin.cpp", flags=["-Ivendor"])  # from the cache
    with stepmill.make(library, num_envs=1, seed=1) as pool:
        pool.reset()
        assert pool.step(np.zeros(1, int))[1] == 3.0


@pytest.mark.slow
def test_a_class_that_cannot_be_saved_says_what_to_write(tmp_path: Path) -> None:
    file = tmp_path / "coin.h"
    file.write_text(COIN.replace("static constexpr bool kPlainMemory = true;", ""))
    with stepmill.make(str(file)) as pool:
        pool.reset()
        with pytest.raises(UnsupportedError, match="put `static constexpr bool kPlainMemory = true;` into its class"):
            pool.save()


@pytest.mark.slow
def test_a_library_for_another_machine_is_compiled_from_its_sources(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dataclasses import replace

    (tmp_path / "here" / "vendor" / "games").mkdir(parents=True)
    (tmp_path / "here" / "vendor" / "games" / "prize.h").write_text("constexpr double kPrize = 1.0;")
    (tmp_path / "here" / "coin.h").write_text("#include <games/prize.h>\n" + COIN.replace("? 1.0", "? kPrize"))
    monkeypatch.chdir(tmp_path / "here")
    library = stepmill.compile("coin.h", flags=["-Ivendor"])
    (tmp_path / "here").rename(tmp_path / "there")  # the other machine does not have it
    foreign = replace(library, library=b"not for this machine", key="f" * 32)
    foreign = replace(foreign, machine=replace(library.machine, architecture="vax"))
    received = pickle.loads(pickle.dumps(foreign))
    with stepmill.make(received, num_envs=2) as pool:
        pool.reset()
    without = replace(foreign, sources={}, key="e" * 32)
    packed = pickle.dumps(without)
    with pytest.raises(CompileError, match="it is for vax, and this machine is"):
        pickle.loads(packed)


WRONG = {
    "no_class": ("int x;", "expected a class with `static EnvSpec spec"),
    "two_classes": (
        COIN.replace("Coin", "Heads") + COIN.replace("Coin", "Tails"),
        "found several env classes, games::Heads, games::Tails, none named Coin",
    ),
    "no_observe": (COIN.replace("observe", "look"), "observe must be public and const: void observe"),
    "no_outcome": (
        COIN.replace("Outcome step", "double step").replace(
            "return {action.index() == side_ ? 1.0 : 0.0, false, false}", "return 1.0"
        ),
        "step must be public and return Outcome",
    ),
    "private": (COIN.replace(" public:", " private:"), "reset must be public"),
    "mistake": (COIN.replace("side_ = 0;", "side_ = zero;"), r"line 3\d: .*zero.* was not declared"),
    "unlinked": (
        COIN.replace("class Coin {", "double later();\nclass Coin {").replace("? 1.0 : 0.0", "? later() : 0.0"),
        "later",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_with_a_file_is_said_in_its_own_terms(case: str, tmp_path: Path) -> None:
    source, expected = WRONG[case]
    file = tmp_path / "coin.h"
    file.write_text(source)
    with pytest.raises(CompileError, match=expected) as caught:
        stepmill.make(str(file))
    assert "own_library.h" not in str(caught.value)
    assert pickle.loads(pickle.dumps(caught.value)).output == caught.value.output


SPECS = {
    "throw 3;": "threw something that is not a std::exception",
    "spec.action = {};": "action: expected at least one array, got 0",
    "spec.action = {discrete(2), discrete(2)};": "action: expected one array, or a tree of .*, got 2",
    'spec.info = {discrete(2, "a"), discrete(2, "a")};': "info: two arrays are named 'a'",
    "spec.max_num_players = 0;": "max_num_players: expected at least 1, got 0",
    "spec.action = {box<float>({3}, {0, 0}, {1, 1})};": "action: expected one bound or 3, as it has elements, got 2",
    "spec.action = {box<float>({3}, {0, 0, 0}, {1, 1})};": "expected as many lows as highs, got 3 and 2",
    "spec.action = {box<float>({-3}, {0}, {1})};": "action: a shape with -3 in it",
}


@pytest.mark.slow
def test_what_is_wrong_with_a_spec_is_an_error_of_the_configuration(tmp_path: Path) -> None:
    cases = "".join(f'if (config.real("bias") == {i}) {{ {case} }}\n' for i, case in enumerate(SPECS))
    one_high = 'if (config.real("bias") == -1) spec.observation = {box<float>({3}, {0, -1, -2}, {1})};\n'
    source = COIN.replace("return spec;", f"{cases}{one_high}return spec;").replace("> 1.0) throw", "> 99) throw")
    file = tmp_path / "coin.h"
    file.write_text(source)
    for i, said in enumerate(SPECS.values()):
        with pytest.raises(ConfigError, match=said):
            stepmill.make_spec(str(file), bias=float(i))
    space = stepmill.make_spec(str(file), bias=-1.0).observation_space
    assert (list(space.low.flat), list(space.high.flat)) == ([0, -1, -2], [1, 1, 1])


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["thread", "process"])
def test_what_cannot_be_told_or_held_is_an_error_and_not_the_end(backend: str, tmp_path: Path) -> None:
    file = tmp_path / "coin.h"
    file.write_text(COIN.replace('return {{"bias", 0.5}}', 'throw std::runtime_error("no keys")'))
    with pytest.raises(ConfigError, match="configuration: no keys"):
        stepmill.make(str(file), backend=backend)
    file.write_text(COIN.replace("double bias_;", "double bias_;\n  char many_[1ll << 46];"))
    with pytest.raises(StepmillError), stepmill.make(str(file), backend=backend) as pool:
        pool.reset()


def test_without_a_compiler_the_error_says_what_to_install(coin: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(compilers.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(
        MissingPackageError, match=r"looked for \$CXX, g\+\+, clang\+\+ and the package ziglang. apt install"
    ):
        stepmill.make(coin)
    monkeypatch.setenv("CXX", "no-such-compiler -O1")
    with pytest.raises(CompileError, match="CXX=no-such-compiler -O1: there is no program 'no-such-compiler'"):
        stepmill.make(coin)


def test_an_old_compiler_is_refused(coin: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = tmp_path / "old"
    old.write_text("#!/bin/sh\necho 'g++ (GCC) 9.4.0'\n")
    old.chmod(0o755)
    monkeypatch.setenv("CXX", str(old))
    with pytest.raises(CompileError, match=r"from g\+\+ 11 or clang\+\+ 14 on, got 'g\+\+ \(GCC\) 9.4.0'"):
        stepmill.make(coin)


@pytest.mark.parametrize("flags", ["-O3", [1], None])
def test_flags_are_a_list_of_texts(coin: str, flags: Any) -> None:
    with pytest.raises((ConfigError, TypeError)):
        stepmill.compile(coin, flags=flags)


def test_libraries_that_are_none_are_refused(tmp_path: Path) -> None:
    (tmp_path / "text.so").write_text("not a library")
    with pytest.raises(CompileError, match="cannot be loaded"):
        stepmill.make(str(tmp_path / "text.so"))
    subprocess.run(["gcc", "-shared", "-x", "c", "/dev/null", "-o", "empty.so"], cwd=tmp_path, check=True)
    with pytest.raises(CompileError, match="exports neither stepmill_c_env"):
        stepmill.make(str(tmp_path / "empty.so"))
    old = C_COIN.replace(".version = STEPMILL_C_ENV_VERSION", ".version = 99")
    (tmp_path / "old.c").write_text(old)
    command = ["gcc", "-shared", "-fPIC", f"-I{compilers.INCLUDES}", "old.c", "-o", "old.so"]
    subprocess.run(command, cwd=tmp_path, check=True)
    with pytest.raises(CompileError, match=r"of version 99 .*expected version 1"):
        stepmill.make(str(tmp_path / "old.so"))
