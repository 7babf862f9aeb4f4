"""Which file, and which class in it, a task such as ``"coin.h"`` or ``"games/coin.h:Coin"`` names."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
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
            fits = [one for one in found if one == self.name] or [one for one in found if _ends_with(one, self.name)]
            return fits[0] if fits else self.name
        expected = "".join(part[:1].upper() + part[1:] for part in re.split(r"[^0-9A-Za-z]+", self.path.stem))
        exact = [one for one in found if _ends_with(one, expected)]
        fits = exact or [one for one in found if _plain(one.rpartition("::")[2]) == _plain(expected)] or found
        if len(fits) == 1:
            return fits[0]
        if not found:
            raise CompileError(
                f"{self.path}: expected a class with `static EnvSpec spec(const Config&)`, found none. "
                "`stepmill new --native` writes one to begin with; for a class from a macro or an include, name it: "
                f"'{self.path.name}:Class'"
            )
        raise CompileError(
            f"{self.path}: found several env classes, {', '.join(found)}, {'several' if exact else 'none'} named "
            f"{expected}: say which, as in '{self.path.name}:{fits[0]}'"
        )


def _ends_with(name: str, end: str) -> bool:
    """Whether a name with its namespaces ends with another, which may have namespaces too."""
    return f"::{name}".endswith(f"::{end}")


def _plain(name: str) -> str:
    return name.replace("_", "").lower()


# ---- the scan ------------------------------------------------------------------------------------

_ACCESS = ("public", "protected", "private", "virtual")
_CLOSED_BY = {"<": ">", "(": ")", "[": "]"}


def env_classes(source: str) -> list[str]:
    """The classes in a C++ file that have ``static EnvSpec spec(`` or inherit it, with their namespaces, in order."""
    known: dict[str, str | None] = {}  # a class, or another name of one: the env class that this is, if it is one
    scopes: list[str | None] = []  # a name per open brace; None for those that are no class or namespace
    heading: list[str] = []  # the words since the last ; { or }
    for match in _TOKEN.finditer(source):
        token = match[0]
        if match["skipped"] is not None:
            continue
        if token not in "{};(":
            heading.append(token)
            continue
        around = _joined(*scopes)
        if token == "(":
            if _declares_spec(heading) and scopes[-1:] != [None] and around in known:
                known[around] = around
            heading.append(token)
            continue
        words = list(_outside_of_brackets(heading))
        if token == "{":
            scopes.append(_scope_name(words))
            if scopes[-1] and "namespace" not in words:
                name = _joined(*scopes)
                is_env = None not in scopes and any(_env_named(one, around, known) for one in _bases(words))
                known[name] = name if is_env else known.get(name)
        elif token == "}" and scopes:
            scopes.pop()
        elif "using" in words and "=" in words and None not in scopes:
            alias = words[words.index("=") - 1]
            known[_joined(around, alias)] = _env_named("".join(words[words.index("=") + 1 :]), around, known)
        heading = []
    return [name for name, env in known.items() if name == env]


def _joined(*scopes: str | None) -> str:
    return "::".join(scope for scope in scopes if scope)


def _env_named(name: str, scope: str, known: Mapping[str, str | None]) -> str | None:
    """The env class that a name means in a scope, if it means one: the innermost of that name, as in C++."""
    if name.startswith("::"):
        return known.get(name[2:])
    scopes = scope.split("::")
    for depth in range(len(scopes), -1, -1):
        full = _joined(*scopes[:depth], name)
        if full in known:
            return known[full]
    return next((env for env in known.values() if env and _ends_with(env, name)), None)  # with a `using namespace`


def _outside_of_brackets(words: Sequence[str]) -> Iterator[str]:
    """The words that no bracket is around. A < stays: ``Base<int>`` is no name of a class ``Base``."""
    closing: list[str] = []
    for word in words:
        if closing and word == closing[-1]:
            closing.pop()
        elif word in "([" or (word == "<" and closing[-1:] in ([], [">"])):  # else it may be a comparison
            if word == "<" and not closing:
                yield word
            closing.append(_CLOSED_BY[word])
        elif not closing:
            yield word


def _bases(words: Sequence[str]) -> list[str]:
    """The bases of a class, as they are written there."""
    _, bases = _parts(words)
    named = "".join(word for word in bases if word not in _ACCESS)
    return named.split(",") if named else []


def _parts(words: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    """What names a class, and its bases."""
    for i, word in enumerate(words):
        if word in ("class", "struct"):
            rest = words[i + 1 :]
            colon = rest.index(":") if ":" in rest else len(rest)
            return rest[:colon], rest[colon + 1 :]
    return [], []


def _declares_spec(heading: list[str]) -> bool:
    return heading[-2:] == ["EnvSpec", "spec"] and "static" in heading


def _scope_name(words: Sequence[str]) -> str | None:
    """The name that a brace opens: of a namespace (``a::b``, or none), or of a class that is no template."""
    if "namespace" in words:
        return "".join(words[words.index("namespace") + 1 :])
    if words == ["extern"]:  # "C++"
        return ""
    if "template" in words or "enum" in words:
        return None
    named = [word for word in _parts(words)[0] if word.isidentifier() and word not in ("final", "alignas")]
    return named[-1] if named else None
