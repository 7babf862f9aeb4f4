"""dm_env's envs as gymnasium envs, and in pools."""

from __future__ import annotations

from typing import Any

import dm_env
import numpy as np
import pytest
from dm_env import specs
from gymnasium import spaces

import stepmill
from stepmill.envs import (
    DmAsGymnasium,
    as_base_env,
    as_gymnasium,
)
from stepmill.envs.adapters.dm_adapter import space_of_spec
from stepmill.errors import (
    EnvError,
    SpaceError,
    UsageError,
)
from support.envs.adapted import ZEROS
from support.envs.contract import DmWalk

BACKENDS = ["inline", "process"]


@pytest.mark.parametrize(("discount", "ends"), [(0.0, (True, False)), (1.0, (False, True)), (0.5, (False, True))])
def test_the_discount_of_the_last_step_tells_which_end_it_is(discount: float, ends: tuple[bool, bool]) -> None:
    env = as_gymnasium(DmWalk(discount))
    assert isinstance(env, DmAsGymnasium)
    obs, _ = env.reset(seed=4)
    assert env.dm_env.seeded == 4
    assert obs["count"] == 0
    obs, reward, terminated, truncated, info = env.step(4)
    assert (reward, terminated, truncated, info) == (4.0, False, False, {"discount": 0.9})
    env.step(1)
    obs, _, *ended, info = env.step(1)
    assert tuple(ended) == ends
    assert info["discount"] == discount
    assert obs["place"].tolist() == [3, 3]
    with pytest.raises(UsageError, match="step after the end"):
        env.step(1)


def test_the_task_of_dm_control_is_seeded() -> None:
    class Task:
        random = np.random.RandomState(0)

    class Controlled(DmWalk):
        seed = None  # type: ignore[assignment]
        task = Task()

        def __getattribute__(self, name: str) -> Any:
            if name == "seed":
                raise AttributeError(name)
            return super().__getattribute__(name)

    env = as_gymnasium(Controlled())
    env.reset(seed=2**32 + 3)
    assert Task.random.random_sample() == np.random.RandomState(3).random_sample()


def test_a_dm_env_as_a_base_env_has_its_types() -> None:
    env = as_base_env(DmWalk(), {"max_episode_steps": 2})
    obs = env.reset()
    assert obs["place"].dtype == np.float32
    assert env.observation_space["place"].dtype == np.float32  # type: ignore[index]
    env.step(np.array(1))
    timestep = env.step(np.array(3))
    assert timestep.done is True
    assert timestep.info["TimeLimit.truncated"] is True
    assert timestep.info["eval_episode_return"] == 4.0


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_dm_env_runs_in_a_pool_and_keeps_its_discount(backend: str) -> None:
    with stepmill.make_dm(DmWalk, num_envs=2, backend=backend, discount=0.5) as pool:
        pool.reset()
        assert pool.step([1, 2]).discount.tolist() == pytest.approx([0.9, 0.9])
        pool.step([1, 2])
        last = pool.step([1, 2])
        assert last.discount.tolist() == [0.5, 0.5]
        assert (last.step_type == 2).all()


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_discount_of_an_end_is_the_envs_own_under_same_step(backend: str) -> None:
    with stepmill.make_dm(DmWalk, num_envs=2, backend=backend, discount=0.5, autoreset="same_step") as pool:
        pool.reset()
        for _ in range(3):
            last = pool.step([1, 2])
        assert last.discount.tolist() == [0.5, 0.5]


def test_reset_options_are_not_for_dm_envs() -> None:
    with pytest.raises(UsageError, match="has no reset options"):
        as_gymnasium(DmWalk()).reset(options={"a": 1})


def test_specs_become_spaces() -> None:
    from stepmill.envs.adapters.dm_adapter import space_of_spec

    assert space_of_spec(specs.Array((2,), np.bool_)) == spaces.Box(0, 1, (2,), np.bool_)
    assert space_of_spec(specs.Array((1,), np.int8)) == spaces.Box(-128, 127, (1,), np.int8)
    assert space_of_spec([specs.DiscreteArray(2)]) == spaces.Tuple([spaces.Discrete(2)])
    with pytest.raises(SpaceError, match="StringArray"):
        space_of_spec(specs.StringArray(()))


# ---- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [object, np.complex64, "U3"])
def test_specs_without_numbers_are_refused(dtype: Any) -> None:
    with pytest.raises(SpaceError, match="expected arrays of numbers"):
        space_of_spec(specs.Array((2,), dtype))


class DmPair(dm_env.Environment):
    """Pays two rewards at once."""

    def reset(self) -> Any:
        return dm_env.restart(ZEROS)

    def step(self, action: Any) -> Any:
        return dm_env.transition(np.ones(2), ZEROS)

    def observation_spec(self) -> Any:
        return specs.Array((2,), np.float32)

    def action_spec(self) -> Any:
        return specs.DiscreteArray(2)


def test_a_dm_env_pays_one_number() -> None:
    env = as_gymnasium(DmPair())
    env.reset()
    with pytest.raises(EnvError, match=r"DmPair.*: step: expected one number as reward, got an array of shape \(2,\)"):
        env.step(0)
    assert env.render_mode is None
