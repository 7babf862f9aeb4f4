"""JAX worlds where their packages are not installed: one sentence says what to install."""

from __future__ import annotations

import pytest

import stepmill
from stepmill import errors
from stepmill.registry.suites import suites
from support.subprocesses import run_well


@pytest.mark.parametrize("package", ["gymnax", "brax", "jumanji", "pgx", "craftax"])
def test_a_suite_that_is_not_installed(package: str) -> None:
    example = next(suite.example for suite in suites() if suite.package.module == package)
    out = run_well(
        f"""
        import importlib.util, sys

        find = importlib.util.find_spec
        importlib.util.find_spec = lambda name, *rest: None if name == {package!r} else find(name, *rest)
        sys.modules[{package!r}] = None
        import stepmill
        try:
            stepmill.make({example!r}, num_envs=2)
        except stepmill.errors.MissingPackageError as error:
            print(error)
        """
    )
    assert out == (f"{example} needs {package}, which is not installed: pip install 'stepmill[jax-worlds]'\n")


def test_ids_are_known_without_their_packages() -> None:
    with pytest.raises(errors.StepmillError, match="CartPole-v1 is not one"):
        stepmill.make("CartPole-v1", backend="jax")
    with pytest.raises(errors.UnknownEnvError):
        stepmill.make("gymnacks:CartPole-v1")
