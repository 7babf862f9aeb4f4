"""The wrappers and ``wrap_atari`` on real games."""

from __future__ import annotations

import pickle
import sys
from typing import Any

import ale_py
import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.utils.env_checker import data_equivalence
from gymnasium.wrappers import AtariPreprocessing, FrameStackObservation

from stepmill.errors import ConfigError, MissingPackageError, SpaceError, UnknownEnvError
from stepmill.wrappers import (
    EpisodicLifeEnv,
    FireResetEnv,
    NoopResetEnv,
    RamWrapper,
    WarpFrame,
    atari_wrappers,
    update_shape,
    wrap,
    wrap_atari,
    wrapper_names,
)
from support.envs.scripted import RGB, SCENE, ChanceEnv

gymnasium.register_envs(ale_py)


def game(name: str = "Breakout", **config: Any) -> gymnasium.Env[Any, Any]:
    return gymnasium.make(f"ALE/{name}-v5", **{"frameskip": 1, "repeat_action_probability": 0.0, **config})


@pytest.fixture(scope="module")
def breakout() -> Any:
    """A game for tests that do not care what it was used for before: to load one takes long."""
    env = game()
    yield env
    env.close()


def play(env: gymnasium.Env[Any, Any], steps: int, seed: int = 1) -> list[Any]:
    """All that comes out, from a seed on, of actions that are drawn too."""
    env.action_space.seed(seed)
    said: list[Any] = [env.reset(seed=seed)]
    for _ in range(steps):
        said.append(env.step(env.action_space.sample()))
        if said[-1][2] or said[-1][3]:
            said.append(env.reset())
    return said


def stack_of(env: gymnasium.Env[Any, Any]) -> list[str]:
    """The names of the wrappers, the innermost first, without those of ``gymnasium.make``."""
    names = []
    while isinstance(env, gymnasium.Wrapper):
        names.append(type(env).__name__)
        env = env.env
    return [name for name in reversed(names) if name not in ("OrderEnforcing", "PassiveEnvChecker")]


# ---- what wrap_atari is made of -----------------------------------------------------------------


def test_by_default_all_are_there_in_their_order() -> None:
    env = wrap_atari("ALE/Breakout-v5")
    assert stack_of(env) == [
        "EvalEpisodeReturn",
        "NoopResetEnv",
        "MaxAndSkipEnv",
        "EpisodicLifeEnv",
        "FireResetEnv",
        "WarpFrame",
        "ScaledFloatFrame",
        "ClipRewardEnv",
        "FrameStack",
    ]
    assert env.observation_space == spaces.Box(0, 1, (4, 84, 84), np.float32)
    env.close()


@pytest.mark.parametrize(
    ("off", "name"),
    [
        ({"eval_return": False}, "EvalEpisodeReturn"),
        ({"noop_max": 0}, "NoopResetEnv"),
        ({"noop_max": None}, "NoopResetEnv"),
        ({"frame_skip": None}, "MaxAndSkipEnv"),
        ({"episode_life": False}, "EpisodicLifeEnv"),
        ({"fire_reset": False}, "FireResetEnv"),
        ({"size": None}, "WarpFrame"),
        ({"scale": False}, "ScaledFloatFrame"),
        ({"clip_rewards": False}, "ClipRewardEnv"),
        ({"frame_stack": None}, "FrameStack"),
    ],
    ids=str,
)
def test_each_can_be_switched_off(breakout: Any, off: dict[str, Any], name: str) -> None:
    env = wrap_atari(breakout, **off)
    everything = [one for one, _ in atari_wrappers()]
    assert stack_of(env) == [one for one in everything if one != name]
    assert stack_of(env) == wrapper_names(atari_wrappers(**off)).split("\n")
    inside = ((210, 160, 3), (4,), (1,))
    assert env.reset()[0].shape == update_shape(*inside, atari_wrappers(**off))[0]


def test_the_arguments_reach_the_wrappers(breakout: Any) -> None:
    env = wrap_atari(breakout, noop_max=7, frame_skip=2, size=(40, 30), scale=False, frame_stack=3)
    assert env.observation_space == spaces.Box(0, 255, (3, 40, 30), np.uint8)
    assert env.get_wrapper_attr("noop_max") == 7
    assert env.get_wrapper_attr("skip") == 2
    shapes = update_shape((210, 160, 3), (4,), (1,), atari_wrappers(size=(40, 30), frame_stack=3))
    assert shapes == ((3, 40, 30), (4,), (1,))


