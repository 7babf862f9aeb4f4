"""Restores that an env refuses, or that are interrupted: envs are what they were, or what they should be."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

import stepmill
from stepmill import errors
from support.injection import late_interrupts
from support.probes import assert_same


class Averaging(stepmill.envs.BaseEnv):
    """Shows the mean of all that it has drawn in its life, which a reset does not end. It has no state before one."""

    observation_space = spaces.Box(-9, 9, (2,), np.float64)
    action_space = spaces.Discrete(2)
    refuses = False
    drawn: Any = None

    def reset(self) -> np.ndarray:
        self.generator = np.random.default_rng(self._next_seed())
        self.drawn = [] if self.drawn is None else self.drawn
        return self.draw()

    def draw(self) -> np.ndarray:
        self.drawn.append(self.generator.normal(size=2))
        return np.asarray(np.mean(self.drawn, axis=0))

    def step(self, action: np.ndarray) -> Any:
        return stepmill.envs.BaseEnvTimestep(self.draw(), np.ones(1, np.float32), len(self.drawn) % 7 == 0, {})

    def get_state(self) -> Any:
        return self.generator, [*self.drawn]

    def set_state(self, state: Any) -> None:
        self.generator, self.drawn = state
        if self.refuses:
            raise ValueError("not this one")

    def close(self) -> None:
        pass


@pytest.mark.parametrize("way", [None, "pickle"])
@pytest.mark.parametrize("backend", ["inline", "process"])
def test_an_env_that_was_never_reset_is_as_it_was_built(backend: str, way: str | None) -> None:
    workers = {"num_workers": 2} if backend == "process" else {}
    with (
        stepmill.make(Averaging, num_envs=3, seed=1, backend="inline") as source,
        stepmill.make(Averaging, num_envs=3, seed=5, backend=backend, **workers) as pool,
        stepmill.make(Averaging, num_envs=3, seed=5, backend="inline") as twin,
    ):
        source.reset()
        for _ in range(4):
            source.step(np.zeros(3, int))
        states = [*source.save(by=way)[:2], source.save()[2]]
        pool.set_attr("refuses", True, env_ids=[2])
        with pytest.raises(
            errors.StateError, match=r"restore: env 2: set_state\(\) raised ValueError: not this one"
        ) as caught:
            pool.restore(states)
        assert isinstance(caught.value.__cause__, ValueError)
        assert_same(pool.reset()[0], twin.reset()[0])
        for _ in range(9):
            assert_same(pool.step(np.zeros(3, int))[:4], twin.step(np.zeros(3, int))[:4])


def test_an_interrupt_while_envs_take_their_states_leaves_what_they_show_in_flight() -> None:
    with stepmill.make(Averaging, num_envs=2, seed=1, backend="inline") as pool:
        first, _ = pool.reset()
        states = pool.save()
        second, *_ = pool.step(np.zeros(2, int))
        with late_interrupts(), pytest.raises(KeyboardInterrupt):
            pool.restore(states)
        assert pool.in_flight == [0, 1]
        assert_same(pool.recv()[0], first)
        assert_same(pool.step(np.zeros(2, int))[0], second)
