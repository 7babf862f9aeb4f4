"""What is told of a picked env: as much as fits, in as little time, and without losing what a signal handler raises."""

from __future__ import annotations

import signal
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import stepmill
from stepmill.tools.watching.details import details_of
from support.envs.command import Painted
from support.watching import Client


class Counted:
    """Knows how often it was formatted."""

    times = 0

    def __repr__(self) -> str:
        Counted.times += 1
        return "one"


def told(value: Any) -> str:
    """The text of an info."""
    values = np.empty(1, object)
    values[0] = value
    return dict(details_of(0, np.zeros((1, 2)), {"env_id": np.array([0]), "note": values})["info"])["note"]


def as_dict(entries: list[Any]) -> dict[int, Any]:
    return dict(enumerate(entries))


def as_array(entries: list[Any]) -> np.ndarray:
    array = np.empty(len(entries), object)
    array[:] = entries
    return array


def inside(entries: list[Any]) -> Any:
    return {"a": (entries,)}


@pytest.mark.parametrize("kind", [list, tuple, set, as_dict, as_array, inside])
def test_of_many_entries_only_the_first_are_formatted(kind: Any) -> None:
    Counted.times = 0
    text = told(kind([Counted() for _ in range(10_000)]))
    assert Counted.times == text.count("one") == 20
    assert "... 10,000 in all" in text


def test_long_texts_and_deep_values_are_cut() -> None:
    assert told("a" * 10**6) == "a" * 1000
    assert told([b"a" * 10**6]).startswith("[b'aaa")
    deep: list[Any] = []
    for _ in range(10**4):
        deep = [deep]
    assert told(deep) == "[[[[...]]]]"
    assert len(told([["a" * 900] * 20] * 20)) == 1000


@pytest.mark.parametrize(
    "value",
    [1, 2.5, None, True, [], [1, "a"], (), (1,), (1, 2), {}, {"a": [1, {2}]}, set(), {3}, b"x", OrderedDict(a=1), 1j],
)
def test_small_values_are_as_python_writes_them(value: Any) -> None:
    assert told(value) == repr(value)


class Failing:
    def __repr__(self) -> str:
        raise RuntimeError("no words")


def test_what_has_no_text_says_so() -> None:
    assert told([Failing()]) == "cannot be shown: RuntimeError: no words"


class Struck(Exception):
    """What a signal handler raised."""


class Interrupted:
    """A signal comes while it is formatted, the first time."""

    def __init__(self) -> None:
        self.left = 1

    def __repr__(self) -> str:
        if self.left:
            self.left -= 1
            signal.raise_signal(signal.SIGUSR1)
        return "fine"


@pytest.fixture
def striking() -> Iterator[None]:
    def strike(*_: object) -> None:
        raise Struck

    old = signal.signal(signal.SIGUSR1, strike)
    yield
    signal.signal(signal.SIGUSR1, old)


@pytest.mark.usefixtures("striking")
@pytest.mark.parametrize("nested", [False, True])
def test_what_a_signal_handler_raises_passes_through(nested: bool) -> None:
    value = Interrupted()
    with pytest.raises(Struck):
        told([value] if nested else value)
    assert told(value) == "fine"


class Clock:
    now = 0.0


class Wordy:
    """Takes 200 ms to be formatted."""

    spent = 0.0

    def __repr__(self) -> str:
        Clock.now += 0.2
        Wordy.spent += 0.2
        return "at last"


class Telling(Painted):
    """A step takes 1 ms."""

    def step(self, action: Any) -> Any:
        Clock.now += 0.001
        return *super().step(action)[:4], {"note": Wordy()}


@pytest.mark.slow
@pytest.mark.usefixtures("deadline")
def test_texts_take_at_most_their_share(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that only the env turns."""
    monkeypatch.setattr("stepmill.tools.watching.observer.time.perf_counter", lambda: Clock.now)
    monkeypatch.setattr("stepmill.tools.watching.report.time.perf_counter", lambda: Clock.now)
    monkeypatch.setattr("stepmill.tools.watching.observer._LOOK_S", 0.0)
    with stepmill.make(Telling, num_envs=1, backend="inline") as pool:
        page = pool.watch(open_browser=False)
        client = Client(page)
        page._observer.book.native.look_every(0.0)
        pool.reset()
        start = Clock.now
        while Clock.now - start < 100:
            if int(Clock.now * 1000) % 400 < 4:
                client.state(picked=0)
            pool.step([0])
        assert ["note", "at last"] in client.state(picked=0)["picked"]["info"]
    assert 0.3 < Wordy.spent <= 0.01 * (Clock.now - start) + 0.2
