"""``list_all_envs``: which envs can be made here, and which an extra would bring."""

from __future__ import annotations

import contextlib
import importlib
import io
import logging
import os
import textwrap
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from stepmill.errors import summary
from stepmill.registry.records import Family, families, family_of, load_family, records
from stepmill.registry.suites import Suite, suites
from stepmill.system.interpreters import ask, interpreter
from stepmill.system.optional import imported, is_installed

_LEFT_OUT = "list_all_envs leaves out %s, which cannot be imported: %s"
_NOWHERE = frozenset({"Pusher-v4"})  # Gymnasium registers it, but it refuses every MuJoCo from 3.0 on


class MissingFamily(NamedTuple):
    """What an extra would bring."""

    example: str | None
    at_least: int  # the number of ids

    def __str__(self) -> str:
        if self.example is None:
            return f"{self.at_least} ids"
        return self.example + (f" and {self.at_least - 1} more" if self.at_least > 1 else "")


class EnvList(list[str]):
    """A sorted list of ids, which prints itself by family.

    Attributes:
        families: The same ids by the extra that brings their package; ``"stepmill"`` has those that need none,
            ``"gymnasium"`` those of Gymnasium alone, ``"others"`` those of packages that we do not know.
        missing: By the name of an extra that is not installed, what it would bring.
    """

    families: Mapping[str, list[str]]
    missing: Mapping[str, MissingFamily]

    def __init__(self, families: Mapping[str, Iterable[str]], missing: Mapping[str, Sequence[Any]]) -> None:
        self.families = {name: sorted(set(ids)) for name, ids in families.items()}
        self.missing = {extra: MissingFamily(*one) for extra, one in missing.items()}
        super().__init__(sorted({id for ids in self.families.values() for id in ids}))

    def __str__(self) -> str:
        lines = [_paragraph(f"{name} ({len(ids)}):", ids) for name, ids in self.families.items()]
        lines += [f"pip install 'stepmill[{extra}]' brings {what}" for extra, what in self.missing.items()]
        return "\n".join(lines)

    def __reduce__(self) -> tuple[Any, ...]:
        return EnvList, (self.families, self.missing)


def _paragraph(title: str, ids: list[str]) -> str:
    return textwrap.fill(
        f"{title} {', '.join(ids)}", 100, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    )


def list_all_envs(python: str | os.PathLike[str] | None = None) -> EnvList:
    """The ids that can be made here: ours, Gymnasium's, and those of installed packages that we know.

    Packages that register their envs with Gymnasium are imported for it. ``print(list_all_envs())`` shows the ids by
    family, and which extra brings the others.

    Args:
        python: Another interpreter, as for ``make``: the ids that can be made there, with its packages.
    """
    return EnvList(
        *(parts() if python is None else ask(interpreter("python", python), "stepmill.registry.listing:parts"))
    )


def parts() -> tuple[dict[str, list[str]], dict[str, MissingFamily]]:
    """The families that are here and those that are missing, as ``EnvList`` takes them."""
    there: dict[str, list[str]] = {"stepmill": [], "gymnasium": [], "others": []}
    missing: dict[str, MissingFamily] = {}
    for record in records():
        if record.needs is None:
            there["stepmill"].append(record.id)
        elif is_installed(record.needs):
            there.setdefault(record.needs.extra, []).append(record.id)
        else:
            _add_missing(missing, record.needs.extra, record.id, 1)
    for family in families():
        if is_installed(family.package):
            there.setdefault(family.package.extra, []).extend(_ids_of(family))
        else:
            _add_missing(missing, family.package.extra, family.example, family.at_least)
    for suite in suites():
        if is_installed(suite.package):
            there.setdefault(suite.package.extra, []).extend(_ids_of_suite(suite))
        else:
            _add_missing(missing, suite.package.extra, suite.example, suite.at_least)
    # Ours stay ours where another package registers them too: Shimmy has dm_control's, installed or not.
    known = {id for ids in there.values() for id in ids} | {record.id for record in records()}
    for origin, id in _in_gymnasium():
        if id not in known:
            there[origin].append(id)
    return {name: ids for name, ids in there.items() if ids}, dict(sorted(missing.items()))


def _add_missing(missing: dict[str, MissingFamily], extra: str, example: str | None, count: int) -> None:
    before = missing.get(extra, MissingFamily(None, 0))
    missing[extra] = MissingFamily(before.example or example, before.at_least + count)


def _ids_of(family: Family) -> list[str]:
    import gymnasium

    try:
        with _silenced():
            load_family(family, "list_all_envs")
    except Exception as error:  # whatever a broken package raises; the others can still be listed
        logging.getLogger("stepmill").warning(_LEFT_OUT, family.package.name, summary(error))
        return []
    if family.ids is not None:
        return list(imported(family.ids)())
    return [id for id, spec in gymnasium.registry.items() if family.registers(spec)]


def _ids_of_suite(suite: Suite) -> list[str]:
    try:
        with _silenced():
            return suite.ids_for_make()
    except Exception as error:
        logging.getLogger("stepmill").warning(_LEFT_OUT, suite.package.name, summary(error))
        return []


@contextlib.contextmanager
def _silenced() -> Iterator[None]:
    """No warnings and notices of packages: who only asks for a list has no use for them."""
    unread = io.StringIO()
    with (
        warnings.catch_warnings(),
        contextlib.redirect_stdout(unread),
        contextlib.redirect_stderr(unread),
    ):
        warnings.simplefilter("ignore")
        yield


def _in_gymnasium() -> Iterator[tuple[str, str]]:
    """What else is registered with Gymnasium, by itself or by others, as origin and id."""
    import gymnasium

    known = {family.package.module for family in families()}
    for id, spec in gymnasium.registry.items():
        module = str(getattr(spec.entry_point, "__module__", spec.entry_point)).partition(":")[0]
        if spec.entry_point is None or id in _NOWHERE or family_of(id) is not None or module.split(".")[0] in known:
            continue  # made by a vector env only, as ours are; or of a family
        if not module.startswith("gymnasium."):
            yield "others", id
        elif isinstance(spec.entry_point, str) and _is_importable(module):
            yield "gymnasium", id


def _is_importable(module: str) -> bool:
    """Whether a module of Gymnasium finds the package that it needs."""
    import gymnasium

    try:
        with _silenced():  # Box2D's compiled half crashes if a warning becomes an error while it is imported
            importlib.import_module(module)
    except (ImportError, gymnasium.error.DependencyNotInstalled):
        return False
    return True
