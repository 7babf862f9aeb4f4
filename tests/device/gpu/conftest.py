"""``backend="cuda"`` on a real GPU: `make test-cuda`. What holds without one is in tests/device/cuda."""

from __future__ import annotations

import os

import pytest

from stepmill import _native
from stepmill.device.cuda import driver


@pytest.fixture(scope="session", autouse=True)
def a_gpu() -> None:
    try:
        _native.gpu_architecture(driver.LIBRARY, 0)
    except RuntimeError as error:
        if os.environ.get("STEPMILL_CUDA"):
            raise
        pytest.skip(f"no GPU: make test-cuda ({error})")
