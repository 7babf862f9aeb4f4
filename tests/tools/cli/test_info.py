"""``stepmill info``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stepmill.tools.cli.terminal import json_value

Run = Callable[..., Any]


def test_a_native_env(stepmill_command: Run) -> None:
    found = stepmill_command("info", "CartPole-v1", "--json").json
    assert found["backend"] == "thread"
    assert found["max_episode_steps"] == 500
    assert found["reward_threshold"] == 475.0
    assert found["options"] == {"sutton_barto_reward": False, "render_mode": None}
    assert found["render_modes"] == ["human", "rgb_array"]
    assert found["observation_space"]["shape"] == [4]
    assert found["observation_space"]["low"][1] == "-inf"
    assert found["action_space"] == {
        "type": "Discrete", "text": "Discrete(2)", "shape": [], "dtype": "int64", "n": 2, "start": 0,
    }  # fmt: skip
    assert found["extra"] is None
    assert found["players"] == 1


def test_many_players(stepmill_command: Run) -> None:
    assert stepmill_command("info", "TemplatePlayers-v0", "--json").json["players"] == 4
    assert "up to 4" in stepmill_command("info", "TemplatePlayers-v0").out


def test_options_that_are_set_are_shown(stepmill_command: Run) -> None:
    found = stepmill_command("info", "Pong-v5", "--set", "stack_num=2", "--json").json
    assert found["backend"] == "process"
    assert found["extra"] == "atari"
    assert found["options"]["stack_num"] == 2
    assert found["options"]["frame_skip"] == 4
    assert found["observation_space"]["shape"] == [2, 84, 84]


def test_an_id_of_gymnasium_has_what_it_is_registered_with(stepmill_command: Run) -> None:
    options = stepmill_command("info", "ALE/Pong-v5", "--json").json["options"]
    assert (options["game"], options["repeat_action_probability"], options["stack_num"]) == ("pong", 0.25, 4)
    found = stepmill_command("info", "gymnasium:FrozenLake8x8-v1", "--json").json
    assert found["options"]["map_name"] == "8x8"
    assert found["max_episode_steps"] == 200
    assert found["backend"] == "auto"


def test_infinite_defaults_are_texts(stepmill_command: Run) -> None:
    found = stepmill_command("info", "HumanoidStandup-v5", "--json").json
    assert found["options"]["impact_cost_range"] == ["-inf", 10.0]
    assert found["options"]["model"] is None
    assert "reward_linup" in found["infos"]


def test_a_doom_scenario_tells_its_options(stepmill_command: Run) -> None:
    pytest.importorskip("vizdoom")
    options = stepmill_command("info", "Basic-v1", "--json").json["options"]
    assert options["use_combined_action"] is False
    assert options["delta_button_config"] == {}


def test_a_users_env(stepmill_command: Run, user_folder: Path) -> None:
    found = stepmill_command("info", "my_envs.py:Maze", "--set", "level=3", "--json").json
    assert found["id"] == "my_envs.py:Maze"
    assert found["options"] == {"level": 3, "size": [3, "inf"], "render_mode": None}
    assert found["takes_other_options"] is True
    assert found["render_modes"] == ["ansi"]
    keys, place = (found["observation_space"]["spaces"][name] for name in ("keys", "place"))
    assert place["high"] == 3.0
    assert [one["type"] for one in keys["spaces"]] == ["MultiBinary", "Box"]
    text = stepmill_command("info", "my_envs.py:Maze", "--set", "level=3").out
    for said in ("Dict of 2", "keys: Tuple of 2", "without bounds", "from 0 to 3", "takes any name"):
        assert said in text


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["CartPole-v9"], 2, "did you mean CartPole-v1"),
        (["CartPole-v1", "--set", "gravity=1"], 2, "has no config key 'gravity'"),
        (["my_envs.py:Mase"], 2, "did you mean Maze?"),
        (["my_envs.py:Broken"], 1, "no walls"),
        (["my_envs.py:ENVS"], 2, "has no ENVS"),
    ],
)
def test_what_cannot_be_described(
    stepmill_command: Run, user_folder: Path, arguments: list[str], code: int, said: str
) -> None:
    done = stepmill_command("info", *arguments)
    assert (done.code, done.out) == (code, "")
    assert said in done.err
    assert done.err.count("\n") == 1


def test_names_of_options_are_never_cut(stepmill_command: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    assert "exclude_current_positions_from_observation" in stepmill_command("info", "Ant-v5").out


def test_values_that_json_lacks_are_texts() -> None:
    assert json_value({1: (float("nan"), object)}) == {"1": ["nan", "<class 'object'>"]}
