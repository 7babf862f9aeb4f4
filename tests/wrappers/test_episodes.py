"""The wrappers that act at the ends of episodes, move by move: no-ops, skipped frames, lives, FIRE, stacks, signs."""

from __future__ import annotations

import re
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.utils.env_checker import data_equivalence
from gymnasium.wrappers import FrameStackObservation, MaxAndSkipObservation, TransformReward

from stepmill.errors import ConfigError, EnvError, SpaceError
from stepmill.wrappers import ClipRewardEnv, EpisodicLifeEnv, FireResetEnv, FrameStack, MaxAndSkipEnv, NoopResetEnv
from support.envs.scripted import FLOATS, GREY, MEANINGS, PAIR, RGB, SCENE, VECTOR, ChanceEnv, Moment, ScriptEnv

RESET = ("reset", None, None)
IMAGE = spaces.Box(0, 255, (2, 3), np.uint8)
SPACES = [spaces.Box(0, 255, (2,), np.uint8), IMAGE, spaces.Box(0, 255, (2, 3), np.float32)]
every_space = pytest.mark.parametrize("space", SPACES, ids=str)


def game(*values: float, end: str = "terminated", **constant: Any) -> list[Moment]:
    """A script of frames; the last one ends it."""
    return [Moment(value, end=end if at == len(values) - 1 else "", **constant) for at, value in enumerate(values)]


class Always:
    """In place of a generator: draws the highest number."""

    def integers(self, low: int, high: int) -> int:
        return high - 1


# ---- NoopResetEnv -------------------------------------------------------------------------------


def noops_of(env: ScriptEnv) -> int:
    """How many no-ops came after the last reset."""
    last = max(at for at, call in enumerate(env.calls) if isinstance(call, tuple))
    assert set(env.calls[last + 1 :]) == {0}
    return len(env.calls) - last - 1


def test_from_1_to_noop_max_noops_follow_each_reset() -> None:
    inner = ScriptEnv(game(*range(9)))
    env = NoopResetEnv(inner, 3)
    counts = []
    for seed in [7, *[None] * 99]:
        observation, _ = env.reset(seed=seed)
        counts.append(noops_of(inner))
        assert observation.tolist() == [counts[-1]] * 2
    assert {one: counts.count(one) > 20 for one in set(counts)} == {1: True, 2: True, 3: True}
    assert [call for call in inner.calls if isinstance(call, tuple)] == [("reset", 7, None), *[RESET] * 99]


def test_noops_are_drawn_from_the_envs_own_generator() -> None:
    inner = ScriptEnv(game(*range(40)))
    env = NoopResetEnv(inner)
    twin = np.random.Generator(np.random.PCG64(5))
    before = np.random.get_state()[1]
    for seed in (5, None, None):
        env.reset(seed=seed)
        assert noops_of(inner) == twin.integers(1, 31)
    assert np.array_equal(np.random.get_state()[1], before)
    assert inner.np_random.bit_generator.state == twin.bit_generator.state


def test_noops_repeat_over_an_env_that_leaves_gymnasiums_generator_alone() -> None:
    class OwnChance(ScriptEnv):
        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            return super().reset(options=options)

    def counts(seed: int) -> list[int]:
        inner = OwnChance(game(*range(40)))
        env = NoopResetEnv(inner)
        found = []
        for one in (seed, None, None, seed):
            env.reset(seed=one)
            found.append(noops_of(inner))
        return found

    assert counts(3) == counts(3)
    assert counts(3) != counts(4)
    assert counts(3)[0] == counts(3)[3]


@pytest.mark.parametrize("end", ["terminated", "truncated"])
def test_an_episode_that_ends_during_the_noops_is_followed_by_another(end: str) -> None:
    inner = ScriptEnv(game(0, 1, 2, end=end), game(10, 11, 12, 13), game(20, 21))
    inner.np_random = Always()
    env = NoopResetEnv(inner, 3)
    assert env.reset(options={"level": 1})[0].tolist() == [11, 11]
    assert inner.calls == [("reset", None, {"level": 1}), 0, 0, ("reset", None, {"level": 1}), 0]


