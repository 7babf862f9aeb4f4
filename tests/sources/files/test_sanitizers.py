"""``stepmill.compile(..., debug=True)``: what is wrong with an env's use of memory or numbers, with the line."""

from __future__ import annotations

import os
import pickle
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stepmill
from stepmill.errors import CompileError, ConfigError, EnvError, UnsupportedError, WorkerDiedError
from stepmill.sources.files.compiler import Compiler
from stepmill.sources.files.env_library import EnvLibrary, Machine
from stepmill.sources.files.sanitizers import REPORTS, SanitizedLibrary, SanitizerReport, runtime_of

pytestmark = pytest.mark.usefixtures("deadline")

CELLS = """
#include <stepmill/env.h>
#include <memory>
#include "cells.inc"

class Cells {
 public:
  static constexpr bool kPlainMemory = false;
  static stepmill::EnvSpec spec(const stepmill::Config&) {
    stepmill::EnvSpec spec;
    spec.observation = {stepmill::discrete(9)};
    spec.action = {stepmill::discrete(6)};
    return spec;
  }
  static std::vector<stepmill::ConfigItem> configuration() { return {{"in_constructor", std::int64_t{0}}}; }
  explicit Cells(const stepmill::Config& config) : cells_(std::make_unique<int[]>(8)) {
    act(config.integer("in_constructor"));
  }
  void reset(stepmill::Rng&, const stepmill::Options&) {}
  stepmill::Outcome step(const stepmill::ActionRow& action, stepmill::Rng& rng) {
    act(action.index());
    return {rng.random(), false, false};
  }
  void observe(const stepmill::Row& row) const { *row.observation<std::int64_t>() = cells_[0]; }

 private:
  void act(std::int64_t action) {
    if (action == 1) cells_[8] = 1;  // beyond
    if (action == 2) cells_[0] = overflow(static_cast<int>(action));
    if (action == 3) *reinterpret_cast<volatile int*>(action * 1000) = 1;  // nowhere
    if (action == 4) throw std::runtime_error("as usual");
    int* const former = cells_.get();
    if (action == 5) cells_ = std::make_unique<int[]>(8);
    if (action == 5) cells_[0] = former[1];  // too late
  }
  std::unique_ptr<int[]> cells_;
};
"""
INCLUDED = "inline int overflow(int by) { int most = 2147483647; most += by; return most; }  // over\n"
FOUND = {
    1: ("AddressSanitizer: heap-buffer-overflow", "cells.h", "// beyond"),
    2: ("UndefinedBehaviorSanitizer: signed integer overflow", "cells.inc", "// over"),
    3: ("AddressSanitizer: SEGV on unknown address", "cells.h", "// nowhere"),
    5: ("AddressSanitizer: heap-use-after-free", "cells.h", "// too late"),
}


def line_of(file: Path, mark: str) -> int:
    return next(i for i, line in enumerate(file.read_text().splitlines(), 1) if line.endswith(mark))


