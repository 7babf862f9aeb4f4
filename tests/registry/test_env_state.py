"""What belongs to the state of a Python env: the memory of its layers."""

from __future__ import annotations

import pickle
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces, wrappers

from stepmill.registry.env_state import get_state, set_state
from support.envs.scripted import ChanceEnv

BOX = spaces.Box(-1, 1, (2, 3), np.float32)


@pytest.mark.parametrize("wrapper", [wrappers.NormalizeObservation, wrappers.NormalizeReward])
def test_whether_a_normalisation_learns_is_a_part_of_the_state(wrapper: Any) -> None:
    env, other = wrapper(ChanceEnv(BOX)), wrapper(ChanceEnv(BOX))
    for one in (env, other):
        one.reset(seed=3)
    env.update_running_mean = False
    set_state(other, pickle.loads(pickle.dumps(get_state(env))))
    assert other.update_running_mean is False


class _Drawing(gymnasium.Env[Any, Any]):
    """Draws from its generator by two names, and tells one of them."""

    observation_space, action_space = BOX, spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.rng = self.np_random
        return self.draw(), {}

    def draw(self) -> list[float]:
        return [self.rng.random(), self.np_random.random(), self.rng.random()]

    def get_state(self) -> Any:
        return self.rng

    def set_state(self, state: Any) -> None:
        self.rng = state


class _Around(gymnasium.Wrapper[Any, Any, Any, Any]):
    def reset(self, **kwargs: Any) -> Any:
        result = super().reset(**kwargs)
        self.rng = self.np_random
        return result

    def draw(self) -> list[float]:
        return [self.rng.random(), *self.unwrapped.draw()]  # type: ignore[attr-defined]

    def get_state(self) -> Any:
        return self.rng

    def set_state(self, state: Any) -> None:
        self.rng = state


@pytest.mark.parametrize("make", [_Drawing, lambda: _Around(_Drawing())])
def test_a_generator_with_two_names_stays_one(make: Any) -> None:
    env, other = make(), make()
    for seed, one in enumerate((env, other)):
        one.reset(seed=seed)
    set_state(other, pickle.loads(pickle.dumps(get_state(env))))
    assert [other.draw() for _ in range(3)] == [env.draw() for _ in range(3)]


class _Late(_Drawing):
    """Makes its generator when it first draws."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self._np_random = None
        return [], {}

    def draw(self) -> list[float]:
        if self._np_random is None:
            self._np_random = np.random.default_rng(5)
        return [self.np_random.random()]

    def get_state(self) -> Any:
        return None

    def set_state(self, state: Any) -> None:
        pass


def test_a_generator_that_there_was_not_yet_is_none_again() -> None:
    env = _Late()
    env.reset()
    state = get_state(env)
    first = env.draw()
    set_state(env, state)
    assert env.draw() == first
