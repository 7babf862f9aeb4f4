"""Where the library of a drop-in is not installed, its import says how to get it."""

from __future__ import annotations

import importlib
import sys

import pytest

from stepmill.errors import MissingPackageError


@pytest.mark.parametrize(
    ("module", "library", "extra"),
    [
        ("stepmill.interop.sb3", "stable_baselines3", "sb3"),
        ("stepmill.interop.tianshou", "tianshou", "tianshou"),
        ("stepmill.interop.torchrl", "torchrl", "torchrl"),
        ("stepmill.interop.minari", "minari", "minari"),
        ("stepmill.interop.minari", "h5py", "minari"),
    ],
)
def test_the_error_has_the_pip_command(module: str, library: str, extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, library, None)  # as if it were not installed
    monkeypatch.delitem(sys.modules, module, raising=False)
    with pytest.raises(MissingPackageError, match=rf"{module} needs .*pip install 'stepmill\[{extra}\]'"):
        importlib.import_module(module)
