"""Wrappers that normalise, and the statistics they keep."""

from __future__ import annotations

import pickle
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from stepmill.errors import ConfigError, EnvError, ObservationError, SpaceError
from stepmill.wrappers.normalisation import ObsNormEnv, RewardNormEnv, StaticObsNorm
from stepmill.wrappers.running_mean_std import RunningMeanStd
from support.envs.scripted import POINT, CyclingEnv, play, rewards_of

IMAGE = spaces.Box(0, 255, (2, 2, 3), np.uint8)
FLOAT_IMAGE = spaces.Box(0.0, 1.0, (3, 2, 2), np.float32)
CAMERA_AND_SPEED = spaces.Dict({"camera": IMAGE, "body": spaces.Dict({"speed": spaces.Box(-9, 9, (), np.float64)})})


# ---- ObsNormEnv ----------------------------------------------------------------------------------


def test_observations_are_normalised_by_all_seen_so_far() -> None:
    env = ObsNormEnv(CyclingEnv([(1, 0), (3, 0), (8, 0)]))
    first, _ = env.reset()
    observations = [first.tolist()] + [row[0].tolist() for row in [env.step(0), env.step(0)]]
    # Of 1: mean 1. Of 1, 3: mean 2, variance 1. Of 1, 3, 8: mean 4, variance (9 + 1 + 16) / 3.
    expected = [[0, 0], [1, 0], [4 / np.sqrt(26 / 3), 0]]
    np.testing.assert_allclose(observations, expected, rtol=1e-6)


def test_the_statistics_are_those_of_each_feature() -> None:
    env = ObsNormEnv(CyclingEnv([(0, 1000)]))
    rows = play(env, 20)
    assert env.statistics.mean.tolist() == [0, 1000]
    assert env.statistics.var.tolist() == [0, 0]
    assert all(row[0].tolist() == [0, 0] for row in rows)


def test_statistics_are_kept_across_episodes() -> None:
    env = ObsNormEnv(CyclingEnv([(0, 0), (1, 1), (2, 2)], length=2))
    play(env, 4)  # three resets, four steps
    assert env.statistics.count == 7
    assert env.statistics.mean == pytest.approx([6 / 7, 6 / 7])  # 0 1 2 0 1 2 0


def test_frozen_statistics_are_used_and_not_updated() -> None:
    env = ObsNormEnv(CyclingEnv([(1, 1), (3, 3), (5, 5)]))
    env.reset()
    env.step(0)
    env.training = False
    assert env.step(0)[0].tolist() == [3, 3]  # (5 - 2) / 1
    assert env.statistics.count == 2


def test_frozen_from_the_start_it_passes_what_it_is_given() -> None:
    env = ObsNormEnv(CyclingEnv([(1, 30)]), training=False)
    assert env.reset()[0].tolist() == [1, 10]  # mean 0 and variance 1; 30 is clipped
    assert env.statistics.count == 0


@pytest.mark.parametrize(("clip", "expected"), [(2.5, 2.5), (10.0, 3.0), (None, 3.0), (0.1, 0.1)])
def test_what_comes_out_is_clipped_and_the_space_says_so(clip: float | None, expected: float) -> None:
    env = ObsNormEnv(CyclingEnv([(1, 1), (3, 3), (5, -1)]), clip=clip)
    env.reset()
    env.step(0)
    env.training = False
    observation = env.step(0)[0]
    np.testing.assert_allclose(observation, [expected, -expected], rtol=1e-6)
    assert observation in env.observation_space
    assert env.observation_space == spaces.Box(
        *([-np.inf, np.inf] if clip is None else [-clip, clip]), (2,), np.float32
    )


def test_without_a_bound_what_float32_cannot_hold_stays_finite() -> None:
    env = ObsNormEnv(CyclingEnv([(1, 1), (3e38, 1)]), clip=None)
    env.reset()
    env.training = False  # of one observation: the variance is 0
    assert np.isfinite(env.step(0)[0]).all()


