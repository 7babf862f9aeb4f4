"""Runs commands in this process, as the shell would."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from stepmill.cli.entry import main


class Done(NamedTuple):
    """How a command ended, and what it wrote."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@pytest.fixture
def stepmill_command(capfd: pytest.CaptureFixture[str]) -> Callable[..., Done]:
    """``stepmill_command("run", "CartPole-v1")``: its exit code, stdout and stderr."""

    def run(*arguments: object) -> Done:
        capfd.readouterr()
        code = main([str(one) for one in arguments])
        return Done(code, *capfd.readouterr())

    return run
