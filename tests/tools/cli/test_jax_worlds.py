"""The commands about JAX worlds: each works, or refuses in one sentence."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("jax")
pytest.importorskip("gymnax")
pytest.importorskip("jumanji")

ID = "gymnax:CartPole-v1"

Run = Callable[..., Any]


def test_list(stepmill_command: Run) -> None:
    found = stepmill_command("list", "gymnax:cartpole", "--json").json["envs"]
    assert found == [{"id": ID, "family": "jax-worlds", "backend": "jax"}]


def test_info(stepmill_command: Run) -> None:
    found = stepmill_command("info", ID, "--set", "gravity=3.7", "--json").json
    assert (found["backend"], found["extra"], found["options"]["gravity"]) == ("jax", "jax-worlds", 3.7)
    shown = stepmill_command("info", ID).out
    assert "as arrays of JAX, on the CPU or a GPU" in shown


def test_ids_of_suites_are_no_attributes_of_their_packages(stepmill_command: Run) -> None:
    assert stepmill_command("info", "jumanji:Maze-v0", "--json").json["action_space"]["n"] == 4
    error = stepmill_command("info", "jumanji:make").err
    assert "unknown env id 'jumanji:make'" in error


def test_run(stepmill_command: Run) -> None:
    found = stepmill_command("run", ID, "--num-envs", "4", "--steps", "400", "--json").json
    assert (found["backend"], found["steps"]) == ("jax", 400)
    assert found["episodes"] > 0


def test_bench(stepmill_command: Run) -> None:
    """Alone: no other library runs these envs, and there is no async pool of them."""
    arguments = "--num-envs", "4", "--seconds", "0.01", "--repeats", "1"
    found = stepmill_command("bench", ID, *arguments, "--json").json["envs"][0]
    assert list(found["steps_per_second"]) == ["stepmill"]


def test_refusals(stepmill_command: Run) -> None:
    for arguments, said in {
        ("watch", ID, "--no-browser"): "watch: looking at the envs of this pool would make it wait for its device",
        ("verify", ID): "gymnax:CartPole-v1 has no native version to compare with",
        ("run", ID, "--backend", "thread"): "backend='thread': gymnax:CartPole-v1 is a JAX world",
        ("run", ID, "--batch-size", "3"): "all envs move together",
    }.items():
        done = stepmill_command(*arguments)
        assert done.code != 0
        assert said in done.err, arguments
        assert "Traceback" not in done.err


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("tune", "tune: the envs of gymnax:CartPole-v1 are one program on a device, without workers or batches"),
        ("check", "check_env: gymnax:CartPole-v1 is a JAX world, expected an env that is stepped alone"),
    ],
)
def test_refusals_of_commands_with_a_child(command: str, said: str) -> None:
    """They fork, which a process that has used JAX should not."""
    done = subprocess.run([sys.executable, "-m", "stepmill", command, ID], capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert done.stderr.startswith(f"stepmill: {said}")
    assert done.stderr.count("\n") == 1
