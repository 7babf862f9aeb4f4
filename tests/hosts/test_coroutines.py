"""Envs whose methods are coroutines are envs like any other: what they show is what their twins without show.

The suites over all backends (test_backends*.py) run them, too; here is what only such envs have.
"""

from __future__ import annotations

import asyncio
import functools
from typing import Any

import gymnasium
import numpy as np
import pytest

import stepmill
from stepmill.errors import ConfigError, EnvError, StateError, UnsupportedError, UsageError
from stepmill.managers import BaseEnvManager, SubprocessEnvManager
from support.backends import INLINE, TWO, Backend, attempt, play, play_async
from support.envs import AnsweringEnv, CountingEnv, FailingEnv, ProbeTwin, RewritingEnv
from support.envs import waiting as waiting_module
from support.envs.contract import Pair, Walk
from support.envs.many_spaces import WildEnv
from support.envs.waiting import take_turns, waiting
from support.injection import Alarms, at_every_point
from support.probes import MODES, VIEWS, assert_same
from support.processes import belongings, left_since
from support.subprocesses import run_well

pytestmark = pytest.mark.usefixtures("deadline", "server")

WAITING = (Backend("inline", waits=True), *(Backend("process", workers, waits=True) for workers in (1, 2, 7)))
everywhere = pytest.mark.parametrize("backend", WAITING, ids=str)
N = 9


# ---- the same episodes ---------------------------------------------------------------------------


@functools.cache
def expected(mode: str, view: str, batch_size: int | None) -> list[Any]:
    with INLINE.make(WildEnv, view, num_envs=N, batch_size=batch_size, autoreset=mode, max_episode_steps=17) as pool:
        return play(pool, 40) if batch_size is None else play_async(pool, 20)


@everywhere
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("view", VIEWS)
def test_they_live_as_their_twins(backend: Backend, mode: str, view: str) -> None:
    with backend.make(WildEnv, view, num_envs=N, autoreset=mode, max_episode_steps=17) as pool:
        assert pool.backend == backend.name
        assert_same(play(pool, 40), expected(mode, view, None))


@everywhere
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("batch_size", [1, 4])
def test_they_do_so_in_batches_that_are_not_of_all(backend: Backend, mode: str, batch_size: int) -> None:
    with backend.make(WildEnv, num_envs=N, batch_size=batch_size, autoreset=mode, max_episode_steps=17) as pool:
        assert_same(play_async(pool, 20), expected(mode, "gymnasium", 4))


@pytest.mark.parametrize("backend", [INLINE, TWO], ids=str)
@pytest.mark.parametrize("mode", MODES)
def test_envs_that_wait_and_envs_that_do_not_share_a_pool(backend: Backend, mode: str) -> None:
    kinds = [WildEnv, waiting(WildEnv), functools.partial(waiting(WildEnv), length=12.0)] * 3
    with backend.make(kinds, num_envs=N, autoreset=mode, max_episode_steps=17) as pool:
        assert_same(play(pool, 40), expected(mode, "gymnasium", None))


class HalfWaiting(ProbeTwin):
    """Only its resets are coroutines. Counts its steps in all."""

    steps_in_all = 0

    async def reset(self, **arguments: Any) -> Any:
        await take_turns(2)
        return super().reset(**arguments)

    def step(self, action: Any) -> Any:
        self.steps_in_all += 1
        return super().step(action)


@pytest.mark.parametrize("backend", [INLINE, TWO], ids=str)
@pytest.mark.parametrize("mode", MODES)
def test_resets_alone_may_wait(backend: Backend, mode: str) -> None:
    def run(where: Backend, task: Any) -> list[Any]:
        with where.make(task, num_envs=4, length=3, autoreset=mode) as pool:
            return play(pool, 10)

    assert_same(run(backend, HalfWaiting), run(INLINE, ProbeTwin))
    with backend.make(HalfWaiting, num_envs=2, length=2, autoreset="same_step") as pool:
        pool.reset()
        for _ in range(5):
            pool.step([0.0, 0.0])
        assert pool.get_attr("steps_in_all") == (5, 5)


