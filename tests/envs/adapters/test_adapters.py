"""From any kind of env to any other, and each of them in a pool."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pettingzoo
import pytest
from gymnasium import spaces

import stepmill
from stepmill.envs import (
    BaseEnv,
    ParallelAsBaseEnv,
    as_base_env,
    as_gymnasium,
)
from stepmill.errors import (
    ConfigError,
    EnvError,
)
from support.envs.adapted import PAIR, Duck, Two
from support.envs.contract import Walk

BACKENDS = ["inline", "process"]


# ---- in pools ------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", BACKENDS)
def test_base_envs_run_in_a_pool_with_ids_seeds_and_cfgs(backend: str) -> None:
    with stepmill.make(
        Walk, num_envs=3, backend=backend, seed=7, env_config=[{"cfg": {"length": n}} for n in (1, 2, 3)]
    ) as pool:
        obs, _ = pool.reset()
        assert obs[:, 0].tolist() == [0, 1, 2]
        for i in range(3):
            alone = Walk({})
            alone.seed(7 + i)
            assert np.array_equal(obs[i, 1:], alone.reset()[1:])
        obs, reward, terminated, _, info = pool.step([1, 1, 1])
        assert terminated.tolist() == [True, False, False]
        assert np.allclose(reward, obs[:, 1])
        assert info["eval_episode_return"][0] == pytest.approx(info["episode_return"][0])
        assert info["_eval_episode_return"].tolist() == [True, False, False]
        assert pool.get_attr("last_seed") != [7, 8, 9]  # drawn from a generator that these seed
        pool.reset(seed=7, options={"level": 1})
        assert pool.get_attr("reset_kwargs") == ({"level": 1},) * 3


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_an_env_calls_abnormal_is_abnormal_in_the_batch(backend: str) -> None:
    cfgs = [{"cfg": {"abnormal_at": 2}}, {"cfg": {}}]
    with stepmill.make(Walk, num_envs=2, backend=backend, env_config=cfgs) as pool:
        pool.reset()
        assert "abnormal" not in pool.step([0, 0])[4]
        assert pool.step([0, 0])[4]["abnormal"].tolist() == [True, False]
        assert "abnormal" not in pool.step([0, 0])[4]


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_exception_of_a_base_env_is_the_cause(backend: str) -> None:
    with stepmill.make(Walk, cfg={"fail_at": 1}, backend=backend) as pool:
        pool.reset()
        with pytest.raises(EnvError, match="the walker fell") as caught:
            pool.step([0])
        assert isinstance(caught.value.__cause__, RuntimeError)


def test_evaluators_begin_every_episode_alike_in_a_pool() -> None:
    with stepmill.make(Walk, num_envs=2, backend="inline", cfg={"length": 1}) as pool:
        pool.set_attr("dynamic_seed", False)
        first, _ = pool.reset()
        pool.step([0, 0])
        again = pool.step([0, 0])[0]
        assert np.array_equal(first, again)


@pytest.mark.parametrize("view", ["gymnasium", "gym", "dm"])
def test_every_view_shows_base_envs(view: Any) -> None:
    with stepmill.make(Walk, view, num_envs=2, backend="inline", cfg={"length": 1, "cut_off": True}) as pool:
        pool.reset()
        result = pool.step(np.zeros(2, np.int64))
        if view == "gymnasium":
            assert result[3].all()
        elif view == "gym":
            assert result[3]["TimeLimit.truncated"].all()
        else:
            assert result.last().all() if hasattr(result.last(), "all") else (result.step_type == 2).all()
            assert (result.discount == 1).all()


def test_something_else_is_an_error_that_lists_what_pools_take() -> None:
    with pytest.raises(
        ConfigError, match=r"a BaseEnv, a dm_env.Environment, or a ParallelEnv or AECEnv of PettingZoo, got a int"
    ):
        stepmill.make(lambda: 3, backend="inline")


# ---- envs of DI-engine ---------------------------------------------------------------------------


class Foreign:
    """Has the interface of a BaseEnv without being one of ours: one name less, a seed without its second argument."""

    observation_space = spaces.Box(0, 9, (1,), np.float32)
    action_space = spaces.Discrete(2)
    given: tuple[Any, ...] = ()

    def seed(self, seed: int) -> None:
        self.given = (seed,)

    def reset(self) -> Any:
        return np.zeros(1, np.float32)

    def step(self, action: Any) -> Any:
        self.taken = action.shape
        return stepmill.envs.BaseEnvTimestep(np.ones(1, np.float32), np.ones(1, np.float32), False, {})

    def close(self) -> None:
        pass

    @staticmethod
    def create_collector_env_cfg(cfg: Any) -> Any:
        return [cfg]


class ForeignGymnasium(Foreign, gymnasium.Env):  # type: ignore[type-arg,misc]
    """The same, of a framework whose envs are Gymnasium's by inheritance only."""


