"""What the tests of MuJoCo tasks need around them."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.gl import gl_backend


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Gymnasium's envs write MuJoCo's warnings into a file in the working directory."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def gl() -> Iterator[str]:
    """What draws here, for this process and its workers."""
    backend = gl_backend()
    if backend is None:
        pytest.skip("neither EGL nor OSMesa draws here")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MUJOCO_GL", backend)
        yield backend
    if backend == "egl":
        end = getattr(importlib.import_module("mujoco.egl"), "_terminate_display", None)  # older versions have none
        if end is not None:
            end()  # and with it the threads of OpenGL, which other tests might count
