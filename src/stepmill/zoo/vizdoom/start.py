"""Starts games that leave nothing behind. One that cannot start is an error, and never the end of this process.

A game of ViZDoom has three names in ``/dev/shm``, and a folder there in which it runs (``start_game.py``). Nobody needs
them once it runs: they are removed at once, and it can write no file after that. A process that is killed while its
game starts leaves them: the next one that starts a game removes them.

If a game ends before it has begun, ViZDoom 1.3.2 crashes in the process that started it. With ViZDoom's own files that
does not happen. With others, a start is tried in another process first.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import shlex
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import vizdoom

from stepmill.errors import ConfigError, ResourceError
from stepmill.zoo.vizdoom import start_game

_SHARED_BYTES = 16 << 20  # a game's shared memory, and some to spare
_TRIAL_S = 60
_FAILURES = (
    *(vizdoom.ViZDoomErrorException, vizdoom.ViZDoomUnexpectedExitException, vizdoom.ViZDoomNoOpenALSoundException),
    *(vizdoom.FileDoesNotExistException, vizdoom.MessageQueueException, vizdoom.SharedMemoryException),
)


@contextlib.contextmanager
def starting(game: Any, name: str, program: str, is_custom: bool) -> Iterator[None]:
    """A context to call ``init`` of a game in.

    Args:
        game: A configured ``vizdoom.DoomGame`` that is not running.
        name: The env's, for messages.
        program: The game's; empty for ViZDoom's own. A game that was started before does not know it any more.
        is_custom: Something besides the files of the game is not ViZDoom's own, such as its map.
    """
    files = _find_files(game, name, os.path.abspath(program or vizdoom.exe_path))
    _check_shared_memory(name)
    if is_custom or not all(map(_is_vizdooms_own, files)):
        keys = ("doom_game_path", "doom_scenario_path", "doom_map", "doom_skill", "game_args")
        settings = json.dumps({key: getattr(game, f"get_{key}")() for key in keys})
        _try_start(name, settings, tuple((one, os.stat(one).st_mtime_ns) for one in files))
    with _in_its_place(game, name, files[0]):
        yield


def _is_vizdooms_own(path: str) -> bool:
    return Path(path).is_relative_to(vizdoom.root_path)


def _find_files(game: Any, name: str, program: str) -> list[str]:
    """Returns the program of a game, its data and its scenario, if any. The paths hold in any working directory."""
    given, root = game.get_doom_game_path(), vizdoom.root_path
    names = [os.path.basename(given)] if given else ["doom2.wad", "freedoom2.wad"]
    places = [given, *(os.path.join(folder, one) for folder in ("", root) for one in names)]
    data = next(filter(os.path.isfile, places), None)  # as ViZDoom would find it
    if data is None:
        raise ConfigError(
            f"{name}: expected the game's data, {' or '.join(names)}, in the working directory or in {root}, found "
            "none. ViZDoom comes with Freedoom's; Doom's own are sold with the game"
        )
    scenario = game.get_doom_scenario_path()
    if not os.access(program, os.X_OK):
        raise ConfigError(f"{name}: expected the game's program, got {program!r}")
    if scenario and not os.access(scenario, os.R_OK):
        raise ConfigError(f"{name}: expected the scenario's file (wad_path), got {scenario!r}")
    game.set_doom_game_path(os.path.abspath(data))
    if scenario:
        game.set_doom_scenario_path(os.path.abspath(scenario))
    return [program, *(os.path.abspath(one) for one in (data, scenario) if one)]


def _check_shared_memory(name: str) -> None:
    """Without memory, a game would crash, and this process with it."""
    shared, free = start_game.SHARED, 0
    if os.access(shared, os.W_OK | os.X_OK):
        free = os.statvfs(shared).f_bavail * os.statvfs(shared).f_frsize
    if free < _SHARED_BYTES:
        raise ResourceError(
            f"{name}: expected {_SHARED_BYTES >> 20} MB for a game in {shared}, got {free >> 20} MB: make it larger "
            f"(docker run --shm-size=1g, or mount -t tmpfs -o size=1g tmpfs {shared}), or use fewer envs"
        )


@functools.lru_cache(64)
def _try_start(name: str, settings: str, stamps: tuple[tuple[str, int], ...]) -> None:
    """Raises if a game with these settings does not start. ``stamps``: it is tried again if a file changes."""
    (program, _), *wads = stamps
    _check_wads(name, [path for path, _ in wads], json.loads(settings)["doom_map"])
    code = "import sys; sys.path[:] = sys.argv[3:]; from stepmill.zoo.vizdoom import start; start.play(*sys.argv[1:3])"
    pipes: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    arguments = [sys.executable, "-c", code, settings, program, *sys.path]
    try:
        run = subprocess.run(arguments, timeout=_TRIAL_S, check=False, text=True, errors="replace", **pipes)
        said = " ".join(run.stdout.split()) or f"it ended with {run.returncode}"
        has_started = run.returncode == 0
    except subprocess.TimeoutExpired:
        has_started, said = False, f"no sign of it in {_TRIAL_S} s"
    if not has_started:
        start_game.sweep()
        own = [repr(path) for path, _ in stamps if not _is_vizdooms_own(path)]
        raise ConfigError(f"{name}: the game does not start with {' and '.join(own) or 'these options'}: {said[-600:]}")


def _check_wads(name: str, paths: list[str], wanted: str) -> None:
    """The game ignores files that it cannot read, and waits forever for a map that it does not have."""
    has_map = False
    for path in paths:
        data = Path(path).read_bytes()
        count, place = struct.unpack("<ii", data[4:12].ljust(8, b"\0"))
        if data[:4] in (b"IWAD", b"PWAD") and 0 < count <= (len(data) - place) // 16 and place >= 12:
            has_map = has_map or wanted.upper().encode().ljust(8, b"\0") in data[place:]
        elif data[:4] == b"PK\3\4":  # an archive, which it reads too
            has_map = True
        else:
            raise ConfigError(f"{name}: expected a WAD, got {path!r}, which is none, or broken")
    if not has_map:
        raise ConfigError(f"{name}: expected a map that {' or '.join(paths)} has, got {wanted!r}")


def play(settings: str, program: str) -> None:
    """Plays the beginning of two episodes: the second is begun in another way than the first. It may crash."""
    game = vizdoom.DoomGame()
    game.set_config(json.loads(settings))
    game.set_window_visible(False)
    game.set_mode(vizdoom.Mode.PLAYER)
    with _in_its_place(game, "a trial", program):
        game.init()
    game.new_episode()
    game.close()


@contextlib.contextmanager
def _in_its_place(game: Any, name: str, program: str) -> Iterator[None]:
    """Has ViZDoom start ``start_game.py``, by a script in memory."""
    start_game.sweep()
    script = os.memfd_create("start_game")
    try:
        command = shlex.join([sys.executable, "-IS", start_game.__file__, str(os.getpid()), program])
        os.write(script, f'#!/bin/sh\nexec {command} "$@"\n'.encode())
        game.set_vizdoom_path(f"/proc/{os.getpid()}/fd/{script}")
        if not game.get_doom_config_path():
            game.set_doom_config_path(os.devnull)
        yield
    except _FAILURES as error:
        raise ConfigError(f"{name}: the game does not start: {error}") from error
    finally:
        start_game.remove_files(game.get_instance_id())
        os.close(script)
