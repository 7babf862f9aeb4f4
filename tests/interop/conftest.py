"""Each folder needs the library that it is named for: `make test` leaves out those that are not installed.

`make integrations` has them all, and says so: there a missing library is a failure.
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

collect_ignore = (
    []
    if os.environ.get("STEPMILL_INTEGRATIONS")
    else [folder for folder, library in NEEDS.items() if importlib.util.find_spec(library) is None]
)
