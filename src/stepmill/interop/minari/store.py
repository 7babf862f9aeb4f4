"""Where a collection is kept: first each finished episode by itself, in the end the whole data set.

Minari's storage appends to one file, and a program that is killed meanwhile leaves nothing of it that can be read. So
every episode has a storage of its own, in a hidden folder beside the data set, and a rename says that it is whole.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import minari
from minari.data_collector import EpisodeBuffer
from minari.dataset.minari_dataset import parse_dataset_id
from minari.dataset.minari_storage import MinariStorage
from minari.namespace import create_namespace, list_local_namespaces
from minari.storage.datasets_root_dir import get_dataset_path

from stepmill.errors import ConfigError, UsageError
from stepmill.interop.minari.origin import Origin
from stepmill.spec import PoolSpec


def path_of(name: Any) -> Path:
    """The folder of a data set."""
    try:
        parse_dataset_id(name)
    except (TypeError, ValueError):
        raise ConfigError(
            "name: expected the id of a data set with a version, and two characters or more before a '/', such as "
            f"'random-v0' or 'cartpole/random-v0', got {name!r}"
        ) from None
    with _explained(os.environ.get("MINARI_DATASETS_PATH", "~/.minari")):  # Minari makes it
        return Path(get_dataset_path(name)).absolute()  # Minari cannot write to a relative one


@contextlib.contextmanager
def _explained(folder: Path | str) -> Iterator[None]:
    """Says so if the folder of data sets cannot be written to."""
    try:
        yield
    except OSError as error:
        raise ConfigError(
            f"collect: cannot write to {folder}: {error.strerror}. MINARI_DATASETS_PATH names another folder"
        ) from error


class Store:
    """The data set of one collection, and the episodes of it that are there already.

    Args:
        name: The id of the data set.
        origin: What it is collected from: what is there must be of the same.
        episodes: How many episodes it is to have.
        spec: That of the pool, with the spaces of one env.
    """

    def __init__(self, name: str, origin: Origin, episodes: int, spec: PoolSpec) -> None:
        self._name, self._origin, self._episodes = name, origin, episodes
        self._spaces = spec.observation_space, spec.action_space
        self._path = path_of(name)
        self.folder = self._path.with_name(f".{self._path.name}.parts")  # hidden: Minari looks into all others

    # ---- the data set ------------------------------------------------------------------------

    def complete(self) -> tuple[Any, tuple[int, ...]] | None:
        """The data set and what it lacks, if all was done before. It is an error if there is another of that name."""
        if not self._path.exists():
            return None
        data = self._path / "data"
        metadata = MinariStorage.read_raw_metadata(data) if (data / "metadata.json").exists() else {}
        difference = self._origin.difference(metadata.get("collection"))
        if difference is None and metadata["episodes_asked_for"] != self._episodes:
            difference = f"episodes: there {metadata['episodes_asked_for']}, here {self._episodes}"
        if difference is not None:
            raise ConfigError(
                f"collect: there is another data set {self._name!r} in {self._path} already: {difference}. Use another "
                f"name, or delete it with minari.delete_dataset({self._name!r})"
            )
        self._origin.warn_of_unknown(str(self._path))
        self._remove_parts()  # of a call that was killed after it had finished the data set
        return minari.load_dataset(self._name), tuple(metadata["missing_episodes"])

    def assemble(self, numbers: list[int], metadata: dict[str, Any], env_spec: Any) -> Any:
        """Makes the data set of these episodes, in this order. It appears by one rename, and the parts go."""
        self._check_room()
        building = self._new_folder("dataset")
        storage = MinariStorage.new(building / "data", *self._spaces, env_spec, "hdf5", jpeg_encoding=False)
        storage.update_metadata(
            {
                "dataset_id": self._name,
                "minari_version": minari.__version__,
                "episodes_asked_for": self._episodes,
                "collection": self._origin.as_dict(),
                **metadata,
            }
        )
        storage.update_episodes(map(self._read, numbers))
        storage.update_episode_metadata([{"episode": number} for number in numbers])
        namespace = parse_dataset_id(self._name)[0]
        if namespace is not None and namespace not in list_local_namespaces():
            with contextlib.suppress(ValueError):  # another process has made it meanwhile
                create_namespace(namespace)
        os.rename(building, self._path)
        self._remove_parts()
        return minari.load_dataset(self._name)

    def _check_room(self) -> None:
        """Raises if the data set will not fit on the disk: HDF5 may end the whole program when it finds that out."""
        needed = sum(path.stat().st_size for path in self.folder.rglob("*.hdf5"))
        free = shutil.disk_usage(self.folder).free
        if needed > free:
            what = f"collect: expected room for a data set of about {needed:,} bytes, got {free:,}"
            raise OSError(errno.ENOSPC, what, str(self.folder))

    # ---- its parts ---------------------------------------------------------------------------

    @contextlib.contextmanager
    def opened(self) -> Iterator[None]:
        """Within it, this call is the only one that writes."""
        with _explained(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            lock = open(self.folder / "lock", "w")  # noqa: SIM115  # closed below
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise UsageError(f"collect: another call is collecting {self._name}, in {self.folder}") from None
            yield

    def claim(self) -> None:
        """Makes sure that the parts that are there belong to this collection."""
        note = self.folder / "origin.json"
        if not note.exists():
            draft = note.with_suffix(".draft")
            draft.write_text(json.dumps(self._origin.as_dict()), encoding="utf-8")
            os.replace(draft, note)
            return
        difference = self._origin.difference(_read_json(note))
        if difference is not None:
            raise ConfigError(
                f"collect: {self.folder} has episodes of another collection: {difference}. Use another name for the "
                "data set, or delete that folder"
            )
        self._origin.warn_of_unknown(str(self.folder))

    def waiting(self) -> list[int]:
        """The numbers of the episodes that are not there."""
        return [number for number in range(self._episodes) if not self._part(number).exists()]

    def keep(self, number: int, episode: EpisodeBuffer) -> None:
        """Writes a finished episode."""
        making = self._new_folder("part")
        storage = MinariStorage.new(making, *self._spaces, data_format="hdf5", jpeg_encoding=False)
        storage.update_episodes([episode])
        os.rename(making, self._part(number))

    def _read(self, number: int) -> EpisodeBuffer:
        storage = MinariStorage.read(self._part(number))
        (episode,), (metadata,) = storage.get_episodes([0]), storage.get_episode_metadata([0])
        return EpisodeBuffer(**{**episode, "id": None, "seed": metadata["seed"]})

    def _part(self, number: int) -> Path:
        return self.folder / f"episode-{number}"

    def _new_folder(self, name: str) -> Path:
        """An empty folder, instead of what a call that was killed has left there."""
        folder = self.folder / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        return folder

    def _remove_parts(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        return None  # damaged
