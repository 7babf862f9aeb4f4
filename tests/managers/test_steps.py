"""``step`` of env managers: what it takes, when it returns, and what is ready then."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from stepmill import EnvError, errors
from stepmill.envs import BaseEnvTimestep
from stepmill.errors import ActionError
from stepmill.managers import (
    BaseEnvManager,
)
from support.envs.contract import Walk
from support.envs.managed import KINDS, Trial, count, elapsed, gated, launched, make, play, states, suffering
from support.envs.many_spaces import SpaceEnv
from support.manager_cases import DONE, ERROR, EVERY_KIND, NEED_RESET, RESET, SERIAL_AND_ASYNC
from support.probes import assert_same
from support.waiting import Gate, doing, eventually

pytestmark = pytest.mark.usefixtures("deadline", "server")


# ---- step ----------------------------------------------------------------------------------------


@SERIAL_AND_ASYNC
def test_a_timestep_is_what_the_env_gave(kind: str) -> None:
    lone = Trial({"length": 2})
    lone.seed(7)
    with make(kind, [{"length": 2}]) as manager:
        manager.seed(7)
        manager.launch()
        assert_same(manager.ready_obs, {0: lone.reset()})
        for done in (False, True):
            seen, expected = manager.step({0: 1})[0], lone.step(np.array(1))
            assert type(seen) is BaseEnvTimestep
            assert_same(tuple(seen)[:3], tuple(expected)[:3])
            assert type(seen.done) is bool
            assert seen.done == done
            assert seen.info.items() >= expected.info.items()
        assert seen.info["eval_episode_return"] == seen.info["final_eval_reward"] == lone.score


ACTIONS = [1, np.int32(1), np.array(1), np.array([1]), [1], 1.0]


@SERIAL_AND_ASYNC
def test_actions_may_be_numbers_arrays_and_lists(kind: str) -> None:
    with launched(kind, [{"length": 50}] * 2) as manager:
        for action, other in [*zip(ACTIONS, ACTIONS, strict=True), ([1], 0), (0, np.array([[1]]))]:
            timesteps = manager.step({0: action, 1: other})
            while len(timesteps) < 2:
                timesteps.update(manager.step({}))
            assert {i: one.info["action"] for i, one in timesteps.items()} == {0: np.sum(action), 1: np.sum(other)}


@pytest.mark.torch
@SERIAL_AND_ASYNC
def test_actions_may_be_tensors(kind: str) -> None:
    import torch

    with launched(kind, 1) as manager:
        for action in (torch.tensor(1), torch.tensor([1.0], requires_grad=True)):
            assert manager.step({0: action})[0].info["action"] == 1


STRUCTURED = spaces.Dict(
    {"move": spaces.Box(-1, 1, (2,), np.float32), "keys": spaces.Tuple([spaces.Discrete(3), spaces.MultiBinary(2)])}
)


@pytest.mark.torch
@SERIAL_AND_ASYNC
def test_actions_of_dict_and_tuple_spaces(kind: str) -> None:
    import torch

    functions = [lambda: SpaceEnv(spaces.Box(0, 1, (1,)), STRUCTURED) for _ in range(2)]
    with KINDS[kind](functions) as manager:
        manager.launch()
        first = {"move": np.array([0.5, -0.5], np.float32), "keys": (2, np.array([0, 1], np.int8))}
        second = {"move": torch.tensor([0.25, 0.0]), "keys": [torch.tensor(1), [1, 0]]}
        manager.step({0: first, 1: second})
        (one,), (other,) = manager.received
        assert (one["move"].tolist(), one["keys"][0], one["keys"][1].tolist()) == ([0.5, -0.5], 2, [0, 1])
        assert (other["move"].tolist(), other["keys"][0], other["keys"][1].tolist()) == ([0.25, 0.0], 1, [1, 0])


WRONG_ACTIONS: dict[str, tuple[Any, type[Exception], str]] = {
    "a list": ([0, 0], errors.InputError, "expected a dict from env id to action"),
    "out of range": ({0: 0, 2: 0}, errors.EnvIdError, r"env id 2 is out of range \[0, 2\)"),
    "negative": ({-1: 0}, errors.EnvIdError, r"env id -1 is out of range \[0, 2\)"),
    "no id": ({"0": 0}, errors.EnvIdError, "expected a whole number, got '0'"),
    "not in the space": ({0: 0, 1: 2}, errors.ActionError, "action"),
    "a fraction": ({0: 0.5}, errors.ActionError, "action"),
    "two for one": ({0: [0, 0]}, errors.ActionError, "action"),
    "shapes that differ": ({0: [0, 0], 1: 0}, errors.ActionError, "expected shape"),
    "nothing": ({0: None}, errors.ActionError, "action"),
    "text": ({0: "up"}, errors.ActionError, "action"),
}


@SERIAL_AND_ASYNC
def test_a_wrong_action_is_an_error_and_nothing_is_sent(kind: str) -> None:
    with launched(kind, 2) as manager:
        for actions, error, message in WRONG_ACTIONS.values():
            with pytest.raises(error, match=message):
                manager.step(actions)
        assert elapsed(manager) == {0: 0, 1: 0}
        assert manager.step({}) == {}
        manager.step({0: 0})


@pytest.mark.parametrize("shape", [(1,), (), (2, 2), (4, 2), (1, 2)])
def test_an_action_is_not_bent_to_the_shape_of_the_space(shape: tuple[int, ...]) -> None:
    functions = [lambda: SpaceEnv(spaces.Box(0, 1, (1,)), spaces.Box(-1, 1, (4,), np.float32)) for _ in range(4)]
    with BaseEnvManager(functions) as manager:
        manager.launch()
        with pytest.raises(errors.ActionError):
            manager.step(dict.fromkeys(range(4), np.zeros(shape, np.float32)))
        assert manager.received == [[]] * 4


@SERIAL_AND_ASYNC
def test_step_of_some_steps_those_and_no_others(kind: str) -> None:
    with launched(kind, 3) as manager:
        assert list(manager.step({2: 0, 0: 0})) == [0, 2]
        assert elapsed(manager) == {0: 1, 1: 0, 2: 1}
        assert list(manager.step({1: 0})) == [1]
        assert elapsed(manager) == {0: 1, 1: 1, 2: 1}


@SERIAL_AND_ASYNC
def test_step_of_nothing_gathers_what_is_in_flight(kind: str) -> None:
    with launched(kind, 2) as manager:
        assert manager.step({}) == {}
        got = dict(manager.step({0: 0, 1: 0}))
        while len(got) < 2:
            got.update(manager.step({}))
        assert manager.step({}) == {}
        assert elapsed(manager) == {0: 1, 1: 1}


@EVERY_KIND
def test_actions_reach_the_envs_that_were_named_whatever_ends(kind: str) -> None:
    """``play`` asserts it of every action."""
    with launched(kind, [{"length": n} for n in (1, 2, 3, 1)], episode_num=8) as manager:
        assert [len(one) for one in play(manager).values()] == [8] * 4


def test_an_action_reaches_its_env_though_a_reset_ends_between_ready_obs_and_step(gate: Gate) -> None:
    cfgs = [suffering("reset", "gate", [2], folder=gate.folder, length=1), {"length": 9}, {"length": 9}]
    with launched("async", cfgs) as manager:
        manager.step({0: 0, 1: 0})
        assert gate.wait() == 0
        while manager.step({}):
            pass
        ready = manager.ready_obs
        assert list(ready) == [1, 2]
        gate.open(0)
        assert eventually(lambda: count(gate.folder, "reset", 0) == 2)
        timesteps = manager.step({1: 1, 2: -1})
        while len(timesteps) < 2:
            timesteps.update(manager.step({}))
        assert {i: (one.obs[0], one.info["action"]) for i, one in timesteps.items()} == {1: (1, 1), 2: (2, -1)}
        assert eventually(lambda: 0 in manager.ready_obs)
        assert elapsed(manager) == {0: 0, 1: 2, 2: 1}


# ---- when step returns ---------------------------------------------------------------------------


def opening_after_a_step_of_env_0(gate: Gate, *held: int) -> Callable[[], None]:
    """Lets env 1 through once these envs are at the gate (env 1 alone by default) and env 0 has made its step."""

    def let_through() -> None:
        assert sorted(gate.wait() for _ in held or (1,)) == list(held or (1,))
        assert eventually(lambda: count(gate.folder, "step", 0) == 1)
        gate.open(1)

    return doing(let_through)


def test_sync_managers_return_when_all_that_are_in_flight_are_ready(gate: Gate) -> None:
    with launched("sync", [{"folder": gate.folder}, gated(gate, 1)]) as manager:
        join = opening_after_a_step_of_env_0(gate)
        assert list(manager.step({0: 0, 1: 0})) == [0, 1]
        join()


@pytest.mark.parametrize("timeout", [None, 0, 0.01])
def test_async_managers_return_at_least_wait_num(gate: Gate, timeout: float | None) -> None:
    cfgs = [{"folder": gate.folder}, gated(gate, 1), gated(gate, 1)]
    with launched("async", cfgs, wait_num=2, timeout=timeout) as manager:
        join = opening_after_a_step_of_env_0(gate, 1, 2)
        assert list(manager.step({0: 0, 1: 0, 2: 0})) == [0, 1]
        join()
        assert list(manager.ready_obs) == [0, 1]
        with pytest.raises(errors.InFlightError, match=r"0: 'RUN', 2: 'in flight'"):
            manager.step({0: 0, 2: 0})
        gate.open(2)
        assert list(manager.step({})) == [2], "capped at those in flight"


def test_with_time_left_step_waits_for_all_that_are_in_flight(gate: Gate) -> None:
    with launched("async", [{"folder": gate.folder}, gated(gate, 1)], wait_num=1, timeout=1000) as manager:
        join = opening_after_a_step_of_env_0(gate)
        assert list(manager.step({0: 0, 1: 0})) == [0, 1]
        join()


def test_step_does_not_wait_for_the_resets_of_others(gate: Gate) -> None:
    cfgs = [suffering("reset", "gate", [2], folder=gate.folder, length=1), {}]
    with launched("async", cfgs, wait_num=1, timeout=1000) as manager:
        manager.step({0: 0})
        assert gate.wait() == 0
        for _ in range(3):
            assert list(manager.step({1: 0})) == [1]
        gate.open(0)


@pytest.mark.parametrize(("wait_num", "timeout"), [(2, 0.01), (1, None), (2, 0)])
def test_the_others_go_on_while_one_env_never_finishes(
    gate: Gate, monkeypatch: pytest.MonkeyPatch, wait_num: int, timeout: float | None
) -> None:
    """Also on fewer cores than envs, and with the default number of workers."""
    monkeypatch.setattr("stepmill._native.available_cores", lambda: 2)
    # Two episodes never end: a call returns wait_num envs, and not only ended ones, while the stuck one runs.
    cfgs: list[dict[str, Any]] = [{"length": 3}, gated(gate, 1), {"length": 10**6}, {"length": 10**6}]
    with launched("async", cfgs, wait_num=wait_num, timeout=timeout, num_workers=None) as manager:
        got = dict.fromkeys(range(4), 0)
        actions = dict.fromkeys(range(4), 0)
        while min(got[i] for i in (0, 2, 3)) < 20:
            for env_id in manager.step(actions):
                got[env_id] += 1
            actions = dict.fromkeys(manager.ready_obs, 0)
            assert 1 not in actions
        assert got[1] == 0
        assert manager.active_env.count(1) == 1
        gate.open(1)
        while not got[1]:
            for env_id in manager.step({}):
                got[env_id] += 1
        assert got[1] == 1


def test_step_never_returns_only_ended_envs_while_others_run(gate: Gate) -> None:
    cfgs = [{"folder": gate.folder, "length": 1}, gated(gate, 1)]
    with launched("async", cfgs, wait_num=1, timeout=0) as manager:

        def let_through() -> None:
            assert gate.wait() == 1
            # Its reset follows when the manager has seen the end.
            assert eventually(lambda: count(gate.folder, "reset", 0) == 2)
            gate.open(1)

        join = doing(let_through)
        timesteps = manager.step({0: 0, 1: 0})
        join()
        assert {i: one.done for i, one in timesteps.items()} == {0: True, 1: False}


@SERIAL_AND_ASYNC
def test_ended_envs_are_returned_where_no_other_runs(kind: str) -> None:
    with launched(kind, [{"length": 1}] * 2) as manager:
        timesteps = manager.step({0: 0, 1: 0})
        while len(timesteps) < 2:
            timesteps.update(manager.step({}))
        assert all(one.done for one in timesteps.values())


def test_a_result_is_not_lost_when_others_ask_before_step_does(gate: Gate) -> None:
    """``ready_obs`` and ``reset`` look at what has arrived; an env whose timestep nobody has takes no action."""
    cfgs = [{}, gated(gate, 1, 2, length=9), gated(gate, 1)]
    with launched("async", cfgs, wait_num=1, timeout=0.01) as manager:
        assert list(manager.step({0: 0, 1: 1, 2: 1})) == [0]
        assert sorted([gate.wait(), gate.wait()]) == [1, 2]
        gate.open(1)
        assert eventually(lambda: count(gate.folder, "step", 1) == 1)
        manager.reset({0: None})
        for _ in range(10):
            assert list(manager.ready_obs) == [0]
        with pytest.raises(errors.InFlightError, match=r"the envs \[1\]"):
            manager.step({1: 0})
        timesteps = manager.step({})
        assert {i: (one.info["action"], one.obs[2]) for i, one in timesteps.items()} == {1: (1, 1)}
        assert list(manager.ready_obs) == [0, 1]
        assert list(manager.step({0: 0, 1: 0})) == [0], "the next one is on its way"
        gate.open(1)
        gate.open(2)
        timesteps = manager.step({})
        while len(timesteps) < 2:
            timesteps.update(manager.step({}))
        assert {i: (one.info["action"], one.obs[2]) for i, one in timesteps.items()} == {1: (0, 2), 2: (1, 1)}


def test_an_end_is_not_lost_when_others_ask_before_step_does(gate: Gate) -> None:
    with launched("async", [{}, gated(gate, 1, length=1)], wait_num=1, timeout=0) as manager:
        assert list(manager.step({0: 0, 1: 1})) == [0]
        assert gate.wait() == 1
        gate.open(1)
        assert eventually(lambda: bool(manager.ready_obs) and count(gate.folder, "reset", 1) == 2)
        for _ in range(10):
            assert list(manager.ready_obs) == [0]
        with pytest.raises(errors.InFlightError, match=r"the envs \[1\]"):
            manager.step({1: 0})
        timesteps = manager.step({})
        assert {i: (one.info["action"], one.done) for i, one in timesteps.items()} == {1: (1, True)}
        assert eventually(lambda: 1 in manager.ready_obs)
        assert elapsed(manager) == {0: 1, 1: 0}


# ---- ready_obs -----------------------------------------------------------------------------------


@SERIAL_AND_ASYNC
def test_ready_obs_has_the_envs_that_can_take_an_action(kind: str) -> None:
    with launched(kind, 2) as manager:
        first = manager.ready_obs
        assert list(first) == [0, 1] == manager.ready_obs_id == manager.ready_env == manager.active_env
        assert_same(manager.next_obs, first)
        assert [one.tolist()[::2] for one in first.values()] == [[0, 0], [1, 0]]
        stepped = manager.step({1: 0})
        assert_same(manager.ready_obs, {0: first[0], 1: stepped[1].obs})


def test_ready_obs_waits_while_all_live_envs_are_resetting(gate: Gate) -> None:
    cfgs = [suffering("reset", "gate", [2], folder=gate.folder, length=1) for _ in range(2)]
    with launched("sync", cfgs) as manager:
        manager.step({0: 0, 1: 0})
        assert sorted([gate.wait(), gate.wait()]) == [0, 1]
        gate.open(1)
        assert elapsed(manager) == {1: 0}
        gate.open(0)


def test_ready_obs_waits_while_the_only_one_that_is_not_done_is_resetting(gate: Gate) -> None:
    cfgs = [{"length": 1}, suffering("reset", "gate", [3], folder=gate.folder, length=1)]
    with launched("sync", cfgs, episode_num=3) as manager:
        manager.step({1: 0})
        for _ in range(3):
            assert eventually(lambda: 0 in manager.ready_obs)
            manager.step({0: 0})
        assert eventually(lambda: 1 in manager.ready_obs)
        manager.step({1: 0})
        assert (gate.wait(), states(manager)) == (1, [DONE, RESET])
        gate.open(1)
        assert elapsed(manager) == {1: 0}


@SERIAL_AND_ASYNC
def test_ready_obs_is_empty_when_all_are_done(kind: str) -> None:
    with launched(kind, [{"length": 1}] * 2, episode_num=1) as manager:
        play(manager)
        assert (manager.ready_obs, manager.ready_obs_id, manager.step({})) == ({}, [], {})


@SERIAL_AND_ASYNC
def test_ready_obs_does_not_wait_for_envs_that_the_caller_has_to_reset(kind: str) -> None:
    with launched(kind, [{"abnormal_at": 1}, {"length": 1}], auto_reset=False) as manager:
        while manager.step(dict.fromkeys(manager.ready_obs, 0)):
            pass
        assert (states(manager), manager.ready_obs) == ([ERROR, NEED_RESET], {})


def test_ready_obs_does_not_wait_for_an_action_in_flight(gate: Gate) -> None:
    with launched("async", [gated(gate, 1), suffering("step", "raise")], wait_num=1, timeout=0) as manager:
        with pytest.raises(EnvError, match="env 1"):
            manager.step({0: 0, 1: 0})
        assert (manager.ready_obs, manager.active_env, manager.ready_env) == ({}, [0], [])
        gate.open(0)
        assert list(manager.step({})) == [0]


class OddTensor:
    """Like a torch tensor of a type that numpy does not know."""

    def detach(self) -> OddTensor:
        return self

    def cpu(self) -> OddTensor:
        return self

    def numpy(self) -> Any:
        raise TypeError("Got unsupported ScalarType BFloat16")


def test_tensors_that_numpy_cannot_hold_are_refused_in_our_words() -> None:
    with BaseEnvManager([lambda: Walk({})]) as manager:
        manager.launch()
        with pytest.raises(ActionError, match="expected numbers of a type that numpy knows"):
            manager.step({0: OddTensor()})
        assert list(manager.step({0: 0})) == [0]
