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
_KNOWN_ARGUMENTS = ("", "-deathmatch", "+sv_noautoaim 1")  # of ViZDoom's own scenarios
_FAILURES = (
    *(vizdoom.ViZDoomErrorException, vizdoom.ViZDoomUnexpectedExitException, vizdoom.ViZDoomNoOpenALSoundException),
    *(vizdoom.FileDoesNotExistException, vizdoom.MessageQueueException, vizdoom.SharedMemoryException),
)


@contextlib.contextmanager
def starting(game: Any, name: str, program: str) -> Iterator[None]:
    """A context to call ``init`` of a game in.

    Args:
        game: A configured ``vizdoom.DoomGame`` that is not running.
        name: The env's, for messages.
        program: The game's; empty for ViZDoom's own. A game that was started before does not know it any more.
    """
    program = os.path.abspath(program or vizdoom.exe_path)
    if not os.access(program, os.X_OK):
        raise ConfigError(f"{name}: expected the game's program, got {program!r}")
    files = [program, *_find_wads(game, name)]
    check_wads(name, files[1:], game.get_doom_map())
    _check_shared_memory(name)
    is_vizdooms_own = all(Path(one).is_relative_to(vizdoom.root_path) for one in files)
    if not is_vizdooms_own or game.get_game_args().strip() not in _KNOWN_ARGUMENTS:
        keys = ("doom_game_path", "doom_scenario_path", "doom_map", "doom_skill", "game_args")
        settings = json.dumps({key: getattr(game, f"get_{key}")() for key in keys})
        _try_start(name, settings, program, tuple(os.stat(one).st_mtime_ns for one in files))
    with _in_its_place(game, program):
        try:
            yield
        except _FAILURES as error:
            raise ConfigError(f"{name}: the game does not start: {error}") from error


@contextlib.contextmanager
def _in_its_place(game: Any, program: str) -> Iterator[None]:
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
    finally:
        if game.is_running():
            start_game.remove_files(game.get_instance_id())
        else:
            start_game.sweep()
        os.close(script)


@functools.lru_cache(64)
def _try_start(name: str, settings: str, program: str, stamps: tuple[int, ...]) -> None:
    """Raises if a game with these settings does not start. ``stamps``: it is tried again if a file changes."""
    is_well, said = run_apart("from stepmill.zoo.vizdoom import start; start.play(*arguments)", settings, program)
    if not is_well:
        start_game.sweep()
        raise ConfigError(f"{name}: the game does not start with {settings}: {said[-600:]}")


def run_apart(code: str, *arguments: str) -> tuple[bool, str]:
    """Runs code in another process, which may crash or hang. Returns whether it ended well, and what it said."""
    code = f"import json, sys; arguments, sys.path[:] = json.loads(sys.argv[1]); {code}"
    command = [sys.executable, "-c", code, json.dumps([arguments, sys.path])]
    pipes: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    try:
        run = subprocess.run(command, timeout=_TRIAL_S, check=False, text=True, errors="replace", **pipes)
    except subprocess.TimeoutExpired:
        return False, f"no sign of it in {_TRIAL_S} s"
    return run.returncode == 0, " ".join(run.stdout.split()) or f"it ended with {run.returncode}"


def play(settings: str, program: str) -> None:
    """Plays the beginning of two episodes: the second is begun in another way than the first. It may crash."""
    game = vizdoom.DoomGame()
    game.set_config(json.loads(settings))
    game.set_window_visible(False)
    game.set_mode(vizdoom.Mode.PLAYER)
    with _in_its_place(game, program):
        game.init()
    game.new_episode()
    game.close()


def _find_wads(game: Any, name: str) -> list[str]:
    """Returns the game's data and its scenario, if any, by paths that hold in any working directory."""
    given, root = game.get_doom_game_path(), vizdoom.root_path
    names = [os.path.basename(given)] if given else ["doom2.wad", "freedoom2.wad"]
    places = [given, *(os.path.join(folder, one) for folder in ("", root) for one in names)]
    data = next(filter(os.path.isfile, places), None)  # as ViZDoom would find it
    if data is None:
        raise ConfigError(
            f"{name}: expected the game's data, {' or '.join(names)}, in the working directory or in {root}, found "
            "none. ViZDoom comes with Freedoom's; Doom's own are sold with the game"
        )
    game.set_doom_game_path(os.path.abspath(data))
    if scenario := game.get_doom_scenario_path():
        game.set_doom_scenario_path(os.path.abspath(scenario))
    return [os.path.abspath(one) for one in (data, scenario) if one]


def check_wads(name: str, paths: list[str], wanted: str) -> None:
    """The game ignores files that it cannot read, and waits forever for a map that it does not have."""
    has_map = False
    for path in paths:
        if not os.access(path, os.R_OK):
            raise ConfigError(f"{name}: expected the scenario's file (wad_path), got {path!r}")
        with open(path, "rb") as file:
            head = file.read(12).ljust(12, b"\0")
            count, place = struct.unpack("<ii", head[4:])
            if head[:4] in (b"IWAD", b"PWAD") and 0 < count <= (os.path.getsize(path) - place) // 16 and place >= 12:
                file.seek(place)  # the list of what it has
                has_map = has_map or wanted.upper().encode().ljust(8, b"\0") in file.read()
            elif head[:4] == b"PK\3\4":  # an archive, which it reads too
                has_map = True
            else:
                raise ConfigError(f"{name}: expected a WAD, got {path!r}, which is none, or broken")
    if not has_map:
        raise ConfigError(f"{name}: expected a map that {' or '.join(paths)} has, got {wanted!r}")


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
