"""Gymnax.

Keys: a reset and a step take the key that they are given for Gymnax's ``reset_env`` and ``step_env``, which split it as
they like. Gymnax's own ``step`` splits a key in two first: one for ``step_env``, one for the reset that may follow.

What truncates: nothing in here. Gymnax's limit, ``max_steps_in_episode`` of the params, is the world's limit, and the
pool counts. The params keep it, as some observations depend on it. An env with an ``is_truncated`` of its own is asked
instead.

Gymnax's autoreset, in ``step``, computed a reset beside every step and chose between them; the pool does that here.
DeepSea, which kept its count of bad episodes over resets, begins anew with each.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from gymnax import registration
from gymnax.environments.environment import Environment

from stepmill.registry.factories import check_keys, default_values
from stepmill.sources.jax_world import Begun, JaxWorld, Moved
from stepmill.zoo.worlds.adapting import KEY, box_of, downloading, fields_of, id_of, pixels_of, space_like, with_fields

# Downloads its pictures when it is made.
_NEEDS_A_NETWORK = {"MNISTBandit-bsuite"}
# Their observations leave the spaces that they tell: the one here has no bounds.
_OUTSIDE = {"MemoryChain-bsuite", "UmbrellaChain-bsuite", "GaussianBandit-misc", "MetaMaze-misc"}
# What Gymnax's Visualizer draws, by the names of the envs.
_DRAWN = {
    *("Acrobot-v1", "CartPole-v1", "Pendulum-v1", "MountainCar-v0", "MountainCarContinuous-v0"),
    *("Asterix-MinAtar", "Breakout-MinAtar", "Freeway-MinAtar", "Seaquest-MinAtar", "SpaceInvaders-MinAtar"),
    *("Catch-bsuite", "Pong-misc", "PointRobot-misc", "MetaMaze-misc", "FourRooms-misc"),
}


def names() -> list[str]:
    """Those that Gymnax registers, but for what needs a network."""
    return [one for one in registration.registered_envs if one not in _NEEDS_A_NETWORK]


def world_of(task: str | Environment, config: Mapping[str, Any]) -> JaxWorld:
    """Args: the name of an env, or one. ``config``: arguments of its class, and fields of its params."""
    id = id_of("gymnax", task, registration.registered_envs)
    make = registration._registry[task] if isinstance(task, str) else lambda: task
    arguments = default_values(make)
    with downloading(id, isinstance(task, str) and task in _NEEDS_A_NETWORK):
        env = make(**{key: value for key, value in config.items() if key in arguments})
    fields = fields_of(env.default_params)
    check_keys(id, config, [*arguments, *fields])
    params = with_fields(env.default_params, config)
    # As Gymnax's own functions do it: numbers of the params are computed with by JAX, not by Python, which rounds less.
    reset_env, step_env = jax.jit(env.reset_env), jax.jit(env.step_env)
    has_own_end = type(env).is_truncated is not Environment.is_truncated

    def reset(key: Any) -> Begun:
        observation, state = reset_env(key, params)
        return Begun(state, observation)

    def step(key: Any, state: Any, action: Any) -> Moved:
        observation, state, reward, terminated, info = step_env(key, state, action, params)
        truncated = env.is_truncated(state, params) if has_own_end else jnp.zeros((), bool)
        return Moved(state, observation, reward, terminated, truncated, info)

    def draw(state: Any) -> np.ndarray:
        from gymnax.visualize.visualizer import Visualizer  # it takes a second

        shown = Visualizer(env, params, [state])
        shown.init()
        return pixels_of(shown.fig)

    form = jax.eval_shape(reset, KEY).observation
    return JaxWorld(
        id,
        box_of(form) if env.name in _OUTSIDE else space_like(env.observation_space(params), form),
        space_like(env.action_space(params)),
        reset,
        step,
        max_episode_steps=None if has_own_end else int(params.max_steps_in_episode),
        config={**arguments, **fields, **config},
        resets_cheaply=True,
        draw=draw if env.name in _DRAWN else None,
    )
