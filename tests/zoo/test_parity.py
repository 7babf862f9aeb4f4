"""The central promise: native envs play the episodes of Gymnasium's, bit for bit.

Each case is recorded from Gymnasium once (``support/reference.py``) and replayed (``support/replays.py``) against pools
in every autoreset mode, in sync and async, on no thread, one and several.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest

import stepmill
from support.reference import Case, leaves
from support.replays import MODES, WAYS, Recorder, Replay, make_pool

# ---- how the envs are played ----------------------------------------------------------------------


def balance(observation: Any, info: dict[str, Any], rng: np.random.Generator) -> int:
    """Keeps a pole up, so that some episodes of CartPole reach the time limit."""
    return int(rng.integers(2)) if rng.random() < 0.1 else int(observation[2] + 0.3 * observation[3] > 0)


def swing(observation: Any, info: dict[str, Any], rng: np.random.Generator) -> int:
    """Drives a car the way it already goes, so that it reaches the goal."""
    return int(rng.integers(3)) if rng.random() < 0.1 else 1 + int(np.sign(observation[1]))


def swing_hard(observation: Any, info: dict[str, Any], rng: np.random.Generator) -> np.ndarray:
    push = 1.0 if observation[1] >= 0 else -1.0
    return np.array([push * rng.uniform(0.5, 1.3)], np.float32)


def swing_up(observation: Any, info: dict[str, Any], rng: np.random.Generator) -> int:
    return int(rng.integers(3)) if rng.random() < 0.1 else (0 if observation[4] > 0 else 2)


def downhill(observation: Any, info: dict[str, Any], rng: np.random.Generator) -> int:
    """Left, down and right more often than up: a walk that reaches the goal of a grid."""
    return int(rng.choice(4, p=[0.1, 0.35, 0.45, 0.1]))


def up_and_over(observation: Any, info: dict[str, Any], rng: np.random.Generator) -> int:
    return int(rng.choice(4, p=[0.3, 0.4, 0.25, 0.05]))


def deliver(observation: Any, info: dict[str, Any], rng: np.random.Generator) -> int:
    """A taxi that hits no wall, takes its passenger where it finds him and leaves him where he wants to go."""
    mask = info["action_mask"]
    place = {0: 0, 4: 1, 20: 2, 23: 3}.get(observation // 20)
    if mask[4] or (mask[5] and place == observation % 4):
        return 4 if mask[4] else 5
    return int(rng.choice(np.flatnonzero(mask[:4])))


MAP = ["SFFH", "FSFF", "GFHS"]

# Over 8,000 steps of Gymnasium each, long enough for the ends that an env has; with `make test-parity` over 100,000.
IS_LONG = bool(os.environ.get("STEPMILL_LONG_PARITY"))
STEPS = 100_000 if IS_LONG else 8_000
LONG: dict[str, Any] = {"num_envs": 64, "events": 1650} if IS_LONG else {"num_envs": 16, "events": 600}
LONGER: dict[str, Any] = LONG if IS_LONG else {"num_envs": 16, "events": 1050}
SHORT_EPISODES: dict[str, Any] = {"num_envs": 256, "events": 950} if IS_LONG else {"num_envs": 48, "events": 600}

DEFAULTS = [
    Case("CartPole-v0", policy=balance, **LONG),
    Case("CartPole-v1", policy=balance, **LONG),
    Case("Pendulum-v1", beyond_bounds=1.5, **LONG),
    Case("MountainCar-v0", policy=swing, **LONG),
    Case("MountainCarContinuous-v0", policy=swing_hard, beyond_bounds=1.5, **LONGER),
    Case("Acrobot-v1", policy=swing_up, **LONG),
    Case("FrozenLake-v1", policy=downhill, **SHORT_EPISODES),
    Case("FrozenLake8x8-v1", policy=downhill, **LONG),
    Case("CliffWalking-v1", policy=up_and_over, **LONG),
    Case("CliffWalkingSlippery-v1", policy=up_and_over, **LONG),
    Case("Taxi-v4", policy=deliver, **LONG),
    Case("Blackjack-v1", **SHORT_EPISODES),
]

VARIANTS = [
    Case("CartPole-v1", {"sutton_barto_reward": True}, balance, seed=2**31),
    Case("CartPole-v1", {}, balance, max_episode_steps=7, seed=0),
    Case("Pendulum-v1", {"g": 9.81}, seed=1),
    Case("Pendulum-v1", {"g": -3.7}, max_episode_steps=33),
    Case("Pendulum-v1", {"g": 0.0}, seed=2**40 + 7),
    Case("MountainCar-v0", {"goal_velocity": 0.03}, swing),
    Case("MountainCar-v0", {"goal_velocity": 0.07}, swing, max_episode_steps=500),
    Case("MountainCarContinuous-v0", {"goal_velocity": 0.03}, swing_hard),
    Case("MountainCarContinuous-v0", {"goal_velocity": -0.01}, swing_hard, beyond_bounds=1.5),
    Case("Acrobot-v1", {}, swing_up, max_episode_steps=50, seed=2**62),
    Case("FrozenLake-v1", {"is_slippery": False}, downhill),
    Case("FrozenLake-v1", {"success_rate": 0.7}, downhill),
    Case("FrozenLake-v1", {"success_rate": 0.0, "reward_schedule": (10.0, -5.0, -0.1)}, downhill),
    Case("FrozenLake-v1", {"map_name": "8x8", "is_slippery": False}, downhill),
    Case("FrozenLake-v1", {"desc": MAP, "success_rate": 0.9, "reward_schedule": (1.5, -1.0, 0.25)}, downhill),
    Case("FrozenLake8x8-v1", {"success_rate": 0.6}, downhill, max_episode_steps=20),
    Case("CliffWalking-v1", {"is_slippery": True}, up_and_over),
    Case("CliffWalking-v1", {}, up_and_over, max_episode_steps=11),
    Case("CliffWalkingSlippery-v1", {}, up_and_over, max_episode_steps=100),
    Case("Taxi-v4", {"is_rainy": True}, deliver),
    Case("Taxi-v4", {"fickle_passenger": True}, deliver),
    Case("Taxi-v4", {"is_rainy": True, "fickle_passenger": True}, deliver),
    Case("Taxi-v4", {"is_rainy": True, "rainy_probability": 0.55, "fickle_passenger": True}, deliver),
    Case("Blackjack-v1", {"natural": True}),
    Case("Blackjack-v1", {"sab": True}),
    Case("Blackjack-v1", {"natural": True, "sab": False}, max_episode_steps=2),
    Case("Blackjack-v1", {"natural": False, "sab": False}),
]

# The ends that the recordings must hold, or a replay would prove little.
TERMINATED, TRUNCATED = {"terminated"}, {"truncated"}
ENDS = {
    "CartPole-v0": TERMINATED | TRUNCATED,
    "CartPole-v1": TERMINATED | TRUNCATED,
    "Pendulum-v1": TRUNCATED,
    "MountainCar-v0": TERMINATED | TRUNCATED,
    "MountainCarContinuous-v0": TERMINATED | TRUNCATED,
    "Acrobot-v1": TERMINATED | TRUNCATED,
    "FrozenLake-v1": TERMINATED,
    "FrozenLake8x8-v1": TERMINATED,
    "CliffWalking-v1": TERMINATED,
    "CliffWalkingSlippery-v1": TERMINATED,
    "Taxi-v4": TERMINATED | TRUNCATED,
    "Blackjack-v1": TERMINATED,
}


def in_gymnasium(case: Case) -> Any:
    """Gymnasium drops versions of envs; what it does not have cannot be compared with it."""
    missing = case.id not in gymnasium.registry
    return pytest.param(
        case, id=str(case), marks=pytest.mark.skipif(missing, reason=f"this Gymnasium has no {case.id}")
    )


# ---- the tests ------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("autoreset", MODES)
@pytest.mark.parametrize("case", [in_gymnasium(case) for case in DEFAULTS])
def test_a_pool_plays_the_episodes_of_gymnasium(recording: Recorder, case: Case, autoreset: str, way: str) -> None:
    tapes = recording(case)
    with make_pool(case, autoreset, way) as pool:
        replay = Replay(pool, tapes, autoreset)
        replay.run()
    assert replay.steps >= STEPS


@pytest.mark.parametrize("case", [in_gymnasium(case) for case in DEFAULTS])
def test_the_recordings_hold_the_ends_that_an_env_has(recording: Recorder, case: Case) -> None:
    tapes = recording(case)
    found = {end for end in ("terminated", "truncated") if getattr(tapes, end).any()}
    assert ENDS[case.id] <= found


@pytest.mark.parametrize("autoreset", MODES)
@pytest.mark.parametrize("case", [in_gymnasium(case) for case in VARIANTS])
def test_constructor_options_play_as_in_gymnasium(recording: Recorder, case: Case, autoreset: str) -> None:
    tapes = recording(case)
    for way in ("three threads", "async"):
        with make_pool(case, autoreset, way) as pool:
            replay = Replay(pool, tapes, autoreset)
            replay.run()
        assert replay.steps >= 0.98 * tapes.steps


@pytest.mark.parametrize("case", [in_gymnasium(case) for case in DEFAULTS])
def test_spaces_are_those_of_gymnasium(case: Case) -> None:
    env = case.make_gymnasium()
    with make_pool(case, "next_step", "inline") as pool:
        assert pool.single_observation_space == env.observation_space
        assert pool.single_action_space == env.action_space
        assert pool.spec.max_episode_steps == env.spec.max_episode_steps
        assert pool.spec.reward_threshold == env.spec.reward_threshold
    env.close()


def test_a_step_before_the_first_reset_starts_the_seeded_episode(recording: Recorder) -> None:
    case = DEFAULTS[1]
    tapes = recording(case)
    everyone = np.arange(case.num_envs)
    with make_pool(case, "next_step", "three threads") as pool:
        observation, reward, terminated, truncated, info = pool.step(tapes.actions[:, 0])
    tapes.check_shown(everyone, everyone * 0, observation, info)
    tapes.check_outcome(everyone, everyone * 0, reward, terminated, truncated)


def test_a_list_of_seeds_gives_each_env_its_own(recording: Recorder) -> None:
    tapes = recording(DEFAULTS[1])
    chosen = [5, 3, 11, 3]
    with stepmill.make("CartPole-v1", num_envs=4, seed=[42 + i for i in chosen]) as pool:
        observation, _ = pool.reset()
        assert np.array_equal(observation, tapes.observation[0][chosen, 0])
        for event in range(1, 100):
            observation, reward, *_ = pool.step(tapes.actions[chosen, event])
            assert np.array_equal(observation, tapes.observation[0][chosen, event])
            assert np.array_equal(reward, tapes.reward[chosen, event])


def test_env_config_gives_each_env_its_own_options(recording: Recorder) -> None:
    configs = [{}, {"sutton_barto_reward": True}]
    plain, sutton = (recording(Case("CartPole-v1", config, balance, num_envs=2, events=300)) for config in configs)
    with stepmill.make("CartPole-v1", num_envs=2, env_config=configs) as pool:
        pool.reset()
        for event in range(1, 300):
            _, reward, *_ = pool.step(np.array([plain.actions[0, event], sutton.actions[1, event]]))
            assert reward.tolist() == [plain.reward[0, event], sutton.reward[1, event]]


# ---- resets by hand -------------------------------------------------------------------------------

RESET_OPTIONS = {
    "CartPole-v1": [{"low": -0.2, "high": 0.1}, {"low": -0.01}, {"high": 0.2}],
    "Pendulum-v1": [{"x_init": 0.5, "y_init": 3.0}, {"x_init": 2.0}, {"y_init": 0.1}],
    "MountainCar-v0": [{"low": -1.1, "high": -0.9}, {"low": -0.41}],
    "MountainCarContinuous-v0": [{"low": -1.1, "high": 0.3}, {"high": -0.59}],
    "Acrobot-v1": [{"low": -3.0, "high": 3.0}, {"high": 0.5}],
    "FrozenLake-v1": [None],
    "CliffWalking-v1": [None],
    "Taxi-v4": [None],
    "Blackjack-v1": [None],
}


@pytest.mark.parametrize("autoreset", MODES)
@pytest.mark.parametrize("id", RESET_OPTIONS)
def test_resets_of_every_kind_go_on_as_in_gymnasium(id: str, autoreset: str) -> None:
    """Seeds, options, masks and chosen ids, at random moments, against Gymnasium's own vector env."""
    count = 6
    if id not in gymnasium.registry:
        pytest.skip(f"this Gymnasium has no {id}")
    oracle = gymnasium.vector.SyncVectorEnv(
        [lambda: gymnasium.make(id, disable_env_checker=True, max_episode_steps=40)] * count,
        autoreset_mode=gymnasium.vector.AutoresetMode[autoreset.upper()],
    )
    pool = stepmill.make(id, num_envs=count, seed=7, autoreset=autoreset, num_threads=2, max_episode_steps=40)
    assert pool.is_native
    rng = np.random.default_rng(len(id))
    oracle.action_space.seed(1)
    assert_equal(pool.reset()[0], oracle.reset(seed=7)[0])
    for _ in range(40):
        reset_somehow(pool, oracle, rng, RESET_OPTIONS[id])
        for _ in range(int(rng.integers(1, 30))):
            action = oracle.action_space.sample()
            got, expected = pool.step(action), oracle.step(action)
            assert_equal(got[0], expected[0])
            for mine, theirs in zip(got[1:4], expected[1:4], strict=True):
                assert np.array_equal(mine, theirs)
            ended = expected[2] | expected[3]
            if autoreset == "disabled" and ended.any():
                assert_equal(
                    pool.reset(options={"reset_mask": ended})[0], oracle.reset(options={"reset_mask": ended})[0]
                )
    pool.close()
    oracle.close()


