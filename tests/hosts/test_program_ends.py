"""What an env raises never ends the caller's program; and when that ends, daemon threads and pools end quietly."""

from __future__ import annotations

import contextlib
import sys
from typing import Any, NoReturn

import pytest

import stepmill
from stepmill import errors
from stepmill.managers import BaseEnvManager, SyncSubprocessEnvManager
from support.envs import ProbeTwin
from support.subprocesses import run
from support.waiting import ends

pytestmark = pytest.mark.usefixtures("server", "deadline")

BACKENDS = ("inline", "process")


class Strange(BaseException):
    """As a framework may have to end a program by."""


ENDS: dict[str, type[BaseException]] = {"exit": SystemExit, "generator": GeneratorExit, "strange": Strange}


class Quitter(ProbeTwin):
    """Ends the program wherever it is told to."""

    def __init__(self, where: str = "", how: str = "exit") -> None:
        super().__init__()
        self.where, self.how = where, how
        self.quit("constructor")

    def quit(self, where: str) -> None:
        if self.where == where:
            raise {**ENDS, "interrupt": KeyboardInterrupt}[self.how]()

    def talk(self) -> None:
        self.quit("talk")

    @property
    def mood(self) -> str:
        self.quit("mood")
        return "good"

    @mood.setter
    def mood(self, _: str) -> None:
        self.quit("mood")

    def render(self) -> Any:
        self.quit("render")

    def step(self, action: Any) -> Any:
        self.quit("step")
        return super().step(action)

    def reset(self, **arguments: Any) -> Any:
        self.quit("reset")
        return super().reset(**arguments)

    def close(self) -> None:
        self.quit("close")


CALLS: dict[str, tuple[str, Any]] = {
    "call": ("talk", lambda pool: pool.call("talk")),
    "get_attr": ("mood", lambda pool: pool.get_attr("mood")),
    "set_attr": ("mood", lambda pool: pool.set_attr("mood", "bad")),
    "render": ("render", lambda pool: pool.render()),
    "step": ("step", lambda pool: pool.step([0.0, 0.0])),
    "reset": ("reset", lambda pool: pool.reset()),
}


@pytest.mark.parametrize("how", ENDS)
@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("backend", BACKENDS)
def test_an_env_cannot_end_the_program(backend: str, name: str, how: str) -> None:
    where, call = CALLS[name]
    with stepmill.make(Quitter, num_envs=2, backend=backend) as pool:
        pool.reset()
        pool.set_attr("how", how)
        pool.set_attr("where", ["", where])
        with pytest.raises(errors.EnvError) as caught:
            call(pool)
        assert isinstance(caught.value.__cause__, ENDS[how])
        assert caught.value.env_id == 1
        pool.set_attr("where", "")
        pool.reset()
        assert pool.step([0.25, 0.5])[1].tolist() == [0.25, 0.5]


@pytest.mark.parametrize("name", CALLS)
def test_a_keyboard_interrupt_of_a_worker_is_its_envs(name: str) -> None:
    """Ctrl-C never reaches the workers."""
    where, call = CALLS[name]
    with stepmill.make(Quitter, num_envs=2, backend="process", how="interrupt") as pool:
        pool.reset()
        pool.set_attr("where", ["", where])
        with pytest.raises(errors.EnvError) as caught:
            call(pool)
        assert isinstance(caught.value.__cause__, KeyboardInterrupt)
        pool.set_attr("where", "")


@pytest.mark.parametrize("name", CALLS)
def test_ctrl_c_inside_of_an_env_of_the_caller_is_the_users(name: str) -> None:
    where, call = CALLS[name]
    with stepmill.make(Quitter, num_envs=2, backend="inline", how="interrupt") as pool:
        pool.reset()
        pool.set_attr("where", ["", where])
        with pytest.raises(KeyboardInterrupt):
            call(pool)
        pool.set_attr("where", "")
        if name in ("step", "reset"):
            with pytest.raises(errors.EnvError):
                pool.recv()
        pool.reset()


@pytest.mark.parametrize("how", ENDS)
@pytest.mark.parametrize("backend", [*BACKENDS, "spec"])
def test_a_constructor_cannot_end_the_program(backend: str, how: str) -> None:
    made = stepmill.make_spec if backend == "spec" else stepmill.make
    with pytest.raises(errors.EnvError, match="constructor") as caught:
        made(Quitter, num_envs=2, backend="auto" if backend == "spec" else backend, where="constructor", how=how)
    assert isinstance(caught.value.__cause__, ENDS[how])


@pytest.mark.parametrize("how", ENDS)
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_close_cannot_end_the_program(backend: str, how: str) -> None:
    pool = stepmill.make(Quitter, num_envs=2, backend=backend, where="close", how=how)
    with pytest.raises(errors.EnvError, match="close") as caught:
        pool.close()
    assert [type(one.__cause__) for one in caught.value.errors] == [ENDS[how]] * 2


class Quitting:
    """Ends the program when it is pickled, or unpickled."""

    def __init__(self, when: str) -> None:
        self.when = when

    def __reduce__(self) -> Any:
        return (leave, ()) if self.when == "load" else leave()


