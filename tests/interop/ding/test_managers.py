"""Managers with dicts: DI-engine's own are the measure of what comes out."""

import gym
import gymnasium
import numpy as np
import pytest
import torch
from ding.envs import BaseEnvManager, DingEnvWrapper, create_env_manager
from ding.torch_utils import to_tensor
from ding_envs import Count, LateSpaces, Nested, assert_same
from easydict import EasyDict

from stepmill.errors import EnvError

OURS = ["stepmill_base", "stepmill_subprocess", "stepmill_async_subprocess"]


def launched(name, env_fn, seed=0, dynamic_seed=False, **cfg):
    manager = create_env_manager(EasyDict(type=name, **cfg), env_fn)
    manager.seed(seed, dynamic_seed=dynamic_seed)
    manager.launch()
    return manager


def play(manager, steps, width=1):
    """So many steps of every env, and all that was seen: what was ready, and the timestep, by env id."""
    seen = {i: [] for i in range(manager.env_num)}
    while any(len(rows) < steps for rows in seen.values()):
        ready = {i: obs for i, obs in manager.ready_obs.items() if len(seen[i]) < steps}
        action = {i: np.full(width, (i + len(seen[i])) % 2, np.int64) for i in ready}
        for i, timestep in manager.step(action).items():
            seen[i].append((ready.get(i), timestep))
    return seen


@pytest.mark.parametrize("name", ["stepmill_base", "stepmill_subprocess"])
@pytest.mark.parametrize(("env", "width"), [(Count, 1), (Nested, 2)])
def test_what_comes_out_is_what_comes_out_of_dings_own(name, env, width):
    with launched(name, [lambda: env({"info": {"bonus": 2.5}})] * 3) as ours:
        found = play(ours, 12, width)
    defaults = BaseEnvManager.default_config()
    theirs = launched("base", [lambda: env({"info": {"bonus": 2.5}})] * 3, dynamic_seed=None, **defaults)
    expected = play(theirs, 12, width)
    theirs.close()
    for i in found:
        for (obs, ours_), (its_obs, its) in zip(found[i], expected[i], strict=True):
            assert_same(obs, its_obs)
            assert ours_._fields == its._fields
            assert_same(ours_.obs, its.obs)
            assert_same(ours_.reward, its.reward)
            assert ours_.done is its.done
            info = {key: ours_.info[key] for key in its.info}
            assert_same(info, its.info)


@pytest.mark.parametrize("name", OURS)
def test_the_last_observation_is_the_real_one(name):
    with launched(name, [lambda: Count({"length": 2})]) as manager:
        (_, first), (_, last), (next_obs, _) = play(manager, 3)[0]
    assert not first.done
    assert last.done
    assert last.obs.tolist()[1:3] == [1, 2]
    assert last.info["eval_episode_return"] == 1.0
    assert next_obs.tolist()[1:3] == [2, 0]


@pytest.mark.parametrize("name", OURS)
def test_timesteps_become_tensors(name):
    info = {"text": "a", "none": None, "number": 3}
    with launched(name, [lambda: Count({"length": 1, "info": info})]) as manager:
        timesteps = to_tensor(manager.step({0: np.array([1])}), dtype=torch.float32)
    assert timesteps[0].reward.tolist() == [1.0]
    assert timesteps[0].done is True
    assert timesteps[0].info["text"] == "a"


@pytest.mark.parametrize("name", OURS)
def test_an_env_of_gymnasium_tells_its_return(name):
    with launched(name, [lambda: gymnasium.make("CartPole-v1")]) as manager:
        timestep = manager.step({0: np.array([1])})[0]
        while not timestep.done:
            timestep = manager.step({0: np.array([1])})[0]
    assert timestep.info["eval_episode_return"] >= 8.0


@pytest.mark.parametrize("name", OURS)
def test_spaces_that_only_a_reset_tells(name):
    with launched(name, [LateSpaces] * 2) as manager:
        assert manager.observation_space == gymnasium.spaces.Box(-np.inf, np.inf, (4,), np.float32)
        assert play(manager, 2)[0][0][1].obs.tolist()[2] == 1.0


