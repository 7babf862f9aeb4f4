"""``check_env`` reports, line by line, where an env breaks the contract; ``EnvTestMixin`` makes tests of it."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, ClassVar
from unittest import SkipTest

import numpy as np

from stepmill.testing.finding import Finding, Problem, Report, Unchecked, count_of
from stepmill.testing.play import Moment
from stepmill.testing.rules import RULES
from stepmill.testing.rules.rule import MomentRule, Rule
from stepmill.testing.subject import CheckedEnvs
from stepmill.testing.trial import Trial, run_trial
from stepmill.values.arguments import whole_number


def check_env(
    env: Any, cfg: Any = None, *, seed: int = 0, episodes: int = 3, steps: int = 1000, print_report: bool = True
) -> Report:
    """Plays episodes with an env and reports where it breaks the contract of ``BaseEnv``.

    The findings are returned and printed, one line each; an env that keeps all rules has an empty list. If the env
    raises an exception, that becomes a finding. ``stepmill.testing.RULES`` has the rules and what they mean.

    Args:
        env: The class of the env, a function that makes one, or an id that ``make`` knows. An existing env is checked
            as far as that is possible with one env: it is used and closed, and the report says which rules need
            several. An env that is not a ``BaseEnv`` (of Gymnasium, dm_env or PettingZoo) is checked through
            ``as_base_env``; a native env through a pool of one.
        cfg: The argument of the class or the function, a copy for each env; a class of Gymnasium, and an id, get the
            entries as keyword arguments. If it is left out, they are called without arguments.
        seed: For the seeds of the envs, and of the actions, which are samples of the action space.
        episodes: How many whole episodes are played. Some short ones to compare seeds come on top.
        steps: After how many steps an episode is cut off. If no episode ends before that, ends are not checked.
        print_report: False prints nothing.
    """
    examination = Examination(env, cfg, seed=seed, episodes=episodes, steps=steps)
    examination.run()
    report = examination.report()
    if print_report:
        sys.stdout.write(f"{report}\n")
    return report


class Examination:
    """What ``check_env`` does, for callers that want to follow it: its arguments are explained there."""

    def __init__(self, env: Any, cfg: Any = None, *, seed: int = 0, episodes: int = 3, steps: int = 1000) -> None:
        self._episodes = whole_number("check_env: episodes", episodes, 1)
        self._steps = whole_number("check_env: steps", steps, 1)
        self._trial = Trial(CheckedEnvs(env, cfg), whole_number("check_env: seed", seed, 0))
        self._findings = _Findings(self._trial.subject)

    def run(self, see: Callable[[Moment], None] = lambda moment: None) -> None:
        """Plays. ``see`` is called with every reset and step. After Ctrl-C, the report has what was seen until then."""

        def look(moment: Moment) -> None:
            self._findings.see(moment)
            see(moment)

        with _generators_restored():
            run_trial(self._trial, self._episodes, self._steps, look)

    def report(self) -> Report:
        """The findings."""
        return self._findings.report(self._trial, self._steps)


class _Findings:
    """Applies the rules, and merges repeated problems into one finding."""

    def __init__(self, subject: CheckedEnvs) -> None:
        self._subject = subject
        self._found: dict[tuple[str, str], Finding] = {}
        self._applied: set[str] = set()
        self._moment_rules = [rule for rule in RULES if isinstance(rule, MomentRule)]

    def see(self, moment: Moment) -> None:
        for rule in self._moment_rules:
            if rule.applies(moment):
                self._applied.add(rule.name)
                said = set()
                for problem in rule.check(moment):
                    if problem.subject not in said:  # each moment counts once
                        said.add(problem.subject)
                        self._add(rule, problem, f"{problem.subject}, {moment.where}")

    def report(self, trial: Trial, steps: int) -> Report:
        checked, unchecked = [], {}
        for rule in RULES:
            try:
                self._ask(rule, trial, steps)
                checked.append(rule.name)
            except Unchecked as why:
                unchecked[rule.name] = str(why)
        order = [rule.name for rule in RULES]
        found = sorted(self._found.values(), key=lambda finding: order.index(finding.rule))
        return Report(found, title=_title(trial), checked=checked, unchecked=unchecked)

    def _ask(self, rule: Rule | MomentRule, trial: Trial, steps: int) -> None:
        if isinstance(rule, Rule):
            for problem in rule.check(trial):
                self._add(rule, problem, problem.subject)
        elif rule.name not in self._applied:
            raise Unchecked(trial.stopped or f"no episode ended within {steps} steps: give it more of them (steps)")

    def _advice(self, rule: Rule | MomentRule) -> str:
        other = rule.for_gymnasium if isinstance(rule, Rule) else None
        return other if other is not None and self._subject.is_gymnasium else rule.advice

    def _add(self, rule: Rule | MomentRule, problem: Problem, where: str) -> None:
        key = (rule.name, problem.subject)
        known = self._found.get(key)
        if known is None:
            self._found[key] = Finding(rule.name, where, problem.expected, problem.got, self._advice(rule))
        else:
            self._found[key] = replace(known, count=known.count + 1)


def _title(trial: Trial) -> str:
    played = f"{count_of(trial.episodes, 'episode')}, {count_of(trial.steps, 'step')}"
    return f"check_env({trial.subject.name}): {played}, seed {trial.seed}"


@contextmanager
def _generators_restored() -> Iterator[None]:
    """An env that uses the global generators does not affect its caller."""
    of_numpy, of_python = np.random.get_state(legacy=False), random.getstate()
    try:
        yield
    finally:
        np.random.set_state(of_numpy)
        random.setstate(of_python)


# ---- as tests ------------------------------------------------------------------------------------


class EnvTestMixin:
    """One test per rule, for pytest and unittest. To test your own env, write one method.

    ::

        class TestMyEnv(EnvTestMixin):
            def make_env(self):
                return MyEnv({"level": 3})

    ``test_obs_dtype`` and all others then fail with the findings of their rule, and are skipped if the rule could not
    be checked. If an env breaks a rule on purpose, write ``test_obs_dtype = None``.

    ``check_options`` are passed to ``check_env``: ``{"steps": 5000}``. If they contain a ``cfg``, it is passed to
    ``make_env``, and the check includes that the env does not change it.
    """

    check_options: ClassVar[Mapping[str, Any]] = {}
    _report: ClassVar[Report | None] = None

    def make_env(self) -> Any:
        """A new env: the method to write."""
        raise NotImplementedError(f"{type(self).__name__}: write make_env(self), which returns a new env")

    def _report_of_class(self) -> Report:
        """The report of this class, made when the first test needs it."""
        kind = type(self)
        if "_report" not in vars(kind):
            kind._report = check_env(self.make_env, print_report=False, **self.check_options)
        assert kind._report is not None
        return kind._report


def _test_of(rule: Rule | MomentRule) -> Callable[[EnvTestMixin], None]:
    def test(self: EnvTestMixin) -> None:
        report = self._report_of_class()
        if rule.name in report.unchecked:
            raise SkipTest(f"{rule.name}: {report.unchecked[rule.name]}")
        lines = [str(finding) for finding in report if finding.rule == rule.name]
        if lines:
            raise AssertionError("\n".join(lines))

    test.__name__ = f"test_{rule.name}"
    test.__qualname__ = f"EnvTestMixin.{test.__name__}"
    test.__doc__ = rule.meaning
    return test


for _rule in RULES:
    setattr(EnvTestMixin, f"test_{_rule.name}", _test_of(_rule))
