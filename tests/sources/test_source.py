"""What ``make`` takes for an env: ids, classes, functions, lists of them, with their configuration."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import SyncVectorEnv

import stepmill
from stepmill.errors import (
    ConfigError,
    UnknownConfigError,
)
from support.envs import CountingEnv
from support.probes import zeros


def test_an_id_of_gymnasium(make: Any) -> None:
    pool = make("gymnasium:CartPole-v1", num_envs=2, max_episode_steps=3)
    oracle = SyncVectorEnv([lambda: gymnasium.make("CartPole-v1", max_episode_steps=3)] * 2)
    assert np.array_equal(pool.reset()[0], oracle.reset(seed=42)[0])
    for _ in range(20):
        got, expected = pool.step([1, 0]), oracle.step([1, 0])
        for mine, theirs in zip(got[:4], expected[:4], strict=True):
            assert np.array_equal(mine, theirs)
    assert pool.get_attr("spec")[0].id == "CartPole-v1"
    oracle.close()


def test_an_id_of_gymnasium_that_has_no_native_twin(make: Any) -> None:
    gymnasium.register("Counting-v7", CountingEnv, max_episode_steps=2)
    try:
        pool = make("Counting-v7", start=4)
        assert pool.reset()[0].tolist() == [[4.0]]
        assert [pool.step(zeros(1))[3].item() for _ in range(3)] == [False, True, False]
        assert pool.spec.max_episode_steps == 2
        with pytest.raises(UnknownConfigError, match="did you mean 'start'"):
            stepmill.make("Counting-v7", strat=4)
    finally:
        del gymnasium.registry["Counting-v7"]


def test_a_class_a_function_and_a_lambda(make: Any) -> None:
    def build() -> CountingEnv:
        return CountingEnv(start=2)

    assert make(CountingEnv, num_envs=2).reset()[0].tolist() == [[0.0], [0.0]]
    assert make(build, num_envs=2).reset()[0].tolist() == [[2.0], [2.0]]
    assert make(lambda: CountingEnv(start=3)).reset()[0].tolist() == [[3.0]]


def test_a_list_of_factories_has_one_per_env(make: Any) -> None:
    pool = make([CountingEnv, lambda: CountingEnv(5), lambda start=7: CountingEnv(start)])
    assert pool.num_envs == 3
    assert pool.reset()[0].tolist() == [[0.0], [5.0], [7.0]]


def test_a_list_of_several_kinds_runs_python_envs(make: Any) -> None:
    make(["CartPole-v1", lambda: gymnasium.make("CartPole-v1")]).reset()


class AtRest(gymnasium.Env[Any, Any]):
    """An env with the spaces of a chain of five links."""

    observation_space, action_space = gymnasium.spaces.Discrete(5), gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return 0, {}

    def step(self, action: Any) -> Any:
        return 0, 0.0, False, False, {}


@pytest.mark.parametrize("backend", ["inline", "process"])
def test_a_list_of_several_kinds_may_have_native_ones(make: Any, backend: str) -> None:
    pool = make(["NChain-v0", AtRest, "NChain-v0"], backend=backend)
    twin = make("NChain-v0", num_envs=3)
    assert pool.reset()[0][::2].tolist() == twin.reset()[0][::2].tolist()
    for action in (0, 1, 1, 0) * 10:
        got, want = pool.step(np.full(3, action)), twin.step(np.full(3, action))
        assert [one[::2].tolist() for one in got[:4]] == [one[::2].tolist() for one in want[:4]]


def test_a_factory_that_asks_for_its_ids_is_given_them(make: Any) -> None:
    def build(env_id: int, worker_id: int, offset: int = 0) -> CountingEnv:
        return CountingEnv(10 * env_id + worker_id + offset)

    assert make(build, num_envs=3, offset=1).reset()[0].ravel().tolist() == [1.0, 11.0, 21.0]


def test_env_config_configures_envs_one_by_one(make: Any) -> None:
    pool = make(CountingEnv, num_envs=3, start=1, env_config=[{"start": 8}, {}, {"render_mode": "rgb_array"}])
    assert pool.reset()[0].ravel().tolist() == [8.0, 1.0, 1.0]
    assert pool.get_attr("render_mode") == (None, None, "rgb_array")


def test_an_unknown_key_names_the_nearest_and_all_others() -> None:
    with pytest.raises(UnknownConfigError, match=r"no config key 'strat', did you mean 'start'\? .*start, render_mode"):
        stepmill.make(CountingEnv, strat=1)
    with pytest.raises(KeyError, match="Known keys: none"):
        stepmill.make(lambda: CountingEnv(), start=1)
    with pytest.raises(UnknownConfigError, match="sutton_barto_reward") as caught:
        stepmill.make("gymnasium:CartPole-v1", sutton_barto=True)
    assert str(caught.value).count("render_mode") == 1


def test_a_factory_of_any_keys_gets_them_all(make: Any) -> None:
    def build(**config: Any) -> CountingEnv:
        return CountingEnv(sum(config.values()))

    assert make(build, one=1, two=2).reset()[0].tolist() == [[3.0]]


def test_envs_of_one_pool_share_their_spaces() -> None:
    built = []

    def build(env_id: int) -> CountingEnv:
        built.append(CountingEnv())
        built[-1].action_space = spaces.Discrete(2 + env_id)
        return built[-1]

    with pytest.raises(
        ConfigError, match=r"env 1: expected the action_space of env 0, Discrete\(2\), got Discrete\(3\)"
    ):
        stepmill.make(build, num_envs=3, backend="inline")
    assert [env.closed for env in built] == [True, True], "those that were built are closed again"
