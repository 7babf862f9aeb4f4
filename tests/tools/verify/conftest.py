"""What tests of ``verify`` need: Gymnasium's envs, told to do something else."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from support.official import PythonProbe, change_official, install_probe


@pytest.fixture
def probe(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[PythonProbe]]:
    return partial(install_probe, monkeypatch)


@pytest.fixture
def official(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    return partial(change_official, monkeypatch)