def reset_somehow(pool: Any, oracle: Any, rng: np.random.Generator, options: list[Any]) -> None:
    count = pool.num_envs
    seed = int(rng.integers(2**31)) if rng.random() < 0.5 else None
    option = options[rng.integers(len(options))] if rng.random() < 0.7 else None
    mask = rng.random(count) < 0.5
    mask[rng.integers(count)] = True
    match rng.integers(4):
        case 0:
            assert_equal(pool.reset(seed=seed, options=option)[0], oracle.reset(seed=seed, options=option)[0])
        case 1:
            seeds = [None if rng.random() < 0.3 else int(rng.integers(2**31)) for _ in range(count)]
            assert_equal(pool.reset(seed=seeds, options=option)[0], oracle.reset(seed=seeds, options=option)[0])
        case 2:
            masked = {**(option or {}), "reset_mask": mask}
            expected = oracle.reset(seed=seed, options=dict(masked))[0]
            assert_equal(pool.reset(seed=seed, options=masked)[0], expected)
            assert masked["reset_mask"] is mask, "the caller's options stay as they were"
        case _:
            chosen = rng.permutation(np.flatnonzero(mask))
            expected = oracle.reset(seed=seed, options={**(option or {}), "reset_mask": mask})[0]
            observation, info = pool.reset(chosen, seed=seed, options=option)
            assert np.array_equal(info["env_id"], chosen)
            assert_equal(observation, tuple(leaf[chosen] for leaf in leaves(expected)))


