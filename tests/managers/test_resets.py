"""``reset`` and ``seed`` of env managers."""

from __future__ import annotations

import os
import threading
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from stepmill import errors
from stepmill.errors import InputError, WorkerDiedError
from stepmill.managers import (
    BaseEnvManager,
    SyncSubprocessEnvManager,
)
from support.envs.contract import Walk
from support.envs.managed import KINDS, Trial, count, elapsed, gated, launched, make, play, states, suffering
from support.manager_cases import DONE, RUN, SERIAL_AND_ASYNC
from support.waiting import Gate, doing, eventually

pytestmark = pytest.mark.usefixtures("deadline", "server")


# ---- reset ---------------------------------------------------------------------------------------


@SERIAL_AND_ASYNC
def test_reset_begins_all_envs_anew(kind: str) -> None:
    with launched(kind, 2) as manager:
        while manager.step(dict.fromkeys(manager.ready_obs, 0)) and max(elapsed(manager).values()) < 3:
            pass
        manager.reset()
        assert (states(manager), elapsed(manager)) == ([RUN, RUN], {0: 0, 1: 0})
        assert manager.step({}) == {}, "what was in flight came to nothing"


PARAMS: dict[str, tuple[dict[str, Any], dict[int, Any]]] = {
    "all, nothing": ({}, {0: {}, 1: {}, 2: {}}),
    "all, a list": ({"reset_param": [{"a": 1}, {}, {"b": 2}]}, {0: {"a": 1}, 1: {}, 2: {"b": 2}}),
    "some, a dict": ({"reset_param": {2: {"a": 1}, 0: None}}, {0: {}, 2: {"a": 1}}),
    "some, a list": ({"reset_param": [{"a": 1}, {"b": 2}], "env_id": [2, 0]}, {0: {"b": 2}, 2: {"a": 1}}),
    "some, nothing": ({"env_id": [1]}, {1: {}}),
    "some, both": ({"reset_param": {1: {"a": 1}}, "env_id": [1]}, {1: {"a": 1}}),
    "one": ({"env_id": 1}, {1: {}}),
}


@SERIAL_AND_ASYNC
def test_reset_takes_parameters_of_some_or_all(kind: str) -> None:
    with launched(kind, 3) as manager:
        for arguments, expected in PARAMS.values():
            manager.reset([{}] * 3)
            manager.step({0: 0})
            manager.step({1: 0})
            manager.step({2: 0})
            manager.reset(**arguments)
            assert elapsed(manager) == {i: int(i not in expected) for i in range(3)}
            assert {i: kwargs for i, kwargs in enumerate(manager.reset_kwargs) if i in expected} == expected


@SERIAL_AND_ASYNC
def test_parameters_hold_for_the_resets_that_follow(kind: str) -> None:
    with make(kind, [{"length": 1}, {"length": 2}]) as manager:
        manager.launch({0: {"a": 1}, 1: {"b": 2}})
        assert manager.reset_kwargs == [{"a": 1}, {"b": 2}]
        play(manager, lambda ended: min(map(len, ended.values())) == 2)
        assert manager.reset_kwargs == [{"a": 1}, {"b": 2}]
        manager.reset([None, {}])
        assert manager.reset_kwargs == [{"a": 1}, {}]


WRONG_RESETS: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "too few": ({"reset_param": [{}]}, errors.InputError, "expected 2 parameters, one per env, got 1"),
    "too many": ({"reset_param": [{}, {}], "env_id": [1]}, errors.InputError, "expected 1 parameters.*got 2"),
    "others": ({"reset_param": {0: {}}, "env_id": [1]}, errors.InputError, r"for the envs \[1\], got them for \[0\]"),
    "not a dict": ({"reset_param": [{}, 3]}, errors.InputError, "a dict of arguments for env 1, got 3"),
    "out of range": ({"reset_param": {2: {}}}, errors.EnvIdError, r"env id 2 is out of range \[0, 2\)"),
    "twice": ({"env_id": [1, 1]}, errors.EnvIdError, "env id 1 is given twice"),
    "no id": ({"env_id": ["a"]}, errors.EnvIdError, "expected a whole number, got 'a'"),
}


