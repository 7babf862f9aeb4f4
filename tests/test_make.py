"""``make`` and its kin as editors, type checkers and ``help()`` see them: one list of settings, the same everywhere."""

from __future__ import annotations

import inspect
import json
import re
import sys
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

import stepmill
from stepmill.settings import SETTINGS, check_settings

MOST_ARGUMENTS = 22
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


def test_make_has_few_arguments() -> None:
    arguments = [one for one in inspect.signature(stepmill.make).parameters.values() if one.kind is not one.VAR_KEYWORD]
    assert len(arguments) <= MOST_ARGUMENTS, "what comes later goes into objects and functions, not into make"


def test_make_passes_each_argument_on(monkeypatch: pytest.MonkeyPatch) -> None:
    class Passed(Exception):
        pass

    def read(**settings: Any) -> None:
        raise Passed(settings)

    monkeypatch.setattr(sys.modules["stepmill.make"], "check_settings", read)
    given = {name: object() for name in SETTINGS}
    with pytest.raises(Passed) as caught:
        stepmill.make("CartPole-v1", **given)
    passed = caught.value.args[0]
    assert {name: passed[name] for name in given} == given


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
    text = INTERFACE.read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`\w+`(?:, `\w+`)*) \| (.*?) \| .* \|$", text, re.MULTILINE)
    table = {name: shown.strip("`") for names, shown in rows for name in re.findall(r"\w+", names)}
    for name, setting in SETTINGS.items():
        assert name in table
        if setting.default is not None:  # None is told in words
            assert table[name] == json.dumps(setting.default), name
    for option in fields(stepmill.Ray):
        assert option.name in table
        if option.default is not None:
            assert table[option.name] == json.dumps(option.default), option.name


def test_the_configuration_shows_the_settings() -> None:
    shown = [name for name in SETTINGS if name not in ("backend", "output", "device")]
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


@pytest.mark.parametrize("backend", ["thread", "inline"])
def test_seeds_that_nobody_gave_are_drawn_and_told(backend: str) -> None:
    drawn = []
    for _ in range(8):
        with stepmill.make("CartPole-v1", num_envs=3, seed=None, backend=backend) as pool:
            seeds = pool.config["seed"]
            assert list(pool.np_random_seed) == seeds
            assert seeds == [seeds[0], seeds[0] + 1, seeds[0] + 2]
            assert 0 <= seeds[0] <= seeds[2] < 2**31
            drawn.append(seeds[0])
            with stepmill.make("CartPole-v1", num_envs=3, seed=seeds[0]) as again:
                assert (pool.reset()[0] == again.reset()[0]).all()
    assert len(set(drawn)) > 1
    assert stepmill.make_spec("CartPole-v1", seed=None).config["seed"] != [42]
