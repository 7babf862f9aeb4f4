"""Kernels that run on the host: each is compiled once for all processes that run these tests."""

from __future__ import annotations

import os
import shutil

import pytest

from support.host_kernels import Kernels


@pytest.fixture(scope="session")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> Kernels:
    if shutil.which("g++") is None:
        pytest.skip("needs g++")
    base = tmp_path_factory.getbasetemp()
    return Kernels((base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "kernels")