def assert_equal(got: Any, expected: Any) -> None:
    for mine, theirs in zip(leaves(got), leaves(expected), strict=True):
        assert mine.dtype == theirs.dtype
        assert mine.tobytes() == theirs.tobytes(), (mine, theirs)


# ---- envs that the installed Gymnasium does not have ----------------------------------------------


@pytest.mark.parametrize("fickle", [False, True])
def test_taxi_v3_is_taxi_v4_in_good_weather(recording: Recorder, fickle: bool) -> None:
    """Gymnasium 1.3 replaced v3, whose rain drifts differently, so only its dry days have an oracle here."""
    case = Case("Taxi-v4", {"fickle_passenger": True} if fickle else {}, deliver)
    if case.id not in gymnasium.registry:
        pytest.skip("this Gymnasium has no Taxi-v4")
    with stepmill.make("Taxi-v3", num_envs=case.num_envs, seed=case.seed, **case.config) as pool:
        assert pool.is_native
        Replay(pool, recording(case), "next_step").run()


def test_rain_of_taxi_v3_drifts_to_both_sides() -> None:
    """Four of five moves go as meant, the others to either side: ``prob`` says which it was."""
    with stepmill.make("Taxi-v3", num_envs=64, is_rainy=True) as pool:
        pool.reset()
        probabilities = np.concatenate([pool.step(np.zeros(64, np.int64))[4]["prob"] for _ in range(100)])
    assert set(probabilities.tolist()) <= {0.8, 0.1, 1.0}
    assert {0.8, 0.1} <= set(probabilities.tolist())


