"""``BaseEnv``: what it gives an author, and what it asks."""

from __future__ import annotations

import copy
import itertools
import pickle
from typing import Any

import numpy as np
import pytest
from easydict import EasyDict
from gymnasium import spaces

from stepmill.envs import BaseEnv, BaseEnvInfo, BaseEnvTimestep, DingEnvWrapper, EnvElementInfo
from stepmill.envs.base_env import MOST_SEED_BITS, EpisodeSeeds
from stepmill.envs.configs import read_cfg
from stepmill.envs.env_info import element_info_of
from stepmill.errors import ConfigError, MissingConfigError, UnsupportedError
from support.envs.contract import Pair, Walk


def episode(env: BaseEnv, steps: int = 4) -> list[float]:
    first = env.reset()
    return [float(first[1]), *(float(env.step(np.array(1)).obs[1]) for _ in range(steps))]


# ---- timestep, info ------------------------------------------------------------------------------


def test_a_timestep_is_a_namedtuple_of_four() -> None:
    assert BaseEnvTimestep._fields == ("obs", "reward", "done", "info")
    obs, reward, done, info = BaseEnvTimestep(1, 2, False, {})
    assert (obs, reward, done, info) == (1, 2, False, {})


def test_construction_is_left_to_the_first_reset_and_spaces_are_known_before() -> None:
    env = Walk({})
    assert env.built == 0
    assert env.observation_space.shape == (3,)
    assert env.reward_space == spaces.Box(-np.inf, np.inf, (1,), np.float32)
    env.reset()
    env.reset()
    assert env.built == 1


def test_info_is_derived_from_the_spaces() -> None:
    info = Walk({}).info()
    assert isinstance(info, BaseEnvInfo)
    assert info.agent_num == 1
    assert info.obs_space.shape == (3,)
    assert info.obs_space.value["dtype"] is np.float32
    assert info.act_space == EnvElementInfo((3,), {"min": -1, "max": 2, "dtype": np.int64})
    assert info.rew_space.shape == (1,)
    assert info.use_wrappers is None


def test_discrete_has_shape_n_min_0_and_max_n() -> None:
    info = element_info_of(spaces.Discrete(4))
    assert (info.shape, info.value["min"], info.value["max"]) == ((4,), 0, 4)


def test_nested_spaces_have_one_shape_and_value_per_part() -> None:
    box = spaces.Box(0, 255, (2, 2), np.uint8)
    info = element_info_of(
        spaces.Dict({"a": box, "b": spaces.Tuple([spaces.MultiBinary(3), spaces.MultiDiscrete([2, 5])])})
    )
    assert info.shape == {"a": (2, 2), "b": ((3,), (2,))}
    assert info.value["a"]["max"].max() == 255
    assert info.value["b"][1]["max"].tolist() == [2, 5]


def test_the_info_is_mutable_and_open_to_more_fields() -> None:
    info = Walk({}).info()
    info.obs_space.shape = (128, 1, 1)
    info.use_wrappers = "RamWrapper"
    info.map_size = (8, 8)  # type: ignore[attr-defined]
    assert info.obs_space.shape == (128, 1, 1)


def test_many_agents_are_counted_by_either_name() -> None:
    env = Pair({})
    assert env.num_agents == env.num_agent == env.info().agent_num == 2
    env.num_agent = 3
    assert env.num_agents == 3


def test_an_env_shows_itself() -> None:
    env = Walk({})
    env.env_id = 7
    assert repr(env) == "Walk(env_id=7)"


def test_without_a_renderer_there_is_a_clear_error() -> None:
    with pytest.raises(UnsupportedError, match=r"Walk has no renderer.*render\(\)"):
        Walk({}).render()


def test_an_env_can_be_pickled_in_the_middle_of_an_episode() -> None:
    env = Walk({})
    env.seed(3)
    env.reset()
    twin = pickle.loads(pickle.dumps(env))
    assert [env.step(np.array(0)).obs[1] for _ in range(3)] == [twin.step(np.array(0)).obs[1] for _ in range(3)]
    assert episode(env) == episode(twin)


# ---- seeds ---------------------------------------------------------------------------------------


def test_static_seeds_begin_every_episode_alike() -> None:
    env = Walk({})
    env.seed(5, dynamic_seed=False)
    first = episode(env)
    assert env.last_seed == 5
    assert episode(env) == first
    env.seed(6, dynamic_seed=False)
    assert episode(env) != first


def test_dynamic_seeds_differ_and_the_whole_run_repeats() -> None:
    env = Walk({})
    env.seed(5)
    run = [episode(env) for _ in range(5)]
    assert len({tuple(one) for one in run}) == 5
    env.seed(5, dynamic_seed=True)
    assert [episode(env) for _ in range(5)] == run


