"""What a step returns is what SB3's own ``DummyVecEnv`` returns, with its ``Monitor`` around each env."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.wrappers import TimeLimit
from stable_baselines3.common.env_util import make_vec_env as sb3_make_vec_env
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv

import stepmill
from stepmill.interop.sb3 import StepmillVecEnv, make_vec_env
from support.envs.talkative import TalkativeEnv

pytestmark = pytest.mark.usefixtures("server")
N = 4


def assert_equal(ours: Any, theirs: Any) -> None:
    """Equal, with the same keys and the same dtypes; the time of an episode is left out."""
    if isinstance(theirs, dict):
        assert sorted(ours) == sorted(theirs)
        for key in theirs:
            if not (key == "t" and "r" in theirs):
                assert_equal(ours[key], theirs[key])
    elif isinstance(theirs, list | tuple):
        assert len(ours) == len(theirs)
        for one, other in zip(ours, theirs, strict=True):
            assert_equal(one, other)
    elif isinstance(theirs, np.ndarray):
        assert ours.dtype == theirs.dtype
        np.testing.assert_array_equal(ours, theirs)
    else:
        assert ours == theirs


def play(ours: Any, theirs: Any, steps: int) -> int:
    """Steps both with the same actions and compares everything. Returns how many episodes ended."""
    assert_equal(ours.reset(), theirs.reset())
    assert_equal(ours.reset_infos, theirs.reset_infos)
    ended = 0
    ours.action_space.seed(7)
    for _ in range(steps):
        actions = np.array([ours.action_space.sample() for _ in range(N)])
        result, expected = ours.step(actions), theirs.step(actions)
        assert_equal(result, expected)
        assert_equal(ours.reset_infos, theirs.reset_infos)
        ended += int(expected[2].sum())
    ours.close()
    theirs.close()
    return ended


@pytest.mark.parametrize("env_id", ["CartPole-v1", "Pendulum-v1", "FrozenLake-v1", "Acrobot-v1"])
def test_native_envs(env_id: str) -> None:
    ours, theirs = make_vec_env(env_id, N, seed=5), sb3_make_vec_env(env_id, N, seed=5)
    assert ours.pool.is_native
    assert play(ours, theirs, 420 if env_id == "Pendulum-v1" else 300) > 0 or env_id == "Acrobot-v1"


class NeverCrashes(TalkativeEnv):
    action_space = spaces.Discrete(1)


@pytest.mark.parametrize("backend", ["inline", "process"])
@pytest.mark.parametrize("length", [3, 9])
def test_python_envs_with_dict_observations_and_infos(backend: str, length: int) -> None:
    """Ends by themselves, or by a limit of 5; options are passed once."""
    ours = make_vec_env(NeverCrashes, N, seed=5, backend=backend, length=length, max_episode_steps=5)
    theirs = DummyVecEnv([lambda: Monitor(TimeLimit(NeverCrashes(length), 5)) for _ in range(N)])
    theirs.seed(5)
    for one in (ours, theirs):
        one.set_options([{"one": 1}, {}, {"two": 2}, {}])
    assert play(ours, theirs, 12) > 0


def test_both_ends_in_one_step_are_no_truncation() -> None:
    with stepmill.make(TalkativeEnv, backend="inline", autoreset="same_step", max_episode_steps=3) as pool:
        vec_env = StepmillVecEnv(pool)
        vec_env.reset()
        for _ in range(3):
            _, _, dones, infos = vec_env.step([0])
        assert dones == [True]
        assert infos[0]["TimeLimit.truncated"] is False


def test_what_an_env_says_of_limits_itself_does_not_count() -> None:
    """As in SB3: only its flags do."""

    class Old(NeverCrashes):
        def step(self, action: int) -> Any:
            *rest, info = super().step(action)
            return *rest, {**info, "TimeLimit.truncated": True}

    vec_env = StepmillVecEnv([Old], backend="inline")
    vec_env.reset()
    said = [vec_env.step([0])[3][0]["TimeLimit.truncated"] for _ in range(4)]
    assert said == [False] * 4
    vec_env.close()


class Telling(NeverCrashes):
    def __init__(self, told: dict[str, Any]) -> None:
        super().__init__()
        self.told = told

    def step(self, action: int) -> Any:
        *rest, _ = super().step(action)
        return *rest, self.told


def told(*infos: dict[str, Any]) -> list[dict[str, Any]]:
    vec_env = StepmillVecEnv([functools.partial(Telling, info) for info in infos], backend="inline")
    vec_env.reset()
    *_, got = vec_env.step([0] * len(infos))
    vec_env.close()
    return [{key: value for key, value in one.items() if key != "TimeLimit.truncated"} for one in got]


def test_infos_that_differ_from_sb3s() -> None:
    """As docs/stable-baselines3.md has it."""
    own = (
        "env_id",
        "elapsed_step",
        "players",
        "episode_return",
        "episode_length",
        "abnormal",
        "final_obs",
        "final_info",
    )
    assert told(dict.fromkeys(own, 7), {"_abnormal": 7, "mine": 7}) == [{}, {"mine": 7}]
    first, second = told({"x": 0.5}, {"x": 1})
    assert (type(first["x"]), type(second["x"])) == (float, float)
    first, second = told({"x": 1}, {"x": 0.5})  # integers do not hold it: each keeps its own, and they are Python's
    assert (type(first["x"]), type(second["x"])) == (int, float)
    with pytest.warns(UserWarning, match="both 'v' and '_v'"):
        assert told({"v": 1, "_v": 2, "w": 3}, {"w": 4}) == [{}, {"w": 4}]


def test_a_monitor_around_an_env_counts_instead_of_the_engine() -> None:
    """A wrapper above it ends episodes that are none to the monitor."""
    vec_env = StepmillVecEnv([lambda: TimeLimit(Monitor(TalkativeEnv(length=4)), 3)], backend="inline")
    vec_env.reset()
    for _ in range(3):
        _, _, dones, infos = vec_env.step([0])
    assert dones == [True]
    assert "episode" not in infos[0]
    vec_env.close()


def test_an_episode_has_the_figures_of_the_engine() -> None:
    vec_env = make_vec_env("CartPole-v1", 2, seed=1, max_episode_steps=3)
    vec_env.reset()
    for _ in range(3):
        _, _, dones, infos = vec_env.step(np.array([0, 1]))
    assert dones.tolist() == [True, True]
    for info in infos:
        assert info["episode"].keys() == {"r", "l", "t"}
        assert (info["episode"]["r"], info["episode"]["l"]) == (3.0, 3)
        assert info["episode"]["t"] >= 0
        assert info["TimeLimit.truncated"] is True
    vec_env.close()


def test_results_are_the_callers_own() -> None:
    vec_env = make_vec_env("CartPole-v1", 2, seed=1)
    first = vec_env.reset()
    kept = first.copy()
    observation, rewards, dones, infos = vec_env.step(np.array([0, 1]))
    for array in (observation, rewards, dones):
        array[:] = 0
    infos[0]["mine"] = 1
    again = vec_env.step(np.array([0, 1]))
    assert again[0].any()
    assert again[1].all()
    assert "mine" not in again[3][0]
    np.testing.assert_array_equal(first, kept)
    vec_env.close()


def test_a_reset_drops_a_step_that_is_under_way() -> None:
    vec_env = make_vec_env("CartPole-v1", 2, seed=1)
    vec_env.reset()
    vec_env.step_async(np.array([0, 1]))
    vec_env.seed(1)
    first = vec_env.reset()
    vec_env.step_async(np.array([0, 1]))
    observation, *_ = vec_env.step_wait()
    assert observation.shape == first.shape
    vec_env.close()


def test_seeds_are_for_the_next_reset_only() -> None:
    vec_env = make_vec_env("CartPole-v1", 3, seed=11)
    first = vec_env.reset()
    second = vec_env.reset()
    assert not np.array_equal(first, second)
    assert vec_env.seed(11) == [11, 12, 13]
    np.testing.assert_array_equal(vec_env.reset(), first)
    np.testing.assert_array_equal(vec_env.reset(), second)
    vec_env.close()


def test_without_a_seed_numpys_global_generator_gives_one() -> None:
    """As in SB3's function of the same name."""
    firsts = []
    for _ in range(2):
        np.random.seed(3)
        vec_env = make_vec_env("CartPole-v1", 2)
        firsts.append(vec_env.reset())
        vec_env.close()
    np.testing.assert_array_equal(*firsts)


def test_actions_of_many_parts_come_as_a_list() -> None:
    """SB3's algorithms have none such; its ``DummyVecEnv`` takes them."""

    class Parts(NeverCrashes):
        action_space = spaces.Dict(a=spaces.Discrete(2), b=spaces.Tuple([spaces.Box(-1, 1, (2,)), spaces.Discrete(3)]))

        def step(self, action: Any) -> Any:
            self.last = action
            return super().step(0)

    vec_env = StepmillVecEnv([Parts, Parts], backend="inline")
    vec_env.reset()
    actions = [vec_env.action_space.sample() for _ in range(2)]
    vec_env.step(actions)
    for sent, got in zip(actions, vec_env.get_attr("last"), strict=True):
        assert sent["a"] == got["a"]
        np.testing.assert_array_equal(sent["b"][0], got["b"][0])
        assert sent["b"][1] == got["b"][1]
    vec_env.close()
