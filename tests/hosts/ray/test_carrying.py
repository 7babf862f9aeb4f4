"""What travels between a pool and its actors: a parcel each way, packed and unpacked once, and nothing but bytes."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import gymnasium
import numpy as np
import pytest

import stepmill
from stepmill import _native, errors
from stepmill.hosts.open_local_host import open_local_host
from stepmill.hosts.ray import env_actor
from stepmill.hosts.ray.ray_host import RayHost
from stepmill.managers import RayEnvManager
from support.envs.remote import Teller
from support.probes import MODES, assert_same
from support.ray_here import RayHere

pytestmark = pytest.mark.usefixtures("server")
# By the backend that an actor has.
TASKS = {"thread": "CartPole-v1", "inline": Teller, "process": Teller}


def make(task: Any, num_actors: int = 2, **arguments: Any) -> Any:
    return stepmill.make(task, backend=stepmill.Ray(num_actors=num_actors), **arguments)


@pytest.fixture(params=TASKS)
def task(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Envs that run on a certain backend in their actors, which otherwise try what is faster."""

    def open_there(source: Any, settings: Any, finisher: Any) -> Any:
        return open_local_host(source, replace(settings, backend=request.param), finisher)

    monkeypatch.setattr(env_actor, "open_local_host", open_there)
    return TASKS[request.param]


@pytest.fixture
def crossings(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each side has called C++ to pack or to unpack."""
    counted: Counter[str] = Counter()

    class Counted:
        def __init__(self, *arguments: Any) -> None:
            self._parcels = _native.ParcelServer(*arguments)

        def __getattr__(self, name: str) -> Any:
            counted[f"actor: {name}"] += 1
            return getattr(self._parcels, name)

    class Native:
        ParcelServer = Counted

        def __getattr__(self, name: str) -> Any:
            return getattr(_native, name)

    monkeypatch.setattr(env_actor, "_native", Native())
    for name in ("pack", "unpack"):

        def counting(host: Any, *arguments: Any, name: str = name) -> Any:
            counted[f"driver: {name}"] += 1
            return getattr(_native.RemoteHost, name)(host, *arguments)

        monkeypatch.setattr(RayHost, name, counting, raising=False)
    return counted


def test_a_parcel_is_packed_once_and_unpacked_once_on_each_side(
    task: Any, ray_here: RayHere, crossings: Counter[str]
) -> None:
    with make(task, num_envs=6) as pool:
        pool.reset()
        crossings.clear()
        ray_here.carried.clear()
        for _ in range(5):
            pool.step(np.zeros(6, int))
        calls = ray_here.carried.pop("exchange")
        ours = {name: count for name, count in ray_here.carried.items() if name != "ping"}
        assert ours == {}, "an exchange is one call"
        assert crossings == {"driver: pack": 10, "actor: exchange": 10, "driver: unpack": 10}
    assert len(calls) == 10  # of two actors, five times
    for order, answer in calls:
        assert [type(one) for one in (*order, answer)] == [bytes, bytes]


def test_a_large_answer_is_an_array_which_ray_does_not_copy(ray_here: RayHere) -> None:
    with make("CartPole-v1", 1, num_envs=2000) as pool:
        pool.reset()
        _, answer = ray_here.carried["exchange"][-1]
        assert isinstance(answer, np.ndarray)
        assert answer.dtype == np.uint8


@pytest.mark.parametrize("mode", MODES)
def test_episodes_are_those_of_one_machine(task: Any, mode: str, ray_here: RayHere) -> None:
    given = {"num_envs": 5, "seed": 3, "autoreset": mode}
    with make(task, **given) as pool, stepmill.make(task, **given) as plain:
        assert_same(pool.reset(seed=7), plain.reset(seed=7))
        rng = np.random.default_rng(1)
        for _ in range(3 if mode == "disabled" else 60):
            action = rng.integers(0, 2, 5)
            assert_same(pool.step(action), plain.step(action))


@pytest.mark.parametrize("task", ["inline", "process"], indirect=True)
def test_options_and_failures_travel_with_the_parcels(task: Any, ray_here: RayHere) -> None:
    with make(task, num_envs=3, seed=3) as pool:
        _, info = pool.reset(options={"level": 2})
        assert info["options"].tolist() == ["{'level': 2}"] * 3
        with pytest.raises(
            errors.EnvError, match=r"env 2 failed in step \(episode 1, step 0\): .*it broke at 1"
        ) as caught:
            pool.step(np.array([0, 0, 2]))
        assert isinstance(caught.value.__cause__, ValueError)
        assert caught.value.batch[4]["env_id"].tolist() == [0, 1, 2]


# ---- who takes stepmill.Ray besides make ---------------------------------------------------------


def test_gymnasium_passes_the_backend_on(ray_here: RayHere) -> None:
    with gymnasium.make_vec("stepmill/CartPole-v1", num_envs=4, backend=stepmill.Ray(num_actors=2)) as envs:
        envs.reset()
        assert len(ray_here.carried["exchange"]) == 2


def test_a_manager_takes_the_same_object(ray_here: RayHere) -> None:
    with RayEnvManager([Teller] * 4, cfg={"backend": stepmill.Ray(num_actors=2)}) as manager:
        manager.launch()
        assert manager.ready_obs_id == [0, 1, 2, 3]
        assert len(ray_here.carried["describe"]) == 2
