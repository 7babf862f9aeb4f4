"""Wrappers of episodes, rewards, observations and actions that are no images."""

from __future__ import annotations

import copy
import itertools
import pickle
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

from stepmill.envs.timestep import element_info_of
from stepmill.errors import ActionError, ConfigError, EnvError, SpaceError
from stepmill.wrappers.action_repeat import ActionRepeat
from stepmill.wrappers.delay_reward import DelayReward
from stepmill.wrappers.eval_episode_return import EvalEpisodeReturn
from stepmill.wrappers.flat_obs import FlatObs
from stepmill.wrappers.gym_hybrid_dict_action import GymHybridDictAction
from stepmill.wrappers.obs_plus_prev_act_rew import ObsPlusPrevActRew
from stepmill.wrappers.time_limit import TimeLimit
from support.wrapper_probe import VECTOR, ScriptedEnv, play, rewards_of

IMAGE = spaces.Box(0, 255, (2, 3, 1), np.uint8)
FLOAT_IMAGE = spaces.Box(0, 1, (1, 2, 2), np.float32)
NESTED = spaces.Dict(
    {
        "camera": IMAGE,
        "gear": spaces.Discrete(3, start=-1),
        "rest": spaces.Tuple([spaces.MultiBinary(2), spaces.Box(-1, 1, (), np.float64)]),
    }
)
MOVING = spaces.Tuple([spaces.Discrete(3), spaces.Box(0, 1, (1,), np.float32), spaces.Box(-1, 1, (1,), np.float32)])


def ends(env: gymnasium.Env[Any, Any], steps: int) -> list[tuple[bool, bool]]:
    """(terminated, truncated) of some steps, with a reset after every end."""
    return [row[2:4] for row in play(env, steps)]


# ---- TimeLimit ------------------------------------------------------------------------------------


def test_the_limit_truncates_every_episode() -> None:
    env = TimeLimit(ScriptedEnv(), max_episode_steps=3)
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
    rows = play(TimeLimit(ScriptedEnv(length=length, end=end), 2), 2)
    assert [row[2:4] for row in rows] == expected
    assert rows[1][4]["TimeLimit.truncated"] is told


def test_before_the_limit_an_end_is_the_env_s_own() -> None:
    (row,) = play(TimeLimit(ScriptedEnv(length=1), 2), 1)
    assert row[2:4] == (True, False)
    assert row[4] == {"steps": 1}


def test_the_info_of_one_end_does_not_reach_the_next_episode() -> None:
    env = TimeLimit(ScriptedEnv(), 1)
    env.reset()
    info = env.step(0)[4]
    assert env.reset()[1] == {}  # the env hands out one dict, over and over
    assert info == {"steps": 1, "TimeLimit.truncated": True}


def test_a_step_before_the_first_reset_counts() -> None:
    assert TimeLimit(ScriptedEnv(), 1).step(0)[3]


def test_the_limit_agrees_with_gymnasium() -> None:
    for length in (1, 2, 3, 4):
        script = {"length": length, "end": "terminated"}
        theirs = gymnasium.wrappers.TimeLimit(ScriptedEnv(**script), 3)
        assert ends(TimeLimit(ScriptedEnv(**script), 3), 10) == ends(theirs, 10)


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


# ---- EvalEpisodeReturn ----------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["terminated", "truncated", "both"])
def test_the_last_info_tells_the_sum_of_the_rewards(end: str) -> None:
    rows = play(EvalEpisodeReturn(ScriptedEnv(rewards=[1, 2.5, -1], length=3, end=end)), 6)
    for last in (rows[2], rows[5]):  # the second episode begins at 0
        assert last[4]["eval_episode_return"] == 2.5
        assert type(last[4]["eval_episode_return"]) is float
        assert last[4]["final_eval_reward"] is last[4]["eval_episode_return"]
    assert [row[1] for row in rows] == [1, 2.5, -1] * 2
    assert [row[4] for row in rows[:2]] == [{"steps": 1}, {"steps": 2}]


