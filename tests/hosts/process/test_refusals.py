"""What the system or the pickler refuses is an error that says what to do, and leaves nothing behind."""

from __future__ import annotations

import errno
import itertools
import os
import pickle
import signal
import subprocess
import threading
from collections.abc import Iterator
from typing import Any, NoReturn

import gymnasium
import numpy as np
import pytest

import stepmill
from stepmill.errors import (
    ActionError,
    EnvError,
    InputError,
    OutOfMemoryError,
    ResetOptionError,
    ResourceError,
    StepmillError,
)
from stepmill.hosts.process.caller import child_process, servers
from stepmill.hosts.process.caller.child_process import Deadline
from stepmill.hosts.process.remote_error import describe
from stepmill.hosts.process.wire import Wire
from stepmill.system.refusals import explained_refusals, refusal
from support.envs import CountingEnv
from support.processes import parent_of, signal_to, worker_pids
from support.subprocesses import run
from support.waiting import ends, eventually

BACKENDS = ["inline", "process"]

# ---- limits of the system ------------------------------------------------------------------------

SWEEP = """
import os, resource, sys
import stepmill
from support.envs import CountingEnv
from stepmill.testing import end_servers
from support.processes import descendants
from support.waiting import eventually

def used():
    return len(os.listdir("/proc/self/fd"))

def sweep(limit, tries, now, kept):
    '''What comes of `make` under each of the limits: True where it made a pool.'''
    soft, hard = resource.getrlimit(limit)
    descriptors, processes = used(), len(descendants())
    made = []
    for one in tries:
        resource.setrlimit(limit, (now() + one, hard))
        try:
            with stepmill.make(CountingEnv, num_envs=2, num_workers=2, backend="process") as pool:
                pool.reset()
            made.append(True)
        except stepmill.StepmillError as error:
            made.append(False)
            said = str(error)
        finally:
            resource.setrlimit(limit, (soft, hard))
        error = pool = None
        end_servers()
        assert eventually(lambda: used() == descriptors), (one, os.listdir("/proc/self/fd"))
        assert eventually(lambda: len(descendants()) == processes), one
        if kept is not None:
            kept.step([0, 0])
    return made, said
"""


@pytest.mark.slow
def test_under_any_limit_of_descriptors_a_pool_is_made_or_an_error_says_what_to_do() -> None:
    finished = run(
        SWEEP
        + """
kept = stepmill.make(CountingEnv, num_envs=2, num_workers=2, backend="process")  # and its server with it
kept.reset()
made, said = sweep(resource.RLIMIT_NOFILE, range(-1, 40), used, kept)
assert made == sorted(made) and made[-1] and not made[0], made
assert "ulimit -n" in said, said
kept.close()
end_servers()
made, said = sweep(resource.RLIMIT_NOFILE, range(-1, 12), used, None)
assert not any(made)
assert "ulimit -n" in said, said
print("swept")
""",
        deadline=300.0,
    )
    assert (finished.code, finished.out) == (0, "swept\n"), finished


@pytest.mark.slow
def test_under_any_limit_of_addresses_a_pool_is_made_or_an_error_says_what_to_do() -> None:
    finished = run(
        SWEEP
        + """
def addresses():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[0]) * resource.getpagesize()

tries = [one << 20 for one in (4, 16, 48)]
made, said = sweep(resource.RLIMIT_AS, tries, addresses, None)
assert not any(made) and "ulimit -v" in said, (made, said)
resource.setrlimit(resource.RLIMIT_AS, (addresses() + (16 << 20), -1))
try:
    stepmill.make("CartPole-v1", num_envs=2)
except MemoryError as error:
    assert isinstance(error, stepmill.StepmillError) and "ulimit -v" in str(error), error
    print("swept")
""",
        deadline=300.0,
    )
    assert (finished.code, finished.out) == (0, "swept\n"), finished


def test_a_worker_that_cannot_be_started_again_says_why_and_what_to_do() -> None:
    finished = run(
        """
import os, resource
import stepmill
from support.envs import CountingEnv
from support.waiting import ends
from support.processes import signal_to, worker_pids

pool = stepmill.make(CountingEnv, num_envs=1, backend="process")
pool.reset()
(pid,) = worker_pids(pool)
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
signal_to(pid)
assert ends(pid)
for _ in range(2):
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) - 1, hard))
    try:
        pool.step([0])
    except stepmill.EnvError as error:
        said = str(error)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
assert "ulimit -n" in said, said
print([pool.step([0])[4]["elapsed_step"].tolist() for _ in range(2)])
""",
    )
    assert (finished.code, finished.out) == (0, "[[0], [1]]\n"), finished


def test_no_more_processes_for_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> NoReturn:
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    monkeypatch.setattr(subprocess, "Popen", refuse)
    monkeypatch.setattr(servers, "_servers", {})  # as if no pool were open
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(ResourceError, match=r"Resource temporarily unavailable.*ulimit -u.*pids\.max") as caught:
        stepmill.make(CountingEnv, backend="process")
    assert caught.value.errno == errno.EAGAIN
    assert eventually(lambda: len(os.listdir("/proc/self/fd")) == before)


def test_no_more_processes_for_a_template(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child_process, "_serials", itertools.repeat(7))
    one, other = Wire.pair()
    other.send(("refused", 7, describe(BlockingIOError(errno.EAGAIN, "no"))))
    with pytest.raises(ResourceError, match=r"could not be started.*ulimit -u"):
        child_process.ask_for_process(one, "worker", (), (), Deadline(10.0), lambda: None)
    one.close()
    other.close()


