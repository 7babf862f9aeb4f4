"""Each folder needs the library that it is named for: `make test` leaves out those that are not installed.

`make integrations` has them all, and says so: there a missing library is a failure. Only RLlib, which pins an older
Gymnasium, has an environment of its own: `make test-rllib`.
"""

from __future__ import annotations

import importlib.util
import os

NEEDS = {
    "sb3": "stable_baselines3",
    "tianshou": "tianshou",
    "torchrl": "torchrl",
    "minari": "minari",
    "torch": "torch",
    "jax": "jax",
}

APART = {"rllib": "pyarrow"}  # which ray[rllib] brings, and ray alone does not

expected = set(NEEDS) if os.environ.get("STEPMILL_INTEGRATIONS") else set()
collect_ignore = [
    folder
    for folder, library in {**NEEDS, **APART}.items()
    if folder not in expected and importlib.util.find_spec(library) is None
]
collect_ignore += ["ding"]  # in the environment of DI-engine, where this file is not read: `make ding`
