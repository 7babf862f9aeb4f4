"""Saved states of Python envs, and of envs in worker processes: restored, they go on as the saved ones did."""

from __future__ import annotations

import contextlib
import os
import pickle
import random
import threading
import zlib
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.utils import EzPickle
from gymnasium.vector.utils import iterate

import stepmill
from stepmill import errors
from support.envs import CountingEnv, ProbeTwin
from support.envs.adapted import Chase
from support.envs.contract import DmWalk, Pair, Walk
from support.envs.layered import in_ding_wrapper, with_our_wrappers, with_wrappers_of_gymnasium
from support.envs.many_spaces import AllTypes, Mixed, WildEnv
from support.lanes import Lanes
from support.probes import MODES, assert_same
from support.processes import kill_worker
from support.subprocesses import run_well

STEPS = 40
BACKENDS = ("inline", "process")


class Telling(ProbeTwin):
    """Its infos travel as arrays."""

    info_space = spaces.Dict({"steps": spaces.Box(0, 99, (), np.int64)})


CASES: dict[str, tuple[Any, dict[str, Any]]] = {
    "nested-and-objects": (WildEnv, {}),
    "nested": (Mixed, {}),
    "every-type": (AllTypes, {}),
    "infos": (ProbeTwin, {"info": True, "length": 7}),
    "info-arrays": (Telling, {"info": True, "length": 7}),
    "time-limit": (ProbeTwin, {"max_episode_steps": 5}),
    "base-env": (Walk, {}),
    "dm-env": (DmWalk, {}),
    "our-wrappers": (with_our_wrappers, {}),
    "wrappers-of-gymnasium": (with_wrappers_of_gymnasium, {}),
    "ding-wrapper": (in_ding_wrapper, {}),
    "native-in-processes": ("Taxi-v4", {"is_rainy": True, "max_episode_steps": 20}),
}
SHOW_THEIR_NUMBER = ("base-env",)


def make(task: Any, backend: str, **arguments: Any) -> Any:
    workers = {"num_workers": 2} if backend == "process" else {}
    return stepmill.make(task, num_envs=4, backend=backend, **workers, **arguments)


@pytest.mark.parametrize("autoreset", MODES)
@pytest.mark.parametrize("case", CASES)
def test_a_restored_env_goes_on_as_the_saved_one(case: str, autoreset: str) -> None:
    rng = np.random.default_rng(zlib.crc32(f"{case}{autoreset}".encode()))
    task, config = CASES[case]
    with (
        make(task, "inline", autoreset=autoreset, seed=7, **config) as here,
        make(task, "process", autoreset=autoreset, seed=99, **config) as there,
    ):
        for pool, other in ((here, there), (there, here)):  # the first time, the other one was never reset
            first = pool.reset()
            assert_same(pool.restore(pool.save())[0], first[0])
            lanes = Lanes(pool, [(i, 0) for i in range(4)])
            last = lanes.go(int(rng.integers(1, 25)))
            states, at = pool.save(), list(lanes.at)
            expected = lanes.go(STEPS)
            mixed = np.arange(4) if case in SHOW_THEIR_NUMBER else rng.permutation(4)
            for to, order in ((pool, np.arange(4)), (pool, mixed), (other, mixed)):
                observations, info = to.restore([states[i] for i in order])
                assert info["env_id"].tolist() == [0, 1, 2, 3]
                for shown, i in zip(iterate(to.observation_space, observations), order, strict=True):
                    assert_same(shown, last[i][-1][0])
                got = Lanes(to, [at[i] for i in order]).go(STEPS)
                for env_id, i in enumerate(order):
                    assert_same(got[env_id], expected[i])


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_restored_row_shows_the_info_of_the_saved_env(backend: str) -> None:
    with make(ProbeTwin, backend, info=True) as pool:
        _, told = pool.reset()
        states = [pool.save()]
        *_, stepped = pool.step(np.zeros(4, np.float32))
        states.append(pool.save())
        for saved, info in zip(states, (told, stepped), strict=True):
            pool.step(np.zeros(4, np.float32))
            again = pool.restore(saved)[1]
            assert {key: again[key].tolist() for key in again} == {key: info[key].tolist() for key in again}
            assert "both" in again