def leave() -> NoReturn:
    sys.exit("unpickled")


class Telling(ProbeTwin):
    info: Any = None

    def step(self, action: Any) -> Any:
        return (*super().step(action)[:4], self.info or {})

    def tell(self, when: str) -> None:
        self.info = {"quitting": Quitting(when), "kept": 1}

    def ask(self, when: str) -> Any:
        return Quitting(when)


@pytest.mark.parametrize("when", ["dump", "load"])
def test_what_quits_while_it_is_pickled_costs_an_info_or_an_answer(when: str) -> None:
    with stepmill.make(Telling, num_envs=2, num_workers=1, backend="process") as pool:
        pool.reset()
        pool.call("tell", when, env_ids=[1])
        told_here = pytest.warns(UserWarning, match="env 1 cannot be unpickled")
        with told_here if when == "load" else contextlib.nullcontext():  # else the worker tells
            _, reward, *_ = pool.step([0.25, 0.5])
        assert reward.tolist() == [0.25, 0.5]
        with pytest.raises(errors.StepmillError):
            pool.call("ask", when)
        assert pool.step([0.25, 0.5])[1].tolist() == [0.25, 0.5]
        assert pool.stats()["restarts"] == 0


@pytest.mark.parametrize("cls", [BaseEnvManager, SyncSubprocessEnvManager])
def test_an_env_of_a_manager_cannot_end_the_program(cls: Any) -> None:
    class Manager(cls):  # type: ignore[misc]
        method_name_list = ("talk",)

    with Manager([lambda: Quitter("talk")] * 2) as manager:
        manager.launch()
        with pytest.raises(errors.EnvError):
            manager.talk()
        with pytest.raises(errors.EnvError):
            Manager([lambda: Quitter("constructor")]).env_ref  # noqa: B018
    with pytest.raises(errors.EnvError):
        Manager([lambda: Quitter("reset")]).launch()


# ---- the end of the program itself ---------------------------------------------------------------

DAEMON = """
import os, sys, threading, time
import numpy as np
import stepmill
from stepmill.managers import BaseEnvManager, SyncSubprocessEnvManager
from support.envs import ProbeTwin

class Slow(ProbeTwin):
    def step(self, action):
        inside.set()
        never.wait()

inside, never = threading.Event(), threading.Event()

def forever(call):
    def loop():
        while True:
            call()
            went.set()
    went = threading.Event()
    threading.Thread(target=loop, daemon=True).start()
    return went

def pool_of(kind, view="gymnasium"):
    if kind == "native":
        return stepmill.make("Probe-v0", view, num_envs=2)
    return stepmill.make(ProbeTwin, view, num_envs=2, backend=kind)
"""


@pytest.mark.parametrize("view", ["gymnasium", "dm"])
@pytest.mark.parametrize("kind", ["native", "inline", "process"])
def test_a_daemon_thread_that_steps_a_pool_ends_without_a_word(kind: str, view: str) -> None:
    code = f"""
pool = pool_of({kind!r}, {view!r})
pool.reset()
forever(lambda: pool.step([0.0, 0.0])).wait()
"""
    finished = run(DAEMON + code, leak_warnings=False)
    assert (finished.code, finished.out, finished.err) == (0, "", "")


@pytest.mark.parametrize("cls", ["BaseEnvManager", "SyncSubprocessEnvManager"])
def test_a_daemon_thread_that_steps_a_manager_ends_without_a_word(cls: str) -> None:
    code = f"""
manager = {cls}([ProbeTwin] * 2)
manager.launch()
forever(lambda: manager.step({{one: 0.0 for one in manager.ready_obs_id}})).wait()
"""
    finished = run(DAEMON + code, leak_warnings=False)
    assert (finished.code, finished.out, finished.err) == (0, "", "")


def test_a_daemon_thread_whose_env_does_not_return_ends_without_a_word() -> None:
    code = """
pool = stepmill.make(Slow, num_envs=1, backend="inline")
pool.reset()
forever(lambda: pool.step([0.0]))
inside.wait()
"""
    finished = run(DAEMON + code, leak_warnings=False)
    assert (finished.code, finished.out, finished.err) == (0, "", "")


def test_workers_are_gone_after_a_program_with_a_daemon_thread() -> None:
    code = """
pool = pool_of("process")
pool.reset()
print(*(worker["pid"] for worker in pool.stats()["workers"]), flush=True)
forever(lambda: pool.step([0.0, 0.0])).wait()
"""
    finished = run(DAEMON + code, leak_warnings=False)
    assert (finished.code, finished.err) == (0, "")
    assert all(ends(int(pid)) for pid in finished.out.split())


def test_leaks_are_shown_where_they_are_asked_for() -> None:
    """So that the scripts of the other tests find ours."""
    code = """
pool = stepmill.make("Probe-v0", num_envs=2)
import ctypes
ctypes.pythonapi.Py_IncRef(ctypes.py_object(pool._engine))
"""
    assert "leaked" in run(DAEMON + code).err
    assert run(DAEMON + code, leak_warnings=False).err == ""