@pytest.mark.parametrize("reward", [np.float32(0.5), np.array(0.5), np.array([0.5], np.float32)])
def test_rewards_of_numpy_sum_to_a_python_float(reward: Any) -> None:
    (row,) = play(EvalEpisodeReturn(ScriptedEnv(rewards=[reward], length=1)), 1)
    assert type(row[4]["eval_episode_return"]) is float
    assert row[4]["eval_episode_return"] == 0.5


def test_a_reset_in_the_middle_begins_at_0() -> None:
    env = EvalEpisodeReturn(ScriptedEnv(rewards=[4, 1], length=2))
    env.reset()
    env.step(0)
    env.reset()
    env.step(0)
    assert env.step(0)[4]["eval_episode_return"] == 5


def test_the_return_so_far_can_be_read_in_the_middle() -> None:
    env = EvalEpisodeReturn(ScriptedEnv(rewards=[4, 1], length=2))
    env.reset()
    env.step(0)
    assert env.episode_return == 4
    env.step(0)
    assert env.episode_return == 5
    env.reset()
    assert env.episode_return == 0


@pytest.mark.parametrize("name", ["eval_episode_return", "final_eval_reward"])
def test_what_the_env_says_of_its_episode_stands(name: str) -> None:
    (row,) = play(EvalEpisodeReturn(ScriptedEnv(length=1, last_info={name: np.float32(0.75)})), 1)
    assert (row[4]["eval_episode_return"], row[4]["final_eval_reward"]) == (0.75, 0.75)
    assert type(row[4]["eval_episode_return"]) is float


def test_the_env_s_own_info_is_not_written_to() -> None:
    env = EvalEpisodeReturn(ScriptedEnv(length=1))
    env.reset()
    info = env.step(0)[4]
    env.reset()  # the env hands out one dict, over and over
    assert info == {"steps": 1, "eval_episode_return": 1, "final_eval_reward": 1}


def test_the_innermost_of_two_tells_the_true_score() -> None:
    clipped = gymnasium.wrappers.TransformReward(EvalEpisodeReturn(ScriptedEnv(rewards=[7], length=1)), np.sign)
    (row,) = play(EvalEpisodeReturn(clipped), 1)
    assert row[1] == 1
    assert row[4]["eval_episode_return"] == 7


# ---- ActionRepeat ---------------------------------------------------------------------------------


def test_an_action_is_repeated_and_its_rewards_summed() -> None:
    script = ScriptedEnv([(n, n) for n in range(7)], rewards=[1, 2, 4, 8, 16, 32])
    env = ActionRepeat(script, action_repeat=3)
    rows = play(env, 2, action=2)
    assert [row[1] for row in rows] == [7, 56]
    assert all(type(row[1]) is float for row in rows)
    assert script.received == [2] * 6
    assert rows[1][0].tolist() == [6, 6]
    assert rows[1][4]["steps"] == 6


@pytest.mark.parametrize("end", ["terminated", "truncated", "both"])
def test_a_repetition_stops_at_an_end(end: str) -> None:
    script = ScriptedEnv(rewards=[1, 2, 4, 8, 16], length=5, end=end)
    rows = play(ActionRepeat(script, 3), 4)
    assert [row[1] for row in rows] == [7, 24, 7, 24]
    last = (end != "truncated", end != "terminated")
    assert [row[2:4] for row in rows] == [(False, False), last] * 2
    assert len(script.received) == 10


class Hiccup(ScriptedEnv):
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
        ours = play(ActionRepeat(ScriptedEnv(**script), repeat), 6)
        np.testing.assert_equal(ours, play(theirs(ScriptedEnv(**script), repeat), 6))


# ---- DelayReward ----------------------------------------------------------------------------------


def test_rewards_are_paid_every_k_steps() -> None:
    env = DelayReward(ScriptedEnv(rewards=[1, 2, 4, 8, 16, 32, 64]), delay_reward_step=3)
    rewards = rewards_of(env, 7)
    assert rewards == [0, 0, 7, 0, 0, 56, 0]
    assert all(type(one) is float for one in rewards)


@pytest.mark.parametrize("end", ["terminated", "truncated", "both"])
def test_at_an_end_everything_is_paid(end: str) -> None:
    env = DelayReward(ScriptedEnv(rewards=[1, 2, 4, 8], length=4, end=end), 3)
    assert rewards_of(env, 8) == [0, 0, 7, 8] * 2  # and the next episode counts its steps anew


