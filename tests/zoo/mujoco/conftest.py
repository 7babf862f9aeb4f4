"""What the tests of MuJoCo tasks need around them."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Gymnasium's envs write MuJoCo's warnings into a file in the working directory."""
    monkeypatch.chdir(tmp_path)