@pytest.mark.parametrize("autoreset", ["next_step", "disabled"])
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("task", [Chase, Pair])
def test_players_that_come_and_go_are_restored(task: Any, backend: str, autoreset: str) -> None:
    def act(info: dict[str, Any]) -> Any:
        if task is Pair:
            return np.arange(8) % 4
        rows = info["players"]["rows"]
        return {"mouse": np.ones(len(rows["mouse"]), int), "cat": np.full((len(rows["cat"]), 1), 0.5, np.float32)}

    def go(pool: Any, info: dict[str, Any], steps: int) -> list[Any]:
        out = []
        for _ in range(steps):
            out.append(pool.step(act(info)))
            info = out[-1][4]
            if autoreset == "disabled" and (out[-1][2] | out[-1][3]).all():
                out.append(pool.reset())
                info = out[-1][1]
        return out

    with make(task, backend, autoreset=autoreset) as pool:
        _, info = pool.reset()
        for steps in (2, 3, 5):
            info = go(pool, info, steps)[-1][-1]
            states, shown = pool.save(), info
            expected = go(pool, info, 9)
            _, info = pool.restore(states)
            for key in ("env_id", "id"):
                assert_same(info["players"][key], shown["players"][key])
            assert_same(go(pool, info, 9), expected)


@pytest.mark.parametrize("backend", BACKENDS)
def test_async_envs_in_flight_do_not_notice(backend: str) -> None:
    arguments = {"batch_size": 1, "seed": 3, "info": True}
    with make(ProbeTwin, backend, **arguments) as pool, make(ProbeTwin, backend, **arguments) as twin:
        for one in (pool, twin):
            one.reset()
            one.send(np.zeros(1, np.float32), [2])
        states = pool.save([0, 1])
        _, info = pool.restore(states, [1, 0])
        assert info["env_id"].tolist() == [1, 0]
        with pytest.raises(errors.InFlightError, match="env 2 is in flight"):
            pool.save([1, 2])
        assert_same(pool.recv(), twin.recv())
        for one, env_ids in ((pool, [1, 0]), (twin, [0, 1])):
            for env_id in env_ids:
                one.send(np.ones(1, np.float32), [env_id])
        mine, its = ({int(row[4]["env_id"][0]): row for row in (one.recv(), one.recv())} for one in (pool, twin))
        for env_id in (0, 1):
            assert_same(mine[1 - env_id][:4], its[env_id][:4])


def test_options_that_wait_for_a_reset_are_saved() -> None:
    with stepmill.make(lambda: ProbeTwin(fail_in="reset", fail_at=2), num_envs=1, backend="inline") as pool:
        pool.reset()
        with pytest.raises(errors.EnvError, match="asked to fail in reset"):
            pool.reset(options={"kept": 1})
        assert b"kept" in bytes(pool.save()[0])


def test_states_are_restored_in_another_process(tmp_path: Any) -> None:
    with make(WildEnv, "inline", seed=5) as pool:
        pool.reset()
        lanes = Lanes(pool, [(i, 0) for i in range(4)])
        lanes.go(5)
        (tmp_path / "states").write_bytes(pickle.dumps(pool.save()))
        expected = [row[0]["word"] for rows in lanes.go(20) for row in rows]
    out = run_well(
        f"""
        import pickle
        from pathlib import Path
        import stepmill
        from support.envs.many_spaces import WildEnv
        from support.lanes import Lanes
        if __name__ == "__main__":
            pool = stepmill.make(WildEnv, num_envs=4, backend="process", num_workers=1)
            pool.restore(pickle.loads(Path({str(tmp_path / "states")!r}).read_bytes()))
            print([row[0]["word"] for rows in Lanes(pool, [(i, 5) for i in range(4)]).go(20) for row in rows])
        """
    )
    assert out.strip() == str(expected)