@SERIAL_AND_ASYNC
def test_an_invalid_reset_is_an_error_and_changes_nothing(kind: str) -> None:
    with launched(kind, 2) as manager:
        manager.step({0: 0})
        for arguments, error, message in WRONG_RESETS.values():
            with pytest.raises(error, match=message):
                manager.reset(**arguments)
        assert elapsed(manager) == {0: 1, 1: 0}


def test_reset_of_an_env_in_flight_voids_its_action_and_no_other(gate: Gate) -> None:
    with launched("async", [gated(gate, 1), gated(gate, 1), {}], wait_num=1, timeout=0) as manager:
        assert list(manager.step({0: 1, 1: 1, 2: 1})) == [2]
        assert sorted([gate.wait(), gate.wait()]) == [0, 1]
        gate.open(0)
        manager.reset({0: None})
        assert elapsed(manager) == {0: 0, 2: 1}
        gate.open(1)
        timesteps = manager.step({})
        assert {i: one.info["action"] for i, one in timesteps.items()} == {1: 1}


def test_an_end_that_a_reset_voids_is_not_counted(gate: Gate) -> None:
    with launched("async", [gated(gate, 1, length=1), {}], wait_num=1, timeout=0, episode_num=1) as manager:
        assert list(manager.step({0: 0, 1: 0})) == [1]
        assert gate.wait() == 0
        gate.open(0)
        manager.reset({0: None})
        assert (states(manager), manager.episode_count, elapsed(manager)) == ([RUN, RUN], {0: 0, 1: 0}, {0: 0, 1: 1})
        assert manager.step({0: 0})[0].done
        assert (states(manager), manager.episode_count) == ([DONE, RUN], {0: 1, 1: 0})


def test_reset_of_an_env_that_is_resetting_waits_for_that_one(gate: Gate) -> None:
    cfgs = [suffering("reset", "gate", [2], folder=gate.folder, length=1), {}]
    with launched("async", cfgs) as manager:
        manager.step({0: 0})
        assert gate.wait() == 0
        gate.open(0)
        manager.reset({0: {"a": 1}})
        assert (elapsed(manager), manager.reset_kwargs[0]) == ({0: 0, 1: 0}, {"a": 1})
        assert count(gate.folder, "reset", 0) == 3


@SERIAL_AND_ASYNC
def test_reset_brings_a_done_env_back_and_its_episodes_are_counted_on(kind: str) -> None:
    with launched(kind, [{"length": 1}], episode_num=1) as manager:
        for episodes in (1, 2):
            play(manager)
            assert (states(manager), manager.episode_count) == ([DONE], {0: episodes})
            manager.reset()
            assert (states(manager), manager.done) == ([RUN], False)


# ---- seeds ---------------------------------------------------------------------------------------


SEEDS: dict[str, tuple[dict[str, Any], list[int]]] = {
    "a number": ({"seed": 5}, [5, 6, 7]),
    "a list": ({"seed": [9, 3, 3]}, [9, 3, 3]),
    "an array": ({"seed": np.array([9, 3, 2**40])}, [9, 3, 2**40]),
    "a dict": ({"seed": {2: 8, 0: 7, 1: 2**63 - 1}}, [7, 2**63 - 1, 8]),
}


@SERIAL_AND_ASYNC
def test_seeds_come_from_a_number_a_list_or_a_dict(kind: str) -> None:
    with make(kind, 3) as manager:
        for arguments, expected in SEEDS.values():
            manager.seed(**arguments, dynamic_seed=False)
            manager.reset() if not manager.closed else manager.launch()
            assert manager.last_seed == expected
        manager.seed(1, env_id=[2, 0], dynamic_seed=False)
        manager.reset()
        assert manager.last_seed == [1, 2**63 - 1, 3]
        manager.seed([4], env_id=[1], dynamic_seed=False)
        manager.seed(6, env_id=2, dynamic_seed=False)
        manager.reset()
        assert manager.last_seed == [1, 4, 8]


WRONG_SEEDS: dict[str, tuple[dict[str, Any], str]] = {
    "too few": ({"seed": [1]}, "expected 2 seeds, one per env, got 1"),
    "too many": ({"seed": [1, 2], "env_id": [0]}, "expected 1 seeds, one per env, got 2"),
    "negative": ({"seed": -1}, "seed: expected a whole number"),
    "a fraction": ({"seed": [1, 2.5]}, "seed: expected a whole number, got 2.5"),
    "too large": ({"seed": 2**63}, "seed: expected a whole number"),
    "too large in the end": ({"seed": 2**63 - 1}, "seed: expected a whole number"),
    "text": ({"seed": "ab"}, "seed: expected a whole number"),
    "nothing": ({"seed": None}, "seed: expected a whole number, got None"),
    "dynamic": ({"seed": 1, "dynamic_seed": "no"}, "dynamic_seed: expected True or False"),
}


