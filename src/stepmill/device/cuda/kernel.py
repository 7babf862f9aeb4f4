"""The kernel of a native env class: compiled while you wait, and kept for the next program."""

from __future__ import annotations

import functools
import json
import re
from pathlib import Path
from typing import NamedTuple

from stepmill._version import __version__
from stepmill.device.cuda import nvrtc
from stepmill.device.cuda.kernel_source import kernel_source
from stepmill.errors import CompileError, UnsupportedError
from stepmill.settings import Settings
from stepmill.sources.files.cache import Cache, Entry, file_digest, key_of
from stepmill.sources.files.compiler import INCLUDES
from stepmill.sources.files.env_library import EnvLibrary
from stepmill.sources.source import NativeSource
from stepmill.system.numpy_parity import choices
from stepmill.values.spaces import ArrayLeaf


class EnvClass(NamedTuple):
    """Where the class of an env is."""

    header: str
    name: str
    folders: list[Path]  # where the header finds others


def kernel_for(
    source: NativeSource,
    env_class: EnvClass,
    settings: Settings,
    leaves: dict[str, list[ArrayLeaf]],
    architecture: int,
) -> bytes:
    """What a GPU of this version runs. Raises if the class is not one that can run there, in a sentence."""
    header, name, folders = env_class
    text = kernel_source(
        header,
        name,
        leaves["observation"],
        leaves["action"],
        leaves["info"],
        settings.autoreset,
        settings.action_bounds,
    )
    trig, keeps_float32 = choices()
    defines = [f"-DSTEPMILL_FLOAT32_TRIG={trig}", f"-DSTEPMILL_SCALAR_PROMOTION={int(not keeps_float32)}"]
    files = {one: file_digest(one) for one in sorted([*_headers(), *_files_of(source)])}
    facts = {
        "text": text,
        "architecture": architecture,
        "defines": defines,
        "nvrtc": nvrtc.version(),
        "options": nvrtc.OPTIONS,
        "stepmill": __version__,
        "files": files,
    }
    key, cache = key_of(facts), Cache()
    with cache.find_or_lock(key) as entry:
        if entry is not None:
            return entry.library
        try:
            image = nvrtc.compile_kernel(text, architecture, folders, defines)
        except CompileError as error:
            raise CompileError(f"{source.id} cannot run on a GPU: {error}", output=error.output) from None
        cache.keep(key, Entry(image, files, [json.dumps(defines)], 0.0, ""))
        return image


def class_of(source: NativeSource) -> EnvClass:
    """The class of an env. Raises UnsupportedError if there is no source of it that a GPU could run."""
    library = source.library
    if library is None:
        header = _own_headers().get(source.env_class)
        if header is None or source.simulators is not None:
            raise UnsupportedError(
                f"backend='cuda': {source.id} calls a simulator, which runs on the host: use backend='thread'"
            )
        return EnvClass(header, f"stepmill::{source.env_class}", [])
    if not isinstance(library, EnvLibrary) or not library.sources:
        raise UnsupportedError(
            f"backend='cuda': {source.id} is a library that is compiled for the host already: a GPU needs the C++ file "
            "of an env class"
        )
    first = Path(next(iter(library.sources)))
    return EnvClass(str(first), f"::{library.name}", [first.parent])


def _files_of(source: NativeSource) -> list[str]:
    return list(source.library.sources) if isinstance(source.library, EnvLibrary) else []


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
