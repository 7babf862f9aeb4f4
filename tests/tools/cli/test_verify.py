"""``stepmill verify``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import pytest

from stepmill.registry import records as registry
from stepmill.registry.records import EnvRecord
from stepmill.system.optional import Package
from stepmill.tools.cli.commands import verify
from support.official import at, install_probe

Run = Callable[..., Any]


def interrupt(result: Any) -> Any:
    raise KeyboardInterrupt


def another_reward(result: Any) -> Any:
    obs, _, *rest = result
    return obs, float("nan"), *rest


def test_an_equal_env(stepmill_command: Run) -> None:
    done = stepmill_command("verify", "CartPole-v1", "--steps", 200, "--num-envs", 3)
    assert done.code == 0
    assert "CartPole-v1 | equal" in done.out
    assert "1 equal, 0 different, 0 not compared (gymnasium" in done.out


def test_an_env_of_ones_own_is_compared_with_a_reference(stepmill_command: Run, user_folder: Path) -> None:
    (user_folder / "poles.py").write_text(
        "import gymnasium\ndef make(): return gymnasium.make('CartPole-v1')\n"
        "def short(): return gymnasium.make('CartPole-v1', max_episode_steps=5)\n"
    )
    options = ["--steps", 100, "--num-envs", 2, "--json"]
    for reference, limit, code in (
        ("CartPole-v1", 500, 0),
        ("poles.py:make", 9, 0),
        ("poles.py:short", 500, 1),
    ):
        arguments = ["--reference", reference, "--max-episode-steps", limit, *options]
        assert stepmill_command("verify", "CartPole-v1", *arguments).code == code


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["coin.h"], "coin.h is a file: say what to compare it with"),
        (
            ["CartPole-v1", "Pendulum-v1", "--reference", "CartPole-v1"],
            "--reference: expected one ID that it is for, got 2",
        ),
        (["--reference", "CartPole-v1"], "--reference: expected one ID that it is for, got 0"),
        (["CartPole-v1", "--reference", "nowhere.py:Pole"], "nowhere.py: there is no such file"),
    ],
)
def test_a_wrong_reference_is_one_line(stepmill_command: Run, arguments: list[str], said: str) -> None:
    done = stepmill_command("verify", *arguments)
    assert done.code == 2
    assert said in done.err


def test_json_has_results_and_versions(stepmill_command: Run) -> None:
    found = stepmill_command(
        "verify", "CartPole-v1", "Pendulum-v1", "--steps", 100, "--backend", "inline", "--json"
    ).json
    assert [one["id"] for one in found["results"]] == ["CartPole-v1", "Pendulum-v1"]
    for one in found["results"]:
        assert one["equal"] is True
        assert one["difference"] is None
        assert one["steps"] >= 100
        assert one["backend"] == "inline"
        assert one["versions"]["gymnasium"] == gymnasium.__version__
    assert found["skipped"] == {}


def test_a_difference_is_exit_code_1(stepmill_command: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    install_probe(monkeypatch, at(1, 4, another_reward))
    done = stepmill_command("verify", "CartPole-v1", "Probe-v0", "--steps", 100, "--num-envs", 2)
    assert done.code == 1
    assert "Probe-v0 differs at step 4 of env 1 (step 4 of its episode 1): reward" in done.out
    assert "1 equal, 1 different" in done.out
    install_probe(monkeypatch, at(1, 4, another_reward))
    done = stepmill_command("verify", "Probe-v0", "--steps", 100, "--num-envs", 2, "--json")
    assert done.code == 1
    (found,) = done.json["results"]
    assert found["equal"] is False
    assert (found["difference"]["field"], found["difference"]["theirs"]) == ("reward", "nan")


def test_options_are_for_both(stepmill_command: Run) -> None:
    done = stepmill_command("verify", "CartPole-v1", "--steps", 100, "--set", "sutton_barto_reward=True", "--json")
    assert done.code == 0
    assert done.json["results"][0]["equal"] is True


def test_without_ids_all_are_compared_and_the_rest_is_named(
    stepmill_command: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    absent = Package("no_such_simulator", "no-such-simulator", "physics")
    here = [EnvRecord("CartPole-v1", native="CartPole"), EnvRecord("Catch-v0", native="Catch")]
    gone = EnvRecord("Flying-v0", native="Probe", needs=absent)
    monkeypatch.setitem(registry._records, "Flying-v0", gone)
    monkeypatch.setattr(verify, "records", lambda: [*here, gone, EnvRecord("Pong-v5", factory=dict)])
    done = stepmill_command("verify", "--steps", 50, "--json")
    assert done.code == 0
    assert [one["id"] for one in done.json["results"]] == ["CartPole-v1"]
    reasons = done.json["skipped"]
    assert set(reasons) == {"Catch-v0", "Flying-v0"}
    assert "is not in Gymnasium" in reasons["Catch-v0"]
    assert "pip install 'stepmill[physics]'" in reasons["Flying-v0"]
    text = stepmill_command("verify", "--steps", 50).out
    assert "not compared: Catch-v0\n" in text
    assert "1 equal, 0 different, 2 not compared" in text


def test_named_ids_that_cannot_be_compared_are_exit_code_2(stepmill_command: Run) -> None:
    done = stepmill_command("verify", "CartPole-v1", "Pong-v5", "--steps", 50)
    assert done.code == 2
    assert "not compared: Pong-v5\n  has no native version" in done.out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["Pong-v5"], "Pong-v5 has no native version to compare with"),
        (["Catch-v0"], "Catch-v0 is not in Gymnasium"),
        (["CartPole-v1", "CartPole-v7"], "unknown env id 'CartPole-v7'"),
        (["CartPole-v1", "--set", "gravity=2"], "has no config key 'gravity'"),
        (["--set", "gravity=2"], "--set: expected one ID that it is for, got 0"),
        (["CartPole-v1", "--steps", "0"], "0 is not in the range"),
        (["CartPole-v1", "--set", "seed=3"], "an argument of make that verify does not take"),
    ],
)
def test_a_wrong_call_is_one_line_and_exit_code_2(stepmill_command: Run, arguments: list[str], said: str) -> None:
    done = stepmill_command("verify", *arguments)
    assert (done.code, done.out) == (2, "")
    assert said in done.err
    assert done.err.count("\n") == 1


def test_ctrl_c_ends_it_with_what_there_is(stepmill_command: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    made = install_probe(monkeypatch, at(0, 3, interrupt))
    done = stepmill_command("verify", "CartPole-v1", "Probe-v0", "Pendulum-v1", "--steps", 50, "--json")
    assert done.code == 130
    assert done.json["interrupted"] is True
    assert [one["id"] for one in done.json["results"]] == ["CartPole-v1"]
    assert all(env.closed for env in made)