@pytest.fixture(scope="module", params=["g++", pytest.param("clang++", marks=pytest.mark.long)])
def cells(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    names = sorted(
        filter(None, [request.param, *map(shutil.which, ("clang++-14", "clang++-16", "clang++-19"))]), key=len
    )
    compiler = next((one for one in names if request.param in one and shutil.which(one)), None)
    if compiler is None:
        pytest.skip(f"needs {request.param}")
    file = tmp_path_factory.mktemp("debug") / "cells.h"
    file.write_text(CELLS)
    (file.parent / "cells.inc").write_text(INCLUDED)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CXX", compiler)
        patch.setenv("XDG_CACHE_HOME", str(file.parent))
        yield stepmill.compile(file, debug=True)


@pytest.mark.slow
def test_what_is_found_is_an_error_of_its_row_with_the_line(cells: EnvLibrary, capfd: Any) -> None:
    with stepmill.make(pickle.loads(pickle.dumps(cells)), num_envs=3, num_workers=3) as pool:
        pool.reset()
        for action, (what, name, mark) in FOUND.items():
            with pytest.raises(WorkerDiedError, match=what) as caught:
                pool.step(np.array([0, action, 0]))
            file = Path(cells.task).parent / name
            assert f"at {file}:{line_of(file, mark)}" in str(caught.value)
            assert list(caught.value.batch[-1]["abnormal"]) == [False, True, False]
            assert f"{file}:{line_of(file, mark)}" in str(caught.value.__cause__)
            assert what.partition(": ")[2] in capfd.readouterr().err
            pool.step(np.zeros(3, int))  # the next worker resets its env
            assert not pool.step(np.zeros(3, int))[-1].get("abnormal", np.zeros(1)).any()
        with pytest.raises(EnvError, match="as usual"):
            pool.step(np.array([0, 4, 0]))
    broken = stepmill.make(cells, num_envs=1, in_constructor=1)
    with pytest.raises(EnvError, match=r"heap-buffer-overflow, at .*cells\.h"), broken:
        broken.reset()


@pytest.mark.long
def test_the_episodes_are_those_without_sanitizers(cells: EnvLibrary) -> None:
    rewards = []
    for library in (cells, replace(cells, sanitized=None)):
        with stepmill.make(library, num_envs=2, num_workers=1, backend="process", seed=3) as pool:
            servers = [one["pid"] for one in pool.stats()["servers"] if one["pools"]]
            pool.reset()
            rewards.append([pool.step(np.zeros(2, int))[1] for _ in range(5)])
            environ = Path(f"/proc/{servers[-1]}/environ").read_bytes()
            assert (b"LD_PRELOAD=" in environ) == (library is cells)
    np.testing.assert_array_equal(*rewards)


# ---- without a compiler --------------------------------------------------------------------------


def library_with_sanitizers(runtime: str = "") -> EnvLibrary:
    sanitized = SanitizedLibrary.of(b"", [runtime])
    return EnvLibrary("cells.h", "Cells", "key", b"", Machine.here(), {}, sanitized=sanitized)


@pytest.mark.parametrize("backend", ["thread", "inline", "ray"])
def test_other_backends_are_refused(backend: str) -> None:
    with pytest.raises(
        UnsupportedError, match=rf"cells.h was compiled with debug=True.*'process' or 'auto'.*{backend}"
    ):
        stepmill.make(library_with_sanitizers(), backend=backend)  # type: ignore[call-overload]


def test_a_library_that_exists_cannot_be_debugged(tmp_path: Path) -> None:
    (tmp_path / "lib.so").touch()
    with pytest.raises(ConfigError, match="flags and debug are for files to compile"):
        stepmill.compile(tmp_path / "lib.so", debug=True)


def test_zig_is_refused() -> None:
    with pytest.raises(CompileError, match=r"debug=True needs g\+\+ or clang\+\+: Zig's"):
        runtime_of(Compiler(("python", "-m", "ziglang", "c++"), "clang version 22.1.8"))


def test_a_compiler_without_a_runtime_is_refused(tmp_path: Path) -> None:
    fake = tmp_path / "fake"
    fake.write_text("#!/bin/sh\necho libasan.so\n")  # what g++ says of a library that it does not find
    fake.chmod(0o755)
    with pytest.raises(CompileError, match=r"there is no libasan.so: dnf install libasan"):
        runtime_of(Compiler((str(fake),), "g++ 12.2.0"))


def test_a_script_for_the_linker_names_the_runtime(tmp_path: Path) -> None:
    (tmp_path / "libasan.so").write_text("INPUT ( /usr/lib64/libasan.so.8.0.0 )\n")
    fake = tmp_path / "fake"
    fake.write_text(f"#!/bin/sh\necho {tmp_path}/libasan.so\n")
    fake.chmod(0o755)
    assert set(runtime_of(Compiler((str(fake),), "g++ 12.2.0"))) == {"/usr/lib64/libasan.so.8.0.0"}


def test_options_of_the_user_come_last_and_so_win(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASAN_OPTIONS", "detect_leaks=1")
    monkeypatch.setenv("LD_PRELOAD", "mine.so")
    environ = library_with_sanitizers("/lib/libasan.so").worker_environ
    assert environ["ASAN_OPTIONS"].startswith("detect_leaks=0:")
    assert environ["ASAN_OPTIONS"].endswith(":detect_leaks=1")
    assert environ["LD_PRELOAD"] == "/lib/libasan.so libstdc++.so.6 mine.so"


def test_a_report_is_taken_once_and_leaves_no_file(tmp_path: Path, capsys: Any) -> None:
    environ = {REPORTS: str(tmp_path / "report")}
    ended = subprocess.Popen(["true"])
    ended.wait()
    (tmp_path / f"report.{ended.pid}").write_text(
        "==1==ERROR: AddressSanitizer: stack-overflow on address 0x1 (pc 0x2)"
    )
    report = SanitizerReport.take(environ, ended.pid)
    assert report is not None
    assert report.summary(()) == "AddressSanitizer: stack-overflow"
    assert "stack-overflow" in capsys.readouterr().err
    assert SanitizerReport.take(environ, ended.pid) is None
    assert os.listdir(tmp_path) == []
    assert SanitizerReport.take({}, ended.pid) is None


def test_a_machine_without_a_place_for_temporary_files_can_use_the_library() -> None:
    program = "import tempfile; del tempfile.gettempdir; import stepmill; stepmill.make('CartPole-v1').close()"
    subprocess.run([sys.executable, "-c", program], check=True)
