"""A world in JAX that tests know all about: what it shows says how it got there."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces

from stepmill.sources.jax_world import Begun, JaxWorld, Moved


def counting_world(length: int = 5, *, cheap: bool = True, discount: bool = False) -> JaxWorld:
    """Counts its steps; an episode ends after ``length`` of them, or when an action is 3.

    The observation has the number of the step, the sum of the actions, and a number that the reset has drawn.
    """

    def reset(key: Any) -> Begun:
        drawn = jax.random.uniform(key)
        state = {"count": jnp.int32(0), "sum": jnp.float32(0), "drawn": drawn}
        return Begun(state, _shown(state), {"began_with": drawn, "both": jnp.int32(-1)})

    def step(key: Any, state: Any, action: Any) -> Moved:
        state = {**state, "count": state["count"] + 1, "sum": state["sum"] + action.astype(jnp.float32)}
        told = {"discount": jnp.float32(0.5)} if discount else {}
        info = {"noise": jax.random.uniform(key), "deep": {"count": state["count"]}, "both": state["count"], **told}
        ended = state["count"] >= length
        return Moved(state, _shown(state), state["sum"], ended & (action != 3), action == 3, info)

    return JaxWorld(
        id="Counting",
        observation_space=spaces.Box(-np.inf, np.inf, (3,), np.float32),
        action_space=spaces.Discrete(4),
        reset=reset,
        step=step,
        resets_cheaply=cheap,
        draw=lambda state: np.full((4, 4, 3), int(state["count"]), np.uint8),
    )


def _shown(state: Any) -> Any:
    return jnp.stack([state["count"].astype(jnp.float32), state["sum"], state["drawn"]])