def test_an_abandoned_episode_owes_nothing() -> None:
    env = DelayReward(ScriptedEnv(rewards=[1, 2, 4]), 2)
    env.reset()
    env.step(0)
    assert rewards_of(env, 2) == [0, 3]


def test_a_delay_of_one_step_is_none() -> None:
    assert rewards_of(DelayReward(ScriptedEnv(rewards=[1, 2, 4]), 1), 3) == [1, 2, 4]


# ---- arguments and rewards of these ---------------------------------------------------------------

COUNTED = [(TimeLimit, "max_episode_steps"), (ActionRepeat, "action_repeat"), (DelayReward, "delay_reward_step")]


@pytest.mark.parametrize(("wrapper", "name"), [*COUNTED, (FlatObs, "size")])
@pytest.mark.parametrize("value", [0, -3, 1.0, "3", True])
def test_a_count_that_cannot_be_is_refused(wrapper: Any, name: str, value: Any) -> None:
    expected = f"{wrapper.__name__}: {name}: expected a whole number.*, got {value!r}"
    with pytest.raises(ConfigError, match=expected):
        wrapper(ScriptedEnv(), **{name: value})


@pytest.mark.parametrize(("wrapper", "name"), COUNTED)
def test_a_count_of_numpy_is_taken(wrapper: Any, name: str) -> None:
    assert len(play(wrapper(ScriptedEnv(), **{name: np.int32(2)}), 3)) == 3


@pytest.mark.parametrize("wrapper", [EvalEpisodeReturn, ActionRepeat, DelayReward, ObsPlusPrevActRew])
@pytest.mark.parametrize("reward", [np.zeros(2), None, "1"])
def test_a_reward_that_is_not_one_number_is_refused(wrapper: Any, reward: Any) -> None:
    env = wrapper(ScriptedEnv(rewards=[reward]), **ARGUMENTS.get(wrapper, {}))
    env.reset()
    with pytest.raises(EnvError, match=f"{wrapper.__name__}: expected one number as reward, got "):
        env.step(0)


# ---- FlatObs --------------------------------------------------------------------------------------


def test_a_nested_observation_becomes_one_vector() -> None:
    observation = {
        "camera": np.arange(6, dtype=np.uint8).reshape(2, 3, 1),
        "gear": np.int64(1),
        "rest": (np.array([1, 0], np.int8), np.float64(0.5)),
    }
    env = FlatObs(ScriptedEnv([observation], observation_space=NESTED))
    flat, _ = env.reset()
    assert flat.tolist() == [0, 1, 2, 3, 4, 5, 0, 0, 1, 1, 0, 0.5]
    assert flat.dtype == np.float32
    assert flat in env.observation_space
    assert env.observation_space.low.tolist() == [0] * 11 + [-1]
    assert env.observation_space.high.tolist() == [255] * 6 + [1] * 6


@pytest.mark.parametrize(
    ("space", "value", "expected"),
    [
        (spaces.Discrete(3), 2, [0, 0, 1]),
        (spaces.Discrete(3, start=5), 5, [1, 0, 0]),
        (spaces.MultiBinary((2, 2)), np.array([[1, 0], [1, 1]], np.int8), [1, 0, 1, 1]),
        (FLOAT_IMAGE, np.array([[[0, 0.25], [0.5, 1]]], np.float32), [0, 0.25, 0.5, 1]),
        (spaces.Box(-5, 5, (), np.int64), np.array(-3), [-3]),
        (spaces.Tuple([spaces.Discrete(2), spaces.Discrete(2)]), (1, 0), [0, 1, 1, 0]),
        (spaces.Box(-np.inf, np.inf, (1,), np.float64), np.array([2.5]), [2.5]),
        (spaces.Box(-1.7e308, 1.7e308, (1,), np.float64), np.array([2.5]), [2.5]),
    ],
)
def test_each_kind_of_space_has_its_form(space: spaces.Space[Any], value: Any, expected: list[float]) -> None:
    env = FlatObs(ScriptedEnv([value], observation_space=space))
    flat, _ = env.reset()
    assert flat.tolist() == expected
    assert flat in env.observation_space


