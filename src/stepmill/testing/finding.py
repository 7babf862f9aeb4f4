"""The results of rules and checks: problems, findings, and what could not be checked."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Problem:
    """What a rule found wrong. Problems with the same subject are one finding, counted."""

    subject: str
    expected: str
    got: str


class Unchecked(Exception):
    """A rule raises it if it could not be checked, with the reason."""


@dataclass(frozen=True)
class Finding:
    """One place where an env breaks a rule. Its ``str`` is one line."""

    rule: str
    where: str  # the value or call, the step and the episode: the first of ``count``
    expected: str
    got: str
    advice: str
    count: int = 1

    @property
    def text(self) -> str:
        """The line without the name of the rule."""
        more = f" (seen {self.count} times)" if self.count > 1 else ""
        return one_line(f"{self.where}: expected {self.expected}, got {self.got}{more}. {self.advice}")

    def __str__(self) -> str:
        return f"{self.rule}: {self.text}"


# If a trial stops early, nearly all rules are unchecked: listing their names would not help.
_NAMED = 6


class Report(list[Finding]):
    """The findings of a check; an empty list for an env that keeps every rule.

    Attributes:
        title: What was checked, and how much was played.
        checked: The names of the rules that were checked.
        unchecked: The names of the rules that could not be checked, each with the reason.
    """

    def __init__(
        self,
        findings: Iterable[Finding] = (),
        *,
        title: str = "",
        checked: Iterable[str] = (),
        unchecked: dict[str, str] | None = None,
    ) -> None:
        super().__init__(findings)
        self.title = title
        self.checked = list(checked)
        self.unchecked = dict(unchecked or {})

    def lines(self) -> list[str]:
        """What is printed: a title, one line per finding, one per reason why rules were not checked, and a summary."""
        width = max((len(finding.rule) for finding in self), default=0)
        lines = [self.title]
        lines += [f"  {finding.rule:<{width}}  {finding.text}" for finding in self]
        for reason in dict.fromkeys(self.unchecked.values()):
            names = [name for name, why in self.unchecked.items() if why == reason]
            said = ", ".join(names) if len(names) <= _NAMED else f"{len(names)} rules"
            lines.append(f"  not checked: {said}: {one_line(reason)}")
        left_out = f", {count_of(len(self.unchecked), 'rule')} not checked" if self.unchecked else ""
        lines.append(f"{count_of(len(self.checked), 'rule')} checked, {count_of(len(self), 'finding')}{left_out}")
        return lines

    def __str__(self) -> str:
        return "\n".join(self.lines())


def one_line(text: str) -> str:
    """A text without line breaks."""
    return " ".join(text.split())


def count_of(number: int, thing: str) -> str:
    """``1 rule``, ``2 rules``."""
    return f"{number} {thing}{'' if number == 1 else 's'}"
