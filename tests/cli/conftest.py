"""Runs commands in this process, as the shell would."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from stepmill.cli.entry import main
from support import command_envs


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


@pytest.fixture
def user_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with ``my_envs.py`` in it (``support/command_envs.py``)."""
    shutil.copy(str(command_envs.__file__), tmp_path / "my_envs.py")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "my_envs", raising=False)
    return tmp_path
