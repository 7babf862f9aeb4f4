"""What cannot work is an error that says so, in whichever process: never an exit, never a hang."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stepmill
from stepmill.errors import (
    ConfigError,
    EnvError,
    MissingConfigError,
    MissingPackageError,
    ResourceError,
    UnknownConfigError,
)
from support.doom import build, games_of

vizdoom = pytest.importorskip("vizdoom")
pytestmark = pytest.mark.usefixtures("clean_folder", "deadline")
BASIC = Path(vizdoom.scenarios_path, "basic.cfg").read_text()


def written(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def scrambled() -> bytes:
    """A WAD whose list of entries is right, and whose map is not."""
    data = bytearray(Path(vizdoom.scenarios_path, "basic.wad").read_bytes())
    for i in range(200, 1500):
        data[i] = (data[i] * 7 + 13) & 255
    return bytes(data)


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"cfg_path": "nowhere.cfg"}, ConfigError, "expected a .cfg file, got 'nowhere.cfg'"),
        ({"wad_path": "nowhere.wad"}, ConfigError, "the scenario's file .*nowhere.wad"),
        ({"iwad_path": "nowhere.wad"}, ConfigError, "expected the game's data, nowhere.wad"),
        ({"vzd_path": "nowhere"}, ConfigError, "expected the game's program"),
        ({"map_id": "map77"}, ConfigError, "expected a map that .* has, got 'map77'"),
        ({"img_height": 0}, ConfigError, "img_height: expected a whole number >= 1"),
        ({"img_height": 100_000, "img_width": 100_000}, ConfigError, "at most 256 MB"),
        ({"frame_skip": "4"}, ConfigError, "frame_skip"),
        ({"use_combined_action": 1}, ConfigError, "use_combined_action: expected True or False"),
        ({"force_speed": True}, ConfigError, "needs use_combined_action"),
        ({"reward_config": {"HELTH": (1, 1)}}, ConfigError, "got 'HELTH'"),
        ({"reward_config": {}, "reward_metric": {}}, ConfigError, "one option"),
        ({"delta_button_config": {"TURN_LEFT_RIGHT_DELTA": (2, 0, 1)}}, ConfigError, "that the scenario has"),
        ({"render_mode": "human"}, ConfigError, "render_mode"),
        ({"wad_path": 3}, ConfigError, "wad_path: expected a str"),
        ({"lmp_save_dir": "/dev/null/x"}, ConfigError, "lmp_save_dir: expected a folder"),
    ],
)
def test_options(given: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        build("Basic-v1", **given)


def test_keys_that_are_not_known() -> None:
    with pytest.raises(UnknownConfigError, match="did you mean 'img_height'"):
        stepmill.make("Basic-v1", image_height=3)
    for wrong in ({"foo_bar": 3}, {"screen_resolution": "RES_1X2"}):
        with pytest.raises(UnknownConfigError, match=f"got {next(iter(wrong))}="):
            stepmill.make_spec("VizdoomBasic-v1", screen_format="GRAY8", **wrong)
        with pytest.raises(UnknownConfigError, match=f"got {next(iter(wrong))}="):
            stepmill.make("VizdoomBasic-v1", **wrong)
    spec = stepmill.make_spec("VizdoomBasic-v1", screen_format="GRAY8", frame_skip=2)
    assert spec.observation_space["screen"].shape == (240, 320, 1)


@pytest.mark.parametrize("backend", ["inline", "process"])
def test_wrong_values_are_errors_before_any_env_is_made(backend: str) -> None:
    with pytest.raises(ConfigError, match=r"^frame_skip: expected a whole number >= 1, got 0"):
        stepmill.make("Basic-v1", backend=backend, frame_skip=0)


def test_a_scenario_must_be_named() -> None:
    with pytest.raises(MissingConfigError, match="needs cfg_path"):
        stepmill.make_spec("VizdoomCustom-v1")


def test_maps_that_vizdoom_does_not_have(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "envpool_assets", None)
    with pytest.raises(MissingPackageError, match="pip install envpool-assets"):
        build("D3Battle-v1")


def test_vizdoom_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stepmill.system.optional.is_installed", lambda package: package.name != "vizdoom")
    with pytest.raises(MissingPackageError, match=r"pip install 'stepmill\[vizdoom\]'"):
        stepmill.make("Basic-v1")


def test_data_that_is_sold() -> None:
    with stepmill.make("VizdoomDoomE1M1-S1-v0", backend="inline") as pool, pytest.raises(EnvError, match=r"doom\.wad"):
        pool.reset()


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (BASIC + "\nfoo_bar = 3\n", "Unsupported key: foo_bar in line"),
        (BASIC + "\nepisode_timeout = abc\n", "Unsigned int value expected"),
        (BASIC.replace("ATTACK", "ATTTACK"), "atttack"),
        ("\0 = = {", "has errors"),
        ("", "expected available_buttons"),
    ],
)
def test_a_broken_config(tmp_path: Path, config: str, message: str) -> None:
    path = written(tmp_path / "x.cfg", config)
    with pytest.raises(ConfigError, match=message):
        stepmill.make_spec("VizdoomCustom-v1", cfg_path=str(path))


@pytest.mark.parametrize("backend", ["inline", "process"])
def test_a_broken_wad(tmp_path: Path, backend: str) -> None:
    """Only the game can tell that it is broken. It ends, and the process that started it goes on."""
    path = written(tmp_path / "x.wad", scrambled())
    with pytest.raises(ConfigError, match=r"does not start with .*x\.wad"):
        stepmill.make("Basic-v1", backend=backend, wad_path=str(path))
    assert games_of(os.getpid()) == []


def test_a_game_that_hangs_at_its_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stepmill.zoo.vizdoom.start._TRIAL_S", 0.01)
    path = written(tmp_path / "x.wad", Path(vizdoom.scenarios_path, "basic.wad").read_bytes())
    with pytest.raises(ConfigError, match="no sign of it in"):
        build("Basic-v1", wad_path=path)


def test_too_little_shared_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stepmill.zoo.vizdoom.start._SHARED_BYTES", 1 << 60)
    with pytest.raises(ResourceError, match=r"got [0-9]+ MB: make it larger"):
        build("Basic-v1")
    with pytest.raises(ResourceError, match="--shm-size"):
        stepmill.make("Basic-v1", backend="inline")


def test_no_shared_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stepmill.zoo.vizdoom.start_game.SHARED", str(tmp_path / "shm"))
    with pytest.raises(ResourceError, match=r"shm, got 0 MB: .*mount -t tmpfs"):
        build("Basic-v1")


def test_a_game_that_is_killed_is_an_error_and_the_next_reset_starts_another() -> None:
    with stepmill.make("Basic-v1", backend="inline", seed=3) as pool:
        first, _ = pool.reset()
        (game,) = games_of(os.getpid())
        os.kill(game, signal.SIGINT)  # as Ctrl-C in a terminal does to all processes there
        pool.step(np.zeros((1, 3)))
        os.kill(game, signal.SIGKILL)
        with pytest.raises(EnvError, match="crash"):
            pool.step(np.zeros((1, 3)))
        again, _ = pool.reset(seed=3)
        np.testing.assert_array_equal(first, again)
        pool.step(np.zeros((1, 3)))
