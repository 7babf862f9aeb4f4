"""The conformance suite: tells whether an env of your own keeps the contract.

::

    from stepmill.testing import check_env

    check_env(MyEnv, cfg={"level": 3})   # prints its findings, and returns them

and as tests::

    class TestMyEnv(EnvTestMixin):
        def make_env(self):
            return MyEnv({"level": 3})
"""

from stepmill.testing.check import check_env
from stepmill.testing.finding import Finding, Report
from stepmill.testing.mixin import EnvTestMixin
from stepmill.testing.rule import MomentRule, Rule
from stepmill.testing.rules import RULES

__all__ = ["RULES", "EnvTestMixin", "Finding", "MomentRule", "Report", "Rule", "check_env"]
