"""Courier as a ``BaseEnv``, and as a reader of ``examples/`` runs it."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from courier import CourierEnv
from courier.picture import draw
from courier.pilot import pilot
from courier.world import Verb

from stepmill.envs import BaseEnv
from stepmill.errors import ConfigError, NeedsResetError, ResetOptionError, UsageError
from stepmill.testing import check_env

ROOT = Path(__file__).resolve().parents[2]
NORTH, EAST, SOUTH, WEST, HANDLE, CHARGE = Verb


def play(env: CourierEnv, policy: Any) -> tuple[list[Any], dict[str, Any]]:
    steps = [(env.reset(), None)]
    while True:
        step = env.step(policy(env.world))
        steps.append((step.obs, step.reward))
        if step.done:
            return steps, step.info


def seeded(seed: int = 0, dynamic_seed: bool = True, **cfg: Any) -> CourierEnv:
    env = CourierEnv(cfg)
    env.seed(seed, dynamic_seed)
    return env


def same(one: Any, other: Any) -> bool:
    return len(one) == len(other) and all(
        np.array_equal(a["features"], b["features"]) and np.array_equal(a["map"], b["map"])
        for (a, _), (b, _) in zip(one, other, strict=True)
    )


def test_types_and_spaces() -> None:
    env = seeded()
    assert isinstance(env, BaseEnv)
    first = env.reset()
    assert env.observation_space.contains(first)
    low, high = env.reward_space.low, env.reward_space.high
    done = False
    while not done:
        action = env.random_action()
        assert env.action_space.contains(action)
        obs, reward, done, info = env.step(action)
        assert env.observation_space.contains(obs)
        assert reward.shape == (1,)
        assert reward.dtype == np.float32
        assert low <= reward <= high
        assert type(done) is bool
        assert type(info) is dict


def test_it_builds_nothing_before_the_first_reset() -> None:
    env = CourierEnv()
    assert env.observation_space["map"].shape == (5, 7, 7)
    with pytest.raises(UsageError, match="call reset"):
        env.step(0)
    with pytest.raises(UsageError, match="call reset"):
        env.render()


def test_the_pilot_serves_every_town_and_chance_none() -> None:
    env = seeded(7)
    scores = [play(env, pilot)[1] for _ in range(20)]
    assert all(one["success"] and one["deliveries"] == 4 for one in scores)
    assert min(one["eval_episode_return"] for one in scores) > 3.2
    scores = [play(env, lambda _: env.random_action())[1] for _ in range(20)]
    assert max(one["eval_episode_return"] for one in scores) < 2


def test_the_end_says_how_it_went() -> None:
    env = seeded(is_train=False)
    steps, info = play(env, pilot)
    assert info["eval_episode_return"] == info["final_eval_reward"]
    assert type(info["eval_episode_return"]) is float
    assert info["eval_episode_return"] == pytest.approx(sum(float(reward[0]) for _, reward in steps[1:]), rel=1e-6)
    assert (info["success"], info["crashed"], info["TimeLimit.truncated"]) == (True, False, False)
    _, info = play(env, lambda _: NORTH)
    assert (info["success"], info["crashed"], info["TimeLimit.truncated"]) == (False, True, False)
    assert info["eval_episode_return"] == 0.0
    steps, info = play(env, lambda _: CHARGE)
    assert (info["success"], info["crashed"], info["TimeLimit.truncated"]) == (False, False, True)
    assert len(steps) == 1 + 250


def test_an_episode_that_is_over_wants_a_reset() -> None:
    env = seeded()
    play(env, pilot)
    with pytest.raises(NeedsResetError, match="call reset"):
        env.step(0)
    env.reset()
    env.step(0)


def test_a_closed_env_can_be_reset() -> None:
    env = seeded()
    env.reset()
    env.close()
    env.close()
    with pytest.raises(UsageError, match="call reset"):
        env.step(0)
    assert env.observation_space.contains(env.reset())


def test_static_seeds_repeat_the_episode_and_dynamic_ones_the_run() -> None:
    static = seeded(3, dynamic_seed=False)
    assert same(play(static, pilot)[0], play(static, pilot)[0])
    one, other = seeded(3), seeded(3)
    run = [play(one, pilot)[0] for _ in range(3)]
    assert all(same(episode, play(other, pilot)[0]) for episode in run)
    assert not same(run[0], run[1])
    assert not same(run[0], play(seeded(4), pilot)[0])


def test_the_global_generator_is_left_alone() -> None:
    before = copy.deepcopy(np.random.get_state()[1])
    play(seeded(), pilot)
    assert np.array_equal(before, np.random.get_state()[1])


def test_observations_are_the_callers_own() -> None:
    env = seeded()
    first = env.reset()
    kept = copy.deepcopy(first)
    for _ in range(5):
        env.step(env.random_action())
    assert same([(first, None)], [(kept, None)])


def test_info_has_the_functions_that_translate() -> None:
    info = CourierEnv().info()
    assert info.obs_space.shape == {"features": (26,), "map": (5, 7, 7)}
    assert info.act_space.shape == (6,)
    assert info.act_space.from_agent_processor(np.array(1)) is Verb.EAST
    assert info.rew_space.to_agent_processor([0.5, 0.25]).tolist() == [0.75]


def test_repr_says_which_it_is() -> None:
    env = CourierEnv({"size": 12})
    env.env_id = 3
    assert repr(env) == "CourierEnv(env_id=3, size=12, packages=4)"


def test_reset_takes_no_options() -> None:
    with pytest.raises(ResetOptionError, match="reset: expected no arguments, got town"):
        CourierEnv().reset(town="Ulm")


@pytest.mark.parametrize(
    ("cfg", "message"),
    [
        ({"size": 4}, r"size: expected a whole number in \[5, 32\], got 4"),
        ({"size": 9.0}, "size: expected a whole number, got 9.0"),
        ({"size": True}, "size: expected a whole number"),
        ({"buildings": 0.5}, "buildings: expected a finite number >= 0 and <= 0.3, got 0.5"),
        ({"chargers": 0}, r"chargers: expected a whole number in \[1, 4\], got 0"),
        ({"packages": 13}, r"packages: expected a whole number in \[1, 12\], got 13"),
        ({"capacity": 35}, r"capacity: expected a whole number in \[36, "),
        ({"charge": 0}, r"charge: expected a whole number in \[1, "),
        ({"max_steps": 207}, r"max_steps: expected a whole number in \[208, "),
        ({"is_train": "yes"}, "is_train: expected True or False, got 'yes'"),
        (7, "cfg: expected a dict, got 7"),
    ],
)
def test_a_wrong_configuration_is_named(cfg: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=f"^CourierEnv: {message}"):
        CourierEnv(cfg)


def test_keys_of_others_and_the_cfg_itself_are_left_alone() -> None:
    cfg = {"size": 9, "collector_env_num": 2, "policy": {"lr": 0.1}}
    kept = copy.deepcopy(cfg)
    env = CourierEnv(cfg)
    env.reset()
    assert cfg == kept
    assert [one["is_train"] for one in CourierEnv.create_collector_env_cfg(cfg)] == [True, True]


def test_numbers_of_numpy_make_no_others() -> None:
    env = seeded(size=np.array(9), capacity=np.int64(48), buildings=np.float32(0.25), is_train=np.bool_(False))
    env.reset()
    done = False
    while not done:
        _, _, done, info = env.step(NORTH)
        assert type(done) is bool
    assert type(info["crashed"]) is bool


def test_a_pickled_env_goes_on_where_it_was() -> None:
    env = seeded()
    env.reset()
    for _ in range(10):
        env.step(pilot(env.world))
    twin = pickle.loads(pickle.dumps(env))
    for _ in range(5):
        verb = pilot(env.world)
        one, other = env.step(verb), twin.step(verb)
        assert same([(one.obs, None)], [(other.obs, None)])
        assert one.reward == other.reward


# ---- the picture ---------------------------------------------------------------------------------


def test_the_picture_is_an_image_that_videos_take() -> None:
    for cfg in ({}, {"size": 5, "packages": 2}, {"size": 13, "capacity": 60, "max_steps": 1000}):
        env = seeded(**cfg)
        env.reset()
        picture = env.render()
        assert picture.dtype == np.uint8
        assert picture.ndim == 3
        assert picture.shape[2] == 3
        assert picture.shape[0] % 2 == picture.shape[1] % 2 == 0


def test_an_env_draws_its_own_trail() -> None:
    env = seeded()
    env.reset()
    for _ in range(8):
        verb = pilot(env.world)
        env.step(verb)
    assert not np.array_equal(env.render(), draw(env.world, np.zeros((9, 9)), verb))
    env._map.trail[:] = 0
    assert np.array_equal(env.render(), draw(env.world, np.zeros((9, 9)), verb))


# ---- the example ---------------------------------------------------------------------------------


def test_it_keeps_the_contract() -> None:
    report = check_env(CourierEnv, {}, episodes=1, print_report=False)
    assert report == [], str(report)
    assert report.unchecked == {}


def test_it_runs_as_the_page_says_and_prints_what_is_shown_there() -> None:
    page = (ROOT / "docs" / "zoo.md").read_text(encoding="utf-8")
    command, shown = page.partition("```sh\n")[2].split("\n```\n\n```\n")[:2]
    assert command == "python -m examples.worlds.courier"
    done = subprocess.run([sys.executable, *command.split()[1:]], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert done.stdout == shown.partition("```")[0]
