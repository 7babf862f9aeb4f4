"""Starts games. A game that cannot start is an error, and never the end of this process."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from stepmill.errors import ConfigError, ResourceError
from stepmill.zoo.vizdoom.private_folder import SHARED, START, private_folder
from stepmill.zoo.vizdoom.wads import maps_in

__all__ = ["GameStarter"]

_FAILURES = (
    *("ViZDoomErrorException", "ViZDoomUnexpectedExitException", "ViZDoomNoOpenALSoundException"),
    *("FileDoesNotExistException", "MessageQueueException", "SharedMemoryException"),
)
_TRIAL = Path(__file__).parent / "trial.py"
_TRIAL_S = 60
_SHARED_BYTES = 16 << 20  # a game's shared memory, and some to spare


class GameStarter:
    """Starts the game of one ``vizdoom.DoomGame``, and starts it again after it was closed.

    If a game ends before it has begun, ViZDoom 1.3.2 crashes in the process that started it. With the maps of ViZDoom's
    own wheel that does not happen. With others, a start is tried in another process first.

    Args:
        game: Configured, not running.
        name: Of the env, for messages.
        is_custom: Something besides the files of the game is not ViZDoom's own, such as arguments of the program.
    """

    def __init__(self, game: Any, name: str, is_custom: bool) -> None:
        self._game, self._name, self._is_custom = game, name, is_custom
        self._program = os.path.abspath(game.get_vizdoom_path() or _vizdoom().exe_path)

    def start(self) -> None:
        """Returns when the first episode has begun."""
        with self.starting():
            self._game.init()

    @contextlib.contextmanager
    def starting(self) -> Iterator[None]:
        """To call ``init`` in."""
        vizdoom = _vizdoom()
        self._check_files()
        _check_shared_memory(self._name)
        with private_folder(self._program, os.getpid()) as folder:
            self._game.set_vizdoom_path(str(folder / START))
            if not self._game.get_doom_config_path():
                self._game.set_doom_config_path(os.devnull)
            try:
                yield
            except tuple(getattr(vizdoom, name) for name in _FAILURES) as error:
                raise ConfigError(f"{self._name}: the game does not start: {error}") from error

    def _check_files(self) -> None:
        game = self._game
        data = _find_data(self._name, game.get_doom_game_path())
        game.set_doom_game_path(data)
        maps = [maps_in(self._name, "the game's data (iwad_path, doom_game_path)", data)]
        scenario = game.get_doom_scenario_path()
        if scenario:
            scenario = os.path.abspath(scenario)  # the game runs in another folder
            game.set_doom_scenario_path(scenario)
            maps.append(maps_in(self._name, "the scenario (wad_path, doom_scenario_path)", scenario))
        if not os.access(self._program, os.X_OK):
            raise ConfigError(f"{self._name}: expected the game's program, got {self._program!r}")
        known = [name for one in maps for name in one or ()]
        if None not in maps and game.get_doom_map().upper() not in known:
            raise ConfigError(
                f"{self._name}: expected one of the maps {', '.join(sorted(set(known)))}, got {game.get_doom_map()!r}"
            )
        files = [data, self._program, *([scenario] if scenario else [])]
        if self._is_custom or not all(map(_is_vizdooms_own, files)):
            stamps = tuple((one, os.stat(one).st_mtime_ns, os.stat(one).st_size) for one in files)
            _try_start(self._name, stamps, json.dumps(self._settings()), self._program)

    def _settings(self) -> dict[str, Any]:
        game = self._game
        return {
            "doom_game_path": game.get_doom_game_path(),
            "doom_scenario_path": game.get_doom_scenario_path(),
            "doom_map": game.get_doom_map(),
            "doom_skill": game.get_doom_skill(),
            "game_args": game.get_game_args(),
        }


@functools.lru_cache(64)
def _try_start(name: str, stamps: tuple[Any, ...], settings: str, program: str) -> None:
    """Raises if a game with these settings does not start. ``stamps``: asked again if a file changes."""
    with private_folder(program) as folder:
        given = json.dumps({"folder": str(folder), "path": sys.path, "settings": json.loads(settings)})
        trial = subprocess.Popen(
            [sys.executable, str(_TRIAL), given],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=folder,
            text=True,
            errors="replace",
        )
        try:
            output, _ = trial.communicate(timeout=_TRIAL_S)
        except subprocess.TimeoutExpired:
            raise ConfigError(
                f"{name}: the game does not start with {_shown(stamps)}: no sign of it in {_TRIAL_S} s"
            ) from None
        finally:
            trial.kill()  # the game ends with it
            trial.communicate()
    if trial.returncode != 0:
        said = " ".join(output.split()) or f"it ended with {trial.returncode}"
        raise ConfigError(f"{name}: the game does not start with {_shown(stamps)}: {said[-600:]}")


def _shown(stamps: tuple[Any, ...]) -> str:
    return " and ".join(repr(path) for path, *_ in stamps if not _is_vizdooms_own(path)) or "these options"


def _is_vizdooms_own(path: str) -> bool:
    return Path(path).is_relative_to(_vizdoom().root_path)


def _find_data(name: str, given: str) -> str:
    """The file that ViZDoom would find: as it is named, or in the working directory, or in ViZDoom's own."""
    names = [os.path.basename(given)] if given else ["doom2.wad", "freedoom2.wad"]
    places = [given] if given else []
    places += [os.path.join(folder, one) for folder in (os.curdir, _vizdoom().root_path) for one in names]
    for place in places:
        if os.path.isfile(place):
            return os.path.abspath(place)
    raise ConfigError(
        f"{name}: expected the game's data, {' or '.join(names)}, in the working directory or in "
        f"{_vizdoom().root_path}, found none. ViZDoom comes with Freedoom's; Doom's own are sold with the game"
    )


def _vizdoom() -> Any:
    import vizdoom

    return vizdoom


def _check_shared_memory(name: str) -> None:
    """Without memory, a game would crash, and this process with it."""
    needed = f"{name}: a game needs {_SHARED_BYTES >> 20} MB in {SHARED}"
    try:
        left = os.statvfs(SHARED)
    except OSError as error:
        raise ResourceError(
            f"{needed}, which is not there: {error.strerror}. Mount it: mount -t tmpfs -o size=1g tmpfs {SHARED}, or "
            "docker run --shm-size=1g"
        ) from error
    free = left.f_bavail * left.f_frsize
    if free < _SHARED_BYTES:
        raise ResourceError(
            f"{needed}, and {free >> 20} MB are left: make it larger (docker run --shm-size=1g), or use fewer envs"
        )
    if not os.access(SHARED, os.W_OK | os.X_OK):
        raise ResourceError(f"{needed}, where this user may not write: chmod 1777 {SHARED}")