@pytest.mark.parametrize("dtype", [np.uint8, np.int64, np.float16, np.float32, np.float64])
@pytest.mark.parametrize("shape", [(), (3,), (2, 2, 3)])
def test_any_type_of_number_comes_out_as_float32(dtype: type, shape: tuple[int, ...]) -> None:
    space = spaces.Box(0, 200, shape, dtype)
    env = ObsNormEnv(CyclingEnv([np.full(shape, 100), np.full(shape, 200)], observation_space=space))
    first, _ = env.reset()
    second = env.step(0)[0]
    np.testing.assert_array_equal(first, np.zeros(shape))
    np.testing.assert_allclose(second, np.ones(shape), rtol=1e-6)
    for observation in (first, second):
        assert isinstance(observation, np.ndarray)
        assert observation.dtype == np.float32
        assert observation in env.observation_space


def camera_and_speed(pixel: int, speed: float) -> dict[str, Any]:
    return {"camera": np.full((2, 2, 3), pixel, np.uint8), "body": {"speed": np.float64(speed)}}


def test_dict_observations_are_normalised_leaf_by_leaf() -> None:
    script = [camera_and_speed(0, 5), camera_and_speed(200, 9)]
    env = ObsNormEnv(CyclingEnv(script, observation_space=CAMERA_AND_SPEED))
    env.reset()
    observation = env.step(0)[0]
    np.testing.assert_allclose(observation["camera"], np.ones((2, 2, 3)), rtol=1e-6)
    np.testing.assert_allclose(observation["body"]["speed"], 1, rtol=1e-6)
    assert observation in env.observation_space
    assert env.statistics["body"]["speed"].mean == 7
    assert (env.statistics["camera"].mean == 100).all()


def test_a_dict_keeps_the_order_of_its_keys() -> None:
    space = spaces.Dict([("z", POINT), ("a", POINT)])
    env = ObsNormEnv(CyclingEnv([{"z": np.zeros(2), "a": np.zeros(2)}], observation_space=space))
    assert list(env.observation_space.spaces) == list(env.reset()[0]) == ["z", "a"]


@pytest.mark.parametrize("space", [POINT, CAMERA_AND_SPEED], ids=["vector", "dict"])
def test_statistics_are_saved_and_restored(space: spaces.Space[Any]) -> None:
    space.seed(3)
    script = [space.sample() for _ in range(10)]
    env = ObsNormEnv(CyclingEnv(script, observation_space=space))
    play(env, 5)
    evaluation = ObsNormEnv(CyclingEnv(script, observation_space=space), training=False)
    held = evaluation.statistics
    evaluation.load_state_dict(pickle.loads(pickle.dumps(env.state_dict())))
    assert held is evaluation.statistics
    env.training = False
    np.testing.assert_equal(evaluation.reset()[0], env.reset()[0])
    np.testing.assert_equal(evaluation.state_dict(), env.state_dict())


@pytest.mark.parametrize(
    ("state", "message"),
    [
        (
            {"camera": RunningMeanStd((2, 2, 3)).state_dict()},
            "state: expected a dict with the keys 'body', 'camera', got a dict with the keys 'camera'",
        ),
        (
            {"camera": RunningMeanStd((2, 2, 3)).state_dict(), "body": 3},
            r"state\['body'\]: expected a dict with the keys 'speed', got 3",
        ),
        (
            {"body": {"speed": RunningMeanStd().state_dict()}, "camera": RunningMeanStd().state_dict()},
            r"mean of shape \(2, 2, 3\), got \(\)",
        ),
    ],
)
def test_a_state_of_other_leaves_is_refused_and_changes_nothing(state: Any, message: str) -> None:
    env = ObsNormEnv(CyclingEnv([camera_and_speed(0, 5)], observation_space=CAMERA_AND_SPEED))
    env.reset()
    with pytest.raises(ConfigError, match=message):
        env.load_state_dict(state)
    assert env.statistics["body"]["speed"].mean == 5


def test_observations_that_are_not_finite_do_not_spoil_the_statistics() -> None:
    env = ObsNormEnv(CyclingEnv([(1, 1), (np.nan, 1)]))
    env.reset()
    with pytest.raises(ObservationError, match="ObsNormEnv: expected finite numbers, got nan, as observation"):
        env.step(0)
    assert env.statistics.mean.tolist() == [1, 1]


def test_normalised_observations_stay_as_they_were_and_leave_the_env_s_alone() -> None:
    env = ObsNormEnv(CyclingEnv([(1, 1), (3, 3), (8, 8)]))
    env.reset()
    second = env.step(0)[0]
    before = second.copy()
    env.step(0)
    np.testing.assert_array_equal(second, before)
    assert env.unwrapped._memory.tolist() == [8, 8]