@pytest.mark.parametrize("name", OURS)
def test_static_seeds_give_the_same_episodes_at_every_reset(name):
    with launched(name, [Count] * 3, seed=5) as manager:
        assert [obs[0] for obs in manager.ready_obs.values()] == [5, 6, 7]
        manager.reset()
        assert [obs[0] for obs in manager.ready_obs.values()] == [5, 6, 7]
        manager.seed([11, 22, 33])
        manager.reset()
        assert [obs[0] for obs in manager.ready_obs.values()] == [11, 22, 33]


@pytest.mark.parametrize("env", [Count, Nested])
def test_the_random_policy_knows_the_action_space(env):
    def samples():
        with launched("stepmill_base", [env], seed=3) as manager:
            space = manager.action_space
            assert space is manager.action_space
            assert isinstance(space, gym.spaces.Discrete | gym.spaces.MultiDiscrete)
            return [np.asarray(space.sample()).tolist() for _ in range(20)]

    assert samples() == samples()
    assert len(np.unique(samples())) > 1


def test_a_seed_after_the_space_was_asked_for_seeds_it_too():
    with launched("stepmill_base", [Count], seed=3) as manager:
        first = [manager.action_space.sample() for _ in range(20)]
        manager.seed(3)
        assert [manager.action_space.sample() for _ in range(20)] == first


@pytest.mark.parametrize("name", OURS)
def test_an_abnormal_env_goes_on(name):
    with launched(name, [lambda: Count({"abnormal_at": 1}), Count]) as manager:
        actions = {i: np.array([2]) for i in manager.ready_obs}
        timesteps = manager.step(actions)
        while 0 not in timesteps:
            timesteps |= manager.step({})
        assert timesteps[0].info["abnormal"]
        assert timesteps[0].reward.tolist() == [0.0]
        assert timesteps[0].obs.tolist() == [0, 1, 0, -1]  # the last good one
        manager.reset({0: None})  # as collectors do; evaluators do not
        assert manager.ready_obs[0][2] == 0
        assert manager.episode_count[0] == 0
        manager.step({0: np.array([1])})


@pytest.mark.parametrize("name", OURS)
def test_an_abnormal_env_goes_on_without_being_asked(name):
    with launched(name, [lambda: Count({"abnormal_at": 1, "length": 2})]) as manager:
        seen = [timestep for _, timestep in play(manager, 3)[0]]
    assert [one.done for one in seen[1:]] == [False, True]


@pytest.mark.parametrize("name", OURS)
def test_a_failing_env_says_why(name):
    with launched(name, [lambda: Count({"fails_at": 1})]) as manager:
        with pytest.raises(EnvError, match="the wheel came off"):
            manager.step({0: np.array([0])})
        manager.reset({0: None})
        assert manager.step({0: np.array([0])})[0].obs[1] == 2  # the second episode


@pytest.mark.parametrize("name", OURS)
def test_random_actions_and_whether_an_env_is_done(name):
    with launched(name, [lambda: Count({"length": 1}), Count], episode_num=1) as manager:
        actions = manager.random_action()
        assert sorted(actions) == [0, 1]
        timesteps = manager.step(actions)
        while 0 not in timesteps:
            timesteps |= manager.step({})
        assert manager.env_state_done(0)
        assert not manager.env_state_done(1)


@pytest.mark.parametrize("name", OURS)
@pytest.mark.parametrize("env_wrapper", ["default", "mujoco_default"])
def test_dings_own_wrapper_of_envs(name, env_wrapper):
    """By an id it knows its spaces after a reset only, and it cannot be reset once it was closed."""
    by_id = EasyDict(env_id="Pendulum-v1", env_wrapper=env_wrapper)
    by_env = EasyDict(env_wrapper=env_wrapper)
    fns = [lambda: DingEnvWrapper(cfg=by_id), lambda: DingEnvWrapper(gym.make("Pendulum-v1"), cfg=by_env)]
    for fn in fns:
        with launched(name, [fn]) as manager:
            assert manager.ready_obs[0].shape == (3,)
            timestep = manager.step({0: np.array([0.5], np.float32)})[0]
            assert timestep.obs.dtype == np.float32
            assert timestep.reward.shape == (1,)


@pytest.mark.parametrize("name", OURS)
def test_envs_are_called_by_name(name):
    with launched(name, [Count] * 2) as manager:
        assert manager.reward_shaping(1, [1, 2]) == [10, 20]


def test_the_parallel_collectors_find_the_episode_count():
    with launched("stepmill_base", [Count], episode_num=4) as manager:
        assert manager._episode_num == 4
