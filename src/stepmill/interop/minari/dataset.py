"""From shards to a data set of Minari, which appears by one rename."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, Self

import minari
from minari.data_collector import EpisodeBuffer
from minari.dataset.minari_dataset import parse_dataset_id
from minari.dataset.minari_storage import MinariStorage
from minari.namespace import create_namespace, list_local_namespaces
from minari.storage.datasets_root_dir import get_dataset_path

from stepmill._version import __version__
from stepmill.errors import ConfigError
from stepmill.interop.minari.episode import Arrays
from stepmill.interop.minari.origin import Origin, env_spec
from stepmill.interop.minari.shards import Shards, explained_folder
from stepmill.values.trees import Tree, map_tree, tree_of
from stepmill.views.gymnasium import GymnasiumPool

__all__ = ["Description", "assemble", "existing_dataset", "path_of"]


class Description(NamedTuple):
    """What the user says about a data set, in Minari's words."""

    author: set[str]
    author_email: set[str]
    code_permalink: str | None
    description: str | None
    requirements: list[str]

    @classmethod
    def of(cls, author: Any, author_email: Any, code_permalink: Any, description: Any, requirements: Any) -> Self:
        """Checks all of it before anything is played."""
        for name, text in (("code_permalink", code_permalink), ("description", description)):
            if not isinstance(text, str | None):
                raise ConfigError(f"{name}: expected a text, got {text!r}")
        people = set(_texts("author", author)), set(_texts("author_email", author_email))
        return cls(*people, code_permalink, description, _texts("requirements", requirements))

    def as_metadata(self) -> dict[str, Any]:
        """What was given."""
        return {key: value for key, value in self._asdict().items() if value}


def _texts(name: str, given: str | Iterable[str] | None) -> list[str]:
    texts = [] if given is None else [given] if isinstance(given, str) or not isinstance(given, Iterable) else [*given]
    if not all(isinstance(one, str) for one in texts):
        raise ConfigError(f"{name}: expected a text, or several, got {given!r}")
    return texts


# ---- where it is ---------------------------------------------------------------------------------


def path_of(name: Any) -> Path:
    """The folder of a data set."""
    try:
        parse_dataset_id(name)
    except (TypeError, ValueError):
        raise ConfigError(
            "name: expected the id of a data set with a version, and two characters or more before a '/', such as "
            f"'random-v0' or 'cartpole/random-v0', got {name!r}"
        ) from None
    with explained_folder(os.environ.get("MINARI_DATASETS_PATH", "~/.minari")):  # Minari makes it
        return Path(get_dataset_path(name)).absolute()  # Minari cannot write to a relative one


def existing_dataset(path: Path, name: str, origin: Origin, episodes: int) -> tuple[Any, tuple[int, ...]] | None:
    """The data set, if this collection is complete. It is an error if there is another one of that name."""
    if not path.exists():
        return None
    metadata = MinariStorage.read_raw_metadata(path / "data") if (path / "data" / "metadata.json").exists() else {}
    difference = origin.difference(metadata.get("collection"))
    if difference is None and metadata["episodes_asked_for"] != episodes:
        difference = f"episodes: there {metadata['episodes_asked_for']}, here {episodes}"
    if difference is not None:
        raise ConfigError(
            f"collect: there is another data set {name!r} in {path} already: {difference}. Use another name, or delete "
            f"it with minari.delete_dataset({name!r})"
        )
    origin.warn_of_unknown(str(path))
    return minari.load_dataset(name), tuple(metadata["missing_episodes"])


# ---- how it is made ------------------------------------------------------------------------------


def assemble(
    path: Path,
    name: str,
    pool: GymnasiumPool,
    origin: Origin,
    about: Description,
    shards: Shards,
    episodes: int,
    missing: tuple[int, ...],
) -> Any:
    """Makes the data set of all episodes but the missing ones, and removes the shards."""
    building = shards.folder / "dataset"
    shutil.rmtree(building, ignore_errors=True)  # of an earlier call that was killed
    _check_room(shards)
    (building / "data").mkdir(parents=True)
    spaces = pool.spec.observation_space, pool.spec.action_space
    storage = MinariStorage.new(building / "data", *spaces, env_spec(pool), "hdf5", jpeg_encoding=False)
    storage.update_metadata(
        {
            "dataset_id": name,
            "minari_version": minari.__version__,
            "algorithm_name": origin.policy,
            "seed": origin.seed,
            "stepmill_version": __version__,
            "episodes_asked_for": episodes,
            "missing_episodes": list(missing),
            "collection": origin.as_dict(),
            **about.as_metadata(),
        }
    )
    numbers = sorted({*range(episodes)} - {*missing})
    forms = tree_of(spaces[0]), tree_of(spaces[1])
    storage.update_episodes(_buffer(shards.read(number), *forms) for number in numbers)
    storage.update_episode_metadata([{"episode": number} for number in numbers])
    _publish(building, path, name)
    shards.remove()
    return minari.load_dataset(name)


def _check_room(shards: Shards) -> None:
    """Raises if the data set will not fit on the disk: HDF5 may end the whole program when it finds that out."""
    needed = shards.size()
    free = shutil.disk_usage(shards.folder).free
    largest, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    if largest != resource.RLIM_INFINITY:
        free = min(free, largest)
    if needed > free:
        what = f"collect: expected room for a data set of about {needed:,} bytes, got {free:,}"
        raise OSError(errno.ENOSPC, what, str(shards.folder))


def _buffer(arrays: Arrays, observation: Tree, action: Tree) -> EpisodeBuffer:
    """An episode as Minari takes it."""
    return EpisodeBuffer(
        seed=int(arrays["seed"]),
        observations=_nested("observations", observation, arrays),
        actions=_nested("actions", action, arrays),
        rewards=arrays["rewards"],
        terminations=arrays["terminations"],
        truncations=arrays["truncations"],
        infos={},
    )


def _nested(name: str, form: Tree, arrays: Arrays) -> Tree:
    columns = _columns(name, arrays)
    return map_tree(lambda _: next(columns), form)


def _columns(name: str, arrays: Arrays) -> Iterator[Any]:
    number = 0
    while (column := arrays.get(f"{name}.{number}")) is not None:
        yield column.tolist() if column.dtype.kind == "U" else column  # texts are lists in Minari
        number += 1


def _publish(building: Path, path: Path, name: str) -> None:
    """Lets the data set appear, complete even after a power failure."""
    for file in sorted((building / "data").iterdir()):
        _flush(file)
    _flush(building / "data")
    _flush(building)
    namespace = parse_dataset_id(name)[0]
    if namespace is not None and namespace not in list_local_namespaces():
        with contextlib.suppress(ValueError):  # another process has made it meanwhile
            create_namespace(namespace)
    os.rename(building, path)
    _flush(path.parent)


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
