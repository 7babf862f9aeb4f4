"""The examples that learn, for a few updates each: `make examples` runs them to the end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.torch

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


ONE_THREAD = {**os.environ, "OMP_NUM_THREADS": "1"}  # tests run beside each other


def run(example: str, *arguments: str) -> str:
    """What it printed in the end."""
    return output(example, *arguments)[-1]


def output(example: str, *arguments: str) -> list[str]:
    """The lines that it printed, also those that others took the place of."""
    program = [sys.executable, str(EXAMPLES / example), *arguments]
    done = subprocess.run(program, env=ONE_THREAD, capture_output=True, text=True, check=True, timeout=600)
    return done.stdout.replace("\r", "\n").splitlines()


def kill_after(steps: str, example: str, *arguments: str) -> None:
    """Runs an example until it says that it has made these steps, and kills it."""
    program = [sys.executable, str(EXAMPLES / example), *arguments]
    with subprocess.Popen(program, env=ONE_THREAD, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        said = ""
        while steps not in said:
            said += (one := process.stdout.read(1))
            assert one, f"it ended: {said}"
        process.kill()


def curve(path: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return [{key: line[key] for key in ("steps", "return")} for line in lines]


def test_ppo_prints_what_it_reached() -> None:
    assert "over 5 episodes" in run("ppo.py", "--total-steps", "1024", "--episodes", "5")


def test_ppo_that_is_killed_goes_on_to_the_same_weights(tmp_path: Path) -> None:
    few = ("--total-steps", "2048", "--num-envs", "4", "--episodes", "2")
    *_, expected, end = output("ppo.py", *few)
    assert expected.startswith("the weights: ")
    file = tmp_path / "run"
    kill_after("512 of 2,048", "ppo.py", *few, "--checkpoint", str(file))
    lines = output("ppo.py", "--checkpoint", str(file))
    made = [int(line.split()[0].replace(",", "")) for line in lines if " of 2,048 steps" in line]
    assert all(steps > 512 for steps in made), "it began anew"
    assert lines[-2] == expected
    assert lines[-1].partition(", after")[0] == end.partition(", after")[0]


def test_ppo_on_an_async_pool_prints_what_it_reached() -> None:
    assert "over 5 episodes" in run("ppo_async.py", "--total-steps", "1024", "--episodes", "5")


def test_ppo_on_an_async_pool_repeats_a_recorded_training(tmp_path: Path) -> None:
    def checksum(*arguments: str) -> str:
        few = ("--total-steps", "2048", "--episodes", "1", "--backend", "process")
        return run("ppo_async.py", *few, *arguments, str(tmp_path / "order.bin")).rpartition(" ")[2]

    assert checksum("--record-order") == checksum("--replay-order")


def test_ppo_on_an_own_env_survives_its_failures() -> None:
    few = ("--total-steps", "512", "--num-envs", "4", "--num-steps", "32", "--episodes", "5")
    end = run("ppo_own_env.py", *few, "--raises", "0.02", "--exits", "0.005")
    failures = int(end.partition(" failures")[0].split()[-1])
    assert failures > 0
    assert "over 5 episodes" in end


def test_ppo_on_mujoco_prints_what_it_reached() -> None:
    pytest.importorskip("mujoco")
    few = ("--env-id", "Hopper-v5", "--total-steps", "512", "--num-envs", "4", "--num-steps", "32", "--episodes", "2")
    assert "over 2 episodes" in run("ppo_mujoco.py", *few)


def test_ppo_on_atari_learns_while_games_go_on(tmp_path: Path) -> None:
    pytest.importorskip("ale_py")
    log = tmp_path / "log"
    few = ("--num-envs", "4", "--batch-size", "2", "--num-steps", "8", "--total-steps", "96", "--channels", "4")
    end = run("ppo_atari.py", *few, "--device", "cpu", "--episodes", "1", "--log", str(log))
    assert "over 1 games, after 96 steps" in end
    assert [line["steps"] for line in curve(log)] == [32, 64, 96]


def test_ppo_for_gpus_learns_on_threads_too(tmp_path: Path) -> None:
    log = tmp_path / "log"
    few = ("--backend", "thread", "--num-envs", "64", "--total-steps", "32768", "--minibatches", "2", "--episodes", "5")
    end = run("ppo_cuda.py", *few, "--log", str(log))
    assert "over 5 episodes" in end
    learned = curve(log)
    assert [line["steps"] for line in learned] == list(range(2048, 32769, 2048))
    assert learned[-1]["return"] > 2 * learned[0]["return"]


def test_dqn_over_a_manager_prints_what_it_reached() -> None:
    assert "over 5 episodes" in run("managers_dqn.py", "--total-steps", "2100", "--episodes", "5")


def test_ppo_takes_continuous_actions() -> None:
    assert "over 2 episodes" in run("ppo.py", "--env-id", "Pendulum-v1", "--total-steps", "512", "--episodes", "2")


def test_ppo_takes_pictures() -> None:
    pytest.importorskip("ale_py")
    few = ("--num-envs", "2", "--num-steps", "4", "--total-steps", "16", "--epochs", "1", "--episodes", "1")
    assert "over 1 episodes" in run("ppo.py", "--env-id", "Pong-v5", *few)


@pytest.mark.parametrize("envs", ["gymnasium", "gymnasium-async"])
def test_ppo_learns_the_same_on_gymnasiums_envs(envs: str, tmp_path: Path) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    common = ("--total-steps", "4096", "--num-envs", "4", "--seed", "7")
    end = run("ppo.py", *common, "--log", str(ours)), run("ppo.py", *common, "--log", str(theirs), "--envs", envs)
    assert curve(ours) == curve(theirs)
    assert end[0].partition(", after")[0] == end[1].partition(", after")[0]
    assert len(curve(ours)) == 32
    assert curve(ours)[-1]["return"] != curve(ours)[16]["return"], "it ends episodes on the way"