def test_an_episode_that_ends_on_the_last_noop_leaves_a_fresh_one() -> None:
    inner = ScriptEnv(game(0, 1), game(10, 11))
    observation, _ = NoopResetEnv(inner, 1).reset(seed=3)
    assert observation.tolist() == [10, 10]
    assert inner.calls == [("reset", 3, None), 0, RESET]  # with the seed it would be the same one again


def test_episodes_that_always_end_at_once_do_not_hang() -> None:
    inner = ScriptEnv(game(0, 1))
    inner.np_random = Always()
    assert NoopResetEnv(inner, 5).reset()[0].tolist() == [0, 0]
    assert inner.calls == [RESET, 0] * 5 + [RESET]


def test_the_info_is_that_of_the_reset_with_the_noops_on_top() -> None:
    script = [
        Moment(0, info={"seeds": 1, "frame": 0}),
        Moment(1, info={"frame": 1}),
        Moment(2, info={"frame": 2}, end="terminated"),
    ]
    for in_place in (False, True):
        inner = ScriptEnv(script, in_place=in_place)
        inner.np_random = Always()
        assert NoopResetEnv(inner, 1).reset()[1] == {"seeds": 1, "frame": 1}
        assert NoopResetEnv(inner, 2).reset()[1] == {"seeds": 1, "frame": 0}  # of the new episode


def test_noops_need_no_meanings_but_those_that_are_told_must_be_right() -> None:
    NoopResetEnv(ScriptEnv(game(0, 1), meanings=None))
    with pytest.raises(SpaceError, match=r"NoopResetEnv: expected .*action 0 means NOOP, got .*\['UP', 'NOOP'\]"):
        NoopResetEnv(ScriptEnv(game(0, 1), meanings=["UP", "NOOP"]))
    with pytest.raises(SpaceError, match=r"EpisodicLifeEnv: expected .*action 0 means NOOP, got"):
        EpisodicLifeEnv(ScriptEnv(game(0, 1), meanings=[]))


@pytest.mark.parametrize("wrapper", [NoopResetEnv, EpisodicLifeEnv])
@pytest.mark.parametrize("space", [spaces.Box(-1, 1, (2,)), spaces.Discrete(3, start=1), spaces.MultiBinary(2)])
def test_noops_need_an_action_0(wrapper: Any, space: spaces.Space[Any]) -> None:
    message = f"{wrapper.__name__}: expected a Discrete action space that holds action 0, the no-op, got {space}"
    with pytest.raises(SpaceError, match=re.escape(message)):
        wrapper(ScriptEnv(game(0, 1), action_space=space, meanings=None))


# ---- MaxAndSkipEnv ------------------------------------------------------------------------------


@every_space
def test_four_frames_are_one_step(space: spaces.Box) -> None:
    script = [Moment(value, reward) for value, reward in zip([9, 1, 8, 3, 2, 4, 4, 5, 6], range(9), strict=True)]
    inner = ScriptEnv(script, space=space)
    env = MaxAndSkipEnv(inner)
    assert env.reset()[0].tolist() == np.full(space.shape, 9).tolist()
    observation, reward, terminated, truncated, _ = env.step(2)
    assert observation.dtype == space.dtype
    assert (observation == 3).all()  # of 1, 8, 3, 2
    assert (reward, terminated, truncated) == (10.0, False, False)
    observation, reward, *_ = env.step(3)
    assert (observation == 6).all()
    assert reward == 26.0
    assert inner.calls == [RESET, 2, 2, 2, 2, 3, 3, 3, 3]


def test_the_maximum_is_taken_pixel_by_pixel() -> None:
    frames = [[0, 0], [90, 90], [5, 1], [2, 7]]
    inner = ScriptEnv([Moment(np.array(frame)) for frame in frames])
    env = MaxAndSkipEnv(inner, 3)
    env.reset()
    assert env.step(0)[0].tolist() == [5, 7]


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("end", ["terminated", "truncated"])
@pytest.mark.parametrize(("values", "expected"), [((1,), 1), ((6, 2), 6), ((9, 1, 2), 2), ((9, 9, 3, 1), 3)])
def test_an_end_on_the_way_shows_the_last_two_frames_there_were(
    values: tuple[int, ...], expected: int, end: str, in_place: bool
) -> None:
    bright = game(200, 201, 202, 203, 204)
    inner = ScriptEnv(bright, game(100, *values, end=end, reward=1.0), in_place=in_place)
    env = MaxAndSkipEnv(inner)
    env.reset()
    env.step(1)  # nothing of this brighter episode may be seen in the next
    env.reset()
    observation, reward, terminated, truncated, _ = env.step(2)
    assert observation.tolist() == [expected] * 2
    assert (reward, terminated, truncated) == (len(values), end == "terminated", end == "truncated")
    assert inner.calls[6:] == [2] * len(values)