def test_it_agrees_with_gymnasium_but_for_the_observation_that_gymnasium_makes_up() -> None:
    """Gymnasium begins with 1e-4 of an observation of mean 0 and variance 1: without it, both say the same."""
    script = np.random.default_rng(1).normal((3, -50), (1, 20), (200, 2))
    ours = ObsNormEnv(CyclingEnv(script), clip=None)
    theirs, plain = (gymnasium.wrappers.NormalizeObservation(CyclingEnv(script)) for _ in range(2))
    plain.obs_rms.count = 0
    assert ours.reset()[0].tolist() == plain.reset()[0].tolist() == [0, 0]
    assert (abs(theirs.reset()[0]) > 1e-3).all()
    for _ in range(150):
        expected = plain.step(0)[0]
        np.testing.assert_allclose(ours.step(0)[0], expected, rtol=1e-4, atol=1e-4)
        last = theirs.step(0)[0]
    np.testing.assert_allclose(expected, last, atol=1e-3)  # which is forgotten with time


@pytest.mark.parametrize(
    ("space", "message"),
    [
        (spaces.Discrete(3), r"got Discrete\(3\)"),
        (spaces.Tuple([POINT]), "got Tuple"),
        (spaces.Box(0, 1, (2,), np.bool_), "got Box"),
        (spaces.MultiBinary(2), r"got MultiBinary\(2\)"),
        (
            spaces.Dict({"a": POINT, "b": spaces.Dict({"c": spaces.Discrete(2)})}),
            r"at \['b'\]\['c'\].*got Discrete\(2\)",
        ),
        (spaces.Dict({}), r"got Dict\(\)"),
    ],
)
def test_observations_that_are_no_quantities_are_refused(space: spaces.Space[Any], message: str) -> None:
    with pytest.raises(SpaceError, match=f"ObsNormEnv: expected a Box of numbers.*{message}"):
        ObsNormEnv(CyclingEnv(observation_space=space))


@pytest.mark.parametrize("name", ["clip", "epsilon"])
@pytest.mark.parametrize("value", [0, -1.0, "1", True, np.nan, np.inf])
@pytest.mark.parametrize("wrapper", [ObsNormEnv, RewardNormEnv])
def test_bounds_and_epsilons_that_cannot_be_are_refused(wrapper: Any, name: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=f"{wrapper.__name__}: {name}: expected a finite number > 0.*, got {value!r}"):
        wrapper(CyclingEnv(), **{name: value})


def test_a_bound_that_float32_does_not_hold_is_refused() -> None:
    with pytest.raises(
        ConfigError, match=r"ObsNormEnv: clip: expected a finite number > 0 and <= 3\.40.*e\+38, got 1e"
    ):
        ObsNormEnv(CyclingEnv(), clip=1e39)


@pytest.mark.parametrize("wrapper", [ObsNormEnv, RewardNormEnv])
def test_training_is_true_or_false(wrapper: Any) -> None:
    with pytest.raises(ConfigError, match=f"{wrapper.__name__}: training: expected True or False, got 1"):
        wrapper(CyclingEnv(), training=1)


# ---- RewardNormEnv -------------------------------------------------------------------------------


def test_rewards_are_divided_by_the_deviation_of_the_discounted_returns() -> None:
    env = RewardNormEnv(CyclingEnv(rewards=[1.0, 2.0, 3.0]), gamma=0.5)
    # Returns 1, 2.5, 4.25: of two the variance is 0.5625, of three 127 / 72.
    assert rewards_of(env, 3) == pytest.approx([1, 2 / 0.75, 3 / np.sqrt(127 / 72)], rel=1e-6)
    assert env.statistics.mean == pytest.approx(7.75 / 3)


@pytest.mark.parametrize("end", ["terminated", "truncated", "both"])
def test_the_return_begins_at_0_in_every_episode_and_the_statistics_stay(end: str) -> None:
    env = RewardNormEnv(CyclingEnv(rewards=[1, 2], length=2, end=end), gamma=1)
    rewards = rewards_of(env, 4)
    # Returns 1, 3, 1, 3: their variance is 0, 1, 8/9, 1.
    assert rewards == pytest.approx([1, 2, 1 / np.sqrt(8 / 9), 2], rel=1e-6)
    assert (env.statistics.count, env.statistics.mean, env.statistics.var) == (4, 2, 1)


