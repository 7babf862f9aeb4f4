"""Episodes of one env, one policy and one call do not get into the data set of another."""

from __future__ import annotations

import dataclasses
import json
import shutil
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium
import minari
import numpy as np
import pytest
from gymnasium import spaces

from stepmill.errors import ConfigError, StepmillError, UsageError
from stepmill.interop.minari import collect

pytestmark = pytest.mark.usefixtures("deadline")


@dataclasses.dataclass
class Gain:
    value: float


class Opaque:
    def __init__(self, value: float) -> None:
        self.value = value


class Counting(gymnasium.Env[np.ndarray, np.ndarray]):
    """Observes how many steps it has made, of four; its infos may have keys that mean something to pools."""

    observation_space = spaces.Box(-100, 100, (1,), np.float32)
    action_space = spaces.Box(-10, 10, (1,), np.float32)

    def __init__(self, key: str | None = None, gain: Any = None) -> None:
        self.key, self.gain = key, gain

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        self.count = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.count += 1
        info = {self.key: np.full(1, 77, np.float32)} if self.key else {}
        reward = 1.0 if self.gain is None else self.gain.value
        return np.full(1, self.count, np.float32), reward, False, self.count == 4, info


def zero(obs: Any, env_ids: Any, generators: Any) -> np.ndarray:
    return np.zeros((len(env_ids), 1), np.float32)


class Stops(Exception):
    """What stops a collection."""


def stopping(at: int) -> Any:
    calls = iter(range(at))

    def policy(*arguments: Any) -> np.ndarray:
        if next(calls, None) is None:
            raise Stops
        return zero(*arguments)

    return policy


def begin(pool: Any, name: str = "x-v0") -> None:
    """Plays two of four episodes."""
    with pytest.raises(Stops):
        collect(pool, stopping(10), 4, name, algorithm_name="A")


@pytest.mark.parametrize("mode", ["next_step", "same_step", "disabled"])
@pytest.mark.parametrize("key", ["final_obs", "final_info", "episode_return"])
def test_keys_of_an_env_are_not_taken_for_the_pool_s(make: Any, mode: str, key: str) -> None:
    pool = make(Counting, num_envs=2, backend="inline", autoreset=mode, key=key)
    (dataset, _) = collect(pool, zero, 2, "x-v0")
    for episode in dataset:
        assert episode.observations.ravel().tolist() == [0, 1, 2, 3, 4]


# ---- resuming ------------------------------------------------------------------------------------


def test_other_bounds_of_actions_are_another_collection(make: Any) -> None:
    begin(make(Counting, backend="inline"))
    with pytest.raises(ConfigError, match="action_bounds: there 'pass', here 'clip'"):
        collect(make(Counting, backend="inline", action_bounds="clip"), zero, 4, "x-v0", algorithm_name="A")


def test_data_classes_of_a_configuration_are_compared(make: Any) -> None:
    begin(make(Counting, backend="inline", gain=Gain(1.0)))
    with pytest.raises(ConfigError, match=r"config: there .*1\.0.* here .*5\.0"):
        collect(make(Counting, backend="inline", gain=Gain(5.0)), zero, 4, "x-v0", algorithm_name="A")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dataset, _ = collect(make(Counting, backend="inline", gain=Gain(1.0)), zero, 4, "x-v0", algorithm_name="A")
    assert dataset.total_episodes == 4


@pytest.mark.parametrize(
    ("arguments", "what"),
    [({"task_id": Counting, "gain": Opaque(1.0)}, r"config\['gain'\]"), ({"task_id": lambda: Counting()}, "env")],
)
def test_what_cannot_be_compared_is_named_when_a_collection_goes_on(
    make: Any, arguments: dict[str, Any], what: str
) -> None:
    pool = make(**{"backend": "inline", **arguments})
    begin(pool)
    for _ in ("goes on", "is complete"):
        with pytest.warns(UserWarning, match=rf"looks the same, but {what} cannot be compared"):
            collect(pool, zero, 4, "x-v0", algorithm_name="A")


def test_a_collection_that_begins_warns_of_nothing(make: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        collect(make(lambda: Counting(), backend="inline"), zero, 1, "x-v0")


def test_a_damaged_note_is_another_collection(make: Any, datasets: Path) -> None:
    begin(make(Counting, backend="inline"))
    (note,) = datasets.glob(".*.parts/origin.json")
    note.write_text("{")
    with pytest.raises(ConfigError, match="its origin is not known"):
        collect(make(Counting, backend="inline"), zero, 4, "x-v0", algorithm_name="A")


def test_a_folder_without_a_data_set_is_another_one(make: Any, datasets: Path) -> None:
    (datasets / "x-v0" / "data").mkdir(parents=True)
    with pytest.raises(ConfigError, match="its origin is not known"):
        collect(make(Counting, backend="inline"), zero, 4, "x-v0")


# ---- one call at a time --------------------------------------------------------------------------


def test_a_pool_plays_one_collection_at_a_time(make: Any) -> None:
    pool = make(Counting, backend="inline", num_envs=2)

    class Nested:
        def begin(self, env_ids: Any) -> None:
            with pytest.raises(UsageError):
                collect(pool, zero, 1, "inner-v0")

        def __call__(self, *arguments: Any) -> np.ndarray:
            self.begin(None)
            return zero(*arguments)

    dataset, _ = collect(pool, Nested(), 3, "outer-v0")
    assert [len(episode.rewards) for episode in dataset] == [4, 4, 4]
    assert list(minari.list_local_datasets()) == ["outer-v0"]
    collect(pool, zero, 1, "next-v0")  # and then it is free


def test_a_policy_may_not_step_the_pool(make: Any) -> None:
    pool = make(Counting, backend="inline", num_envs=2)

    def policy(*arguments: Any) -> np.ndarray:
        with pytest.raises(StepmillError):
            pool.step(np.zeros((2, 1), np.float32))
        return zero(*arguments)

    dataset, _ = collect(pool, policy, 2, "x-v0")
    assert all(episode.observations.ravel().tolist() == [0, 1, 2, 3, 4] for episode in dataset)


# ---- room on the disk ----------------------------------------------------------------------------


def test_a_data_set_that_does_not_fit_is_an_error_and_can_be_made_later(
    make: Any, datasets: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = make(Counting, backend="inline")
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=4096))
        with pytest.raises(OSError, match="expected room for a data set of about") as caught:
            collect(pool, zero, 4, "x-v0")
    assert "4 of 4 episodes are in" in caught.value.__notes__[0]
    assert list(minari.list_local_datasets()) == []
    dataset, _ = collect(pool, stopping(0), 4, "x-v0", algorithm_name="zero")
    assert dataset.total_episodes == 4
    assert json.loads((datasets / "x-v0" / "data" / "metadata.json").read_text())["algorithm_name"] == "zero"
