"""However a program ends, no game goes on, and no file is left: not in its folder, nor in those of the system."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from stepmill.zoo.vizdoom import start_game
from support.doom import is_game

pytest.importorskip("vizdoom")
pytestmark = pytest.mark.usefixtures("deadline")

PROGRAM = """
import os, sys
import numpy as np
import stepmill

pool = stepmill.make(sys.argv[1], backend=sys.argv[2], num_envs=2, num_workers=2 if sys.argv[2] == "process" else None)
pool.reset()
pool.step(pool.action_space.sample())
ids = []
if sys.argv[2] == "inline":
    ids = [one.get_instance_id() for one in pool.get_attr("game" if "Vizdoom" in sys.argv[1] else "_game")]
print(*ids, flush=True)
sys.stdin.readline()
if sys.argv[3] == "close":
    pool.close()
    print("closed", flush=True)
    sys.stdin.readline()
elif sys.argv[3] == "raise":
    raise SystemExit(3)
"""


def games_below(pid: int) -> list[int]:
    """The games among the descendants of a process."""
    found, todo = [], [pid]
    while todo:
        one = todo.pop()
        for task in Path(f"/proc/{one}/task").iterdir():
            todo += map(int, (task / "children").read_text().split())
        if is_game(one):
            found.append(one)
    return found


CASES = [
    ("Basic-v1", "inline", "close"),
    ("Basic-v1", "inline", "raise"),
    ("Basic-v1", "inline", "kill"),
    ("Basic-v1", "process", "kill"),
    ("VizdoomBasic-v1", "inline", "kill"),
]


@pytest.mark.parametrize(("id", "backend", "end"), CASES)
def test_nothing_is_left_behind(tmp_path: Path, id: str, backend: str, end: str) -> None:
    work, temporary = tmp_path / "work", tmp_path / "tmp"
    work.mkdir()
    temporary.mkdir()
    program = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, id, backend, end],
        cwd=work,
        env={**os.environ, "TMPDIR": str(temporary)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert program.stdin is not None
    assert program.stdout is not None
    try:
        instances = program.stdout.readline().split()
        games = games_below(program.pid)
        assert len(games) == 2
        for game in games:  # not even a crash can write a file
            assert os.readlink(f"/proc/{game}/cwd").endswith(" (deleted)")
        ends = [os.pidfd_open(game) for game in games]
        names = [one.name for one in Path("/dev/shm").iterdir() if any(one.name.endswith(id) for id in instances)]
        assert names == []  # already now
        assert list(work.iterdir()) == []
        if end == "kill":
            program.send_signal(signal.SIGKILL)
        else:
            print(file=program.stdin, flush=True)
        if end == "close":
            assert program.stdout.readline() == "closed\n"
        for pidfd in ends:
            select.select([pidfd], [], [])  # until the game has ended
            os.close(pidfd)
        assert list(work.iterdir()) == []
        assert [one for one in temporary.iterdir() if "doom" in one.name] == []
    finally:
        program.kill()
        program.communicate()


STARTS = """
import sys
import vizdoom
from stepmill.zoo.vizdoom.start import starting

game = vizdoom.DoomGame()
game.load_config(f"{vizdoom.scenarios_path}/basic.cfg")
game.set_window_visible(False)
with starting(game, "X", ""):
    game.init()
    print(game.get_instance_id(), flush=True)
    sys.stdin.readline()
"""


def test_a_start_that_fails_is_an_error_and_leaves_nothing() -> None:
    import vizdoom

    from stepmill.errors import ConfigError
    from stepmill.zoo.vizdoom.start import starting

    game = vizdoom.DoomGame()
    game.load_config(f"{vizdoom.scenarios_path}/basic.cfg")
    game.set_window_visible(False)
    instances = []

    def crash() -> None:
        with starting(game, "X", ""):
            game.init()
            instances.append(game.get_instance_id())
            game.close()
            raise vizdoom.ViZDoomErrorException("it crashed")

    with pytest.raises(ConfigError, match="X: the game does not start: it crashed"):
        crash()
    assert [one for one in Path("/dev/shm").iterdir() if one.name.endswith(instances[0])] == []


def test_what_a_process_leaves_that_is_killed_while_its_game_starts_the_next_one_removes(tmp_path: Path) -> None:
    program = subprocess.Popen(
        [sys.executable, "-c", STARTS], cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert program.stdout is not None
    try:
        instance = program.stdout.readline().strip()
        names = [one for one in Path("/dev/shm").iterdir() if one.name.endswith(instance)]
        assert len(names) == 4
        start_game.sweep()
        assert all(one.exists() for one in names)  # the game lives
        (game,) = [os.pidfd_open(one) for one in games_below(program.pid)]
    finally:
        program.kill()
        program.communicate()
    select.select([game], [], [])
    os.close(game)
    start_game.sweep()
    assert not any(one.exists() for one in names)
    assert list(tmp_path.iterdir()) == []
