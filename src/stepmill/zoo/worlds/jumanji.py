"""Jumanji.

Keys: a reset gives its key to Jumanji's ``reset``. Steps that are random take the key in the env's state.

What truncates: the last step of an episode, if its discount is not 0. Most of Jumanji's envs end with discount 0 at
their ``time_limit`` too, and many show the steps so far: so it stays in the env, and the world has no limit.

Jumanji's autoreset, in the ``AutoResetWrapper``, made the key of the next episode from the state of the last one. Here
the pool has the keys.

Observations that are tuples with names, or dataclasses, are dicts. Infos are Jumanji's extras, and the discount.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import warnings
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import jumanji
import matplotlib.pyplot as plt
import numpy as np
from gymnasium import spaces
from jumanji import registration, specs
from jumanji.environments import TSP
from jumanji.viewer import MatplotlibViewer

from stepmill.errors import UnsupportedError
from stepmill.registry.factories import check_keys, default_values
from stepmill.sources.jax_world import Begun, JaxWorld, Moved
from stepmill.zoo.worlds.adapting import KEY, box_of, downloading, id_of

# Downloads its levels when it is made.
_NEEDS_A_NETWORK = {"Sokoban-v0"}
# A reward for each agent.
_OF_MANY_AGENTS = {"Connector-v3", "LevelBasedForaging-v0", "SearchAndRescue-v0"}


def names() -> list[str]:
    """Those that Jumanji registers, but for what needs a network or rewards many agents."""
    return sorted(jumanji.registered_environments() - _NEEDS_A_NETWORK - _OF_MANY_AGENTS)


def world_of(task: str | jumanji.Environment, config: Mapping[str, Any]) -> JaxWorld:
    """Args: the name of an env, or one. ``config``: arguments of its class."""
    id = id_of("jumanji", task, sorted(jumanji.registered_environments()))
    arguments = {}
    if isinstance(task, str):
        registered = registration._REGISTRY[task]
        arguments = {**default_values(registration.load(registered.entry_point)), **registered.kwargs}
    check_keys(id, config, arguments)
    with downloading(id, isinstance(task, str) and task in _NEEDS_A_NETWORK):
        env = jumanji.make(task, **config) if isinstance(task, str) else task
    if env.reward_spec.shape:
        raise UnsupportedError(
            f"{id} rewards each of its agents, and an env of a pool has one reward: pass "
            "jumanji.wrappers.MultiToSingleWrapper(env), which adds them up"
        )

    def reset(key: Any) -> Begun:
        state, timestep = env.reset(key)
        return Begun(state, _as_dicts(timestep.observation), {**timestep.extras, "discount": timestep.discount})

    def step(key: Any, state: Any, action: Any) -> Moved:
        with _quiet():
            state, timestep = env.step(state, action)
        terminated = timestep.last() & (timestep.discount == 0)
        info = {**timestep.extras, "discount": timestep.discount}
        observation = _as_dicts(timestep.observation)
        return Moved(state, observation, timestep.reward, terminated, timestep.last() & ~terminated, info)

    observed = _space_of(env.observation_spec, jax.eval_shape(reset, KEY).observation)
    if isinstance(env.unwrapped, TSP):  # -1 until a city was visited, which its spec does not say
        cities = observed["position"]
        observed = spaces.Dict({**observed, "position": spaces.Discrete(cities.n + 1, start=-1, dtype=cities.dtype)})
    return JaxWorld(
        id,
        observed,
        _space_of(env.action_spec),
        reset,
        step,
        config={**arguments, **config},
        draw=_drawer_of(env),
    )


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Hides that JAX will refuse what BinPack does, one day."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "scatter inputs have incompatible types", FutureWarning)
        yield


def _drawer_of(env: jumanji.Environment) -> Callable[[Any], np.ndarray] | None:
    """Draws states as the viewer of an env does, but shows no window."""
    viewers = [one for one in vars(env.unwrapped).values() if isinstance(one, MatplotlibViewer)]

    def draw(state: Any) -> np.ndarray:
        viewer: Any = copy.copy(viewers[0])
        viewer._name = f"stepmill: {viewer._name}"  # Matplotlib finds figures by their names
        viewer._display = viewer._display_rgb_array
        viewer._get_fig_ax = partial(viewer._get_fig_ax, show=False)
        with plt.ioff():
            try:
                return np.array(viewer.render(jax.tree.map(jnp.asarray, state)))[..., :3].copy()
            finally:
                viewer.close()

    return draw if viewers else None


def _as_dicts(value: Any) -> Any:
    """An observation whose parts have names, as a dict."""
    if hasattr(value, "_asdict"):
        value = value._asdict()
    elif dataclasses.is_dataclass(value):
        value = {one.name: getattr(value, one.name) for one in dataclasses.fields(value)}
    return {key: _as_dicts(part) for key, part in value.items()} if isinstance(value, Mapping) else value


def _space_of(spec: Any, form: Any = None) -> Any:
    """The space of a spec. ``form``: that of what an env gives; for actions there is none."""
    if isinstance(form, Mapping):
        return spaces.Dict({key: _space_of(spec[key], part) for key, part in form.items()})
    dtype = np.int64 if form is None else np.dtype(form.dtype).type  # Discrete actions are as Gymnasium has them
    if isinstance(spec, specs.DiscreteArray):
        return spaces.Discrete(spec.num_values, dtype=dtype)
    if isinstance(spec, specs.MultiDiscreteArray):
        return spaces.MultiDiscrete(np.asarray(spec.num_values), dtype=dtype)
    bounds = (spec.minimum, spec.maximum) if isinstance(spec, specs.BoundedArray) else ()
    return box_of(spec if form is None else form, *bounds)
