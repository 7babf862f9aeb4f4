"""Craftax.

Keys: a reset and a step take the key that they are given for Craftax's ``reset_env`` and ``step_env``, which split it
as they like. The ``step`` of its envs with autoreset splits a key in two first: one for each of them.

What truncates: nothing in here. ``max_timesteps`` of the params, which Craftax takes for an end like any other, is the
world's limit, and the pool counts. Who dies, or beats the last boss, is terminated.

Craftax's autoreset, in the ``step`` of half of its envs, made a world beside every step. The "optimistic resets" of its
baselines made fewer, and gave the same world to several envs that ended in one step. The pool makes as many as are
needed, and each is another.

Infos: ``achievements`` of the episode so far, in the order of Craftax's ``Achievement``. (Craftax has an entry for each
of them, which is 0 until the episode ends.)
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import sys
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from craftax.craftax_env import make_craftax_env_from_name

from stepmill.registry.factories import check_keys
from stepmill.sources.jax_world import Begun, JaxWorld, Moved
from stepmill.zoo.worlds.adapting import KEY, fields_of, id_of, space_like, with_fields

_NAMES = ("Craftax-Symbolic-v1", "Craftax-Pixels-v1", "Craftax-Classic-Symbolic-v1", "Craftax-Classic-Pixels-v1")
_NEVER = 2**31 - 1


def names() -> list[str]:
    """Those that Craftax makes."""
    return list(_NAMES)


def world_of(task: Any, config: Mapping[str, Any]) -> JaxWorld:
    """Args: the name of an env, or one. ``config``: fields of its params and, of a name, of its static params."""
    id = id_of("craftax", task, _NAMES)
    env, static = task, {}
    with contextlib.redirect_stdout(io.StringIO()):  # it says where its pictures come from
        if isinstance(task, str):
            env = make_craftax_env_from_name(task, auto_reset=False)
            static = fields_of(env.static_env_params)
        if static.keys() & config.keys():
            env = type(env)(with_fields(env.static_env_params, config))
    fields = fields_of(env.default_params)
    check_keys(id, config, [*fields, *static])
    params = with_fields(env.default_params, config)
    endless = dataclasses.replace(params, max_timesteps=_NEVER)
    # As Craftax's own functions do it, which JAX compiles: with the params as arguments.
    reset_env, step_env = jax.jit(env.reset_env), jax.jit(env.step_env)

    def reset(key: Any) -> Begun:
        observation, state = reset_env(key, endless)
        return Begun(state, observation, {"achievements": state.achievements})

    def step(key: Any, state: Any, action: Any) -> Moved:
        observation, state, reward, terminated, info = step_env(key, state, action, endless)
        info = {"achievements": state.achievements, "discount": info["discount"]}
        return Moved(state, observation, reward, terminated, jax.numpy.zeros((), bool), info)

    return JaxWorld(
        id,
        space_like(env.observation_space(params), jax.eval_shape(reset, KEY).observation),
        space_like(env.action_space(params)),
        reset,
        step,
        max_episode_steps=int(params.max_timesteps),
        config={**fields, **static, **config},
        draw=_Drawer(env),
    )


class _Drawer:
    """Draws states as Craftax's envs of pixels show them, with larger blocks. Reads its pictures when it is used."""

    def __init__(self, env: Any) -> None:
        self._game = sys.modules[type(env).__module__.rpartition(".envs.")[0] + ".renderer"]
        self._draw: Any = None

    def __call__(self, state: Any) -> Any:
        if self._draw is None:
            with contextlib.redirect_stdout(io.StringIO()):
                self._draw = jax.jit(self._game.make_craftax_pixel_renderer(self._game.BLOCK_PIXEL_SIZE_IMG))
        return np.asarray(self._draw(state)).clip(0, 255).astype(np.uint8)
