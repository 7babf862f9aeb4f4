"""Which known ids an unknown one resembles."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

_MOST = 4
_CUTOFF = 0.75  # two letters exchanged in a short name: a far-fetched hint is worse than none
_VERSION = re.compile(r"[-_]v\d+$")


def ids_like(id: str, known: Iterable[str]) -> list[str]:
    """The known ids that differ from ``id`` in a few letters, in case or in their version; the nearest first."""
    known, id = list(dict.fromkeys(known)), id.strip()
    if id in known:  # there were only spaces around it
        return [id]
    by_name: dict[str, list[str]] = {}
    for one in known:
        by_name.setdefault(_name(one), []).append(one)
    wanted = _name(id)
    same = wanted in by_name  # all but its version, or the case
    names = [wanted] if same else difflib.get_close_matches(wanted, by_name, n=_MOST, cutoff=_CUTOFF)
    return [one for name in names for one in sorted(by_name[name], reverse=True)][:_MOST]


def _name(id: str) -> str:
    """An id without its version, in lower case."""
    return _VERSION.sub("", id).lower()
