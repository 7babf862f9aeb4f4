"""``backend="auto"``: where it runs Python envs, what its trial of one does, and that nothing of that is seen."""

from __future__ import annotations

import functools
import logging
import os
import signal
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stepmill
from stepmill.errors import ConfigError, EnvError, EnvTimeoutError
from stepmill.hosts import auto
from stepmill.hosts.process.trial import StepCost
from stepmill.settings import check_settings
from support.envs import Plain
from support.envs.contract import Pair
from support.envs.unmovable import Costly, Informed, InGlobals, InLibrary, PidFile, Rebuilt, Recorded, Walk
from support.processes import belongings, descendants, left_since
from support.subprocesses import run, run_well, start
from support.waiting import Gate, eventually

pytestmark = pytest.mark.usefixtures("deadline", "server")

LONG_S = 60.0  # for a trial that will end: a machine under load may take its time


@pytest.fixture
def verdict(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Decides in place of the clock, but only where a trial came to its end."""

    def settle(backend: str) -> None:
        monkeypatch.setattr(auto, "_HEAVY_S", LONG_S)
        monkeypatch.setattr(auto, "_MOST_S", LONG_S)
        monkeypatch.setattr(auto, "is_faster_in_processes", lambda cost, settings: backend == "process")

    return settle


@pytest.fixture
def no_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise AssertionError("there was a trial")

    monkeypatch.setattr("stepmill.hosts.process.caller.launcher.Launcher.try_out", refuse)


def play(pool: Any, steps: int) -> list[Any]:
    actions = np.random.default_rng(1)
    first = pool.reset(seed=3)[0]
    return [first, *(pool.step(actions.integers(0, 3, pool.num_envs))[:4] for _ in range(steps))]


def assert_same(played: list[Any], expected: list[Any]) -> None:
    """Field by field over all steps: step by step takes numpy seconds."""
    np.testing.assert_array_equal(played[0], expected[0])
    for got, wanted in zip(zip(*played[1:], strict=True), zip(*expected[1:], strict=True), strict=True):
        np.testing.assert_array_equal(np.stack(got), np.stack(wanted))


def lines(folder: Path) -> list[list[str]]:
    """What ``Recorded`` envs have written: what, which env, and in which process."""
    return [line.split() for line in (folder / "lines").read_text().splitlines()]


# ---- envs that cannot be moved -------------------------------------------------------------------

IMMOVABLE = [Rebuilt, InGlobals, InLibrary]


@pytest.mark.parametrize("kind", IMMOVABLE)
def test_envs_stay_where_they_were_built(kind: type) -> None:
    with stepmill.make(kind, num_envs=2) as pool:
        began = pool.backend
        played = play(pool, 3000)  # some 50 ms and more: once that was enough for a move
        assert pool.backend == began
    with stepmill.make(kind, num_envs=2, backend="inline") as reference:
        assert_same(played, play(reference, 3000))


@pytest.mark.parametrize("backend", ["inline", "process"])
@pytest.mark.parametrize("mode", ["next_step", "same_step"])
@pytest.mark.parametrize("kind", IMMOVABLE)
def test_whatever_is_chosen_plays_the_same_episodes(verdict: Any, kind: type, mode: str, backend: str) -> None:
    verdict(backend)
    arguments: dict[str, Any] = {"num_envs": 5, "autoreset": mode, "max_episode_steps": 13}
    with stepmill.make(kind, **arguments) as pool:
        assert pool.backend == backend
        played = play(pool, 60)
    with stepmill.make(kind, backend="inline", **arguments) as reference:
        assert_same(played, play(reference, 60))


# ---- the life of the env on trial ----------------------------------------------------------------


@pytest.mark.parametrize("backend", ["inline", "process"])
def test_one_env_more_is_built_and_lives_a_whole_life(verdict: Any, tmp_path: Path, backend: str) -> None:
    verdict(backend)
    with stepmill.make(Recorded, num_envs=3, seed=[5, 6, 7], folder=str(tmp_path)) as pool:
        assert pool.backend == backend
        *trial, first, second, third = lines(tmp_path)
    process = trial[0][2]
    assert process != str(os.getpid())
    assert all(line[1:] == ["0", process] for line in trial)
    assert [what for what, *_ in trial[:2]] == ["constructor", "reset(5)"]
    assert {what for what, *_ in trial[2:-1]} <= {"reset(None)"}
    assert trial[-1][0] == "close"
    assert sorted(line[:2] for line in (first, second, third)) == [["constructor", str(i)] for i in range(3)]


@pytest.mark.parametrize("backend", ["inline", "process"])
def test_the_env_on_trial_is_closed_and_its_worker_gone_before_env_0_is_built(
    verdict: Any, tmp_path: Path, backend: str
) -> None:
    verdict(backend)
    with stepmill.make(PidFile, num_envs=2, folder=str(tmp_path)) as pool:
        assert pool.backend == backend
        assert len((tmp_path / "pids-0").read_text().split()) == 2


def test_a_time_limit_of_the_pool_ends_episodes_of_the_trial(verdict: Any, tmp_path: Path) -> None:
    verdict("inline")
    with stepmill.make(Recorded, num_envs=2, folder=str(tmp_path), max_episode_steps=1):
        whats = [what for what, *_ in lines(tmp_path)]
    assert whats[:3] == ["constructor", "reset(42)", "reset(None)"]


def test_an_env_of_many_players_is_tried_too(verdict: Any) -> None:
    verdict("inline")
    with stepmill.make(Pair, num_envs=2) as pool:
        assert pool.backend == "inline"


def test_a_slow_constructor_means_processes_without_a_step(
    verdict: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    verdict("inline")
    monkeypatch.setattr(auto, "_HEAVY_S", 0.0)
    with stepmill.make(Recorded, num_envs=2, folder=str(tmp_path)) as pool:
        assert pool.backend == "process"
        assert [what for what, *_ in lines(tmp_path)] == ["constructor", "close", "constructor", "constructor"]


def test_an_info_that_cannot_be_pickled_fails_no_trial(verdict: Any) -> None:
    verdict("inline")
    with stepmill.make(Informed, num_envs=2) as pool:
        assert pool.backend == "inline"


# ---- trials that go wrong ------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["constructor", "reset", "step", "close"])
@pytest.mark.parametrize("mishap", ["raises", "exits", "leaves", "dies", "crashes", "hangs"])
def test_a_trial_that_fails_means_processes_without_a_warning(
    verdict: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: Any, mishap: str, where: str
) -> None:
    verdict("inline")
    if mishap == "hangs":
        monkeypatch.setattr(auto, "_MOST_S", 0.2)
    before = belongings()
    with stepmill.make(Recorded, num_envs=2, folder=str(tmp_path), mishap=mishap, where=where) as pool:
        assert pool.backend == "process"
        play(pool, 3)
        assert [line[:2] for line in lines(tmp_path)].count(["constructor", "0"]) == 2
    assert left_since(before) == []
    assert capfd.readouterr() == ("", "")


class Broken(Walk):
    """Never comes to life."""

    def __init__(self) -> None:
        raise RuntimeError("out of order")


def test_an_env_that_is_really_broken_is_reported_by_the_pool() -> None:
    before = belongings()
    with pytest.raises(EnvError, match=r"constructor of env [01] .*out of order"):
        stepmill.make(Broken, num_envs=2)
    assert left_since(before) == []


def test_a_module_that_cannot_be_loaded_is_reported_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    module = tmp_path / "fine_only_here.py"
    module.write_text("from support.envs.unmovable import Walk\nclass Env(Walk): pass\n")
    from fine_only_here import Env  # type: ignore[import-not-found]

    module.write_text("raise RuntimeError('not in a worker')\n")
    with pytest.raises(EnvError, match="loading Env failed: RuntimeError: not in a worker"):
        stepmill.make(Env, num_envs=2)


def test_a_start_timeout_that_no_worker_can_meet_is_reported_by_the_pool() -> None:
    before = belongings()
    with pytest.raises(EnvTimeoutError, match="start_timeout=1e-06"):
        stepmill.make(Walk, num_envs=2, start_timeout=1e-6)
    assert left_since(before) == []


# ---- what is heard of it -------------------------------------------------------------------------

WAYS = ("print", "stderr", "log", "warning", "write", "printf")


@pytest.mark.parametrize("backend", ["inline", "process"])
def test_what_the_env_on_trial_says_is_not_shown(backend: str) -> None:
    finished = run(
        f"""
        import logging
        from support.envs.unmovable import Talkative
        import stepmill
        from stepmill.hosts import auto

        logging.basicConfig()
        auto._HEAVY_S = auto._MOST_S = 60.0
        auto.is_faster_in_processes = lambda cost, settings: {backend == "process"}
        with stepmill.make(Talkative, num_envs=2) as pool:
            assert pool.backend == {backend!r}
        """
    )
    said = finished.out + finished.err
    for way in WAYS:
        for what in ("constructor of 0", "constructor of 1", "close of 0", "close of 1"):
            assert said.count(f"{way}: {what}") == 1, (way, what, said)
    assert "reset" not in said
    assert "step of" not in said


@pytest.mark.parametrize("backend", ["inline", "process"])
def test_what_modules_say_when_they_are_loaded_is_shown_as_the_backend_does(
    verdict: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any, backend: str
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    name = f"greets_for_{backend}"
    text = "import sys\nfrom support.envs.unmovable import Walk\nclass Env(Walk): pass\n"
    text += "print('hello')\nprint('oh', file=sys.stderr)\n"
    (tmp_path / f"{name}.py").write_text(text)
    env_class = __import__(name).Env
    capfd.readouterr()
    with stepmill.make(env_class, num_envs=2, backend=backend):
        expected = capfd.readouterr()
    verdict(backend)
    with stepmill.make(env_class, num_envs=2) as pool:
        assert pool.backend == backend
        assert capfd.readouterr() == expected == (("hello\n", "oh\n") if backend == "process" else ("", ""))
        pool.call("close")
        pool.set_attr("count", 3)
        play(pool, 1)


# ---- what is left of it --------------------------------------------------------------------------


def test_nothing_is_left_where_the_calling_thread_is_chosen(verdict: Any) -> None:
    verdict("inline")
    before = belongings()
    with stepmill.make(Walk, num_envs=2) as pool:
        assert pool.backend == "inline"
        assert left_since(before) == []


def test_the_server_is_started_once_and_ends_with_the_choice() -> None:
    out = run_well(
        """
        from support.envs.unmovable import Recorded, Walk
        from support.envs.faulty import *
        from support.processes import *
        from support.waiting import *
        import subprocess, sys, tempfile
        import stepmill
        from stepmill.hosts import auto

        started = []
        popen = subprocess.Popen
        def counted(*args, **kwargs):
            started.append(args)
            return popen(*args, **kwargs)
        subprocess.Popen = counted
        auto._HEAVY_S = auto._MOST_S = 60.0
        for backend in ("inline", "process"):
            auto.is_faster_in_processes = lambda cost, settings: backend == "process"
            before = belongings()
            with stepmill.make(Walk, num_envs=2) as pool:
                print(pool.backend, len(started), len(descendants()) > 1)
            assert left_since(before) == [], left_since(before)
        with tempfile.TemporaryDirectory() as folder:
            with stepmill.make(Recorded, num_envs=2, folder=folder, mishap="dies", where="step") as pool:
                print(pool.backend, len(started), len(descendants()) > 1)
        """
    )
    assert out.splitlines() == ["inline 1 False", "process 2 True", "process 3 True"]


@pytest.mark.parametrize("where", ["constructor", "step"])
def test_ctrl_c_ends_a_trial(tmp_path: Path, where: str) -> None:
    gate = Gate(tmp_path, 1)
    code = f"""
        from support.envs.unmovable import Recorded
        from support.envs.faulty import *
        from support.processes import *
        from support.waiting import *
        import stepmill
        from stepmill.hosts import auto

        auto._HEAVY_S = auto._MOST_S = 60.0
        before = belongings()
        try:
            stepmill.make(Recorded, num_envs=2, folder={str(tmp_path)!r}, mishap="hangs", where={where!r})
        except KeyboardInterrupt:
            print("interrupted", left_since(before), flush=True)
        """
    try:
        with start(code) as process:
            gate.wait()
            assert eventually(lambda: len(descendants(process.pid)) == 3)  # server, template, the worker on trial
            process.send_signal(signal.SIGINT)
            out, err = process.communicate()
            assert (process.returncode, out, err) == (0, "interrupted []\n", "")
    finally:
        gate.close()
    assert len(lines(tmp_path)) == {"constructor": 1, "step": 2}[where], "nothing more was built"


def test_pools_are_made_by_several_threads_at_once(verdict: Any) -> None:
    verdict("inline")
    made: list[str] = []

    def work() -> None:
        with stepmill.make(Walk, num_envs=2) as pool:
            made.append(pool.backend)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert made == ["inline"] * 4


# ---- without a trial -----------------------------------------------------------------------------


@pytest.mark.usefixtures("no_trial")
def test_a_single_env_runs_in_the_calling_thread() -> None:
    with stepmill.make(Walk) as pool:
        assert pool.backend == "inline"


@pytest.mark.usefixtures("no_trial")
@pytest.mark.parametrize("num_envs", [1, 2])
@pytest.mark.parametrize("asked", [{"num_workers": 1}, {"step_timeout": 60.0}, {"reset_timeout": 60.0}], ids=str)
def test_what_only_processes_have_means_processes(asked: dict[str, Any], num_envs: int) -> None:
    with stepmill.make(Walk, num_envs=num_envs, **asked) as pool:
        assert pool.backend == "process"


class Makes:
    """A factory that is an object."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __call__(self) -> Any:
        return Walk()

    def make(self) -> Any:
        return Walk()


def walk_of(number: int) -> Any:
    return lambda: (Walk(), number)[0]


@pytest.mark.usefixtures("no_trial")
@pytest.mark.parametrize(
    "factories",
    [
        [Walk, Costly],
        [lambda: Walk(), lambda: Costly()],
        [walk_of(0), Walk],
        [functools.partial(walk_of(0)), functools.partial(Walk)],
        ["gymnasium:CartPole-v1", "gymnasium:CartPole-v0"],
    ],
    ids=["classes", "lambdas", "closure and class", "partials", "ids"],
)
@pytest.mark.filterwarnings("ignore:.*out of date")
def test_several_kinds_of_env_mean_processes(factories: Any) -> None:
    with stepmill.make(factories) as pool:
        assert pool.backend == "process"


@pytest.mark.parametrize(
    "factories",
    [
        [Walk, Walk],
        [walk_of(0), walk_of(1)],
        [functools.partial(walk_of, 0)(), functools.partial(walk_of, 1)()],
        [Makes(0), Makes(1)],
        [Makes(0).make, Makes(1).make],
        ["gymnasium:CartPole-v1", "gymnasium:CartPole-v1"],
    ],
    ids=["classes", "closures", "partials", "callables", "methods", "ids"],
)
def test_envs_that_the_same_code_builds_are_one_kind(verdict: Any, factories: Any) -> None:
    verdict("inline")
    with stepmill.make(factories) as pool:
        assert pool.backend == "inline"


def noted(number: Any) -> Any:
    return Walk()


NOT_ALIKE: dict[str, Any] = {
    "closures": ([walk_of(0), walk_of(1)], {}),
    "defaults": ([lambda number=number: Walk() for number in range(2)], {}),
    "arguments": ([functools.partial(noted, number) for number in range(2)], {}),
    "keywords": ([functools.partial(noted, number=number) for number in range(2)], {}),
    "arrays": ([functools.partial(noted, np.arange(2) + number) for number in range(2)], {}),
    "callables": ([Makes(0), Makes(1)], {}),
    "methods": ([Makes(0).make, Makes(1).make], {}),
    "configurations": (noted, {"env_config": [{"number": 0}, {"number": 1}]}),
}


@pytest.mark.usefixtures("no_trial")
@pytest.mark.parametrize("case", NOT_ALIKE)
def test_in_async_mode_envs_that_are_not_built_alike_mean_processes(case: str) -> None:
    task, arguments = NOT_ALIKE[case]
    with stepmill.make(task, num_envs=2, batch_size=1, **arguments) as pool:
        assert pool.backend == "process"


@pytest.mark.parametrize("case", NOT_ALIKE)
def test_in_sync_mode_the_same_code_is_enough(verdict: Any, case: str) -> None:
    verdict("inline")
    task, arguments = NOT_ALIKE[case]
    with stepmill.make(task, num_envs=2, **arguments) as pool:
        assert pool.backend == "inline"


@pytest.mark.parametrize(
    ("task", "arguments"),
    [
        (Walk, {}),
        (noted, {"number": 3}),
        (noted, {"env_config": [{"number": 1}, {"number": 1}]}),
        ([lambda: Walk() for _ in range(2)], {}),
        ([walk_of(7), walk_of(7)], {}),
        ([functools.partial(noted, number="x") for _ in range(2)], {}),
        (["gymnasium:CartPole-v1"] * 2, {}),
    ],
    ids=["class", "configuration", "configurations", "lambdas", "closures", "partials", "ids"],
)
def test_in_async_mode_envs_that_are_built_alike_are_one_kind(verdict: Any, task: Any, arguments: Any) -> None:
    verdict("inline")
    with stepmill.make(task, num_envs=2, batch_size=1, **arguments) as pool:
        assert pool.backend == "inline"


def test_envs_that_cannot_be_sent_run_in_the_calling_thread_and_the_user_is_told(caplog: Any) -> None:
    lock = threading.Lock()
    with caplog.at_level(logging.WARNING, "stepmill"), stepmill.make([lambda: (lock, Walk())[1]] * 2) as pool:
        assert pool.backend == "inline"
    assert "calling thread" in caplog.text
    assert "factory of env 0" in caplog.text
    with pytest.raises(ConfigError, match="factory of env 0"):
        stepmill.make([lambda: (lock, Walk())[1]] * 2, backend="process")


# ---- the decision --------------------------------------------------------------------------------


def test_cheap_envs_run_in_the_calling_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auto, "_HEAVY_S", LONG_S)
    monkeypatch.setattr(auto, "_MOST_S", LONG_S)
    with stepmill.make(Plain, num_envs=2) as pool:
        assert pool.backend == "inline"


