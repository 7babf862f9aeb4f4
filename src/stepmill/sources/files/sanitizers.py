"""The address and undefined-behaviour sanitizers of a compiler, for ``stepmill.compile(..., debug=True)``.

A library that is compiled with them needs their runtime, which has to be in a process from its start on. So such a
library runs in worker processes that were started with it, and not in the caller's. When it finds something, it writes
a report to a file and ends the worker.
"""

from __future__ import annotations

import contextlib
import functools
import os
import platform
import re
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Collection, Mapping, Sequence
from ctypes import CDLL
from dataclasses import dataclass
from pathlib import Path

from stepmill.errors import CompileError
from stepmill.sources.files.compiler import Compiler

FLAGS = (
    *("-Og", "-g", "-fno-omit-frame-pointer"),
    *("-fsanitize=address,undefined", "-fno-sanitize-recover=all"),
)
_FLAGS_OF_CLANG = ("-shared-libasan",)
# Several libraries, each with the names that it may have.
_RUNTIMES = {
    "g++": (("libasan.so",), ("libubsan.so",)),
    "clang++": ((f"libclang_rt.asan-{platform.machine()}.so", "libclang_rt.asan.so"),),
}
_PACKAGES = {"g++": "dnf install libasan libubsan", "clang++": "apt install libclang-rt-dev, dnf install compiler-rt"}
# Python's memory is never all freed at its end. Workers have handlers of their own for these signals, which would come
# first. What was freed last is kept, to see whether it is used again: less of it, as there are many workers.
_OPTIONS = (
    "detect_leaks=0:detect_odr_violation=0:allocator_may_return_null=1:abort_on_error=1:quarantine_size_mb=32:"
    "handle_segv=2:handle_sigbus=2:handle_sigfpe=2:handle_sigill=2:allow_addr2line=1"
)
_UNDEFINED_OPTIONS = "print_stacktrace=1:halt_on_error=1:abort_on_error=1:allow_addr2line=1"
_FRAME = re.compile(r"^ *#\d+ 0x[0-9a-f]+ in (?P<function>.*) (?P<path>/.*?):(?P<line>\d+)(?::\d+)?$", re.MULTILINE)
_KIND = re.compile(r"ERROR: (AddressSanitizer: .*?)(?: on address .*| \(pc .*| at pc .*)?$", re.MULTILINE)
_UNDEFINED = re.compile(r"^(?P<path>/.*?):(?P<line>\d+):\d+: runtime error: (?P<what>.*)$", re.MULTILINE)


def flags_of(compiler: Compiler) -> tuple[str, ...]:
    """What a compiler needs to be told."""
    return FLAGS + _FLAGS_OF_CLANG if compiler.name == "clang++" else FLAGS


def runtime_of(compiler: Compiler) -> list[str]:
    """The libraries that have to be loaded before all others."""
    if compiler.is_zig:
        raise CompileError(
            "debug=True needs g++ or clang++: Zig's compiler comes without the runtime of its sanitizers. CXX names "
            "another one"
        )
    return [_find_library(compiler, names) for names in _RUNTIMES[compiler.name]]


def _find_library(compiler: Compiler, names: Sequence[str]) -> str:
    for name in names:
        command = [*compiler.command, f"-print-file-name={name}"]
        place = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
        if os.path.isabs(place) and (found := _library_at(place)):
            return found
    raise CompileError(
        f"debug=True needs the runtime of the sanitizers of {compiler.command[0]}, and there is no "
        f"{' or '.join(names)}: {_PACKAGES[compiler.name]}"
    )


def _library_at(place: str) -> str | None:
    """A library, or the one that a script for the linker names."""
    with contextlib.suppress(OSError):
        content = Path(place).read_bytes()[:4096]
        if content.startswith(b"\x7fELF"):
            return os.path.realpath(place)
        named = re.search(rb"(/\S+\.so[.\d]*)", content)
        return named[1].decode() if named else None
    return None


@functools.cache
def is_here() -> bool:
    """Whether this process was started with a runtime."""
    return hasattr(CDLL(None), "__asan_init")


@dataclass(frozen=True)
class SanitizedLibrary:
    """A class compiled with sanitizers: what worker processes load that were started with their runtime."""

    library: bytes
    runtime: list[str]  # paths of libraries
    reports: str  # the path of a report, less the pid

    @classmethod
    def of(cls, library: bytes, runtime: list[str]) -> SanitizedLibrary:
        return cls(library, runtime, _reports())

    def worker_environ(self) -> dict[str, str]:
        """The variables that a process must have when it is started. Options of the user's own win."""
        names = (("ASAN_OPTIONS", _OPTIONS), ("UBSAN_OPTIONS", _UNDEFINED_OPTIONS))
        options = {name: ":".join(filter(None, [ours, os.environ.get(name)])) for name, ours in names}
        # Exceptions cross the runtime: it has to find the library of C++, which Python itself does not need.
        preload = " ".join(filter(None, [*self.runtime, "libstdc++.so.6", os.environ.get("LD_PRELOAD")]))
        return {**options, "LD_PRELOAD": preload, "PYTHONMALLOC": "malloc", REPORTS: self.reports}

    def direct_reports(self) -> None:
        """Lets this process, and those that it forks, write reports to files."""
        for path in self.runtime:  # each has a place of its own
            CDLL(path)["__sanitizer_set_report_path"](os.fsencode(self.reports))


# ---- reports -------------------------------------------------------------------------------------

REPORTS = "STEPMILL_REPORTS"  # a variable of the environment


@functools.cache
def _reports() -> str:
    """Found when it is needed: a machine may have no place for temporary files."""
    return os.path.join(tempfile.gettempdir(), f"stepmill-{secrets.token_hex(8)}")


@dataclass(frozen=True)
class SanitizerReport:
    """What a sanitizer found in a process before it ended it."""

    text: str

    @classmethod
    def take(cls, environ: Mapping[str, str], pid: int) -> SanitizerReport | None:
        """The report of a process that is gone, if there is one. It is shown on stderr, and can be taken once.

        ``environ``: what the process was started with.
        """
        if REPORTS not in environ:
            return None
        path = f"{environ[REPORTS]}.{pid}"
        try:
            text = Path(path).read_text(errors="replace")
            os.unlink(path)
        except OSError:
            return None
        with contextlib.suppress(Exception):  # stderr may be anything
            sys.stderr.write(text)
        return cls(text)

    def summary(self, files: Collection[str]) -> str:
        """What it found, and the first place in these files."""
        undefined = _UNDEFINED.search(self.text)
        kind = _KIND.search(self.text)
        what = f"UndefinedBehaviorSanitizer: {undefined['what']}" if undefined else kind[1] if kind else "a sanitizer"
        frames = [one for one in _FRAME.finditer(self.text) if one["path"] in files]
        if undefined and (undefined["path"] in files or not frames):
            return f"{what}, at {undefined['path']}:{undefined['line']}"
        if not frames:
            return what
        first = frames[0]
        return f"{what}, at {first['path']}:{first['line']} in {first['function'].partition('(')[0]}"
