"""Which pools and arguments are taken, and what the others are told."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import RewardWrapper, spaces
from gymnasium.wrappers import TimeLimit
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env as sb3_make_vec_env
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecNormalize

import stepmill
from stepmill.errors import (
    ClosedError,
    ConfigError,
    CopyError,
    EnvError,
    InputError,
    UnknownConfigError,
    UnsupportedError,
)
from stepmill.interop.sb3 import StepmillVecEnv, make_vec_env
from stepmill.registry import records as registry
from support.envs.contract import Pair
from support.envs.talkative import TalkativeEnv


class Nested(TalkativeEnv):
    observation_space = spaces.Dict(inner=TalkativeEnv.observation_space)


class Words(TalkativeEnv):
    observation_space = spaces.Text(5)


@pytest.mark.parametrize(
    ("task", "settings", "error", "message"),
    [
        ("CartPole-v1", {}, ConfigError, r"autoreset='same_step', got 'next_step': pass autoreset='same_step' to make"),
        ("CartPole-v1", {"autoreset": "disabled"}, ConfigError, r"got 'disabled': pass autoreset='same_step' to make"),
        (
            "CartPole-v1",
            {"autoreset": "same_step", "num_envs": 4, "batch_size": 2},
            ConfigError,
            r"batch_size=2 of num_envs=4: leave out batch_size in make",
        ),
        (
            "CartPole-v1",
            {"env_type": "gym", "autoreset": "same_step"},
            ConfigError,
            r"make\(\.\.\., env_type='gymnasium'\)",
        ),
        ("CartPole-v1", {"env_type": "dm", "autoreset": "same_step"}, ConfigError, r"got a pool of another view"),
        (Pair, {"backend": "inline"}, UnsupportedError, r"one player per env, and Pair has 2: pass an env"),
        (Nested, {"autoreset": "same_step", "backend": "inline"}, UnsupportedError, r"a wrapper that flattens them"),
        (Words, {"autoreset": "same_step", "backend": "inline"}, UnsupportedError, r"observations that are arrays"),
    ],
)
def test_other_pools(task: Any, settings: dict[str, Any], error: type[Exception], message: str) -> None:
    with stepmill.make(task, **settings) as pool, pytest.raises(error, match=message):
        StepmillVecEnv(pool)


def test_pools_of_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    with stepmill.make("CartPole-v1", autoreset="same_step") as pool:
        monkeypatch.setattr(pool, "_settings", dataclasses.replace(pool._settings, output="torch"))
        with pytest.raises(ConfigError, match=r"output='torch': leave out output in make"):
            StepmillVecEnv(pool)


def test_a_closed_pool() -> None:
    with stepmill.make("CartPole-v1", autoreset="same_step") as pool:
        pass
    with pytest.raises(ClosedError, match=r"CartPole-v1.*closed\) cannot be used any more: make another one"):
        StepmillVecEnv(pool)


class WithoutRepr:
    def __repr__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize(
    "given", [None, "CartPole-v1", TalkativeEnv, WithoutRepr()], ids=["none", "text", "class", "odd"]
)
def test_what_is_no_pool(given: Any) -> None:
    with pytest.raises(ConfigError, match=r"expected a pool of stepmill\.make"):
        StepmillVecEnv(given)


def test_a_pool_where_sb3_needs_a_vec_env() -> None:
    """SB3's message does not say what is wrong: docs/faq.md has a paragraph with these words."""
    page = (Path(__file__).resolve().parents[3] / "docs" / "faq.md").read_text(encoding="utf-8")
    with stepmill.make("CartPole-v1", autoreset="same_step") as pool:
        with pytest.raises(ValueError, match="we expect OpenAI Gym to be installed") as caught:
            PPO("MlpPolicy", pool, device="cpu")
        heading = str(caught.value).replace(str(type(pool)), "…").partition(" and the environment")[0]
        assert f"\n### {heading}\n" in page
        PPO("MlpPolicy", StepmillVecEnv(pool), device="cpu")


