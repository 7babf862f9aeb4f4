"""``make`` and its kin as editors, type checkers and ``help()`` see them: one list of settings, the same everywhere."""

from __future__ import annotations

import importlib.util
import inspect
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import stepmill
from stepmill.pool.settings import SETTINGS, check_settings

INTERFACE = Path(__file__).resolve().parent.parent / "docs" / "interface.md"


# ---- the list, and what has to follow it ----------------------------------------------------------


def test_make_has_an_argument_for_each_setting() -> None:
    task_id, env_type, *keywords, env_config, config = inspect.signature(stepmill.make).parameters.values()
    assert (task_id.name, env_type.name, env_config.name, config.name) == (
        "task_id",
        "env_type",
        "env_config",
        "config",
    )
    assert (task_id.default, env_type.default, env_config.default) == (inspect.Parameter.empty, "gymnasium", None)
    assert config.kind is inspect.Parameter.VAR_KEYWORD
    assert {one.kind for one in [*keywords, env_config]} == {inspect.Parameter.KEYWORD_ONLY}
    given = [(one.name, one.default, type(one.default)) for one in keywords]
    assert given == [(name, one.default, type(one.default)) for name, one in SETTINGS.items()]


@pytest.mark.parametrize("name", ["make_gymnasium", "make_gym", "make_dm", "make_spec"])
def test_its_kin_show_the_arguments_of_make(name: str) -> None:
    function = getattr(stepmill, name)
    parameters = dict(inspect.signature(stepmill.make).parameters)
    if name != "make_spec":
        del parameters["env_type"]
    assert dict(inspect.signature(function).parameters) == parameters
    assert (function.__name__, function.__module__) == (name, "stepmill.make")


def test_make_explains_each_argument() -> None:
    arguments = re.findall(r"^    (\*{0,2}\w+): ", inspect.getdoc(stepmill.make) or "", re.MULTILINE)
    assert arguments == ["task_id", "env_type", *SETTINGS, "env_config", "**config"]


def test_the_table_of_settings_has_each_with_its_default() -> None:
    rows = re.findall(r"^\| (`\w+`(?:, `\w+`)*) \| (.*?) \|", INTERFACE.read_text(encoding="utf-8"), re.MULTILINE)
    table = {name: shown.strip("`") for names, shown in rows for name in re.findall(r"\w+", names)}
    for name, setting in SETTINGS.items():
        assert name in table
        if setting.default is not None:  # None is told in words
            assert table[name] == json.dumps(setting.default), name


def test_the_configuration_shows_the_settings() -> None:
    shown = [name for name in SETTINGS if name not in ("backend", "output")]
    spec = stepmill.make_spec("Catch-v0", height=4)
    assert list(spec.config) == ["task_id", *shown, *spec.env_configs[0]]
    assert (
        spec.config
        == stepmill.make_spec("Catch-v0", height=4, **{name: SETTINGS[name].default for name in shown}).config
    )


def test_what_is_not_given_has_its_default() -> None:
    defaults = {name: setting.default for name, setting in SETTINGS.items()}
    assert check_settings(reward_dtype="float32") == check_settings(**defaults, reward_dtype="float32")
    with pytest.raises(TypeError, match="num_env"):
        check_settings(num_env=2, reward_dtype="float32")


@pytest.mark.parametrize("make", [stepmill.make, stepmill.make_spec], ids=["make", "make_spec"])
def test_a_list_of_tasks_says_how_many_envs(make: Callable[..., Any]) -> None:
    assert make(["CartPole-v1"] * 3).config["num_envs"] == 3
    assert make(["CartPole-v1"] * 3, num_envs=3).config["num_envs"] == 3


# ---- types ---------------------------------------------------------------------------------------

