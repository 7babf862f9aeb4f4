"""MiniGrid and BabyAI, by the ids that they register: the episodes of ``gymnasium.make``, missions included."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

import stepmill
from support.islands import make_environment
from support.lanes import Lanes
from support.probes import MODES, assert_same

pytest.importorskip("minigrid", reason="minigrid is not installed")


@pytest.mark.parametrize(
    ("id", "backend"),
    [
        ("MiniGrid-Empty-8x8-v0", "process"),
        ("MiniGrid-Fetch-5x5-N2-v0", "inline"),
        ("BabyAI-GoToObj-v0", "process"),  # its mission changes from episode to episode
        ("BabyAI-PutNextS4N1-v0", "inline"),
    ],
)
def test_episodes_are_those_of_gymnasium(make: Any, id: str, backend: str) -> None:
    twin = gymnasium.make(id, max_episode_steps=6)
    pool = make(id, seed=3, backend=backend, max_episode_steps=6)
    rng = np.random.default_rng(1)
    missions = set()
    for seed in (3, None, None, 8):
        assert same(pool.reset(seed=seed)[0], twin.reset(seed=seed)[0])
        ends = [False, False]
        while not any(ends):
            action = rng.integers(7)
            seen, *rest, _ = pool.step(np.array([action]))
            wanted, reward, *ends, _ = twin.step(action)
            assert same(seen, wanted)
            assert [one[0] for one in rest] == [reward, *ends]
            missions.add(seen["mission"][0])
    assert all(type(one) is str for one in missions)
    if id == "BabyAI-GoToObj-v0":
        assert len(missions) > 1
    twin.close()


@pytest.mark.parametrize("autoreset", MODES)
@pytest.mark.parametrize(
    "id", ["BabyAI-GoToSeqS5R2-v0", "MiniGrid-Dynamic-Obstacles-5x5-v0", "MiniGrid-KeyCorridorS3R1-v0"]
)
def test_a_restored_env_goes_on_as_the_saved_one(make: Any, id: str, autoreset: str) -> None:
    settings: dict[str, Any] = {
        "num_envs": 2,
        "autoreset": autoreset,
        "max_episode_steps": 12,
        "render_mode": "rgb_array",
    }
    pool = make(id, seed=3, backend="inline", **settings)
    other = make(id, seed=8, backend="process", num_workers=2, **settings)
    assert pool.state_kind == other.state_kind == "methods"
    pool.reset()
    other.reset()
    lanes = Lanes(pool, [(0, 0), (1, 0)])
    lanes.go(30)
    states, at, drawn = pool.save(), list(lanes.at), pool.render()
    expected = lanes.go(60)
    for to in (pool, other):
        for order in ([0, 1], [1, 0]):
            to.restore([states[i] for i in order])
            assert_same(list(to.render()), [drawn[i] for i in order])
            got = Lanes(to, [at[i] for i in order]).go(60)
            assert_same(got, [expected[i] for i in order])


def same(seen: dict[str, Any], wanted: dict[str, Any]) -> bool:
    return (
        seen.keys() == wanted.keys()
        and seen["mission"] == (wanted["mission"],)
        and all(np.array_equal(seen[key][0], wanted[key]) for key in ("image", "direction"))
    )


def test_a_mission_is_a_text_of_each_env(make: Any) -> None:
    pool = make("BabyAI-GoToObj-v0", num_envs=4, num_workers=2, backend="process")
    obs, _ = pool.reset()
    assert isinstance(obs["mission"], tuple)
    assert len(obs["mission"]) == 4
    assert obs in pool.observation_space
    held = obs["mission"], obs["image"].copy()
    pool.step(np.full(4, 2))
    assert (held[0], held[1].tolist()) == (obs["mission"], obs["image"].tolist())


def test_make_spec_follows_the_configuration() -> None:
    spec = stepmill.make_spec("MiniGrid-Empty-8x8-v0", size=6, num_envs=3)
    assert spec.observation_space["image"].shape == (7, 7, 3)
    assert spec.config["size"] == 6


def test_envs_at_home_and_on_an_island_share_a_pool(make: Any, tmp_path: Path) -> None:
    island = make_environment(tmp_path / "there")
    pool = make("MiniGrid-Empty-5x5-v0", num_envs=2, seed=[3, 3], env_config=[{}, {"python": island}])
    obs, _ = pool.reset()
    assert obs["mission"] == ("get to the green goal square",) * 2
    np.testing.assert_array_equal(*obs["image"])