# ---- which envs ----------------------------------------------------------------------------------


class OnlySet(ProbeTwin):
    get_state = None  # type: ignore[assignment]


class OtherArguments(ProbeTwin):
    def set_state(self, position: Any, speed: Any) -> None:  # type: ignore[override]
        pass


class Remembering(gymnasium.Wrapper[Any, Any, Any, Any]):
    """A wrapper of a user."""


class RememberingWell(Remembering):
    def get_state(self) -> int:
        return 3

    def set_state(self, state: int) -> None:
        assert state == 3


UNSAVED: dict[str, tuple[Any, str]] = {
    "neither": (CountingEnv, r"its class CountingEnv has no get_state\(\) and set_state\(state\): write them"),
    "only-one": (OnlySet, r"its class OnlySet has no get_state\(\): write it \(docs/environments.md\)"),
    "other-arguments": (
        OtherArguments,
        r"its class OtherArguments has a set_state with other arguments: expected set_state\(state\)",
    ),
    "a-wrapper": (lambda: Remembering(ProbeTwin()), "its wrapper Remembering has no .*, and may remember something"),
    "inside": (lambda: RememberingWell(CountingEnv()), "its class CountingEnv has no get_state"),
    "of-gymnasium": (
        lambda: gymnasium.wrappers.TransformReward(ProbeTwin(), abs),
        "its wrapper TransformReward, one of Gymnasium's, may remember something",
    ),
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("case", UNSAVED)
def test_an_env_without_both_methods_says_why_it_cannot_be_saved(case: str, backend: str) -> None:
    task, why = UNSAVED[case]
    with make(task, backend) as pool:
        assert pool.state_kind.startswith("none: its ")
        pool.reset()
        with pytest.raises(errors.UnsupportedError, match=f"save: env 1: {why}"):
            pool.save([1, 2])


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_env_with_both_methods_is_saved_by_them(backend: str) -> None:
    with make(lambda: RememberingWell(ProbeTwin()), backend) as pool:
        assert pool.state_kind == "methods"
        pool.reset()
        pool.restore(pool.save())
    with make("CartPole-v1", backend) as pool:
        assert pool.state_kind == "memory"


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_state_of_an_env_with_other_wrappers_is_refused(backend: str) -> None:
    with make(lambda: ProbeTwin(), backend) as pool, make(lambda: RememberingWell(ProbeTwin()), backend) as other:
        pool.reset()
        other.reset()
        with pytest.raises(errors.StateError, match=r"env 0: expected the state of an env of .*RememberingWell around"):
            other.restore(pool.save())


# ---- failures ------------------------------------------------------------------------------------


class Refusing(ProbeTwin):
    """Its methods do what it was told to."""

    fails_in = ""

    def get_state(self) -> Any:
        return self.obey("get_state") or super().get_state()

    def set_state(self, state: Any) -> None:
        super().set_state(state)
        self.obey("set_state")

    def obey(self, call: str) -> Any:
        if not self.fails_in.startswith(call):
            return None
        if self.fails_in.endswith("dies"):
            os._exit(3)
        if self.fails_in.endswith("interrupted"):
            raise KeyboardInterrupt
        if self.fails_in.endswith("lock"):
            return threading.Lock()  # which cannot be pickled
        raise ValueError("no state today")


FAILURES: dict[str, tuple[str, type[BaseException], str]] = {
    "set_state": ("restore", errors.StateError, r"restore: env 2: set_state\(\) raised ValueError: no state today"),
    "get_state": ("save", errors.StateError, r"save: env 2: get_state\(\) of Refusing raised ValueError: no state"),
    "get_state returns a lock": ("save", errors.StateError, r"env 2: what get_state\(\) returned cannot be pickled: "),
    "set_state is interrupted": ("restore", KeyboardInterrupt, "^$"),
    "set_state dies": ("restore", errors.WorkerDiedError, "env 2 failed in call"),
    "get_state dies": ("save", errors.WorkerDiedError, "env 2 failed in call"),
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("how", FAILURES)
def test_a_failure_changes_no_other_env(how: str, backend: str) -> None:
    call, error, message = FAILURES[how]
    if backend == ("inline" if how.endswith("dies") else "process") and how.endswith(("dies", "interrupted")):
        pytest.skip("that would end this process, or is what a user does in the calling one")
    workers = {"num_workers": 4} if backend == "process" else {}
    with (
        stepmill.make(Refusing, num_envs=4, seed=1, backend=backend, **workers) as pool,
        stepmill.make(Refusing, num_envs=4, seed=1, backend="inline") as twin,
    ):
        pool.reset()
        twin.reset()
        earlier = pool.save()
        for one in (pool, twin):
            one.step(np.zeros(4, np.float32))
        pool.set_attr("fails_in", how, env_ids=[2])
        with pytest.raises(error, match=message):
            pool.save() if call == "save" else pool.restore(earlier)
        same = [0, 1, 3] if how.endswith("dies") else [0, 1, 2, 3]
        if not how.endswith("dies"):
            pool.set_attr("fails_in", "", env_ids=[2])
        for _ in range(3):
            mine = pool.step(np.ones(len(same), np.float32), same)
            assert_same(mine[:4], tuple(part[same] for part in twin.step(np.ones(4, np.float32))[:4]))
        if how.endswith("dies"):
            with pytest.raises(errors.WorkerDiedError):  # as after a death in any call: it is to be reset
                pool.restore(earlier)
            pool.reset([2])
        assert len(pool.restore(earlier)[0]) == 4  # states saved before are still good
        assert_same(pool.step(np.zeros(4, np.float32))[4]["elapsed_step"], np.full(4, 1, np.int32))


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_native_env_that_does_not_take_its_state_changes_no_other(backend: str) -> None:
    with make("FrozenLake-v1", backend, map_name="") as pool:
        pool.reset()
        states = pool.save()
        lanes = Lanes(pool, [(i, 0) for i in range(4)])
        lanes.go(3)
        shown = pool.save()
        bad = type(states[0])(states[0].origin, bytes(states[2])[:-1], 0, states[2].nbytes - 1)
        with pytest.raises(errors.StateError, match="did not take its state"):
            pool.restore([states[0], states[1], bad, states[3]])
        assert [bytes(one) for one in pool.save()] == [bytes(one) for one in shown]


def test_a_worker_that_was_killed_costs_what_it_costs_in_a_call() -> None:
    with stepmill.make(ProbeTwin, num_envs=2, seed=1, backend="process", num_workers=2) as pool:
        pool.reset()
        states = pool.save()
        kill_worker(pool, 1)
        with pytest.raises(errors.WorkerDiedError):
            pool.save()
        pool.reset([1])
        assert pool.restore(states)[1]["elapsed_step"].tolist() == [0, 0]
        assert_same(pool.save().parts[0], states.parts[0])


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_info_that_cannot_be_pickled_is_left_out(backend: str) -> None:
    class Odd(ProbeTwin):
        def _info(self) -> dict[str, Any]:
            return {"fine": 1, "odd": threading.Lock()}

    with make(Odd, backend) as pool:
        pool.reset()
        with pytest.warns(UserWarning, match="not in its") if backend == "inline" else contextlib.nullcontext():
            states = pool.save()  # a worker warns on its stderr
        _, info = pool.restore(states)
        assert info["fine"].tolist() == [1] * 4
        assert "odd" not in info


def test_large_states_travel_whole() -> None:
    class Large(ProbeTwin):
        memory = np.zeros(3_000_000, np.uint8)

        def get_state(self) -> Any:
            return super().get_state(), self.memory

        def set_state(self, state: Any) -> None:
            own, self.memory = state
            super().set_state(own)

    with stepmill.make(Large, num_envs=2, backend="process", num_workers=2) as pool:
        pool.reset()
        pool.set_attr("memory", np.arange(3_000_000).astype(np.uint8), env_ids=[1])
        states = pool.save()
        assert states.nbytes > 6_000_000
        pool.restore(states[1], [0, 1])
        for memory in pool.get_attr("memory"):
            assert (memory == np.arange(3_000_000).astype(np.uint8)).all()


# ---- by pickling whole envs ----------------------------------------------------------------------


class Lossy(CountingEnv, EzPickle):
    def __init__(self) -> None:
        super().__init__()
        EzPickle.__init__(self)


class Unpicklable(CountingEnv):
    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.Lock()


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_env_is_pickled_if_the_user_asks_for_it(backend: str) -> None:
    with make(WildEnv, backend, seed=4) as pool, make(WildEnv, BACKENDS[backend == "inline"], seed=9) as other:
        pool.reset()
        lanes = Lanes(pool, [(i, 0) for i in range(4)])
        lanes.go(6)
        states, at = pool.save(by="pickle"), list(lanes.at)
        assert states.origins[0].kind == "pickle"
        expected = lanes.go(30)
        for to in (pool, other):
            to.restore(states)
            assert_same(Lanes(to, at).go(30), expected)
        both = [pool.save([0])[0], pool.save([1], by="pickle")[0]]
        assert_same(other.restore(both, [2, 3])[0]["word"], pool.restore(both, [0, 1])[0]["word"])


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("task", "error", "why"),
    [
        (Lossy, errors.UnsupportedError, r"env 0: its pickle cannot be trusted: Lossy pickles only .* \(EzPickle\)"),
        (Unpicklable, errors.UnsupportedError, "env 0 cannot be pickled: .*Write get_state"),
    ],
)
def test_a_pickle_that_loses_the_state_is_refused(task: Any, error: Any, why: str, backend: str) -> None:
    with make(task, backend) as pool:
        pool.reset()
        for _ in range(2):
            shown = pool.step(np.zeros(4, int))[0]
        for _ in range(2):
            with pytest.raises(error, match=why):
                pool.save(by="pickle")
        assert (pool.step(np.zeros(4, int))[0] != shown).any()  # the envs were not touched


class Global(CountingEnv):
    """Draws from the generators that all code of a process shares."""

    def step(self, action: Any) -> Any:
        obs, _, *rest = super().step(action)
        return obs, np.random.random() + random.random(), *rest


def test_the_proof_of_a_pickle_draws_nothing_from_global_generators() -> None:
    with make(Global, "inline") as pool:
        pool.reset()
        drawn = random.getstate(), np.random.get_state()
        expected = pool.step(np.zeros(4, int))[1]
        random.setstate(drawn[0])
        np.random.set_state(drawn[1])
        with pytest.raises(errors.StateError, match="goes on otherwise after it was pickled"):
            pool.save(by="pickle")
        assert_same(pool.step(np.zeros(4, int))[1], expected)


@pytest.mark.parametrize("by", ["memory", "copy", 3])
def test_ways_that_there_are_not_are_refused(by: Any) -> None:
    with make(WildEnv, "inline") as pool:
        pool.reset()
        with pytest.raises(errors.UnsupportedError, match="by: expected 'methods' or 'pickle'"):
            pool.save(by=by)
    with make("CartPole-v1", "process") as pool, pytest.raises(errors.UnsupportedError, match="by: expected 'memory'"):
        pool.save(by="pickle")


def test_a_replaced_env_is_closed() -> None:
    with make(ProbeTwin, "inline") as pool:
        pool.reset()
        (before,) = pool.call("get_wrapper_attr", "unwrapped", env_ids=[1])
        pool.restore(pool.save([0], by="pickle")[0], [1])
        (after,) = pool.call("get_wrapper_attr", "unwrapped", env_ids=[1])
        assert after is not before
        assert before.closed
        assert not after.closed


# ---- states that look alike ----------------------------------------------------------------------


class OtherWalk(Walk):
    """Another class with the same spaces."""


class OwnNorm(gymnasium.wrappers.NormalizeObservation[Any, Any, Any]):
    """A subclass of a wrapper that has memory, with methods for its own alone."""

    def get_state(self) -> str:
        return "nothing"

    def set_state(self, state: str) -> None:
        assert state == "nothing"


def test_a_pickle_of_another_class_is_refused() -> None:
    with (
        stepmill.make(lambda: OtherWalk(), backend="inline") as other,
        stepmill.make(lambda: Walk(), backend="inline") as pool,
    ):
        pool.reset()
        other.reset()
        with pytest.raises(errors.StateError, match=r"expected the state of an env of .*Walk, got one of .*OtherWalk"):
            pool.restore(other.save(by="pickle"))


def test_a_subclass_of_a_wrapper_keeps_its_memory_too() -> None:
    with stepmill.make(lambda: OwnNorm(ProbeTwin()), backend="inline") as pool:
        pool.reset()
        for _ in range(5):
            pool.step(np.zeros(1, np.float32))
        states = pool.save()
        expected = [pool.step(np.zeros(1, np.float32))[0] for _ in range(8)]
        pool.restore(states)
        assert_same([pool.step(np.zeros(1, np.float32))[0] for _ in range(8)], expected)


def test_configurations_differ_where_their_texts_do_not() -> None:
    def noted(**_: Any) -> Any:
        return ProbeTwin()

    big = np.arange(3000.0)
    changed = big.copy()
    changed[1500] = -1.0
    configs: list[dict[str, Any]] = [
        {"maps": {"a": big}},
        {"maps": {"a": changed}},
        {"maps": {"a": big}, "f": lambda x: 1},
        {"maps": {"a": big}, "f": lambda x: 2},
    ]
    for i, config in enumerate(configs):
        with stepmill.make(noted, backend="inline", **config) as pool:
            pool.reset()
            states = pool.save()
        for j, other in enumerate(configs):
            with stepmill.make(noted, backend="inline", **other) as pool:
                pool.reset()
                if i == j:
                    pool.restore(states)
                else:
                    with pytest.raises(errors.StateError, match="another configuration"):
                        pool.restore(states)


def test_envs_with_other_time_limits_are_other_envs() -> None:
    ids = [f"Limit{limit}-v0" for limit in (5, 50)]
    for limit, id in zip((5, 50), ids, strict=True):
        gymnasium.register(id, ProbeTwin, max_episode_steps=limit)
    try:
        for settings in ({"backend": "inline"}, {"backend": "process", "num_workers": 1}):
            with stepmill.make(ids, num_envs=2, **settings) as pool:
                pool.reset()
                states = pool.save()
                pool.restore(states)
                with pytest.raises(
                    errors.StateError, match=r"expected .*max_episode_steps=5\).* got .*max_episode_steps=50\)"
                ):
                    pool.restore(states[::-1])
    finally:
        for id in ids:
            del gymnasium.registry[id]


def test_an_env_that_cannot_go_back_is_not_changed() -> None:
    class Silent(Walk):
        silent = False

        def get_state(self) -> Any:
            if self.silent:
                raise RuntimeError("not now")
            return super().get_state()

    with stepmill.make(Silent, num_envs=2, backend="inline") as pool:
        pool.reset()
        states = pool.save()
        pool.step(pool.action_space.sample())
        before = pool.save()
        pool.set_attr("silent", [False, True])
        with pytest.raises(errors.StateError, match=r"env 1: get_state\(\) .*raised RuntimeError: not now"):
            pool.restore(states)
        pool.set_attr("silent", [False, False])
        assert [bytes(one) for one in pool.save()] == [bytes(one) for one in before]