def test_what_is_no_refusal_passes() -> None:
    with pytest.raises(TimeoutError, match="mine") as caught, explained_refusals("making"):
        raise TimeoutError("mine")  # of a signal handler
    assert not isinstance(caught.value, StepmillError)
    with (
        pytest.raises(OutOfMemoryError, match=r"making: MemoryError.*ulimit -v") as memory,
        explained_refusals("making"),
    ):
        raise MemoryError
    assert (memory.value.errno, memory.value.strerror) == (errno.ENOMEM, os.strerror(errno.ENOMEM))
    assert str(refusal(errno.EACCES, "memfd_create")) == "memfd_create. The operating system does not allow it"


@pytest.mark.parametrize("seconds", [1e7, 1e10, 1e300])
def test_a_limit_longer_than_poll_takes_is_a_limit_too(seconds: float) -> None:
    limits = dict.fromkeys(("start_timeout", "step_timeout", "reset_timeout"), seconds)
    with stepmill.make(CountingEnv, num_envs=2, backend="process", **limits) as pool:
        pool.reset()
        pool.step([0, 0])
        pool.send([0, 0])
        pool.recv(timeout=seconds)
        (pid, *_) = worker_pids(pool)
        signal_to(pid)
        assert ends(pid)
        with pytest.raises(EnvError):
            pool.step([0, 0])
        pool.reset()


# ---- what was passed to a call -------------------------------------------------------------------


@pytest.fixture(params=[*BACKENDS, "native"])
def pool(request: pytest.FixtureRequest) -> Iterator[Any]:
    native = request.param == "native"
    backend = {} if native else {"backend": request.param}
    with stepmill.make("CartPole-v1" if native else CountingEnv, num_envs=2, **backend) as made:
        made.reset()
        yield made


@pytest.mark.parametrize("name", [5, None, b"render", ["render"]])
def test_a_name_that_is_no_text(pool: Any, name: Any) -> None:
    for call in (lambda: pool.call(name), lambda: pool.get_attr(name), lambda: pool.set_attr(name, 1)):
        with pytest.raises(InputError, match=r"expected the name of an attribute or a method, got "):
            call()
    pool.step([0, 0])


class Anything(gymnasium.spaces.Space[Any]):
    """Whatever there is."""

    def contains(self, value: Any) -> bool:
        return True

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Anything)

    __hash__ = None  # type: ignore[assignment]


class TakesAnything(CountingEnv):
    """Its actions are objects."""

    def __init__(self) -> None:
        super().__init__()
        self.action_space = Anything()


def test_what_cannot_be_pickled_is_refused_and_changes_nothing() -> None:
    lock = threading.Lock()
    with stepmill.make(TakesAnything, num_envs=2, backend="process") as pool:
        pool.reset()
        calls = {
            "set_attr('x'": (InputError, lambda: pool.set_attr("x", [1, lock])),
            "call('reset'": (InputError, lambda: pool.call("reset", options={"a": lock})),
            "reset options": (ResetOptionError, lambda: pool.reset(options={"a": lock})),
            "action": (ActionError, lambda: pool.step([1, lock])),
        }
        for words, (kind, call) in calls.items():
            with pytest.raises(kind, match=r"sent to a worker process: TypeError.*use backend='inline'") as caught:
                call()
            assert str(caught.value).startswith(words)
            assert isinstance(caught.value.__cause__, TypeError)
        assert pool.step([1, "2"])[4]["elapsed_step"].tolist() == [1, 1]
        with pytest.raises(AttributeError):
            pool.get_attr("x")


def test_a_signal_while_something_is_pickled_is_not_taken_for_its_failure() -> None:
    class Slow:
        """Something comes up the first time it is pickled."""

        times = 0

        def __reduce__(self) -> Any:
            Slow.times += 1
            if Slow.times == 1:
                raise TimeoutError("of a handler")
            return int, ()

    with stepmill.make(CountingEnv, backend="process") as pool, pytest.raises(TimeoutError, match="of a handler"):
        pool.set_attr("x", Slow())


def test_a_refusal_can_be_pickled() -> None:
    copy = pickle.loads(pickle.dumps(refusal(errno.EMFILE, "pipe2")))
    assert isinstance(copy, ResourceError)
    assert copy.errno == errno.EMFILE
    assert "ulimit -n" in str(copy)


# ---- processes that somebody stopped -------------------------------------------------------------


@pytest.mark.parametrize("who", ["template", "server"])
@pytest.mark.usefixtures("deadline")
def test_a_stopped_process_that_starts_workers_is_resumed(who: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Or it would be killed, and all be well in the end.
    for limit in ("launcher._FORK_S", "child_process.END_S", "handles.END_S"):
        monkeypatch.setattr(f"stepmill.hosts.process.caller.{limit}", 1e6)
    with stepmill.make(CountingEnv, num_envs=2, num_workers=2, backend="process", on_error="restart") as pool:
        pool.reset()
        template = parent_of(worker_pids(pool)[0])
        stopped = template if who == "template" else parent_of(template)
        signal_to(stopped, signal.SIGSTOP)
        if who == "server":
            with stepmill.make(CountingEnv, backend="process") as other:
                other.reset()
        signal_to(stopped, signal.SIGSTOP)
        victim, kept = worker_pids(pool)
        signal_to(victim)
        assert eventually(lambda: pool.step(np.zeros(2, np.int64))[4].get("abnormal", [False])[0])
        assert eventually(lambda: "abnormal" not in pool.step(np.zeros(2, np.int64))[4])
        assert worker_pids(pool)[1] == kept
        assert parent_of(worker_pids(pool)[0]) == template
        signal_to(stopped, signal.SIGSTOP)
