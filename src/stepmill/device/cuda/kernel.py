"""The kernel of a native env class: compiled while you wait, and kept for the next program."""

from __future__ import annotations

import functools
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from stepmill._version import __version__
from stepmill.device.cuda import nvrtc
from stepmill.device.cuda.kernel_source import kernel_source
from stepmill.errors import CompileError, UnsupportedError
from stepmill.settings import Settings
from stepmill.sources.files.cache import Cache, Entry, file_digest, key_of
from stepmill.sources.files.compiler import INCLUDES
from stepmill.sources.files.env_library import EnvLibrary, parts_of, whole_flags
from stepmill.sources.source import NativeSource
from stepmill.system.numpy_parity import choices
from stepmill.values.spaces import ArrayLeaf


class EnvClass(NamedTuple):
    """Where the class of an env is: in a header of stepmill's own, or in the author's files."""

    name: str
    header: str = ""
    library: EnvLibrary | None = None


def kernel_for(
    source: NativeSource,
    env_class: EnvClass,
    settings: Settings,
    described: Mapping[str, Any],
    leaves: Mapping[str, Sequence[ArrayLeaf]],
    architecture: int,
) -> bytes:
    """What a GPU of this version runs. Raises if the class is not one that can run there, in a sentence."""
    header, library = env_class.header, env_class.library
    text = kernel_source(
        header,
        env_class.name,
        (described["object_bytes"], described["object_alignment"]),
        leaves["observation"],
        leaves["action"],
        leaves["info"],
        settings.autoreset,
        settings.action_bounds,
    )
    if library is not None:
        _refuse_flags(source.id, library)
    trig, keeps_float32 = choices()
    defines = [f"-DSTEPMILL_FLOAT32_TRIG={trig}", f"-DSTEPMILL_SCALAR_PROMOTION={int(not keeps_float32)}"]
    files = {one: file_digest(one) for one in _headers()}
    facts = {
        "text": text,
        "architecture": architecture,
        "defines": defines,
        "nvrtc": nvrtc.version(),
        "options": nvrtc.OPTIONS,
        "stepmill": __version__,
        "files": files,
        "library": None if library is None else library.key,
        # A library that was compiled again on this machine has the key that it had on another.
        "compiler": [] if library is None else _flags_of_compiler(library),
    }
    key, cache = key_of(facts), Cache()
    with cache.find_or_lock(key) as entry:
        if entry is not None:
            return entry.library
        try:
            image = _compiled(text, architecture, defines, library)
        except CompileError as error:
            raise CompileError(f"{source.id} cannot run on a GPU: {error}", output=error.output) from None
        cache.keep(key, Entry(image, files, [json.dumps(defines)], 0.0, ""))
        return image


def _compiled(text: str, architecture: int, defines: Sequence[str], library: EnvLibrary | None) -> bytes:
    """The kernel, with the author's files as they were when the class was compiled for the host."""
    if library is None:
        return nvrtc.compile_kernel(text, architecture, [], defines)
    all_flags = (*_flags_of_compiler(library), *_shared_flags(), *library.flags)  # in the order that the host has them
    with replace(library, flags=all_flags).laid_out() as (first, flags):
        before = ["-include", str(INCLUDES / "gpu" / "prelude.h")]
        try:
            options = [*defines, *before, *_read(flags), "-include", str(first)]
            return nvrtc.compile_kernel(text, architecture, [first.parent], options)
        except CompileError as error:
            here, there = str(first), next(iter(library.sources))
            same = len(os.path.commonprefix([here[::-1], there[::-1]]))  # noqa: RUF071 (the ends of two strings)
            said = [one.replace(here[:-same], there[:-same]) for one in (str(error), error.output)]
            raise CompileError(said[0], output=said[1]) from None


# ---- flags of the author's -----------------------------------------------------------------------

