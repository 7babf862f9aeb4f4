"""Pursuit, the env of two agents: its world, and the same episodes as a ``BaseEnv`` and as a PettingZoo env."""

from __future__ import annotations

import copy
import math
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from pursuit import env as pursuit
from pursuit.env import Point, PursuitEnv, Start

import stepmill
from stepmill.envs.adapters.parallel import ParallelAsBaseEnv
from stepmill.errors import (
    ActionError,
    ActionTypeError,
    ConfigError,
    NeedsResetError,
    ResetOptionError,
)
from stepmill.testing import check_env

ROOT = Path(__file__).resolve().parents[2]
STAY, UP, DOWN, LEFT, RIGHT = range(5)
FAR_GATES = ((-0.9, 0.9), (0.9, 0.9))
CORNER = (-0.9, -0.9)


@pytest.fixture
def parallel_env() -> Any:
    pytest.importorskip("pettingzoo")
    from pursuit.parallel import PursuitParallelEnv

    return PursuitParallelEnv


# ---- as a BaseEnv ---------------------------------------------------------------------------------


def begin_with(
    monkeypatch: pytest.MonkeyPatch, *runners: Point, gates: Any = FAR_GATES, hunter: Point = CORNER
) -> None:
    """Makes every episode begin like this; chance decides only when the hunter hesitates."""
    monkeypatch.setattr("pursuit.env.draw_start", lambda _: Start(runners, gates, hunter))


def play(env: PursuitEnv, policy: Any) -> tuple[list[Any], dict[str, Any]]:
    """One episode: its timesteps, and the info of its end."""
    observation, done, steps = env.reset(), False, []
    while not done:
        steps.append(env.step(policy(observation)))
        observation, _, done, info = steps[-1]
    return steps, info


def test_what_is_known_before_the_first_reset() -> None:
    env = PursuitEnv()
    assert (env.num_agents, env.num_agent, env.info().agent_num) == (2, 2, 2)
    assert (env.observation_space.shape, env.observation_space.dtype) == ((2, 15), np.float32)
    assert env.action_space == spaces.MultiDiscrete([5, 5])
    assert env.reward_space.shape == (2,)
    assert PursuitEnv({"shared_reward": True}).reward_space.shape == (1,)


def test_the_types_of_every_timestep() -> None:
    env = PursuitEnv({})
    env.seed(0)
    for _ in range(10):
        assert env.observation_space.contains(env.reset())
        steps, info = play(env, lambda _: env.random_action())
        for step in steps:
            assert env.observation_space.contains(step.obs), step.obs
            assert (step.reward.dtype, step.reward.shape) == (np.float32, (2,))
            assert type(step.done) is bool
            assert type(step.info["is_success"]) is bool
            assert ("eval_episode_return" in step.info) is step.done
        assert type(info["eval_episode_return"]) is float
        assert info["eval_episode_return"] == info["final_eval_reward"]
        assert info["eval_episode_return"] == pytest.approx(sum(step.reward.sum() for step in steps), abs=1e-4)


def test_an_episode_in_which_they_leave_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    begin_with(monkeypatch, (0.75, 0.9), (-0.51, 0.9))
    env = PursuitEnv()
    env.reset()
    first = env.step(np.array([RIGHT, LEFT]))
    assert first.reward == pytest.approx([0.99, -0.01])
    assert first.done is False
    assert first.info["alive"].tolist() == [False, True]
    assert first.obs[0, :3] == pytest.approx([0.83, 0.9, 0]), "what it saw in the step in which it left"
    second = env.step(np.array([LEFT, LEFT]))
    assert not second.obs[0].any(), "and nothing after that"
    assert second.obs[1, 3:6] == pytest.approx([0.83 + 0.67, 0, 0])
    third = env.step(np.array([UP, LEFT]))
    last = env.step(np.array([UP, LEFT]))
    assert (third.done, last.done) == (False, True)
    assert last.reward == pytest.approx([0.0, 0.99])
    assert last.info == {
        "is_success": True,
        "alive": pytest.approx([False, False]),
        "TimeLimit.truncated": False,
        "eval_episode_return": pytest.approx(2 - 5 * 0.01),
        "final_eval_reward": last.info["eval_episode_return"],
    }
    with pytest.raises(NeedsResetError, match="the episode is over"):
        env.step(np.array([UP, LEFT]))


def test_an_episode_that_is_cut_off_for_one_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    begin_with(monkeypatch, (0.9, 0.9), (0.0, 0.0))
    env = PursuitEnv({"time_limit": 2, "shared_reward": True})
    steps, info = play(env, lambda _: np.array([STAY, STAY]))
    assert [step.reward.tolist() for step in steps] == [[pytest.approx(0.98)], [pytest.approx(-0.01)]]
    assert [step.reward.dtype for step in steps] == [np.float32] * 2
    assert steps[0].info["alive"].tolist() == [False, True]
    assert info["alive"].tolist() == [False, False]
    assert info["TimeLimit.truncated"] is True
    assert info["is_success"] is False
    assert info["eval_episode_return"] == pytest.approx(0.97)


