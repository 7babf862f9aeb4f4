"""The result of a look at one part of the installation."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

__all__ = ["Finding", "Level", "Part"]

# Does not work; works, but not as it should; good to know.
Level = Literal["broken", "warning", "note"]


@dataclass(frozen=True)
class Finding:
    """Something that is not as it should be, and what to do about it."""

    level: Level
    what: str
    advice: str


@dataclass
class Part:
    """Facts by name, and findings."""

    title: str
    facts: dict[str, str] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)

    def add(self, level: Level, what: str, advice: str) -> None:
        self.findings.append(Finding(level, what, advice))
