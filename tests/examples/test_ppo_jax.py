"""The example that trains in one compiled program: it is fast enough to be run to the end."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

jax = pytest.importorskip("jax")
pytest.importorskip("gymnax")

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "ppo_jax.py"


def run(*arguments: str) -> list[str]:
    """The lines that it printed, also those that others took the place of."""
    program = [sys.executable, str(EXAMPLE), *arguments]
    done = subprocess.run(program, capture_output=True, text=True, check=True, timeout=600)
    return done.stdout.replace("\r", "\n").splitlines()


def reached(line: str) -> float:
    return float(line.partition("mean return ")[2].split()[0])


def test_it_solves_cartpole_and_writes_its_curve(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert reached(run("--total-steps", "131072", "--log", str(log))[-1]) >= 475
    curve = [json.loads(line) for line in log.read_text().splitlines()]
    assert [line["steps"] for line in curve] == list(range(4096, 131073, 4096))
    assert curve[0]["return"] < 100, "it begins as a bad player"


def test_it_solves_a_task_of_brax() -> None:
    pytest.importorskip("brax")
    assert reached(run("--env-id", "brax:inverted_pendulum", "--total-steps", "131072")[-1]) >= 950


def test_trainings_side_by_side_have_different_seeds() -> None:
    few = ("--env-id", "gymnax:Pendulum-v1", "--num-envs", "4", "--total-steps", "512", "--episodes", "2")
    *_, first, second = run(*few, "--seeds", "2", "--seed", "5")
    assert "seed 5" in first
    assert "seed 6" in second
    assert reached(first) != reached(second)
    assert reached(first) == pytest.approx(reached(run(*few, "--seed", "5")[-1]), rel=0.02), "no other seed matters"


def test_it_says_which_envs_it_is_for() -> None:
    program = [sys.executable, str(EXAMPLE), "--env-id", "jumanji:Snake-v1"]
    pytest.importorskip("jumanji")
    done = subprocess.run(program, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 1
    assert done.stderr.startswith("jumanji:Snake-v1: this file is for arrays and for one choice")