class Reusing(ProbeTwin):
    """Shows one and the same array."""

    def __init__(self) -> None:
        super().__init__(2)
        self._shown = np.zeros(2)

    def _observe(self) -> np.ndarray:
        self._shown[:] = super()._observe()
        return self._shown


@everywhere
@pytest.mark.parametrize("task", [Reusing, RewritingEnv], ids=lambda task: task.__name__)
def test_the_end_of_an_episode_is_shown_as_it_was(backend: Backend, task: Any) -> None:
    """The reset inside of a step writes over what the step has returned."""

    def run(where: Backend) -> list[Any]:
        with where.make(task, num_envs=3, autoreset="same_step", max_episode_steps=2) as pool:
            return [pool.reset(), *(pool.step(np.zeros(3, np.int64)) for _ in range(5))]

    ours, theirs = run(backend), run(INLINE)
    for results in (ours, theirs):  # a list that the env writes over is the same object where nothing is pickled
        for *_, info in results:
            info.pop("list", None)
            info.get("final_info", {}).pop("list", None)
    assert_same(ours, theirs)


# ---- what envs are asked -------------------------------------------------------------------------


class Answering(waiting(AnsweringEnv)):  # type: ignore[misc]
    """Answers some questions at once, and some later."""

    async def add_later(self, one: int) -> int:
        await take_turns(3)
        return self.add(one)

    async def echo_later(self, *args: Any) -> Any:
        await take_turns(3)
        return self.echo(*args)

    async def complain_later(self) -> None:
        await take_turns(1)
        self.complain()


ASKED = {
    "at once": lambda pool: pool.call("add", 10, other=1),
    "later": lambda pool: pool.call("add_later", 10),
    "some": lambda pool: pool.call("add_later", 10, env_ids=[3, 1]),
    "attributes": lambda pool: [pool.set_attr("start", 4), pool.get_attr("start"), pool.reset()[0]],
    "pictures": lambda pool: pool.render(),
    "while all step": lambda pool: [pool.send([0] * 4), pool.call("echo_later", 1, env_ids=[2]), pool.recv()],
}


@pytest.mark.parametrize("backend", [INLINE, TWO], ids=str)
@pytest.mark.parametrize("name", ASKED)
def test_they_answer_as_their_twins(backend: Backend, name: str) -> None:
    class Twin(AnsweringEnv):
        add_later, echo_later = AnsweringEnv.add, AnsweringEnv.echo

    def ask(where: Backend, task: Any) -> Any:
        with where.make(task, num_envs=4, render_mode="rgb_array") as pool:
            pool.reset()
            return ASKED[name](pool)

    assert_same(ask(backend, Answering), ask(INLINE, Twin))


@pytest.mark.parametrize("backend", [INLINE, TWO], ids=str)
def test_a_question_that_fails_later_raises(backend: Backend) -> None:
    with backend.make(Answering, num_envs=4) as pool:
        pool.reset()
        with pytest.raises(ZeroDivisionError, match="asked too much"):
            pool.call("complain_later", env_ids=[2])
        assert pool.call("add_later", 1) == (1,) * 4


@everywhere
def test_their_states_are_saved_by_their_methods(backend: Backend) -> None:
    with backend.make(WildEnv, num_envs=4) as pool:
        play(pool, 5)
        saved = pool.save()
        first = play_on(pool)
        pool.restore(saved)
        assert_same(play_on(pool), first)


def play_on(pool: Any) -> list[Any]:
    pool.action_space.seed(3)
    return [pool.step(pool.action_space.sample()) for _ in range(6)]


