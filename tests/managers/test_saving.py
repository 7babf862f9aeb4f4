"""Saved states of managers: an env that is given one goes on as the saved env did, by all that the manager says."""

from __future__ import annotations

import contextlib
import pickle
import zlib
from collections.abc import Callable
from typing import Any

import cloudpickle
import numpy as np
import pytest
from gymnasium import spaces

import stepmill
from stepmill import EnvError, errors
from stepmill.hosts.process import pickling
from stepmill.managers import BaseEnvManager, SyncSubprocessEnvManager
from stepmill.values.saved_states import SavedStates
from support.envs import ProbeTwin, contract, managed
from support.envs.contract import LongStep, Pair, Walk
from support.envs.managed import KINDS, launched, make, states, step_all, suffering
from support.envs.many_spaces import WildEnv
from support.envs.scripted import ChanceEnv
from support.injection import Alarms, at_every_point, late_interrupts
from support.manager_cases import DONE, ERROR, EVERY_KIND, NEED_RESET, RESET, RUN, SERIAL_AND_ASYNC, pool_of
from support.probes import assert_same
from support.processes import kill_worker
from support.waiting import Gate

pytestmark = pytest.mark.usefixtures("deadline", "server")

ROUNDS = 12
ALIKE = {"id": 0}  # the cfg of envs that can take each other's states
BOX = spaces.Box(-1, 1, (2, 3), np.float32)
_ELSEWHERE = [pytest.param(kind, marks=pytest.mark.slow) for kind in KINDS if kind not in ("serial", "sync")]
QUICKLY = pytest.mark.parametrize("kind", ["serial", *_ELSEWHERE])  # starting workers takes long


def told(manager: BaseEnvManager) -> dict[str, Any]:
    """What a manager says of its envs, each by env id."""
    while len(manager.ready_obs) < states(manager).count(RUN) + states(manager).count(RESET):
        pass
    return {"ready": manager.ready_obs, "states": manager.env_state, "episodes": manager.episode_count}


def go(manager: BaseEnvManager, rounds: int) -> list[list[Any]]:
    """Plays with random actions, and resets envs that need it: what came of each env."""
    story: list[list[Any]] = [[] for _ in range(manager.env_num)]
    for _ in range(rounds):
        told(manager)  # all of them, or random actions would depend on which are quicker
        actions = manager.random_action()
        timesteps = manager.step(actions)
        while len(timesteps) < len(actions):
            timesteps |= manager.step({})
        says = told(manager)
        for env_id in range(manager.env_num):
            mine = {name: by_id.get(env_id) for name, by_id in says.items()}
            story[env_id].append([actions.get(env_id), timesteps.get(env_id), mine])
        if needy := [one for one, state in manager.env_state.items() if state is NEED_RESET]:
            manager.reset(dict.fromkeys(needy))
    return story


def chance(cfg: Any) -> Any:
    return ChanceEnv(BOX, in_place=True)


def probe(cfg: Any) -> Any:
    return ProbeTwin(info=True, length=5)


def wild(cfg: Any) -> Any:
    return WildEnv()


CASES: dict[str, tuple[Any, dict[str, Any]]] = {
    "base-env": (Walk, {}),
    "more-fields": (LongStep, {}),
    "two-agents": (Pair, {}),
    "gymnasium": (chance, {}),
    "infos": (probe, {}),
    "objects": (wild, {}),
    "pickled-observations": (probe, {"shared_memory": False}),
    "pickled-base-env": (Walk, {"shared_memory": False}),
}
SHOW_THEIR_NUMBER = ("base-env", "more-fields", "two-agents", "pickled-base-env")


