"""A user's folder."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from support.envs import command


@pytest.fixture
def user_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with ``my_envs.py`` in it (``support/envs/command.py``)."""
    shutil.copy(str(command.__file__), tmp_path / "my_envs.py")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "my_envs", raising=False)
    return tmp_path
