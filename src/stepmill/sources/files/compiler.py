"""Finds a C++ compiler, and makes a library of an author's class."""

from __future__ import annotations

import functools
import importlib.util
import os
import platform
import re
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stepmill import _native
from stepmill.errors import CompileError, MissingPackageError
from stepmill.sources.files.task_file import env_classes
from stepmill.system.progress import Progress

INCLUDES = Path(_native.__file__).parent / "include"
_LEAST = {"g++": 11, "clang++": 14}  # the first with all of C++20 that an env needs
_INSTALL = "apt install g++, dnf install gcc-c++, or pip install 'stepmill[compile]', which brings one"
_MOST_LINES = 12


@dataclass(frozen=True)
class Compiler:
    """A compiler that this machine has."""

    command: tuple[str, ...]
    version: str  # what it prints

    @property
    def name(self) -> str:
        return "clang++" if "clang" in self.version else "g++"

    @property
    def is_zig(self) -> bool:
        """Whether it is Zig's, a clang++ with a C++ library, a linker and a cache of its own."""
        return any(os.path.basename(one) in ("zig", "ziglang") for one in self.command)

    def flags(self) -> list[str]:
        """The flags that the engine itself is compiled with, and those of a library for this machine alone."""
        shared = (INCLUDES / "flags.txt").read_text().split()
        is_clang_on_arm = self.name == "clang++" and platform.machine() == "aarch64"  # where older ones have no -march
        processor = "-mcpu=native" if is_clang_on_arm else "-march=native"
        return [*shared, processor, "-fPIC", "-fvisibility=hidden", "-Wall", "-Wextra"]

    def linking(self, is_sanitized: bool) -> list[str]:
        """A library that needs no other. But a sanitizer's runtime has to see that of C++; Zig's is always inside."""
        static = ["-static-libstdc++", "-static-libgcc"]
        if self.is_zig or is_sanitized:
            static = ["-s"] if self.is_zig else []
        undefined = [] if is_sanitized else ["-Wl,--no-undefined"]  # the runtime defines the rest
        return ["-shared", *static, *undefined, f"-Wl,--version-script={INCLUDES / 'own_library.map'}"]

    def owns(self, file: str) -> bool:
        """Whether a file that an author includes came with the compiler or the system."""
        return file.startswith(tuple(f"{one}/" for one in self._folders))

    @functools.cached_property
    def _folders(self) -> list[str]:
        found = ["/usr", str(INCLUDES)]
        prefix = os.path.dirname(os.path.dirname(os.path.realpath(self.command[0])))
        if any(os.path.isdir(os.path.join(prefix, "lib", one)) for one in ("gcc", "clang")):  # no script of the user's
            found.append(prefix)
        if self.is_zig:
            found += [os.path.realpath(one) for one in _zig_folders(self.command)]
        return found


def find_compiler() -> Compiler:
    """``$CXX``, else g++, clang++, or that of the ziglang package."""
    wanted = os.environ.get("CXX", "")
    if wanted.strip():
        try:
            command = shlex.split(wanted)
        except ValueError as error:
            raise CompileError(f"CXX={wanted}: {error}") from error
        place = shutil.which(command[0])
        if place is None:
            raise CompileError(f"CXX={wanted}: there is no program {command[0]!r}")
        return _checked((place, *command[1:]))
    for name in ("g++", "clang++"):
        place = shutil.which(name)
        if place is not None:
            return _checked((place,))
    if importlib.util.find_spec("ziglang") is not None:
        return _checked((sys.executable, "-m", "ziglang", "c++"))
    raise MissingPackageError(
        "an env of one file needs a C++ compiler, and there is none: looked for $CXX, g++, clang++ and the package "
        f"ziglang. {_INSTALL}"
    )


