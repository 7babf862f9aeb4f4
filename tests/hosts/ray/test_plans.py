"""How many actors of which size a pool has, by what the nodes have."""

from __future__ import annotations

from typing import Any

import pytest

import stepmill
from stepmill.hosts.ray.cluster import plan_actors
from stepmill.settings import check_settings


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
        (SMALL, {"resources": {"CPU": 1.5}}, (5, 1)),
        (SMALL, {"resources": {"CPU": 0}}, (3, 2)),
        ([node(16)], {"resources": {"CPU": 8}, "num_threads": 4}, (2, 4)),
        ([node(16, licence=2)], {"resources": {"licence": 1}, "num_threads": 4}, (2, 4)),
        ([node(16, licence=2)], {"resources": {"licence": 0.4}, "num_threads": 4}, (4, 4)),
        ([node(32, GPU=1), node(8, GPU=1)], {"resources": {"GPU": 1}, "num_actors": 2}, (2, 8)),
        ([node(32, GPU=2), node(8, GPU=1)], {"resources": {"GPU": 1}, "num_actors": 2}, (2, 16)),
        ([node(16, GPU=2)], {"resources": {"GPU": 0.6}, "num_threads": 4}, (2, 4)),  # not half of each
        ([node(16, GPU=1)], {"resources": {"GPU": 0.1}, "num_threads": 1}, (10, 1)),
        ([node(16, memory=3e9)], {"resources": {"memory": 1e9}, "num_threads": 1}, (3, 1)),
    ],
)
def test_actors(nodes: list[Any], arguments: dict[str, Any], expected: tuple[int, int]) -> None:
    resources = arguments.get("resources", {})
    options = {name: arguments.pop(name) for name in ("num_actors", "resources") if name in arguments}
    given = {"num_envs": 1000, "backend": stepmill.Ray(**options), **arguments}
    plan = plan_actors(nodes, check_settings(**given, reward_dtype="float64"), on_threads=True)
    assert (plan.num_actors, plan.workers) == expected
    assert plan.needs["CPU"] == resources.get("CPU", plan.workers)


def test_needs_in_rays_words() -> None:
    settings = check_settings(
        num_envs=9,
        backend=stepmill.Ray(resources={"GPU": 0.5, "memory": 2e9, "disk": 1}),
        num_threads=3,
        reward_dtype="float64",
    )
    plan = plan_actors([node(8)], settings, on_threads=True)
    assert plan.options() == {"num_cpus": 3, "num_gpus": 0.5, "memory": 2_000_000_000, "resources": {"disk": 1}}
    assert plan.shown_needs == "3 CPU, 0.5 GPU, 2e+09 memory, 1 disk"
