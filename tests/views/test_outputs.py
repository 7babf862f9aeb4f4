"""``output``: what is refused, whichever packages are installed."""

from __future__ import annotations

import sys

import pytest

import stepmill
from stepmill import errors
from stepmill.views import outputs
from support.envs import Plain


@pytest.mark.parametrize("output", ["torch", "jax"])
def test_a_missing_package_is_an_error_of_make(output: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, output, None)  # as if it were not installed
    built = []

    class Watched(Plain):
        def __init__(self) -> None:
            built.append(self)

    with pytest.raises(errors.MissingPackageError, match=rf"pip install 'stepmill\[{output}\]'"):
        stepmill.make(Watched, backend="inline", output=output)
    assert built == []


@pytest.mark.torch
@pytest.mark.parametrize("view", ["gymnasium", "gym", "dm"])
def test_a_pool_has_one_converter(view: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made = []

    def make(device: str) -> outputs.Converter:
        made.append(device)
        return outputs.to_torch(device)

    monkeypatch.setitem(outputs.CONVERTERS, "torch", make)
    with stepmill.make("CartPole-v1", view, output="torch") as pool:
        pool.reset()
    assert made == ["cpu"]


def test_a_spec_needs_no_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    assert stepmill.make_spec("CartPole-v1", output="torch") == stepmill.make_spec("CartPole-v1")


def test_an_unknown_output_is_refused() -> None:
    with pytest.raises(errors.ConfigError, match="'numpy', 'torch', 'jax', got 'tensorflow'"):
        stepmill.make("CartPole-v1", output="tensorflow")
