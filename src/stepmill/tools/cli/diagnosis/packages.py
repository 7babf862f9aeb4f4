"""Versions, extras, and packages that exclude each other. Nothing is imported: a broken package is only read about."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import metadata

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from stepmill.tools.cli.diagnosis.known import KNOWN
from stepmill.tools.cli.diagnosis.part import Part

__all__ = ["look_at_extras", "look_at_packages", "requirements_of"]

_OURS = "stepmill"
_FOR_DEVELOPERS = ("test", "bench", "lint", "docs", "site", "dist")
# They pin a package that the others need in another version: see docs/islands.md.
_ALONE = ("metaworld", "nle")


def look_at_packages() -> Part:
    """Versions of what stepmill needs and may use, and what does not fit together."""
    part = Part("packages")
    installed = _installed()
    wanted = [canonicalize_name(one.name) for extra in ("", *extras()) for one in requirements_of(_OURS, extra)]
    names = list(dict.fromkeys([_OURS, *wanted]))
    part.facts = {name: installed[name] for name in names if name in installed}
    for known in KNOWN:
        if known.unless not in installed and _applies(known.versions, installed):
            part.add(known.level, known.what, known.advice)
    for name in part.facts:
        for needed in requirements_of(name):
            _look_at_requirement(part, name, needed, installed)
    return part


def _look_at_requirement(part: Part, name: str, needed: Requirement, installed: Mapping[str, str]) -> None:
    got = installed.get(canonicalize_name(needed.name))
    if _is_met(needed, installed):
        return
    line = _plain(needed)
    part.add(
        "broken" if name == _OURS else "warning",  # whether another package works without it, its import shows
        f"{name} {installed[name]} needs {line}, {'which is not installed' if got is None else f'got {got}'}",
        f"give {name} an environment of its own, and name that in make(..., python=FOLDER): docs/islands.md"
        if name in _ALONE
        else f"pip install '{line}'",
    )


def look_at_extras() -> Part:
    """Which extras are installed: all that they ask for is there, in a version that fits."""
    part = Part("extras")
    installed = _installed()
    for extra in extras():
        needed = list(requirements_of(_OURS, extra))
        lacking = [_plain(one) for one in needed if not _is_whole(one, installed)]
        install = f"pip install 'stepmill[{extra}]'"
        part.facts[extra] = "installed" if not lacking else install
        if lacking and canonicalize_name(needed[0].name) in installed:
            part.facts[extra] = f"without {', '.join(lacking)}: {install}"
    return part


def extras() -> list[str]:
    """Those that users install, in the order of pyproject.toml."""
    known = metadata.metadata(_OURS).get_all("Provides-Extra") or []
    return [one for one in known if one not in _FOR_DEVELOPERS]


def requirements_of(name: str, extra: str = "") -> Iterator[Requirement]:
    """What a package needs on this machine: always, or in addition with one of its extras."""
    try:
        lines = metadata.requires(name) or []
    except metadata.PackageNotFoundError:
        return
    for line in lines:
        try:
            one = Requirement(line)
        except InvalidRequirement:  # of an old package
            continue
        if one.marker is None or one.marker.evaluate({"extra": ""}):
            if not extra:
                yield one
        elif extra and one.marker.evaluate({"extra": extra}):
            yield one


def _is_whole(needed: Requirement, installed: Mapping[str, str]) -> bool:
    """Whether a requirement is met, and what its own extras ask for."""
    inner = (one for extra in needed.extras for one in requirements_of(needed.name, extra))
    return _is_met(needed, installed) and all(_is_whole(one, installed) for one in inner)


def _is_met(needed: Requirement, installed: Mapping[str, str]) -> bool:
    got = installed.get(canonicalize_name(needed.name))
    return got is not None and needed.specifier.contains(got, prereleases=True)


def _applies(versions: Mapping[str, str], installed: Mapping[str, str]) -> bool:
    return all(
        name in installed and SpecifierSet(which).contains(installed[name], prereleases=True)
        for name, which in versions.items()
    )


def _plain(needed: Requirement) -> str:
    """As pip takes it, without the marker."""
    inner = f"[{','.join(sorted(needed.extras))}]" if needed.extras else ""
    return f"{needed.name}{inner}{needed.specifier}"


def _installed() -> dict[str, str]:
    """The versions of all packages. A half-removed one has neither a name nor a version."""
    found: dict[str, str] = {}
    for one in metadata.distributions():
        name, version = one.metadata["Name"], one.metadata["Version"]
        if name and version:
            found.setdefault(canonicalize_name(name), version)  # the first on the path is the one that is imported
    return found
