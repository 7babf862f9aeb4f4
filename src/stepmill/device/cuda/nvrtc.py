"""NVRTC, NVIDIA's compiler as a library: it needs no GPU, and no CUDA that is installed on the machine."""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from stepmill.errors import CompileError, MissingPackageError
from stepmill.sources.files.compiler import INCLUDES

# What 13.0 makes of a clamp whose result is compared is wrong: CliffWalking walked off its cliff unpunished.
_LEAST = (13, 4)
_INSTALL = "pip install 'stepmill[cuda]' brings one"
OPTIONS = (
    "-std=c++20",
    "-default-device",  # an env class says nothing of where its functions run
    "-device-int128",
    "--fmad=false",  # a product and a sum stay two roundings, as on the host
    "--builtin-move-forward=false",
    "--builtin-initializer-list=false",
    "-no-source-include",
    # Attributes of other compilers, and functions that end in a `throw`.
    "-diag-suppress=1097,940",
    "-diag-error=20208",  # a long double, which would be read as if it were a double
)


def compile_kernel(source: str, architecture: int, includes: Sequence[Path], defines: Sequence[str] = ()) -> bytes:
    """What a GPU runs, for all of the same version. Raises CompileError, with what the compiler said."""
    nvrtc = _library()
    program = ctypes.c_void_p()
    check = functools.partial(_check, nvrtc)
    check(nvrtc.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"env.cu", 0, None, None))
    try:
        given = [*OPTIONS, f"-arch=sm_{architecture}", *defines, f"-I{INCLUDES / 'gpu' / 'std'}", f"-I{INCLUDES}"]
        given += [f"-I{one}" for one in includes]
        options = (ctypes.c_char_p * len(given))(*[one.encode() for one in given])
        failed = nvrtc.nvrtcCompileProgram(program, len(given), options) != 0
        said = _text_of(nvrtc, program, "ProgramLog").decode(errors="replace").rstrip("\0")
        if failed:
            raise CompileError(_explained(said), output=said)
        return _text_of(nvrtc, program, "CUBIN")
    finally:
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))


def version() -> tuple[int, int]:
    """The version of the compiler."""
    major, minor = ctypes.c_int(), ctypes.c_int()
    _check(_library(), _library().nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)))
    return major.value, minor.value


@functools.cache
def _library() -> Any:
    """The first one that is new enough: of the package, of a library that brings one, or of the system."""
    older = ""
    for path in _places():
        try:
            found = ctypes.CDLL(path)
        except OSError:
            continue
        found.nvrtcGetErrorString.restype = ctypes.c_char_p
        major, minor = ctypes.c_int(), ctypes.c_int()
        if found.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)) == 0:
            if (major.value, minor.value) >= _LEAST:
                return found
            older = f" but {major.value}.{minor.value}"
    raise MissingPackageError(
        f"backend='cuda' compiles envs with NVRTC {_LEAST[0]}.{_LEAST[1]} or later, and there is none{older}: "
        f"{_INSTALL}"
    )


def _places() -> Iterator[str]:
    package = importlib.util.find_spec("nvidia")
    folders = None if package is None else package.submodule_search_locations
    for folder in folders or ():
        yield os.path.join(folder, "cu13", "lib", "libnvrtc.so.13")
    yield "libnvrtc.so.13"


def _check(nvrtc: Any, result: int) -> None:
    if result != 0:
        raise CompileError(f"NVRTC failed: {nvrtc.nvrtcGetErrorString(result).decode()}")


def _text_of(nvrtc: Any, program: ctypes.c_void_p, what: str) -> bytes:
    size = ctypes.c_size_t()
    _check(nvrtc, getattr(nvrtc, f"nvrtcGet{what}Size")(program, ctypes.byref(size)))
    text = ctypes.create_string_buffer(size.value)
    _check(nvrtc, getattr(nvrtc, f"nvrtcGet{what}")(program, text))
    return text.raw


# What the compiler says, and what that means for the author of an env. It shows the line below its message.
_SHOWN = r"error: [^\n]*\n"
_FIRST = r"\A(?:(?![^\n]*error:)[^\n]*\n)*(?:[^\n]*/)?([^\n/]+)\((\d+)\): error: "  # where the first error is
_MEANINGS = (
    (r'static assertion failed(?: with "|: )([^"\n]+)', "{0}"),
    (r"Unresolved extern function '(\S+)'", "it uses {0}, which a GPU does not have: use arrays of a fixed size"),
    (r'cannot open source file "([^"]+)"', "it includes <{0}>, which a GPU does not have"),
    (
        rf"{_SHOWN}[^\n]*\bthrow\s*;",
        "it rethrows with `throw;`, which a GPU cannot do: name what you throw, as in `throw 1;`",
    ),
    (rf"{_SHOWN}[^\n]*\?[^\n;]*\bthrow\b", "it throws inside of `? :`, which a GPU cannot do: use an `if`"),
    (r'namespace "std" has no member (?:class |template )?"(\w+)"', "it uses std::{0}, which a GPU does not have"),
    (r"'(\w+)' is not a member of 'std'", "it uses std::{0}, which a GPU does not have"),
    (
        r"dynamic initialization is not supported",
        "it computes a variable outside of its functions when the program begins, which a GPU cannot do: make it "
        "constexpr, with a number that is written out",
    ),
    (r"'long double' is treated as 'double'", "it uses long double, which a GPU does not have: use double"),
    (r"does not support exception handling", "it catches an exception, which a GPU cannot do"),
    (
        rf'{_FIRST}(?:identifier|the global scope has no) "([^"]+)"(?: is undefined)?\n',
        "it uses {2} ({0}, line {1}), which the small standard library of a GPU does not have: write it in your file, "
        "or put what only the host calls between `#ifndef STEPMILL_GPU` and `#endif`. If it has a header that is not "
        "included, include that",
    ),
)


def _explained(said: str) -> str:
    for pattern, meaning in _MEANINGS:
        found = re.search(pattern, said)
        if found:
            return meaning.format(*map(_plain, found.groups()))
    errors = re.findall(r"^(?!\d+ errors? detected).*(?:error|fatal).*$", said, re.MULTILINE)
    return "\n  ".join(errors[:12]) or said


def _plain(name: str) -> str:
    """The class of a mangled name, if it is one of C++'s own."""
    found = re.match(r"_ZN?K?St(\d+)(\w+)", name)
    return f"std::{found[2][: int(found[1])]}" if found else name
