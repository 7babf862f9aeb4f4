"""Rules about the calls themselves: none raises, and close() ends what reset() began."""

from __future__ import annotations

from collections.abc import Iterator

from stepmill.errors import UsageError
from stepmill.testing.finding import Problem, Unchecked
from stepmill.testing.rules.rule import rule
from stepmill.testing.trial import Trial

# Calls that other rules are about.
_OTHERS = frozenset(
    {
        "repr",
        "second close",
        "reset after close",
        "observation_space",
        "action_space",
        "reward_space",
        "num_agents",
    }
)


@rule("Fix it first: what depends on this call could not be checked.")
def no_exception(trial: Trial) -> Iterator[Problem]:
    """No call that the contract allows raises an exception; ``step`` takes every action of the action space."""
    for raised in trial.subject.raised:
        if raised.call not in _OTHERS:
            of_action = " for an action of the action space" if raised.call == "step" else ""
            yield Problem(raised.where, f"no exception{of_action}", raised.error)


@rule("Let close() do nothing if nothing is open.")
def close_twice(trial: Trial) -> Iterator[Problem]:
    """Closing a closed env does nothing."""
    trial.seen(trial.was_closed_twice)
    for raised in trial.raised_in("second close"):
        yield Problem(raised.where, "nothing to happen", raised.error)


@rule("Let close() forget the simulator, so that reset() builds a new one.")
def reset_after_close(trial: Trial) -> Iterator[Problem]:
    """A reset after ``close`` builds the simulator again."""
    if trial.subject.is_adapted:
        raise Unchecked("only a BaseEnv promises it, and this env is one only through an adapter")
    trial.seen(trial.was_reset_after_close)
    is_adapter = type(trial.env).__module__.startswith("stepmill.envs.")
    for raised in trial.raised_in("reset after close"):
        if is_adapter and issubclass(raised.kind, UsageError):
            raise Unchecked("this adapter was given an existing env: give it a function, so that it can build it again")
        yield Problem(raised.where, "a new episode", raised.error)


@rule("Stop and close it in close().")
def close_frees(trial: Trial) -> Iterator[Problem]:
    """``close`` frees what ``reset`` built: no thread, process or file descriptor stays."""
    trial.need_several()
    left = trial.seen(trial.left_open)
    if left:
        yield Problem("after close()", "nothing left open", " and ".join(left))