# They tune, warn, debug and link, or say where the host's compiler finds what is its own.
_LEFT_OUT = re.compile(
    r"-(?:[OmgwlLfB]|W(?!p,)|pedantic|pipe$|pthread$|std=(?:c|gnu)\+\+2[0a]$|"
    r"s$|shared$|rdynamic$|static-lib(?:gcc|stdc\+\+)$|stdlib=|-sysroot|-gcc-toolchain|-?target)"
)
# But for these, which a kernel would have to follow.
_CHANGES = {
    "how numbers are computed": (
        r"-Ofast|-ffast-math|-f(?:unsafe|associative|reciprocal)-math|-ffinite-math-only|-fno-signed-zeros|-fno-honor-|"
        r"-fapprox-func|-fsingle-precision-constant|-fcx-|-fcomplex-|-ffp-contract=(?!off$)|-ffp-eval-method=(?!source$)|"
        r"-ffp-model=(?!strict$)|"  # Clang's `precise` contracts, although -ffp-contract=off stands before it
        r"-fdenormal-fp-math(?!=ieee(?:,ieee)?$)|-mfpmath=(?!sse$)|-mdaz-ftz|-mrecip(?!=none$)|-mlong-double"
    ),
    "what a char or a bit-field can hold": r"-f(?:unsigned|no-signed)-(?:char|bitfields)",
    "how an object lies in memory": r"-fpack-struct|-fshort-|-mms-bitfields",
    "what a text is made of": r"-f(?:input-|exec-)charset=(?!(?i:utf-?8)$)|-fwide-exec-charset|-fno-char8_t",
    "what an #ifdef and a #pragma mean": r"-fopen(?:mp|acc)",  # they define _OPENMP and _OPENACC
}


def _shared_flags() -> tuple[str, ...]:
    """What stepmill's own code is compiled with, and each file of an author's."""
    return tuple((INCLUDES / "flags.txt").read_text().split())


def _flags_of_compiler(library: EnvLibrary) -> list[str]:
    """The flags in ``$CXX``: they stand before all others in the host's command."""
    command, shared = tuple(library.command), _shared_flags()
    end = next((i for i in range(len(command)) if command[i : i + len(shared)] == shared), len(command))
    words = [one for one in whole_flags(command[1:end]) if one[:1] in ("-", "@")]  # no `c++`, as in `zig c++`
    return [one for one in words if not re.match("--?std=", one)]  # stepmill's own is behind it, and wins


def _refuse_flags(id: str, library: EnvLibrary) -> None:
    """Raises if a GPU would compute something else."""
    given = [(f"{one!r} of $CXX", one) for one in _flags_of_compiler(library)]
    for named, one in [*given, *((repr(one), one) for one in library.flags)]:
        changed = next((what for what, pattern in _CHANGES.items() if re.match(pattern, one)), None)
        if changed is None and (parts_of(one)[0] or _LEFT_OUT.match(one)):
            continue
        why = f"which changes {changed} on the host, and would not on a GPU"
        if changed is None:
            why = "and stepmill does not know what it means for a GPU"
        raise UnsupportedError(
            f"backend='cuda': {id} is compiled with the flag {named}, {why}: expected -D, -U, -I, -iquote, -isystem, "
            "-idirafter or -include, or what only tunes and links for the host, such as -O3 and -lm. backend='thread' "
            "takes it"
        )


def _read(flags: Sequence[str]) -> list[str]:
    """What the preprocessor reads, as NVRTC writes it: it has one list of folders."""
    parts = [one for one in map(parts_of, flags) if one[0]]
    named = [f"{name}{given}" for name, given in parts if name in ("-D", "-U")]
    for kind in ("-iquote", "-I", "-isystem", "-idirafter"):
        named += [f"-I{folder}" for name, folder in parts if name == kind]
    return named + [word for name, file in parts if name == "-include" for word in (name, file)]


def class_of(source: NativeSource) -> EnvClass:
    """The class of an env. Raises UnsupportedError if there is no source of it that a GPU could run."""
    library = source.library
    if library is None:
        header = _own_headers().get(source.env_class)
        if header is None or source.simulators is not None:
            raise UnsupportedError(
                f"backend='cuda': {source.id} calls a simulator, which runs on the host: use backend='thread'"
            )
        return EnvClass(f"stepmill::{source.env_class}", header)
    if not isinstance(library, EnvLibrary) or not library.sources:
        raise UnsupportedError(
            f"backend='cuda': {source.id} is a library that is compiled for the host already: a GPU needs the C++ file "
            "of an env class"
        )
    return EnvClass(f"::{library.name}", library=library)


@functools.cache
def _headers() -> list[str]:
    """All headers that a kernel may include."""
    return [
        str(one)
        for folder in ("gpu", "core", "envs")
        for one in sorted((INCLUDES / folder).rglob("*"))
        if one.is_file()
    ]


@functools.cache
def _own_headers() -> dict[str, str]:
    """The header of each env class that is a part of stepmill."""
    found: dict[str, str] = {}
    for path in sorted((INCLUDES / "envs").rglob("*.h")):
        for name in re.findall(r"^(?:class|using) (\w+)", path.read_text(), re.MULTILINE):
            found.setdefault(name, str(path.relative_to(INCLUDES)))
    return found
