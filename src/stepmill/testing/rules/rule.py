"""A rule: a function that yields problems, with a name, a meaning and advice."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from stepmill.testing.finding import Problem
from stepmill.testing.play import Moment
from stepmill.testing.trial import Trial

# Which calls a rule looks at. "raw step": every step, even if its parts cannot be told apart.
At = Literal["any", "reset", "step", "raw step", "end"]


@dataclass(frozen=True)
class Rule:
    """One rule of the contract, checked on everything that was seen of an env."""

    name: str
    meaning: str
    advice: str
    check: Callable[[Trial], Iterator[Problem]]
    for_gymnasium: str | None = None  # the advice for a gymnasium.Env, if that is another


@dataclass(frozen=True)
class MomentRule:
    """One rule of the contract, checked on every ``reset`` and ``step`` that it applies to."""

    name: str
    meaning: str
    advice: str
    check: Callable[[Moment], Iterator[Problem]]
    at: At

    def applies(self, moment: Moment) -> bool:
        """Whether the rule is about this moment."""
        if self.at == "raw step":
            return moment.call == "step"
        if not moment.is_readable:
            return False
        return moment.over if self.at == "end" else self.at in ("any", moment.call)


def rule(advice: str, *, for_gymnasium: str | None = None) -> Callable[[Callable[[Trial], Iterator[Problem]]], Rule]:
    """Makes a rule from a function: its name is the rule's name, its docstring the meaning."""

    def make(check: Callable[[Trial], Iterator[Problem]]) -> Rule:
        return Rule(_name(check), _meaning(check), advice, check, for_gymnasium)

    return make


def moment_rule(advice: str, at: At = "any") -> Callable[[Callable[[Moment], Iterator[Problem]]], MomentRule]:
    """Like ``rule``, for a function that looks at one moment."""

    def make(check: Callable[[Moment], Iterator[Problem]]) -> MomentRule:
        return MomentRule(_name(check), _meaning(check), advice, check, at)

    return make


def _name(function: Callable[..., Any]) -> str:
    return str(getattr(function, "__name__", ""))


def _meaning(function: Callable[..., Any]) -> str:
    return " ".join((function.__doc__ or "").split())
