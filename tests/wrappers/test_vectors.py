"""Wrappers of episodes, rewards, observations and actions that are no images."""

from __future__ import annotations

import itertools
import subprocess
import sys
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from stepmill.errors import ConfigError, EnvError
from stepmill.wrappers.action_wrappers import ActionRepeat, GymHybridDictAction
from stepmill.wrappers.episodes import TimeLimit
from stepmill.wrappers.observations import FlatObs, ObsPlusPrevActRew
from stepmill.wrappers.rewards import DelayReward, EvalEpisodeReturn
from support.envs.scripted import NESTED, POINT, CyclingEnv, play, rewards_of

IMAGE = NESTED["camera"]
FLOAT_IMAGE = spaces.Box(0, 1, (1, 2, 2), np.float32)
MOVING = spaces.Tuple([spaces.Discrete(3), spaces.Box(0, 1, (1,), np.float32), spaces.Box(-1, 1, (1,), np.float32)])


def ends(env: gymnasium.Env[Any, Any], steps: int) -> list[tuple[bool, bool]]:
    """(terminated, truncated) of some steps, with a reset after every end."""
    return [row[2:4] for row in play(env, steps)]


# ---- TimeLimit -----------------------------------------------------------------------------------


def test_the_limit_truncates_every_episode() -> None:
    env = TimeLimit(CyclingEnv(), max_episode_steps=3)
    assert ends(env, 7) == [(False, False), (False, False), (False, True)] * 2 + [(False, False)]


@pytest.mark.parametrize(
    ("length", "end", "expected", "told"),
    [
        (None, "terminated", [(False, False), (False, True)], True),
        (2, "terminated", [(False, False), (True, True)], False),
        (2, "truncated", [(False, False), (False, True)], True),
        (2, "both", [(False, False), (True, True)], False),
    ],
)
def test_on_the_limit_the_env_s_own_end_stands_beside_it(
    length: int | None, end: str, expected: list[tuple[bool, bool]], told: bool
) -> None:
    rows = play(TimeLimit(CyclingEnv(length=length, end=end), 2), 2)
    assert [row[2:4] for row in rows] == expected
    assert rows[1][4]["TimeLimit.truncated"] is told


def test_before_the_limit_an_end_is_the_env_s_own() -> None:
    (row,) = play(TimeLimit(CyclingEnv(length=1), 2), 1)
    assert row[2:4] == (True, False)
    assert row[4] == {"steps": 1}


def test_the_info_of_one_end_does_not_reach_the_next_episode() -> None:
    env = TimeLimit(CyclingEnv(), 1)
    env.reset()
    info = env.step(0)[4]
    assert env.reset()[1] == {}  # the env hands out one dict, over and over
    assert info == {"steps": 1, "TimeLimit.truncated": True}


def test_a_step_before_the_first_reset_counts() -> None:
    assert TimeLimit(CyclingEnv(), 1).step(0)[3]


def test_the_limit_agrees_with_gymnasium() -> None:
    for length in (1, 2, 3, 4):
        script = {"length": length, "end": "terminated"}
        theirs = gymnasium.wrappers.TimeLimit(CyclingEnv(**script), 3)
        assert ends(TimeLimit(CyclingEnv(**script), 3), 10) == ends(theirs, 10)


@pytest.mark.parametrize(("limit", "expected"), [(7, 7), (1000, 500)])
def test_the_limit_is_part_of_the_spec(limit: int, expected: int) -> None:
    env = TimeLimit(gymnasium.make("CartPole-v1"), np.int64(limit))
    assert env.spec is not None
    assert env.spec.max_episode_steps == expected
    again = gymnasium.make(env.spec)
    assert type(again) is TimeLimit
    assert again.spec == env.spec


def test_a_limit_without_one_inside_makes_the_spec_s_own() -> None:
    env = TimeLimit(gymnasium.make("CartPole-v1", max_episode_steps=-1), 2)
    assert env.spec is not None
    assert env.spec.max_episode_steps == 2
    again = gymnasium.make(env.spec)
    again.reset(seed=1)
    again.step(0)
    assert again.step(1)[3:] == (True, {"TimeLimit.truncated": True})


