"""The command line knows pools on Ray."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest

from stepmill.tools.cli.commands.doctor import outcome_of, trials
from support.on_ray import make_on_ray, told_by_actors

pytest.importorskip("rich")
pytestmark = [
    pytest.mark.usefixtures("cluster", "server", "deadline"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::ResourceWarning"),
]
Run = Callable[..., Any]
ON_RAY = ["--backend", "ray", "--num-actors", 2, "--num-threads", 1]


@pytest.mark.parametrize("batch_size", [4, 2])
def test_run(stepmill_command: Run, cluster: Any, batch_size: int) -> None:
    arguments = [*ON_RAY, "--address", cluster.address, "--num-envs", 4, "--batch-size", batch_size]
    found = []
    for where in (arguments, ["--num-envs", 4]):
        done = stepmill_command("run", "CartPole-v1", "--steps", 400, "--json", "--seed", 3, *where)
        assert done.code == 0, done.err
        found.append(done.json)
    on_ray, here = found
    assert (on_ray["backend"], here["backend"]) == ("ray", "thread")
    assert on_ray["steps"] == here["steps"] == 400
    if batch_size == 4:
        assert on_ray["return"] == here["return"]


def test_run_in_another_cluster(stepmill_command: Run) -> None:
    done = stepmill_command("run", "CartPole-v1", *ON_RAY, "--address", "127.0.0.1:1", "--steps", 4)
    assert done.code == 2
    assert "cannot be in the one at 127.0.0.1:1 too" in done.err


def test_bench(stepmill_command: Run) -> None:
    done = stepmill_command(
        "bench", "CartPole-v1", "--ray", "--num-envs", 2, "--repeats", 1, "--seconds", 0.01, "--json"
    )
    assert done.code == 0, done.err
    [env] = done.json["envs"]
    assert env["steps_per_second"]["stepmill on Ray"] > 0


def test_top_shows_the_caller_and_the_actors_of_this_machine(stepmill_command: Run) -> None:
    with make_on_ray("CartPole-v1", 2, num_envs=6) as pool:
        pool.reset()
        pids = [one["pid"] for one in told_by_actors(pool)]
        done = stepmill_command("top", "--once", "--json", "--interval", 0.1)
        envs = {one["pid"]: [pool["num_envs"] for pool in one["pools"]] for one in done.json["processes"]}
        assert 6 in envs[os.getpid()]
        assert [envs[pid] for pid in pids] == [[3], [3]]
        (of_actor,) = stepmill_command("top", pids[0], "--once", "--json", "--interval", 0.1).json["processes"]
        assert of_actor["pools"][0]["num_envs"] == 3


def test_doctor(cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    [trial] = [one for one in trials() if one.name == "pool on 'ray'"]
    monkeypatch.setenv("RAY_ADDRESS", cluster.address)
    assert outcome_of(trial) == "works"
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    assert "no Ray cluster answers at 127.0.0.1:1" in outcome_of(trial)