def test_a_skip_of_one_changes_nothing() -> None:
    env = MaxAndSkipEnv(ScriptEnv(game(5, 4, 3)), 1)
    env.reset()
    assert [env.step(0)[0].tolist(), env.step(0)[0].tolist()] == [[4, 4], [3, 3]]


def test_an_abnormal_frame_makes_an_abnormal_step() -> None:
    script = [Moment(0), Moment(1, info={"abnormal": True, "n": 1}), Moment(2, info={"n": 2}), *[Moment(3)] * 2]
    env = MaxAndSkipEnv(ScriptEnv(script, in_place=True), 2)
    env.reset()
    assert env.step(0)[4] == {"abnormal": True, "n": 2}
    assert env.step(0)[4] == {}


@pytest.mark.parametrize("space", [RGB, FLOATS, VECTOR], ids=str)
def test_max_and_skip_is_gymnasiums_while_no_episode_ends_early(space: spaces.Box) -> None:
    ours, theirs = MaxAndSkipEnv(ChanceEnv(space), 3), MaxAndSkipObservation(ChanceEnv(space), 3)
    full = 0
    for seed in range(12):
        assert data_equivalence(ours.reset(seed=seed), theirs.reset(seed=seed))
        while True:
            one, other = ours.step(2), theirs.step(2)
            assert data_equivalence(one[1:], other[1:])
            if one[2] or one[3]:
                break
            assert data_equivalence(one[0], other[0])
            full += 1
    assert full > 10


@pytest.mark.parametrize("space", [SCENE, PAIR, spaces.Discrete(3), spaces.MultiBinary(3)], ids=str)
def test_max_and_skip_refuses_what_is_no_box(space: spaces.Space[Any]) -> None:
    with pytest.raises(SpaceError, match=r"MaxAndSkipEnv: expected a Box observation space, got \w+\("):
        MaxAndSkipEnv(ChanceEnv(space))


def test_max_and_skip_takes_one_number_as_reward() -> None:
    env = MaxAndSkipEnv(ScriptEnv([Moment(0), Moment(1, reward=np.array([2.0])), Moment(1, reward=np.float32(1))]), 2)
    env.reset()
    assert env.step(0)[1] == 3.0
    env = MaxAndSkipEnv(ScriptEnv([Moment(0), Moment(1, reward=np.array([2.0, 1.0]))]), 2)
    env.reset()
    with pytest.raises(EnvError, match="MaxAndSkipEnv: expected one number as reward, got"):
        env.step(0)


# ---- EpisodicLifeEnv ----------------------------------------------------------------------------


def lives_script(*lives: int, end: str = "terminated") -> list[Moment]:
    return [Moment(at, 1.0, left, end if at == len(lives) - 1 else "") for at, left in enumerate(lives)]


@every_space
def test_a_lost_life_ends_the_episode_and_the_game_goes_on(space: spaces.Box) -> None:
    inner = ScriptEnv(lives_script(3, 3, 2, 2, 2, 1, 1, 0), lives_script(3, 3, 3), space=space)
    env = EpisodicLifeEnv(inner)
    story = [
        # taken, value, terminated, lives, was_real_done
        ("reset", 0, None, 3, False),
        (2, 1, False, 3, False),
        (2, 2, True, 2, False),
        ("reset", 3, None, 2, False),
        (2, 4, False, 2, False),
        (2, 5, True, 1, False),
        ("reset", 6, None, 1, False),
        (2, 7, True, 0, True),
        ("reset", 0, None, 3, False),
    ]
    for taken, value, ended, lives, real in story:
        said = env.reset() if taken == "reset" else env.step(taken)
        assert (said[0] == value).all()
        assert ended is None or said[2:4] == (ended, False)
        assert (env.lives, env.was_real_done) == (lives, real)
    assert inner.calls == [RESET, 2, 2, 0, 2, 2, 0, 2, RESET]