@pytest.mark.parametrize("auto_reset", [True, False])
@pytest.mark.parametrize("case", CASES)
@EVERY_KIND
def test_a_restored_env_goes_on_as_the_saved_one(kind: str, case: str, auto_reset: bool) -> None:
    rng = np.random.default_rng(zlib.crc32(f"{kind}{case}{auto_reset}".encode()))
    env_fn, settings = CASES[case]
    settings = {"auto_reset": auto_reset, "episode_num": 4, **settings}
    workers = {} if kind == "serial" else {"num_workers": 2}
    with (
        make(kind, [ALIKE] * 3, env_fn, **settings, **workers) as manager,
        make("serial", [ALIKE] * 3, env_fn, **settings) as other,
    ):
        for one, seed in ((manager, 7), (other, 70)):
            one.seed(seed)
            one.launch()
        assert manager.state_kind == "methods"
        go(manager, int(rng.integers(1, ROUNDS)))
        says = told(manager)
        saved = pickle.loads(pickle.dumps(manager.save()))
        expected = go(manager, ROUNDS)
        mixed = [0, 1, 2] if case in SHOW_THEIR_NUMBER else [int(i) for i in rng.permutation(3)]
        for to, order in ((manager, [0, 1, 2]), (manager, mixed), (other, mixed)):
            to.restore([saved[i] for i in order])
            now = told(to)
            for env_id, i in enumerate(order):
                assert_same({k: v.get(env_id) for k, v in now.items()}, {k: v.get(i) for k, v in says.items()})
            assert_same(go(to, ROUNDS), [expected[i] for i in order])
            to._scheduler.check()


@SERIAL_AND_ASYNC
def test_seeds_and_parameters_of_the_next_reset_are_saved(kind: str) -> None:
    with launched(kind, [ALIKE] * 2, Walk) as manager:
        manager.seed([3, 4], dynamic_seed=False)
        manager.reset({0: {"level": 1}, 1: {"level": 2}})
        manager.seed([5, 6])
        saved = manager.save()
        manager.seed([7, 8], dynamic_seed=True)
        manager.reset({0: {"level": 9}, 1: {"level": 9}})
        manager.restore(saved)
        manager.reset()
        assert manager.last_seed == [5, 6]
        assert manager.reset_kwargs == [{"level": 1}, {"level": 2}]
        manager.reset()
        assert manager.last_seed == [5, 6], "they are static"
        manager.restore(saved[0], [1])
        manager.reset({1: None})
        assert (manager.last_seed, manager.reset_kwargs[1]) == ([5, 5], {"level": 1})


@QUICKLY
def test_envs_that_do_not_run_are_saved_as_they_stand(kind: str) -> None:
    cfgs = [{"length": 1}, {"length": 2}, suffering("step", "raise", [1], length=2), {"length": 9}]
    with launched(kind, cfgs, auto_reset=False, episode_num=2) as manager:
        step_all(manager)
        step_all(manager)
        manager.reset({0: None})
        step_all(manager, 0)
        assert states(manager) == [DONE, NEED_RESET, ERROR, RUN]
        saved = manager.save()
        manager.reset()
        assert states(manager) == [RUN] * 4
        manager.restore(saved)
        assert states(manager) == [DONE, NEED_RESET, ERROR, RUN]
        assert list(manager.ready_obs) == [3]
        assert (manager.env_done, manager.episode_count) == ([0], {0: 2, 1: 1, 2: 0, 3: 0})
        manager.reset({1: None, 2: None})
        assert list(manager.ready_obs) == [1, 2, 3]


@QUICKLY
def test_fork_gives_others_the_state_of_one(kind: str) -> None:
    with launched(kind, [ALIKE] * 3, chance) as manager:
        manager.seed(5)
        manager.reset()
        go(manager, 3)
        manager.fork(0, [1, 2])
        first, *others = go(manager, ROUNDS)
        for other in others:
            assert_same(other, first)
        with pytest.raises(errors.EnvIdError):
            manager.fork(True, [1])


@QUICKLY
def test_an_env_is_pickled_if_the_user_asks_for_it(kind: str) -> None:
    with launched(kind, 2, Stateless) as manager:
        if manager.state_kind != "fork":  # as where each env has a process to itself
            assert manager.state_kind.startswith("none: its class Stateless has no get_state()")
            with pytest.raises(errors.UnsupportedError, match="save: env 0: its class Stateless has no get_state"):
                manager.save()
        step_all(manager)
        saved = manager.save(by="pickle")
        step_all(manager)
        manager.restore(saved)
        assert [one.obs[0] for one in step_all(manager)[0].values()] == [2, 2]