def test_a_multi_discrete_needs_the_size_that_its_shape_does_not_tell() -> None:
    space = spaces.Dict({"dice": spaces.MultiDiscrete([2, 3], start=[0, 1])})
    script = ScriptedEnv([{"dice": np.array([1, 1])}], observation_space=space)
    with pytest.raises(
        SpaceError, match="FlatObs: expected size=5, which shapes do not tell of a MultiDiscrete, got no"
    ):
        FlatObs(script)
    env = FlatObs(script, size=5)
    assert env.reset()[0].tolist() == [0, 1, 1, 0, 0]
    assert FlatObs.new_shape({"dice": (2,)}, (3,), (1,), size=5) == ((5,), (3,), (1,))
    with pytest.raises(SpaceError, match=r"FlatObs: expected size 5 for Dict\('dice': .*, got 4"):
        FlatObs(script, size=4)


def test_the_parts_of_a_dict_come_in_the_order_of_its_keys() -> None:
    one = spaces.Box(0, 9, (1,), np.float32)
    observation = {"b": np.array([1.0]), "a": np.array([2.0])}
    for space, expected in [
        (spaces.Dict({"b": one, "a": one}), [2, 1]),
        (spaces.Dict([("b", one), ("a", one)]), [1, 2]),
    ]:
        assert FlatObs(ScriptedEnv([observation], observation_space=space)).reset()[0].tolist() == expected


def test_a_flat_observation_stays_as_it_was() -> None:
    env = FlatObs(ScriptedEnv([(1, 2), (3, 4)]))
    first, _ = env.reset()
    env.step(0)
    assert first.tolist() == [1, 2]


LEAVES = st.one_of(
    st.builds(
        lambda shape, dtype: spaces.Box(0, 100, tuple(shape), dtype),
        st.lists(st.integers(1, 3), max_size=3),
        st.sampled_from([np.uint8, np.int64, np.float32, np.float64]),
    ),
    st.builds(lambda n, start: spaces.Discrete(n, start=start), st.integers(1, 5), st.integers(-2, 2)),
    st.builds(spaces.MultiBinary, st.integers(1, 4)),
    st.builds(spaces.MultiDiscrete, st.lists(st.integers(1, 4), min_size=1, max_size=3)),
)
TREES = st.recursive(
    LEAVES,
    lambda child: st.one_of(
        st.builds(spaces.Tuple, st.lists(child, min_size=1, max_size=3)),
        st.builds(spaces.Dict, st.dictionaries(st.sampled_from("abc"), child, min_size=1, max_size=3)),
    ),
    max_leaves=5,
)


@settings(max_examples=60, deadline=None)
@given(space=TREES, seed=st.integers(0, 1000))
def test_flat_observations_are_those_of_gymnasium_and_of_the_shape_told(space: spaces.Space[Any], seed: int) -> None:
    space.seed(seed)
    observation = space.sample()
    size = spaces.utils.flatdim(space) if "MultiDiscrete" in str(space) else None
    env = FlatObs(ScriptedEnv([observation], observation_space=space), size=size)
    flat, _ = env.reset()
    np.testing.assert_array_equal(flat, spaces.utils.flatten(space, observation).astype(np.float32))
    assert flat in env.observation_space
    assert FlatObs.new_shape(element_info_of(space).shape, (3,), (1,), size=size) == (flat.shape, (3,), (1,))


@pytest.mark.parametrize(
    ("space", "message"),
    [
        (spaces.Text(5), r"observation, got Text\("),
        (spaces.Dict({"a": spaces.Tuple([VECTOR, spaces.Sequence(VECTOR)])}), r"at \['a'\]\[1\], got Sequence"),
        (spaces.Graph(VECTOR, None), "observation, got Graph"),
        (spaces.Dict({}), r"observation, got Dict\(\)"),
        (spaces.Tuple([VECTOR, spaces.Tuple([])]), r"at \[1\], got Tuple\(\)"),
    ],
)
def test_observations_without_a_fixed_form_are_refused(space: spaces.Space[Any], message: str) -> None:
    with pytest.raises(SpaceError, match=f"FlatObs: expected a Box, Discrete,.*{message}"):
        FlatObs(ScriptedEnv(observation_space=space))


