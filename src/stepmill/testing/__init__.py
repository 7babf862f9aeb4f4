"""The checker: reports whether your own env keeps the contract.

::

    from stepmill.testing import check_env

    check_env(MyEnv, cfg={"level": 3})   # prints and returns its findings

and as tests::

    class TestMyEnv(EnvTestMixin):
        def make_env(self):
            return MyEnv({"level": 3})

``end_servers`` is for tests that count processes or descriptors.

To read it: ``check.py`` applies the rules, and makes tests of them; ``trial.py`` runs the envs and records what they
do, with ``subject.py`` (makes, calls and closes envs), ``play.py`` (plays episodes) and ``watch.py`` (what an env
opens); ``rules/`` has one function per rule; ``values.py`` compares and describes values; ``finding.py`` is the result.
"""

from stepmill.hosts.process.caller.servers import end_servers
from stepmill.testing.check import EnvTestMixin, check_env
from stepmill.testing.finding import Finding, Report
from stepmill.testing.rules import RULES
from stepmill.testing.rules.rule import MomentRule, Rule

__all__ = ["RULES", "EnvTestMixin", "Finding", "MomentRule", "Report", "Rule", "check_env", "end_servers"]
