"""Which way of summing products the installed numpy has: what is found once holds for other numbers, too."""

from __future__ import annotations

import importlib
from types import SimpleNamespace

import numpy as np
import pytest

from stepmill import _native
from stepmill.zoo.mujoco.simulator import fuses_dot, fuses_mass_center

pytest.importorskip("mujoco", reason="needs mujoco")


@pytest.mark.parametrize("size", [2, 3])
def test_norms(size: int) -> None:
    rng = np.random.default_rng(1000 + size)
    for x in rng.normal(size=(500, size)) * 10.0 ** rng.integers(-5, 6, (500, 1)):
        assert np.sqrt(_native.sum_of_products(fuses_dot(), x, x)) == np.linalg.norm(x)


@pytest.mark.parametrize("bodies", [1, 2, 5, 8, 14, 40, 150])
@pytest.mark.parametrize("version", [4, 5])
def test_the_centre_of_mass(version: int, bodies: int) -> None:
    theirs = importlib.import_module(f"gymnasium.envs.mujoco.humanoid_v{version}").mass_center
    rng = np.random.default_rng(bodies)
    for _ in range(100):
        mass, positions = rng.uniform(0, 5, bodies), rng.normal(size=(bodies, 3))
        expected = theirs(SimpleNamespace(body_mass=mass), SimpleNamespace(xipos=positions))
        for axis in (0, 1):
            column = np.ascontiguousarray(positions[:, axis])
            ours = _native.sum_of_products(fuses_mass_center(version), mass, column) / mass.sum()
            assert ours == expected[axis]
