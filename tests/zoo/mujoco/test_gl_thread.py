"""The thread for OpenGL: what runs in it, and what a signal, a fork and the end do to it."""

from __future__ import annotations

import signal
import threading
import weakref
from collections.abc import Iterator

import pytest

from stepmill.errors import ClosedError
from stepmill.zoo.mujoco.drawer import GlThread
from support.subprocesses import run_well
from support.waiting import no_garbage_collection


class World:
    """Says where it is made and closed."""

    def __init__(self) -> None:
        self.idents = [threading.get_ident()]

    def close(self) -> None:
        self.idents.append(threading.get_ident())


@pytest.fixture
def thread() -> Iterator[GlThread[World]]:
    made = GlThread("gl", World)
    yield made
    made.end()


def test_everything_runs_in_one_thread(thread: GlThread[World]) -> None:
    idents = thread.run(lambda world: world.idents)
    seen = [thread.run(lambda world: threading.get_ident()) for _ in range(3)]
    thread.end()
    assert len({*idents, *seen}) == 1
    assert len(idents) == 2  # made, closed
    assert threading.get_ident() not in idents


def test_exceptions_arrive_and_keep_nothing_alive(thread: GlThread[World]) -> None:
    freed_in: list[int] = []

    class Context: ...

    def fail(world: World) -> None:
        context = Context()
        weakref.finalize(context, lambda: freed_in.append(threading.get_ident()))
        try:
            raise ValueError("inside")
        except ValueError as error:
            raise LookupError("outside") from error

    with pytest.raises(LookupError, match="outside") as caught:
        thread.run(fail)
    assert isinstance(caught.value.__cause__, ValueError)
    assert freed_in == [thread.run(lambda world: threading.get_ident())]


def test_a_signal_waits_for_the_end_of_the_work(thread: GlThread[World]) -> None:
    handled = threading.Event()
    done: list[bool] = []

    def handle(*_: object) -> None:
        if not handled.is_set():
            handled.set()
            raise KeyboardInterrupt

    def work(world: World) -> None:
        while not handled.wait(0.01):  # one that comes just before the main thread waits does not wake it
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        done.append(True)

    before = signal.signal(signal.SIGINT, handle)
    try:
        with pytest.raises(KeyboardInterrupt), no_garbage_collection():
            thread.run(work)
    finally:
        signal.signal(signal.SIGINT, before)
    assert done == [True]
    assert thread.run(lambda world: 5) == 5


def test_the_end_leaves_no_thread(thread: GlThread[World]) -> None:
    before = set(threading.enumerate())
    other = GlThread("gl", World)
    assert len(set(threading.enumerate()) - before) == 1
    for _ in range(2):
        other.end()
        assert set(threading.enumerate()) == before
    with pytest.raises(ClosedError):
        other.run(lambda world: None)


def test_a_forked_child_frees_nothing() -> None:
    out = run_well(
        """
        import gc, os, sys
        from stepmill.zoo.mujoco.drawer import GlThread

        class World:
            def close(self):
                print("closed", flush=True)

            def __del__(self):
                print("freed", flush=True)

        thread = GlThread("gl", World)
        thread.run(lambda world: None)
        child = os.fork()
        if child == 0:
            thread.end()
            del thread
            gc.collect()
            print("child", flush=True)
            sys.exit()
        assert os.waitpid(child, 0)[1] == 0
        """
    )
    assert out.split() == ["child", "closed", "freed"]