def test_a_game_that_ends_on_the_noop_between_lives_is_reset() -> None:
    inner = ScriptEnv(lives_script(2, 1, 1), lives_script(5, 5, 5))
    env = EpisodicLifeEnv(inner)
    env.reset()
    assert env.step(2)[2]
    observation, info = env.reset()
    assert (observation.tolist(), info, env.lives) == ([0, 0], {"lives": 5}, 5)
    assert inner.calls == [RESET, 2, 0, RESET]
    assert not env.step(2)[2]


def test_a_life_lost_on_the_noop_between_lives_ends_nothing() -> None:
    env = EpisodicLifeEnv(ScriptEnv(lives_script(3, 2, 1, 1, 1)))
    env.reset()
    assert env.step(2)[2]
    env.reset()
    assert env.lives == 1
    assert not env.step(2)[2]


def test_the_life_that_leaves_none_counts_though_the_game_goes_on() -> None:
    inner = ScriptEnv(lives_script(1, 0, 0, 0, 0))
    env = EpisodicLifeEnv(inner)
    env.reset()
    assert env.step(2)[2]
    assert not env.was_real_done
    env.reset()
    assert not env.step(2)[2]
    assert env.step(2)[2]
    assert env.was_real_done
    assert inner.calls == [RESET, 2, 0, 2, 2]


def test_a_life_won_ends_nothing() -> None:
    env = EpisodicLifeEnv(ScriptEnv(lives_script(2, 3, 2, 2)))
    env.reset()
    assert [env.step(2)[2], env.step(2)[2]] == [False, True]


def test_a_truncated_game_is_really_over() -> None:
    inner = ScriptEnv(lives_script(3, 3, end="truncated"), lives_script(3, 3))
    env = EpisodicLifeEnv(inner)
    env.reset()
    assert env.step(2)[2:4] == (False, True)
    assert env.was_real_done
    env.reset()
    assert inner.calls == [RESET, 2, RESET]


@pytest.mark.parametrize("asked", [{"seed": 4}, {"options": {"level": 2}}, {"seed": 0, "options": {"level": 2}}])
def test_a_seed_or_options_reset_the_game_at_once(asked: dict[str, Any]) -> None:
    inner = ScriptEnv(lives_script(3, 2, 2), lives_script(3, 3))
    env = EpisodicLifeEnv(inner)
    env.reset()
    env.step(2)
    env.reset(**asked)
    assert inner.calls == [RESET, 2, ("reset", asked.get("seed"), asked.get("options"))]
    assert env.lives == 3


def test_lives_are_asked_of_the_console_where_the_info_has_none() -> None:
    class Console(ScriptEnv):
        ale = property(lambda self: self)

        def lives(self) -> int:
            return [3, 3, 2][self._at]

    env = EpisodicLifeEnv(Console(game(0, 1, 2, 3)))
    env.reset()
    assert [env.step(2)[2], env.lives, env.step(2)[2], env.lives] == [False, 3, True, 2]


def test_an_env_without_lives_is_refused() -> None:
    with pytest.raises(SpaceError, match=r"EpisodicLifeEnv: expected .*info\[\"lives\"\] or ale.lives\(\), got <Scri"):
        EpisodicLifeEnv(ScriptEnv(game(0, 1))).reset()


# ---- FireResetEnv -------------------------------------------------------------------------------


def test_fire_follows_each_reset() -> None:
    inner = ScriptEnv(game(0, 1, 2, 3))
    env = FireResetEnv(inner)
    assert env.reset(seed=3, options={"level": 1})[0].tolist() == [1, 1]
    assert env.step(2)[0].tolist() == [2, 2]
    assert env.reset()[0].tolist() == [1, 1]
    assert inner.calls == [("reset", 3, {"level": 1}), 1, 2, RESET, 1]


@pytest.mark.parametrize("end", ["terminated", "truncated"])
def test_an_episode_that_ends_on_the_fire_is_followed_by_another(end: str) -> None:
    inner = ScriptEnv(game(0, 1, end=end), game(10, 11, 12))
    env = FireResetEnv(inner)
    assert env.reset(seed=3, options={"level": 1})[0].tolist() == [10, 10]
    assert inner.calls == [("reset", 3, {"level": 1}), 1, ("reset", None, {"level": 1})]
    assert env.step(2)[0].tolist() == [11, 11]


