"""Compilers: which one is used, what goes wrong with one, and what several programs do at once. Most are not real."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stepmill
from stepmill.errors import CompileError, ConfigError, ResetOptionError
from stepmill.sources.files import cache as caches
from stepmill.sources.files import compiler as compilers
from support.waiting import eventually

pytestmark = [
    pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc"),
    pytest.mark.usefixtures("deadline"),
]

ENV = """
#include <stepmill/c_env.h>
static const stepmill_array two = {0, STEPMILL_DISCRETE, STEPMILL_INT64, 0, 0, 0, 1};
static int init(void* env, const double* settings, char* error) { return 0; }
static int reset(void* env, stepmill_random* random, const double* options, char* error) { return 0; }
static int step(void* env, const void* const* action, stepmill_random* random, stepmill_result* result, char* error) {
  return 0;
}
static int observe(const void* env, void* const* observation, void* const* info, char* error) {
  *(int64_t*)observation[0] = 1;
  return 0;
}
static const stepmill_env env = {
  .version = STEPMILL_C_ENV_VERSION, .size = sizeof(stepmill_env), .name = "Coin", .env_size = 8,
  .spaces = {.observation = &two, .action = &two, .observation_count = 1, .action_count = 1},
  .init = init, .reset = reset, .step = step, .observe = observe,
};
const stepmill_env* stepmill_c_env(void) { return &env; }
"""
SOURCE = "class Coin { static EnvSpec spec(const Config&); };"
# Writes a line for each compilation, then does what the test asks for, then copies a library.
FAKE = r"""#!/bin/sh
if [ "$1" = --version ]; then echo 'g++ (a fake) 12.2.0'; exit 0; fi
while [ $# -gt 0 ]; do
  case "$1" in -o) out=$2;; -MF) made_of=$2;; -include) source=$2;; esac
  shift
done
echo $$ >> {folder}/compilations
{does}
printf 'own: %s\n' "$(printf %s "$source" | sed 's/[ #]/\\&/g; s/[$]/$$/g')" > "$made_of"
cat {folder}/library.so > "$out"
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    folder = tmp_path_factory.mktemp("c")
    (folder / "env.c").write_text(ENV)
    command = ["gcc", "-fPIC", "-shared", f"-I{compilers.INCLUDES}", "env.c", "-o", "env.so"]
    subprocess.run(command, cwd=folder, check=True)
    return (folder / "env.so").read_bytes()


class Fake:
    """A compiler, and the file that it compiles."""

    def __init__(self, folder: Path, library: bytes) -> None:
        self.folder = folder
        self.file = folder / "coin.h"
        self.file.write_text(SOURCE)
        (folder / "library.so").write_bytes(library)
        self.does("true")

    def does(self, what: str) -> None:
        path = self.folder / "fake-g++"
        path.write_text(FAKE.replace("{folder}", str(self.folder)).replace("{does}", what))
        path.chmod(0o755)

    @property
    def gate(self) -> Path:
        return self.folder / "gate"

    def waits_at_the_gate(self) -> None:
        self.does(f"until [ -e {self.gate} ]; do sleep 0.01; done")

    @property
    def compilations(self) -> int:
        path = self.folder / "compilations"
        return len(path.read_text().splitlines()) if path.exists() else 0


