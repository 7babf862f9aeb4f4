"""``stepmill new``: the folder of a new env, which works as it is."""

from __future__ import annotations

import keyword
import os
import re
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.text import Text

import stepmill.tools.cli
from stepmill.tools.cli.options import json_option
from stepmill.tools.cli.target import is_module
from stepmill.tools.cli.terminal import Terminal

# Projects like those that are written, with envs called Template. Their files are checked like all others of ours.
TEMPLATE = Path(stepmill.tools.cli.__file__).parent / "template"
NATIVE_TEMPLATE = TEMPLATE.with_name("template_native")
_PACKAGES = [f"stepmill.tools.cli.{one.name}.template" for one in (TEMPLATE, NATIVE_TEMPLATE)]  # as tests import them
_KINDS = (".py", ".md", ".toml", ".h")


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
        new = {**dict.fromkeys(_PACKAGES, self.package), "Template": self.prefix, "template": self.package}
        return re.sub("|".join(map(re.escape, new)), lambda found: new[found[0]], text)


@click.command("new")
@click.argument("name")
@click.option(
    "--native", is_flag=True, help="In C++: one file that `make` compiles, and the same env in Python to test it."
)
@json_option
def command(name: str, native: bool, terminal: Terminal) -> int:
    """Write the folder of a new env: observation, action, reward, configuration, tests.

    It holds a small world that works, to be replaced by your own. NAME is also the name of its package, or of its file.

    \b
    stepmill new river_boat
    stepmill new --native board_walk
    """
    names = _Names.of(name)
    _check(names)
    files = _write(names, NATIVE_TEMPLATE if native else TEMPLATE)
    if native:
        env, played, first = f"{names.package}.h", "--num-envs 4096 --steps 1000000", "README.md"
    else:
        env, played = f"{names.package}:{names.env}", f"--policy {names.package}.policy:steer"
        first = f"{names.package}/__init__.py"
    following = [f"cd {names.folder}", "python -m pytest", f"stepmill check {env}", f"stepmill run {env} {played}"]
    document = {"folder": str(names.folder), "env": env, "files": files, "next": following}
    terminal.result(document, lambda out: _draw(out, document, f"{names.folder}/{first}"))
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


def _write(names: _Names, template: Path) -> list[str]:
    """Writes all files, or none: into another folder first, which is given its name at the end."""
    folder = names.folder.absolute()
    unfinished = folder.with_name(f".{folder.name}-{os.getpid()}")
    sources = sorted(one for one in template.rglob("*") if one.suffix in _KINDS)
    files = [names.put_into(_name_of(str(one.relative_to(template)))) for one in sources]
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


def _name_of(source: str) -> str:
    """Where a file of the template goes. Ours is not called pyproject.toml: tools would read their settings from it."""
    return "pyproject.toml" if source == "project.toml" else source


def _draw(out: Console, document: dict[str, Any], first: str) -> None:
    for file in document["files"]:
        out.print(Text.assemble(("wrote ", "dim"), file), soft_wrap=True)
    out.print(Text(f"\n{document['env']} works as it is. What next:", style="bold"))
    for line in document["next"]:
        out.print(Text(f"  {line}", style="cyan"), soft_wrap=True)
    out.print(f"\n{first} says where to put an env of your own.", soft_wrap=True)
