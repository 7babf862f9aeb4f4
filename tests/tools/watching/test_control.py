"""Pausing and stepping a program that plays."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from stepmill.tools.watching.control import Control

pytestmark = pytest.mark.usefixtures("deadline")


class Player:
    """A thread that plays whenever it may, and counts."""

    def __init__(self, control: Control) -> None:
        self.control = control
        self.looks = 0
        self.ended = False
        self._changed = threading.Condition()
        self._played = 0
        self._thread = threading.Thread(target=self._play)
        self._thread.start()

    def _play(self) -> None:
        while not self.ended:
            self.control.wait(self._look)
            with self._changed:
                self._played += 1
                self._changed.notify_all()

    def _look(self) -> None:
        with self._changed:
            self.looks += 1
            self._changed.notify_all()

    def wait_until(self, condition: Callable[[], bool]) -> None:
        with self._changed:
            assert self._changed.wait_for(condition, timeout=30)

    @property
    def played(self) -> int:
        return self._played

    def end(self) -> None:
        self.ended = True
        self.control.turn("resume")
        self.control.turn("speed", None)
        self._thread.join()


@pytest.fixture
def player() -> Iterator[Player]:
    one = Player(Control(paused=True))
    yield one
    one.end()


def test_a_paused_player_steps_as_often_as_it_is_told(player: Player) -> None:
    for count in (1, 2, 3):
        player.control.turn("step")
        player.wait_until(lambda count=count: player.played == count)  # type: ignore[misc]
    player.control.nudge()
    player.wait_until(lambda: player.looks >= 1)  # it waits again
    assert player.played == 3
    assert player.control.paused


def test_it_goes_on_and_is_paused_again(player: Player) -> None:
    player.control.turn("resume")
    player.wait_until(lambda: player.played > 5)
    player.control.turn("pause")
    player.control.nudge()
    player.wait_until(lambda: player.looks >= 1)
    played = player.played
    player.control.nudge()
    player.wait_until(lambda: player.looks >= 2)
    assert player.played == played


def test_a_step_while_it_runs_pauses_it(player: Player) -> None:
    player.control.turn("resume")
    player.control.turn("step")
    assert player.control.paused
    player.control.nudge()
    player.wait_until(lambda: player.looks >= 1)


def test_its_speed_can_be_changed_while_it_waits_for_its_turn(player: Player) -> None:
    player.control.turn("speed", 0.001)
    player.control.turn("resume")
    player.wait_until(lambda: player.played >= 1)
    player.control.turn("speed", None)
    player.wait_until(lambda: player.played > 5)
