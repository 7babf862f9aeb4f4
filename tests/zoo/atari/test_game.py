"""``AtariGame`` beside Gymnasium's preprocessing with our wrappers: pixels, rewards, ends and infos."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import ale_py
import numpy as np
import pytest

from stepmill.errors import ConfigError, EnvError, UnknownConfigError, UsageError
from stepmill.wrappers.episodes import FIRE
from stepmill.zoo.atari import AtariGame
from support.atari import compare

# A frame limit makes episodes end early: in a skip, and (below 30) in the no-ops of the reset.
CASES: dict[str, tuple[str, int, dict[str, Any]]] = {
    "as gymnasium": ("pong", 140, {"use_fire_reset": False, "max_num_frames_per_episode": 173}),
    "as envpool": ("breakout", 150, {}),
    "training": ("breakout", 150, {"episodic_life": True, "reward_clip": True, "max_num_frames_per_episode": 90}),
    "sticky colours": (
        "space_invaders",
        100,
        {
            "repeat_action_probability": 0.25,
            "gray_scale": False,
            "img_width": 50,
            "img_height": 70,
            "frame_skip": 3,
            "stack_num": 2,
            "max_num_frames_per_episode": 100,
        },
    ),
    "ends in no-ops": ("carnival", 20, {"full_action_space": True, "max_num_frames_per_episode": 20}),
    "no skip, same size": (
        "freeway",
        60,
        {"frame_skip": 1, "img_width": 160, "img_height": 210, "max_num_frames_per_episode": 31},
    ),
    "larger": ("ms_pacman", 40, {"frame_skip": 2, "img_width": 200, "noop_max": 0, "mode": 1, "difficulty": 0}),
}


@pytest.mark.parametrize("name", CASES)
def test_a_game_equals_its_wrappers(name: str) -> None:
    rom, steps, options = CASES[name]
    ends = compare(rom, steps, **options)
    assert ends > 2 or "max_num_frames_per_episode" not in options


@pytest.fixture(scope="module")
def invaders() -> Any:
    """Loading a game takes a while, so tests share one."""
    env = AtariGame("space_invaders", episodic_life=True, reward_clip=True, zero_discount_on_life_loss=True)
    yield env
    env.close()


def test_infos_beyond_gymnasiums(invaders: AtariGame) -> None:
    _, info = invaders.reset(seed=3)
    assert info.keys() == {*invaders.info_space.spaces, "seeds"}
    assert invaders.info_space.contains(_as_arrays(invaders, info))
    lives, score = [info["lives"]], 0.0
    while not invaders.was_real_done:
        _, reward, terminated, _, info = invaders.step(int(invaders.np_random.integers(6)))
        assert reward == np.sign(info["reward"])
        lost = info["lives"] < lives[-1]
        assert terminated == lost
        assert info["discount"] == float(not lost)
        assert info["terminated"] == int(invaders.was_real_done)
        assert type(reward) is float
        assert info["ram"].tolist() == invaders.ale.getRAM().tolist()
        score += info["reward"]
        lives.append(info["lives"])
        if terminated and not invaders.was_real_done:
            _, info = invaders.reset()
            assert info["discount"] == 1.0
    assert lives[-1] == 0
    assert invaders.episode_return >= score > 0  # no-ops and FIREs may score too


def _as_arrays(env: AtariGame, info: dict[str, Any]) -> dict[str, np.ndarray]:
    return {key: np.asarray(info[key], space.dtype) for key, space in env.info_space.spaces.items()}


def test_observations_are_the_callers_unless_memory_is_reused(invaders: AtariGame) -> None:
    first, _ = invaders.reset(seed=2)
    kept = first.copy()
    second, *_ = invaders.step(2)
    assert not np.shares_memory(first, second)
    np.testing.assert_array_equal(first, kept)
    ours = AtariGame("pong", reuse_memory=True)
    first, _ = ours.reset(seed=2)
    assert ours.step(2)[0] is first


def test_a_cut_off_life_is_not_continued() -> None:
    env = AtariGame("breakout", episodic_life=True, max_episode_steps=5, noop_max=1)
    assert env.ale.getInt("max_num_frames_per_episode") == 0  # the pool's limit is the only one
    env.reset(seed=0)
    for steps, continues in ((4, True), (5, False)):
        for _ in range(steps):
            before = env.step(0)[4]["episode_frame_number"]
        after = env.reset()[1]["episode_frame_number"]
        assert (after > before) == continues


def test_the_generator_is_the_one_that_draws_the_no_ops() -> None:
    env = AtariGame("breakout", use_fire_reset=False)
    env.reset(seed=3)
    assert env.np_random_seed == 3
    frames = []
    for _ in range(2):
        env.np_random = np.random.default_rng(0)
        frames.append(env.reset()[1]["episode_frame_number"])
        assert env.np_random.bit_generator.state != np.random.default_rng(0).bit_generator.state
    assert frames == [np.random.default_rng(0).integers(1, 31)] * 2


@pytest.mark.parametrize("episodic_life", [False, True])
def test_a_game_that_is_said_to_be_over_begins_anew(episodic_life: bool) -> None:
    env = AtariGame("breakout", episodic_life=episodic_life, noop_max=1)
    env.reset(seed=0)
    before = [env.step(0)[4]["episode_frame_number"] for _ in range(3)][-1]
    env.episode_return, env.was_real_done = 5.0, True
    assert env.reset()[1]["episode_frame_number"] < before
    assert (env.episode_return, env.was_real_done) == (0.0, False)


@pytest.mark.parametrize("episodic_life", [False, True])
def test_games_whose_first_action_is_not_a_noop_begin_too(episodic_life: bool) -> None:
    env = AtariGame("backgammon", episodic_life=episodic_life)
    first = env.reset(seed=0)[1]["episode_frame_number"]
    assert first > 1
    assert env.get_action_meanings() == ["FIRE", "RIGHT", "LEFT"]
    again = env.reset()[1]["episode_frame_number"]  # after a no-op, or in a new game
    assert (again > first) == episodic_life


def test_what_fire_brings_counts_for_the_game_and_is_no_reward_of_the_reset(monkeypatch: pytest.MonkeyPatch) -> None:
    env = AtariGame("pong", noop_max=2, frame_skip=3)
    monkeypatch.setattr(env._console, "_act", lambda action: 10 if action == FIRE else 1)
    _, info = env.reset(seed=0)
    assert info["reward"] == 0.0
    assert env.episode_return in (31, 32)
    assert env.step(1)[4]["reward"] == 30


def test_a_game_is_a_whole_env_of_its_own(invaders: AtariGame) -> None:
    assert invaders.unwrapped is invaders
    assert invaders.unwrapped.action_space.n == len(invaders.get_action_meanings()) == 6


def test_a_picture_is_the_screen(invaders: AtariGame) -> None:
    invaders.reset(seed=0)
    np.testing.assert_array_equal(invaders.render(), invaders.ale.getScreenRGB())
    with pytest.raises(UsageError, match="pong: render: expected an env with a render_mode, rgb_array, human"):
        AtariGame("pong", render_mode=None).render()


def test_a_copy_plays_the_same(invaders: AtariGame) -> None:
    other = copy.deepcopy(AtariGame("space_invaders", episodic_life=True))
    np.testing.assert_array_equal(other.reset(seed=3)[0], invaders.reset(seed=3)[0])


# ---- wrong use -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "expected"),
    [
        ({"img_height": 0}, "img_height: expected a whole number in [1, 16384], got 0"),
        ({"stack_num": 1.5}, "stack_num: expected a whole number, got 1.5"),
        ({"frame_skip": 0}, "frame_skip: expected a whole number >= 1, got 0"),
        ({"noop_max": -1}, "noop_max: expected a whole number >= 0, got -1"),
        ({"reward_clip": 1}, "reward_clip: expected True or False, got 1"),
        ({"repeat_action_probability": 2}, "repeat_action_probability: expected a finite number >= 0.0 and <= 1.0"),
        ({"render_mode": "ansi"}, "render_mode: expected one of 'rgb_array', 'human', got 'ansi'"),
        ({"mode": 77}, "mode: expected one of 0, 1, got 77"),
        ({"difficulty": 9}, "difficulty: expected one of 0, 1, 2, 3, got 9"),
        (
            {"img_height": 16384, "img_width": 16384},
            "at most 256 MB per channel, got 4 frames",
        ),
    ],
    ids=lambda one: next(iter(one)) if isinstance(one, dict) else "",
)
def test_a_wrong_option_is_an_error_that_says_so(wrong: dict[str, Any], expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        AtariGame("pong", **wrong)
    assert str(caught.value).startswith("pong: ")
    assert expected in str(caught.value)


def test_other_mistakes() -> None:
    with pytest.raises(UnknownConfigError, match=r"pong has no option 'frameskip'\. Known: img_height, "):
        AtariGame("pong", frameskip=4)
    with pytest.raises(ConfigError, match="expected the name of a ROM, such as 'ms_pacman', got 'Pong'"):
        AtariGame("Pong")
    with pytest.raises(UsageError, match="pong: step before reset"):
        AtariGame("pong").step(18)


@pytest.mark.parametrize("content", [b"", b"no game" * 500, None], ids=["empty", "noise", "missing"])
def test_a_broken_rom_is_an_error(content: bytes | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if content is not None:
        (tmp_path / "pong.bin").write_bytes(content)
    monkeypatch.setenv("ALE_ROMS_DIR", str(tmp_path))
    with pytest.raises(EnvError, match=r"pong: its ROM is missing or broken: .*pong\.bin(.|\n)*Install ale-py again"):
        AtariGame("pong")


def test_an_emulator_that_differs_from_our_table_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ale_py.ALEInterface, "getScreenDims", lambda _: (99, 160))
    with pytest.raises(EnvError, match="pong: expected 6 actions and a screen of 210 x 160, got 6 and 99 x 160"):
        AtariGame("pong").reset(seed=0)