def layers(env: Any) -> list[type]:
    """The classes of the wrappers, the outermost first."""
    out = []
    while isinstance(env, gymnasium.Wrapper):
        out.append(type(env))
        env = env.env
    return out


@pytest.mark.parametrize("own_limit", [-1, 500])
def test_gymnasium_makes_no_second_limit_of_a_spec(own_limit: int) -> None:
    env = TimeLimit(gymnasium.make("CartPole-v1", max_episode_steps=own_limit), 7)
    assert env.spec is not None
    again = gymnasium.make(env.spec)
    assert [one for one in layers(again) if issubclass(one, gymnasium.wrappers.TimeLimit)] == [TimeLimit]
    assert gymnasium.make(again.spec).spec == env.spec


@pytest.mark.parametrize("own_limit", [-1, 500])
def test_a_limit_above_other_wrappers_stays_there(own_limit: int) -> None:
    """Below one that repeats actions it would be another one."""
    inner = gymnasium.make("CartPole-v1", max_episode_steps=own_limit)
    env = TimeLimit(ActionRepeat(inner, 2), 3)
    assert env.spec is not None
    again = gymnasium.make(env.spec)
    assert layers(again) == layers(env)
    assert ends(again, 4) == ends(env, 4)
    assert [truncated for _, truncated in ends(again, 4)][2]


def test_only_the_same_limit_is_taken_off() -> None:
    inner = gymnasium.make("CartPole-v1")
    assert TimeLimit(inner, 7).env is inner
    assert TimeLimit(inner, 500).env is inner.env  # type: ignore[attr-defined]


OTHER_LIMIT = """
import gymnasium
class Other(gymnasium.wrappers.TimeLimit):
    def step(self, action):
        *rest, truncated, info = self.env.step(action)
        self._elapsed_steps += 1
        return *rest, truncated, info
gymnasium.wrappers.TimeLimit = gymnasium.wrappers.common.TimeLimit = Other
from stepmill.wrappers import TimeLimit
env = TimeLimit(gymnasium.make("Pendulum-v1").unwrapped, 2)
env.reset()
print([env.step([0.0])[3] for _ in range(2)])
"""


def test_programs_may_replace_gymnasiums_limit() -> None:
    """RL Zoo does so, by one without type parameters that truncates in another way."""
    done = subprocess.run([sys.executable, "-c", OTHER_LIMIT], capture_output=True, text=True, check=True, timeout=600)
    assert done.stdout == "[False, True]\n"


# ---- EvalEpisodeReturn ---------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["terminated", "truncated", "both"])
def test_the_last_info_tells_the_sum_of_the_rewards(end: str) -> None:
    rows = play(EvalEpisodeReturn(CyclingEnv(rewards=[1, 2.5, -1], length=3, end=end)), 6)
    for last in (rows[2], rows[5]):  # the second episode begins at 0
        assert last[4]["eval_episode_return"] == 2.5
        assert type(last[4]["eval_episode_return"]) is float
        assert last[4]["final_eval_reward"] is last[4]["eval_episode_return"]
    assert [row[1] for row in rows] == [1, 2.5, -1] * 2
    assert [row[4] for row in rows[:2]] == [{"steps": 1}, {"steps": 2}]


@pytest.mark.parametrize("reward", [np.float32(0.5), np.array(0.5), np.array([0.5], np.float32)])
def test_rewards_of_numpy_sum_to_a_python_float(reward: Any) -> None:
    (row,) = play(EvalEpisodeReturn(CyclingEnv(rewards=[reward], length=1)), 1)
    assert type(row[4]["eval_episode_return"]) is float
    assert row[4]["eval_episode_return"] == 0.5


def test_a_reset_in_the_middle_begins_at_0() -> None:
    env = EvalEpisodeReturn(CyclingEnv(rewards=[4, 1], length=2))
    env.reset()
    env.step(0)
    env.reset()
    env.step(0)
    assert env.step(0)[4]["eval_episode_return"] == 5


