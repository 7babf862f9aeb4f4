"""A compiled env class, which a pool, its workers and other machines load."""

from __future__ import annotations

import contextlib
import functools
import os
import platform
import re
import struct
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from stepmill import _native
from stepmill._version import __version__
from stepmill.errors import CompileError, ConfigError
from stepmill.sources.files import sanitizers
from stepmill.sources.files.cache import Cache, Entry, digest, file_digest, key_of, namesakes
from stepmill.sources.files.compiler import Compiled, Compiler, compile_class, find_compiler
from stepmill.sources.files.sanitizers import SanitizedLibrary
from stepmill.sources.files.task_file import TaskFile


@dataclass(frozen=True)
class Machine:
    """What a compiled library needs of the machine that runs it."""

    architecture: str
    features: frozenset[str]  # of the processor
    glibc: tuple[int, ...]

    @classmethod
    @functools.cache
    def here(cls) -> Machine:
        """The machine that runs this program."""
        named = re.search(r"^(?:flags|Features)\s*:(.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
        glibc = (os.confstr("CS_GNU_LIBC_VERSION") or "").rpartition(" ")[2]
        return cls(
            platform.machine(),
            frozenset(named[1].split()) if named else frozenset(),
            tuple(map(int, re.findall(r"\d+", glibc))),
        )

    def lacking(self, here: Machine) -> str | None:
        """Why what was compiled on this machine cannot run ``here``; None if it can."""
        if here.architecture != self.architecture:
            return f"it is for {self.architecture}, and this machine is {here.architecture}"
        if missing := self.features - here.features:
            return f"this processor lacks {', '.join(sorted(missing)[:5])}"
        if here.glibc < self.glibc:
            return f"it needs glibc {'.'.join(map(str, self.glibc))} or later"
        return None


@dataclass(frozen=True)
class EnvLibrary:
    """An env class of a file, compiled: what ``stepmill.compile`` returns.

    ``make`` takes it in place of an id. It can be pickled, and is loaded where that is read.

    Attributes:
        task: The file, as you named it.
        name: The class, with its namespaces.
        flags: Flags of yours.
        command: What was run to compile it; empty for a library that exists.
        seconds: The processor time that this took, perhaps in an earlier program.
        warnings: What the compiler said about it.
    """

    task: str  # as the user named it
    name: str  # the class, with its namespaces
    key: str  # what it was made of: two libraries with one key are the same
    library: bytes = field(repr=False)
    machine: Machine = field(repr=False)
    sources: dict[str, bytes] = field(repr=False)  # the author's files by path, the first one first
    flags: tuple[str, ...] = ()
    command: tuple[str, ...] = field(default=(), repr=False)
    seconds: float = 0.0
    warnings: str = field(default="", repr=False)
    sanitized: SanitizedLibrary | None = field(default=None, repr=False)

    @property
    def env_class(self) -> str:
        """The name under which the engine knows it."""
        return f"{self.name}@{self.key}"

    @property
    def worker_environ(self) -> dict[str, str]:
        """What its workers need in their environment from their start on."""
        return {} if self.sanitized is None else self.sanitized.worker_environ()

    @property
    def code(self) -> str:
        """What it was compiled of, on any machine: the author's files, class and flags, or the library itself."""
        if not self.sources:
            return digest(self.library)
        texts = [digest(text) for text in self.sources.values()]
        return key_of({"texts": texts, "class": self.name, "flags": self.flags})

    def load(self) -> EnvLibrary:
        """Makes the class known to the engine of this process."""
        sanitized = self.sanitized if self.sanitized is not None and sanitizers.is_here() else None
        descriptor = os.memfd_create(f"stepmill {self.name}", os.MFD_CLOEXEC)
        try:
            with os.fdopen(os.dup(descriptor), "wb") as file:
                file.write(self.library if sanitized is None else sanitized.library)
            if sanitized is not None:
                sanitized.direct_reports()
            _native.load_env_library(self.env_class, descriptor)
        except RuntimeError as error:
            raise CompileError(f"{self.task}: the library cannot be loaded: {error}") from error
        finally:
            if sanitized is None:  # else a report looks up its lines there
                os.close(descriptor)
        return self

    @contextlib.contextmanager
    def laid_out(self) -> Iterator[tuple[Path, tuple[str, ...]]]:
        """The author's files as they were compiled, in a folder: the first one, and the flags that find the others."""
        with tempfile.TemporaryDirectory(prefix="stepmill-") as folder:
            common = os.path.commonpath([os.path.dirname(one) for one in self.sources])

            def moved(path: str) -> str:
                return os.path.join(folder, os.path.relpath(path, common))

            for path, text in self.sources.items():
                copy = Path(moved(path))
                copy.parent.mkdir(parents=True, exist_ok=True)
                copy.write_bytes(text)
            flags = []
            for one in self.flags:
                name, path = parts_of(one)
                # Others are what they were: a path that leads out of the folder would be anybody's.
                is_inside = os.path.isabs(path) and os.path.commonpath([common, path]) == common
                is_here = name in _PATH_FLAGS and is_inside and os.path.exists(moved(path))
                flags.append(name + moved(path) if is_here else one)
            yield Path(moved(next(iter(self.sources)))), tuple(flags)

    def __reduce__(self) -> tuple[Any, ...]:
        return _received, tuple(getattr(self, one.name) for one in fields(self))


def _received(*given: Any) -> EnvLibrary:
    """A library that came from another process or machine, loaded; compiled again if that machine is another kind."""
    library = EnvLibrary(*given)
    lacking = library.machine.lacking(Machine.here())
    if lacking is None:
        return library.load()
    if not library.sources:
        raise CompileError(f"{library.task}: the library cannot run on this machine: {lacking}")
    with library.laid_out() as (first, flags):
        here = _compiled(library.task, first, library.name, flags, library.sanitized is not None)
    return replace(here, key=library.key).load()  # under the name that the envs of this pool have


def compile(task: str | os.PathLike[str], *, flags: Sequence[str] = (), debug: bool = False) -> EnvLibrary:
    """Compiles the env of a file, unless that was done before, and returns what ``make`` takes in its place.

    ``make("coin.h")`` does the same. This one shows what it did, and takes flags.

    Args:
        task: The file, then optionally ``:Class``: ``"coin.h"``, ``"games/coin.h:Coin"``. A library (``.so``) is loaded
            as it is.
        flags: More flags for the compiler, such as ``["-Ivendor", "-O3"]``. Those that change how numbers are computed
            change episodes.
        debug: Compile it with the address and undefined-behaviour sanitizers of g++ or clang++. Its pools run in worker
            processes, slower, and what is wrong with the env's use of memory or numbers is an error of its row, with
            the line. ``configuration`` and ``spec``, which also run in your process, are not checked there.

    Example:
        >>> import stepmill
        >>> library = stepmill.compile("coin.h", flags=["-O3"])  # doctest: +SKIP
        >>> pool = stepmill.make(library, num_envs=4)  # doctest: +SKIP
    """
    if isinstance(flags, str) or not all(isinstance(one, str) for one in flags):
        raise ConfigError(f"flags: expected a list of str, such as ['-O3'], got {flags!r}")
    file = TaskFile.of(task)
    if file.is_library:
        if flags or debug:
            raise ConfigError(f"{task}: flags and debug are for files to compile, and this is a library")
        data = file.path.read_bytes()
        if not _is_whole(data):
            raise CompileError(f"{task}: the library is not whole: is it still being written?")
        name = file.name or file.path.stem
        library = EnvLibrary(os.fspath(task), name, digest(data), data, Machine.here(), {})
        return library.load()
    name = file.class_of(file.path.read_text(errors="replace"))
    return _compiled(os.fspath(task), file.path, name, tuple(whole_flags(flags)), debug).load()


_PATH_FLAGS = ("-I", "-iquote", "-isystem", "-idirafter", "-include")
_PREPROCESSOR_FLAG = re.compile("|".join([*_PATH_FLAGS, "-D", "-U"]))


def parts_of(flag: str) -> tuple[str, str]:
    """A flag of the preprocessor, and what it is given; any other flag is the second part."""
    found = _PREPROCESSOR_FLAG.match(flag)
    return ("", flag) if found is None else (found[0], flag[found.end() :])


def whole_flags(flags: Sequence[str]) -> Iterator[str]:
    """The flags with paths that are the same in every folder, those of the preprocessor in one word each."""
    words = iter(flags)
    for one in words:
        name, given = parts_of(one)
        given = given or next(words, "")
        is_path = name == "-I" or (name in _PATH_FLAGS and os.path.exists(given))
        yield name + (os.path.abspath(given) if is_path and given else given)


def _is_whole(library: bytes) -> bool:
    """Whether an ELF file has all that its header says. To load a part of one would end the process.

    What is no such file, the loader refuses.
    """
    if not library.startswith(b"\x7fELF\x02\x01"):
        return True
    if len(library) < 64:
        return False
    programs, sections = struct.unpack_from("<QQ", library, 32)
    program_size, program_count, section_size, section_count = struct.unpack_from("<HHHH", library, 54)
    if max(programs + program_size * program_count, sections + section_size * section_count) > len(library):
        return False
    places = [struct.unpack_from("<IIQQQQ", library, programs + i * program_size) for i in range(program_count)]
    return all(offset + size <= len(library) for _, _, offset, _, _, size in places)


def _compiled(task: str, path: Path, name: str, flags: tuple[str, ...], debug: bool = False) -> EnvLibrary:
    compiler, machine = find_compiler(), Machine.here()
    runtime = sanitizers.runtime_of(compiler) if debug else None
    key, entry = _entry(compiler, machine, path, name, flags)
    theirs = {one: Path(one).read_bytes() for one in entry.files if not compiler.owns(one)}
    sources = {str(path): path.read_bytes(), **theirs}
    whole = key_of({"key": key, "files": entry.files})
    how = (tuple(entry.command), entry.seconds, entry.warnings)
    library = EnvLibrary(task, name, whole, entry.library, machine, sources, flags, *how)
    if runtime is None:
        return library
    _, entry = _entry(compiler, machine, path, name, (*flags, *sanitizers.flags_of(compiler)), True)
    return replace(library, sanitized=SanitizedLibrary.of(entry.library, runtime))


def _entry(
    compiler: Compiler, machine: Machine, path: Path, name: str, flags: tuple[str, ...], is_sanitized: bool = False
) -> tuple[str, Entry]:
    """What the cache has of a class, or gets now, and under which name."""
    facts = {
        "source": digest(path.read_bytes()),
        "path": str(path),
        "class": name,
        "flags": [*compiler.flags(), *compiler.linking(is_sanitized), *flags],
        "folder": os.path.realpath("/proc/self/cwd") if flags else None,  # which the user's flags may refer to
        "named": {one: file_digest(one) for one in _files_in(flags)},
        "environ": {name: os.environ.get(name) for name in _HEEDED},
        "compiler": [*compiler.command, compiler.version],
        "stepmill": __version__,
        "machine": [machine.architecture, sorted(machine.features), machine.glibc],
    }
    key, cache = key_of(facts), Cache()
    with cache.find_or_lock(key) as entry:
        if entry is None:
            begun = time.time_ns()
            compiled = compile_class(compiler, path, name, flags, is_sanitized)
            theirs = [os.path.dirname(one) for one in compiled.files if not compiler.owns(one)]
            entry = _as_entry(compiled, [*theirs, *_folders_in(flags)])
            # What is edited meanwhile may be as it was before in the library, and as it is now in its digest.
            if not any(begun <= _changed_ns(one) <= time.time_ns() for one in entry.files):
                cache.keep(key, entry)
        return key, entry


def _as_entry(compiled: Compiled, folders: Iterable[str]) -> Entry:
    files = {one: file_digest(one) for one in compiled.files}
    beside = {folder: namesakes(folder, files) for folder in sorted(set(folders))}
    return Entry(compiled.library, files, compiled.command, compiled.seconds, compiled.warnings, beside)


def _changed_ns(path: str) -> int:
    """When a file, or the link to it, was last written or put in its place: a moved file keeps its time of writing."""
    return max(found.st_ctime_ns for found in (os.stat(path), os.lstat(path)))


# Variables that compilers look for files with.
_HEEDED = ("CPATH", "CPLUS_INCLUDE_PATH", "LIBRARY_PATH", "COMPILER_PATH", "GCC_EXEC_PREFIX", "CCC_OVERRIDE_OPTIONS")
_FOLDER_FLAG = re.compile(r"-I|-L|-B|-iquote|-isystem|-idirafter|--sysroot=")


def _folders_in(flags: Sequence[str]) -> list[str]:
    """The folders that a user's flags, or the environment, name to a compiler."""
    said = [_FOLDER_FLAG.sub("", one, count=1) if _FOLDER_FLAG.match(one) else one for one in flags]
    said += [one for name in _HEEDED for one in os.environ.get(name, "").split(":")]
    return [os.path.abspath(one) for one in said if one and os.path.isdir(one)]


def _files_in(flags: Sequence[str]) -> list[str]:
    """The files that a user's flags name: objects, archives, lists of flags. The compiler does not report those."""
    said = [one.removeprefix("@") for one in flags]
    libraries = [f"lib{one[2:]}.{kind}" for one in flags if one.startswith("-l") for kind in ("so", "a")]
    said += [os.path.join(folder, one) for folder in _folders_in(flags) for one in libraries]
    return [one for one in said if os.path.isfile(one)]
