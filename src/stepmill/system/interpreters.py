"""Other Python interpreters, each with packages of its own: which one is meant, what of ours goes there, what it says.

An *island* is such an interpreter that runs envs of a pool, see docs/islands.md.
"""

from __future__ import annotations

import functools
import json
import os
import pickle
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from stepmill._version import __version__
from stepmill.errors import ConfigError, EnvTimeoutError, MissingPackageError, StepmillError
from stepmill.system.optional import imported

_OLDEST = (3, 11)
_PACKAGE = Path(__file__).parents[1]


def interpreter(name: str, given: Any) -> str:
    """The path of an interpreter, from that path, the folder of an environment, or a name on the ``PATH``."""
    expected = f"{name}: expected the path of a Python interpreter, or of the folder of an environment"
    try:
        path = os.path.expanduser(os.fspath(given))
    except TypeError:
        raise ConfigError(f"{expected}, got {given!r}") from None
    if not isinstance(path, str) or not path:
        raise ConfigError(f"{expected}, got {given!r}")
    if not os.path.exists(path) and os.sep not in path:
        path = shutil.which(path) or path
    if os.path.isdir(path):
        inside = os.path.join(path, "bin", "python")
        if not os.path.exists(inside):
            raise ConfigError(f"{expected}, got the folder {path!r} without bin/python. To make one: {_venv(path)}")
        path = inside
    if not os.path.exists(path):
        raise ConfigError(f"{expected}, got {given!r}: there is no such file or folder. To make one: {_venv(path)}")
    if not os.access(path, os.X_OK):
        raise ConfigError(f"{expected}, got {path!r}, which may not be executed")
    return os.path.abspath(path)  # not its real path: a link in an environment says which environment it is


def _venv(path: str) -> str:
    return f"python -m venv {path}"


# ---- what goes there -----------------------------------------------------------------------------