def test_a_reset_in_the_middle_of_an_episode_begins_the_return_anew() -> None:
    env = RewardNormEnv(CyclingEnv(rewards=[3, 5]), gamma=1)
    for _ in range(2):
        env.reset()
        env.step(0)
    assert (env.statistics.mean, env.statistics.var) == (3, 0)


def test_frozen_rewards_are_divided_and_not_counted() -> None:
    env = RewardNormEnv(CyclingEnv(rewards=[1, 2], length=2), gamma=1)
    rewards_of(env, 4)
    env.training = False
    assert rewards_of(env, 2) == pytest.approx([1, 2], rel=1e-6)
    assert env.statistics.count == 4


@pytest.mark.parametrize(("clip", "expected"), [(10.0, [5, -10, 10]), (2.0, [2, -2, 2]), (None, [5, -5e4, 5e4])])
def test_rewards_are_clipped(clip: float | None, expected: list[float]) -> None:
    env = RewardNormEnv(CyclingEnv(rewards=[5, -5, 5]), clip=clip)
    state = {"count": 2, "mean": 5, "squared_deviations": 0}  # of returns that never change
    first = rewards_of(env, 1)
    env.load_state_dict(state)
    env.training = False
    assert [*first, env.step(0)[1], env.step(0)[1]] == pytest.approx(expected)


@pytest.mark.parametrize("reward", [2, np.float32(2), np.array(2.0), np.array([2.0], np.float32), np.int64(2)])
def test_any_one_number_is_a_reward_and_a_float_comes_out(reward: Any) -> None:
    (out,) = rewards_of(RewardNormEnv(CyclingEnv(rewards=[reward])), 1)
    assert type(out) is float
    assert out == 2


def test_rewards_of_many_agents_are_refused() -> None:
    env = RewardNormEnv(CyclingEnv(rewards=[np.zeros(2)]))
    env.reset()
    with pytest.raises(EnvError, match=r"RewardNormEnv: expected one number as reward, got array\(\[0\., 0\.\]\)"):
        env.step(0)


def test_a_reward_that_is_not_finite_does_not_spoil_the_statistics() -> None:
    env = RewardNormEnv(CyclingEnv(rewards=[1, np.inf, 1]), gamma=1)
    env.reset()
    env.step(0)
    with pytest.raises(EnvError, match="RewardNormEnv: expected a finite reward, got inf"):
        env.step(0)
    env.step(0)
    assert (env.statistics.count, env.statistics.mean) == (2, 1.5)  # returns 1 and 2


def test_reward_statistics_are_saved_and_restored() -> None:
    env = RewardNormEnv(CyclingEnv(rewards=[1, 2], length=2), gamma=1)
    play(env, 4)
    other = RewardNormEnv(CyclingEnv(rewards=[4]), training=False)
    other.load_state_dict(pickle.loads(pickle.dumps(env.state_dict())))
    assert rewards_of(other, 1) == pytest.approx([4])


def test_rewards_agree_with_gymnasium_but_for_its_start_and_its_ends() -> None:
    """Gymnasium begins with 1e-4 of a return of variance 1; without it, both say the same of one long episode.

    At an end they differ: Gymnasium leaves the returns before out of the last one, and carries that one on.
    """
    rewards = np.random.default_rng(2).normal(1, 3, 200).tolist()
    ours = RewardNormEnv(CyclingEnv(rewards=rewards), gamma=0.9, clip=None)
    theirs = gymnasium.wrappers.NormalizeReward(CyclingEnv(rewards=rewards), gamma=0.9)
    theirs.return_rms.count = 0
    assert rewards_of(ours, 150)[1:] == pytest.approx([float(one) for one in rewards_of(theirs, 150)][1:], rel=1e-9)

    short = RewardNormEnv(CyclingEnv(rewards=[1, 2], length=2), gamma=1)
    leaking = gymnasium.wrappers.NormalizeReward(CyclingEnv(rewards=[1, 2], length=2), gamma=1)
    leaking.return_rms.count = 0
    rewards_of(short, 4)
    rewards_of(leaking, 4)
    assert short.statistics.mean == 2  # of 1, 3, 1, 3
    assert leaking.return_rms.mean == 2  # of 1, 2, 3, 2
    assert (short.statistics.var, leaking.return_rms.var) == (1, 0.5)


