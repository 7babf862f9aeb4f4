"""Env managers, from the document that describes them: envs in processes, and envs of that time.

Each test names its passage; see ``test_000_env_managers.py``.
"""

from __future__ import annotations

import os
from collections import namedtuple
from typing import Any

import numpy as np
import pytest
from easydict import EasyDict

from stepmill import EnvError
from stepmill.envs import BaseEnvInfo, EnvElementInfo
from stepmill.errors import ConfigError, InFlightError
from stepmill.managers import BaseEnvManager, SubprocessEnvManager
from support.envs.contract import Corridor, corridors
from support.processes import parent_of
from support.subprocesses import run_well
from support.waiting import Gate, doing, ends, eventually

MANAGERS = {"base": BaseEnvManager, "subprocess": SubprocessEnvManager}
BOTH = pytest.mark.parametrize("kind", MANAGERS)
ON = np.array(1)

pytestmark = pytest.mark.usefixtures("deadline", "server")


def make(kind: str, cfgs: list[dict[str, Any]], env_fn: Any = Corridor, **settings: Any) -> BaseEnvManager:
    return MANAGERS[kind](env_fn, cfgs, len(cfgs), retry_waiting_time=0, **settings)


# ---- __init__ ------------------------------------------------------------------------------------


def test_timeout_wait_num_and_shared_memory_by_default() -> None:
    """SubprocessEnvManager, __init__: three attributes, and their defaults."""
    manager = SubprocessEnvManager(Corridor, corridors(3), 3)
    assert (manager.timeout, manager.wait_num, manager.shared_memory) == (0.01, 2, True)


def test_timeout_and_wait_num_as_they_are_given() -> None:
    """SubprocessEnvManager, __init__: by name, and by position after the number of episodes."""
    for manager in (
        SubprocessEnvManager(Corridor, corridors(3), 3, timeout=0.5, wait_num=1),
        SubprocessEnvManager(Corridor, corridors(3), 3, "inf", 0.5, 1),
    ):
        assert (manager.timeout, manager.wait_num) == (0.5, 1)


@pytest.mark.parametrize("shared_memory", [True, False])
def test_shared_memory_is_read_from_the_first_cfg(shared_memory: bool) -> None:
    """SubprocessEnvManager, __init__: a key of the envs' cfg, which the envs see as well."""
    with SubprocessEnvManager(Corridor, corridors(2, shared_memory=shared_memory), 2) as manager:
        assert manager.shared_memory is shared_memory
        manager.launch()
        assert manager.step({0: ON, 1: ON})[1].obs.tolist() == [1, 1, 1]
        assert [one["shared_memory"] for one in manager.cfg] == [shared_memory] * 2


def test_shared_memory_of_the_manager_comes_first() -> None:
    """SubprocessEnvManager, __init__. Here it is a setting of the manager too, which wins over the envs' cfg."""
    cfgs = corridors(2, shared_memory=True)
    assert SubprocessEnvManager(Corridor, cfgs, 2, shared_memory=False).shared_memory is False


def test_cfgs_that_disagree_about_shared_memory_are_refused() -> None:
    """SubprocessEnvManager, __init__. Only the first is read there. Here others that say otherwise are an error."""
    cfgs = [{"id": 0, "shared_memory": True}, {"id": 1, "shared_memory": False}]
    with pytest.raises(ConfigError, match="shared_memory"):
        SubprocessEnvManager(Corridor, cfgs, 2)


# ---- _create_state -------------------------------------------------------------------------------


class Screen(Corridor):
    """Shows an array of the shape and type of its cfg, filled with the number of the step."""

    def _observation(self) -> np.ndarray:
        return np.full(self._cfg["shape"], self.steps, dtype=self._cfg["dtype"])

    def info(self) -> BaseEnvInfo:
        value = {"min": 0, "max": 200, "dtype": self._cfg["dtype"]} if self._cfg.get("has_value", True) else None
        obs_space = EnvElementInfo(shape=self._cfg["shape"], value=value)
        return super().info()._replace(obs_space=obs_space)


