"""``AtariEnv``: the keys of its cfg, the true score, and spaces without the emulator."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ale_py
import cv2
import gymnasium
import numpy as np
import pytest
from ale_py import roms
from easydict import EasyDict
from gymnasium import spaces

import stepmill.zoo.atari.env
from stepmill.errors import (
    ActionError,
    ConfigError,
    MissingConfigError,
    UnknownConfigError,
    UnknownEnvError,
    UsageError,
)
from stepmill.zoo.atari import AtariEnv, AtariGame
from stepmill.zoo.atari.games import GAMES

BREAKOUT = "BreakoutNoFrameskip-v4"
CFG: dict[str, Any] = {"env_id": BREAKOUT, "noop_max": 10}


@pytest.fixture(scope="module")
def train() -> Any:
    """Loading a game takes a while, so the tests share one, and seed it."""
    env = AtariEnv(CFG)
    yield env
    env.close()


def play(env: AtariEnv, seed: int = 1) -> Any:
    """Fires and waits: the ball is lost, or brings a point by itself. The timestep that ends the episode."""
    env.seed(seed)
    env.reset()
    return finish(env)


def finish(env: AtariEnv) -> Any:
    env.step(np.array(1))
    while not (last := env.step(np.array(0))).done:
        assert "eval_episode_return" not in last.info
    return last


def no_emulator(*_: Any, **__: Any) -> Any:
    raise AssertionError("the emulator was built")


# ---- spaces --------------------------------------------------------------------------------------

CFGS: dict[str, dict[str, Any]] = {
    "train": {},
    "eval": {"is_train": False},
    "uint8": {"scale": False, "frame_stack": 2},
    "size": {"size": (48, 64), "frame_stack": None},
    "no fire": {"env_id": "ALE/Freeway-v5", "noop_max": None},
}


@pytest.mark.parametrize("kind", CFGS)
def test_spaces_and_info_are_known_without_the_emulator_and_are_right(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = AtariEnv({**CFG, **CFGS[kind]})
    with monkeypatch.context() as patch:
        patch.setattr(stepmill.zoo.atari.env, "wrap_atari", no_emulator)
        patch.setattr(stepmill.zoo.atari.env, "AtariGame", no_emulator)
        observation_space, action_space, info = env.observation_space, env.action_space, env.info()
    first = env.reset()
    assert type(env._env) is AtariGame
    assert action_space == env._env.action_space
    assert observation_space.contains(first)
    assert observation_space.contains(env.step(0).obs)
    assert info.obs_space.shape == first.shape
    env.close()


def test_without_frame_skip_the_wrappers_do_the_work() -> None:
    shown = [AtariEnv({**CFG, "noop_max": 1, "frame_skip": skip}) for skip in (4, None)]
    for env in shown:
        env.seed(3)
        assert env.observation_space.contains(env.reset())
    assert [type(env._env) is AtariGame for env in shown] == [True, False]
    for env in shown:
        env.close()


@pytest.mark.parametrize("env_kwargs", [{"full_action_space": True}, {"obs_type": "grayscale"}])
def test_spaces_of_other_observations_are_the_emulators(env_kwargs: dict[str, Any]) -> None:
    env = AtariEnv({**CFG, "size": None, "scale": False, "frame_stack": None, "env_kwargs": env_kwargs})
    full = "full_action_space" in env_kwargs
    assert env.action_space == spaces.Discrete(18 if full else 4)
    assert env.observation_space.shape == ((210, 160, 3) if full else (210, 160))
    assert "FireResetEnv" in (env.info().use_wrappers or "")
    env.close()


@pytest.mark.parametrize("size", [84, None])
def test_a_mode_that_the_game_does_not_have_is_an_error_that_lists_its_modes(size: int | None) -> None:
    env = AtariEnv({**CFG, "size": size, "env_kwargs": {"mode": 77}})
    with pytest.raises(ConfigError, match=r": mode: expected one of 0, .*, got 77"):
        env.reset()


@pytest.mark.parametrize("shown", [{"scale": True}, {"scale": False, "frame_stack": None}], ids=str)
def test_all_actions_change_nothing_in_what_is_seen(shown: dict[str, Any]) -> None:
    env, usual = AtariEnv({**CFG, **shown, "env_kwargs": {"full_action_space": True}}), AtariEnv({**CFG, **shown})
    assert env.observation_space == usual.observation_space
    assert env.observation_space.contains(env.reset())
    assert env.action_space == spaces.Discrete(18)
    assert env.observation_space.contains(env.step(17).obs)
    env.close()


def test_info() -> None:
    info = AtariEnv({**CFG, "is_train": False, "noop_max": 30}).info()
    assert (info.obs_space.shape, info.act_space.shape, info.rew_space.shape) == ((4, 84, 84), (4,), (1,))
    assert info.use_wrappers == (
        "EvalEpisodeReturn\nNoopResetEnv\nMaxAndSkipEnv\nFireResetEnv\nWarpFrame\nScaledFloatFrame\nFrameStack"
    )
    assert "EpisodicLifeEnv" in (AtariEnv(CFG).info().use_wrappers or "")
    assert "ClipRewardEnv" in (AtariEnv(CFG).info().use_wrappers or "")


def test_the_reward_space_is_that_of_clipped_rewards_in_training_only() -> None:
    assert AtariEnv(CFG).reward_space == spaces.Box(-1, 1, (1,), np.float32)
    assert AtariEnv({**CFG, "is_train": False}).reward_space == spaces.Box(-np.inf, np.inf, (1,), np.float32)


def test_collectors_train_and_evaluators_do_not() -> None:
    cfg = EasyDict({**CFG, "collector_env_num": 2, "evaluator_env_num": 1})
    collectors = [AtariEnv(one) for one in AtariEnv.create_collector_env_cfg(cfg)]
    (evaluator,) = [AtariEnv(one) for one in AtariEnv.create_evaluator_env_cfg(cfg)]
    assert [env.reward_space for env in collectors] == [AtariEnv(CFG).reward_space] * 2
    assert evaluator.reward_space != collectors[0].reward_space


# The emulator takes its time over each: one of every kind here.
@pytest.mark.parametrize("name", ["pong", "freeway", "ms_pacman", "seaquest", "assault"])
def test_the_table_of_games_agrees_with_the_emulator(name: str) -> None:
    emulator = ale_py.ALEInterface()
    emulator.loadROM(roms.get_rom_path(name))
    actions = [action.name for action in emulator.getMinimalActionSet()]
    assert GAMES[name] == (name, len(actions), "FIRE" in actions, emulator.getScreenDims()[0])


def test_the_table_has_every_game_that_can_be_played() -> None:
    playable = {gymnasium.spec(id).kwargs["game"] for id in gymnasium.registry if id.startswith("ALE/")}
    assert set(GAMES) == playable


@pytest.mark.parametrize("cfg", [CFG, {**CFG, "env_kwargs": {"full_action_space": True}}], ids=["known", "asked"])
def test_spaces_are_the_same_object_every_time_so_that_they_can_be_seeded(cfg: dict[str, Any]) -> None:
    env = AtariEnv(cfg)
    assert env.observation_space is env.observation_space
    draws = []
    for _ in range(2):
        env.action_space.seed(0)
        draws.append([int(env.action_space.sample()) for _ in range(20)])
    env.close()
    assert draws[0] == draws[1]
    assert len(set(draws[0])) > 1


# ---- episodes ------------------------------------------------------------------------------------


def test_types(train: AtariEnv) -> None:
    train.seed(0)
    obs = train.reset()
    assert (obs.dtype, obs.shape) == (np.float32, (4, 84, 84))
    step = train.step(train.random_action())
    assert (step.obs.dtype, step.reward.dtype, step.reward.shape) == (np.float32, np.float32, (1,))
    assert type(step.done) is bool
    assert not np.shares_memory(step.obs, obs)


def test_in_training_a_lost_life_ends_the_episode_and_the_game_goes_on(train: AtariEnv) -> None:
    ends = [play(train)]
    for _ in range(4):
        train.reset()
        ends.append(finish(train))
    assert [end.info["lives"] for end in ends] == [4, 3, 2, 1, 0]
    assert all(end.info["TimeLimit.truncated"] is False for end in ends)
    scores = [end.info["eval_episode_return"] for end in ends]
    assert scores == sorted(scores)  # of the game so far
    train.reset()  # a new game
    assert train.step(0).info["lives"] == 5


def test_a_new_seed_begins_a_new_game(train: AtariEnv) -> None:
    play(train)
    train.seed(2)
    train.reset()
    assert train.step(0).info["lives"] == 5


def test_static_seeds_begin_a_new_game_each_episode(train: AtariEnv) -> None:
    train.seed(3, dynamic_seed=False)
    first = train.reset()
    assert finish(train).info["lives"] == 4
    np.testing.assert_array_equal(train.reset(), first)
    assert train.step(0).info["lives"] == 5


# Who only fires hits one alien of each row before the first life is gone: 5 + 10 + 15 + 20 + 25 + 30 points.
INVADERS = {"env_id": "SpaceInvadersNoFrameskip-v4", "noop_max": 1, "size": 20}


def fire_until_done(env: AtariEnv) -> tuple[list[float], dict[str, Any]]:
    env.seed(0)
    env.reset()
    rewards, done = [], False
    while not done:
        _, reward, done, info = env.step(np.array(1))
        rewards.append(reward.item())
    env.close()
    return [reward for reward in rewards if reward != 0], info


def test_in_training_rewards_are_clipped_and_the_score_is_the_true_one() -> None:
    rewards, info = fire_until_done(AtariEnv(INVADERS))
    assert rewards == [1, 1, 1, 1, 1, 1]
    assert info["eval_episode_return"] == info["final_eval_reward"] == 105.0
    assert type(info["eval_episode_return"]) is float


def test_in_evaluation_rewards_are_true_and_a_game_that_is_cut_off_is_truncated() -> None:
    cfg = {**INVADERS, "is_train": False, "env_kwargs": {"max_num_frames_per_episode": 1000}}
    rewards, info = fire_until_done(AtariEnv(cfg))
    assert sorted(rewards) == [5, 10, 15, 20, 25, 30]
    assert info["eval_episode_return"] == 105.0
    assert info["lives"] == 2  # one was lost on the way
    assert info["TimeLimit.truncated"] is True


def test_same_seed_same_episodes(train: AtariEnv) -> None:
    runs = []
    for seed in (7, 7, 8):
        train.seed(seed)
        runs.append(np.array([train.reset(), *(train.step(n % 4).obs for n in range(6))]))
    np.testing.assert_array_equal(runs[0], runs[1])
    assert not np.array_equal(runs[0], runs[2])


# ---- wrong use -----------------------------------------------------------------------------------


def test_wrong_use_is_an_error_that_says_so(train: AtariEnv) -> None:
    with pytest.raises(MissingConfigError, match="AtariEnv: expected a cfg with the key env_id, got one with is_train"):
        AtariEnv({"is_train": True})
    with pytest.raises(ConfigError, match=r"AtariEnv: size: expected a number, or \(height, width\), got \(1, 2, 3\)"):
        AtariEnv({**CFG, "size": (1, 2, 3)})
    with pytest.raises(ConfigError, match="AtariEnv: is_train: expected True or False, got 'no'"):
        AtariEnv({**CFG, "is_train": "no"})
    for key, wrong, expected in (
        ("env_id", 5, "the id of a game, got 5"),
        ("frame_skip", "x", "a whole number, got 'x'"),
        ("noop_max", 1.5, "a whole number, got 1.5"),
        ("frame_stack", -1, "a whole number >= 1, got -1"),
        ("scale", "no", "True or False, got 'no'"),
        ("fire_reset", None, "True or False, got None"),
        ("env_kwargs", None, "a dict, got None"),
    ):
        with pytest.raises(ConfigError, match=f"^AtariEnv: {key}: expected {expected}"):
            AtariEnv({**CFG, key: wrong})
    with pytest.raises(UnknownEnvError, match="AtariEnv: env_id: expected the id of a game, got 'ALE/Pingpong-v5'"):
        _ = AtariEnv({"env_id": "ALE/Pingpong-v5"}).action_space
    for size in (84, None):  # without and with the wrappers
        with pytest.raises(
            UnknownConfigError, match=r"^AtariEnv: env_kwargs has no config key 'dificulty', did you mean"
        ):
            AtariEnv({**CFG, "size": size, "env_kwargs": {"dificulty": 1}}).reset()
    with pytest.raises(UsageError, match=r"AtariEnv\(BreakoutNoFrameskip-v4, env_id=0\): step before reset"):
        AtariEnv(CFG).step(0)
    train.reset()
    with pytest.raises(ActionError, match=r"AtariEnv\(.*\): action: expected Discrete\(4\), got 4"):
        train.step(4)


# ---- pictures ------------------------------------------------------------------------------------


def test_a_video_shows_the_console_in_colour_and_at_its_speed(tmp_path: Path) -> None:
    env = AtariEnv({**CFG, "replay_path": str(tmp_path)})
    env.reset()
    for _ in range(3):
        env.step(0)
    drawn = env.render()
    env.close()
    video = cv2.VideoCapture(str(tmp_path / "env_0_episode_0000.mp4"))
    assert video.get(cv2.CAP_PROP_FPS) == 15  # 60 a second, every fourth of them
    frames = [video.read()[1] for _ in range(4)]
    assert video.read()[1] is None
    video.release()
    assert drawn.shape == (210, 160, 3)
    assert np.abs(frames[-1][..., ::-1].astype(int) - drawn).mean() < 4
