"""A ``dm_env.Environment`` as a Gymnasium env."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from stepmill.errors import EnvError, SpaceError, UsageError
from stepmill.registry.env_state import HasLayerState
from stepmill.values.fitting import as_numbers, description
from stepmill.values.trees import as_tree, map_tree, space_from

# numpy's RandomState accepts seeds of 32 bits.
SEED_MODULUS = 2**32


class DmAsGymnasium(HasLayerState, gymnasium.Env[Any, Any]):
    """Turns each ``TimeStep`` into the five results of Gymnasium.

    - ``LAST`` with discount 0 means terminated, with any other discount truncated; ``info["discount"]`` has it.
    - dm_env has no seeds: ``reset(seed=...)`` calls the env's ``seed`` method if it has one, or seeds the random state
      of its task (``dm_control``); otherwise the seed has no effect.
    - ``render`` is the env's own, or ``physics.render()`` of ``dm_control``.
    """

    _state_names = ("_task_numbers",)

    def __init__(self, dm_env: Any) -> None:
        self.dm_env = dm_env
        self.observation_space = space_of_spec(dm_env.observation_spec())
        self.action_space = space_of_spec(dm_env.action_spec())
        self.metadata = {"render_modes": ["rgb_array"], "render_fps": 30}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        if options:
            raise UsageError(f"{self}: reset: a dm_env has no reset options, got {options!r}")
        super().reset(seed=seed)
        if seed is not None:
            self._seed(seed)
        return self._seen(self.dm_env.reset()), {}

    def _seed(self, seed: int) -> None:
        if hasattr(self.dm_env, "seed"):
            self.dm_env.seed(seed)
            return
        if (random := self._task_random()) is not None:
            random.seed(seed % SEED_MODULUS)

    def _task_random(self) -> np.random.RandomState | None:
        random = getattr(getattr(self.dm_env, "task", None), "random", None)
        return random if isinstance(random, np.random.RandomState) else None

    @property
    def _task_numbers(self) -> Any:
        """Where the random numbers of the task are, which ``reset`` seeds."""
        return None if (random := self._task_random()) is None else random.get_state()

    @_task_numbers.setter
    def _task_numbers(self, state: Any) -> None:
        if (random := self._task_random()) is not None:
            random.set_state(state)

    def _state_inside(self) -> Any:
        return self.dm_env

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        timestep = self.dm_env.step(action)
        if timestep.first():  # after the end of an episode, a dm env starts a new one by itself
            raise UsageError(f"{self}: step after the end of an episode: call reset")
        reward = self._number("reward", timestep.reward, 0.0)
        discount = self._number("discount", timestep.discount, 1.0)
        ended = timestep.last()
        return (
            self._seen(timestep),
            reward,
            ended and discount == 0.0,
            ended and discount != 0.0,
            {"discount": discount},
        )

    def _seen(self, timestep: Any) -> Any:
        """The observation of a timestep as ``observation_space`` has it."""
        return as_tree(timestep.observation)

    def _number(self, name: str, value: Any, default: float) -> float:
        if value is None:
            return default
        numbers = as_numbers(value)
        if numbers is None or numbers.size != 1:
            raise EnvError(f"{self}: step: expected one number as {name}, got {description(value)}")
        return float(numbers.item())

    @property
    def render_mode(self) -> str | None:  # type: ignore[override]
        """``rgb_array`` if there is something that draws."""
        return "rgb_array" if hasattr(self.dm_env, "render") or hasattr(self.dm_env, "physics") else None

    def render(self) -> Any:
        if hasattr(self.dm_env, "render"):
            return self.dm_env.render()
        physics = getattr(self.dm_env, "physics", None)
        if physics is None:
            raise UsageError(f"{self} has no renderer")
        return physics.render()

    def close(self) -> None:
        self.dm_env.close()

    def __str__(self) -> str:
        """Names the env inside."""
        return f"DmAsGymnasium({type(self.dm_env).__name__})"

    # Attributes that are not Gymnasium's are the env's own.

    def has_wrapper_attr(self, name: str) -> bool:
        return hasattr(self, name) or hasattr(self.dm_env, name)

    def get_wrapper_attr(self, name: str) -> Any:
        return getattr(self if hasattr(self, name) else self.dm_env, name)

    def set_wrapper_attr(self, name: str, value: Any, *, force: bool = True) -> bool:
        if not force and not self.has_wrapper_attr(name):
            return False
        setattr(self.dm_env, name, value)
        return True


def space_of_spec(spec: Any) -> spaces.Space[Any]:
    """The space of a nested dm_env spec: the inverse of ``stepmill.values.spaces.spec_of``."""
    return space_from(map_tree(_space_of_leaf, as_tree(spec)))


def _space_of_leaf(spec: Any) -> spaces.Space[Any]:
    from dm_env import specs

    if isinstance(spec, specs.DiscreteArray):
        return spaces.Discrete(spec.num_values)
    dtype = np.dtype(spec.dtype) if isinstance(spec, specs.Array) else None
    if dtype is None or dtype.kind not in "biuf":
        raise SpaceError(f"dm_env spec: expected arrays of numbers, or dicts and lists of them, got {spec!r}")
    if isinstance(spec, specs.BoundedArray):
        low, high = (np.broadcast_to(bound, spec.shape).astype(dtype) for bound in (spec.minimum, spec.maximum))
    elif np.issubdtype(dtype, np.floating):
        low, high = (np.full(spec.shape, bound, dtype) for bound in (-np.inf, np.inf))
    elif dtype == np.bool_:
        low, high = np.zeros(spec.shape, dtype), np.ones(spec.shape, dtype)
    else:
        limits = np.iinfo(dtype)
        low, high = np.full(spec.shape, limits.min, dtype), np.full(spec.shape, limits.max, dtype)
    return spaces.Box(low, high, spec.shape, dtype.type)