class Stateless(stepmill.envs.BaseEnv):
    """Counts, and cannot be saved by methods."""

    observation_space = spaces.Box(0, 100, (1,), np.float32)
    action_space = spaces.Discrete(2)
    elapsed = 0

    def reset(self) -> np.ndarray:
        self.elapsed = 0
        return np.zeros(1, np.float32)

    def step(self, action: np.ndarray) -> Any:
        self.elapsed += 1
        obs = np.full(1, self.elapsed, np.float32)
        return stepmill.envs.BaseEnvTimestep(obs, np.ones(1, np.float32), False, {})

    def close(self) -> None:
        pass


# ---- what is refused -----------------------------------------------------------------------------


def refused_states() -> dict[str, tuple[Any, str]]:
    """By name: states that a manager of two ``Walk`` with the standard settings does not take, and why."""

    def of(cfgs: int | list[dict[str, Any]] = [ALIKE] * 2, env_fn: Any = Walk, **settings: Any) -> SavedStates:
        with launched("serial", cfgs, env_fn, **settings) as manager:
            return manager.save()

    def of_pool() -> SavedStates:
        with stepmill.make(Walk, num_envs=2, backend="inline") as pool:
            pool.reset()
            return pool.save()

    mine = of()
    whole = bytes(mine[0])
    cut = SavedStates(mine.origins, whole[:-4], np.array([[0, len(whole) - 4]] * 2))
    return {
        "a pool's": (of_pool(), "cannot take a state of another configuration"),
        "another env": (of(env_fn=Pair), "cannot take a state of another env"),
        "another cfg": (of([{**ALIKE, "length": 3}] * 2), "cannot take a state of another configuration"),
        "episode_num": (of(episode_num=3), "cannot take a state of another configuration"),
        "auto_reset": (of(auto_reset=False), "cannot take a state of another configuration"),
        "shared_memory": (of(shared_memory=False), "cannot take a state of another configuration"),
        "too many": (of([ALIKE] * 3), "expected 2 states, one per env, got 3"),
        "nothing": (None, "expected what save\\(\\) returned"),
        "cut off": (cut, "a saved state that ends too soon|cannot be read here"),
    }


@pytest.mark.parametrize("name", list(refused_states()))
def test_what_is_no_state_of_these_envs_is_refused_and_changes_nothing(name: str) -> None:
    given, why = refused_states()[name]
    with launched("serial", [ALIKE] * 2, Walk) as manager:
        before, says = manager.save(), told(manager)
        with pytest.raises(errors.InputError, match=why):
            manager.restore(given)
        assert [bytes(one) for one in manager.save()] == [bytes(one) for one in before]
        assert_same(told(manager), says)


def test_a_pool_does_not_take_the_states_of_a_manager() -> None:
    with launched("serial", 2, Walk) as manager, stepmill.make(Walk, num_envs=2, backend="inline") as pool:
        pool.reset()
        with pytest.raises(errors.StateError, match=r"another configuration: it was saved with .env_cfg="):
            pool.restore(manager.save())


def test_envs_in_flight_are_refused_and_others_do_not_notice(gate: Gate) -> None:
    with launched("async", [managed.gated(gate, 1, **ALIKE)] * 3, wait_num=1, timeout=0) as manager:
        gate.open(1)
        gate.open(2)
        came = set(manager.step(dict.fromkeys(range(3), 0)))
        while came < {1, 2}:
            came |= set(manager.step({}))
        saved = manager.save([1, 2])
        for call in (manager.save, lambda: manager.restore(saved[0], [0]), lambda: manager.fork(1, [2, 0])):
            with pytest.raises(errors.InFlightError, match=r"the envs \[0\] are in flight: step\(\{\}\) returns"):
                call()
        manager.step({1: 0})
        manager.restore(saved, [1, 2])
        assert [seen[2] for seen in manager.ready_obs.values()] == [1, 1]
        gate.open(0)
        while 0 not in manager.ready_env:
            manager.step({})
        assert manager.ready_obs[0][2] == 1
        manager._scheduler.check()


