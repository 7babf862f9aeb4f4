"""Runs commands in this process, as the shell would."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import pytest

from stepmill.tools.cli.entry import main


class Done(NamedTuple):
    """How a command ended, and what it wrote."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def run_command(capfd: pytest.CaptureFixture[str], *arguments: object) -> Done:
    """``run_command(capfd, "run", "CartPole-v1")``."""
    capfd.readouterr()
    code = main([str(one) for one in arguments])
    return Done(code, *capfd.readouterr())