def test_a_game_without_fire_gets_no_fire() -> None:
    assert "FireResetEnv" not in stack_of(wrap_atari(game("MsPacman")))
    assert "FireResetEnv" in stack_of(wrap_atari(game("Pong")))


def test_an_id_of_a_game_skips_no_frames_of_its_own() -> None:
    for id in ("ALE/Pong-v5", "PongNoFrameskip-v4"):
        assert wrap_atari(id).unwrapped._frameskip == 1
    assert wrap_atari("ALE/Pong-v5", frame_skip=None).unwrapped._frameskip == 4


def test_frames_are_not_skipped_twice() -> None:
    skipping = game(frameskip=4)
    with pytest.raises(
        ConfigError, match=r"wrap_atari: frame_skip: .*frameskip=1.*, got .*frameskip=4 and frame_skip=3"
    ):
        wrap_atari(skipping, frame_skip=3)
    assert "MaxAndSkipEnv" not in stack_of(wrap_atari(skipping, frame_skip=None))


def test_the_config_goes_to_the_game(breakout: Any) -> None:
    env = wrap_atari("ALE/Pong-v5", config={"render_mode": "rgb_array", "full_action_space": True})
    assert env.render_mode == "rgb_array"
    assert env.action_space == spaces.Discrete(18)
    with pytest.raises(ConfigError, match=r"wrap_atari: config: expected none .*, got {'mode': 1}"):
        wrap_atari(breakout, config={"mode": 1})


def test_an_env_of_another_kind_is_taken_where_the_wrappers_can_serve_it(breakout: Any) -> None:
    assert wrap_atari(ChanceEnv(RGB), size=8).reset(seed=0)[0].shape == (4, 8, 8)
    with pytest.raises(SpaceError, match="MaxAndSkipEnv: expected a Box observation space, got Dict"):
        wrap_atari(ChanceEnv(SCENE))
    with pytest.raises(SpaceError, match=r"WarpFrame: expected images .*, got Box\(0, 255, \(128,\), uint8\)"):
        wrap_atari(game(obs_type="ram"))
    with pytest.raises(ConfigError, match="NoopResetEnv: noop_max: expected a whole number >= 1, got -1"):
        wrap_atari(breakout, noop_max=-1)


@pytest.mark.parametrize("wrong", [None, 5])
def test_what_is_no_game_is_an_error(wrong: Any) -> None:
    with pytest.raises(ConfigError, match=f"wrap_atari: expected the id of a game or a gymnasium.Env, got {wrong}"):
        wrap_atari(wrong)


def test_an_unknown_id_is_an_error() -> None:
    with pytest.raises(UnknownEnvError, match="wrap_atari: unknown env id 'ALE/Pongg-v5'"):
        wrap_atari("ALE/Pongg-v5")


def test_a_missing_emulator_is_an_error_that_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ale_py", None)
    monkeypatch.delitem(gymnasium.registry, "ALE/Pong-v5")
    with pytest.raises(MissingPackageError, match=r"wrap_atari needs ale-py.*stepmill\[atari\]"):
        wrap_atari("ALE/Pong-v5")


# ---- what comes out -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["Breakout", "Pong", "MsPacman"])
def test_all_that_comes_out_fits(name: str) -> None:
    env = wrap_atari(f"ALE/{name}-v5")
    said = play(env, 120)
    assert all(env.observation_space.contains(one[0]) for one in said)
    assert {one[1] for one in said if len(one) == 5} <= {-1.0, 0.0, 1.0}
    assert max(one[0].max() for one in said) > 0.3
    env.close()


def test_same_seed_same_episodes() -> None:
    one, other = wrap_atari("ALE/Breakout-v5"), wrap_atari("ALE/Breakout-v5")
    said = play(one, 100)
    assert data_equivalence(said, play(other, 100))
    assert data_equivalence(said, play(one, 100))
    assert not data_equivalence(said, play(other, 100, seed=2))


def test_a_wrapped_game_can_be_pickled_and_made_from_its_spec() -> None:
    env = wrap_atari("ALE/Breakout-v5", size=20)
    said = play(env, 40)
    assert data_equivalence(said, play(pickle.loads(pickle.dumps(env)), 40))
    assert env.spec is not None
    assert data_equivalence(said, play(gymnasium.make(env.spec), 40))