@pytest.mark.parametrize("in_place", [False, True])
def test_the_info_is_that_of_the_reset_with_the_fire_on_top(in_place: bool) -> None:
    script = [Moment(0, info={"seeds": 1, "frame": 0}), Moment(1, info={"frame": 1}), Moment(2)]
    assert FireResetEnv(ScriptEnv(script, in_place=in_place)).reset()[1] == {"seeds": 1, "frame": 1}


@pytest.mark.parametrize(
    ("meanings", "got"),
    [
        (None, r"one without get_action_meanings\(\)"),
        (["NOOP", "UP", "FIRE"], r"one with the actions \['NOOP', 'UP', 'FIRE'\]"),
        (["NOOP"], r"one with the actions \['NOOP'\]"),
    ],
)
def test_an_env_without_fire_is_refused(meanings: Any, got: str) -> None:
    with pytest.raises(SpaceError, match=f"FireResetEnv: expected an env whose action 1 means FIRE, got {got}"):
        FireResetEnv(ScriptEnv(game(0, 1), meanings=meanings))


@pytest.mark.parametrize("space", [spaces.Box(-1, 1, (2,)), spaces.Discrete(1)], ids=str)
def test_fire_needs_an_action_1(space: spaces.Space[Any]) -> None:
    with pytest.raises(SpaceError, match=r"FireResetEnv: expected a Discrete action space .*, got \w+\("):
        FireResetEnv(ScriptEnv(game(0, 1), action_space=space))


def test_fire_follows_each_life() -> None:
    inner = ScriptEnv(lives_script(2, 2, 1, 1, 1, 1), lives_script(2, 2, 2))
    env = FireResetEnv(EpisodicLifeEnv(inner))
    env.reset()
    assert env.step(2)[2]
    assert env.reset()[0].tolist() == [4, 4]
    assert inner.calls == [RESET, 1, 2, 0, 1]


def test_a_life_lost_on_the_fire_leads_to_the_next_one() -> None:
    inner = ScriptEnv(lives_script(3, 2, 2, 2))
    env = FireResetEnv(EpisodicLifeEnv(inner))
    assert env.reset()[0].tolist() == [2, 2]
    assert inner.calls == [RESET, 1, 0]


# ---- FrameStack ---------------------------------------------------------------------------------


@pytest.mark.parametrize("in_place", [False, True])
@every_space
def test_the_last_frames_oldest_first_and_the_first_repeated_at_reset(space: spaces.Box, in_place: bool) -> None:
    env = FrameStack(ScriptEnv(game(1, 2, 3, 4, 5), game(11, 12), space=space, in_place=in_place), 3)
    assert env.observation_space == spaces.Box(0, 255, (3, *space.shape), space.dtype.type)

    def stacked(*values: int) -> list[Any]:
        return np.stack([np.full(space.shape, value) for value in values]).tolist()

    first, _ = env.reset()
    assert first.dtype == space.dtype
    assert first.tolist() == stacked(1, 1, 1)
    assert env.step(0)[0].tolist() == stacked(1, 1, 2)
    assert env.step(0)[0].tolist() == stacked(1, 2, 3)
    assert env.step(0)[0].tolist() == stacked(2, 3, 4)
    observation, _, terminated, *_ = env.step(0)
    assert (observation.tolist(), terminated) == (stacked(3, 4, 5), True)
    assert env.reset()[0].tolist() == stacked(11, 11, 11)  # nothing of the episode before
    assert env.step(0)[0].tolist() == stacked(11, 11, 12)
    assert first.tolist() == stacked(1, 1, 1)


def test_changing_a_stack_that_was_handed_out_changes_no_later_one() -> None:
    env = FrameStack(ScriptEnv(game(1, 2, 3)), 2)
    env.reset()[0][...] = 99
    assert env.step(0)[0].tolist() == [[1, 1], [2, 2]]


def test_every_part_of_a_dict_or_tuple_is_stacked() -> None:
    inside = spaces.Dict({"eye": IMAGE, "both": spaces.Tuple((VECTOR, spaces.MultiBinary(2)))})
    env = FrameStack(ScriptEnv(game(0, 1, 1), space=inside), 2)
    env.reset()
    observation = env.step(0)[0]
    assert env.observation_space.contains(observation)
    assert observation["eye"].tolist() == [[[0] * 3] * 2, [[1] * 3] * 2]
    assert observation["both"][0].tolist() == [[0.0] * 3, [1.0] * 3]
    assert observation["both"][1].tolist() == [[0, 0], [1, 1]]


