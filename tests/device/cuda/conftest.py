"""Kernels that run on the host: each is compiled once for all processes that run these tests."""

from __future__ import annotations

import gc
import os
import shutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from stepmill.sources.files.compiler import Compiler
from support.cuda_pools import Both, HostGpu
from support.host_kernels import Kernels


@pytest.fixture(scope="session")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> Kernels:
    if shutil.which("g++") is None:
        pytest.skip("needs g++")
    base = tmp_path_factory.getbasetemp()
    return Kernels((base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "kernels")


@pytest.fixture(scope="module", autouse=True)
def compiled_in_less_time() -> Iterator[None]:
    """Files of one's own: they do the same as with all optimisations."""
    flags = Compiler.flags
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Compiler, "flags", lambda self: [*flags(self), "-O1"])
        yield


@pytest.fixture(scope="module")
def gpu(kernels: Kernels, one_cache: None) -> Iterator[HostGpu]:
    """A GPU for ``backend="cuda"``."""
    made = HostGpu(kernels)
    with pytest.MonkeyPatch.context() as patch:
        made.install(patch)
        yield made


@pytest.fixture
def both(gpu: HostGpu) -> Iterator[Callable[..., Both]]:
    """Makes the same pool on the GPU and on threads; afterwards nothing of the GPU is in use."""
    made: list[Both] = []

    def make(*args: Any, **arguments: Any) -> Both:
        made.append(Both(*args, **arguments))
        return made[-1]

    gc.collect()
    before = gpu.left()
    yield make
    while made:
        made.pop().close()
    gc.collect()
    assert gpu.left() == before
