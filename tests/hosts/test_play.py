"""``pool.play``, and what is the same for every policy: ``stepmill.per_env``, ``begin``, its errors."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import stepmill
from stepmill import errors

pytestmark = pytest.mark.usefixtures("server")

POOLS = [
    {"backend": "thread", "num_envs": 4},
    {"backend": "thread", "num_envs": 4, "batch_size": 2},
    {"backend": "process", "num_envs": 2},
]


def zeros(observations: Any, env_ids: np.ndarray, generators: Any) -> np.ndarray:
    return np.zeros(len(env_ids), int)


@stepmill.per_env
def noisy(observation: Any, generator: np.random.Generator) -> int:
    return int(observation[2] + generator.normal(scale=0.1) > 0)


class Words(gymnasium.Env[Any, Any]):
    """Texts and numbers, in and out; ends after three steps, and can fail."""

    observation_space = spaces.Dict({"word": spaces.Text(5), "at": spaces.Box(0, 9, (2,))})
    action_space: spaces.Space[Any] = spaces.Tuple([spaces.Discrete(3), spaces.Text(5)])

    def __init__(self, fails_at: int = -1) -> None:
        self.fails_at = fails_at

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.at = 0
        return {"word": "start", "at": np.full(2, 0, np.float32)}, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.at += 1
        if self.at == self.fails_at:
            raise RuntimeError("no more")
        return {"word": action[1], "at": np.full(2, self.at, np.float32)}, float(action[0]), self.at == 3, False, {}


# ---- pool.play -------------------------------------------------------------------------------------


@pytest.mark.parametrize("arguments", POOLS)
@pytest.mark.parametrize("mode", ["next_step", "same_step", "disabled"])
def test_an_episode_depends_on_its_seed_alone(arguments: dict[str, Any], mode: str) -> None:
    """Whichever env plays it, and when: the steps are those of a single env of Gymnasium with that seed."""
    rows: dict[int, list[tuple[Any, Any, float, bool]]] = {}
    with stepmill.make("CartPole-v1", autoreset=mode, max_episode_steps=15, **arguments) as pool:
        for batch in pool.play(noisy, seed=5, episodes=range(30, 39)):
            assert batch.episodes is not None
            for row, episode in enumerate(batch.episodes.tolist()):
                final = batch.info["final_obs"][row] if mode == "same_step" and batch.ended[row] else None
                shown = batch.observations[row] if final is None else final
                rows.setdefault(episode, []).append(
                    (shown, batch.actions[row], float(batch.rewards[row]), bool(batch.ended[row]))
                )
        assert pool.stats()["in_flight"] == 0
    assert sorted(rows) == list(range(30, 39))
    for seed, steps in rows.items():
        env = gymnasium.make("CartPole-v1", max_episode_steps=15)
        generator = np.random.default_rng((5, seed))
        observation, _ = env.reset(seed=seed)
        np.testing.assert_array_equal(observation, steps[0][0])
        for shown, action, reward, ended in steps[1:]:
            assert action == int(observation[2] + generator.normal(scale=0.1) > 0)
            observation, theirs, terminated, truncated, _ = env.step(action)
            np.testing.assert_array_equal(observation, shown)
            assert (reward, ended) == (theirs, terminated or truncated)
        assert steps[-1][3]


def test_without_episodes_it_goes_on_as_a_rollout_does() -> None:
    with (
        stepmill.make("CartPole-v1", num_envs=3, seed=4) as pool,
        stepmill.make("CartPole-v1", num_envs=3, seed=4) as other,
    ):
        rollout = other.rollout(noisy, 50, seed=7)
        batches = pool.play(noisy, seed=7)
        first = next(batches)
        assert (first.info["elapsed_step"] == 0).all()
        np.testing.assert_array_equal(first.observations, rollout.observations[0])
        for at, batch in zip(range(50), batches, strict=False):
            np.testing.assert_array_equal(batch.actions, rollout.actions[at])
            np.testing.assert_array_equal(batch.rewards, rollout.rewards[at])
            np.testing.assert_array_equal(batch.ended, rollout.terminated[at] | rollout.truncated[at])
            assert batch.seconds > 0
            assert batch.episodes is None


def test_seeds_are_taken_after_the_batch_was_seen() -> None:
    """So an episode that failed can be put back."""
    waiting = [0, 1, 2]
    seen: list[int] = []

    def episodes() -> Any:
        while waiting:
            yield waiting.pop(0)

    with stepmill.make("CartPole-v1", num_envs=1) as pool:
        for batch in pool.play(zeros, episodes=episodes()):
            if batch.ended.any() and batch.episodes is not None:
                seen += batch.episodes.tolist()
                if seen == [0]:
                    waiting.append(0)
    assert seen == [0, 1, 2, 0]


def test_an_episode_without_a_seed_goes_on_with_the_env_s_own_numbers() -> None:
    with (
        stepmill.make("CartPole-v1", num_envs=2, seed=4, autoreset="disabled") as pool,
        stepmill.make("CartPole-v1", num_envs=2, seed=4) as other,
    ):
        begun: dict[int, list[Any]] = {0: [], 1: []}
        for batch in pool.play(zeros, episodes=[None] * 6):
            assert batch.episodes is not None
            assert (batch.episodes == -1).all()
            for row in np.flatnonzero(batch.info["elapsed_step"] == 0):
                begun[int(batch.env_ids[row])].append(batch.observations[row])
        rollout = other.rollout(zeros, 60)
        for env_id, firsts in begun.items():
            after_reset = [0, *(np.flatnonzero(rollout.reset[:, env_id]) + 1)]
            for at, first in zip(after_reset, firsts, strict=False):
                np.testing.assert_array_equal(first, rollout.observations[at, env_id])
        assert len(begun[0]) + len(begun[1]) == 6


def test_texts_come_as_arrays_of_objects() -> None:
    def speak(observations: Any, env_ids: np.ndarray, generators: Any) -> Any:
        assert observations["word"].dtype == object
        return ((np.ones(len(env_ids), int), [f"{word[:2]}{i}" for i, word in zip(env_ids, observations["word"])]),)  # noqa: B905

    @stepmill.per_env
    def speak_alone(observation: Any, generator: Any) -> Any:
        assert observation["at"].shape == (2,)
        return 1, f"{observation['word'][:2]}z"

    for policy, words in ((speak, ["st0", "st1"]), (speak_alone, ["stz", "stz"])):
        with stepmill.make(Words, num_envs=2, backend="inline") as pool:
            batches = pool.play(policy)
            next(batches)
            batch = next(batches)
            assert batch.observations["word"] == tuple(words)
            numbers, said = batch.actions
            assert (numbers.tolist(), said.tolist()) == ([1, 1], words)


@pytest.mark.parametrize("keeps_on", [False, True])
def test_errors_of_envs_end_it_unless_they_may_not(keeps_on: bool) -> None:
    @stepmill.per_env
    def speak(observation: Any, generator: Any) -> Any:
        return 0, "x"

    with stepmill.make(Words, num_envs=1, backend="inline", fails_at=2) as pool:
        batches = pool.play(speak, raise_errors=not keeps_on)
        assert [next(batches).error, next(batches).error] == [None, None]
        if not keeps_on:
            with pytest.raises(errors.EnvError, match="no more"):
                next(batches)
            return
        failed = next(batches)
        assert "no more" in str(failed.error)
        assert failed.info["abnormal"].tolist() == [True]
        assert next(batches).info["elapsed_step"].tolist() == [0]


def test_a_policy_cannot_step_the_pool_that_asks_it() -> None:
    with stepmill.make("CartPole-v1", num_envs=2) as pool:

        def steps(observations: Any, env_ids: np.ndarray, generators: Any) -> Any:
            return pool.step(np.zeros(2, int))

        batches = pool.play(steps)
        next(batches)
        with pytest.raises(errors.UsageError):
            next(batches)


def test_a_policy_cannot_reset_the_pool_whose_episodes_begin() -> None:
    with stepmill.make("CartPole-v1", num_envs=2) as pool:

        def act(observations: Any, env_ids: np.ndarray, generators: Any) -> Any:
            return np.zeros(len(env_ids), int)

        act.begin = lambda env_ids: pool.async_reset()  # type: ignore[attr-defined]
        with pytest.raises(errors.UsageError):
            next(pool.play(act))


def test_players_have_a_row_each() -> None:
    seen: list[Any] = []

    def policy(observations: Any, env_ids: np.ndarray, generators: Sequence[Any]) -> Any:
        seen.append((len(observations), env_ids.tolist(), [one is generators[0] for one in generators]))
        return np.zeros(len(env_ids), int)

    with stepmill.make("Template-v0", num_envs=2, max_num_players=3) as pool:  # one more player at every step
        batches = pool.play(policy)
        rows = [len(next(batches).rewards) for _ in range(3)]
        assert next(batches).actions is None
    assert rows == [2, 4, 6]
    assert seen[:2] == [(2, [0, 1], [True, False]), (4, [0, 0, 1, 1], [True, True, False, False])]


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"policy": 3}, errors.InputError, r"play: expected a function policy\(observations, env_ids, generators\)"),
        ({"seed": -1}, errors.ConfigError, "play: seed: expected a whole number >= 0"),
        ({"episodes": ["a"]}, errors.ConfigError, "play: episodes: a seed: expected a whole number"),
    ],
)
def test_bad_arguments(arguments: dict[str, Any], error: type[Exception], message: str) -> None:
    with stepmill.make("CartPole-v1", num_envs=3) as pool:
        with pytest.raises(error, match=message):
            next(pool.play(**{"policy": zeros, **arguments}))
        assert pool.stats()["steps"] == 0


def test_what_a_pool_cannot_play() -> None:
    with stepmill.make("CartPole-v1", num_envs=3, autoreset="disabled") as pool:
        with pytest.raises(errors.UnsupportedError, match=r"or pass episodes=\.\.\."):
            pool.play(zeros)
        pool.send(np.zeros(3, int))
        with pytest.raises(errors.InFlightError, match="play: envs are in flight"):
            pool.play(zeros, episodes=[1])


# ---- policies --------------------------------------------------------------------------------------


class Counting:
    """A policy with a memory: it counts the calls of each episode, and returns the counts beside its actions."""

    def __init__(self) -> None:
        self.calls: dict[int, int] = {}
        self.begun: list[int] = []

    def begin(self, env_ids: np.ndarray) -> None:
        self.begun += env_ids.tolist()
        self.calls.update(dict.fromkeys(env_ids.tolist(), 0))

    def __call__(self, observations: Any, env_ids: np.ndarray, generators: Any) -> Any:
        counts = np.array([self.calls[env_id] for env_id in env_ids.tolist()])
        self.calls.update(zip(env_ids.tolist(), (counts + 1).tolist(), strict=True))
        return np.zeros(len(env_ids), int), counts


@pytest.mark.parametrize("batch_size", [4, 2])
@pytest.mark.parametrize("mode", ["next_step", "same_step"])
def test_begin_is_called_when_episodes_start(mode: str, batch_size: int) -> None:
    """So its count is that of the env, in one long rollout or in short ones."""
    arguments = {"num_envs": 4, "batch_size": batch_size, "autoreset": mode, "max_episode_steps": 6}
    with stepmill.make("CartPole-v1", **arguments) as pool:
        policy = Counting()
        rollouts = [pool.rollout(policy, steps) for steps in (20, 6, 7, 1, 8)]
    counts = np.concatenate([one.extras[0] for one in rollouts])
    ended = np.concatenate([one.terminated | one.truncated for one in rollouts])
    reset = np.concatenate([one.reset for one in rollouts])
    expected = np.zeros(4, int)
    for at in range(len(counts)):
        np.testing.assert_array_equal(counts[at], expected)
        begins = reset[at] if mode == "next_step" else ended[at]
        expected = np.where(begins, 0, expected + 1)
    assert ended.sum() > 4


def test_another_policy_begins_with_all_envs() -> None:
    with stepmill.make("CartPole-v1", num_envs=2) as pool:
        first, second = Counting(), Counting()
        pool.rollout(first, 2)
        pool.rollout(first, 2)
        assert first.begun == [0, 1]
        pool.rollout(second, 2)
        pool.rollout(first, 1, observation=pool.reset()[0])
        assert (first.begun, second.begun) == ([0, 1, 0, 1], [0, 1])


def test_per_env_is_a_loop_over_rows() -> None:
    def batched(observations: Any, env_ids: np.ndarray, generators: Any) -> Any:
        noise = np.array([one.normal(scale=0.1) for one in generators])
        return (observations[:, 2] + noise > 0).astype(int)

    with (
        stepmill.make("CartPole-v1", num_envs=3, seed=4) as pool,
        stepmill.make("CartPole-v1", num_envs=3, seed=4) as other,
    ):
        np.testing.assert_array_equal(pool.rollout(noisy, 40).observations, other.rollout(batched, 40).observations)
    assert noisy.__name__ == "noisy"  # type: ignore[attr-defined]


def test_per_env_keeps_the_structure_of_actions() -> None:
    one: Any = stepmill.per_env(lambda observation, generator: {"turn": 1, "push": (np.ones(2), 0.5)})
    (actions,) = one(np.zeros((3, 1)), np.arange(3), [None] * 3)
    assert actions["turn"].tolist() == [1, 1, 1]
    assert [part.shape for part in actions["push"]] == [(3, 2), (3,)]


def per_row(observation: Any, generator: Any) -> int:
    return 0


def per_observation(observation: Any) -> int:
    return 0


def nothing() -> int:
    return 0


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        (per_row, r"got per_row\(observation.*write stepmill\.per_env\(function\)"),
        (per_observation, r"got per_observation\(observation.*write stepmill\.per_env\(function\)"),
        (nothing, r"got nothing\(\) -> 'int'$"),
        (None, "got None$"),
    ],
)
def test_a_function_of_another_shape_is_told_what_is_expected(policy: Any, message: str) -> None:
    with stepmill.make("CartPole-v1", num_envs=2) as pool:
        for play in (lambda: pool.rollout(policy, 2), lambda: pool.play(policy)):
            with pytest.raises(
                errors.InputError, match=r"expected a function policy\(observations, env_ids, gen.*" + message
            ):
                play()


def test_begin_of_a_policy_must_be_a_method() -> None:
    policy: Any = functools.partial(zeros)
    policy.begin = 5
    with stepmill.make("CartPole-v1", num_envs=2) as pool:
        for play in (lambda: pool.rollout(policy, 2), lambda: pool.play(policy)):
            with pytest.raises(errors.InputError, match=r"expected a method begin\(env_ids\), got begin = 5"):
                play()


def test_per_env_refuses_what_is_no_function_of_one_env() -> None:
    with pytest.raises(errors.InputError, match="expected a function of one env's observation and a generator, got 3"):
        stepmill.per_env(3)  # type: ignore[arg-type]
    with pytest.raises(errors.InputError, match=r"got zeros\("):
        stepmill.per_env(zeros)  # type: ignore[arg-type]
