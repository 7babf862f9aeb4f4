"""How many actors of which size a pool has, by what the nodes have."""

from __future__ import annotations

from typing import Any

import pytest

from stepmill.pool.ray.cluster import plan_actors
from stepmill.pool.settings import check_settings


def node(cpus: float, alive: bool = True, **others: float) -> dict[str, Any]:
    return {"Alive": alive, "Resources": {"CPU": cpus, **others}}


SMALL = [node(4), node(4), node(2)]


@pytest.mark.parametrize(
    ("nodes", "arguments", "expected"),
    [
        ([node(2)], {}, (1, 2)),
        (SMALL, {}, (3, 2)),  # one per node, of the size that all have
        (SMALL, {"num_actors": 2}, (2, 4)),
        (SMALL, {"num_actors": 4}, (4, 2)),
        (SMALL, {"num_actors": 6}, (6, 1)),
        (SMALL, {"num_actors": 100}, (100, 1)),  # more nodes may come
        (SMALL, {"num_threads": 1}, (10, 1)),
        (SMALL, {"num_threads": 4}, (2, 4)),
        (SMALL, {"num_envs": 2}, (2, 1)),
        (SMALL, {"num_envs": 1}, (1, 1)),
        ([node(4), node(8, alive=False)], {}, (1, 4)),
        ([node(4), node(8, tpu=1)], {"resources": {"tpu": 1}}, (1, 8)),
        ([node(4)], {"resources": {"tpu": 1}}, (1, 1)),  # it may come, too
        ([node(0), node(4)], {}, (1, 4)),  # a head without CPUs
        ([], {}, (1, 1)),
        (SMALL, {"resources": {"CPU": 2}}, (5, 2)),
        (SMALL, {"resources": {"CPU": 0.5}, "num_actors": 3}, (3, 2)),
    ],
)
def test_actors(nodes: list[Any], arguments: dict[str, Any], expected: tuple[int, int]) -> None:
    settings = check_settings(**{"num_envs": 1000, "backend": "ray", "reward_dtype": "float64", **arguments})
    plan = plan_actors(nodes, settings, is_native=True)
    assert (plan.num_actors, plan.workers) == expected
    assert plan.needs["CPU"] == arguments.get("resources", {}).get("CPU", plan.workers)


def test_needs_in_rays_words() -> None:
    settings = check_settings(
        num_envs=9,
        backend="ray",
        num_threads=3,
        resources={"GPU": 0.5, "memory": 2e9, "disk": 1},
        reward_dtype="float64",
    )
    plan = plan_actors([node(8)], settings, is_native=True)
    assert plan.options() == {"num_cpus": 3, "num_gpus": 0.5, "memory": 2_000_000_000, "resources": {"disk": 1}}
    assert plan.shown_needs == "3 CPU, 0.5 GPU, 2e+09 memory, 1 disk"