def test_a_shape_that_is_none_is_refused() -> None:
    with pytest.raises(SpaceError, match=r"FlatObs: expected the shape of an array.*, got None"):
        FlatObs.new_shape({"text": None}, (3,), (1,))


# ---- ObsPlusPrevActRew ----------------------------------------------------------------------------


def test_the_last_action_and_reward_are_part_of_the_observation() -> None:
    env = ObsPlusPrevActRew(ScriptedEnv([(0, 1), (2, 3), (4, 5)], rewards=[0.5, -2], length=2))
    first, _ = env.reset()
    assert (first["prev_action"], first["prev_reward_extrinsic"].tolist()) == (0, [0])
    seen = [env.step(action) for action in (2, 1)]
    assert [row[0]["prev_action"] for row in seen] == [2, 1]
    assert [row[0]["prev_reward_extrinsic"].tolist() for row in seen] == [[0.5], [-2]]
    assert [row[1] for row in seen] == [0.5, -2]
    again, _ = env.reset()
    assert again["obs"].tolist() == [0, 1]
    assert (again["prev_action"], again["prev_reward_extrinsic"].tolist()) == (0, [0])
    assert all(observation in env.observation_space for observation in (first, again, *(row[0] for row in seen)))


@pytest.mark.parametrize(
    ("space", "expected"),
    [
        (spaces.Discrete(3), 0),
        (spaces.Discrete(3, start=4), 4),
        (spaces.MultiDiscrete([2, 2], start=[1, 0]), [1, 0]),
        (spaces.MultiBinary(2), [0, 0]),
        (spaces.Box(-1, 1, (2,), np.float32), [0, 0]),
        (spaces.Box(np.array([2, -5], np.float32), np.array([3, -4], np.float32)), [2, -4]),
    ],
)
def test_at_a_reset_the_action_is_the_one_nearest_to_zero(space: spaces.Space[Any], expected: Any) -> None:
    env = ObsPlusPrevActRew(ScriptedEnv(action_space=space))
    first, _ = env.reset()
    assert np.asarray(first["prev_action"]).tolist() == expected
    assert first in env.observation_space


@pytest.mark.parametrize(
    ("space", "action"),
    [
        (spaces.Discrete(3), np.array([1])),
        (spaces.Discrete(3), np.array(1)),
        (spaces.Box(-1, 1, (2,), np.float32), [0.5, -0.5]),
        (spaces.MultiDiscrete([2, 2]), [1, 0]),
        (spaces.MultiBinary(2), [1, 0]),
        (MOVING, (1, np.array([0.5]), [0.25])),
        (spaces.Dict({"kind": spaces.Discrete(2), "force": VECTOR}), {"kind": 1, "force": [1, 2]}),
    ],
)
def test_the_action_is_shown_in_the_type_of_its_space(space: spaces.Space[Any], action: Any) -> None:
    env = ObsPlusPrevActRew(ScriptedEnv(action_space=space))
    env.reset()
    observation = env.step(action)[0]
    assert observation in env.observation_space
    assert spaces.utils.flatten(space, observation["prev_action"]) == pytest.approx(flat_action(space, action))


@pytest.mark.parametrize(
    ("space", "action"),
    [
        (spaces.Discrete(3), [0, 1]),
        (spaces.Discrete(3), None),
        (spaces.Box(-1, 1, (2,), np.float32), [0.5]),
        (spaces.MultiDiscrete([2, 2]), "ab"),
        (MOVING, (1, [0.5])),
        (spaces.Dict({"kind": spaces.Discrete(2)}), {"sort": 1}),
    ],
)
def test_an_action_that_is_none_of_its_space_s_is_refused(space: spaces.Space[Any], action: Any) -> None:
    script = ScriptedEnv(action_space=space)
    env = ObsPlusPrevActRew(script)
    env.reset()
    with pytest.raises(
        ActionError, match=rf"ObsPlusPrevActRew: expected an action of {type(space).__name__}\(.*, got "
    ):
        env.step(action)
    assert script.received == []


def flat_action(space: spaces.Space[Any], action: Any) -> np.ndarray:
    if isinstance(space, spaces.Discrete):
        action = int(np.asarray(action).item())
    if isinstance(space, spaces.MultiDiscrete):
        action = np.array(action)
    return spaces.utils.flatten(space, action)


