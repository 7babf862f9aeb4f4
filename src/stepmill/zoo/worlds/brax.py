"""Brax.

Keys: a reset gives its key to Brax's ``reset``. Steps are not random; an env of your own may keep a key in its state.

What truncates: nothing in here. ``done`` means terminated. The limit of 1,000 steps is the ``episode_length`` of
``brax.envs.create`` and ``wrap``; the pool counts instead of their ``EpisodeWrapper``.

Brax's autoreset, in the ``AutoResetWrapper``, put an env back to the state in which its first episode had begun. Every
episode begins in another here.

Infos are Brax's metrics, all 0 after a reset.
"""

from __future__ import annotations

import contextlib
import inspect
import io
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces

from stepmill.errors import ConfigError, UnsupportedError
from stepmill.registry.factories import check_keys, default_values
from stepmill.sources.jax_world import Begun, JaxWorld, Moved
from stepmill.system.headless import drawing
from stepmill.zoo.worlds.adapting import KEY, boxes_of, id_of


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Hides that Brax, and what it calls, is no longer maintained: docs/zoo.md says so."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        warnings.filterwarnings("ignore", "Brax System", UserWarning)
        yield


with _quiet(), contextlib.redirect_stdout(io.StringIO()):  # it prints that there is no Warp, which it does without
    from brax import envs
    from brax.envs.wrappers import training

# Its physics calls a function with an argument that JAX 0.10 has removed.
_BROKEN = set() if "a_min" in inspect.signature(jnp.clip).parameters else {"swimmer"}
# What the pool does by itself.
_WRAPPERS = (
    *(training.AutoResetWrapper, training.EpisodeWrapper, training.EvalWrapper, training.VmapWrapper),
    training.DomainRandomizationVmapWrapper,
)


def names() -> list[str]:
    """Those that Brax registers, but for what it cannot step with this JAX."""
    return [one for one in envs._envs if one not in _BROKEN]


def world_of(task: str | envs.Env, config: Mapping[str, Any]) -> JaxWorld:
    """Args: the name of an env, or one. ``config``: arguments of its class."""
    id = id_of("brax", task, envs._envs)
    if isinstance(task, str) and task in _BROKEN:
        raise UnsupportedError(
            f"{id} does not work with JAX {jax.__version__}: Brax still calls jax.numpy.clip with an argument that JAX "
            "0.10 has removed. With an older one it works: pip install 'jax<0.10'"
        )
    arguments = _arguments(envs._envs[task]) if isinstance(task, str) else {}
    check_keys(id, config, arguments)
    with _quiet():
        env = envs.get_environment(task, **config) if isinstance(task, str) else task
    _check_is_bare(id, env)

    def reset(key: Any) -> Begun:
        with _quiet():
            state = env.reset(key)
        return Begun(state, state.obs, state.metrics)

    def step(key: Any, state: Any, action: Any) -> Moved:
        with _quiet():
            state = env.step(state, action)
        return Moved(state, state.obs, state.reward, state.done.astype(bool), jnp.zeros((), bool), state.metrics)

    def draw(state: Any) -> np.ndarray:
        from brax.io import image

        with drawing(id):
            return np.asarray(image.render_array(env.unwrapped.sys, state.pipeline_state))

    return JaxWorld(
        id,
        boxes_of(jax.eval_shape(reset, KEY).observation),
        spaces.Box(-1, 1, (env.action_size,), np.float32),
        reset,
        step,
        max_episode_steps=1000,
        # The default of some depends on the env, as that of n_frames: it is what the env says it has.
        config={**{key: getattr(env, f"_{key}", value) for key, value in arguments.items()}, **config},
        draw=draw if hasattr(env.unwrapped, "sys") else None,
    )


def _arguments(made: Any) -> dict[str, Any]:
    """The arguments of a class, and those that it passes on to its base."""
    base = default_values(envs.PipelineEnv) if issubclass(made, envs.PipelineEnv) else {}
    return {**default_values(made), **{key: value for key, value in base.items() if key != "sys"}}


def _check_is_bare(id: str, env: Any) -> None:
    while isinstance(env, envs.Wrapper):
        if isinstance(env, _WRAPPERS):
            raise ConfigError(
                f"{id}: got an env in Brax's {type(env).__name__}: pass it without, as brax.envs.get_environment(...) "
                "makes it. The pool itself holds many envs, resets them, and ends episodes that are too long"
            )
        env = env.env
