"""``EnvTestMixin``: the rules of ``stepmill.testing`` as tests of one's own env."""

from __future__ import annotations

import unittest
from typing import Any

import pytest

from stepmill.testing import RULES, EnvTestMixin
from support.envs.broken import NumpyDone
from support.envs.good import GoodEnv

pytest_plugins = ("pytester",)

CFG = {"length": 5, "nested": {"list": [1]}}
NAMES = [rule.name for rule in RULES]


class TestGoodEnv(EnvTestMixin):
    """What an author writes."""

    check_options = {"episodes": 1, "steps": 10, "cfg": CFG}  # noqa: RUF012

    def make_env(self, cfg: Any) -> Any:
        return GoodEnv(cfg)


def test_the_mixin_has_a_test_for_each_rule() -> None:
    tests = [name for name in vars(EnvTestMixin) if name.startswith("test_")]
    assert tests == [f"test_{name}" for name in NAMES]
    assert EnvTestMixin.test_done_type.__doc__ == "``done`` is a Python ``bool``; ``np.bool_`` is not one."


AUTHORS_FILE = """
    from support.envs.broken import NumpyDone
    from stepmill.testing import EnvTestMixin

    class TestMine(EnvTestMixin):
        check_options = {"episodes": 1, "steps": 3}
        made = 0

        def make_env(self):
            TestMine.made += 1
            return NumpyDone()

    class TestWithout(TestMine):
        test_done_type = None

    class TestEmpty(EnvTestMixin):
        pass

    def test_the_env_was_checked_once_for_each_class():
        assert TestMine.made == 2 * 7
"""


def test_pytest_names_the_rule_that_broke(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_mine=AUTHORS_FILE)
    result = pytester.runpytest_inprocess("-rfs", "-p", "no:cacheprovider", "-p", "no:randomly")
    # cfg_unchanged, episode_return and its alias cannot be checked of the first two, and nothing of the last.
    skipped = 3 + 3 + len(RULES) - 1
    result.assert_outcomes(failed=2, skipped=skipped, passed=3 * len(RULES) - 2 - skipped)
    result.stdout.fnmatch_lines(
        [
            "E * AssertionError: done_type: done, step 1 of episode 0: expected a bool, got an np.bool_ *",
            "E * NotImplementedError: TestEmpty: write make_env(self), which returns a new env. *",
            "FAILED test_mine.py::TestMine::test_done_type - *",
            "FAILED test_mine.py::TestEmpty::test_no_exception - *",
            "SKIPPED * cfg_unchanged: needs a configuration: pass cfg=",
        ]
    )


def test_the_mixin_serves_unittest_too() -> None:
    class Mine(EnvTestMixin, unittest.TestCase):
        check_options = {"episodes": 1, "steps": 10}  # noqa: RUF012

        def make_env(self) -> Any:
            return NumpyDone()

    result = unittest.TestResult()
    unittest.defaultTestLoader.loadTestsFromTestCase(Mine).run(result)
    assert result.testsRun == len(RULES)
    assert [case.id().rpartition(".")[2] for case, _ in result.failures] == ["test_done_type"]
    assert [case.id().rpartition(".")[2] for case, _ in result.skipped] == ["test_cfg_unchanged"]
    assert result.errors == []