def test_a_frozen_lake_without_a_map_name_draws_one() -> None:
    """Gymnasium draws it from a generator that nobody seeds, so only its size can be compared."""
    with stepmill.make("FrozenLake-v1", map_name=None) as pool:
        env = gymnasium.make("FrozenLake-v1", map_name=None, disable_env_checker=True)
        assert pool.is_native
        assert pool.single_observation_space == env.observation_space
        env.close()


class CatchModel:
    """A ball falls one row per step; the paddle starts in the middle and should end under it."""

    def __init__(self, seed: int, height: int = 10, width: int = 5) -> None:
        self.random = np.random.Generator(np.random.PCG64(seed))
        self.height, self.width = height, width

    def reset(self) -> np.ndarray:
        self.row, self.column, self.paddle = 0, int(self.random.integers(0, self.width)), self.width // 2
        return self.board()

    def step(self, action: int) -> tuple[np.ndarray, float, bool]:
        self.paddle = min(max(self.paddle + action - 1, 0), self.width - 1)
        self.row += 1
        done = self.row == self.height - 1
        reward = 0.0 if not done else 1.0 if self.column == self.paddle else -1.0
        return self.board(), reward, done

    def board(self) -> np.ndarray:
        board = np.zeros((self.height, self.width), np.float32)
        board[self.row, self.column] = board[-1, self.paddle] = 1.0
        return board


