"""The kernel of a native env class: compiled while you wait, and kept for the next program."""

from __future__ import annotations

import functools
import json
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from stepmill._version import __version__
from stepmill.device.cuda import nvrtc
from stepmill.device.cuda.kernel_source import kernel_source
from stepmill.errors import CompileError, UnsupportedError
from stepmill.settings import Settings
from stepmill.sources.files.cache import Cache, Entry, file_digest, key_of
from stepmill.sources.files.compiler import INCLUDES
from stepmill.sources.files.env_library import EnvLibrary, parts_of
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
    with library.laid_out() as (first, flags):
        before = ["-include", str(INCLUDES / "gpu" / "prelude.h")]
        try:
            shared = (INCLUDES / "flags.txt").read_text().split()
            options = [*defines, *before, *_read([*shared, *flags]), "-include", str(first)]
            return nvrtc.compile_kernel(text, architecture, [first.parent], options)
        except CompileError as error:
            here, there = str(first), next(iter(library.sources))
            same = len(os.path.commonprefix([here[::-1], there[::-1]]))  # noqa: RUF071 (the ends of two strings)
            said = [one.replace(here[:-same], there[:-same]) for one in (str(error), error.output)]
            raise CompileError(said[0], output=said[1]) from None


# ---- flags of the author's -----------------------------------------------------------------------

# They tune, warn, debug and link.
_LEFT_OUT = re.compile(r"-(?:[OmgwlLf]|W(?!p,)|std=(?:c|gnu)\+\+20$|pthread$|pipe$|pedantic)")
# But for these, which change what is computed, or where it lies in memory.
_CHANGES = re.compile(
    r"-(?:Ofast|f(?:"
    r"fast-math|unsafe-math-|associative-math|reciprocal-math|finite-math-only|no-signed-zeros|no-honor-|approx-func|"
    r"fp-contract=(?!off)|fp-model=(?!strict)|fp-eval-method|denormal-fp-math|single-precision-constant|cx-|complex-|"
    r"pack-struct|short-|(?:no-)?(?:un)?signed-|(?:wide-)?exec-charset"
    r")|m(?:fpmath=(?!sse)|daz-ftz|recip|long-double|ms-bitfields))"
)


def _refuse_flags(id: str, library: EnvLibrary) -> None:
    """Raises if a GPU would compute something else. ``$CXX`` may have flags too."""
    unknown = [one for one in library.flags if not parts_of(one)[0] and not _LEFT_OUT.match(one)]
    for one in [*unknown, *filter(_CHANGES.match, (*library.command, *library.flags))]:
        raise UnsupportedError(
            f"backend='cuda': {id} is compiled with the flag {one!r}, which NVIDIA's compiler does not know: "
            "expected -D, -U, -I, -iquote, -isystem, -idirafter or -include, or what tunes and links for the host and "
            "changes no number, such as -O3 and -lm. backend='thread' takes it"
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