SCREENS: dict[str, dict[str, Any]] = {
    "float32": {"dtype": np.float32},
    "float64": {"dtype": np.float64},
    "int64": {"dtype": np.int64},
    "uint8": {"dtype": np.uint8},
    "a word": {"dtype": "float32"},
    "no value means float32": {"dtype": np.float32, "has_value": False},
    "over 100 kB": {"dtype": np.float32, "shape": (3, 120, 100)},
}


@pytest.mark.parametrize(
    ("name", "shared_memory"), [*((name, True) for name in SCREENS), ("uint8", False), ("over 100 kB", False)]
)
def test_observations_travel_as_info_describes_them(name: str, shared_memory: bool) -> None:
    """_create_state, its buffers: shape and type from info; float32 without a value. And item 2 of the list."""
    cfg = {"id": 0, "shape": (2, 3), "shared_memory": shared_memory, **SCREENS[name]}
    with make("subprocess", [cfg], Screen) as manager:
        manager.launch()
        first, second = manager.next_obs[0], manager.step({0: ON})[0].obs
        for number, obs in enumerate((first, second)):
            assert (obs.shape, obs.dtype) == (cfg["shape"], np.dtype(cfg["dtype"]))
            assert (obs == number).all()


class Talking(Corridor):
    """Its observation is no array, so it describes none."""

    def _observation(self) -> Any:
        return {"said": f"step {self.steps}", "place": self.place}

    def info(self) -> BaseEnvInfo:
        return super().info()._replace(obs_space=None)


@BOTH
def test_without_shared_memory_an_observation_is_any_object(kind: str) -> None:
    """_create_state and worker_fn: only shared memory needs arrays, and a description of them."""
    with make(kind, corridors(1, shared_memory=False), Talking) as manager:
        manager.launch()
        assert manager.next_obs == {0: {"said": "step 0", "place": 0}}
        assert manager.step({0: ON})[0].obs == {"said": "step 1", "place": 1}


def test_the_loop_over_envs_checks_observations_as_well() -> None:
    """BaseEnvManager takes any object there. Here only with ``shared_memory=False``, as the other one.

    A program that runs with one of the managers runs with the other.
    """
    with pytest.raises(EnvError, match="Talking has no observation_space"):
        make("base", corridors(1), Talking).launch()


class Sloppy(Corridor):
    """Its observations have the shape that it describes, and this type."""

    def _observation(self) -> Any:
        return self._cfg["form"](super()._observation())


@BOTH
def test_observations_of_another_type_are_cast(kind: str) -> None:
    """worker_fn: what fills a buffer becomes of its type. Here a list of numbers may, too."""
    forms = [np.float64, np.int64, list]
    with make(kind, [{"id": 1, "form": one} for one in forms], Sloppy, wait_num="inf") as manager:
        manager.launch()
        for timestep in manager.step(dict.fromkeys(range(3), ON)).values():
            assert (timestep.obs.dtype, timestep.obs.tolist()) == (np.float32, [1, 1, 1])


@BOTH
def test_observations_of_another_shape_are_refused(kind: str) -> None:
    """worker_fn: what does not fill the buffer is a failure of the env."""
    with pytest.raises(EnvError, match=r"expected shape \(3,\)"):
        make(kind, [{"id": 0, "form": np.atleast_2d}], Sloppy).launch()


def test_each_env_has_a_process_of_its_own() -> None:
    """_create_state, and the comment at worker_fn: an env is built in its process. Of many, a worker has several."""
    with make("subprocess", corridors(3)) as manager:
        manager.launch()
        assert len({*manager.pid, os.getpid()}) == 4
    with make("base", corridors(3)) as manager:
        manager.launch()
        assert manager.pid == [os.getpid()] * 3


def test_processes_are_not_forked_from_the_caller() -> None:
    """_create_state, its context: forked from the caller there. Here from a server, without the caller's threads."""
    with make("subprocess", corridors(1)) as manager:
        manager.launch()
        assert parent_of(manager.pid[0]) != os.getpid()


def test_processes_end_with_the_program() -> None:
    """_create_state, daemon: a program that ends without a close leaves none behind."""
    pids = run_well(
        """
        from stepmill.managers import SubprocessEnvManager
        from support.envs.contract import Corridor, corridors

        manager = SubprocessEnvManager(Corridor, corridors(2), 2)
        manager.launch()
        print(*manager.pid)
        """
    )
    assert all(ends(int(pid)) for pid in pids.split())