class NChainModel:
    """Forward for nothing to a large reward, or back to the start for a small one; a slip swaps the two."""

    def __init__(self, seed: int, n: int = 5, slip: float = 0.2, small: float = 2.0, large: float = 10.0) -> None:
        self.random = np.random.Generator(np.random.PCG64(seed))
        self.n, self.slip, self.small, self.large = n, slip, small, large

    def reset(self) -> int:
        self.link = 0
        return 0

    def step(self, action: int) -> tuple[int, float, bool]:
        slipped = self.random.random() < self.slip
        if bool(action) != slipped:
            self.link = 0
            return 0, self.small, False
        if self.link == self.n - 1:
            return self.link, self.large, False
        self.link += 1
        return self.link, 0.0, False


@pytest.mark.parametrize(
    ("id", "model", "config", "limit"),
    [
        ("Catch-v0", CatchModel, {}, None),
        ("Catch-v0", CatchModel, {"height": 7, "width": 6}, 5),
        ("Catch-v0", CatchModel, {"height": 2, "width": 1}, None),
        ("NChain-v0", NChainModel, {}, 1000),
        ("NChain-v0", NChainModel, {"n": 3, "slip": 0.5, "small": 0.25, "large": 7.5}, 17),
    ],
)
def test_envs_without_a_twin_follow_their_model(
    id: str, model: Callable[..., Any], config: dict[str, Any], limit: int | None
) -> None:
    count, steps = 4, 2500
    models = [model(3 + i, **config) for i in range(count)]
    rng = np.random.default_rng(0)
    elapsed, ended = [0] * count, [False] * count
    with stepmill.make(id, num_envs=count, seed=3, num_threads=2, max_episode_steps=limit, **config) as pool:
        assert pool.is_native
        observation, _ = pool.reset()
        assert np.array_equal(observation, np.stack([one.reset() for one in models]))
        for _ in range(steps):
            actions = rng.integers(0, pool.single_action_space.n, count)
            observation, reward, terminated, truncated, _ = pool.step(actions)
            for i, one in enumerate(models):
                if ended[i]:
                    expected, elapsed[i] = (one.reset(), 0.0, False), 0
                else:
                    expected, elapsed[i] = one.step(int(actions[i])), elapsed[i] + 1
                assert np.array_equal(observation[i], expected[0])
                assert reward[i] == expected[1]
                assert terminated[i] == expected[2]
                assert truncated[i] == (elapsed[i] == limit)
                ended[i] = bool(terminated[i] or truncated[i])
