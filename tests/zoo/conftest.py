"""What the tests against Gymnasium need around them."""

from __future__ import annotations

import os
from functools import partial

import pytest

from support.reference import recording as recorded_in
from support.replays import Recorder


@pytest.fixture(scope="session")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Recorder:
    """Each case is recorded once, by whichever of the processes that run the tests needs it first."""
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent  # the others' too
    folder /= "recordings"
    folder.mkdir(exist_ok=True)
    return partial(recorded_in, folder=folder)