def test_the_action_shown_is_a_copy() -> None:
    env = ObsPlusPrevActRew(ScriptedEnv(action_space=spaces.Box(-1, 1, (2,), np.float32)))
    first, _ = env.reset()
    action = np.array([0.5, -0.5], np.float32)
    observation = env.step(action)[0]
    action[:] = 0
    env.reset()[0]["prev_action"][:] = 9
    assert observation["prev_action"].tolist() == [0.5, -0.5]
    assert first["prev_action"].tolist() == [0, 0]
    assert env.reset()[0]["prev_action"].tolist() == [0, 0]


def test_an_action_that_the_env_changes_is_shown_as_it_was_sent() -> None:
    class Meddler(ScriptedEnv):
        def step(self, action: Any) -> Any:
            action[:] = 0
            return super().step(action)

    env = ObsPlusPrevActRew(Meddler(action_space=VECTOR))
    env.reset()
    assert env.step(np.ones(2, np.float32))[0]["prev_action"].tolist() == [1, 1]


def test_to_sample_what_is_shown_leaves_the_env_s_spaces_alone() -> None:
    space = spaces.Tuple([spaces.Discrete(10**6), spaces.Box(0, 1, (1,), np.float32)])
    env = ObsPlusPrevActRew(GymHybridDictAction(ScriptedEnv(action_space=space)))
    space.seed(3)
    expected = copy.deepcopy(space).sample()
    for shown in (env.observation_space, env.action_space):
        shown.seed(9)
        shown.sample()
    assert space.sample() == expected


class Colours(spaces.Space[str]):
    """A space that Gymnasium does not know."""


def test_an_action_space_without_a_zero_is_refused() -> None:
    with pytest.raises(SpaceError, match=r"ObsPlusPrevActRew: expected an action space of Gymnasium's, got .*Colours"):
        ObsPlusPrevActRew(ScriptedEnv(action_space=Colours()))


# ---- GymHybridDictAction --------------------------------------------------------------------------


def test_a_hybrid_action_is_a_dict_outside_and_a_tuple_inside() -> None:
    script = ScriptedEnv(action_space=MOVING)
    env = GymHybridDictAction(script)
    assert env.action_space == spaces.Dict(
        {
            "action_type": spaces.Discrete(3),
            "action_args": spaces.Box(np.array([0, -1], np.float32), np.array([1, 1], np.float32)),
        }
    )
    env.reset()
    env.step({"action_type": 1, "action_args": np.array([0.25, -0.5], np.float32)})
    (received,) = script.received
    assert received in MOVING
    assert (received[0], received[1].tolist(), received[2].tolist()) == (1, [0.25], [-0.5])


@pytest.mark.parametrize("kind", [2, np.int64(2), np.array(2), np.array([2]), np.uint8(2), 2.0])
@pytest.mark.parametrize("args", [[0.5, 0.5], (0.5, 0.5), np.full(2, 0.5), np.full(2, 0.5, np.float32)])
def test_actions_may_be_arrays_lists_and_numbers(kind: Any, args: Any) -> None:
    script = ScriptedEnv(action_space=MOVING)
    env = GymHybridDictAction(script)
    env.reset()
    env.step({"action_type": kind, "action_args": args})
    assert script.received[0] in MOVING
    assert script.received[0] == (2, 0.5, 0.5)


def test_boxes_of_any_shape_and_type_lie_one_after_another() -> None:
    space = spaces.Tuple(
        [spaces.Discrete(2, start=1), spaces.Box(-9, 9, (2, 2), np.float32), spaces.Box(-9, 9, (), np.float64)]
    )
    script = ScriptedEnv(action_space=space)
    env = GymHybridDictAction(script)
    env.reset()
    env.step({"action_type": 2, "action_args": [1, 2, 3, 4, 5]})
    assert script.received[0] in space
    assert script.received[0][1].tolist() == [[1, 2], [3, 4]]
    assert script.received[0][2] == 5
    assert env.action_space["action_args"].shape == (5,)