def test_functions_that_only_this_process_knows_reach_the_others() -> None:
    """_create_state, its wrapper for pickling: lambdas and local classes, and every env has its own cfg."""

    class Local(Corridor):
        pass

    length = 9
    with make("subprocess", corridors(2), lambda cfg: Local({**cfg, "length": length})) as manager:
        manager.launch()
        assert manager.cfg == [{"id": 0, "length": 9}, {"id": 1, "length": 9}]


# ---- reset ---------------------------------------------------------------------------------------


def test_envs_are_reset_side_by_side(gate: Gate) -> None:
    """reset, its threads: all envs at the same time."""
    manager = make("subprocess", corridors(2, folder=gate.folder, gated_resets=[1]))
    join = doing(manager.launch)
    assert sorted([gate.wait(), gate.wait()]) == [0, 1]
    gate.open(0)
    gate.open(1)
    join()
    manager.close()


# ---- active_env, ready_env, next_obs, done -------------------------------------------------------


def test_active_and_ready_envs(gate: Gate) -> None:
    """active_env, ready_env and next_obs: those that run, and those of them that wait for an action."""
    cfgs = [{"id": 0}, {"id": 1, "folder": gate.folder, "gated_steps": [1]}]
    with make("subprocess", cfgs, wait_num=1, timeout=0) as manager:
        manager.launch()
        assert manager.active_env == manager.ready_env == list(manager.next_obs) == [0, 1]
        assert list(manager.step({0: ON, 1: ON})) == [0]
        assert gate.wait() == 1
        assert manager.active_env == [0, 1]
        assert manager.ready_env == list(manager.next_obs) == [0]
        gate.open(1)
        assert list(manager.step({})) == [1], "it comes with a later call"
        assert manager.ready_env == [0, 1]


def test_next_obs_waits_while_all_envs_are_resetting(gate: Gate) -> None:
    """next_obs: it sleeps and prints in turns there. Here it waits, without a word, for the first of them."""
    with make("subprocess", corridors(2, folder=gate.folder, length=1, gated_resets=[2])) as manager:
        manager.launch()
        manager.step({0: ON, 1: ON})
        assert sorted([gate.wait(), gate.wait()]) == [0, 1]
        assert manager.active_env == []
        gate.open(1)
        assert list(manager.next_obs) == [1]
        gate.open(0)
        assert eventually(lambda: list(manager.next_obs) == [0, 1])


def test_an_env_that_ends_is_reset_while_others_go_on(gate: Gate) -> None:
    """step, its last part: a reset in the background, or done when its episodes are played."""
    cfgs = [{"id": 0, "length": 1, "folder": gate.folder, "gated_resets": [2]}, {"id": 1, "length": 9}]
    with make("subprocess", cfgs, episode_num=2) as manager:
        manager.launch()
        manager.step({0: ON, 1: ON})
        assert gate.wait() == 0
        for steps in (2, 3):
            assert list(manager.next_obs) == [1]
            assert manager.step({1: ON})[1].obs.tolist() == [1, steps, steps]
        gate.open(0)
        assert eventually(lambda: 0 in manager.next_obs)
        manager.step({0: ON})
        assert (manager.env_done, manager.done) == ([0], False)


# ---- step ----------------------------------------------------------------------------------------


def test_an_env_that_cannot_take_an_action_is_named_with_its_state(gate: Gate) -> None:
    """step, its check: the states of the envs that were asked for. An error of its own kind, and nothing is sent."""
    cfgs = [
        {"id": 0, "length": 1, "folder": gate.folder, "gated_resets": [2]},
        {"id": 1},
        {"id": 2, "folder": gate.folder, "gated_steps": [1]},
    ]
    with make("subprocess", cfgs, wait_num=2, timeout=0) as manager:
        manager.launch()
        assert sorted(manager.step({0: ON, 1: ON, 2: ON})) == [0, 1]
        assert sorted([gate.wait(), gate.wait()]) == [0, 2]
        with pytest.raises(InFlightError, match=r"0: 'RESET', 1: 'RUN', 2: 'in flight'"):
            manager.step({0: ON, 1: ON, 2: ON})
        assert manager.next_obs[1].tolist() == [1, 1, 1]
        gate.open(0)
        gate.open(2)


