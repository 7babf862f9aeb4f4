"""Ten thousand steps, with saves and restores at random moments: what envs show is what they show undisturbed.

The ids of the registry have the same in tests/zoo.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

import stepmill
from support.envs import ProbeTwin
from support.envs.adapted import Chase
from support.envs.contract import DmWalk, Pair, Walk
from support.envs.layered import in_ding_wrapper, with_our_wrappers, with_wrappers_of_gymnasium
from support.envs.many_spaces import AllTypes, Mixed, WildEnv
from support.journeys import chance_env, travel_far
from support.probes import MODES, VIEWS, assert_same

pytestmark = pytest.mark.long

STEPS = 10_000
TASKS: dict[str, tuple[Any, dict[str, Any]]] = {
    "chance": (chance_env, {}),
    "infos": (ProbeTwin, {"info": True, "length": 7}),
    "nested-and-objects": (WildEnv, {}),
    "nested": (Mixed, {}),
    "every-type": (AllTypes, {}),
    "base-env": (Walk, {}),
    "dm-env": (DmWalk, {}),
    "our-wrappers": (with_our_wrappers, {}),
    "wrappers-of-gymnasium": (with_wrappers_of_gymnasium, {}),
    "ding-wrapper": (in_ding_wrapper, {}),
}
PICKLED = ("chance", "infos", "nested-and-objects", "every-type")
WAYS = [(task, None) for task in TASKS] + [(task, "pickle") for task in PICKLED]


@pytest.mark.parametrize("backend", ["inline", "process"])
@pytest.mark.parametrize(("task", "by"), WAYS)
def test_python_envs_travel_far(task: str, by: str | None, backend: str) -> None:
    made, config = TASKS[task]
    mode = MODES[list(TASKS).index(task) % 3]
    make = functools.partial(stepmill.make, made, num_envs=2, backend=backend, autoreset=mode, **config)
    travel_far(make, STEPS, by, mixed=task != "base-env")  # it shows its number


@pytest.mark.parametrize("task", ["native", "python"])
@pytest.mark.parametrize("view", VIEWS)
def test_envs_travel_far_in_every_view(view: Any, task: str) -> None:
    made = "Taxi-v4" if task == "native" else chance_env
    travel_far(functools.partial(stepmill.make, made, view, num_envs=2, backend="inline"), STEPS)


@pytest.mark.parametrize("backend", ["inline", "process"])
@pytest.mark.parametrize("task", [Chase, Pair, "TemplatePlayers-v0"])
def test_players_travel_far(task: Any, backend: str) -> None:
    players = {"max_num_players": 4} if isinstance(task, str) else {}

    def act(info: dict[str, Any], time: int) -> Any:
        if task is Pair:
            return (np.arange(4) + time) % 4
        if task is not Chase:
            return (info["players"]["id"] + time) % 2
        rows = info["players"]["rows"]
        pull = np.full((len(rows["cat"]), 1), time % 9 / 9, np.float32)
        return {"mouse": np.full(len(rows["mouse"]), time % 3), "cat": pull}

    def go(pool: Any, info: dict[str, Any], time: int, steps: int) -> list[Any]:
        out = []
        for now in range(time, time + steps):
            out.append(pool.step(act(info, now)))
            info = out[-1][4]
        return out

    make = functools.partial(stepmill.make, task, num_envs=2, backend=backend, **players)
    rng, time = np.random.default_rng(8), 0
    with make(seed=7) as undisturbed, make(seed=7) as pool, make(seed=99) as other:
        other.reset()
        info, its = undisturbed.reset()[1], pool.reset()[1]
        while time < STEPS // 2:
            steps = int(rng.integers(1, 40))
            expected, got = go(undisturbed, info, time, steps), go(pool, its, time, steps)
            assert_same(got, expected)
            time, info, its = time + steps, expected[-1][4], got[-1][4]
            states = pool.save()
            go(pool, its, time + 1, int(rng.integers(1, 9)))
            pool, other = (pool, other) if rng.random() < 0.5 else (other, pool)
            _, its = pool.restore(states)