def test_a_result_that_no_step_has_returned_counts_as_in_flight(gate: Gate) -> None:
    with launched("async", [managed.gated(gate, 1), {}], wait_num=1, timeout=0) as manager:
        manager.step({0: 0, 1: 0})
        assert gate.wait() == 0
        gate.open(0)
        while 0 not in manager._scheduler.standings.timesteps:
            assert list(manager.ready_obs) == [1]  # it takes what has come
        with pytest.raises(errors.InFlightError, match=r"save: the envs \[0\] are in flight"):
            manager.save()
        assert list(manager.step({})) == [0]
        assert len(manager.save()) == 2


def test_a_manager_that_is_not_launched_saves_nothing() -> None:
    with launched("serial", 2, Walk) as manager:
        saved = manager.save()
        assert len(manager.save([1])) == 1
        for ids in ([2], [0, 0], [True], "ab"):
            with pytest.raises(errors.EnvIdError):
                manager.save(ids)
            with pytest.raises(errors.EnvIdError):
                manager.restore(saved, ids)
    for call in (
        manager.save,
        lambda: manager.restore(saved),
        lambda: manager.fork(0, [1]),
        lambda: manager.state_kind,
    ):
        with pytest.raises(errors.ClosedError):
            call()
    manager.launch()
    manager.restore(saved)  # of an earlier launch
    manager.close()


# ---- failures ------------------------------------------------------------------------------------


class Refusing(Walk):
    """Does not take a state if it was told so."""

    fails = False

    def set_state(self, state: Any) -> None:
        super().set_state(state)
        if self.fails:
            raise ValueError("not this one")


def refuse_states(env: Any) -> None:
    env.base_env.fails = True


@QUICKLY
def test_an_env_that_does_not_take_its_state_changes_no_other(kind: str) -> None:
    with launched(kind, 2, Refusing) as manager:
        saved = manager.save()
        step_all(manager)
        before, says = manager.save([0]), told(manager)
        manager._scheduler.pool._apply(refuse_states, [1])
        with pytest.raises(errors.StateError, match=r"restore: env 1: set_state\(\) raised ValueError: not this one"):
            manager.restore(saved)
        assert bytes(manager.save([0])[0]) == bytes(before[0])
        assert_same(told(manager), says)
        manager._scheduler.check()


@pytest.mark.parametrize("kind", ["sync", pytest.param("async", marks=pytest.mark.slow)])
def test_a_worker_that_was_killed_costs_what_it_costs_in_a_step(kind: str) -> None:
    with launched(kind, 2) as manager:
        saved = manager.save()
        step_all(manager)
        kill_worker(pool_of(manager), 1)
        with pytest.raises(EnvError):
            manager.restore(saved)
        assert elapsed_of(manager, 0) == 1, "it was not restored without the other one"
        _, raised = step_all(manager)
        assert [one.env_id for one in raised] == [1]
        manager.reset({1: None})
        manager.restore(saved)
        assert states(manager) == [RUN, RUN]
        assert [seen[2] for seen in manager.ready_obs.values()] == [0, 0]


def test_an_env_that_cannot_show_what_it_was_given_fails_as_in_a_step() -> None:
    with launched("serial", [ALIKE] * 2, Walk) as manager:
        saved = manager.save()
        step_all(manager)
        pool = manager._scheduler.pool
        send_restore = pool.send_restore

        def send(*arguments: Any) -> None:
            send_restore(*arguments)
            pool._host.fail_next(1, RuntimeError("gone"))

        pool.send_restore = send
        with pytest.raises(EnvError, match=r"env 1 failed .*RuntimeError: gone") as caught:
            manager.restore(saved)
        assert (caught.value.env_id, caught.value.batch) == (1, {})
        assert states(manager) == [RUN, ERROR]
        assert elapsed_of(manager, 0) == 0
        assert manager.step({}) == {}, "it was told once"
        manager.reset({1: None})
        assert states(manager) == [RUN, RUN]