@pytest.mark.parametrize("timeout", [0, 0.01])
def test_step_returns_at_least_wait_num_envs(gate: Gate, timeout: float) -> None:
    """step, and item 1 of the list: wait_num results at least; a slow env holds nobody back."""
    slow = {"id": 2, "folder": gate.folder, "gated_steps": [1]}
    with make("subprocess", [*corridors(2, length=99), slow], wait_num=2, timeout=timeout) as manager:
        manager.launch()
        assert sorted(manager.step({0: ON, 1: ON, 2: ON})) == [0, 1]
        assert gate.wait() == 2
        for _ in range(5):
            assert sorted(manager.next_obs) == [0, 1]
            assert sorted(manager.step({0: ON, 1: ON})) == [0, 1]
        gate.open(2)
        got: set[int] = set()
        while 2 not in got:
            got |= {*manager.step({})}


def test_step_waits_for_no_more_envs_than_have_an_action() -> None:
    """step: wait_num is capped at the number of actions."""
    with make("subprocess", corridors(3), wait_num=3, timeout=1000) as manager:
        manager.launch()
        assert list(manager.step({1: ON})) == [1]


def test_step_counts_the_envs_that_have_an_action_from_before(gate: Gate) -> None:
    """step: this call's actions cap wait_num there. Here all in flight do: wait_num is what item 1 of the list says."""
    slow = {"id": 2, "folder": gate.folder, "gated_steps": [1]}
    with make("subprocess", [*corridors(2), slow], wait_num=2, timeout=0) as manager:
        manager.launch()
        assert sorted(manager.step({0: ON, 1: ON, 2: ON})) == [0, 1]
        join = doing(lambda: gate.open(gate.wait()))
        assert sorted(manager.step({0: ON})) == [0, 2]
        join()


def test_step_waits_up_to_the_timeout_for_the_others(gate: Gate) -> None:
    """step, and item 1 of the list: as long as there is time, those that are late come along."""
    slow = {"id": 1, "folder": gate.folder, "gated_steps": [1]}
    with make("subprocess", [{"id": 0}, slow], wait_num=1, timeout=1000) as manager:
        manager.launch()
        join = doing(lambda: gate.open(gate.wait()))
        assert sorted(manager.step({0: ON, 1: ON})) == [0, 1]
        join()


def test_step_never_returns_only_envs_that_ended(gate: Gate) -> None:
    """step, its loop: it goes on until one of the results is not an end, or all are there."""
    ending = {"id": 0, "folder": gate.folder, "length": 1, "gated_resets": [2]}
    slow = {"id": 1, "folder": gate.folder, "gated_steps": [1]}

    def let_through() -> None:
        assert sorted([gate.wait(), gate.wait()]) == [0, 1]  # it is reset when the manager has seen its end
        gate.open(0)
        gate.open(1)

    with make("subprocess", [ending, slow], wait_num=1, timeout=0) as manager:
        manager.launch()
        join = doing(let_through)
        timesteps = manager.step({0: ON, 1: ON})
        join()
        assert {i: one.done for i, one in timesteps.items()} == {0: True, 1: False}


# ---- what the workers do -------------------------------------------------------------------------


@BOTH
def test_attributes_of_the_envs(kind: str) -> None:
    """worker_fn, its command for attributes."""
    with make(kind, corridors(2)) as manager:
        manager.launch()
        manager.step({1: ON})
        assert manager.place == [0, 1]


@BOTH
def test_methods_that_are_not_listed_are_refused(kind: str) -> None:
    """worker_fn and method_name_list: others are a KeyError there, and here as any name that an object lacks."""

    class Listing(MANAGERS[kind]):  # type: ignore[misc]
        @property
        def method_name_list(self) -> list[str]:
            return [*super().method_name_list, "info"]

    for manager_class, is_listed in ((MANAGERS[kind], False), (Listing, True)):
        with manager_class(Corridor, corridors(2), 2) as manager:
            manager.launch()
            if is_listed:
                assert [one.agent_num for one in manager.info()] == [1, 1]
                continue
            with pytest.raises(AttributeError, match="method_name_list"):
                manager.info()


