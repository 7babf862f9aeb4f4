"""The conformance suite: tells whether an env of your own keeps the contract.

::

    from stepmill.testing import check_env

    check_env(MyEnv, cfg={"level": 3})   # prints its findings, and returns them

and as tests::

    class TestMyEnv(EnvTestMixin):
        def make_env(self):
            return MyEnv({"level": 3})

To read it: ``check.py`` asks the rules; ``trial.py`` says what is done with the envs and what was seen of them, with
``subject.py`` (envs are made, called and closed there), ``play.py`` (episodes) and ``watch.py`` (what an env opens);
``rules/`` holds one function per rule; ``finding.py`` is what comes out.
"""

from stepmill.testing.check import check_env
from stepmill.testing.finding import Finding, Report
from stepmill.testing.mixin import EnvTestMixin
from stepmill.testing.rules import RULES
from stepmill.testing.rules.rule import MomentRule, Rule

__all__ = ["RULES", "EnvTestMixin", "Finding", "MomentRule", "Report", "Rule", "check_env"]