def own_folders() -> list[str | None]:
    """The entries of ``sys.path`` with the user's own code. None stands for the interpreter's own, in their place.

    Packages that are installed here stay here: there they would hide the ones that the interpreter was chosen for.
    """
    ours = {os.path.abspath(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    found: list[str | None] = []
    for entry in sys.path:
        if not isinstance(entry, str):
            continue
        if _is_installed_code(os.path.abspath(entry), ours):
            if None not in found:
                found.append(None)
        else:
            found.append(entry)
    return found if None in found else [*found, None]


def _is_installed_code(folder: str, ours: set[str]) -> bool:
    path = Path(folder)
    if {"site-packages", "dist-packages"} & set(path.parts) or re.fullmatch(r"python\d+\.zip", path.name):
        return True
    return any(path.is_relative_to(one) for one in ours)


def environ_for(python: str, environ: Mapping[str, str]) -> dict[str, str]:
    """An environment for another interpreter: as if it were activated, and this one were not."""
    dropped = ("PYTHONPATH", "PYTHONHOME", "PYTHONPLATLIBDIR", "__PYVENV_LAUNCHER__", "VIRTUAL_ENV")
    kept = {name: value for name, value in environ.items() if name not in dropped}
    folder = os.path.dirname(python)
    home = os.path.dirname(folder)
    if not os.path.exists(os.path.join(home, "pyvenv.cfg")):
        return kept
    programs = os.pathsep.join([folder, *filter(None, [environ.get("PATH")])])
    return {**kept, "VIRTUAL_ENV": home, "PATH": programs}


# ---- does stepmill work there --------------------------------------------------------------------

# It has to run in any version of Python.
_PROBE = """
import json, sys
sys.path[:] = [entry for entry in sys.path if entry]
found = {"python": list(sys.version_info[:3])}
try:
    import stepmill
    from stepmill import _native
    found["version"] = stepmill.__version__
    if found["version"] == sys.argv[1]:
        from stepmill.system.interpreters import build_mark
        found["mark"] = build_mark()
except BaseException:
    error = sys.exc_info()[1]
    found["error"] = "%s: %s" % (type(error).__name__, error)
    found["missing"] = getattr(error, "name", None)
print("\\n" + json.dumps(found))
"""


@functools.cache
def build_mark() -> dict[str, int]:
    """Numbers for the files of this package: two builds of one version may differ, and must not meet in a pool.

    One is for its code in Python; one, by its name, for the compiled module, whose name tells the Python and the
    machine it is for.
    """
    files = {str(one.relative_to(_PACKAGE)): zlib.crc32(one.read_bytes()) for one in _PACKAGE.rglob("*.py")}
    compiled = {one.name: zlib.crc32(one.read_bytes()) for one in _PACKAGE.glob("_native*.so")}
    return {"python": zlib.crc32(repr(sorted(files.items())).encode()), **compiled}


def is_same_build(mark: Any) -> bool:
    """Whether the ``build_mark`` of another interpreter is that of the same build, perhaps for another Python."""
    ours = build_mark()
    if not isinstance(mark, Mapping):  # an older build has another kind of mark
        return False
    return "python" in mark and all(ours[name] == mark[name] for name in ours.keys() & mark.keys())


def why_unusable(python: str, seconds: float | None, exit_code: int | None, said: str = "") -> StepmillError:
    """Why an interpreter could not start stepmill. ``said`` is what it wrote to stderr in its attempt."""
    ours = __version__
    where = f"python={python!r}"
    try:
        done = _run(python, ["-c", _PROBE, ours], seconds)
    except subprocess.TimeoutExpired:
        return EnvTimeoutError(f"{where}: it did not answer in {seconds:.0f} s", phase="constructor")
    except OSError as error:
        return ConfigError(f"{where}: expected a Python interpreter, got a file that cannot be run: {error}")
    try:
        found = json.loads(done.stdout.splitlines()[-1])
        version = tuple(found["python"])
    except (ValueError, LookupError, TypeError):
        text = done.stderr.decode(errors="replace").strip()[-500:]
        return ConfigError(
            f"{where}: expected a Python interpreter, got a program that does not run Python code: it exited with code "
            f"{done.returncode}{f' and said: {text}' if text else ''}"
        )
    return _misfit(where, python, version, found, ours) or StepmillError(
        f"{where}: the process that starts the workers exited with code {exit_code} during its startup"
        f"{f': {said[-2000:]}' if said else ''}"
    )


def _misfit(
    where: str, python: str, version: tuple[int, ...], found: Mapping[str, Any], ours: str
) -> StepmillError | None:
    shown = ".".join(map(str, version))
    install = f"{python} -m pip install {{}}'stepmill=={ours}'"
    if version < _OLDEST:
        return ConfigError(
            f"{where}: expected Python {'.'.join(map(str, _OLDEST))} or later, got {shown}. Make an environment with a "
            "newer Python and install stepmill there"
        )
    if found.get("missing") == "stepmill":
        return MissingPackageError(
            f"{where}: stepmill must be installed there too, version {ours} as here, and is not: {install.format('')}"
        )
    if "error" in found:
        return MissingPackageError(
            f"{where}: stepmill is installed there but cannot be imported by Python {shown}: {found['error']}. Install "
            f"it again: {install.format('--force-reinstall ')}"
        )
    if found["version"] != ours:
        return MissingPackageError(
            f"{where}: expected stepmill {ours}, as in this process, got {found['version']}: {install.format('')}"
        )
    if not is_same_build(found["mark"]):
        return MissingPackageError(
            f"{where}: expected the stepmill of this process, got another build of version {ours}. Install both "
            f"from one wheel or checkout: {python} -m pip install --force-reinstall --no-deps PATH"
        )
    return None


# ---- questions -----------------------------------------------------------------------------------

_ASK = """
import sys
sys.path[:] = [entry for entry in sys.path if entry]
from stepmill.system import interpreters
interpreters.answer(sys.argv[1], int(sys.argv[2]))
"""


def ask(python: str, question: str, seconds: float = 60.0) -> Any:
    """What the function ``"module:name"`` of stepmill returns in another interpreter."""
    fd = os.memfd_create("answer", os.MFD_CLOEXEC)  # stdout belongs to whatever is imported there
    with os.fdopen(fd, "rb") as file:
        try:
            done = _run(python, ["-c", _ASK, question, str(fd)], seconds, pass_fds=(fd,))
        except (OSError, subprocess.TimeoutExpired):
            raise why_unusable(python, seconds, None) from None
        file.seek(0)
        mark, _, content = file.read().partition(b"\n")
    if done.returncode != 0 or not is_same_build(json.loads(mark or b"{}")):
        raise why_unusable(python, seconds, done.returncode, done.stderr.decode(errors="replace"))
    return pickle.loads(content)


def answer(question: str, fd: int) -> None:
    """In the other interpreter: writes the answer to ``fd``."""
    content = pickle.dumps(imported(question)(), 4)
    with os.fdopen(fd, "wb") as file:
        file.write(json.dumps(build_mark()).encode() + b"\n" + content)


def _run(
    python: str, arguments: list[str], seconds: float | None, pass_fds: tuple[int, ...] = ()
) -> subprocess.CompletedProcess[bytes]:
    environ = environ_for(python, os.environ)
    process = start_program([python, *arguments], environ, subprocess.PIPE, subprocess.PIPE, pass_fds)
    try:
        out, err = process.communicate(timeout=seconds)
        return subprocess.CompletedProcess(python, process.returncode, out, err)
    finally:
        end_program(process)
        for pipe in (process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()


# ---- processes -----------------------------------------------------------------------------------

_GUARDIAN = str(_PACKAGE / "system" / "guardian.py")
_END_S = 5.0


def start_program(
    command: list[str], environ: dict[str, str], stdout: int, stderr: int, pass_fds: Sequence[int] = ()
) -> subprocess.Popen[bytes]:
    """Starts an interpreter, in a session of its own. End it with ``end_program``.

    A script in its place, such as a wrapper around `conda run`, may start programs of its own. So it has a guardian,
    which ends all of them, also when this process is killed.
    """
    caller = os.pidfd_open(os.getpid())
    guarded = _is_script(command[0])
    try:
        return subprocess.Popen(
            [sys.executable, "-I", "-S", _GUARDIAN, str(caller), *command] if guarded else command,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            pass_fds=(caller, *pass_fds) if guarded else pass_fds,
            start_new_session=True,
        )
    finally:
        os.close(caller)


def end_program(process: subprocess.Popen[bytes]) -> None:
    """Ends what ``start_program`` has started, and what that has started."""
    if process.returncode is not None:
        return
    try:
        if _GUARDIAN in cast(list[str], process.args):
            os.kill(process.pid, signal.SIGTERM)
            process.wait(_END_S)
    except subprocess.TimeoutExpired:  # it was stopped
        pass
    if process.returncode is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _is_script(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            return file.read(2) == b"#!"
    except OSError:  # if it cannot be run either, that is an error of its own
        return False
