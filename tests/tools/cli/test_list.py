"""``stepmill list``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import stepmill
from stepmill.registry.listing import EnvList

Run = Callable[..., Any]

HERE = {
    "stepmill": ["CartPole-v1", "Moving-v0"],
    "atari": [f"ALE/Game{number}-v5" for number in range(70)],
    "mujoco": ["Ant-v5"],
}
MISSING = {"box2d": ("LunarLander-v3", 5), "minigrid": ("MiniGrid-Empty-8x8-v0", 172)}


@pytest.fixture
def envs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A list that is the same whatever is installed."""
    monkeypatch.setattr("stepmill.tools.cli.commands.list.list_all_envs", lambda python: EnvList(HERE, MISSING))


@pytest.fixture
def on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("TERM", "xterm-256color")


def test_lists_what_list_all_envs_lists(stepmill_command: Run) -> None:
    done = stepmill_command("list")
    assert done.code == 0
    assert sorted(done.out.split("\n")[:-1]) == list(stepmill.list_all_envs())


@pytest.mark.usefixtures("envs")
@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("cartpole", ["CartPole-v1"]),
        ("*-V0", ["Moving-v0"]),
        ("Ant-v[45]", ["Ant-v5"]),
        ("game1-", ["ALE/Game1-v5"]),
        ("mujoco", ["Ant-v5"]),
        ("ATARI", HERE["atari"]),
    ],
)
def test_a_pattern_is_a_part_a_glob_or_a_family(stepmill_command: Run, pattern: str, found: list[str]) -> None:
    assert stepmill_command("list", pattern).out.split() == sorted(found)


@pytest.mark.usefixtures("envs")
def test_json_says_where_each_runs_and_what_is_missing(stepmill_command: Run) -> None:
    found = stepmill_command("list", "--json").json
    assert {"id": "CartPole-v1", "family": "stepmill", "backend": "thread"} in found["envs"]
    assert {"id": "ALE/Game1-v5", "family": "atari", "backend": "process"} in found["envs"]
    box2d = {"extra": "box2d", "example": "LunarLander-v3", "at_least": 5, "install": "pip install 'stepmill[box2d]'"}
    assert found["missing"][0] == box2d


@pytest.mark.usefixtures("envs")
@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("CartPoel", "did you mean CartPole-v1?"),
        ("nonsense", "`stepmill list` lists all"),
        ("lunar", "pip install 'stepmill[box2d]' brings LunarLander-v3 and 4 more"),
        ("BabyAI*", "pip install 'stepmill[minigrid]'"),
    ],
)
def test_what_fits_nothing_is_one_line_and_exit_code_2(stepmill_command: Run, pattern: str, said: str) -> None:
    done = stepmill_command("list", pattern)
    assert (done.code, done.out) == (2, "")
    assert said in done.err
    assert done.err.count("\n") == 1


@pytest.mark.usefixtures("envs", "on_a_terminal")
def test_a_terminal_shows_groups_in_columns_that_fit(stepmill_command: Run) -> None:
    text = stepmill_command("list").out
    assert "and 55 more: stepmill list atari" in text
    assert "brings MiniGrid-Empty-8x8-v0" in " ".join(text.split())
    lines = stepmill_command("list", "atari").out.split("\n")
    assert len(lines) < len(HERE["atari"]) / 2  # several in a line
    assert max(len(line) for line in lines if "\x1b" not in line) <= 60
    assert sum(line.count("ALE/Game") for line in lines) == len(HERE["atari"])


def test_another_environment_is_asked(stepmill_command: Run, tmp_path: Any) -> None:
    done = stepmill_command("list", "--python", tmp_path / "nowhere")
    assert done.code == 2
    assert "python" in done.err