@pytest.mark.parametrize("kind", [Foreign, ForeignGymnasium])
def test_envs_with_the_interface_of_a_base_env_run_in_pools(kind: Any) -> None:
    with stepmill.make(kind, num_envs=2, backend="inline", seed=5) as pool:
        pool.reset()
        assert pool.step([0, 1])[1].tolist() == [1, 1]
        assert pool.get_attr("given") == ((5,), (6,))
        assert pool.get_attr("taken") == ((1,), (1,))


# ---- what outlives a rebuilt worker --------------------------------------------------------------


def test_static_seeds_can_be_asked_for_by_the_cfg() -> None:
    cfg = {"length": 1, "dynamic_seed": False}
    with stepmill.make(Walk, num_envs=2, backend="inline", cfg=cfg) as pool:
        first, _ = pool.reset()
        pool.step([0, 0])
        assert np.array_equal(first, pool.step([0, 0])[0])


class Announced(Walk):
    """Says by a class attribute how it is seeded."""

    dynamic_seed = False


def test_what_is_set_is_what_is_read() -> None:
    with stepmill.make(Announced, num_envs=2, backend="inline", cfg={"length": 1}) as pool:
        assert pool.get_attr("dynamic_seed") == (False, False)
        pool.set_attr("dynamic_seed", True)
        assert pool.get_attr("dynamic_seed") == (True, True)
        first, _ = pool.reset()
        pool.step([0, 0])
        assert not np.array_equal(first, pool.step([0, 0])[0])


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_abnormal_end_is_flagged_under_same_step(backend: str) -> None:
    cfgs = [{"cfg": {"length": 1, "abnormal_at": 1}}, {"cfg": {"length": 1}}]
    with stepmill.make(Walk, num_envs=2, backend=backend, autoreset="same_step", env_config=cfgs) as pool:
        pool.reset()
        assert pool.step([0, 0])[4]["abnormal"].tolist() == [True, False]


def test_the_parts_of_the_package_are_found_by_their_names() -> None:
    assert stepmill.envs.BaseEnv is BaseEnv
    assert stepmill.wrappers.TimeLimit.__name__ == "TimeLimit"
    assert stepmill.testing.check_env is not None
    assert {"envs", "wrappers", "testing", "managers"} <= set(dir(stepmill))
    with pytest.raises(AttributeError, match="no attribute 'envz'"):
        _ = stepmill.envz


# ---- seeds ---------------------------------------------------------------------------------------


def test_small_seeds_of_other_kinds_of_envs() -> None:
    class ShortsightedTwo(Two):
        def reset(self, seed: int | None = None, options: Any = None) -> Any:
            np.random.RandomState(seed)
            return super().reset()

    team = ParallelAsBaseEnv(ShortsightedTwo())
    team.seed(0)
    for _ in range(5):
        assert team.reset().shape == (2, 3)

    class Small(Walk):
        _seed_bits = 4

    env = Small({})
    env.seed(0)
    seeds = []
    for _ in range(40):
        env.reset()
        seeds.append(env.last_seed)
    assert set(seeds) == set(range(16)) & set(seeds)
    assert len(set(seeds)) > 8


# ---- what is no env ------------------------------------------------------------------------------


class Turns(pettingzoo.AECEnv):
    """One agent after the other."""

    metadata = {"name": "turns"}  # noqa: RUF012
    possible_agents = ["a"]  # noqa: RUF012

    def observation_space(self, agent: str) -> Any:
        return PAIR

    def action_space(self, agent: str) -> Any:
        return spaces.Discrete(2)


@pytest.mark.parametrize("adapt", [as_gymnasium, as_base_env])
@pytest.mark.parametrize("env", [5, "CartPole-v1", None, Duck(), Turns()])
def test_what_cannot_be_adapted_is_refused(adapt: Any, env: Any) -> None:
    with pytest.raises(
        ConfigError, match=rf"{adapt.__name__}: expected a gymnasium.Env, a BaseEnv, .* got a {type(env).__name__}"
    ):
        adapt(env)


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_aec_env_of_turns_is_refused_with_the_reason(backend: str) -> None:
    with pytest.raises(ConfigError, match=r"got a Turns, an AECEnv that is not parallelizable"):
        stepmill.make(Turns, backend=backend)


def test_spaces_that_are_none_are_named() -> None:
    class Shapes(Walk):
        observation_space = (2,)  # type: ignore[assignment]

    with pytest.raises(ConfigError, match=r"observation_space: expected a gymnasium.spaces.Space, got \(2,\)"):
        stepmill.make(Shapes, backend="inline")