def test_one_box_stays_as_it_is() -> None:
    space = spaces.Tuple([spaces.Discrete(3), spaces.Box(-1, 1, (2,), np.float32)])
    script = ScriptedEnv(action_space=space)
    env = GymHybridDictAction(script)
    assert env.action_space["action_args"] == space[1]
    env.reset()
    env.step(env.action_space.sample())
    assert script.received[0] in space


def test_parameters_outside_of_their_bounds_are_passed_on() -> None:
    script = ScriptedEnv(action_space=MOVING)
    env = GymHybridDictAction(script)
    env.reset()
    env.step({"action_type": 0, "action_args": [7, -7]})
    assert script.received[0] == (0, 7, -7)


def test_what_the_env_is_given_is_its_own() -> None:
    script = ScriptedEnv(action_space=MOVING)
    env = GymHybridDictAction(script)
    env.reset()
    args = np.array([0.25, 0.5], np.float32)
    env.step({"action_type": 0, "action_args": args})
    args[:] = 0
    assert script.received[0] == (0, 0.25, 0.5)


@pytest.mark.parametrize(
    ("action", "message"),
    [
        ((1, [0.5], [0.5]), r"a dict of action_type and action_args as action, got \(1,"),
        ({"type": 1, "args": [0.5, 0.5]}, "a dict of action_type and action_args as action, got {'type'"),
        ({"action_type": 3, "action_args": [0, 0]}, r"an action_type of Discrete\(3\), got 3"),
        ({"action_type": -1, "action_args": [0, 0]}, r"an action_type of Discrete\(3\), got -1"),
        ({"action_type": 0.5, "action_args": [0, 0]}, r"an action_type of Discrete\(3\), got 0.5"),
        ({"action_type": np.nan, "action_args": [0, 0]}, r"an action_type of Discrete\(3\), got nan"),
        ({"action_type": True, "action_args": [0, 0]}, r"an action_type of Discrete\(3\), got True"),
        ({"action_type": [0, 1], "action_args": [0, 0]}, r"an action_type of Discrete\(3\), got \[0, 1\]"),
        ({"action_type": 0, "action_args": [0]}, r"action_args of 2 numbers, got \[0\]"),
        ({"action_type": 0, "action_args": [[0, 0]]}, r"action_args of 2 numbers, got \[\[0, 0\]\]"),
        ({"action_type": 0, "action_args": "ab"}, "action_args of 2 numbers, got 'ab'"),
    ],
)
def test_actions_that_cannot_be_are_refused(action: Any, message: str) -> None:
    script = ScriptedEnv(action_space=MOVING)
    env = GymHybridDictAction(script)
    env.reset()
    with pytest.raises(ActionError, match=f"GymHybridDictAction: expected {message}"):
        env.step(action)
    assert script.received == []


@pytest.mark.parametrize(
    "space",
    [
        spaces.Discrete(3),
        spaces.Tuple([spaces.Discrete(3)]),
        spaces.Tuple([VECTOR, spaces.Discrete(3)]),
        spaces.Tuple([spaces.Discrete(3), VECTOR, spaces.Discrete(2)]),
        spaces.Tuple([spaces.Discrete(3), spaces.Box(0, 5, (1,), np.int64)]),
        spaces.Dict({"action_type": spaces.Discrete(3), "action_args": VECTOR}),
        spaces.Tuple([]),
    ],
    ids=str,
)
def test_other_actions_are_refused(space: spaces.Space[Any]) -> None:
    expected = "GymHybridDictAction: expected a Tuple of one Discrete and then Boxes of floats as action, got"
    with pytest.raises(SpaceError, match=f"{expected} {type(space).__name__}"):
        GymHybridDictAction(ScriptedEnv(action_space=space))


@pytest.mark.parametrize("shape", [(3,), ((3,),), {"a": (1,)}, ()])
def test_shapes_of_other_actions_are_refused(shape: Any) -> None:
    with pytest.raises(
        SpaceError, match="GymHybridDictAction: expected the shapes of a Discrete and one or more Boxes"
    ):
        GymHybridDictAction.new_shape((2,), shape, (1,))


# ---- all of them ----------------------------------------------------------------------------------

