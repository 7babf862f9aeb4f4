"""Makes native envs compute exactly as the installed numpy does.

Two things depend on the installation: numpy's float32 sin and cos (it picks code by CPU and version),
and whether a float32 scalar times a Python number stays float32 (numpy 2) or not (numpy 1). Both are
tried with numpy itself, once, at import, in about two milliseconds.
"""

from __future__ import annotations

import functools

import numpy as np

from stepmill import _native


def match_numpy() -> None:
    """Makes native envs compute so."""
    _native.match_numpy(*choices())


@functools.cache
def choices() -> tuple[int, bool]:
    """The float32 routine that agrees with numpy on the most probes, usually all; whether scalars keep float32."""
    best = min(range(_native.FLOAT32_TRIG_COUNT), key=float32_trig_mismatches)
    return best, (np.float32(3) * 0.1).dtype == np.float32


def float32_trig_mismatches(kind: int) -> int:
    """On how many probes one of our routines differs from numpy in any bit."""
    probes = _probes()
    differ = 0
    for cosine, numpy_function in ((False, np.sin), (True, np.cos)):
        ours = _native.float32_trig(kind, cosine, probes)
        differ += int(np.count_nonzero(ours.view(np.uint32) != numpy_function(probes).view(np.uint32)))
    return differ


def _probes() -> np.ndarray:
    """Small angles, a whole turn, and odd multiples of pi/4, where the routines differ."""
    corners = (np.arange(-20000, 20000, 9) + 0.5) * (np.pi / 2)
    return np.concatenate([np.linspace(-0.1, 0.1, 2049), np.linspace(-4, 4, 2049), corners]).astype(np.float32)
