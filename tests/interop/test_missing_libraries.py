"""Where the library of a drop-in is not installed, its import says how to get it."""

from __future__ import annotations

import importlib
import sys
import types

import pytest

import stepmill
from stepmill.errors import MissingPackageError, UnsupportedError


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


def test_pools_in_programs_need_jax(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jax", None)
    monkeypatch.delitem(sys.modules, "stepmill.views.xla", raising=False)
    with stepmill.make("CartPole-v1") as pool:
        with pytest.raises(MissingPackageError, match=r"xla\(\) needs jax.*pip install 'stepmill\[jax\]'"):
            pool.xla()
        assert pool.xla_error is None
        pool.reset()


def test_an_old_jax_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jax", types.SimpleNamespace(__version__="0.4.38"))
    monkeypatch.delitem(sys.modules, "stepmill.views.xla", raising=False)
    with stepmill.make("CartPole-v1") as pool, pytest.raises(UnsupportedError, match=r"0\.5 or later, got 0\.4\.38"):
        pool.xla()
