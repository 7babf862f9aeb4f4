"""Work that no signal handler interrupts, in a thread of its own or in one that lasts."""

from __future__ import annotations

import os
import signal
import threading
import weakref
from functools import partial
from pathlib import Path

import pytest

from stepmill.system.uninterrupted import LastingThread, uninterrupted
from support.injection import Alarm, Alarms, at_every_point
from support.subprocesses import run_well
from support.waiting import eventually

pytestmark = pytest.mark.usefixtures("deadline")


class Owner:
    def __init__(self) -> None:
        self.thread = LastingThread()

    def work(self) -> None:
        uninterrupted(lambda _: repr(self), self.thread)


def tell(owner: Owner, told: list[str], _: int | None) -> None:
    told.append(repr(owner))


class Handled(RuntimeError):
    """What some handlers raise. An interpreter that can start no thread raises a RuntimeError too."""


@pytest.mark.parametrize("kind", ["one for each", "new", "known"])
@pytest.mark.parametrize("raised", [Alarm, Handled])
def test_work_ends_wherever_a_handler_raises(kind: str, raised: type[Exception]) -> None:
    """Also where it raises right after the wait for the other thread, of which there is only one piece of news."""
    known = LastingThread() if kind == "known" else None

    def attempt(alarms: Alarms) -> None:
        thread = LastingThread() if kind == "new" else known
        owner = Owner()
        done: list[str] = []
        work = partial(tell, owner, done)
        was_interrupted = False
        try:
            with alarms:
                uninterrupted(work, thread)
        except raised:
            was_interrupted = True
        assert was_interrupted or len(done) == 1
        assert uninterrupted(lambda _: 2, thread) == 2  # whatever came before
        assert len(done) <= 1
        gone = weakref.ref(owner)
        del owner, work
        assert eventually(lambda: gone() is None)  # the thread that was interrupted lets go of it soon

    assert at_every_point(attempt, __file__, raising=raised) > 5


def thread_of(thread: LastingThread) -> int:
    return uninterrupted(lambda _: threading.get_native_id(), thread)


def test_a_lasting_thread_is_always_the_same_and_ends_with_its_owner() -> None:
    thread = LastingThread()
    number = thread_of(thread)
    assert number != threading.get_native_id()
    assert thread_of(thread) == number
    here = Path("/proc/self/task", str(number))
    assert here.exists()
    del thread
    assert eventually(lambda: not here.exists())


def test_what_it_raised_is_raised_here_and_it_goes_on() -> None:
    thread = LastingThread()
    number = thread_of(thread)
    with pytest.raises(ZeroDivisionError):
        uninterrupted(lambda _: 1 // 0, thread)
    with pytest.raises(SystemExit):
        uninterrupted(lambda _: exit(1), thread)
    assert thread_of(thread) == number


def test_it_keeps_nothing_of_its_work() -> None:
    for _ in range(100):  # it lets go of it at some moment between two
        owner = Owner()
        owner.work()
        gone = weakref.ref(owner)
        del owner
        assert gone() is None


def test_work_that_comes_while_it_is_busy_has_another_thread() -> None:
    """A signal handler may use a pool whose caller waits for it."""
    thread = LastingThread()
    inner: list[int] = []
    begun, done = threading.Event(), threading.Event()

    def outer(_: int | None) -> int:
        begun.set()
        assert done.wait(60)
        return threading.get_native_id()

    def handle(*_: object) -> None:
        inner.append(thread_of(thread))
        done.set()

    before = signal.signal(signal.SIGUSR1, handle)
    try:
        helper = threading.Thread(target=lambda: begun.wait(60) and os.kill(os.getpid(), signal.SIGUSR1))
        helper.start()
        number = uninterrupted(outer, thread)
        helper.join()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert inner[0] not in (number, threading.get_native_id())
    assert thread_of(thread) == number


def test_in_a_forked_child_it_starts_anew() -> None:
    code = """
from stepmill.system.uninterrupted import LastingThread, uninterrupted
from support.processes import child, exit_code

thread = LastingThread()
uninterrupted(lambda _: None, thread)
print(exit_code(child(lambda: uninterrupted(lambda _: print("child", flush=True), thread))))
uninterrupted(lambda _: print("parent"), thread)
"""
    assert run_well(code).splitlines() == ["child", "0", "parent"]