def test_without_a_seed_chance_is_real() -> None:
    env = Walk({})
    assert episode(env) != episode(env)
    assert env.last_seed is None


def test_no_two_of_1000_envs_share_an_episode_in_the_first_100() -> None:
    drawn = [seeds.next() for seeds in (EpisodeSeeds(i, bits=MOST_SEED_BITS) for i in range(1000)) for _ in range(100)]
    assert len(set(drawn)) == 100_000
    first = {tuple(np.random.default_rng(seed).normal(size=2)) for seed in drawn[:: 100 // 4]}
    assert len(first) == 4000


def test_the_global_generators_are_left_alone() -> None:
    np.random.seed(1)
    expected = np.random.random()
    np.random.seed(1)
    env = Walk({})
    env.seed(3)
    episode(env)
    env.random_action()
    assert np.random.random() == expected


@pytest.mark.parametrize("seed", [-1, 2**63, 1.5, "3", None, True])
def test_an_invalid_seed_is_an_error(seed: Any) -> None:
    with pytest.raises(ConfigError, match=r"seed: expected a whole number"):
        Walk({}).seed(seed)


def test_dynamic_seed_is_true_or_false() -> None:
    with pytest.raises(ConfigError, match=r"dynamic_seed: expected True or False, got 1"):
        Walk({}).seed(1, 1)  # type: ignore[arg-type]


# ---- random actions ------------------------------------------------------------------------------


def test_random_actions_are_arrays_of_the_space_from_the_envs_own_generator() -> None:
    one, two = Walk({}), Walk({})
    one.seed(1)
    two.seed(2)
    drawn = [one.random_action() for _ in range(50)]
    assert all(isinstance(a, np.ndarray) and a.dtype == np.int64 and one.action_space.contains(a) for a in drawn)
    assert {int(a) for a in drawn} == {-1, 0, 1}
    assert drawn != [two.random_action() for _ in range(50)]
    one.seed(1)
    assert [one.random_action() for _ in range(50)] == drawn


# ---- configurations ------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [dict, EasyDict])
def test_cfgs_are_independent_copies_of_the_same_type(kind: Any) -> None:
    cfg = kind(collector_env_num=3, evaluator_env_num=2, nested={"a": [1]}, is_train=None)
    before = copy.deepcopy(cfg)
    train, test = Walk.create_collector_env_cfg(cfg), Walk.create_evaluator_env_cfg(cfg)
    assert cfg == before
    assert (len(train), len(test)) == (3, 2)
    assert all(type(one) is kind and one["is_train"] is True and "collector_env_num" not in one for one in train)
    assert all(one["is_train"] is False and "evaluator_env_num" not in one for one in test)
    train[0]["nested"]["a"].append(2)
    assert all(one["nested"]["a"] == [1] for one in [cfg, *train[1:], *test])


def test_one_env_where_no_number_is_given() -> None:
    assert len(Walk.create_collector_env_cfg({})) == len(Walk.create_evaluator_env_cfg({})) == 1


@pytest.mark.parametrize(("cfg", "says"), [({"collector_env_num": 0}, ">= 1, got 0"), ([1], "expected a dict")])
def test_an_invalid_cfg_is_an_error(cfg: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        Walk.create_collector_env_cfg(cfg)


def test_a_cfg_whose_attributes_are_a_key_error_cannot_be_copied() -> None:
    class Careless(dict[str, Any]):
        __getattr__ = dict.__getitem__

    for cfg in (Careless(), {"nested": Careless()}):
        with pytest.raises(
            ConfigError, match=r"the attribute '__deepcopy__' is a KeyError: .* must raise AttributeError"
        ):
            Walk.create_collector_env_cfg(cfg)


def test_a_missing_key_is_named_with_those_that_are_there() -> None:
    with pytest.raises(MissingConfigError, match=r"MyEnv: expected a cfg with the keys map, goal, got one with size"):
        read_cfg("MyEnv", {"size": 3}, ("size", "map", "goal"))
    with pytest.raises(KeyError, match=r"DingEnvWrapper: expected a cfg with the key env_id, got one with nothing"):
        DingEnvWrapper(cfg={})
    assert read_cfg("MyEnv", {"size": 3, "other": 1}, ("size",), {"size": 1, "goal": 2}) == {
        "size": 3,
        "goal": 2,
        "other": 1,
    }


def test_seeds_of_neighbours_do_not_meet() -> None:
    """Env i of a pool has seed + i: the runs of two such envs must not be one another's, shifted."""
    runs = [[seeds.next() for _ in range(20)] for seeds in map(EpisodeSeeds, range(10))]
    assert len(set(itertools.chain(*runs))) == 200
