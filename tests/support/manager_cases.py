"""Cases and constants that the tests of the managers share. Not beside the envs: workers need no pytest."""

from __future__ import annotations

from typing import Any

import pytest

from stepmill.managers import BaseEnvManager, EnvState
from support.envs.faulty import BrokenText, SeveralArguments, Unpicklable
from support.envs.managed import KINDS

EVERY_KIND = pytest.mark.parametrize("kind", KINDS)
# For what does not depend on how `step` waits.
SERIAL_AND_ASYNC = pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "sync"])

VOID, INIT, RUN, RESET, DONE, ERROR, NEED_RESET = EnvState

MISSED_DEADLINE = 0.3  # seconds: a deadline that the env is to miss

# What an env in this process raises, by mishap. For envs in workers see RAISED.
RAISED_HERE = {
    "raise": KeyError,
    "unpicklable": Unpicklable,
    "several arguments": SeveralArguments,
    "broken text": BrokenText,
}


def pool_of(manager: BaseEnvManager) -> Any:
    """The engine inside a launched manager."""
    return manager._scheduler.pool._engine