@functools.cache
def _checked(command: tuple[str, ...]) -> Compiler:
    try:
        shown = subprocess.run(
            [*command, "--version"], capture_output=True, text=True, errors="replace", timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CompileError(f"{shlex.join(command)} --version failed: {error}") from error
    compiler = Compiler(command, shown.stdout.strip())
    number = re.search(r"\b(\d+)\.\d+(?:\.\d+)?\b", compiler.version)
    if shown.returncode != 0 or number is None:
        raise CompileError(f"{shlex.join(command)} --version did not say a version: {shown.stdout or shown.stderr!r}")
    if int(number[1]) < _LEAST[compiler.name]:
        raise CompileError(
            f"an env of one file needs C++20, from {' or '.join(f'{n} {v}' for n, v in _LEAST.items())} on, got "
            f"{compiler.version.splitlines()[0]!r}. CXX names another one"
        )
    return compiler


def _zig_folders(command: Sequence[str]) -> list[str]:
    package = importlib.util.find_spec("ziglang")
    return [
        *(package.submodule_search_locations or () if package is not None else ()),
        os.path.dirname(os.path.realpath(command[0])),
    ]


def get_include() -> str:
    """The folder with ``<stepmill/env.h>`` and ``<stepmill/c_env.h>``, for the ``-I`` of a compiler or an editor."""
    return str(INCLUDES)


def _zig_environ(folder: str) -> dict[str, str]:
    """Zig compiles its C++ library once and keeps it in its cache. Without a home, it needs to be told a place."""
    if os.environ.get("ZIG_GLOBAL_CACHE_DIR"):
        return dict(os.environ)
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    place = os.path.join(base, "zig")
    try:
        os.makedirs(place, exist_ok=True)
        is_usable = os.path.isabs(place) and os.access(place, os.W_OK)
    except OSError:
        is_usable = False
    return {**os.environ, "ZIG_GLOBAL_CACHE_DIR": place if is_usable else os.path.join(folder, "zig")}


@dataclass(frozen=True)
class Compiled:
    """A library, and the files that it was made of."""

    library: bytes
    files: list[str]  # the author's and all that it includes, absolute
    command: list[str]
    seconds: float  # of processor time
    warnings: str


def compile_class(
    compiler: Compiler, path: Path, name: str, flags: Sequence[str], is_sanitized: bool = False
) -> Compiled:
    """Compiles one class of a file, or raises what the compiler said about it."""
    with tempfile.TemporaryDirectory(prefix="stepmill-") as folder:
        lines, library, made_of = (Path(folder) / one for one in ("own.cpp", "own.so", "own.d"))
        lines.write_text(f'#include <core/own_library.h>\nSTEPMILL_LIBRARY(::{name}, "{name}")\n')
        command = [*compiler.command, *compiler.flags(), *flags, f"-I{INCLUDES}", f"-I{path.parent}"]
        command += ["-include", str(path), "-MD", "-MT", "own", "-MF", str(made_of), str(lines), "-o", str(library)]
        command += compiler.linking(is_sanitized)
        before = _cpu_of_children()
        try:
            if compiler.is_zig:
                code, said = _run(command, f"{path.name} with Zig, minutes the first time", _zig_environ(folder))
            else:
                # Nothing of it stays behind, and it speaks the language that `explain` reads.
                code, said = _run(command, path.name, {**os.environ, "TMPDIR": folder, "LC_ALL": "C"})
        except OSError as error:
            raise CompileError(f"{path}: {compiler.command[0]} cannot be started: {error}") from error
        if code != 0:
            raise CompileError(explain(said, path, name, code), output=said)
        try:
            named = _dependencies(made_of.read_text(errors="surrogateescape"))
            files = [one for one in map(os.path.abspath, named) if one != str(lines)]
            made = library.read_bytes()
        except OSError as error:
            raise CompileError(f"{path}: {compiler.command[0]} did not fail, and made no library: {error}") from error
    if not made.startswith(b"\x7fELF"):
        raise CompileError(f"{path}: {compiler.command[0]} did not fail, and what it made is no library")
    return Compiled(made, files, command, _cpu_of_children() - before, said)


def _run(command: list[str], what: str, environ: dict[str, str]) -> tuple[int, str]:
    """Runs a compiler: how it ended, and what it said. Shows that it is still running if that takes long.

    It has a process group of its own: it starts other programs, which have to end with it if the user interrupts this.
    """
    progress = Progress()
    quiet: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, env=environ, text=True, errors="replace", process_group=0, **quiet) as process:
        try:
            while True:
                try:
                    _, said = process.communicate(timeout=progress.until_next())
                    return process.returncode, said
                except subprocess.TimeoutExpired:
                    progress.show(f"compiling {what}")
        except BaseException:
            if process.returncode is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise
        finally:
            progress.end()


def _cpu_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _dependencies(text: str) -> list[str]:
    """The files in what ``-MD`` writes: a rule of make."""
    words = re.findall(r"(?:\\[\s#]|\$\$|[^\s\\]|\\)+", text.replace("\\\n", " ").partition(":")[2])
    return [re.sub(r"\\([\s#])", r"\1", one).replace("$$", "$") for one in words]


def explain(output: str, path: Path, name: str, code: int) -> str:
    """What a compiler said, as far as the author's file is concerned."""
    text = re.sub(r"\x1b\[[\d;]*[mK]", "", output)
    unknown = r"^\S*own\.cpp:2:\d+: error: .*(not been declared|no type named|no member named|undeclared)"
    if re.search(unknown, text, re.MULTILINE):
        found = env_classes(path.read_text(errors="replace"))
        return f"{path} has no class {name}: the file has {', '.join(found) or 'none'}"
    failed = r"error: (?:static assertion failed|static_assert failed)(?: due to requirement '.*')?:? \"?([^\"\n]+)"
    sentences = re.findall(failed, text)
    in_file = re.escape(str(path))
    places = re.findall(rf"^{in_file}:(\d+):(?:\d+:)? (?:fatal )?error: (.*)$", text, re.MULTILINE)
    lines = [*dict.fromkeys(sentences), *dict.fromkeys(f"line {line}: {what}" for line, what in places)]
    if not lines:
        lines = re.findall(r"^.*(?:error|undefined reference|killed|Killed).*$", text, re.MULTILINE)
    if not lines:
        ended = f"ended with {code}" if code >= 0 else f"was killed by {signal.Signals(-code).name}"
        lines = text.strip().splitlines() or [f"the compiler {ended}, and said nothing"]
    shown = lines[:_MOST_LINES]
    more = f"\n  and {len(lines) - len(shown)} more" if len(lines) > len(shown) else ""
    listed = "".join(f"\n  {one}" for one in shown)
    return f"{path} does not compile:{listed}{more}"
