"""How the installed numpy and Gymnasium sum products: with one rounding per term, or with two.

BLAS and ``np.einsum`` fuse a product with its sum on some CPUs. Native envs do what is found here.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

from stepmill import _native

__all__ = ["fuses_dot", "fuses_mass_center"]

_PROBES = 200


@functools.cache
def fuses_dot() -> bool:
    """Whether ``np.linalg.norm`` of two and three numbers fuses. They differ in one of six results."""
    vectors = [np.random.default_rng(i).normal(size=2 + i % 2) for i in range(_PROBES)]
    return _agrees(
        "np.linalg.norm", lambda fused, x: np.sqrt(_native.sum_of_products(fused, x, x)) == np.linalg.norm(x), vectors
    )


@functools.cache
def fuses_mass_center(version: int) -> bool:
    """Whether Gymnasium's centre of mass of a humanoid fuses."""
    rng = np.random.default_rng(0)
    probes = [(rng.uniform(0, 5, 14), rng.normal(size=(14, 3))) for _ in range(_PROBES)]
    center = _mass_center(version)

    def equal(fused: bool, probe: tuple[np.ndarray, np.ndarray]) -> bool:
        mass, positions = probe
        ours = _native.sum_of_products(fused, mass, np.ascontiguousarray(positions[:, 0])) / mass.sum()
        return bool(ours == center(mass, positions)[0])

    return _agrees("the centre of mass of a humanoid", equal, probes)


def _mass_center(version: int) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    """Gymnasium's own function if it can be imported: its formula has changed between versions."""
    try:
        import importlib

        theirs = importlib.import_module(f"gymnasium.envs.mujoco.humanoid_v{version}").mass_center
    except (ImportError, AttributeError):  # it needs packages that rendering needs
        return lambda mass, positions: np.einsum("b,bj->j", mass, positions) / mass.sum()
    return lambda mass, positions: theirs(SimpleNamespace(body_mass=mass), SimpleNamespace(xipos=positions))


def _agrees(what: str, equal: Callable[..., bool], probes: list[Any]) -> bool:
    """Whether the fused form agrees on more probes than the other one: one of them should agree on all."""
    fused, separate = (sum(bool(equal(form, probe)) for probe in probes) for form in (True, False))
    if max(fused, separate) < len(probes):
        logging.getLogger("stepmill").warning(
            "%s here is computed in a way that stepmill does not know: some native MuJoCo envs may differ from "
            "Gymnasium's in the last bit of a number. stepmill.verify() says which",
            what,
        )
    return fused > separate
