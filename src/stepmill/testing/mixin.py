"""``EnvTestMixin``: the rules as tests of your own env."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar
from unittest import SkipTest

from stepmill.testing.check import check_env
from stepmill.testing.finding import Report
from stepmill.testing.rules import RULES
from stepmill.testing.rules.rule import MomentRule, Rule


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
