"""dm_control's suite in pools: equal to ``suite.load(..., task_kwargs={"random": seed})``, bit for bit."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from dm_env import StepType
from gymnasium import spaces

import stepmill
from stepmill.errors import EnvError, UnknownConfigError
from stepmill.zoo.dm_control import TASKS, load
from support.dm_suite import actions, check_equal, oracle, row, suite

NAMES = [f"{domain}-{task}" for domain, tasks in TASKS.items() for task in tasks]
BACKENDS = ["inline", "process"]
SHORT = {"time_limit": 0.05}  # an episode of five steps


def test_our_list_of_tasks_is_that_of_the_suite() -> None:
    assert sorted(NAMES) == sorted(f"{domain}-{task}" for domain, task in suite.ALL_TASKS)
    assert {f"dm_control/{name}-v0" for name in NAMES} <= set(stepmill.list_all_envs())
    assert len(NAMES) == 51


@pytest.mark.all_cases
@pytest.mark.parametrize("name", [name for name in NAMES if name != "quadruped-escape"])  # see test_dm_control_pixels
def test_every_task_plays_the_episodes_of_the_suite(make: Any, name: str) -> None:
    """From the seed of ``make``, and after a reset with another one in the middle of an episode."""
    pool = make(f"dm_control/{name}-v0", seed=7, backend="inline")
    reference = oracle(name, 7)
    for seed, count in ((None, 20), (2**31, 5)):
        obs, _ = pool.reset(seed=seed)
        if seed is not None:
            reference = oracle(name, seed)
        assert obs in pool.observation_space
        check_equal(reference.reset(), row(obs, 0), 0.0, False, False)
        for action in actions(reference, count):
            obs, *rest, info = pool.step(action[None])
            check_equal(reference.step(action), row(obs, 0), *(one[0] for one in rest))
            assert info["discount"].tolist() == [1.0]


# ---- episodes --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "backend"), [("hopper-hop", "inline"), ("reacher-easy", "process"), ("lqr-lqr_2_1", "process")]
)
def test_episodes_follow_each_other_as_in_the_suite(make: Any, name: str, backend: str) -> None:
    """A dm_env resets in the step after LAST, just as ``next_step`` does: both get the same calls."""
    kwargs = {"task_kwargs": {"time_limit": 0.1}}
    pool = make(name, num_envs=2, seed=[3, 11], backend=backend, **kwargs)
    references = [oracle(name, seed, **kwargs) for seed in (3, 11)]
    ends = 0
    for action in actions(references[0], 30):
        obs, *rest, _ = pool.step(np.stack([action, -action]))
        for index, (reference, sent) in enumerate(zip(references, (action, -action), strict=True)):
            timestep = reference.step(sent)
            check_equal(timestep, row(obs, index), *(one[index] for one in rest))
            ends += timestep.last()
    assert ends >= 4


@pytest.mark.parametrize("backend", BACKENDS)
def test_async_pools_play_the_same_episodes(make: Any, backend: str) -> None:
    pool = make("walker-walk", num_envs=3, batch_size=2, seed=5, backend=backend, task_kwargs=SHORT)
    references = [oracle("walker-walk", 5 + i, task_kwargs=SHORT) for i in range(3)]
    sent = actions(references[0], 40)
    steps = [0, 0, 0]
    pool.async_reset()
    for reference in references:
        reference.reset()
    for _ in range(30):
        obs, *rest, info = pool.recv()
        for index, env_id in enumerate(info["env_id"]):
            if steps[env_id]:
                timestep = references[env_id].step(sent[steps[env_id]])
                check_equal(timestep, row(obs, index), *(one[index] for one in rest))
            steps[env_id] += 1
        pool.send(np.stack([sent[steps[env_id]] for env_id in info["env_id"]]), info["env_id"])
    assert min(steps) > 6


@pytest.mark.parametrize("backend", BACKENDS)
def test_same_step_has_the_last_observation_in_the_info(make: Any, backend: str) -> None:
    pool = make("cheetah-run", backend=backend, task_kwargs=SHORT, autoreset="same_step")
    reference = oracle("cheetah-run", 42, task_kwargs=SHORT)
    pool.reset()
    reference.reset()
    for action in actions(reference, 17):
        obs, reward, terminated, truncated, info = pool.step(action[None])
        timestep = reference.step(action)
        seen = row(obs, 0)
        if timestep.last():
            check_equal(reference.reset(), seen, 0.0, False, False)
            seen = info["final_obs"][0]
            assert info["final_info"]["discount"].tolist() == [1.0]
        check_equal(timestep, seen, reward[0], terminated[0], truncated[0])


def test_disabled_autoreset_continues_the_stream_of_random_numbers(make: Any) -> None:
    pool = make("finger-turn_easy", backend="inline", seed=9, autoreset="disabled")
    reference = oracle("finger-turn_easy", 9)
    for _ in range(3):  # in the middle of an episode too
        check_equal(reference.reset(), row(pool.reset()[0], 0), 0.0, False, False)
        for action in actions(reference, 3):
            obs, *rest, _ = pool.step(action[None])
            check_equal(reference.step(action), row(obs, 0), *(one[0] for one in rest))


def test_seeds_that_dm_control_does_not_take_wrap_around(make: Any) -> None:
    pool = make("reacher-easy", backend="inline")
    obs, _ = pool.reset(seed=2**32 + 5)
    check_equal(oracle("reacher-easy", 5).reset(), row(obs, 0), 0.0, False, False)


def test_a_real_end_has_discount_0() -> None:
    """Only lqr has one: where its masses are at rest."""
    env = load("lqr", "lqr_2_1")
    env.reset(seed=1)
    *_, terminated, truncated, info = env.step(np.zeros(1))
    assert (terminated, truncated, info) == (False, False, {"discount": 1.0})
    with env.dm_env.physics.reset_context() as physics:
        physics.data.qpos[:] = 0.0
    *_, terminated, truncated, info = env.step(np.zeros(1))
    assert (terminated, truncated, info) == (True, False, {"discount": 0.0})
    env.close()
    env.close()


# ---- views -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("id", "backend"), [("dm_control/ball_in_cup-catch-v0", "inline"), ("ball_in_cup-catch", "process")]
)
def test_the_dm_view_has_the_timesteps_of_the_suite(id: str, backend: str) -> None:
    kwargs = {"task_kwargs": {"time_limit": 0.1}}
    reference = oracle("ball_in_cup-catch", 42, **kwargs)
    with stepmill.make_dm(id, backend=backend, **kwargs) as pool:
        assert pool.action_spec().replace(name=None) == reference.action_spec().replace(name=None)
        specs = reference.observation_spec()
        assert pool.observation_spec().keys() == specs.keys()
        for action in actions(reference, 14):
            ours, theirs = pool.step(action[None]), reference.step(action)
            assert StepType(int(ours.step_type[0])) == theirs.step_type
            for key, value in theirs.observation.items():
                assert np.array_equal(ours.observation.obs[key][0], value)
            # At FIRST, dm_env has None for both.
            assert ours.reward[0] == np.float32(theirs.reward or 0.0)
            assert ours.discount[0] == (1.0 if theirs.discount is None else theirs.discount)


def test_a_limit_of_the_pool_is_a_truncation_with_discount_1() -> None:
    with stepmill.make_dm("cartpole-balance", backend="inline", max_episode_steps=2) as pool:
        pool.reset()
        pool.step([[0.0]])
        last = pool.step([[0.0]])
    assert (last.step_type.tolist(), last.discount.tolist()) == ([StepType.LAST], [1.0])


def test_make_vec_finds_the_tasks_by_their_short_names() -> None:
    with gymnasium.make_vec("stepmill/cheetah-run", num_envs=2, backend="inline", seed=1) as env:
        obs, _ = env.reset()
        check_equal(oracle("cheetah-run", 2).reset(), row(obs, 1), 0.0, False, False)


# ---- options ---------------------------------------------------------------------------------------


def test_a_flat_observation_is_one_array_in_the_order_of_the_suite(make: Any) -> None:
    pool = make("walker-walk", num_envs=2, seed=1, backend="inline", flat_observation=True)
    assert pool.single_observation_space == spaces.Box(-np.inf, np.inf, (24,), np.float64)
    reference = oracle("walker-walk", 2, environment_kwargs={"flat_observation": True})
    assert np.array_equal(pool.reset()[0][1], reference.reset().observation["observations"])
    action = actions(reference, 1)[0]
    obs, *_ = pool.step(np.stack([action, action]))
    assert np.array_equal(obs[1], reference.step(action).observation["observations"])
    timestep = oracle("walker-walk", 2).reset()
    assert list(timestep.observation) == ["orientations", "height", "velocity"]  # not sorted
    assert np.array_equal(pool.reset(seed=[None, 2])[0][1], np.hstack([*timestep.observation.values()]))


def test_spaces_are_those_of_the_specs(make: Any) -> None:
    pool = make("walker-walk", backend="inline")
    assert pool.single_observation_space["height"] == spaces.Box(-np.inf, np.inf, (), np.float64)
    assert pool.single_action_space == spaces.Box(-1.0, 1.0, (6,), np.float64)
    assert stepmill.make_spec("walker-walk").observation_space == pool.single_observation_space


def test_arguments_go_to_suite_load(make: Any) -> None:
    kwargs = {"task_kwargs": {"time_limit": 0.2}, "environment_kwargs": {"n_sub_steps": 5, "control_timestep": None}}
    pool = make("cheetah-run", backend="inline", visualize_reward=True, **kwargs)
    reference = oracle("cheetah-run", 42, visualize_reward=True, **kwargs)
    pool.reset()
    reference.reset()
    action = actions(reference, 1)[0]
    obs, *rest, _ = pool.step(action[None])
    check_equal(reference.step(action), row(obs, 0), *(one[0] for one in rest))
    env = pool.get_attr("dm_env")[0]
    assert env.task.visualize_reward
    assert env.control_timestep() == reference.control_timestep()


def test_unknown_keys_are_listed() -> None:
    with pytest.raises(UnknownConfigError, match=r"'from_pixel', did you mean 'from_pixels'\?.*flat_observation"):
        stepmill.make("cheetah-run", from_pixel=True)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"task_kwargs": {"random": 3}}, "use seed="),
        ({"task_kwargs": 3}, "task_kwargs: expected a dict, got 3"),
        ({"task_kwargs": {"speed": 3}}, "unexpected keyword argument 'speed'"),
        ({"environment_kwargs": [1]}, "environment_kwargs: expected a dict"),
        ({"flat_observation": 1}, "flat_observation: expected True or False, got 1"),
        ({"height": 0}, "height: expected a whole number >= 1, got 0"),
        ({"render_mode": "human"}, "render_mode: expected one of 'rgb_array', got 'human'"),
    ],
    ids=["random", "no dict", "unknown", "a list", "no bool", "no pixels", "a window"],
)
def test_invalid_options(config: dict[str, Any], message: str) -> None:
    with pytest.raises(EnvError, match=message):
        stepmill.make("cheetah-run", backend="inline", **config)