def test_the_return_so_far_can_be_read_in_the_middle() -> None:
    env = EvalEpisodeReturn(CyclingEnv(rewards=[4, 1], length=2))
    env.reset()
    env.step(0)
    assert env.episode_return == 4
    env.step(0)
    assert env.episode_return == 5
    env.reset()
    assert env.episode_return == 0


@pytest.mark.parametrize("name", ["eval_episode_return", "final_eval_reward"])
def test_what_the_env_says_of_its_episode_stands(name: str) -> None:
    (row,) = play(EvalEpisodeReturn(CyclingEnv(length=1, last_info={name: np.float32(0.75)})), 1)
    assert (row[4]["eval_episode_return"], row[4]["final_eval_reward"]) == (0.75, 0.75)
    assert type(row[4]["eval_episode_return"]) is float


def test_the_env_s_own_info_is_not_written_to() -> None:
    env = EvalEpisodeReturn(CyclingEnv(length=1))
    env.reset()
    info = env.step(0)[4]
    env.reset()  # the env hands out one dict, over and over
    assert info == {"steps": 1, "eval_episode_return": 1, "final_eval_reward": 1}


def test_the_innermost_of_two_tells_the_true_score() -> None:
    clipped = gymnasium.wrappers.TransformReward(EvalEpisodeReturn(CyclingEnv(rewards=[7], length=1)), np.sign)
    (row,) = play(EvalEpisodeReturn(clipped), 1)
    assert row[1] == 1
    assert row[4]["eval_episode_return"] == 7


# ---- ActionRepeat --------------------------------------------------------------------------------


def test_an_action_is_repeated_and_its_rewards_summed() -> None:
    script = CyclingEnv([(n, n) for n in range(7)], rewards=[1, 2, 4, 8, 16, 32])
    env = ActionRepeat(script, action_repeat=3)
    rows = play(env, 2, action=2)
    assert [row[1] for row in rows] == [7, 56]
    assert all(type(row[1]) is float for row in rows)
    assert script.received == [2] * 6
    assert rows[1][0].tolist() == [6, 6]
    assert rows[1][4]["steps"] == 6


@pytest.mark.parametrize("end", ["terminated", "truncated", "both"])
def test_a_repetition_stops_at_an_end(end: str) -> None:
    script = CyclingEnv(rewards=[1, 2, 4, 8, 16], length=5, end=end)
    rows = play(ActionRepeat(script, 3), 4)
    assert [row[1] for row in rows] == [7, 24, 7, 24]
    last = (end != "truncated", end != "terminated")
    assert [row[2:4] for row in rows] == [(False, False), last] * 2
    assert len(script.received) == 10


class Hiccup(CyclingEnv):
    """Its second step is abnormal."""

    def step(self, action: Any) -> Any:
        *row, info = super().step(action)
        return (*row, {"abnormal": info["steps"] == 2})


@pytest.mark.parametrize(("repeat", "expected"), [(1, [False, True, False]), (2, [True, False]), (3, [True, False])])
def test_an_abnormal_repetition_makes_the_step_abnormal(repeat: int, expected: list[bool]) -> None:
    rows = play(ActionRepeat(Hiccup(), repeat), len(expected))
    assert [row[4]["abnormal"] for row in rows] == expected


def test_repetitions_agree_with_gymnasium() -> None:
    theirs = getattr(gymnasium.wrappers, "RepeatAction", None)
    if theirs is None:
        pytest.skip("this Gymnasium has no RepeatAction")
    for repeat, length in itertools.product((1, 2, 3), (1, 4, 5)):
        script = {"observations": [(n, -n) for n in range(6)], "rewards": [1, 2, 3], "length": length}
        ours = play(ActionRepeat(CyclingEnv(**script), repeat), 6)
        np.testing.assert_equal(ours, play(theirs(CyclingEnv(**script), repeat), 6))


# ---- DelayReward ---------------------------------------------------------------------------------


def test_rewards_are_paid_every_k_steps() -> None:
    env = DelayReward(CyclingEnv(rewards=[1, 2, 4, 8, 16, 32, 64]), delay_reward_step=3)
    rewards = rewards_of(env, 7)
    assert rewards == [0, 0, 7, 0, 0, 56, 0]
    assert all(type(one) is float for one in rewards)