def test_a_pool_takes_no_more_settings() -> None:
    with (
        stepmill.make("CartPole-v1", autoreset="same_step") as pool,
        pytest.raises(ConfigError, match="has its settings already, got backend"),
    ):
        StepmillVecEnv(pool, backend="inline")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"vec_env_cls": VecNormalize}, r"vec_env_cls: expected StepmillVecEnv or .*, got <class .*VecNormalize'>"),
        ({"vec_env_cls": "SubprocVecEnv"}, r"vec_env_cls: expected StepmillVecEnv or .*, got 'SubprocVecEnv'"),
        ({"wrapper_class": Monitor, "env_config": [{}]}, r"are for envs of one kind, got a list: pass functions"),
        ({"wrapper_class": Monitor, "wrapper_kwargs": [1]}, r"wrapper_kwargs: expected a dict with names as keys"),
        ({"num_envs": 3}, r"got num_envs: the number of envs is n_envs"),
        ({"vec_env_kwargs": {"num_envs": 3}}, r"got num_envs: the number of envs is n_envs"),
        ({"autoreset": "disabled"}, r"pass autoreset='same_step'"),
    ],
)
def test_arguments_that_belong_elsewhere(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_vec_env("CartPole-v1", **arguments)


def test_the_envs_own_configuration() -> None:
    for given in ({"is_slippery": False}, {"env_kwargs": {"is_slippery": False}}):
        vec_env = make_vec_env("FrozenLake-v1", 2, **given)
        assert vec_env.get_attr("is_slippery") == [False, False]
        vec_env.close()
    with pytest.raises(UnknownConfigError, match="slippery"):
        make_vec_env("FrozenLake-v1", 2, slippery=False)


class Namesake(TalkativeEnv):
    """Its arguments have the names of a pool's settings."""

    def __init__(self, length: int = 3, max_episode_steps: int = 0, seed: int = 0, device: str = "", num_envs: int = 0):
        super().__init__(length)
        self.given = max_episode_steps, seed, device, num_envs


def test_a_configuration_with_the_names_of_settings() -> None:
    config = {"max_episode_steps": 4, "seed": 5, "device": "gpu", "num_envs": 6, "length": 9}
    vec_env = make_vec_env(Namesake, 2, seed=1, backend="inline", env_kwargs=config)
    assert vec_env.get_attr("given") == [(4, 5, "gpu", 6)] * 2
    assert vec_env.get_attr("length") == [9, 9]
    vec_env.close()
    per_env = [{}, {"device": "other"}]
    vec_env = make_vec_env(Namesake, 2, backend="inline", env_kwargs=config, env_config=per_env)
    assert vec_env.get_attr("given") == [(4, 5, "gpu", 6), (4, 5, "other", 6)]
    vec_env.close()
    vec_env = make_vec_env([Namesake, Namesake], backend="inline", env_kwargs={"seed": 5})
    assert vec_env.get_attr("given") == [(0, 5, "", 0)] * 2
    vec_env.close()


def test_the_time_limit_of_an_id() -> None:
    """As ``gymnasium.make``, which SB3 calls, takes it: it is no argument of the env."""
    for make in (make_vec_env, sb3_make_vec_env):
        vec_env = make("CartPole-v1", env_kwargs={"max_episode_steps": 2})
        vec_env.reset()
        assert [bool(vec_env.step([0])[2][0]) for _ in range(2)] == [False, True]
        vec_env.close()
    with pytest.raises(UnknownConfigError, match="no config key 'seed'"):
        make_vec_env("CartPole-v1", env_kwargs={"seed": 1})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"seed": "a"}, r"seed: expected a whole number, got 'a'"),
        ({"seed": -1}, r"seed: expected a whole number in \[0, \d+\], got -1"),
        ({"seed": 1.5}, r"seed: expected a whole number, got 1\.5"),
        ({"seed": [1, 2]}, r"seed: expected a whole number, got \[1, 2\]"),
        ({"seed": 2**63 - 1, "n_envs": 2}, r"seed: expected a whole number in"),
        ({"n_envs": "3"}, r"n_envs: expected a whole number, got '3'"),
        ({"n_envs": 0}, r"n_envs: expected a whole number in \[1, \d+\], got 0"),
        ({"n_envs": 10**12, "env_kwargs": {"seed": 1}}, r"n_envs: expected a whole number in"),
        ({"env_kwargs": [1]}, r"env_kwargs: expected a dict with names as keys, got \[1\]"),
        ({"env_kwargs": {3: 3}}, r"env_kwargs: expected a dict with names as keys, got \{3: 3\}"),
        ({"vec_env_kwargs": 3}, r"vec_env_kwargs: expected a dict with names as keys, got 3"),
        ({"env_kwargs": {"seed": 1}, "env_config": 3}, r"env_config: expected a list of dicts"),
        ({"monitor_dir": 3}, r"monitor_dir: expected the path of a folder, got 3"),
        ({"start_index": -1}, r"start_index: expected a whole number >= 0, got -1"),
    ],
)
def test_invalid_arguments(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_vec_env("CartPole-v1", **arguments)


def test_numpys_numbers_are_numbers() -> None:
    vec_env = make_vec_env("CartPole-v1", np.int64(2), np.int64(7))
    other = make_vec_env("CartPole-v1", 2, 7)
    np.testing.assert_array_equal(vec_env.reset(), other.reset())
    assert vec_env.seed(np.uint8(3)) == other.seed(3) == [3, 4]
    vec_env.close()
    other.close()


@pytest.mark.usefixtures("server")
def test_arguments_in_sb3s_order(tmp_path: Path) -> None:
    """Positions and names of all of them are SB3's; settings of the pool come after."""
    theirs = list(inspect.signature(sb3_make_vec_env).parameters)
    ours = list(inspect.signature(make_vec_env).parameters)
    assert ours == [*theirs, "settings"]
    arguments = (TalkativeEnv, 2, 1, 5, str(tmp_path), None, {"length": 6}, None, {"backend": "inline"}, {}, {})
    vec_env = make_vec_env(*arguments)
    assert vec_env.pool.backend == "inline"
    assert vec_env.get_attr("length") == [6, 6]
    vec_env.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["5.monitor.csv", "6.monitor.csv"]
    actions = []
    for make in (make_vec_env, sb3_make_vec_env):
        vec_env = make("CartPole-v1", 2, 1, 5)
        actions.append([vec_env.action_space.sample() for _ in range(20)])
        vec_env.close()
    assert actions[0] == actions[1]


def test_calls_with_invalid_arguments() -> None:
    vec_env = make_vec_env("CartPole-v1", 2)
    with pytest.raises(ConfigError, match="seed: expected a whole number, got 'x'"):
        vec_env.seed("x")
    with pytest.raises(InputError, match="env_is_wrapped: expected the class of a wrapper, got 'Monitor'"):
        vec_env.env_is_wrapped("Monitor")
    vec_env.close()


@pytest.mark.parametrize("task", ["TemplatePlayers-v0", [Pair]])
def test_many_players(task: Any) -> None:
    """Not the pool's own advice, another autoreset mode, which is refused as well."""
    with pytest.raises(UnsupportedError, match=r"SB3 takes one player per env, and \S+ has \d+: pass an env of one"):
        make_vec_env(task)


def test_other_things_that_a_pool_cannot_do() -> None:
    with pytest.raises(UnsupportedError, match="backend='thread' runs native envs"):
        make_vec_env(TalkativeEnv, backend="thread")


@pytest.mark.usefixtures("server")
@pytest.mark.parametrize("backend", ["inline", "process"])
def test_sb3s_function_makes_ours(backend: str, tmp_path: Path) -> None:
    """As RL Zoo does: a function, a wrapper, a folder for monitors, and our class."""
    vec_env = sb3_make_vec_env(
        lambda **arguments: TalkativeEnv(**arguments),
        2,
        seed=1,
        env_kwargs={"length": 6},
        wrapper_class=TimeLimit,
        wrapper_kwargs={"max_episode_steps": 7},
        monitor_dir=str(tmp_path),
        monitor_kwargs={"info_keywords": ("word",)},
        vec_env_cls=StepmillVecEnv,
        vec_env_kwargs={"backend": backend},
    )
    assert vec_env.pool.backend == backend
    assert vec_env.env_is_wrapped(TimeLimit) == [True, True]
    vec_env.reset()
    for _ in range(6):
        *_, infos = vec_env.step([0, 0])
    assert [(info["episode"]["l"], info["episode"]["word"]) for info in infos] == [(6, "yes")] * 2
    vec_env.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0.monitor.csv", "1.monitor.csv"]


class Doubled(RewardWrapper):
    """Doubles rewards; where it is, a Monitor inside of it has those of the env."""

    def reward(self, reward: Any) -> Any:
        return 2 * reward


@pytest.mark.usefixtures("server")
@pytest.mark.parametrize("backend", ["inline", "process"])
def test_wrappers_as_in_sb3(backend: str, tmp_path: Path) -> None:
    """Of Gymnasium's ids, though ours are native: the same observations, rewards, infos and files."""
    seen = []
    for make, settings in ((make_vec_env, {"backend": backend}), (sb3_make_vec_env, {})):
        folder = tmp_path / make.__module__
        vec_env = make(
            "CartPole-v1",
            2,
            3,
            1,
            str(folder),
            Doubled,
            env_kwargs={"max_episode_steps": 4},
            monitor_kwargs={"reset_keywords": ()},
            **settings,
        )
        assert vec_env.env_is_wrapped(Doubled) == [True, True]
        rows = [vec_env.reset()]
        for _ in range(5):
            observation, rewards, dones, infos = vec_env.step(np.array([1, 0]))
            ends = [(one.get("episode", {}).get("r"), one.get("terminal_observation")) for one in infos]
            rows.append((observation, rewards, dones, ends))
        assert rows[4][3][0][0] == 4.0, "what the Monitor saw"
        seen.append((rows, sorted(path.name for path in folder.iterdir()), vec_env.action_space.sample()))
        vec_env.close()
    np.testing.assert_equal(*seen)


def test_wrapped_envs_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """An id that only we have, a limit as a setting of the pool, and the env's own configuration beside it."""
    monkeypatch.setattr(registry, "_records", dict(registry._records))
    stepmill.register("Talkative-v0", TalkativeEnv, config={"length": 9}, max_episode_steps=3)
    vec_env = make_vec_env("Talkative-v0", wrapper_class=Doubled, backend="inline")
    vec_env.reset()
    assert [bool(vec_env.step([0])[2][0]) for _ in range(3)] == [False, False, True]
    vec_env.close()
    vec_env = make_vec_env("Talkative-v0", 2, wrapper_class=Doubled, backend="inline", max_episode_steps=2, length=8)
    assert vec_env.get_attr("length") == [8, 8]
    vec_env.reset()
    assert [vec_env.step([0, 0])[2].tolist() for _ in range(2)] == [[False, False], [True, True]]
    vec_env.close()
    with pytest.raises(UnsupportedError, match=r"Catch-v0 is native only.*wrapper_class and monitor_kwargs need"):
        make_vec_env("Catch-v0", wrapper_class=Doubled)


class Ours(StepmillVecEnv):
    pass


@pytest.mark.usefixtures("server")
@pytest.mark.parametrize(
    ("given", "settings", "backend"),
    [
        (None, {}, "thread"),
        (DummyVecEnv, {}, "inline"),
        (SubprocVecEnv, {"vec_env_kwargs": {"start_method": "fork"}}, "process"),
        (SubprocVecEnv, {"backend": "thread"}, "thread"),
        (Ours, {}, "thread"),
    ],
)
def test_sb3s_classes_choose_the_backend(given: Any, settings: dict[str, Any], backend: str) -> None:
    vec_env = make_vec_env("CartPole-v1", 2, vec_env_cls=given, **settings)
    assert type(vec_env) is (Ours if given is Ours else StepmillVecEnv)
    assert vec_env.pool.backend == backend
    vec_env.close()
    wrapped = make_vec_env("CartPole-v1", 2, wrapper_class=Doubled, vec_env_cls=Ours, backend="inline")
    assert type(wrapped) is Ours
    wrapped.close()


def test_one_env_object_for_two_slots() -> None:
    env = TalkativeEnv()
    with pytest.raises((ValueError, EnvError)):
        StepmillVecEnv([lambda: env, lambda: env], backend="inline")


def test_it_is_not_copied() -> None:
    vec_env = make_vec_env("CartPole-v1")
    with pytest.raises(CopyError):
        copy.deepcopy(vec_env)
    vec_env.close()
    vec_env.close()
    assert vec_env.pool.closed


MISSING = """
import sys
sys.modules["stable_baselines3"] = None
import stepmill, stepmill.errors
try:
    import stepmill.interop.sb3
except stepmill.errors.MissingPackageError as error:
    print(error)
"""


def test_without_sb3() -> None:
    done = subprocess.run([sys.executable, "-c", MISSING], capture_output=True, text=True, check=True, timeout=600)
    assert done.stdout == (
        "stepmill.interop.sb3 needs stable-baselines3, which is not installed: pip install 'stepmill[sb3]'\n"
    )


@pytest.mark.usefixtures("server")
def test_workers_do_not_import_sb3() -> None:
    """It would take them seconds, and hundreds of MB each."""
    vec_env = make_vec_env(TalkativeEnv, 2, backend="process")
    vec_env.reset()
    assert vec_env.has_attr("colour")
    assert vec_env.env_is_wrapped(Monitor) == [True, True]
    assert vec_env.env_method("modules", "torch", "stable_baselines3") == [[], []]
    vec_env.close()
