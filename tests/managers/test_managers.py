"""The life of env managers: launch, close, the states of envs, and their attributes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from stepmill import errors
from stepmill.errors import ConcurrentUseError
from stepmill.managers import (
    SubprocessEnvManager,
)
from support.envs.managed import KINDS, Trial, count, elapsed, gated, launched, make, play, states, suffering
from support.manager_cases import DONE, ERROR, EVERY_KIND, INIT, NEED_RESET, RESET, RUN, SERIAL_AND_ASYNC, VOID
from support.subprocesses import run_well
from support.waiting import Gate, doing, eventually

pytestmark = pytest.mark.usefixtures("deadline", "server")


# ---- launch and close ----------------------------------------------------------------------------


@SERIAL_AND_ASYNC
def test_launch_leads_from_void_to_run(kind: str) -> None:
    seen = []

    class Watched(KINDS[kind]):  # type: ignore[misc]
        def reset(self, *args: Any, **kwargs: Any) -> None:
            seen.append(states(self))
            super().reset(*args, **kwargs)

    manager = Watched(Trial, [{}, {}], 2)
    seen.append(states(manager))
    manager.launch()
    seen.append(states(manager))
    manager.close()
    seen.append(states(manager))
    assert seen == [[VOID] * 2, [INIT] * 2, [RUN] * 2, [VOID] * 2]


def test_envs_that_are_being_reset_are_in_state_reset() -> None:
    seen = []

    class Watching(Trial):
        def reset(self, **kwargs: Any) -> Any:
            seen.append(manager.env_state[self.env_id])
            return super().reset(**kwargs)

    with make("serial", [{"length": 1}], Watching) as manager:
        manager.launch()
        manager.step({0: 0})
    assert seen == [RESET, RESET]


@SERIAL_AND_ASYNC
def test_closing_twice_is_silent_and_a_closed_manager_can_be_launched_again(kind: str) -> None:
    manager = make(kind, [{"length": 2}] * 2, episode_num=1)
    manager.close()
    manager.seed(3)
    first = None
    for _ in range(2):
        manager.launch()
        assert (manager.closed, list(manager.episode_count.values())) == (False, [0, 0])
        played = play(manager)
        assert first is None or played == first, "the seeds that were given hold"
        first = played
        assert list(manager.episode_count.values()) == [1, 1]
        manager.close()
        manager.close()
        assert (manager.closed, states(manager)) == (True, [VOID, VOID])


@SERIAL_AND_ASYNC
def test_launching_an_open_manager_is_an_error_and_changes_nothing(kind: str) -> None:
    with launched(kind, 2) as manager:
        manager.step({0: 0})
        with pytest.raises(errors.UsageError, match="launched already"):
            manager.launch()
        assert elapsed(manager) == {0: 1, 1: 0}


@SERIAL_AND_ASYNC
def test_use_of_a_manager_that_is_not_launched_is_an_error(kind: str) -> None:
    manager = make(kind, 2)
    uses = {
        "ready_obs": lambda: manager.ready_obs,
        "next_obs": lambda: manager.next_obs,
        "ready_obs_id": lambda: manager.ready_obs_id,
        "reset": lambda: manager.reset(),
        "step": lambda: manager.step({0: 0}),
        "step nothing": lambda: manager.step({}),
    }
    for _ in range(2):
        for use in uses.values():
            with pytest.raises(errors.ClosedError, match=r"not launched: call launch\(\)"):
                use()
        with pytest.raises(AttributeError, match="pid"):
            manager.pid  # noqa: B018
        assert (manager.ready_env, manager.active_env, manager.env_done, manager.done) == ([], [], [], False)
        manager.launch()
        manager.close()


@SERIAL_AND_ASYNC
def test_a_launch_with_wrong_parameters_leaves_the_manager_closed(kind: str) -> None:
    manager = make(kind, 2)
    with pytest.raises(errors.InputError, match="expected 2 parameters"):
        manager.launch([{}])
    assert (manager.closed, states(manager)) == (True, [VOID, VOID])
    manager.launch([{}, {}])
    manager.close()


def test_the_name_says_what_it_is() -> None:
    manager = make("async", 2)
    assert repr(manager) == "SubprocessEnvManager(env_num=2, closed)"


# ---- states --------------------------------------------------------------------------------------


@SERIAL_AND_ASYNC
def test_an_env_is_reset_as_soon_as_it_ends_and_the_others_are_not(kind: str) -> None:
    with launched(kind, [{"length": 1}, {"length": 5}]) as manager:
        timesteps = {}
        while len(timesteps) < 2:
            timesteps.update(manager.step({} if timesteps else {0: 0, 1: 0}))
        assert [timesteps[i].done for i in (0, 1)] == [True, False]
        assert timesteps[0].obs[2] == 1, "an end shows the last observation"
        assert eventually(lambda: 0 in manager.ready_obs)
        assert states(manager) == [RUN, RUN]
        assert elapsed(manager) == {0: 0, 1: 1}
        assert manager.episode_count == {0: 1, 1: 0}


def test_an_env_whose_reset_is_not_over_is_in_state_reset_and_takes_no_action(gate: Gate) -> None:
    cfgs = [suffering("reset", "gate", [2], folder=gate.folder, length=1), {}]
    with launched("async", cfgs) as manager:
        manager.step({0: 0, 1: 0})
        assert gate.wait() == 0
        assert states(manager) == [RESET, RUN]
        assert list(manager.ready_obs) == manager.ready_obs_id == manager.active_env == manager.ready_env == [1]
        with pytest.raises(errors.InFlightError, match=r"the envs \[0\].*nothing was sent.*0: 'RESET', 1: 'RUN'"):
            manager.step({0: 0, 1: 0})
        assert elapsed(manager) == {1: 1}
        assert list(manager.step({1: 0})) == [1]
        gate.open(0)
        assert eventually(lambda: 0 in manager.ready_obs)
        assert (states(manager), elapsed(manager)) == ([RUN, RUN], {0: 0, 1: 2})


@SERIAL_AND_ASYNC
def test_without_auto_reset_an_ended_env_needs_one(kind: str) -> None:
    with launched(kind, [{"length": 1}, {}], auto_reset=False) as manager:
        manager.step({0: 0})
        assert states(manager) == [NEED_RESET, RUN]
        assert elapsed(manager) == {1: 0}
        with pytest.raises(errors.InFlightError, match="0: 'NEED_RESET'"):
            manager.step({0: 0, 1: 0})
        assert elapsed(manager) == {1: 0}, "nothing was sent"
        manager.reset({0: None})
        assert (states(manager), elapsed(manager)) == ([RUN, RUN], {0: 0, 1: 0})
        assert manager.episode_count == {0: 1, 1: 0}


@pytest.mark.parametrize(
    ("kind", "auto_reset"), [("serial", True), ("serial", False), ("sync", True), ("async", True), ("async", False)]
)
def test_every_env_plays_its_episodes_and_not_one_more(kind: str, auto_reset: bool, tmp_path: Path) -> None:
    lengths = [1, 2, 3, 7]
    with launched(
        kind, [{"length": n, "folder": tmp_path} for n in lengths], episode_num=3, auto_reset=auto_reset
    ) as manager:
        episodes: list[list[int]] = [[] for _ in lengths]
        steps = [0] * len(lengths)
        while not manager.done:
            assert manager.env_done == [i for i, one in enumerate(episodes) if len(one) == 3]
            for env_id in [i for i, state in manager.env_state.items() if state is NEED_RESET]:
                manager.reset({env_id: None})
            for env_id, timestep in manager.step(dict.fromkeys(manager.ready_obs, 0)).items():
                steps[env_id] += 1
                if timestep.done:
                    episodes[env_id].append(steps[env_id])
                    steps[env_id] = 0
        assert episodes == [[n] * 3 for n in lengths]
        assert manager.episode_count == dict.fromkeys(range(4), 3)
        assert (states(manager), manager.env_done) == ([DONE] * 4, [0, 1, 2, 3])
        assert (manager.all_done, manager.done) == (True, True)
        for env_id, n in enumerate(lengths):
            assert count(tmp_path, "step", env_id) == 3 * n
            assert count(tmp_path, "reset", env_id) == 3, "there is no reset after the last one"


@SERIAL_AND_ASYNC
def test_an_env_that_is_done_takes_no_action(kind: str) -> None:
    with launched(kind, [{"length": 1}, {}], episode_num=1) as manager:
        manager.step({0: 0})
        assert (states(manager), manager.env_done, manager.all_done) == ([DONE, RUN], [0], False)
        with pytest.raises(errors.InFlightError, match=r"the envs \[0\].*0: 'DONE', 1: 'RUN'"):
            manager.step({0: 0, 1: 0})
        assert elapsed(manager) == {1: 0}
        assert list(manager.step({1: 0})) == [1]


@SERIAL_AND_ASYNC
def test_an_abnormal_step_marks_the_env_and_is_flagged_to_the_caller(kind: str) -> None:
    with launched(kind, [{"abnormal_at": 2, "length": 2}, {}]) as manager:
        manager.step({0: 0})
        timesteps = manager.step({0: 0})
        assert timesteps[0].info["abnormal"] is True
        assert (states(manager), list(manager.ready_obs)) == ([ERROR, RUN], [1])
        assert manager.episode_count[0] == 0, "it is no episode to learn from"
        with pytest.raises(errors.InFlightError, match="0: 'ERROR'"):
            manager.step({0: 0})
        manager.reset({0: None})
        assert (states(manager), elapsed(manager)) == ([RUN, RUN], {0: 0, 1: 0})


# ---- attributes and methods of the envs ----------------------------------------------------------


class Listing(SubprocessEnvManager):
    """Lists a method more."""

    @property
    def method_name_list(self) -> list[str]:
        return [*super().method_name_list, "visit"]


@SERIAL_AND_ASYNC
def test_attributes_of_the_envs_are_lists(kind: str) -> None:
    with launched(kind, [{"length": 3}, {"length": 4}]) as manager:
        manager.step({1: 0})
        assert manager.elapsed == [0, 1]
        assert manager.num_agents == [1, 1]
        assert len(set(manager.pid)) == (1 if kind == "serial" else 2)


@SERIAL_AND_ASYNC
def test_an_unknown_attribute_is_an_error(kind: str) -> None:
    with launched(kind, 2) as manager:
        assert not hasattr(manager, "no_such_thing")
        with pytest.raises(AttributeError, match="neither the manager nor its envs have an attribute 'no_such_thing'"):
            manager.no_such_thing  # noqa: B018
        assert elapsed(manager) == {0: 0, 1: 0}


@SERIAL_AND_ASYNC
def test_a_method_that_is_not_listed_is_an_error(kind: str) -> None:
    with launched(kind, 2) as manager:
        assert manager.method_name_list == ["reset", "step", "seed", "close"]
        with pytest.raises(AttributeError, match=r"'visit' is a method.*method_name_list"):
            manager.visit  # noqa: B018


def test_a_listed_method_is_called_on_every_env() -> None:
    with Listing(Trial, [{}, {}], 2) as manager:
        manager.launch()
        assert manager.visit("x") == [(0, "x"), (1, "x")]
        assert manager.visit(value=3) == [(0, 3), (1, 3)]


def test_an_attribute_that_is_read_with_steps_in_flight_is_that_attribute(gate: Gate) -> None:
    with launched("async", [gated(gate, 1), {}], wait_num=1, timeout=0) as manager:
        assert list(manager.step({0: 1, 1: 1})) == [1]
        assert gate.wait() == 0
        gate.open(0)
        assert manager.elapsed == [1, 1]
        assert manager.life == [1, 1]
        timesteps = manager.step({})
        assert {i: (one.info["action"], one.obs[2]) for i, one in timesteps.items()} == {0: (1, 1)}


def test_envs_can_be_asked_while_they_are_resetting(gate: Gate) -> None:
    cfgs = [suffering("reset", "gate", [2], folder=gate.folder, length=1), {}]
    with launched("async", cfgs) as manager:
        manager.step({0: 0, 1: 0})
        assert gate.wait() == 0
        gate.open(0)
        assert manager.life == [1, 1]
        assert eventually(lambda: 0 in manager.ready_obs)
        assert elapsed(manager)[0] == 0


@SERIAL_AND_ASYNC
def test_a_call_while_a_manager_launches_is_refused(kind: str, gate: Gate) -> None:
    manager = make(kind, [suffering("constructor", "gate", folder=gate.folder), {}])
    join = doing(manager.launch)
    assert gate.wait() == 0
    for call in (manager.launch, manager.close, lambda: manager.seed(1)):
        with pytest.raises(ConcurrentUseError):
            call()
    gate.open(0)
    join()
    assert list(manager.ready_obs) == [0, 1]
    manager.close()


@EVERY_KIND
def test_a_forked_child_cannot_use_the_manager(kind: str) -> None:
    run_well(
        f"""
import warnings
from stepmill.errors import ForkedError
from support.processes import child, went_well
from support.envs.managed import launched

warnings.simplefilter("ignore", DeprecationWarning)  # of a fork beside threads
with launched({kind!r}, [{{}}, {{}}]) as manager:

    def use():
        for call in (lambda: manager.ready_obs, lambda: manager.step({{}}), lambda: manager.reset()):
            try:
                call()
            except ForkedError:
                continue
            raise AssertionError

    assert went_well(child(use))
    assert list(manager.ready_obs) == [0, 1]
"""
    )
