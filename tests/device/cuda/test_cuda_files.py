"""Envs of one file on a GPU: a kernel is compiled of what the host's class was compiled of, flags included."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stepmill
from stepmill import errors
from stepmill.sources.files.env_library import EnvLibrary
from support.cuda_pools import Both, HostGpu
from support.own_env import own_env
from support.probes import assert_same

Make = Callable[..., Both]


def shows(number: str, **given: Any) -> dict[str, Any]:
    """An env that shows this number."""
    return {"observe": f"*row.observation<double>() = {number};", **given}


def assert_shows(both: Make, task: Any, number: float) -> None:
    pools = both(task, num_envs=2)
    got, expected = pools.do(lambda pool: pool.reset())
    assert_same(got, expected)
    assert got[0].tolist() == [[number], [number]]
    action = np.array([1, 2])
    for _ in range(3):
        assert_same(*pools.do(lambda pool: pool.step(action)))


# ---- the files -----------------------------------------------------------------------------------


@pytest.fixture
def library(tmp_path: Path) -> Any:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "number.h").write_text("#define NUMBER 3.0\n")
    return stepmill.compile(own_env(tmp_path / "own.h", head='#include "sub/number.h"', **shows("NUMBER")))


@pytest.mark.parametrize("edited", ["the file", "what it includes", "gone"])
def test_what_was_edited_since_is_not_looked_at(both: Make, library: Any, tmp_path: Path, edited: str) -> None:
    if edited == "the file":
        own_env(tmp_path / "own.h", **shows("more_[8]", members="double more_[9]{};"))
    elif edited == "what it includes":
        (tmp_path / "sub" / "number.h").write_text("#define NUMBER 4.0\n")
    else:
        (tmp_path / "sub" / "number.h").unlink()
        (tmp_path / "own.h").unlink()
    assert_shows(both, library, 3.0)
    assert_shows(both, pickle.loads(pickle.dumps(library)), 3.0)


def test_an_edited_file_that_is_compiled_again_has_another_kernel(both: Make, library: Any, tmp_path: Path) -> None:
    assert_shows(both, library, 3.0)
    (tmp_path / "sub" / "number.h").write_text("#define NUMBER 4.0\n")
    assert_shows(both, str(tmp_path / "own.h"), 4.0)
    assert_shows(both, library, 3.0)


@pytest.mark.parametrize("name", ['dq"uote', "back\\slash", "uni-ä☃", "with space", "per%cent", "quo'te"])
def test_files_and_folders_of_any_name(both: Make, tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    folder.mkdir()
    (folder / "number.h").write_text("#define NUMBER 5.0\n")
    assert_shows(both, own_env(folder / f"{name}.h", head='#include "number.h"', **shows("NUMBER")), 5.0)


def test_the_class_named_as_the_file_wins_over_its_base(both: Make, tmp_path: Path) -> None:
    file = Path(own_env(tmp_path / "ih.h", "BaseCoin", **shows("1.0")))
    inherits = "class Ih : public BaseCoin {{ public: using BaseCoin::BaseCoin; void {} }};\n"
    observe = "observe(const stepmill::Row& row) const { *row.observation<double>() = 2.0; }"
    file.write_text(file.read_text() + inherits.format(observe))
    assert_shows(both, str(file), 2.0)
    assert_shows(both, f"{file}:BaseCoin", 1.0)


def test_what_does_not_compile_is_named_as_the_author_knows_it(gpu: HostGpu, tmp_path: Path) -> None:
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "odd.h").write_text("#ifdef STEPMILL_GPU\nodd\n#endif\n")
    (tmp_path / "own").mkdir()
    task = own_env(tmp_path / "own" / "own.h", head='#include "../more/odd.h"')
    with pytest.raises(errors.CompileError, match=rf"{tmp_path}/(own/\.\./)?more/odd\.h:2:") as caught:
        stepmill.make(task, backend="cuda")
    assert f"{tmp_path}/own/own.h" in caught.value.output


def test_members_that_a_gpu_does_not_have(gpu: HostGpu, tmp_path: Path) -> None:
    task = own_env(tmp_path / "own.h", members="\n#ifndef STEPMILL_GPU\ndouble more_[2]{};\n#endif\n")
    with pytest.raises(
        errors.CompileError,
        match=r"own\.h cannot run on a GPU: an object of Own lies .* where it has 24 bytes: expected the same members",
    ) as caught:
        stepmill.make(task, backend="cuda")
    assert "\n" not in str(caught.value)


def test_a_class_that_is_not_plain_memory_is_refused_before_it_is_compiled_for_a_gpu(
    gpu: HostGpu, tmp_path: Path
) -> None:
    file = Path(own_env(tmp_path / "own.h", head="#include <fstream>"))
    with pytest.raises(errors.CompileError, match=r"own\.h cannot run on a GPU: .*fstream"):
        stepmill.make(str(file), backend="cuda")
    file.write_text(file.read_text().replace("kPlainMemory = true", "kPlainMemory = false"))
    gpu.compiled.clear()
    with pytest.raises(errors.UnsupportedError, match=r"own\.h cannot be copied .* put `static constexpr bool kPlain"):
        stepmill.make(str(file), backend="cuda")
    assert not gpu.compiled


# ---- flags ---------------------------------------------------------------------------------------

SIDES = "#ifndef SIDES\n#define SIDES 2\n#endif"


def test_flags_that_the_preprocessor_reads(both: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for folder, number in (("near", 1), ("vendor", 2), ("far", 3)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / f"{folder}.h").write_text(f"#define {folder.upper()} {number}\n")
        (tmp_path / folder / "all.h").write_text(f"#define FIRST {number}\n")
    (tmp_path / "forced.h").write_text("#define FORCED 7\n")
    own = own_env(
        tmp_path / "own.h",
        head='#include "near.h"\n#include <vendor.h>\n#include <far.h>\n#include <all.h>',
        **shows("1000 * FIRST + 100 * NEAR + 10 * VENDOR + FAR + FORCED + 0.5 * GIVEN + sizeof(TEXT)"),
    )
    flags = ["-isystem", "far", "-Ivendor", "-iquotenear", "-include", "forced.h", "-D", "GIVEN=1"]
    library = stepmill.compile(own, flags=[*flags, '-DTEXT="a \\"b\\""', "-DGONE", "-U", "GONE"])
    assert_shows(both, library, 2000 + 100 + 20 + 3 + 7 + 0.5 + 6)


def test_paths_outside_of_the_author_s_folders_stay_what_they_are(tmp_path: Path) -> None:
    """Where files are laid out in another folder, a way out of it could lead into anybody's."""
    (tmp_path / "mine").mkdir()
    flags = ["-I/", f"-I{tmp_path}", f"-I{tmp_path / 'mine'}"]
    library = stepmill.compile(own_env(tmp_path / "mine/own.h"), flags=flags)
    with library.laid_out() as (file, found):
        assert found[:2] == tuple(flags[:2])
        assert Path(found[2].removeprefix("-I")) == file.parent


