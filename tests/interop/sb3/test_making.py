"""Which pools and arguments are taken, and what the others are told."""

from __future__ import annotations

import copy
import dataclasses
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from gymnasium import spaces
from gymnasium.wrappers import TimeLimit
from stable_baselines3.common.env_util import make_vec_env as sb3_make_vec_env
from stable_baselines3.common.monitor import Monitor

import stepmill
from stepmill.errors import ConfigError, CopyError, EnvError, UnknownConfigError, UnsupportedError
from stepmill.interop.sb3 import StepmillVecEnv, make_vec_env
from support.sb3_envs import TalkativeEnv


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
        ("Pursuit-v0", {}, UnsupportedError, r"one player per env, and Pursuit-v0 has \d+: pass an env"),
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


@pytest.mark.parametrize("given", [None, "CartPole-v1", TalkativeEnv])
def test_what_is_no_pool(given: Any) -> None:
    with pytest.raises(ConfigError, match=r"expected a pool of stepmill\.make"):
        StepmillVecEnv(given)


def test_a_pool_takes_no_more_settings() -> None:
    with (
        stepmill.make("CartPole-v1", autoreset="same_step") as pool,
        pytest.raises(ConfigError, match="has its settings already, got backend"),
    ):
        StepmillVecEnv(pool, backend="inline")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"wrapper_class": Monitor}, r"got wrapper_class: .*vec_env_cls=StepmillVecEnv"),
        ({"vec_env_cls": StepmillVecEnv}, r"got vec_env_cls: .*vec_env_cls=StepmillVecEnv"),
        ({"num_envs": 3}, r"got num_envs: the number of envs is n_envs"),
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
    done = subprocess.run([sys.executable, "-c", MISSING], capture_output=True, text=True, check=True, timeout=60)
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