ARGUMENTS: dict[Any, dict[str, Any]] = {
    TimeLimit: {"max_episode_steps": 4},
    EvalEpisodeReturn: {},
    ActionRepeat: {"action_repeat": 2},
    DelayReward: {"delay_reward_step": 2},
    FlatObs: {},
    ObsPlusPrevActRew: {},
    GymHybridDictAction: {},
}
OBSERVATIONS = [VECTOR, IMAGE, FLOAT_IMAGE, NESTED, spaces.Discrete(4)]
ACTIONS = [spaces.Discrete(3), VECTOR, spaces.MultiDiscrete([2, 3]), MOVING]


def sample_env(observation: spaces.Space[Any], action: spaces.Space[Any]) -> ScriptedEnv:
    observation.seed(1)
    script = [observation.sample() for _ in range(4)]
    return ScriptedEnv(script, observation_space=observation, action_space=action, rewards=[1, 2, 4], length=3)


def act_space(wrapper: Any) -> spaces.Space[Any]:
    return MOVING if wrapper is GymHybridDictAction else spaces.Discrete(3)


@pytest.mark.parametrize("observation", OBSERVATIONS, ids=lambda space: type(space).__name__)
@pytest.mark.parametrize("action", ACTIONS, ids=lambda space: type(space).__name__)
@pytest.mark.parametrize("wrapper", ARGUMENTS)
def test_new_shape_is_what_comes_out(wrapper: Any, observation: Any, action: Any) -> None:
    if wrapper is GymHybridDictAction:
        action = spaces.Tuple([spaces.Discrete(2), *[spaces.Box(0, 1, (n,), np.float32) for n in range(1, 3)]])
    arguments = ARGUMENTS[wrapper]
    env = sample_env(observation, action)
    told = wrapper.new_shape(element_info_of(observation).shape, element_info_of(action).shape, (1,), **arguments)
    wrapped = wrapper(env, **arguments)
    assert told == (
        element_info_of(wrapped.observation_space).shape,
        element_info_of(wrapped.action_space).shape,
        (1,),
    )
    assert wrapped.reset()[0] in wrapped.observation_space
    seen, reward, *_ = wrapped.step(wrapped.action_space.sample())
    assert seen in wrapped.observation_space
    assert np.shape(reward) == ()


@pytest.mark.parametrize("wrapper", [TimeLimit, EvalEpisodeReturn, ActionRepeat, DelayReward, GymHybridDictAction])
@pytest.mark.parametrize("observation", OBSERVATIONS, ids=lambda space: type(space).__name__)
def test_observations_of_every_kind_pass_as_they_are(wrapper: Any, observation: Any) -> None:
    env = sample_env(observation, act_space(wrapper))
    wrapped = wrapper(env, **ARGUMENTS[wrapper])
    assert wrapped.observation_space == env.observation_space
    assert wrapped.reset()[0] is env.reset()[0]


@pytest.mark.parametrize("wrapper", ARGUMENTS)
def test_a_pickled_wrapper_goes_on_where_it_was(wrapper: Any) -> None:
    env = wrapper(sample_env(NESTED, act_space(wrapper)), **ARGUMENTS[wrapper])
    action = env.action_space.sample()
    env.reset()
    env.step(action)
    moved = pickle.loads(pickle.dumps(env))
    for _ in range(2):
        np.testing.assert_equal(moved.step(action), env.step(action))


@pytest.mark.parametrize("wrapper", [one for one in ARGUMENTS if one not in (GymHybridDictAction, TimeLimit)])
def test_gymnasium_can_make_the_wrapped_env_again(wrapper: Any) -> None:
    env = wrapper(gymnasium.make("CartPole-v1"), **ARGUMENTS[wrapper])
    again = gymnasium.make(env.spec)
    assert type(again) is wrapper
    np.testing.assert_equal(again.reset(seed=3), env.reset(seed=3))
    np.testing.assert_equal(again.step(1), env.step(1))


@pytest.mark.parametrize("wrapper", ARGUMENTS)
def test_seeds_and_options_reach_the_env(wrapper: Any) -> None:
    script = sample_env(VECTOR, act_space(wrapper))
    wrapper(script, **ARGUMENTS[wrapper]).reset(seed=5, options={"level": 2})
    assert script.resets == [(5, {"level": 2})]