def test_a_runner_that_leaves_in_the_last_step_is_not_truncated(
    monkeypatch: pytest.MonkeyPatch, parallel_env: Any
) -> None:
    begin_with(monkeypatch, (0.9, 0.9), (-0.9, 0.9))
    env = PursuitEnv({"time_limit": 1})
    env.reset()
    assert env.step(np.array([STAY, STAY])).info["TimeLimit.truncated"] is False
    twin = parallel_env(time_limit=1)
    twin.reset()
    _, _, terminated, truncated, _ = twin.step({"runner_0": STAY, "runner_1": STAY})
    assert (set(terminated.values()), set(truncated.values())) == ({True}, {False})


def test_seeds() -> None:
    def episodes(seed: int, dynamic_seed: bool, count: int) -> list[bytes]:
        """All observations of each of them: the hunter's hesitations too."""
        env = PursuitEnv()
        env.seed(seed, dynamic_seed)
        return [
            b"".join(step.obs.tobytes() for step in play(env, lambda _: np.array([UP, LEFT]))[0]) for _ in range(count)
        ]

    first, *others = episodes(4, False, 3)
    assert others == [first, first], "static: every episode is the same one"
    several = episodes(4, True, 4)
    assert len(set(several)) == 4, "dynamic: every episode is another one"
    assert several == episodes(4, True, 4), "and the run repeats"
    assert several[0] != episodes(5, True, 1)[0]


def test_without_a_seed_episodes_differ() -> None:
    env = PursuitEnv()
    assert not np.array_equal(env.reset(), env.reset())


def test_a_closed_env_can_be_reset() -> None:
    env = PursuitEnv()
    env.seed(3, dynamic_seed=False)
    first = env.reset()
    env.close()
    env.close()
    with pytest.raises(NeedsResetError, match="PursuitEnv: render: call reset first"):
        env.render()
    assert np.array_equal(env.reset(), first)


@pytest.mark.parametrize(
    ("action", "error", "says"),
    [
        (3, ActionError, "one move for each of 2 runners, got 3"),
        ([1, 2, 3], ActionError, "one move for each of 2 runners"),
        ([1, 5], ActionError, "a move from 0 to 4, got"),
        ([-1, 0], ActionError, "a move from 0 to 4, got"),
        ([1.0, 2.0], ActionTypeError, "a whole number as a move, got"),
        (["up", "down"], ActionTypeError, "a whole number as a move, got"),
    ],
)
def test_a_bad_action_is_an_error_that_changes_nothing(action: Any, error: type[Exception], says: str) -> None:
    env = PursuitEnv()
    env.seed(0, dynamic_seed=False)
    env.reset()
    expected = env.step(np.array([UP, UP]))
    env.reset()
    with pytest.raises(error, match=f"PursuitEnv: action: expected {says}"):
        env.step(action)
    assert np.array_equal(env.step(np.array([UP, UP])).obs, expected.obs)