def elapsed_of(manager: BaseEnvManager, env_id: int) -> int:
    return int(manager.ready_obs[env_id][2])


# ---- interrupts ----------------------------------------------------------------------------------


def interrupt(*_: Any, **__: Any) -> None:
    raise KeyboardInterrupt


# Where Ctrl-C may come, and whether the states have been given then.
PLACES = {"pool.send_restore": False, "_standings.note_sent": True, "gather": True, "_take": True}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("cls", [BaseEnvManager, SyncSubprocessEnvManager])
def test_an_interrupted_restore_is_whole_or_has_not_been(cls: Any, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with cls(Walk, [{}] * 2, 2) as manager:
        manager.seed(3)
        manager.launch()
        new, says_new = manager.save(), told(manager)
        expected = go(manager, 7)
        old, says_old = manager.save(), told(manager)
        *path, name = place.split(".")
        owner = manager._scheduler._traffic
        for part in path:
            owner = getattr(owner, part)
        with monkeypatch.context() as patched:
            patched.setattr(owner, name, interrupt)
            with pytest.raises(KeyboardInterrupt):
                manager.restore(new)
        is_new = PLACES[place]
        assert [bytes(one) for one in manager.save()] == [bytes(one) for one in (new if is_new else old)]
        manager._scheduler.check()
        assert_same(told(manager), says_new if is_new else says_old)
        if is_new:
            assert_same(go(manager, 7), expected)


def test_an_interrupt_while_envs_take_their_states_is_raised_when_they_have_them() -> None:
    with launched("serial", [ALIKE] * 2, Walk) as manager:
        saved, says = manager.save(), told(manager)
        go(manager, 3)
        with late_interrupts(), pytest.raises(KeyboardInterrupt):
            manager.restore(saved)
        assert [bytes(one) for one in manager.save()] == [bytes(one) for one in saved]
        assert_same(told(manager), says)
        assert [timestep.obs[2] for timestep in manager.step({0: 0, 1: 0}).values()] == [1, 1]


@pytest.mark.long
@pytest.mark.parametrize("call", ["restore", "fork", "save"])
def test_an_interrupt_at_any_point_leaves_the_old_state_or_the_new_one(call: str) -> None:
    count = 2 if call == "fork" else 1
    with BaseEnvManager(Walk, [{}] * count, count) as manager:
        manager.seed(3)
        manager.launch()
        new = manager.save()
        go(manager, 3)
        old = manager.save()
        calls: dict[str, Callable[[], Any]] = {
            "restore": lambda: manager.restore(new),
            "fork": lambda: manager.fork(0, [1]),
            "save": manager.save,
        }
        calls[call]()
        allowed = {tuple(map(bytes, old)), tuple(map(bytes, manager.save()))}
        seen = set()

        def attempt(alarms: Alarms) -> None:
            manager.restore(old)
            with contextlib.suppress(KeyboardInterrupt), alarms:
                calls[call]()
            seen.add(tuple(map(bytes, manager.save())))
            manager._scheduler.check()

        others = (contract.__file__, cloudpickle.cloudpickle.__file__, pickling.__file__)
        assert at_every_point(attempt, __file__, *others, raising=KeyboardInterrupt) > 300
        assert seen == allowed


class Untold(Walk):
    """An env that is saved by forking its process."""

    get_state = set_state = None  # type: ignore[assignment]


def test_states_by_fork_are_there_as_long_as_those_of_the_manager() -> None:
    with SyncSubprocessEnvManager(Untold, [ALIKE] * 2, 2, num_workers=2) as manager:
        manager.seed(3)
        manager.launch()
        saved = manager.save()
        before = manager.ready_obs
        expected = manager.step({0: 1, 1: 1})
        for _ in range(2):
            manager.restore(saved)
            assert_same(manager.ready_obs, before)
            assert_same(manager.step({0: 1, 1: 1}), expected)
        manager.fork(0, [1])
        assert_same(manager.ready_obs[1], manager.ready_obs[0])
