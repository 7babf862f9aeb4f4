"""A collection that ends too early goes on with the next call, and nothing half done is ever seen."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import minari
import numpy as np
import pytest

import stepmill
from stepmill.errors import ConfigError, UsageError
from stepmill.interop.minari import collect
from support.envs.collected import content, leftovers

pytestmark = pytest.mark.usefixtures("deadline")
CARTPOLE = "CartPole-v1"
TESTS = Path(__file__).resolve().parents[2]


@stepmill.per_env
def random_policy(obs: Any, generator: np.random.Generator) -> int:
    return int(generator.integers(2))


class Stops(Exception):
    """What stops a collection."""


def stopping(at: int, error: type[BaseException] = Stops) -> Any:
    """The random policy, which raises when it is asked for that action, and counts all."""

    def policy(obs: Any, env_ids: np.ndarray, generators: Any) -> Any:
        policy.actions += len(env_ids)
        if at and policy.actions >= at:
            raise error
        return random_policy(obs, env_ids, generators)

    policy.actions = 0
    return policy


def parts(datasets: Path) -> list[Path]:
    return sorted(datasets.glob(".*.parts/episode-*"))


def test_killed_anywhere_the_next_call_completes_the_data_set() -> None:
    command = [sys.executable, "-m", "support.minari_kills"]
    done = subprocess.run(command, cwd=TESTS, capture_output=True, text=True, check=True, timeout=600)
    result = json.loads(done.stdout)
    assert result["wrong"] == []
    assert result["points"] > 20
    assert result["again"] < result["points"], "what was finished is not played again"


@pytest.mark.parametrize("error", [Stops, KeyboardInterrupt])
@pytest.mark.parametrize("arguments", [{"num_envs": 3}, {"num_envs": 3, "batch_size": 1}])
def test_the_same_pool_goes_on_after_an_exception(make: Any, datasets: Path, error: Any, arguments: Any) -> None:
    collect(make(CARTPOLE), random_policy, 10, "whole-v0", algorithm_name="A")
    pool = make(CARTPOLE, **arguments)
    policy = stopping(150, error)
    with pytest.raises(error) as caught:
        collect(pool, policy, 10, "part-v0", algorithm_name="A")
    kept = {int(path.name.split("-")[1]) for path in parts(datasets)}
    assert 0 < len(kept) < 10
    assert f"{len(kept)} of 10 episodes are in" in caught.value.__notes__[0]
    assert list(minari.list_local_datasets()) == ["whole-v0"]
    rest = stopping(0)
    dataset, _ = collect(pool, rest, 10, "part-v0", algorithm_name="A")
    assert rest.actions == sum(len(one) for one in dataset if one.id not in kept), "only what was under way is lost"
    assert content("part-v0")["main_data.hdf5"] == content("whole-v0")["main_data.hdf5"]
    assert leftovers() == []


def test_the_number_of_episodes_may_change_on_the_way(make: Any, datasets: Path) -> None:
    pool = make(CARTPOLE, num_envs=2)
    with pytest.raises(Stops):
        collect(pool, stopping(150), 20, "x-v0", algorithm_name="A")
    assert len(parts(datasets)) > 2
    dataset, _ = collect(pool, random_policy, 2, "x-v0", algorithm_name="A")
    assert dataset.total_episodes == 2
    assert leftovers() == []


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"seed": 5}, "seed: there 42, here 5"),
        ({"algorithm_name": "B"}, "policy: there 'A', here 'B'"),
        ({"task": "Pendulum-v1"}, "env: there 'CartPole-v1', here 'Pendulum-v1'"),
        ({"pool": {"sutton_barto_reward": True}}, "config: there .*False.*, here .*True."),
        ({"pool": {"max_episode_steps": 9}}, "max_episode_steps: there 500, here 9"),
    ],
)
@pytest.mark.parametrize("complete", [False, True])
def test_another_collection_of_the_same_name_is_refused(
    make: Any, datasets: Path, change: dict[str, Any], says: str, complete: bool
) -> None:
    pool = make(CARTPOLE)
    if complete:
        collect(pool, random_policy, 2, "x-v0", algorithm_name="A")
    else:
        with pytest.raises(Stops):
            collect(pool, stopping(60), 9, "x-v0", algorithm_name="A")
    before = {path: path.read_bytes() for path in datasets.rglob("*") if path.is_file() and path.name != "lock"}
    arguments = {"algorithm_name": "A", "task": CARTPOLE, "pool": {}, **change}
    other = make(arguments.pop("task"), **arguments.pop("pool"))
    with pytest.raises(ConfigError, match=rf"{says}\. Use another name.*delete"):
        collect(other, random_policy, 2, "x-v0", **arguments)
    assert {path: path.read_bytes() for path in before} == before
    if complete:
        assert leftovers() == []


def test_a_complete_data_set_is_returned_and_a_larger_one_refused(make: Any) -> None:
    pool = make(CARTPOLE)
    dataset, _ = collect(pool, random_policy, 3, "x-v0")
    before = content("x-v0")
    assert collect(pool, random_policy, 3, "x-v0").dataset.spec == dataset.spec
    assert content("x-v0") == before
    with pytest.raises(ConfigError, match="episodes: there 3, here 4"):
        collect(pool, random_policy, 4, "x-v0")


def test_a_data_set_that_somebody_else_made_is_left_alone(make: Any) -> None:
    buffer = minari.data_collector.EpisodeBuffer(
        observations=np.zeros((2, 4), np.float32),
        actions=np.zeros(1, np.int64),
        rewards=[1.0],
        terminations=[True],
        truncations=[False],
        infos={},
    )
    with pytest.warns(UserWarning, match="set to None"):
        minari.create_dataset_from_buffers("x-v0", [buffer], env=CARTPOLE)
    before = content("x-v0")
    with pytest.raises(ConfigError, match=r"there is another data set 'x-v0'.*origin is not known"):
        collect(make(CARTPOLE), random_policy, 1, "x-v0")
    assert content("x-v0") == before


def test_two_at_once_are_refused(make: Any) -> None:
    def nested(obs: Any, env_ids: Any, generators: Any) -> list[int]:
        with pytest.raises(UsageError, match="another call is collecting x-v0"):
            collect(make(CARTPOLE), random_policy, 1, "x-v0", algorithm_name="A")
        return [0]

    assert collect(make(CARTPOLE), nested, 1, "x-v0", algorithm_name="A").missing == ()