@pytest.mark.parametrize(
    ("cfg", "says"),
    [
        (3, "PursuitEnv: cfg: expected a dict, got 3"),
        ({"shared_reward": 1}, "PursuitEnv: shared_reward: expected True or False, got 1"),
        ({"time_limit": 0}, "PursuitEnv: time_limit: expected a whole number >= 1, got 0"),
        ({"time_limit": True}, "PursuitEnv: time_limit: expected a whole number, got True"),
    ],
)
def test_a_bad_cfg_is_an_error_when_the_env_is_made(cfg: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        PursuitEnv(cfg)


def test_calls_at_the_wrong_time_and_with_too_much() -> None:
    env = PursuitEnv()
    with pytest.raises(NeedsResetError, match="PursuitEnv: step: call reset first"):
        env.step(np.array([STAY, STAY]))
    with pytest.raises(ResetOptionError, match="PursuitEnv: reset: expected no arguments, got runners"):
        env.reset(runners=3)


def test_in_a_pool_each_runner_is_a_player() -> None:
    env = PursuitEnv({"time_limit": 3})
    env.seed(8)
    pool = stepmill.make(PursuitEnv, cfg={"time_limit": 3}, num_envs=2, seed=7, backend="inline")
    observation, _ = pool.reset()
    assert np.array_equal(observation[2:], env.reset()), "env 1 has the seed after that of env 0"
    for _ in range(3):
        observation, reward, *_, info = pool.step(np.array([UP, DOWN, LEFT, RIGHT]))
        expected = env.step(np.array([LEFT, RIGHT]))
        assert np.array_equal(observation[2:], expected.obs)
        assert np.array_equal(reward[2:], expected.reward)
    assert info["eval_episode_return"][1] == pytest.approx(expected.info["eval_episode_return"])
    pool.close()


def test_a_cfg_can_ask_for_videos(tmp_path: Path) -> None:
    pytest.importorskip("imageio_ffmpeg")
    env = PursuitEnv({"time_limit": 3, "replay_path": str(tmp_path)})
    env.seed(0)
    play(env, lambda _: env.random_action())
    env.close()
    assert [path.suffix for path in tmp_path.iterdir()] == [".mp4"]


# ---- policies -------------------------------------------------------------------------------------


def run_to_the_gates(observation: np.ndarray) -> np.ndarray:
    """Each takes a gate of its own, the pair of ways that is shorter, and keeps away from the hunter."""
    gates = [[row[8:11], row[11:14]] for row in observation]

    def way(runner: int, gate: int) -> float:
        x, y, is_open = gates[runner][gate]
        return math.hypot(x, y) + (0 if is_open else 100) if observation[runner, 2] else 0.0

    chosen = (0, 1) if way(0, 0) + way(1, 1) <= way(0, 1) + way(1, 0) else (1, 0)
    return np.array([_best_move(gates[i][chosen[i]][:2], observation[i, 6:8]) for i in range(2)])


def _best_move(gate: np.ndarray, hunter: np.ndarray) -> int:
    def cost(move: int) -> float:
        step = pursuit.STRIDE * np.array(pursuit.MOVES[move])
        return float(np.linalg.norm(gate - step) + 10 * max(0.25 - np.linalg.norm(hunter - step), 0))

    return min(range(len(pursuit.MOVES)), key=cost)


def test_runners_that_know_the_way_get_out_and_random_ones_do_not() -> None:
    env = PursuitEnv()
    env.seed(2)
    ends = [play(env, run_to_the_gates)[1] for _ in range(30)]
    assert all(end["is_success"] for end in ends)
    assert np.mean([end["eval_episode_return"] for end in ends]) > 1.6
    env.seed(0)
    ends = [play(env, lambda _: env.random_action())[1] for _ in range(30)]
    assert sum(end["is_success"] for end in ends) <= 3
    assert np.mean([end["eval_episode_return"] for end in ends]) < -1.5


# ---- as a PettingZoo env --------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:The old environment creation API:DeprecationWarning")  # their tests import it
def test_pettingzoos_own_checks_pass(parallel_env: Any) -> None:
    from pettingzoo import ParallelEnv
    from pettingzoo.test import parallel_api_test, parallel_seed_test

    env = parallel_env()
    assert isinstance(env, ParallelEnv)
    assert str(env) == "pursuit_v0"
    parallel_api_test(env, num_cycles=300)
    parallel_seed_test(parallel_env)


@pytest.mark.parametrize(
    ("time_limit", "expected_ends"),  # how many were in play before the last step, and whether any was cut off
    [(12, {(1, True), (2, True)}), (150, {(1, False)})],
)
def test_the_same_seed_gives_the_same_episodes_in_both_forms(
    parallel_env: Any, time_limit: int, expected_ends: set[tuple[int, bool]]
) -> None:
    one, other = PursuitEnv({"time_limit": time_limit}), parallel_env(time_limit=time_limit)
    ends = set()

    def assert_same_view() -> None:
        for row, name in zip(rows, other.possible_agents, strict=True):
            assert np.array_equal(row, observations.get(name, np.zeros(15)))

    for seed in range(40):
        one.seed(seed, dynamic_seed=False)
        rows, (observations, _) = one.reset(), other.reset(seed=seed)
        assert_same_view()
        done = False
        while not done:
            acting = list(other.agents)
            action = one.random_action()
            rows, reward, done, info = one.step(action)
            moves = dict(zip(other.possible_agents, action, strict=True))
            observations, rewards, terminated, truncated, infos = other.step({name: moves[name] for name in acting})
            assert_same_view()
            assert set(observations) == set(rewards) == set(terminated) == set(truncated) == set(infos) == set(acting)
            assert reward.tolist() == [np.float32(rewards.get(name, 0.0)) for name in other.possible_agents]
            assert info["alive"].tolist() == [name in other.agents for name in other.possible_agents]
            assert done is not bool(other.agents)
        assert info["TimeLimit.truncated"] is any(truncated.values())
        ends.add((len(acting), info["TimeLimit.truncated"]))
    assert ends == expected_ends


def test_a_runner_that_leaves_terminates_alone(parallel_env: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    begin_with(monkeypatch, (0.9, 0.9), (-0.9, -0.8), hunter=(0.5, -0.9))
    env = parallel_env(time_limit=2)
    observations, infos = env.reset(seed=0)
    assert env.agents == list(observations) == list(infos) == ["runner_0", "runner_1"]
    observations, rewards, terminated, truncated, infos = env.step({"runner_0": STAY, "runner_1": STAY})
    assert terminated == {"runner_0": True, "runner_1": False}
    assert truncated == {"runner_0": False, "runner_1": False}
    assert rewards == {"runner_0": pytest.approx(0.99), "runner_1": -0.01}
    assert infos == {"runner_0": {"is_success": True}, "runner_1": {"is_success": False}}
    assert env.agents == ["runner_1"]
    observations, rewards, terminated, truncated, infos = env.step({"runner_1": STAY})
    assert (terminated, truncated) == ({"runner_1": False}, {"runner_1": True})
    assert env.agents == []
    with pytest.raises(NeedsResetError, match="the episode is over, call reset first"):
        env.step({})


@pytest.mark.parametrize(
    ("actions", "says"),
    [
        ({}, "expected one for each agent in play, runner_0, runner_1, got none"),
        ({"runner_0": 1}, "expected one for each agent in play, runner_0, runner_1, got runner_0"),
        ({"runner_0": 1, "runner_1": 1, "hunter": 1}, "got runner_0, runner_1, hunter"),
        ({"runner_0": 1, "runner_1": 5}, "expected a move from 0 to 4, got 5"),
        ({"runner_0": 1, "runner_1": None}, "expected a whole number as a move, got None"),
    ],
)
def test_bad_actions_are_errors(parallel_env: Any, actions: dict[str, Any], says: str) -> None:
    env = parallel_env()
    env.reset(seed=0)
    with pytest.raises(ActionError, match=says):
        env.step(actions)


def test_bad_arguments_are_errors(parallel_env: Any) -> None:
    with pytest.raises(ConfigError, match="pursuit_v0: render_mode: expected None or 'rgb_array', got 'human'"):
        parallel_env("human")
    with pytest.raises(ConfigError, match="pursuit_v0: time_limit: expected a whole number >= 1, got 0"):
        parallel_env(time_limit=0)


def test_it_renders_when_told_to(parallel_env: Any) -> None:
    env = parallel_env("rgb_array")
    with pytest.raises(NeedsResetError, match="pursuit_v0: render: call reset first"):
        env.render()
    env.reset(seed=0)
    assert env.render().shape == (400, 400, 3)
    assert parallel_env().render() is None


def test_a_copy_goes_on_as_the_env_does(parallel_env: Any) -> None:
    env = parallel_env()
    env.reset(seed=1)
    twins = [copy.deepcopy(env), pickle.loads(pickle.dumps(env))]
    moves = {"runner_0": UP, "runner_1": LEFT}
    expected = env.step(moves)[0]
    for twin in twins:
        assert type(twin) is type(env)
        got = twin.step(moves)[0]
        assert all(np.array_equal(got[name], expected[name]) for name in env.possible_agents)


def test_the_adapter_gives_the_episodes_of_the_base_env(parallel_env: Any) -> None:
    one, other = PursuitEnv(), ParallelAsBaseEnv(parallel_env)
    assert (other.observation_space, other.action_space) == (one.observation_space, one.action_space)
    assert other.num_agents == 2
    one.seed(6), other.seed(6)
    for _ in range(5):
        assert np.array_equal(one.reset(), other.reset())
        done = False
        while not done:
            action = one.random_action()
            mine, theirs = one.step(action), other.step(action)
            assert np.array_equal(mine.obs, theirs.obs)
            assert np.array_equal(mine.reward, theirs.reward)
            assert np.array_equal(mine.info["alive"], theirs.info["alive"])
            assert mine.done is theirs.done
            done = mine.done
        assert mine.info["eval_episode_return"] == pytest.approx(theirs.info["eval_episode_return"])


# ---- the example ----------------------------------------------------------------------------------


@pytest.mark.parametrize("cfg", [{}, {"shared_reward": True}])
def test_it_keeps_the_contract(cfg: dict[str, Any]) -> None:
    report = check_env(PursuitEnv, cfg, episodes=1, steps=1000, print_report=False)
    assert report == [], str(report)
    assert report.unchecked == {}


def test_the_parallel_env_keeps_the_contract(parallel_env: Any) -> None:
    report = check_env(parallel_env, episodes=1, steps=1000, print_report=False)
    assert report == []
    assert set(report.unchecked) == {"lazy_construction", "reset_after_close", "cfg_unchanged"}


def test_it_runs_as_the_page_says() -> None:
    command = [sys.executable, "-m", "examples.worlds.pursuit", "--episodes", "1"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert done.stdout.endswith("a pool of 8: observations (16, 15), rewards (16,)\n")