@pytest.mark.parametrize("end", ["terminated", "truncated", "both"])
def test_at_an_end_everything_is_paid(end: str) -> None:
    env = DelayReward(CyclingEnv(rewards=[1, 2, 4, 8], length=4, end=end), 3)
    assert rewards_of(env, 8) == [0, 0, 7, 8] * 2  # and the next episode counts its steps anew


def test_an_abandoned_episode_owes_nothing() -> None:
    env = DelayReward(CyclingEnv(rewards=[1, 2, 4]), 2)
    env.reset()
    env.step(0)
    assert rewards_of(env, 2) == [0, 3]


def test_a_delay_of_one_step_is_none() -> None:
    assert rewards_of(DelayReward(CyclingEnv(rewards=[1, 2, 4]), 1), 3) == [1, 2, 4]


# ---- arguments and rewards of these --------------------------------------------------------------


COUNTED = [(TimeLimit, "max_episode_steps"), (ActionRepeat, "action_repeat"), (DelayReward, "delay_reward_step")]


@pytest.mark.parametrize(("wrapper", "name"), [*COUNTED, (FlatObs, "size")])
@pytest.mark.parametrize("value", [0, -3, 1.0, "3", True])
def test_a_count_that_cannot_be_is_refused(wrapper: Any, name: str, value: Any) -> None:
    expected = f"{wrapper.__name__}: {name}: expected a whole number.*, got {value!r}"
    with pytest.raises(ConfigError, match=expected):
        wrapper(CyclingEnv(), **{name: value})


@pytest.mark.parametrize(("wrapper", "name"), COUNTED)
def test_a_count_of_numpy_is_taken(wrapper: Any, name: str) -> None:
    assert len(play(wrapper(CyclingEnv(), **{name: np.int32(2)}), 3)) == 3


@pytest.mark.parametrize("wrapper", [EvalEpisodeReturn, ActionRepeat, DelayReward, ObsPlusPrevActRew])
@pytest.mark.parametrize("reward", [np.zeros(2), None, "1"])
def test_a_reward_that_is_not_one_number_is_refused(wrapper: Any, reward: Any) -> None:
    env = wrapper(CyclingEnv(rewards=[reward]), **ARGUMENTS.get(wrapper, {}))
    env.reset()
    with pytest.raises(EnvError, match=f"{wrapper.__name__}: expected one number as reward, got "):
        env.step(0)


# ---- all of them ---------------------------------------------------------------------------------


ARGUMENTS: dict[Any, dict[str, Any]] = {
    TimeLimit: {"max_episode_steps": 4},
    EvalEpisodeReturn: {},
    ActionRepeat: {"action_repeat": 2},
    DelayReward: {"delay_reward_step": 2},
    FlatObs: {},
    ObsPlusPrevActRew: {},
    GymHybridDictAction: {},
}
OBSERVATIONS = [POINT, IMAGE, FLOAT_IMAGE, NESTED, spaces.Discrete(4)]


def sample_env(observation: spaces.Space[Any], action: spaces.Space[Any]) -> CyclingEnv:
    observation.seed(1)
    script = [observation.sample() for _ in range(4)]
    return CyclingEnv(script, observation_space=observation, action_space=action, rewards=[1, 2, 4], length=3)


def act_space(wrapper: Any) -> spaces.Space[Any]:
    return MOVING if wrapper is GymHybridDictAction else spaces.Discrete(3)


@pytest.mark.parametrize("wrapper", [TimeLimit, EvalEpisodeReturn, ActionRepeat, DelayReward, GymHybridDictAction])
@pytest.mark.parametrize("observation", OBSERVATIONS, ids=lambda space: type(space).__name__)
def test_observations_of_every_kind_pass_as_they_are(wrapper: Any, observation: Any) -> None:
    env = sample_env(observation, act_space(wrapper))
    wrapped = wrapper(env, **ARGUMENTS[wrapper])
    assert wrapped.observation_space == env.observation_space
    assert wrapped.reset()[0] is env.reset()[0]