@pytest.mark.parametrize("gamma", [-0.1, 1.1, "0.9", None, np.nan])
def test_a_discount_that_cannot_be_is_refused(gamma: Any) -> None:
    with pytest.raises(
        ConfigError, match=f"RewardNormEnv: gamma: expected a finite number >= 0 and <= 1, got {gamma!r}"
    ):
        RewardNormEnv(CyclingEnv(), gamma=gamma)


# ---- StaticObsNorm -------------------------------------------------------------------------------


def test_observations_are_scaled_by_a_given_mean_and_deviation() -> None:
    space = spaces.Box(np.array([-2, 0]), np.array([2, 50]), dtype=np.float64)
    env = StaticObsNorm(CyclingEnv([(1, 10), (2, 50)], observation_space=space), mean=[0, 10], std=[2, 20])
    first, _ = env.reset()
    assert first.tolist() == [0.5, 0]
    assert env.step(0)[0].tolist() == [1, 2]
    assert first.tolist() == [0.5, 0]
    assert env.observation_space == spaces.Box(np.array([-1, -0.5], np.float32), np.array([1, 2], np.float32))


@pytest.mark.parametrize(
    ("space", "mean", "std", "value", "expected"),
    [
        (IMAGE, 0, 255, 51, 0.2),
        (FLOAT_IMAGE, np.full((3, 2, 2), 0.5), np.full((3, 2, 2), 0.25), 1, 2),
        (spaces.Box(-8, 8, (), np.float32), 4, 2, 8, 2),
        (spaces.Box(-(2**63), 2**63 - 1, (2,), np.int64), 1, 2, 5, 2),
        (spaces.Box(-3e38, 3e38, (2,), np.float32), 0, 1e-3, 5, 5000),
    ],
    ids=["uint8 image", "float image", "one number", "int64", "bounds beyond float32"],
)
def test_what_is_scaled_lies_in_its_space(
    space: spaces.Space[Any], mean: Any, std: Any, value: Any, expected: float
) -> None:
    env = StaticObsNorm(CyclingEnv([value], observation_space=space), mean=mean, std=std)
    observation, _ = env.reset()
    np.testing.assert_allclose(observation, np.full(space.shape, expected), rtol=1e-6)
    assert observation.dtype == np.float32
    assert observation in env.observation_space


def test_the_mean_is_a_copy() -> None:
    mean = np.zeros(2)
    env = StaticObsNorm(CyclingEnv([(1, 1)]), mean=mean, std=1)
    mean[:] = 9
    assert env.reset()[0].tolist() == [1, 1]


@pytest.mark.parametrize(
    ("mean", "std", "message"),
    [
        ([0, 0], [1, 0], "std > 0 for every feature, got .1, 0."),
        ([0, 0], -1, "std > 0 for every feature, got -1"),
        ([0, 0], None, "finite numbers as std, got None"),
        ([0, np.nan], 1, "finite numbers as mean, got .0, nan."),
        ("far", 1, "numbers as mean, got 'far'"),
    ],
)
def test_scales_that_cannot_be_are_refused(mean: Any, std: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=f"StaticObsNorm: expected {message}"):
        StaticObsNorm(CyclingEnv(), mean=mean, std=std)


@pytest.mark.parametrize(("mean", "std", "name"), [([0], 1, "mean"), (0, [1], "std"), (np.zeros((1, 2)), 1, "mean")])
def test_scales_of_another_shape_are_refused(mean: Any, std: Any, name: str) -> None:
    with pytest.raises(SpaceError, match=rf"expected one number or an array of shape \(2,\) as {name}, got shape \(1"):
        StaticObsNorm(CyclingEnv(), mean=mean, std=std)


@pytest.mark.parametrize("space", [spaces.Discrete(2), spaces.Dict({"a": POINT}), spaces.Box(0, 1, (2,), np.bool_)])
def test_static_scales_need_a_box_of_numbers(space: spaces.Space[Any]) -> None:
    with pytest.raises(
        SpaceError, match=r"StaticObsNorm: expected a Box of numbers as observation, got (Disc|Dict|Box)"
    ):
        StaticObsNorm(CyclingEnv(observation_space=space), mean=0, std=1)