@pytest.mark.parametrize("backend", [INLINE, Backend("process", 4)], ids=str)
def test_they_are_not_saved_by_fork(backend: Backend) -> None:
    with backend.make(waiting(CountingEnv), num_envs=4) as pool:
        pool.reset()
        with pytest.raises(UnsupportedError, match="envs whose methods are not coroutines"):
            pool.save(by="fork")
        with pytest.raises((UnsupportedError, StateError), match=r"no get_state.*write them") as caught:
            pool.save()
        assert "fork" not in str(caught.value), "what does not work is not advised"


# ---- failures ------------------------------------------------------------------------------------


@everywhere
@pytest.mark.parametrize("where", ["step", "reset"])
@pytest.mark.parametrize("mode", MODES)
def test_they_fail_as_their_twins(backend: Backend, where: str, mode: str) -> None:
    def run(at: Backend) -> list[Any]:
        configs = [{"fail_in": where, "fail_at": (2, 4) if i == 1 else ()} for i in range(3)]
        with at.make(FailingEnv, num_envs=3, env_config=configs, autoreset=mode, max_episode_steps=3) as pool:
            out = [attempt(pool.reset)]
            for _ in range(8):
                out.append(attempt(lambda: pool.step([0, 1, 0])))
                if mode == "disabled":
                    out += [attempt(pool.reset), attempt(pool.reset)]  # the second is well
            return out

    assert_same(run(backend), run(INLINE))


# ---- managers ------------------------------------------------------------------------------------


def walk_through(manager_class: Any, env: Any) -> list[list[Any]]:
    """The first rows of each env."""
    functions = [functools.partial(env, {"length": 3 + i}) for i in range(3)]
    rows: list[list[Any]] = [[] for _ in functions]
    with manager_class(functions, episode_num="inf") as manager:
        manager.seed([5, 6, 7])
        manager.launch()
        while min(map(len, rows)) < 8:
            for env_id, one in manager.step(dict.fromkeys(manager.ready_obs, np.array([0]))).items():
                rows[env_id].append((np.asarray(one.obs).tolist(), np.sum(one.reward).item(), bool(one.done)))
    return [its[:8] for its in rows]


@pytest.mark.parametrize("manager", [BaseEnvManager, SubprocessEnvManager])
def test_managers_await_the_methods_of_their_envs(manager: Any) -> None:
    assert walk_through(manager, waiting(Walk)) == walk_through(BaseEnvManager, Walk)


@everywhere
@pytest.mark.parametrize("kind", [Walk, Pair], ids=lambda kind: kind.__name__)
def test_a_base_env_may_wait(backend: Backend, kind: Any) -> None:
    def run(where: Backend) -> list[Any]:
        with where.make(kind, num_envs=3) as pool:
            actions = np.zeros(3 * (2 if kind is Pair else 1), np.int64)
            return [pool.reset(), *(pool.step(actions) for _ in range(12))]

    assert_same(run(backend), run(INLINE))


# ---- make ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("build", "num_envs"),
    [(waiting(ProbeTwin), 1), (waiting(ProbeTwin), 5), (lambda: waiting(ProbeTwin)(), 5)],
    ids=["one", "class", "lambda"],
)
def test_auto_takes_processes(build: Any, num_envs: int) -> None:
    with stepmill.make(build, num_envs=num_envs) as pool:
        assert pool.backend == "process"
        assert len(pool.reset()[0]) == num_envs


def test_a_class_is_not_tried_out(tmp_path: Any) -> None:
    class Built(waiting(ProbeTwin)):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            with open(tmp_path / "built", "ab", buffering=0) as file:
                file.write(b"x")

    with stepmill.make(Built, num_envs=3) as pool:
        assert pool.backend == "process"
    assert (tmp_path / "built").read_bytes() == b"xxx"


def test_threads_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="use backend='process'"):
        stepmill.make(waiting(ProbeTwin), backend="thread")


