"""Which env is drawn next, and the files of pictures."""

from __future__ import annotations

import numpy as np
import pytest

from stepmill.hosts.frames import Frame
from stepmill.tools.watching.looks import Looks, png_of


def draw(looks: Looks, ready: list[int], picked: set[int], now: float, step: int) -> list[int]:
    chosen = looks.next_envs(ready, picked)
    for env in chosen:
        looks.ask(env, (0, step), len(chosen))
    for env in chosen:
        looks.take(Frame(env, 0.001, np.zeros((8, 8, 3), np.uint8)), now)
    return chosen


def test_all_take_turns() -> None:
    looks = Looks([range(8)])
    looks.look("a", range(4, 8), None, 0.0)
    drawn = [draw(looks, looks.watched(0.1)[0], set(), 0.1, step) for step in range(8)]
    assert drawn == [[4], [5], [6], [7]] * 2


def test_every_worker_draws_one_at_a_time() -> None:
    looks = Looks([range(0, 2), range(2, 4)])
    assert looks.next_envs([0, 1, 2, 3], set()) == [0, 2]
    looks.ask(0, (0, 0), 2)
    assert looks.next_envs([1, 2, 3], set()) == [2]
    looks.take(Frame(0, 0.001, None, "failed"), 0.0)
    assert looks.next_envs([1], set()) == [1]


def test_a_picked_env_is_drawn_every_other_time() -> None:
    looks = Looks([range(8)])
    drawn = [draw(looks, [5, 0, 1, 2], {5}, 0.0, step)[0] for step in range(6)]
    assert drawn == [5, 0, 5, 1, 5, 2]


def test_an_env_that_has_not_moved_is_not_drawn_again() -> None:
    looks = Looks([range(2)])
    assert looks.is_new(0, (3, 7))
    looks.ask(0, (3, 7), 1)
    assert not looks.is_new(0, (3, 7))  # it is on its way
    looks.take(Frame(0, 0.001, "text"), 0.0)
    assert not looks.is_new(0, (3, 7))
    assert looks.is_new(0, (3, 8))


def test_what_nobody_looks_at_is_forgotten() -> None:
    looks = Looks([range(4000)])
    for number in range(1000):
        looks.look(f"browser {number}", [number], number, 0.0)
    assert len(looks.watched(0.0)[0]) <= 32
    looks.look("last", [1], None, 0.0)
    draw(looks, [1], set(), 0.0, 1)
    assert looks.shown(1) is not None
    assert looks.watched(60.0) == ([], set())
    assert looks.shown(1) is None


def test_it_says_how_far_apart_pictures_are() -> None:
    looks = Looks([range(2)])
    assert looks.seconds_between([0, 1], 0.0) is None
    for step in range(10):
        draw(looks, [0, 1], set(), step / 2, step)
    assert looks.seconds_between([0, 1], 5.0) == 1.0


@pytest.mark.parametrize("shape", [(1, 1, 3), (7, 5, 3), (84, 84, 3)])
def test_another_reader_finds_the_same_pixels_in_our_png_files(shape: tuple[int, ...]) -> None:
    cv2 = pytest.importorskip("cv2")
    picture = np.random.default_rng(3).integers(0, 256, shape, dtype=np.uint8)
    read = cv2.imdecode(np.frombuffer(png_of(picture), np.uint8), cv2.IMREAD_UNCHANGED)
    np.testing.assert_array_equal(read[:, :, ::-1], picture)
