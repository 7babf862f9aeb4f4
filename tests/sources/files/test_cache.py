"""What the cache of compiled libraries promises, without a compiler."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from stepmill.sources.files import cache as module
from stepmill.sources.files.cache import Cache, Entry, file_digest, key_of


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "stepmill" / "compiled"


def entry_of(source: Path, library: bytes = b"library") -> Entry:
    return Entry(library, {str(source): file_digest(str(source))}, ["g++"], 1.5, "careful")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "coin.h"
    path.write_text("class Coin;")
    return path


KEY = key_of({"some": "facts"})


def test_what_was_kept_is_found(folder: Path, source: Path) -> None:
    Cache().keep(KEY, entry_of(source))
    assert Cache().find(KEY) == entry_of(source)
    assert Cache().find(key_of({"other": "facts"})) is None
    assert folder.stat().st_mode & 0o777 == 0o700


def test_an_entry_counts_only_while_its_files_are_the_same(folder: Path, source: Path) -> None:
    Cache().keep(KEY, entry_of(source))
    source.write_text("class Coin {};")
    assert Cache().find(KEY) is None
    source.unlink()
    assert Cache().find(KEY) is None


def test_damaged_entries_do_not_count(folder: Path, source: Path) -> None:
    Cache().keep(KEY, entry_of(source))
    whole = (folder / KEY).read_bytes()
    for length in range(len(whole)):
        (folder / KEY).write_bytes(whole[:length])
        assert Cache().find(KEY) is None, length
    for place in range(0, len(whole), 3):
        changed = bytearray(whole)
        changed[place] ^= 1
        (folder / KEY).write_bytes(changed)
        found = Cache().find(KEY)
        assert found is None or found.library == b"library", place
    (folder / KEY).write_bytes(b"[1]\nlibrary")
    assert Cache().find(KEY) is None


@pytest.mark.parametrize("mode", [0o720, 0o702, 0o777])
def test_a_folder_that_others_may_write_to_is_not_used(folder: Path, source: Path, mode: int) -> None:
    Cache().keep(KEY, entry_of(source))
    folder.chmod(mode)
    assert Cache().folder is None
    assert Cache().find(KEY) is None
    Cache().keep(KEY, entry_of(source))  # no error
    with Cache().lock(KEY):
        pass


def test_the_folder_above_is_the_users_alone_too(folder: Path, source: Path) -> None:
    before = os.umask(0)
    try:
        Cache().keep(KEY, entry_of(source))
    finally:
        os.umask(before)
    assert folder.parent.stat().st_mode & 0o777 == 0o700
    assert Cache().find(KEY) is not None
    folder.parent.chmod(0o777)
    assert Cache().find(KEY) is None


def test_without_a_home_nothing_is_kept(monkeypatch: pytest.MonkeyPatch, source: Path) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", "")
    assert Cache().folder is None


def test_a_file_in_the_place_of_the_folder_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cache").write_text("in the way")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert Cache().folder is None


def test_a_full_disk_is_no_error_and_leaves_nothing(
    folder: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = Cache()

    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module.os, "replace", refuse)
    cache.keep(KEY, entry_of(source))
    assert cache.find(KEY) is None
    assert list(folder.iterdir()) == []


def test_old_entries_go_when_there_are_too_many(folder: Path, source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = Cache()
    keys = [key_of({"number": number}) for number in range(4)]
    for age, key in enumerate(keys[:3]):
        cache.keep(key, entry_of(source, bytes(1000)))
        os.utime(folder / key, (age, age))
    assert cache.find(keys[0]) is not None  # used just now: the second is the oldest
    monkeypatch.setattr(module, "MOST_BYTES", 4000)
    cache.keep(keys[3], entry_of(source, bytes(1000)))
    assert [cache.find(key) is not None for key in keys] == [True, False, True, True]


def hold(key: str, held: object, stay: object) -> None:
    with Cache().lock(key):
        held.set()  # type: ignore[attr-defined]
        stay.wait()  # type: ignore[attr-defined]


def test_a_lock_ends_with_its_owner_however_that_ends(folder: Path) -> None:
    Cache()
    context = multiprocessing.get_context("spawn")
    held, stay = context.Event(), context.Event()
    owner = context.Process(target=hold, args=(KEY, held, stay), daemon=True)
    owner.start()
    assert held.wait(60)
    assert owner.pid is not None
    os.kill(owner.pid, signal.SIGKILL)
    owner.join()
    with Cache().lock(KEY):  # does not wait for anybody
        pass
