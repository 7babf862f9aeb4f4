"""Which file, and which class in it, a task such as ``"coin.h"`` or ``"games/coin.h:Coin"`` names."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from stepmill.errors import CompileError, ConfigError

_TASK = re.compile(r"(?P<path>.+\.(?:h|hpp|cpp|so))(?::(?P<name>[A-Za-z_][\w:]*))?", re.DOTALL)
# What a scan must not look into, then what it is made of. Raw strings end with what they begin with.
_SKIPPED = r"""//[^\n]*|/\*.*?\*/|R"(?P<end>[^()\\\s]*)\(.*?\)(?P=end)"|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'"""
_TOKEN = re.compile(
    rf"(?P<skipped>{_SKIPPED}|^[ \t]*\#(?:\\\n|[^\n])*)|(?P<word>[A-Za-z_]\w*)|(?P<sign>::|\S)",
    re.DOTALL | re.MULTILINE,
)


def is_file_task(task: str) -> bool:
    """Whether a task that is no id names a file."""
    return _TASK.fullmatch(task) is not None


@dataclass(frozen=True)
class TaskFile:
    """A file that has an env, and the name of its class if the user gave one."""

    path: Path  # absolute
    name: str | None

    @classmethod
    def of(cls, task: str | os.PathLike[str]) -> TaskFile:
        """The file that a task names, from the working directory."""
        match = _TASK.fullmatch(os.fspath(task))
        if match is None:
            raise ConfigError(
                f"expected a file that ends in .h, .hpp, .cpp or .so, then optionally :Class, got {task!r}"
            )
        path = Path(match["path"]).absolute()
        try:
            if not path.is_file():
                raise ConfigError(f"{os.fspath(task)!r}: there is no file {path}")
            path.open("rb").close()
        except OSError as error:
            raise ConfigError(f"{os.fspath(task)!r}: the file {path} cannot be read: {error.strerror}") from error
        return cls(path, match["name"])

    @property
    def is_library(self) -> bool:
        return self.path.suffix == ".so"

    def class_of(self, source: str) -> str:
        """The class to compile, with its namespaces."""
        found = env_classes(source)
        if self.name is not None:
            # One that the scan does not see may come from a macro or an include: the compiler will say.
            return next((one for one in found if one == self.name or one.endswith(f"::{self.name}")), self.name)
        expected = "".join(part.capitalize() for part in re.split(r"[^0-9A-Za-z]+", self.path.stem))
        alike = [one for one in found if _plain(one.rpartition("::")[2]) == expected.lower()] or found
        if len(alike) == 1:
            return alike[0]
        if not found:
            raise CompileError(
                f"{self.path}: expected a class with `static EnvSpec spec(const Config&)`, found none. "
                "`stepmill new --native` writes one to begin with; for a class from a macro or an include, name it: "
                f"'{self.path.name}:Class'"
            )
        raise CompileError(
            f"{self.path}: found several env classes, {', '.join(found)}, none named {expected}: say which, as in "
            f"'{self.path.name}:{found[0].rpartition('::')[2]}'"
        )


def _plain(name: str) -> str:
    return name.replace("_", "").lower()


def env_classes(source: str) -> list[str]:
    """The classes in a C++ file that have ``static EnvSpec spec(`` or inherit it, with their namespaces, in order."""
    found: list[str] = []
    scopes: list[str | None] = []  # a name per open brace; None for those that are no class or namespace
    heading: list[str] = []  # the words since the last ; { or }
    for match in _TOKEN.finditer(source):
        if match["skipped"] is not None:
            continue
        token = match[0]
        if token == "{":
            scopes.append(_scope_name(heading))
            if scopes[-1] and _inherits(heading, found):
                _add(found, scopes)
        elif token == "}" and scopes:
            scopes.pop()
        elif token == "(" and _declares_spec(heading) and scopes and scopes[-1]:
            _add(found, scopes)
        if token in "{};":
            heading = []
        else:
            heading.append(token)
    return found


def _add(found: list[str], scopes: list[str | None]) -> None:
    name = "::".join(scope for scope in scopes if scope)
    if name not in found:
        found.append(name)


def _inherits(heading: list[str], found: list[str]) -> bool:
    """Whether a class has one of those found before it as its base."""
    _, bases = _parts(heading)
    direct = {word for word, after in zip_longest(bases, bases[1:], fillvalue=",") if after == ","}
    return any(one.rpartition("::")[2] in direct for one in found)


def _parts(heading: list[str]) -> tuple[list[str], list[str]]:
    """What names a class, and its bases."""
    for i, word in enumerate(heading):
        if word in ("class", "struct"):
            rest = heading[i + 1 :]
            colon = rest.index(":") if ":" in rest else len(rest)
            return rest[:colon], rest[colon + 1 :]
    return [], []


def _declares_spec(heading: list[str]) -> bool:
    return heading[-2:] == ["EnvSpec", "spec"] and "static" in heading


def _scope_name(heading: list[str]) -> str | None:
    """The name that a brace opens: of a namespace (``a::b``), or of a class that is no template."""
    if "namespace" in heading:
        return "".join(heading[heading.index("namespace") + 1 :]) or None
    if "template" in heading or "enum" in heading:
        return None
    words = [one for one in _parts(heading)[0] if one.isidentifier() and one not in ("final", "alignas")]
    return words[-1] if words else None
