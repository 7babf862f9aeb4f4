"""What ``collect`` refuses, and how it says so. Nothing is written then."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import stepmill
from stepmill import errors
from stepmill.interop.minari import collect
from support.envs.collected import Leaves

CARTPOLE = "CartPole-v1"


def go_left(obs: Any, env_ids: Any, generators: Any) -> list[int]:
    return [0] * len(env_ids)


class Odd(gymnasium.Env[Any, Any]):
    """Has a space that Minari cannot store."""

    action_space = spaces.Discrete(2)

    def __init__(self, space: Any) -> None:
        self.observation_space = space

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        return self.observation_space.sample(), {}


@pytest.mark.parametrize(
    ("arguments", "error", "says"),
    [
        ({"episodes": 0}, errors.ConfigError, "episodes: expected a whole number >= 1, got 0"),
        ({"max_restarts": -1}, errors.ConfigError, "max_restarts"),
        ({"seed": -1}, errors.ConfigError, "seed"),
        ({"name": "no version"}, errors.ConfigError, "name: expected the id of a data set with a version"),
        ({"name": "k/box-v0"}, errors.ConfigError, "two characters or more before a '/'"),
        ({"algorithm_name": 3}, errors.ConfigError, "algorithm_name: expected a text, got 3"),
        ({"name": "unversioned"}, errors.ConfigError, "'cartpole/random-v0', got 'unversioned'"),
        ({"name": None}, errors.ConfigError, "name: expected"),
        ({"policy": 7}, errors.InputError, r"expected a function policy\(observations, env_ids, generators\), got 7"),
        ({"policy": lambda obs, generator: 0}, errors.InputError, "write stepmill.per_env"),
        ({"author": 7}, errors.ConfigError, "author: expected a text, or several, got 7"),
        ({"author": [7]}, errors.ConfigError, "author: expected a text"),
        ({"description": 7}, errors.ConfigError, "description: expected a text, got 7"),
        ({"pool": lambda: stepmill.make_gym(CARTPOLE)}, errors.ConfigError, "env_type='gymnasium'"),
        ({"pool": lambda: gymnasium.make(CARTPOLE)}, errors.ConfigError, "stepmill.make"),
        ({"pool": lambda: stepmill.make("TemplatePlayers-v0", max_num_players=2)}, errors.UnsupportedError, "player"),
        (
            {"pool": lambda: stepmill.make("Pendulum-v1", num_envs=2, env_config=[{"g": 1.0}, {"g": 2.0}])},
            errors.UnsupportedError,
            "different configurations.*combine_datasets",
        ),
        (
            {"pool": lambda: stepmill.make(Odd, backend="inline", space=spaces.Sequence(spaces.Discrete(2)))},
            errors.SpaceError,
            "observation: Minari stores Box.* got Sequence",
        ),
        (
            {"pool": lambda: stepmill.make(Odd, backend="inline", space=spaces.Dict({"a/b": spaces.Discrete(2)}))},
            errors.SpaceError,
            "without '/', got 'a/b'",
        ),
    ],
)
def test_what_is_refused(datasets: Path, arguments: dict[str, Any], error: Any, says: str) -> None:
    given: dict[str, Any] = {"policy": go_left, "episodes": 1, "name": "x-v0", **arguments}
    pool = given.pop("pool", lambda: stepmill.make(CARTPOLE))()
    with pytest.raises(error, match=says):
        collect(pool, **given)
    pool.close()
    assert not datasets.exists() or list(datasets.rglob("*")) == []


def test_a_closed_pool_is_refused_before_anything_is_written(datasets: Path) -> None:
    pool = stepmill.make(CARTPOLE)
    pool.close()
    with pytest.raises(errors.ClosedError):
        collect(pool, go_left, 1, "x-v0")
    assert not datasets.exists()


@pytest.mark.parametrize(
    ("task", "actions", "says"),
    [
        (CARTPOLE, [2, 2], "policy: action of env .: expected a whole number in .0, 1., got ."),
        (CARTPOLE, [0.5, 0.5], "policy: action"),
        (CARTPOLE, None, "policy: expected one action for each of 2 envs, got None"),
        (CARTPOLE, [0], "policy: action"),
        (CARTPOLE, [0, 3], "policy: action of env .: expected a whole number in .0, 1., got ."),
        ("Pendulum-v1", [[np.nan], [0.0]], "policy: action"),
        (Leaves, ((np.ones(2, int), {}, np.zeros((2, 2), int)),), r"policy: action\[1\]"),
    ],
)
def test_actions_that_do_not_fit(make: Any, task: Any, actions: Any, says: str) -> None:
    pool = make(task, num_envs=2, backend="inline")
    with pytest.raises(errors.ActionError, match=says):
        collect(pool, lambda *_: actions, 2, "x-v0")
