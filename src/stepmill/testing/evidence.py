"""What was seen of an env: rules read it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeVar

from stepmill.testing.calls import Calls, Raised
from stepmill.testing.constructor_watch import ConstructorWatch
from stepmill.testing.finding import Unchecked
from stepmill.testing.moments import Spaces
from stepmill.testing.subject import Subject

__all__ = ["Episode", "Evidence"]

T = TypeVar("T")

# What came back in one episode, call by call, in a form that can be compared.
Episode = list[tuple[Any, ...]]


@dataclass
class Evidence:
    """What was seen. Parts that the trial did not get to are None."""

    subject: Subject
    seed: int
    calls: Calls = field(default_factory=Calls)
    # Why the trial broke off.
    stopped: str | None = None
    # How much was played, in all.
    episodes: int = 0
    steps: int = 0

    # Of the first env.
    env: Any = None
    early: Spaces | None = None  # what it said before reset: None in it for what it could not say
    late: list[tuple[str, Spaces]] = field(default_factory=list)  # and afterwards, with the time
    text: Any = None
    action_space: Any = None  # what its actions were drawn from
    random_action: tuple[Any] | None = None

    # Of others.
    constructor: ConstructorWatch | None = None
    left_open: list[str] | None = None
    run: list[Episode] | None = None  # dynamic seed
    run_again: list[Episode] | None = None
    run_in_turns: list[Episode] | None = None
    run_of_other_seed: list[Episode] | None = None
    static_run: list[Episode] | None = None
    static_run_of_other_seed: list[Episode] | None = None
    was_closed_twice: bool = False
    was_reset_after_close: bool = False

    def seen(self, part: T | None) -> T:
        """A part of this, or why there is none."""
        if part is None or part is False:
            raise Unchecked(self.stopped or "there was nothing to see of it")
        return part

    def raised_in(self, *calls: str) -> list[Raised]:
        """What calls of these names raised."""
        return [one for one in self.calls.raised if one.call in calls]

    def need_several(self) -> None:
        """For rules about more than one env."""
        if not self.subject.makes_many:
            raise Unchecked("needs several envs: pass the class, or a function that makes one")
