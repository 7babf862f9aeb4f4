"""``stepmill new``: the folder of a new env, which works as it is."""

from __future__ import annotations

import keyword
import os
import re
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

import click
from rich.console import Console
from rich.text import Text

import stepmill.tools.cli
from stepmill.tools.cli.options import json_option
from stepmill.tools.cli.target import is_module
from stepmill.tools.cli.terminal import Terminal

# A project like the one that is written, with its env called Template. Its files are checked like all others of ours.
TEMPLATE = Path(stepmill.tools.cli.__file__).parent / "template"
_PACKAGE = "stepmill.tools.cli.template.template"  # as its tests import it
_KINDS = (".py", ".md", ".toml")


@dataclass(frozen=True)
class _Names:
    """What things are called in the new folder."""

    folder: Path
    package: str
    prefix: str  # of classes

    @classmethod
    def of(cls, given: str) -> _Names:
        folder = Path(given)
        words = [word for word in re.split(r"[-_]+|(?<=[a-z0-9])(?=[A-Z][a-z])", folder.name) if word]
        package = "_".join(words).lower()
        if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]*", folder.name):
            raise click.UsageError(
                "NAME: expected letters, digits, - and _, beginning with a letter, such as 'river_boat', got "
                f"{folder.name!r}"
            )
        if keyword.iskeyword(package):
            raise click.UsageError(f"NAME: {package!r} is a word of Python's own: choose another name")
        prefix = "".join(word[:1].upper() + word[1:] for word in words)
        return cls(folder, package, prefix.removesuffix("Env") or prefix)

    @property
    def env(self) -> str:
        return f"{self.prefix}Env"

    def put_into(self, text: str) -> str:
        """All at once: the new names may contain the old ones."""
        new = {_PACKAGE: self.package, "Template": self.prefix, "template": self.package}
        return re.sub("|".join(map(re.escape, new)), lambda found: new[found[0]], text)


@click.command("new")
@click.argument("name")
@json_option
def command(name: str, terminal: Terminal) -> int:
    """Write the folder of a new env: observation, action, reward, configuration, tests.

    It holds a small world that works, to be replaced by your own. NAME is also the name of its package.

    \b
    stepmill new river_boat
    """
    names = _Names.of(name)
    _check(names)
    files = _write(names)
    following = [
        f"cd {names.folder}",
        "python -m pytest",
        f"stepmill check {names.package}:{names.env}",
        f"stepmill run {names.package}:{names.env} --policy {names.package}.policy:steer",
    ]
    document = {
        "folder": str(names.folder),
        "env": f"{names.package}:{names.env}",
        "files": files,
        "next": following,
    }
    terminal.result(document, lambda out: _draw(out, names, files, following))
    return 0


def _check(names: _Names) -> None:
    """Refuses to overwrite anything, and a name that would hide another module, or be hidden by it."""
    if names.package in ("tests", "stepmill") or names.package in sys.stdlib_module_names or is_module(names.package):
        raise click.UsageError(f"NAME: there is a module {names.package!r} already: choose another name")
    folder = names.folder
    if os.path.lexists(folder) and not (folder.is_dir() and not any(folder.iterdir())):
        raise click.UsageError(f"{folder} exists already, and is not overwritten: choose another name, or remove it")
    if not folder.absolute().parent.is_dir():
        raise click.UsageError(f"{folder}: there is no folder {folder.absolute().parent} to write it to")


def _write(names: _Names) -> list[str]:
    """Writes all files, or none: into another folder first, which is given its name at the end."""
    folder = names.folder.absolute()
    unfinished = folder.with_name(f".{folder.name}-{os.getpid()}")
    sources = sorted(one for one in TEMPLATE.rglob("*") if one.suffix in _KINDS)
    files = [names.put_into(_name_of(one)) for one in sources]
    try:
        for source, name in zip(sources, files, strict=True):
            file = unfinished / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(names.put_into(source.read_text(encoding="utf-8")), encoding="utf-8")
        unfinished.rename(folder)
    except OSError as error:
        raise click.UsageError(f"{names.folder} cannot be written: {error.strerror}") from error
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return [str(names.folder / name) for name in files]


def _name_of(source: Path) -> str:
    """Where a file of the template goes. Ours is not called pyproject.toml: tools would read their settings from it."""
    name = str(source.relative_to(TEMPLATE))
    return "pyproject.toml" if name == "project.toml" else name


def _draw(out: Console, names: _Names, files: list[str], following: list[str]) -> None:
    for file in files:
        out.print(Text.assemble(("wrote ", "dim"), file), soft_wrap=True)
    out.print(Text(f"\n{names.env} works as it is. What next:", style="bold"))
    for line in following:
        out.print(Text(f"  {line}", style="cyan"), soft_wrap=True)
    out.print(f"\n{names.folder}/{names.package}/__init__.py says where to put a world of your own.", soft_wrap=True)
