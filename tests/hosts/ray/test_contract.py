"""What every pool promises, on Ray: views, seeds, bad input, managers and drop-ins. ``make test-ray`` has all of it."""

from __future__ import annotations

import functools
from typing import Any

import gymnasium
import numpy as np
import pytest

import stepmill
from stepmill import errors
from stepmill.managers import BaseEnvManager, RayEnvManager, SubprocessEnvManager, create_env_manager
from support.envs.managed import Trial, play
from support.envs.remote import Teller
from support.on_ray import make_on_ray
from support.probes import assert_same

pytestmark = [
    pytest.mark.usefixtures("cluster", "server", "deadline"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::ResourceWarning"),
]
TWO_SMALL_ACTORS = stepmill.Ray(num_actors=2, resources={"CPU": 1})


@pytest.mark.parametrize("view", ["gymnasium", "gym", "dm"])
@pytest.mark.parametrize("task", ["CartPole-v1", Teller])
def test_views(view: str, task: Any) -> None:
    arguments = {"env_type": view, "num_envs": 4, "seed": 3, "start_timeout": 500}
    with make_on_ray(task, 2, **arguments) as pool, stepmill.make(task, **arguments) as plain:
        assert_same(pool.reset(), plain.reset())
        for step in range(12):
            action = (np.arange(4) + step) % 2
            assert_same(pool.step(action), plain.step(action))
        own = ("num_threads", "num_workers")  # of each actor
        assert pool.spec.config == {**plain.spec.config, **{key: pool.spec.config[key] for key in own}}


@pytest.mark.parametrize("seed", [7, [5, 1, 5, 2**62]])
def test_seeds(seed: Any) -> None:
    for task in ("CartPole-v1", Teller):
        with make_on_ray(task, 3, num_envs=4, seed=seed) as pool, stepmill.make(task, num_envs=4, seed=seed) as plain:
            assert_same(pool.reset(), plain.reset())
            assert pool.np_random_seed == plain.np_random_seed
            drawn = [[one.random() for one in each.np_random] for each in (pool, plain)]
            assert drawn[0] == drawn[1]
            assert_same(pool.reset(seed=11), plain.reset(seed=11))
            assert_same(pool.reset(env_id=[3, 0], seed=[1, 2]), plain.reset(env_id=[3, 0], seed=[1, 2]))


@pytest.mark.parametrize(
    ("action", "env_id", "kind"),
    [
        (np.zeros(3, int), None, errors.ActionError),
        (np.full(4, 2.5), None, errors.ActionError),
        (np.full(4, 7), None, errors.ActionError),
        (np.zeros(1, int), [4], errors.EnvIdError),
        (np.zeros(2, int), [1, 1], errors.EnvIdError),
    ],
)
def test_bad_input_changes_nothing(action: Any, env_id: Any, kind: type[Exception]) -> None:
    with make_on_ray("CartPole-v1", 2, num_envs=4) as pool, stepmill.make("CartPole-v1", num_envs=4) as plain:
        pool.reset()
        plain.reset()
        said = []
        for one in (pool, plain):
            with pytest.raises(kind) as caught:
                one.step(action, env_id)
            said.append(str(caught.value))
        assert said[0] == said[1]
        assert_same(pool.step(np.ones(4, int)), plain.step(np.ones(4, int)))


def test_options_of_resets_and_models_of_envs() -> None:
    with make_on_ray(Teller, 2, num_envs=3) as pool, stepmill.make(Teller, num_envs=3) as plain:
        options = [{"a": 1}, None, {"b": [2]}]
        assert_same(pool.reset(options=options), plain.reset(options=options))


def test_stats_are_of_all_actors() -> None:
    with make_on_ray("CartPole-v1", 2, num_envs=4) as pool:
        pool.reset()
        for _ in range(5):
            pool.step(np.zeros(4, int))
        stats = pool.stats()
        assert stats["backend"] == "ray"
        assert stats["steps"] == sum(one["steps"] for one in stats["actors"]) == 24
        assert [one["backend"] for one in stats["actors"]] == ["thread", "thread"]


# ---- managers ------------------------------------------------------------------------------------


def test_managers_play_the_episodes_of_one_process() -> None:
    cfgs = [{"id": env_id, "length": 2 + env_id} for env_id in range(4)]
    played = []
    for manager in (
        RayEnvManager(Trial, cfgs, 4, 3, backend=TWO_SMALL_ACTORS, connect_timeout=500),
        BaseEnvManager(Trial, cfgs, 4, 3),
    ):
        with manager:
            manager.seed(5)
            manager.launch()
            played.append(play(manager))
    assert_same(*played)


def test_managers_are_made_from_a_configuration() -> None:
    cfg = {"type": "ray", "env_fn": Trial, "env_cfg": [{"id": 0}], "env_num": 1, "connect_timeout": 500}
    cfg["backend"] = stepmill.Ray(num_actors=1, node_timeout=70)
    with create_env_manager(cfg) as manager:
        assert isinstance(manager, RayEnvManager)
        manager.launch()
        assert manager.ready_obs_id == [0]
    assert RayEnvManager.default_config()["backend"] == stepmill.Ray()


@pytest.mark.parametrize("backend", ["process", None, {"num_actors": 2}])
def test_managers_on_ray_are_on_ray(backend: Any) -> None:
    with pytest.raises(errors.ConfigError, match=r"RayEnvManager: backend: expected 'ray' or stepmill.Ray\(...\), got"):
        RayEnvManager(Trial, [{"id": 0}], 1, backend=backend)


def test_managers_say_where_the_options_of_ray_go() -> None:
    with pytest.raises(errors.UnknownConfigError, match=r"use backend=stepmill.Ray\(num_actors=2\)"):
        RayEnvManager(Trial, [{"id": 0}], 1, num_actors=2)
    with pytest.raises(errors.UnknownConfigError, match="SubprocessEnvManager has no config key 'backend'"):
        SubprocessEnvManager(Trial, [{"id": 0}], 1, backend=stepmill.Ray())


# ---- drop-ins ------------------------------------------------------------------------------------


def test_stable_baselines3() -> None:
    pytest.importorskip("stable_baselines3")
    from stepmill.interop.sb3 import StepmillVecEnv

    make = functools.partial(gymnasium.make, "CartPole-v1")
    on_ray = StepmillVecEnv([make] * 4, backend=TWO_SMALL_ACTORS, seed=3, start_timeout=500)
    here = StepmillVecEnv([make] * 4, backend="inline", seed=3)
    assert_same(on_ray.reset(), here.reset())
    for step in range(60):
        actions = (np.arange(4) + step) % 2
        seen, expected = on_ray.step(actions), here.step(actions)
        for one in (*seen[3], *expected[3]):
            one.pop("episode", None)  # it has the time of day
        assert_same(seen, expected)
    on_ray.close()
    here.close()