def test_inline_needs_a_thread_without_a_loop() -> None:
    with stepmill.make(waiting(ProbeTwin), backend="inline") as pool:
        pool.reset()

        async def inside() -> None:
            for call in (lambda: pool.step([0.0]), lambda: stepmill.make(waiting(ProbeTwin), backend="inline")):
                with pytest.raises(UsageError, match=r"inside another one: use backend='process'"):
                    call()

        asyncio.run(inside())
        assert pool.step([0.0])[4]["elapsed_step"].tolist() == [1], "the refused step was none"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"max_running": 0}, "max_running: expected"),
        ({"max_running": 1.5}, "max_running: expected"),
        ({"max_running": True}, "max_running: expected"),
        ({"threads": 1}, "threads: expected True or False, got 1"),
    ],
    ids=str,
)
def test_bad_options_are_refused(arguments: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        stepmill.Process(**arguments)


def test_each_worker_runs_one_at_least() -> None:
    with pytest.raises(ConfigError, match=r"num_workers: expected at most max_running=2.* got 3"):
        stepmill.make(waiting(ProbeTwin), num_envs=4, num_workers=3, backend=stepmill.Process(max_running=2))
    with stepmill.make(waiting(ProbeTwin), num_envs=4, backend=stepmill.Process(max_running=1)) as pool:
        assert pool.config["num_workers"] == 1


def test_wrappers_of_gymnasium_are_refused_with_a_sentence() -> None:
    with pytest.raises((EnvError, ConfigError, UnsupportedError), match="TimeLimit"):
        stepmill.make(lambda: gymnasium.wrappers.TimeLimit(waiting(CountingEnv)(), 4), num_envs=2, backend="process")


# ---- interruptions -------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # a coroutine that never began
@pytest.mark.long  # where a wake-up of a task is lost, its grace is waited for
@pytest.mark.parametrize("call", ["reset", "step"])
def test_ctrl_c_at_any_point_leaves_a_pool_that_goes_on(call: str) -> None:
    """In this thread, inside of asyncio too; on processes a caller sees nothing of coroutines."""

    def attempt_at(alarms: Alarms) -> None:
        with stepmill.make(waiting(ProbeTwin), num_envs=2, backend="inline") as pool:
            pool.reset()
            try:
                with alarms:
                    pool.reset() if call == "reset" else pool.step([0.5, 0.5])
            except (KeyboardInterrupt, EnvError):
                pass
            while pool.in_flight:
                attempt(pool.recv)
            assert pool.reset()[1]["elapsed_step"].tolist() == [0, 0]
            assert pool.step([0.5, 0.5])[1].tolist() == [0.5, 0.5]

    points = at_every_point(attempt_at, __file__, waiting_module.__file__, raising=KeyboardInterrupt, stride=5)
    assert points > 100


def test_ctrl_c_in_a_coroutine_of_this_process_ends_it_and_costs_one_row() -> None:
    out = run_well(
        """
import asyncio, os, signal
import stepmill
from support.envs import ProbeTwin

struck = []

class Struck(ProbeTwin):
    async def step(self, action):
        try:
            await asyncio.sleep(0)
            if not struck:
                struck.append(True)
                signal.raise_signal(signal.SIGINT)
        finally:
            print("tidy")
        return super().step(action)

pool = stepmill.make(Struck, num_envs=2, backend="inline")
pool.reset()
try:
    pool.step([0.0, 0.0])
except KeyboardInterrupt:
    print("interrupted")
try:
    pool.recv()
except stepmill.EnvError as error:
    print(error.env_id, error.batch[4]["abnormal"].tolist())
pool.reset()
print(pool.step([0.0, 0.0])[4]["elapsed_step"].tolist())
pool.close()
"""
    )
    assert out.splitlines() == ["tidy", "interrupted", "tidy", "0 [True, False]", "tidy", "tidy", "[1, 1]"]


# ---- the end -------------------------------------------------------------------------------------


@everywhere
def test_nothing_is_left(backend: Backend) -> None:
    before = belongings()
    with backend.make(ProbeTwin, num_envs=N, batch_size=N) as pool:
        play(pool, 3)
        pool.send(np.zeros(N))
    del pool
    assert left_since(before) == []
