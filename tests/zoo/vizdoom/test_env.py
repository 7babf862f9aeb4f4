"""The preprocessed env beside a plain game of ViZDoom with the same seeds and actions, and its options."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

import stepmill
from stepmill.zoo.vizdoom import LeavesNothing
from stepmill.zoo.vizdoom.options import DoomOptions
from support.doom import build, game_seeds, games_of, plain_game, played, random_buttons, small

vizdoom = pytest.importorskip("vizdoom")
pytestmark = pytest.mark.usefixtures("clean_folder", "deadline")


def test_pixels_rewards_ends_and_variables_are_the_games(tmp_path: Path) -> None:
    """TakeCover: fireballs fly, and the player soon dies."""
    seeds, done = game_seeds(7, 2), 0
    env = build("TakeCover-v1", reward_config=None)
    game = plain_game("take_cover.cfg", tmp_path, episode_timeout=0)
    for episode, seed in enumerate(seeds):
        obs, info = env.reset(seed=7 if episode == 0 else None)
        game.set_seed(seed)
        game.new_episode()
        frames = [small(game.get_state().screen_buffer)] * 4
        np.testing.assert_array_equal(obs, np.concatenate(frames))
        for action in random_buttons(60, 2, episode):
            obs, reward, terminated, truncated, info = env.step(action)
            assert reward == game.make_action(list(action), 4)
            if not game.is_episode_finished():
                frames = [*frames[1:], small(game.get_state().screen_buffer)]
            np.testing.assert_array_equal(obs, np.concatenate(frames))
            assert (terminated, truncated) == (game.is_episode_finished(), False)
            assert info["HEALTH"] == game.get_game_variable(vizdoom.GameVariable.HEALTH) or terminated
            assert set(info) >= {"AMMO2", "ARMOR", "KILLCOUNT", "SELECTED_WEAPON", "USER2"}
            if terminated:
                done += 1
                break
    env.close()
    game.close()
    assert done > 0


@pytest.mark.parametrize("id", ["Basic-v1", "VizdoomBasic-v1"])
def test_a_game_says_why_it_is_not_saved(id: str) -> None:
    with stepmill.make(id, backend="inline") as pool:
        assert pool.state_kind.startswith("none: a saved game of ViZDoom does not go on as the game did")


def test_the_last_step_pays_too() -> None:
    env = build("TakeCover-v1", reward_config={"DEATHCOUNT": (-3.0, 0.0)}, selected_weapon_reward_config={})
    env.reset(seed=1)
    rewards, terminated = [], False
    while not terminated:
        _, reward, terminated, _, info = env.step(np.zeros(2))
        rewards.append(reward)
    env.close()
    assert (rewards[-1], info["DEATHCOUNT"]) == (-3.0, 1.0)
    assert not any(rewards[:-1])


def test_gymnasiums_id_plays_the_same_episodes_as_it_is() -> None:
    """The env of ViZDoom's own id equals Gymnasium's, and ours shows its screens."""
    official = gymnasium.make("vizdoom.gymnasium_wrapper:VizdoomBasic-v1", frame_skip=4, disable_env_checker=True)
    with stepmill.make("VizdoomBasic-v1", backend="inline", num_envs=1, seed=3, frame_skip=4) as pool:
        env = build("Basic-v1", reward_config=None)
        official.unwrapped.game.set_doom_config_path("/dev/null")
        theirs = LeavesNothing(official, "VizdoomBasic-v1")
        expected, _ = theirs.reset(seed=3)
        obs, _ = pool.reset()
        env.reset(seed=3)
        for action in (0, 1, 2, 3, 1, 1, 3):
            np.testing.assert_array_equal(obs["screen"][0], expected["screen"])
            np.testing.assert_array_equal(obs["gamevariables"][0], expected["gamevariables"])
            np.testing.assert_array_equal(env.render(), expected["screen"])
            expected, expected_reward, *_ = theirs.step(np.int64(action))
            obs, reward, *_ = pool.step(np.array([action]))
            _, own_reward, *_ = env.step(official.unwrapped.button_map[action])
            assert reward[0] == expected_reward == own_reward
        theirs.close()
        env.close()


def test_a_seed_decides_the_episodes_wherever_they_run() -> None:
    actions = random_buttons(12, 3)
    runs = [
        played(workers, actions, task_id="Basic-v1", num_envs=2, seed=5, max_episode_steps=8, reward_config=None)
        for workers in (None, 2)
    ]
    for run in runs[1:]:
        for one, other in zip(runs[0], run, strict=True):
            np.testing.assert_array_equal(one, other)
    first = runs[0][0]
    assert not np.array_equal(first[0], first[1])  # another seed, another place of the monster


def test_unseeded_resets_go_on_and_seeded_ones_repeat() -> None:
    env = build("Basic-v1")
    first = [env.reset(seed=4)[0], env.reset()[0], env.reset()[0]]
    again = [env.reset(seed=4)[0], env.reset()[0]]
    env.close()
    assert np.array_equal(first[0], again[0])
    assert np.array_equal(first[1], again[1])
    assert not np.array_equal(first[0], first[1])
    assert not np.array_equal(first[1], first[2])


def test_options_of_pictures(tmp_path: Path) -> None:
    env = build("SimplerBasic-v1", img_height=30, img_width=50, stack_num=2, frame_skip=1, use_inter_area_resize=False)
    game = plain_game("simpler_basic.cfg", tmp_path)
    obs, _ = env.reset(seed=0)
    game.set_seed(game_seeds(0, 1)[0])
    game.new_episode()
    import cv2

    expected = cv2.resize(game.get_state().screen_buffer, (50, 30), interpolation=cv2.INTER_LINEAR)
    assert obs.shape == (2, 30, 50)
    np.testing.assert_array_equal(obs, np.stack([expected] * 2))
    before = obs.copy()
    after, *_ = env.step(np.ones(3))
    np.testing.assert_array_equal(obs, before)  # what was handed out stays
    np.testing.assert_array_equal(after[0], obs[1])
    assert env.render().shape == (240, 320, 3)
    env.close()
    game.close()


def test_combined_actions_press_the_buttons_that_they_stand_for() -> None:
    raw, combined = build("Basic-v1"), build("Basic-v1", use_combined_action=True)
    assert combined.action_space == gymnasium.spaces.Discrete(6)
    raw.reset(seed=2)
    combined.reset(seed=2)
    # ATTACK changes most slowly; then none, MOVE_RIGHT, MOVE_LEFT. The scenario's order is left, right, attack.
    for action, buttons in enumerate([[0, 0, 0], [0, 1, 0], [1, 0, 0], [0, 0, 1], [0, 1, 1], [1, 0, 1]]):
        np.testing.assert_array_equal(combined.step(action)[0], raw.step(np.array(buttons, float))[0])
    raw.close()
    combined.close()


def test_time_limits() -> None:
    """EnvPool's by default: the scenario's own, 300 tics, is an option."""
    ends = {}
    for scenario_timeout in (False, True):
        with stepmill.make("Basic-v1", backend="inline", scenario_timeout=scenario_timeout) as pool:
            assert pool.spec.max_episode_steps == 525
            pool.reset()
            for step in range(1, 80):
                _, _, terminated, truncated, _ = pool.step(np.zeros((1, 3)))
                if truncated[0] or terminated[0]:
                    ends[scenario_timeout] = step, bool(terminated[0]), bool(truncated[0])
                    break
    assert ends == {True: (75, False, True)}


def test_a_spec_starts_no_game() -> None:
    import os

    spec = stepmill.make_spec("Deathmatch-v1", stack_num=2, use_combined_action=True)
    assert spec.observation_space.shape == (6, 84, 84)
    assert spec.action_space == gymnasium.spaces.Discrete(4536)
    assert np.isfinite(stepmill.make_spec("Deathmatch-v1").action_space.sample()).all()
    assert stepmill.make_spec("D3Battle-v1").action_space.shape == (8,)  # its map may be missing
    assert stepmill.make_spec("VizdoomBasic-v1").action_space == gymnasium.spaces.Discrete(4)
    assert games_of(os.getpid()) == []


def test_recordings_play_back(tmp_path: Path) -> None:
    folder = tmp_path / ("a long name " * 15)  # longer than what the game takes
    env = build("Basic-v1", lmp_save_dir=folder, reward_config=None, scenario_timeout=True, env_id=3)
    rewards: list[list[Any]] = []
    for episode in range(2):
        env.reset(seed=episode)
        rewards.append([])
        ended = False
        for action in random_buttons(100, 3, episode):
            _, reward, terminated, truncated, _ = env.step(action)
            rewards[-1].append(reward)
            ended = terminated or truncated
            if ended:
                break
        assert ended
    env.close()
    assert sorted(one.name for one in folder.iterdir()) == [f"Basic-v1-env3-episode{i}.lmp" for i in (1, 2)]
    game = plain_game("basic.cfg", tmp_path)
    for episode, expected in enumerate(rewards, 1):
        short = tmp_path / f"{episode}.lmp"
        short.write_bytes((folder / f"Basic-v1-env3-episode{episode}.lmp").read_bytes())
        game.replay_episode(str(short))
        seen = []
        while not game.is_episode_finished():
            game.advance_action(4)
            seen.append(game.get_last_reward())
        assert seen == expected
    game.close()


def test_a_scenario_of_ones_own(tmp_path: Path) -> None:
    config = Path(vizdoom.scenarios_path, "basic.cfg").read_text()
    (tmp_path / "mine.cfg").write_text(config.replace("basic.wad", "mine.wad"))
    (tmp_path / "mine.wad").write_bytes(Path(vizdoom.scenarios_path, "basic.wad").read_bytes())
    own, known = build("VizdoomCustom-v1", cfg_path=tmp_path / "mine.cfg"), build("Basic-v1")
    np.testing.assert_array_equal(own.reset(seed=1)[0], known.reset(seed=1)[0])
    own.close()
    known.close()


@pytest.mark.parametrize("shown", ["BGR24", "RGBA32", "CBCGCR", "DOOM_256_COLORS8"])
def test_a_scenario_of_ones_own_is_shown_in_red_green_and_blue(tmp_path: Path, shown: str) -> None:
    config = Path(vizdoom.scenarios_path, "basic.cfg").read_text()
    (tmp_path / "mine.cfg").write_text(f"{config}\nscreen_format = {shown}\n")
    spec = stepmill.make_spec("VizdoomCustom-v1", cfg_path=tmp_path / "mine.cfg")
    assert spec.observation_space == stepmill.make_spec("Basic-v1").observation_space
    if shown == "BGR24":  # a game takes a second to start
        wad = Path(vizdoom.scenarios_path, "basic.wad")
        own, known = build("VizdoomCustom-v1", cfg_path=tmp_path / "mine.cfg", wad_path=wad), build("Basic-v1")
        np.testing.assert_array_equal(own.reset(seed=1)[0], known.reset(seed=1)[0])
        np.testing.assert_array_equal(own.render(), known.render())
        own.close()
        known.close()


def test_the_configuration_of_a_pool_has_every_option() -> None:
    config = stepmill.make_spec("Basic-v1", stack_num=2, reward_metric=None).config
    shown = {name: config[name] for name in ("img_height", "stack_num", "episodic_life", "reward_config")}
    assert shown == {"img_height": 84, "stack_num": 2, "episodic_life": False, "reward_config": None}
    assert {one.name for one in dataclasses.fields(DoomOptions)} <= config.keys()
