"""Every Atari game that ale-py carries, and many sets of options: minutes of work, run by ``make test-zoo``."""

from __future__ import annotations

import random
from typing import Any

import ale_py
import gymnasium
import numpy as np
import pytest

import stepmill
from stepmill.zoo.atari import AtariGame
from stepmill.zoo.atari.games import GAMES
from support.atari import compare

pytestmark = pytest.mark.zoo

STEPS = 200
LEAST_GAMES, LEAST_IDS = 104, 352


def gymnasiums_ids() -> list[str]:
    gymnasium.register_envs(ale_py)
    return sorted(id for id, spec in gymnasium.registry.items() if str(spec.entry_point).startswith("ale_py"))


def test_there_are_enough() -> None:
    ours = [id for id in stepmill.list_all_envs() if id in {f"{game.name}-v5" for game in GAMES.values()}]
    assert len(ours) >= LEAST_GAMES
    assert len(gymnasiums_ids()) >= LEAST_IDS


@pytest.mark.parametrize("rom", GAMES)
def test_a_game_is_as_its_spaces_say(rom: str) -> None:
    game = GAMES[rom]
    spec = stepmill.make_spec(f"{game.name}-v5")
    with stepmill.make(f"{game.name}-v5", num_envs=1, seed=1) as pool:
        assert (pool.single_observation_space, pool.single_action_space) == (spec.observation_space, spec.action_space)
        observation, _ = pool.reset()
        generator = np.random.default_rng(1)
        for _ in range(STEPS):
            assert spec.observation_space.contains(observation[0])
            observation, reward, _, _, info = pool.step([int(generator.integers(spec.action_space.n))])
            assert np.isfinite(reward).all()
            assert info["ram"].shape == (1, 128)


@pytest.mark.filterwarnings("ignore:.*is out of date:DeprecationWarning")  # v0
@pytest.mark.parametrize("id", random.Random(0).sample(gymnasiums_ids(), 30))
def test_gymnasiums_env_is_as_its_spaces_say(id: str) -> None:
    with stepmill.make(id, num_envs=1, seed=1) as pool:
        pool.action_space.seed(0)
        observation, _ = pool.reset()
        for _ in range(STEPS):
            assert observation in pool.observation_space
            observation, reward, _, _, _ = pool.step(pool.action_space.sample())
            assert np.isfinite(reward).all()


@pytest.mark.parametrize("rom", GAMES)
def test_greys_and_actions_are_the_emulators(rom: str) -> None:
    env = AtariGame(rom)
    env.reset(seed=0)
    actions = [action.name for action in env.ale.getMinimalActionSet()]
    assert GAMES[rom][1:] == (len(actions), "FIRE" in actions, env.ale.getScreenDims()[0])
    for step in range(60):
        env.step(step % len(actions))
        env._console._frames.take(0)
        np.testing.assert_array_equal(env._console._frames._pictures[0], env.ale.getScreenGrayscale())
    env.close()


@pytest.mark.parametrize("full_action_space", [False, True])
@pytest.mark.parametrize("game", sorted(game.ale_name for game in GAMES.values()))
def test_gymnasiums_env_is_described_without_building_it(game: str, full_action_space: bool) -> None:
    spec = stepmill.make_spec(f"ALE/{game}-v5", full_action_space=full_action_space)
    env = gymnasium.make(f"ALE/{game}-v5", full_action_space=full_action_space)
    assert (spec.observation_space, spec.action_space) == (env.observation_space, env.action_space)
    env.close()


# Games in which much happens early.
LIVELY = ("breakout", "space_invaders", "qbert", "seaquest", "assault", "freeway", "beam_rider", "ms_pacman")


@pytest.mark.parametrize("seed", range(40))
def test_any_options_equal_the_wrappers(seed: int) -> None:
    generator = np.random.default_rng(seed)

    def draw(*choices: Any) -> Any:
        return choices[int(generator.integers(len(choices)))]

    compare(
        draw(*LIVELY),
        150,
        seed,
        img_height=draw(84, 84, 42, 105, 210, 64, 230, 33),
        img_width=draw(84, 84, 42, 80, 160, 64, 170, 57),
        stack_num=draw(1, 2, 4, 5),
        frame_skip=draw(1, 2, 3, 4, 4, 7),
        noop_max=draw(0, 1, 30, 60),
        episodic_life=draw(True, False),
        reward_clip=draw(True, False),
        use_fire_reset=draw(True, False),
        gray_scale=draw(True, True, False),
        full_action_space=draw(True, False),
        repeat_action_probability=draw(0.0, 0.0, 0.25, 0.9),
        max_num_frames_per_episode=draw(None, 25, 61, 200, 1000),
    )
