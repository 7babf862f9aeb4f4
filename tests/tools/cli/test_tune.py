"""``stepmill tune``: what it tries, and what it advises."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import stepmill
from stepmill.tools.cli.commands import tune
from stepmill.tools.cli.commands.tune import Setup, batch_setups, best_of, first_setups

Run = Callable[..., Any]


def test_native_envs_are_tried_on_threads() -> None:
    tried = first_setups(True, 4, 64)
    assert [trial.arguments for trial in tried] == [{"num_envs": 64, "num_threads": n} for n in (1, 2, 4)]
    assert {trial.num_envs for trial in first_setups(True, 4, None)} == {8, 64, 512, 4096}


def test_python_envs_are_tried_inline_and_on_processes() -> None:
    tried = first_setups(False, 2, 3)
    assert [trial.arguments for trial in tried] == [
        {"num_envs": 3, "backend": "inline"},
        {"num_envs": 3, "backend": "process", "num_workers": 1},
        {"num_envs": 3, "backend": "process", "num_workers": 2},
    ]
    many = first_setups(False, 16, None)
    shares = {trial.num_envs // trial.workers for trial in many if trial.workers}
    assert shares == {1, 4, 16}
    assert {trial.workers for trial in many} == {None, 8, 16, 32}
    assert len(many) == len(set(many))


def test_async_is_tried_with_what_is_best_in_sync() -> None:
    found = batch_setups(Setup(16, "process", 4))
    assert [trial.batch_size for trial in found] == [8, 4, 2]
    assert batch_setups(Setup(16, "inline")) == []
    assert batch_setups(Setup(1, "process", 1)) == []


def test_of_equally_fast_settings_the_simplest_is_best() -> None:
    rates = {Setup(64, "process", 2): 100.0, Setup(16, "process", 2): 98.0, Setup(8, "process", 2): 90.0}
    assert best_of(rates) == Setup(16, "process", 2)
    rates[Setup(16, "process", 2, batch_size=8)] = 99.0
    assert best_of(rates) == Setup(16, "process", 2)


def test_the_call_that_it_prints_makes_such_a_pool(stepmill_command: Run) -> None:
    done = stepmill_command("tune", "CartPole-v1", "--num-envs", 8, "--seconds", 0.01, "--json")
    assert done.code == 0, done.err
    with eval(done.json["call"], {"stepmill": stepmill}) as pool:
        assert pool.num_envs == 8
    asked = {trial.get("batch_size", 8) for trial in done.json["trials"]}
    assert asked >= {8, 4, 2}
    assert done.json["steps_per_second"] > 0


@pytest.mark.slow
def test_an_env_of_ones_own_with_its_options(stepmill_command: Run, user_folder: Path) -> None:
    arguments = ["--num-envs", 2, "--seconds", 0.01, "--set", "size=2"]
    done = stepmill_command("tune", "my_envs.py:Still", *arguments)
    assert done.code == 0, done.err
    assert "stepmill.make(Still, num_envs=2, " in done.out
    assert "size=2" in done.out


def test_an_env_that_never_works_is_exit_code_1(stepmill_command: Run, user_folder: Path) -> None:
    arguments = ["--num-envs", 1, "--seconds", 0.01]
    done = stepmill_command("tune", "my_envs.py:Failing", *arguments)
    assert done.code == 1
    assert "no settings work for" in done.err
    assert "no more" in done.err


def test_ctrl_c_shows_what_was_measured(stepmill_command: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    own, seen = tune._Tuning._measure, []

    def measure(self: Any, trial: Setup) -> float:
        if seen:
            raise KeyboardInterrupt
        seen.append(trial)
        return own(self, trial)

    monkeypatch.setattr(tune._Tuning, "_measure", measure)
    done = stepmill_command("tune", "CartPole-v1", "--num-envs", 8, "--seconds", 0.01, "--json")
    assert done.code == 130
    assert done.json["interrupted"] is True
    assert len(done.json["trials"]) == 1
