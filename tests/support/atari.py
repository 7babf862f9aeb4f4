"""Gymnasium's wrappers, and ours around them, as the oracle of ``AtariGame``."""

from __future__ import annotations

from typing import Any

import ale_py
import gymnasium
import numpy as np
from gymnasium.wrappers import AtariPreprocessing, FrameStackObservation

from stepmill.wrappers import ClipRewardEnv, EpisodicLifeEnv, FireResetEnv
from stepmill.zoo.atari import AtariGame
from stepmill.zoo.atari.games import GAMES

gymnasium.register_envs(ale_py)

OURS_ONLY = {"reward", "terminated", "ram"}  # what our infos have in addition


def oracle(rom: str, innermost: Any = None, **options: Any) -> gymnasium.Env[Any, Any]:
    """The same game by wrappers, from the options of ``AtariGame``; `innermost` is one more around the emulator."""
    o = AtariGame(rom, **options).options
    env = gymnasium.make(
        f"ALE/{GAMES[rom].ale_name}-v5",
        frameskip=1,
        repeat_action_probability=o.repeat_action_probability,
        full_action_space=o.full_action_space,
        mode=o.mode,
        difficulty=o.difficulty,
        max_num_frames_per_episode=o.most_frames,
    )
    env = innermost(env) if innermost else env
    has_fire = env.unwrapped.get_action_meanings()[1:2] == ["FIRE"]
    env = AtariPreprocessing(
        env,
        noop_max=o.noop_max,
        frame_skip=o.frame_skip,
        screen_size=(o.img_width, o.img_height),
        grayscale_obs=o.gray_scale,
    )
    env = FrameStackObservation(env, o.stack_num)
    if o.episodic_life:
        env = EpisodicLifeEnv(env)
    if o.use_fire_reset and has_fire:
        env = FireResetEnv(env)
    return ClipRewardEnv(env) if o.reward_clip else env


def compare(rom: str, steps: int, seed: int = 5, **options: Any) -> int:
    """Plays both with the same seeds and actions, and checks all that comes out. How many episodes ended."""
    game, wrapped = AtariGame(rom, **options), oracle(rom, **options)
    generator = np.random.default_rng(seed)
    _check_same(game.reset(seed=seed), wrapped.reset(seed=seed))
    ends = 0
    for _ in range(steps):
        action = int(generator.integers(game.action_space.n))
        ours, theirs = game.step(action), wrapped.step(action)
        _check_same(ours, theirs)
        if ours[2] or ours[3]:
            ends += 1
            again = seed + 1 if ends == 3 else None
            _check_same(game.reset(seed=again), wrapped.reset(seed=again))
    _check_same(game.reset(), wrapped.reset())  # in the middle of an episode
    game.close()
    wrapped.close()
    return ends


def _check_same(ours: Any, theirs: Any) -> None:
    seen = theirs[0]
    if seen.ndim == 4:  # colours: one plane per channel
        seen = seen.transpose(0, 3, 1, 2).reshape(-1, *seen.shape[1:3])
    np.testing.assert_array_equal(ours[0], seen)
    assert ours[1:-1] == theirs[1:-1]
    assert ours[-1].keys() - OURS_ONLY == theirs[-1].keys()
    assert {key: ours[-1][key] for key in theirs[-1]} == theirs[-1]