def test_costly_envs_run_in_processes() -> None:
    with stepmill.make(Costly, num_envs=8, num_threads=2) as pool:
        assert pool.backend == "process"  # even on one core: they wait


@pytest.mark.parametrize(
    ("step_us", "info_us", "num_envs", "batch_size", "cores", "processes"),
    [
        (14, 0, 2, None, 2, False),  # CartPole on two cores
        (14, 0, 64, None, 2, True),
        (14, 0, 64, 32, 2, True),
        (10, 0, 8, None, 16, True),  # and where the caller has a core to itself
        (100, 0, 2, None, 2, True),
        (100, 0, 64, None, 2, True),
        (1, 0, 2, None, 16, False),
        (1, 0, 1000, None, 1, False),  # nobody to share the work with
        (1000, 0, 64, None, 1, False),
        (20, 12, 8, None, 2, False),  # infos have to be pickled
        (14, 0, 4, 2, 2, False),  # a worker per env, but no more cores for it
        (500, 0, 4, 2, 2, True),
        (500, 0, 3, 2, 1, False),
        (100, 0, 2, 1, 2, True),  # one at a time, while the other worker goes on
        (20, 0, 2, 1, 2, False),
    ],
)
def test_what_is_faster(
    monkeypatch: pytest.MonkeyPatch,
    step_us: float,
    info_us: float,
    num_envs: int,
    batch_size: int | None,
    cores: int,
    processes: bool,
) -> None:
    monkeypatch.setattr(auto._native, "available_cores", lambda: cores)
    asked = check_settings(num_envs=num_envs, batch_size=batch_size, reward_dtype="float64")
    assert auto.is_faster_in_processes(StepCost(step_us * 1e-6, info_us * 1e-6), asked) == processes


@pytest.mark.parametrize("where", ["constructor", "reset", "step", "close"])
def test_an_env_that_forks_is_not_for_the_calling_thread(where: str) -> None:
    """Both sides of the fork return: there the caller's program would go on twice."""
    out = run_well(
        f"""
        import os
        import stepmill
        from support.envs.unmovable import Walk

        class Forking(Walk):
            def fork(self, place):
                if place == {where!r}:
                    os.fork()

            def __init__(self):
                super().__init__()
                self.fork("constructor")

            def reset(self, **arguments):
                self.fork("reset")
                return super().reset(**arguments)

            def step(self, action):
                self.fork("step")
                return super().step(action)

            def close(self):
                self.fork("close")

        with stepmill.make(Forking, num_envs=2) as pool:
            print(pool.backend, flush=True)
        """
    )
    assert out.split() == ["process"]
