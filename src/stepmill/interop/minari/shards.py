"""Finished episodes, each in a file of its own, in a folder beside the data set.

A file is written under another name and renamed when it is whole. Its checksums tell whether it still is, after a
power failure for instance: a broken one counts as if it were not there.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Self

import numpy as np

from stepmill.errors import ConfigError, UsageError
from stepmill.interop.minari.episode import Arrays
from stepmill.interop.minari.origin import Origin

__all__ = ["Shards", "explained_folder", "opened_shards"]

_ORIGIN = "origin.json"
_PART = ".part"


@contextlib.contextmanager
def opened_shards(dataset: Path) -> Iterator[Shards]:
    """The shards of a data set that is being collected, for one process at a time."""
    shards = Shards.of(dataset)
    with explained_folder(shards.folder):
        shards.folder.mkdir(parents=True, exist_ok=True)
        lock = open(shards.folder / "lock", "w")  # noqa: SIM115  # closed below
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(f"collect: another call is collecting {dataset.name}, in {shards.folder}") from None
        yield shards


@contextlib.contextmanager
def explained_folder(folder: Path | str) -> Iterator[None]:
    """Says so if the folder of data sets cannot be written to."""
    try:
        yield
    except OSError as error:
        raise ConfigError(
            f"collect: cannot write to {folder}: {error.strerror}. MINARI_DATASETS_PATH names another folder"
        ) from error


class Shards:
    """A folder of finished episodes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def of(cls, dataset: Path) -> Self:
        """Those of a data set. The folder is hidden, since Minari looks for data sets in all others."""
        return cls(dataset.with_name(f".{dataset.name}.shards"))

    def claim(self, origin: Origin) -> None:
        """Makes sure that what is here belongs to this collection, and removes what an earlier one left half done."""
        for part in self.folder.glob(f"*{_PART}"):
            part.unlink()
        note = self.folder / _ORIGIN
        if not note.exists():
            self._put(_ORIGIN, json.dumps(origin.as_dict()).encode())
            return
        difference = origin.difference(_read_json(note))
        if difference is not None:
            raise ConfigError(
                f"collect: {self.folder} has episodes of another collection: {difference}. Use another name for the "
                "data set, or delete that folder"
            )
        origin.warn_of_unknown(str(self.folder))

    def missing(self, numbers: Iterable[int]) -> list[int]:
        """Those of the episodes that are not here, or are broken."""
        return [number for number in numbers if not _is_whole(self._path(number))]

    def write(self, number: int, arrays: Arrays) -> None:
        """Keeps an episode."""
        path = self._path(number)
        with _replacing(path) as part, open(part, "wb") as file:
            np.savez(file, **arrays)  # type: ignore[arg-type]

    def read(self, number: int) -> Arrays:
        """An episode that was kept."""
        with np.load(self._path(number), allow_pickle=False) as file:
            return dict(file)

    def size(self) -> int:
        """The bytes of all episodes."""
        return sum(path.stat().st_size for path in self.folder.glob("episode-*.npz"))

    def remove(self) -> None:
        """Removes the folder and all that is in it."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _path(self, number: int) -> Path:
        return self.folder / f"episode-{number}.npz"

    def _put(self, name: str, content: bytes) -> None:
        with _replacing(self.folder / name) as part:
            part.write_bytes(content)


@contextlib.contextmanager
def _replacing(path: Path) -> Iterator[Path]:
    part = path.with_name(path.name + _PART)
    yield part
    os.replace(part, path)


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        return None  # damaged


def _is_whole(path: Path) -> bool:
    try:
        with zipfile.ZipFile(path) as file:
            return file.testzip() is None
    except (FileNotFoundError, zipfile.BadZipFile, EOFError):
        return False