def test_an_invalid_seed_is_an_error_and_changes_nothing() -> None:
    with make("serial", 2) as manager:
        manager.seed(5, dynamic_seed=False)
        for arguments, message in WRONG_SEEDS.values():
            with pytest.raises(errors.ConfigError, match=message):
                manager.seed(**arguments)
        with pytest.raises(errors.EnvIdError, match="env id 2 is out of range"):
            manager.seed({2: 1})
        manager.launch()
        assert manager.last_seed == [5, 6]
        manager.reset()
        assert manager.last_seed == [5, 6]


def lone_seeds(seed: int, episodes: int) -> list[int | None]:
    """The seeds of the episodes of an env that nobody manages."""
    env = Trial()
    env.seed(seed)
    out = []
    for _ in range(episodes):
        env.reset()
        out.append(env.last_seed)
    return out


@SERIAL_AND_ASYNC
def test_dynamic_seeds_are_new_in_every_episode_and_static_ones_the_same(kind: str) -> None:
    with make(kind, 2) as manager:
        manager.seed({0: 5, 1: 6}, dynamic_seed=True)
        manager.launch()
        seen = [manager.last_seed]
        for _ in range(2):
            manager.reset()
            seen.append(manager.last_seed)
        assert [list(one) for one in zip(*seen, strict=True)] == [lone_seeds(5, 3), lone_seeds(6, 3)]
        manager.seed({0: 9}, dynamic_seed=False)
        for episode in range(2):
            manager.reset()
            assert manager.last_seed == [9, lone_seeds(6, 5)[3 + episode]], "a matter of each env"


@SERIAL_AND_ASYNC
def test_dynamic_is_how_envs_are_seeded_unless_told_otherwise(kind: str) -> None:
    with make(kind, 1) as manager:
        manager.seed(5)
        manager.launch()
        first = manager.last_seed
        manager.reset()
        assert [*first, *manager.last_seed] == lone_seeds(5, 2)


@SERIAL_AND_ASYNC
def test_a_seed_goes_with_the_next_reset_that_is_asked_for(kind: str) -> None:
    with make(kind, [{"length": 1}, {}]) as manager:
        manager.seed(5)
        manager.launch()
        manager.seed({0: 8, 1: 9})
        assert manager.last_seed == [lone_seeds(5, 1)[0], lone_seeds(6, 1)[0]]
        manager.step({0: 0})
        assert eventually(lambda: 0 in manager.ready_obs)
        assert manager.last_seed == [lone_seeds(5, 2)[1], lone_seeds(6, 1)[0]]
        manager.reset()
        assert manager.last_seed == [lone_seeds(8, 1)[0], lone_seeds(9, 1)[0]]


def test_envs_that_nobody_seeded_play_different_episodes() -> None:
    with launched("serial", 3) as manager:
        assert manager.last_seed == [None] * 3
        assert len({float(one[1]) for one in manager.ready_obs.values()}) == 3


@pytest.mark.parametrize(("dynamic_seed", "shared_memory"), [(True, True), (False, False), (None, True)])
def test_serial_and_subprocess_managers_play_the_same_episodes(dynamic_seed: bool | None, shared_memory: bool) -> None:
    played = []
    for kind in KINDS:
        settings = {} if kind == "serial" else {"shared_memory": shared_memory, "num_workers": 2}
        with make(kind, [{"length": n} for n in (1, 2, 5)], episode_num=4, **settings) as manager:
            manager.seed([3, 3, 4], dynamic_seed=dynamic_seed)
            manager.launch()
            played.append(play(manager))
    assert played[0] == played[1] == played[2]
    for episodes in played[0].values():
        assert len({str(one) for one in episodes}) == (1 if dynamic_seed is False else 4)