@pytest.mark.parametrize("name", ["worker_fn", "wait"])
@BOTH
def test_internals_do_not_exist(kind: str, name: str) -> None:
    """Items 3 and 4 of the list: how its processes work inside. Those of an engine in C++ have no such functions."""
    with make(kind, corridors(1)) as manager:
        manager.launch()
        assert not hasattr(manager, name)


# ---- close ---------------------------------------------------------------------------------------


@pytest.mark.usefixtures("impatient")
def test_close_ends_all_processes(gate: Gate) -> None:
    """close: the processes are gone, also that of an env that is stuck, for which it waits forever there."""
    cfgs = [{"id": 0}, {"id": 1, "folder": gate.folder, "gated_steps": [1]}]
    manager = make("subprocess", cfgs, wait_num=1, timeout=0)
    manager.launch()
    pids = manager.pid
    manager.step({0: ON, 1: ON})
    assert gate.wait() == 1
    manager.close()
    assert all(ends(pid) for pid in pids)


# ---- how it is used ------------------------------------------------------------------------------


def test_the_snippet_at_the_end() -> None:
    """The last snippet: a manager in an attribute, its cfgs from an object with attributes; then item 5 of the list."""

    class Collector:
        def __init__(self, cfg: EasyDict) -> None:
            self.cfg = cfg
            self._setup_env()

        def _setup_env(self) -> None:
            env_num = self.cfg.env.env_num
            self.env = SubprocessEnvManager(
                Corridor, env_cfg=[self.cfg.env for _ in range(env_num)], env_num=env_num, episode_num=2
            )

    collector = Collector(EasyDict({"env": {"env_num": 3, "length": 4, "id": 0}}))
    collector.env.launch()
    steps = 0
    while not collector.env.done:
        obs = collector.env.next_obs
        timesteps = collector.env.step({env_id: np.array(int(one[1] < 2)) for env_id, one in obs.items()})
        steps += len(timesteps)
    assert steps == 3 * 4 * 2
    assert type(collector.env.cfg[0]) is EasyDict
    collector.env.close()


# ---- what envs of that time look like ------------------------------------------------------------

LongTimestep = namedtuple("LongTimestep", ["obs", "act", "reward", "done", "info"])


class FiveFields(Corridor):
    """Its timesteps have five fields."""

    def step(self, action: np.ndarray) -> Any:
        obs, reward, done, info = super().step(action)
        return LongTimestep(obs, action, reward, done, info)


@pytest.mark.parametrize("shared_memory", [True, False])
@BOTH
def test_timesteps_of_five_fields(kind: str, shared_memory: bool) -> None:
    """step: a namedtuple of the env's own, which the sister documents give five fields; all of them arrive."""
    cfgs = corridors(1, length=2, shared_memory=shared_memory)
    with make(kind, cfgs, FiveFields, episode_num=1) as manager:
        manager.launch()
        timestep = manager.step({0: ON})[0]
        assert timestep._fields == LongTimestep._fields
        assert (timestep.obs.tolist(), timestep.act.item(), timestep.done) == ([0, 1, 1], 1, False)
        timestep = manager.step({0: ON})[0]
        assert (timestep.done, timestep.info["final_eval_reward"], manager.done) == (True, 2.0, True)


class Plain:
    """An env of no class of ours, which has what a manager calls."""

    reset, step, seed, close = Corridor.reset, Corridor.step, Corridor.seed, Corridor.close
    info = Corridor.info

    def __init__(self, cfg: dict) -> None:
        self._cfg = cfg


@BOTH
def test_an_env_says_by_its_class_what_it_is(kind: str) -> None:
    """__init__, env_fn: any object with these methods there. Here the class tells whose conventions the env has."""
    with pytest.raises(ConfigError, match=r"expected a gymnasium.Env, a BaseEnv.*got a Plain"):
        make(kind, corridors(1), Plain).launch()