def test_other_flags_make_another_kernel(both: Make, gpu: HostGpu, tmp_path: Path) -> None:
    own = own_env(tmp_path / "own.h", head=SIDES, **shows("SIDES"))
    assert_shows(both, own, 2.0)
    assert_shows(both, stepmill.compile(own, flags=["-DSIDES=6"]), 6.0)
    assert_shows(both, stepmill.compile(own, flags=["-DSIDES=8"]), 8.0)
    assert_shows(both, own, 2.0)


def test_asserts_are_what_the_flags_make_of_them(both: Make, tmp_path: Path) -> None:
    """Like on the host, where none is checked unless a flag says so: there it ends the program, on a GPU the row."""
    step = "assert(action.index() != 2); return {1.0, false, false};"
    own = own_env(tmp_path / "own.h", head="#include <cassert>", step=step, observe="*row.observation<double>() = 3.0;")
    assert_shows(both, own, 3.0)
    with stepmill.make(stepmill.compile(own, flags=["-UNDEBUG"]), num_envs=2, backend="cuda") as pool:
        pool.reset()
        assert pool.step(np.array([1, 2]))[3].tolist() == [False, True]
        with pytest.raises(errors.EnvError, match="env 1 failed"):
            pool.check()


def test_flags_for_the_host_alone_are_left_out(both: Make, tmp_path: Path) -> None:
    flags = [
        "-O3",
        "-g",
        "-Wall",
        "-fno-plt",
        "-fno-fast-math",
        "-ffp-contract=off",
        "-fno-trapping-math",
        "-fno-short-enums",
        "-mtune=native",
        "-Wno-unused",
        "-w",
        "-lm",
        "-L/usr/lib",
        "-std=c++20",
        "-pthread",
        "-s",
        "-rdynamic",
        "-static-libgcc",
    ]
    assert_shows(both, stepmill.compile(own_env(tmp_path / "own.h", **shows("9.0")), flags=flags), 9.0)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory, one_cache: None) -> EnvLibrary:
    return stepmill.compile(own_env(tmp_path_factory.mktemp("plain") / "own.h"))


def test_flags_that_say_what_is_so_anyway_are_left_out(gpu: HostGpu, plain: EnvLibrary) -> None:
    flags = """-fsigned-zeros -fsigned-char -fno-unsigned-char -fsigned-bitfields -ffp-eval-method=source -mfpmath=sse
        -fdenormal-fp-math=ieee -mrecip=none -ffp-model=strict -fexec-charset=UTF-8 -finput-charset=utf-8 -fchar8_t
        -fno-openmp -static-libstdc++ -shared -std=c++2a"""
    stepmill.make(replace(plain, flags=tuple(flags.split())), backend="cuda").close()


def assert_refused(task: Any, flag: str, why: str = "") -> None:
    with pytest.raises(errors.UnsupportedError, match=r"own\.h is compiled with the flag ") as caught:
        stepmill.make(task, backend="cuda")
    assert f"{flag!r}{why}" in str(caught.value)