@pytest.mark.parametrize(
    "space", [RGB, FLOATS, VECTOR, SCENE, PAIR, spaces.MultiDiscrete([3, 5]), spaces.MultiBinary([2, 2])], ids=str
)
@pytest.mark.parametrize("n_frames", [1, 2, 4])
def test_frame_stack_is_gymnasiums(space: spaces.Space[Any], n_frames: int) -> None:
    ours = FrameStack(ChanceEnv(space), n_frames)
    theirs = FrameStackObservation(ChanceEnv(space), n_frames)
    assert ours.observation_space == theirs.observation_space
    assert data_equivalence(ours.reset(seed=2), theirs.reset(seed=2))
    ends = 0
    for _ in range(40):
        one, other = ours.step(2), theirs.step(2)
        assert data_equivalence(one, other)
        if one[2] or one[3]:
            ends += 1
            assert data_equivalence(ours.reset(), theirs.reset())
    assert ends > 1


@pytest.mark.parametrize(
    "space",
    [spaces.Discrete(3), spaces.Text(5), spaces.Dict({"a": spaces.Discrete(3)}), spaces.Tuple((GREY, spaces.Text(2)))],
    ids=str,
)
def test_frame_stack_refuses_what_has_no_shape_to_stack(space: spaces.Space[Any]) -> None:
    with pytest.raises(SpaceError, match=r"FrameStack: expected Box, MultiBinary .*, got \w+\("):
        FrameStack(ChanceEnv(space))


# ---- ClipRewardEnv ------------------------------------------------------------------------------


def test_the_reward_is_its_sign() -> None:
    rewards = [-3.5, 0.0, 2, np.float32(1e-9), -1e300, np.array([7.0])]
    env = ClipRewardEnv(ScriptEnv([Moment(0), *[Moment(0, reward) for reward in rewards]]))
    env.reset()
    clipped = [env.step(0)[1] for _ in rewards]
    assert clipped == [-1.0, 0.0, 1.0, 1.0, -1.0, 1.0]
    assert {type(one) for one in clipped} == {float}


def test_clip_reward_is_gymnasiums_transformed_reward() -> None:
    ours, theirs = ClipRewardEnv(ChanceEnv(SCENE)), TransformReward(ChanceEnv(SCENE), np.sign)
    assert data_equivalence(ours.reset(seed=0), theirs.reset(seed=0))
    for _ in range(10):
        one, other = ours.step(0), theirs.step(0)
        assert data_equivalence(one[0], other[0])
        assert one[1:] == other[1:]


def test_clip_reward_refuses_a_reward_of_many_numbers() -> None:
    env = ClipRewardEnv(ScriptEnv([Moment(0), Moment(0, np.array([1.0, -1.0]))]))
    env.reset()
    with pytest.raises(EnvError, match="ClipRewardEnv: expected one number as reward, got array"):
        env.step(0)


# ---- arguments ----------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [0, -1, 1.5, "4", True, None])
@pytest.mark.parametrize(
    ("wrapper", "argument"), [(NoopResetEnv, "noop_max"), (MaxAndSkipEnv, "skip"), (FrameStack, "n_frames")]
)
def test_a_count_that_cannot_be_is_an_error(wrapper: Any, argument: str, value: Any) -> None:
    message = f"{wrapper.__name__}: {argument}: expected a whole number.*, got {value!r}"
    with pytest.raises(ConfigError, match=message):
        wrapper(ChanceEnv(RGB), **{argument: value})


def test_meanings_may_come_from_a_wrapper_in_between() -> None:
    class Renamed(gymnasium.Wrapper[Any, Any, Any, Any]):
        def get_action_meanings(self) -> list[str]:
            return list(MEANINGS)

    inner = ScriptEnv(game(0, 1, 2, 3), meanings=["A", "B", "C", "D"])
    env = FireResetEnv(NoopResetEnv(Renamed(inner), 1))
    assert env.reset()[0].tolist() == [2, 2]
    with pytest.raises(SpaceError, match="FireResetEnv: expected an env whose action 1 means FIRE"):
        FireResetEnv(inner)