# What mypy has to say about each call, where it has to say something; of what is right, nothing.
CALLS = """
import math
from typing import Any, Literal, assert_type

import jax
import numpy as np
import torch
from gymnasium.vector import AutoresetMode

import stepmill
from stepmill.views.dm import DmPool
from stepmill.views.gym import GymPool
from stepmill.views.gymnasium import GymnasiumPool

any_arguments: dict[str, Any] = {}

def by_env_type(env_type: Literal["gymnasium", "gym", "dm"]) -> None:
    assert_type(stepmill.make("CartPole-v1", env_type, num_envs=2), GymnasiumPool | GymPool | DmPool)

assert_type(stepmill.make("CartPole-v1"), GymnasiumPool)
assert_type(stepmill.make(task_id="CartPole-v1", num_envs=2), GymnasiumPool)
assert_type(stepmill.make("CartPole-v1", "gymnasium", autoreset=AutoresetMode.DISABLED), GymnasiumPool)
assert_type(stepmill.make(lambda env_id: None, "gym", batch_size=None, num_envs=2), GymPool)
assert_type(stepmill.make(["CartPole-v1"], env_type="gym", max_restarts=math.inf), GymPool)
assert_type(stepmill.make("CartPole-v1", "dm", seed=[1, 2]), DmPool)
assert_type(stepmill.make("CartPole-v1", "dm", **any_arguments), DmPool[Any])  # whatever `output` is
assert_type(stepmill.make("CartPole-v1", output="torch", num_envs=2), GymnasiumPool[torch.Tensor])
assert_type(stepmill.make("CartPole-v1", "gym", output="jax"), GymPool[jax.Array])
assert_type(stepmill.make("CartPole-v1", output="numpy").step([0])[1], np.ndarray)
assert_type(stepmill.make("Catch-v0", height=4, width=3.5, env_config=[{"paddle": 1}]), GymnasiumPool)
assert_type(stepmill.make_gymnasium("CartPole-v1", num_envs=2, start_timeout=5), GymnasiumPool[Any])
assert_type(stepmill.make_gym(task_id="CartPole-v1", own_setting="any"), GymPool[Any])
assert_type(stepmill.make_gym("CartPole-v1", **any_arguments), GymPool[Any])
assert_type(stepmill.make_dm("CartPole-v1", step_timeout=0.5, on_error="restart"), DmPool[Any])
assert_type(stepmill.make_spec("CartPole-v1", "gym", num_envs=2, own_setting="any"), stepmill.PoolSpec)
assert_type(stepmill.make_spec("CartPole-v1", env_type="dm"), stepmill.PoolSpec)

stepmill.make()  # says: at least one argument
stepmill.make("CartPole-v1", "gmy")  # says: No overload variant
stepmill.make("CartPole-v1", "gym", 4)  # says: No overload variant
stepmill.make("CartPole-v1", num_envs="4")  # says: No overload variant
stepmill.make("CartPole-v1", "dm", seed="4")  # says: No overload variant
stepmill.make_gymnasium("CartPole-v1", 4)  # says: Too many positional arguments
stepmill.make_gymnasium("CartPole-v1", batch_size=2.5)  # says: "batch_size" to
stepmill.make_gym("CartPole-v1", seed=None)  # says: "seed" to
stepmill.make_dm("CartPole-v1", env_config={"height": 4})  # says: "env_config" to
stepmill.make_spec("CartPole-v1", "gmy")  # says: Argument 2 to
stepmill.make_spec("CartPole-v1", start_timeout=None)  # says: "start_timeout" to
"""


# Other packages are not looked into: it would take a minute.
CONFIG = """
[mypy]
strict = true
follow_imports = skip
ignore_missing_imports = true
[mypy-stepmill.*]
follow_imports = silent
"""


@pytest.mark.skipif(importlib.util.find_spec("mypy") is None, reason="no mypy")
def test_type_checkers_know_the_arguments_and_the_pools(tmp_path: Path) -> None:
    (tmp_path / "calls.py").write_text(CALLS)
    (tmp_path / "mypy.ini").write_text(CONFIG)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "calls.py"], cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    assert done.stderr == ""
    lines = CALLS.splitlines()
    expected = {at: line.split("  # says: ")[1] for at, line in enumerate(lines, 1) if "  # says: " in line}
    said = {int(at): text for at, text in re.findall(r"^calls\.py:(\d+): error: (.*)$", done.stdout, re.MULTILINE)}
    assert said.keys() == expected.keys(), done.stdout
    for at, words in expected.items():
        assert words in said[at], lines[at - 1]