@pytest.mark.parametrize("cls", [BaseEnvManager, SyncSubprocessEnvManager])
def test_a_seed_that_was_given_with_a_step_in_flight_is_the_one_of_the_reset(cls: Any) -> None:
    with cls([lambda: Walk({"length": 1})] * 2) as manager:
        manager.seed(7)
        manager.launch()
        first = manager.ready_obs
        manager.step({0: 0, 1: 0})
        manager.seed(7)
        manager.reset()
        again = manager.ready_obs
        assert all(np.array_equal(first[one], again[one]) for one in first)


def test_parameters_that_cannot_be_sent_change_nothing() -> None:
    with SyncSubprocessEnvManager([lambda: Walk({})] * 2) as manager:
        manager.launch()
        with pytest.raises(
            InputError, match="expected a value that can be pickled and sent to a worker process: TypeError"
        ):
            manager.reset({0: {"lock": threading.Lock()}})
        manager.reset({0: {}})
        assert list(manager.step({0: 0, 1: 0})) == [0, 1]


def test_parameters_that_cannot_be_sent_are_not_those_of_the_next_reset() -> None:
    with SyncSubprocessEnvManager([lambda: Walk({"length": 1})] * 2) as manager:
        manager.launch()
        with pytest.raises(InputError, match="expected a value that can be pickled and sent to a worker process"):
            manager.reset({0: {"lock": threading.Lock()}})
        assert [one.done for one in manager.step({0: 0, 1: 0}).values()] == [True, True]
        assert eventually(lambda: len(manager.ready_obs) == 2)
        assert manager.episode_count == {0: 1, 1: 1}


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_an_env_is_reset_as_soon_as_it_ends_while_others_step(kind: str, gate: Gate) -> None:
    cfgs = [suffering("step", "gate", folder=gate.folder), {"folder": gate.folder, "length": 1}]
    with launched(kind, cfgs) as manager:
        join = doing(lambda: manager.step({0: 0, 1: 0}))
        assert gate.wait() == 0
        assert eventually(lambda: count(gate.folder, "reset", 1) == 2)
        gate.open(0)
        join()


# ---- envs that nobody seeded ---------------------------------------------------------------------


class NumpyOld(Walk):
    """Seeds numpy's old generator, which accepts 32 bits, with a ``seed`` of one argument; an action of 1 ends it."""

    def __init__(self, cfg: Any = None) -> None:
        super().__init__(cfg)
        self.seeds: list[int] = []

    def seed(self, seed: int) -> None:  # type: ignore[override]
        np.random.RandomState(seed)
        self.seeds.append(seed)

    def step(self, action: Any) -> Any:
        if int(action):
            os._exit(1)
        return super().step(action)


def test_an_env_that_nobody_seeded_is_not_seeded_and_not_after_a_restart_either() -> None:
    with SyncSubprocessEnvManager(NumpyOld, [{}, {}], 2, num_workers=2) as manager:
        manager.launch()
        manager.reset()
        with pytest.raises(WorkerDiedError):
            manager.step({0: 1, 1: 0})
        manager.reset({0: None})
        assert manager.seeds == [[], []]
        manager.seed(7)
        manager.reset()
        assert manager.seeds == [[7], [8]]


def test_the_seeds_of_an_env_that_is_built_again_are_small_and_others() -> None:
    with SyncSubprocessEnvManager(NumpyOld, [{}], 1) as manager:
        manager.seed(7)
        manager.launch()
        seeds = list(manager.seeds[0])
        for _ in range(3):
            with pytest.raises(WorkerDiedError):
                manager.step({0: 1})
            manager.reset()
            seeds += manager.seeds[0]
    assert len(set(seeds)) == len(seeds) == 4
    assert max(seeds) < 2**31


class GymnasiumSeeds(gymnasium.Env[Any, Any]):
    observation_space = spaces.Box(0, 2**31, (1,), np.float64)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return np.array([-1 if seed is None else seed], np.float64), {}


@pytest.mark.parametrize("cls", [BaseEnvManager, SyncSubprocessEnvManager])
def test_other_envs_that_nobody_seeded_are_given_small_seeds(cls: Any) -> None:
    with cls([GymnasiumSeeds] * 8) as manager:
        manager.launch()
        seeds = {float(obs[0]) for obs in manager.ready_obs.values()}
        assert len(seeds) == 8
        assert 0 <= min(seeds) < max(seeds) < 2**31
