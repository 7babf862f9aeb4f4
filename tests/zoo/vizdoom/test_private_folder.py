"""Folders in which games start, without a game."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from stepmill.zoo.vizdoom import private_folder as module
from stepmill.zoo.vizdoom.private_folder import private_folder


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stands for the folders of the system."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(module, "SHARED", tmp_path)
    module._sweep.cache_clear()
    return tmp_path


def begun_game(folder: Path) -> None:
    """What a game and what starts it leave there."""
    (folder / "instance").symlink_to("abc")
    (folder / "_vizdoom").mkdir()
    for name in module._SHARED_NAMES:
        (folder.parent / f"{name}abc").touch()


def test_a_folder_and_its_names_are_removed(temporary: Path) -> None:
    with private_folder("/bin/true", os.getpid()) as folder:
        assert (folder / "start").is_symlink()
        begun_game(folder)
    assert list(temporary.iterdir()) == []


def test_what_a_killed_process_left_is_removed(temporary: Path) -> None:
    left = temporary / "stepmill-doom-left"
    left.mkdir()
    (left / "lock").touch()  # which nobody holds
    begun_game(left)
    with private_folder("/bin/true"):
        assert not left.exists()
        assert [one for one in temporary.iterdir() if one.name.startswith("ViZDoom")] == []


def test_the_folder_of_another_start_is_left_alone(temporary: Path) -> None:
    with private_folder("/bin/true") as held:
        module._sweep.cache_clear()
        with private_folder("/bin/true"):
            assert (held / "start").is_symlink()