NUMBERS = """-ffast-math -Ofast -funsafe-math-optimizations -fassociative-math -freciprocal-math -ffinite-math-only
    -fno-signed-zeros -ffp-contract=fast -ffp-contract=on -fsingle-precision-constant -fcx-limited-range -mfpmath=387
    -mfpmath=both -mfpmath=sse,387 -mfpmath=sse+387 -mdaz-ftz -mrecip -ffp-model=fast -ffp-model=precise -fapprox-func
    -fno-honor-nans -fdenormal-fp-math=positive-zero -fdenormal-fp-math=ieee,positive-zero -mlong-double-64"""
CHARS = "-funsigned-char -fno-signed-char -funsigned-bitfields -fno-signed-bitfields"
LAYOUT = "-fpack-struct -fpack-struct=2 -fshort-enums -fshort-wchar -mms-bitfields"
TEXTS = "-fexec-charset=IBM1047 -finput-charset=latin1 -fwide-exec-charset=UTF-16 -fno-char8_t"
REASONS = {
    "which changes how numbers are computed on the host, and would not on a GPU": NUMBERS,
    "which changes what a char or a bit-field can hold on the host": CHARS,
    "which changes how an object lies in memory on the host": LAYOUT,
    "which changes what a text is made of on the host": TEXTS,
    "which changes what an #ifdef and a #pragma mean on the host": "-fopenmp -fopenmp-simd -fopenacc",
    "and stepmill does not know what it means for a GPU": "-std=gnu++23 -Wp,-DSIDES=6 @flags",
}


@pytest.mark.parametrize(("flag", "why"), [(flag, why) for why, flags in REASONS.items() for flag in flags.split()])
def test_any_other_flag_is_refused(gpu: HostGpu, plain: EnvLibrary, flag: str, why: str) -> None:
    assert_refused(replace(plain, flags=("-O2", flag)), flag, f", {why}")


# ---- flags in $CXX -------------------------------------------------------------------------------


@pytest.fixture
def of_the_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Sets ``$CXX``, in a folder with a file to include."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "vendor").mkdir()
    (tmp_path / "vendor" / "number.h").write_text("#define NUMBER 5.0\n")
    return lambda command: monkeypatch.setenv("CXX", command)


@pytest.mark.parametrize(
    ("command", "flags", "number"),
    [
        ("g++ -DNUMBER=7.0", [], 7.0),
        ("env g++ -D NUMBER=7.0 -pipe -std=gnu++17 -O1", [], 7.0),
        ("g++ -include vendor/number.h", [], 5.0),
        ("g++ -I vendor -include number.h", [], 5.0),
        ("g++ -DNUMBER=7.0", ["-UNUMBER"], 1.0),  # later ones win
        ("g++ -DNUMBER=7.0 -UNUMBER", ["-DNUMBER=3.0"], 3.0),
        ("g++ -UNDEBUG", ["-include", "vendor/number.h"], 5.0),
    ],
)
def test_what_the_preprocessor_reads_in_the_compiler_s_name(
    both: Make, tmp_path: Path, of_the_compiler: Callable[[str], None], command: str, flags: list[str], number: float
) -> None:
    of_the_compiler(command)
    head = "#ifndef NUMBER\n#define NUMBER 1.0\n#endif\n#ifndef NDEBUG\n#error checked\n#endif"
    library = stepmill.compile(own_env(tmp_path / "own.h", head=head, **shows("NUMBER")), flags=flags)
    (tmp_path / "vendor" / "number.h").write_text("#define NUMBER 6.0\n")  # after the host's was compiled
    assert_shows(both, library, number)


@pytest.mark.parametrize(
    ("flag", "why"),
    [
        ("-ffast-math", "which changes how numbers are computed on the host"),
        ("-Wp,-DSIDES=6", "and stepmill does not know what it means for a GPU"),
    ],
)
def test_a_flag_of_the_compiler_s_name_is_refused(
    gpu: HostGpu, tmp_path: Path, of_the_compiler: Callable[[str], None], flag: str, why: str
) -> None:
    of_the_compiler(f"g++ {flag}")
    assert_refused(own_env(tmp_path / "own.h"), flag, f" of $CXX, {why}")


# ---- names ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["Form", "Outside", "Memory", "Arguments", "Notes", "Results", "Arrays", "Envs", "limit"]
)
def test_a_class_may_have_any_name(both: Make, tmp_path: Path, name: str) -> None:
    assert_shows(both, own_env(tmp_path / "own.h", name, **shows("4.0")), 4.0)


def test_names_of_the_authors_own(both: Make, tmp_path: Path) -> None:
    head = "inline int limit = 3; enum class Outside { kIn }; struct Arrays {}; namespace gpu { struct Form {}; }"
    head += "\nusing namespace stepmill;"
    assert_shows(both, own_env(tmp_path / "own.h", head=head, **shows("limit")), 3.0)