@pytest.mark.parametrize("name", ["Breakout", "Pong"])
def test_the_composition_is_gymnasiums_preprocessing(name: str) -> None:
    # On grey frames of the console itself, which both then only pool, shrink and stack. Gymnasium ends an episode
    # within the skip and shows older frames then, so ends are left out.
    ours = wrap_atari(
        game(name, obs_type="grayscale"), episode_life=False, fire_reset=False, scale=False, clip_rewards=False
    )
    theirs = FrameStackObservation(AtariPreprocessing(game(name)), 4)
    assert ours.observation_space == theirs.observation_space
    for seed in (3, None):
        assert np.array_equal(ours.reset(seed=seed)[0], theirs.reset(seed=seed)[0])
        ours.action_space.seed(seed)
        for _ in range(120):
            action = ours.action_space.sample()
            one, other = ours.step(action), theirs.step(action)
            assert one[1:4] == other[1:4]
            if one[2]:
                break
            assert np.array_equal(one[0], other[0])
            assert one[4] == other[4]


def test_our_grey_is_the_consoles_to_a_rounding() -> None:
    coloured, grey = WarpFrame(game()), WarpFrame(game(obs_type="grayscale"))
    ours, theirs = coloured.reset(seed=0)[0].astype(int), grey.reset(seed=0)[0].astype(int)
    assert np.abs(ours - theirs).max() <= 1


def test_scaling_and_clipping_change_nothing_else() -> None:
    bytes_and_points = {"scale": False, "clip_rewards": False}
    name = "SpaceInvaders"  # has more than one point to win at a time
    plain, trained = wrap_atari(game(name), **bytes_and_points), wrap_atari(game(name))
    rewards = set()
    for one, other in zip(play(plain, 100), play(trained, 100), strict=True):
        np.testing.assert_allclose(one[0] / 255, other[0], rtol=1e-6)
        if len(one) == 5:
            rewards.add(float(one[1]))
            assert other[1] == np.sign(one[1])
            assert one[2:] == other[2:]
    assert max(rewards) > 1


# ---- lives, scores, memory ----------------------------------------------------------------------


def test_breakout_has_five_episodes_a_game_and_one_score() -> None:
    env = wrap_atari(game())
    raw = env.unwrapped
    points: list[float] = []
    step = raw.step
    raw.step = lambda action: (said := step(action), points.append(said[1]))[0]
    env.action_space.seed(2)
    env.reset(seed=2)
    ends: list[tuple[int, bool, bool]] = []
    while len(ends) < 5:
        _, _, terminated, truncated, info = env.step(env.action_space.sample())
        if terminated or truncated:
            ends.append((info["lives"], env.get_wrapper_attr("was_real_done"), "eval_episode_return" in info))
            if len(ends) < 5:
                env.reset()
    assert ends == [(4, False, False), (3, False, False), (2, False, False), (1, False, False), (0, True, True)]
    assert info["eval_episode_return"] == info["final_eval_reward"] == sum(points)
    assert sum(points) > 0
    before = raw.ale.getEpisodeFrameNumber()
    env.reset()
    assert raw.ale.getEpisodeFrameNumber() < before
    env.close()


def test_a_life_of_breakout_begins_where_the_last_one_ended() -> None:
    inner = game()
    env = FireResetEnv(EpisodicLifeEnv(inner))
    env.reset(seed=0)
    while not env.step(1)[2]:
        pass
    frame = inner.unwrapped.ale.getEpisodeFrameNumber()
    _, info = env.reset()
    assert info["episode_frame_number"] == frame + 2  # the no-op and the FIRE
    assert info["lives"] == 4


def test_noops_pass_on_the_console() -> None:
    env = NoopResetEnv(game())

    def frames(seed: int) -> list[int]:
        return [env.reset(seed=one)[1]["episode_frame_number"] for one in [seed, *[None] * 15]]

    counts = frames(0)
    assert set(counts) <= set(range(1, 31))
    assert len(set(counts)) > 8
    assert counts == frames(0)
    assert counts != frames(1)


def test_the_memory_of_the_console_as_an_image() -> None:
    env = wrap(game(obs_type="ram"), ["RamWrapper", "ScaledFloatFrame", ("FrameStack", {"n_frames": 2})])
    assert env.observation_space == spaces.Box(0, 1, (2, 128, 1, 1), np.float32)
    observation, _ = env.reset(seed=0)
    ram = env.unwrapped.ale.getRAM()
    assert np.array_equal(observation[1, :, 0, 0], (ram / 255).astype(np.float32))
    assert RamWrapper(game(obs_type="ram")).reset(seed=0)[0].max() > 1
