"""The dm view: specs, step types, rewards and discounts."""

from __future__ import annotations

from typing import Any

import dm_env
import numpy as np
import pytest
from dm_env import StepType, specs

from support.envs import DiscountEnv
from support.probes import zeros


def probe_actions(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def test_dm_view_has_specs_of_a_single_env(make: Any) -> None:
    pool = make("CartPole-v1", "dm", num_envs=3)
    space = pool.spec.observation_space
    expected = specs.BoundedArray((4,), np.float32, space.low, space.high, "observation")
    assert pool.observation_spec() == expected
    assert pool.action_spec() == specs.DiscreteArray(2, np.int64, "action")
    assert pool.reward_spec() == specs.Array((), np.float32, "reward")
    assert pool.discount_spec() == specs.BoundedArray((), np.float32, 0.0, 1.0, "discount")
    pool.observation_spec().validate(pool.reset().observation.obs[0])


def test_dm_view_resets_to_first_with_reward_0_and_discount_1(make: Any) -> None:
    pool = make("CartPole-v1", "dm", num_envs=3)
    step = pool.reset()
    assert isinstance(step, dm_env.TimeStep)
    assert step.step_type.tolist() == [StepType.FIRST] * 3
    assert (step.reward.tolist(), step.reward.dtype) == ([0.0] * 3, np.float32)
    assert (step.discount.tolist(), step.discount.dtype) == ([1.0] * 3, np.float32)
    assert step.observation.obs.shape == (3, 4)
    assert step.observation.env_id.tolist() == [0, 1, 2]
    assert step.observation.players.env_id.tolist() == [0, 1, 2]
    assert pool.reset([2, 0]).observation.env_id.tolist() == [2, 0]


def sequence(pool: Any, calls: int) -> list[tuple[StepType, float, float]]:
    steps = (pool.step(probe_actions(0.5)) for _ in range(calls))
    return [(StepType(int(s.step_type[0])), float(s.reward[0]), float(s.discount[0])) for s in steps]


FIRST, MID, LAST = StepType.FIRST, StepType.MID, StepType.LAST


@pytest.mark.parametrize(
    ("length", "limit", "discount"),
    [(2, 9, 0.0), (9, 2, 1.0), (2, 2, 0.0)],
    ids=["a real end", "a time limit", "a real end on the limit step"],
)
def test_dm_view_runs_first_mid_last_first(make: Any, length: int, limit: int, discount: float) -> None:
    pool = make("Probe-v0", "dm", length=length, max_episode_steps=limit)
    assert sequence(pool, 5) == [
        (FIRST, 0.0, 1.0),
        (MID, 0.5, 1.0),
        (LAST, 0.5, discount),
        (FIRST, 0.0, 1.0),
        (MID, 0.5, 1.0),
    ]


def test_dm_view_in_same_step_mode_has_no_first_between_episodes(make: Any) -> None:
    pool = make("Probe-v0", "dm", length=2, autoreset="same_step")
    pool.reset()
    kinds = [kind for kind, _, _ in sequence(pool, 4)]
    assert kinds == [MID, LAST, MID, LAST]


def test_dm_view_after_a_masked_reset_tells_which_envs_began_anew(make: Any) -> None:
    pool = make("Probe-v0", "dm", num_envs=3)
    pool.reset()
    pool.step(probe_actions(0, 0), env_id=[0, 1])
    timestep = pool.reset(options={"reset_mask": np.array([True, False, False])})
    assert timestep.step_type.tolist() == [FIRST, MID, FIRST]
    assert timestep.step_type.dtype == np.int32


def test_dm_view_takes_the_discount_of_an_env_that_has_one(make: Any) -> None:
    """The env tells one in its steps, not in its resets: those are 1, also beside an env that steps."""
    pool = make(DiscountEnv, "dm", num_envs=2, discount=0.75, env_config=[{"length": 1}, {"length": 2}])
    pool.reset()
    steps = [pool.step(probe_actions(0, 0)) for _ in range(3)]
    assert [step.step_type.tolist() for step in steps] == [[LAST, MID], [FIRST, LAST], [LAST, FIRST]]
    assert [step.discount.tolist() for step in steps] == [[0.75, 0.75], [1.0, 0.75], [0.75, 1.0]]
    assert steps[0].discount.dtype == np.float32


def test_dm_view_results_of_send_and_recv(make: Any) -> None:
    pool = make("CartPole-v1", "dm", num_envs=4, batch_size=2)
    pool.async_reset()
    first, second = pool.recv(), pool.recv()
    assert sorted([*first.observation.env_id, *second.observation.env_id]) == [0, 1, 2, 3]
    pool.send(zeros(2), first.observation.env_id)
    step = pool.recv()
    assert isinstance(step, dm_env.TimeStep)
    assert step.reward.dtype == np.float32
    assert step.observation.elapsed_step.tolist() == [1, 1]


def test_nested_spaces_become_nested_specs(make: Any) -> None:
    pool = make("Blackjack-v1", "dm")
    assert [one.num_values for one in pool.observation_spec()] == [32, 11, 2]
    obs = pool.reset().observation.obs
    assert [leaf.shape for leaf in obs] == [(1,)] * 3