@pytest.fixture
def fake(tmp_path: Path, library: bytes, monkeypatch: pytest.MonkeyPatch) -> Fake:
    made = Fake(tmp_path, library)
    monkeypatch.setenv("CXX", str(tmp_path / "fake-g++"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return made


def works(file: Path) -> bool:
    with stepmill.make(str(file), num_envs=2) as pool:
        return list(pool.reset()[0]) == [1, 1]


# ---- several at once -----------------------------------------------------------------------------


def test_threads_that_want_the_same_file_compile_it_once(fake: Fake) -> None:
    fake.waits_at_the_gate()
    found: list[stepmill.sources.files.env_library.EnvLibrary] = []
    threads = [threading.Thread(target=lambda: found.append(stepmill.compile(fake.file))) for _ in range(3)]
    for thread in threads:
        thread.start()
    fake.gate.touch()
    for thread in threads:
        thread.join()
    assert fake.compilations == 1
    assert found[0] == found[1] == found[2]


def compile_in_process(file: str, answers: Any) -> None:
    answers.put(stepmill.compile(file).key)


@pytest.mark.slow
def test_processes_that_want_the_same_file_compile_it_once_also_if_one_is_killed(fake: Fake) -> None:
    fake.waits_at_the_gate()
    context = multiprocessing.get_context("spawn")
    answers = context.Queue()
    first, *others = (
        context.Process(target=compile_in_process, args=(str(fake.file), answers), daemon=True) for _ in range(3)
    )
    first.start()
    assert eventually(lambda: fake.compilations == 1)
    for one in others:
        one.start()
    assert first.pid is not None
    os.kill(first.pid, signal.SIGKILL)  # it holds the lock; its compiler lives on, and nobody waits for that
    first.join()
    assert eventually(lambda: fake.compilations == 2)
    fake.gate.touch()
    assert answers.get(timeout=60) == answers.get(timeout=60)
    for one in others:
        one.join()
    assert fake.compilations == 2
    assert works(fake.file)
    assert fake.compilations == 2


def test_a_lock_is_released_although_a_forked_child_has_a_copy(fake: Fake) -> None:
    cache = caches.Cache()
    with cache.lock("ab"):
        child = os.fork()
        if child == 0:
            signal.pause()
    try:
        with caches.Cache().lock("ab"):  # does not wait for the child
            pass
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


# ---- trouble -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("does", "says"),
    [
        ("kill -KILL $$", "the compiler was killed by SIGKILL, and said nothing"),
        ("echo 'g++: fatal error: Killed signal terminated program cc1plus' >&2; exit 1", "Killed signal terminated"),
        ("echo 'own.s: fatal error: No space left on device' >&2; exit 1", "No space left on device"),
        ("exit 4", "the compiler ended with 4, and said nothing"),
    ],
)
def test_a_compiler_that_fails_is_an_error_and_the_next_time_is_a_new_one(fake: Fake, does: str, says: str) -> None:
    fake.does(does)
    with pytest.raises(CompileError, match=says):
        stepmill.make(str(fake.file))
    fake.does("true")
    assert works(fake.file)
    assert fake.compilations == 2


def test_what_is_no_library_is_not_kept(fake: Fake) -> None:
    fake.does('echo "own: $source" > "$made_of"; echo junk > "$out"; exit 0')
    with pytest.raises(CompileError, match="did not fail, and what it made is no library"):
        stepmill.make(str(fake.file))
    fake.does("true")
    assert works(fake.file)


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("'g++", "CXX='g[+][+]: No closing quotation"),
        ("{folder}/garbage", "--version did not say a version"),
    ],
)
def test_nonsense_in_cxx_is_said_to_be_so(fake: Fake, command: str, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (fake.folder / "garbage").write_text("#!/bin/sh\nprintf '\\377\\376'\n")
    (fake.folder / "garbage").chmod(0o755)
    monkeypatch.setenv("CXX", command.replace("{folder}", str(fake.folder)))
    with pytest.raises(CompileError, match=says):
        stepmill.make(str(fake.file))


def test_a_compiler_speaks_the_language_that_is_read(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    fake.does('[ "$LC_ALL" = C ] || exit 4')
    assert works(fake.file)


def test_a_compiler_that_cannot_be_started_is_named(fake: Fake) -> None:
    assert compilers.find_compiler().version == "g++ (a fake) 12.2.0"  # known from now on
    (fake.folder / "fake-g++").write_text("#!/no/such/shell\n")
    with pytest.raises(CompileError, match=r"fake-g.. cannot be started: .*No such file"):
        stepmill.make(str(fake.file))


def test_ctrl_c_ends_the_compiler_and_what_it_started_and_leaves_no_files(fake: Fake) -> None:
    fake.does(f"echo $TMPDIR > {fake.folder}/temporary; sleep 1000 & echo $! >> {fake.folder}/compilations; wait")
    main = threading.get_ident()

    def is_waiting() -> bool:
        names = [frame.f_code.co_name for frame, _ in traceback.walk_stack(sys._current_frames()[main])]
        return fake.compilations == 2 and "communicate" in names

    def interrupt() -> None:
        eventually(is_waiting)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        stepmill.compile(fake.file)
    thread.join()
    for pid in (fake.folder / "compilations").read_text().split():
        assert eventually(lambda pid=pid: has_ended(int(pid)))
    used = (fake.folder / "temporary").read_text().strip()
    assert os.path.basename(used).startswith("stepmill-")
    assert not os.path.exists(used)


def has_ended(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def unusable_home(patch: pytest.MonkeyPatch, folder: Path) -> None:
    patch.delenv("XDG_CACHE_HOME")
    patch.setenv("HOME", "")


def cache_of_another_user(patch: pytest.MonkeyPatch, folder: Path) -> None:
    caches.Cache()
    patch.setattr(caches.os, "geteuid", lambda: 12345)


def full_disk(patch: pytest.MonkeyPatch, folder: Path) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    patch.setattr(caches.tempfile, "mkstemp", refuse)


def read_only_disk(patch: pytest.MonkeyPatch, folder: Path) -> None:
    caches.Cache()
    usual = os.open

    def refuse(path: Any, flags: int, *args: Any, **kwargs: Any) -> int:
        if "compiled" in os.fspath(path) and flags & (os.O_WRONLY | os.O_RDWR):
            raise OSError(30, "Read-only file system")
        return usual(path, flags, *args, **kwargs)

    patch.setattr(os, "open", refuse)


@pytest.mark.parametrize("trouble", [unusable_home, cache_of_another_user, full_disk, read_only_disk])
def test_where_nothing_can_be_kept_files_are_compiled_each_time(
    fake: Fake, trouble: Callable[[pytest.MonkeyPatch, Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    trouble(monkeypatch, fake.folder)
    assert works(fake.file)
    assert works(fake.file)
    assert fake.compilations == 2


@pytest.mark.slow
@pytest.mark.parametrize("options", ["size=32k", "ro"])
def test_a_file_system_that_is_full_or_read_only_is_no_error(fake: Fake, options: str) -> None:
    (fake.folder / "cache").mkdir()
    (fake.folder / "library.so").write_bytes((fake.folder / "library.so").read_bytes() + bytes(100_000))
    mount = f"mount -t tmpfs -o {options} none {fake.folder}/cache"
    tried = subprocess.run(["unshare", "-rm", "sh", "-c", mount], capture_output=True, check=False)
    if tried.returncode != 0:
        pytest.skip(f"cannot mount: {tried.stderr!r}")
    program = f"import stepmill; print([stepmill.compile({str(fake.file)!r}).name for _ in range(2)])"
    shell = f'{mount} && exec "$@"'
    command = ["unshare", "-rm", "sh", "-c", shell, "sh", sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "['Coin', 'Coin']\n", "")
    assert fake.compilations == 2


def test_entries_of_another_version_are_not_used(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    assert works(fake.file)
    for number in (1, 2):  # a later version may write them in another way, and an earlier one has other headers
        monkeypatch.setattr(caches, "_FORMAT", number + 100)
        assert works(fake.file)
        assert fake.compilations == 1 + number
    monkeypatch.setattr(stepmill.sources.files.env_library, "__version__", "0.0.1")
    assert works(fake.file)
    assert fake.compilations == 4


def test_damaged_entries_are_compiled_again(fake: Fake) -> None:
    assert works(fake.file)
    entry = next(one for one in (fake.folder / "cache/stepmill/compiled").iterdir() if not one.name.startswith("lock"))
    entry.write_bytes(entry.read_bytes()[:-5])
    assert works(fake.file)
    assert works(fake.file)
    assert fake.compilations == 2


def test_what_is_edited_while_it_is_compiled_is_not_kept(fake: Fake) -> None:
    fake.does(f"touch {fake.file}")
    assert works(fake.file)
    fake.does("true")
    assert works(fake.file)
    assert works(fake.file)
    assert fake.compilations == 2


def test_what_is_moved_into_place_while_it_is_compiled_is_not_kept(fake: Fake) -> None:
    other = fake.folder / "other"
    other.write_text(SOURCE)
    os.utime(other, (1, 1))
    fake.does(f"mv {other} {fake.file}")
    assert works(fake.file)
    fake.does("true")
    assert works(fake.file)
    assert works(fake.file)
    assert fake.compilations == 2


@pytest.mark.parametrize("beside", [True, False])
def test_a_file_that_an_include_finds_first_from_now_on_is_seen(fake: Fake, beside: bool) -> None:
    (fake.folder / "vendor").mkdir()
    (fake.folder / "nearer").mkdir()
    used = fake.folder / "vendor" / "rules.h"
    used.touch()
    fake.does(f'printf "own: %s {used}" "$source" > "$made_of"; cat {fake.folder}/library.so > "$out"; exit 0')
    flags = [f"-I{fake.folder}/nearer", "-isystem", f"{fake.folder}/vendor"]
    for _ in range(2):
        stepmill.compile(fake.file, flags=flags)
    assert fake.compilations == 1
    (fake.folder / ("" if beside else "nearer") / "rules.h").touch()
    for _ in range(2):
        stepmill.compile(fake.file, flags=flags)
    assert fake.compilations == 2


def test_what_flags_and_variables_name_is_seen(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(fake.folder)
    for name in ("rules.o", "more", "librules.a"):
        Path(name).write_text("-DA")
        flags = [{"more": "@more", "librules.a": "-lrules"}.get(name, name), "-L."]
        for _ in range(2):
            stepmill.compile(fake.file, flags=flags)
        Path(name).write_text("-DB")
        stepmill.compile(fake.file, flags=flags)
    assert fake.compilations == 6
    monkeypatch.setenv("CPATH", "/some/folder")
    stepmill.compile(fake.file, flags=flags)
    assert fake.compilations == 7


def test_states_are_not_those_of_other_flags_or_another_class(fake: Fake) -> None:
    fake.file.write_text(SOURCE + SOURCE.replace("Coin", "Other"))
    libraries = [
        stepmill.compile(fake.file),
        stepmill.compile(fake.file, flags=["-DSIDES=6"]),
        stepmill.compile(f"{fake.file}:Other"),
    ]
    assert len({one.code for one in libraries}) == 3


def test_what_takes_long_shows_that_it_goes_on(fake: Fake, monkeypatch: pytest.MonkeyPatch, capfd: Any) -> None:
    monkeypatch.setattr("stepmill.system.progress._LOG_S", 0.01)
    fake.waits_at_the_gate()
    thread = threading.Thread(target=stepmill.compile, args=(fake.file,))
    thread.start()
    shown: list[str] = []
    assert eventually(lambda: shown.append(capfd.readouterr().err) or "compiling coin.h, 0 s\n" in "".join(shown))
    fake.gate.touch()
    thread.join()


# ---- files and their names -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["two words.h", "it's.h", 'a "quote".h', "größe.h", "a:b.h", "$HOME#1.h", "-x.h", "back\\slash.h", "%s;&.h"]
)
def test_names_of_files_may_be_anything(fake: Fake, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = fake.folder / name.replace(".h", "")
    folder.mkdir()
    (folder / name).write_text(SOURCE)
    assert works(folder / name)
    monkeypatch.chdir(folder)
    assert works(Path(name))


def test_a_link_is_the_file_that_it_names_now(fake: Fake) -> None:
    link = fake.folder / "link.h"
    link.symlink_to(fake.file)
    assert works(link)
    other = fake.folder / "other.h"
    other.write_text(SOURCE.replace("Coin", "Other"))
    link.unlink()
    link.symlink_to(other)
    assert stepmill.compile(link).name == "Other"
    link.unlink()
    link.symlink_to(fake.folder / "gone.h")
    with pytest.raises(ConfigError, match="there is no file"):
        stepmill.compile(link)


def test_a_file_that_may_not_be_read_is_said_to_be_so(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Path) -> bool:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "is_file", refuse)  # root may read everything
    with pytest.raises(ConfigError, match=r"coin\.h' *: the file .* cannot be read: Permission denied"):
        stepmill.compile(fake.file)


# ---- real ones -----------------------------------------------------------------------------------

ZIG = f"{sys.executable} -m ziglang c++"


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [
        "g++",
        *(pytest.param(one, marks=pytest.mark.long) for one in ("clang++", "clang++-14")),
        pytest.param(ZIG, marks=pytest.mark.long, id="zig"),
    ],
)
def test_a_file_is_the_built_in_env_with_any_compiler(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if shutil.which(command.split()[0]) is None or (command == ZIG and find_spec("ziglang") is None):
        pytest.skip(f"needs {command}")
    monkeypatch.setenv("CXX", command)
    monkeypatch.setenv("ZIG_GLOBAL_CACHE_DIR", os.path.expanduser("~/.cache/zig"))  # its library takes minutes
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    cpp = Path(__file__).parents[3] / "cpp"
    library = stepmill.compile(cpp / "envs/classic/cartpole.h", flags=[f"-I{cpp}"])
    played = []
    for task in (library, "CartPole-v1"):
        rng = np.random.default_rng(0)
        with stepmill.make(task, num_envs=16, seed=5, max_episode_steps=500) as pool:
            played.append([pool.reset()[0]])
            for _ in range(300):
                played[-1] += pool.step(rng.integers(0, 2, 16))[:4]
    for mine, theirs in zip(*played, strict=True):
        np.testing.assert_array_equal(mine, theirs)
    with pytest.raises(ResetOptionError, match="low"), stepmill.make(library) as pool:  # what is thrown is caught
        pool.reset(options={"low": 1.0, "high": 0.0})


@pytest.mark.parametrize("home", ["", "/no/such/folder"])
def test_zig_has_a_cache_also_without_a_home(home: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ZIG_GLOBAL_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", home)
    monkeypatch.setattr(os, "makedirs", lambda *_, **__: os.listdir("/no/such/folder"))  # root may make any
    assert compilers._zig_environ("/temporary")["ZIG_GLOBAL_CACHE_DIR"] == "/temporary/zig"
    monkeypatch.setenv("ZIG_GLOBAL_CACHE_DIR", "/mine")
    assert compilers._zig_environ("/temporary")["ZIG_GLOBAL_CACHE_DIR"] == "/mine"


# ---- 200 edits -----------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
def test_edits_leak_their_libraries_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A library cannot be unloaded. Each edit is one more: here with other bytes at its end, which is as quick."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    template = compilers.INCLUDES / "envs/debug/template.h"
    compiled = stepmill.compile(template).library
    file = tmp_path / "edited.so"

    def edit_and_make(number: int) -> None:
        file.write_bytes(compiled + number.to_bytes(8, "little"))
        with stepmill.make(str(file), num_envs=2) as pool:
            pool.reset()
            pool.step(np.zeros(2, int))

    def used() -> tuple[int, int]:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return len(os.listdir("/proc/self/fd")), pages * os.sysconf("SC_PAGE_SIZE")

    for number in range(10):
        edit_and_make(number)
    descriptors, before = used()
    for number in range(200):
        edit_and_make(1000 + number)
    after, now = used()
    assert after == descriptors
    assert now - before < 200 * 2 * len(compiled)
