"""Files from which a pool goes on: everything that decides its future, and what ``make`` was given.

::

    stepmill checkpoint FORMAT VERSION BYTES CHECKSUM       one line, which is checked before anything else is read
    a pickle of that many bytes: the arguments of ``make``, states of envs, rows that nobody has received, counts

It is written to a file at the side, which takes the place of the former one when it is complete.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import io
import os
import pickle
import re
import stat
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, BinaryIO, NamedTuple

from stepmill._version import __version__
from stepmill.errors import InputError, ResourceError, StateError, summary
from stepmill.hosts.saving import PoolMemory
from stepmill.settings import SETTINGS, Settings, check_settings
from stepmill.values.saved_states import configuration_text

FORMAT = 1
MAY_DIFFER = ("num_threads", "num_workers", "backend")  # how envs run, rather than what they do
Place = str | os.PathLike[str] | BinaryIO

_HEAD = re.compile(rb"stepmill checkpoint (\d{1,9}) (\S{1,40}) (\d{1,18}) ([0-9a-f]{8})\n")
_MOST_HEAD = 120
_MOST_READ = 1 << 28  # at a time: the size in the file may be any number


# ---- what make was given -------------------------------------------------------------------------


class _Given(NamedTuple):
    """An argument that may be anything: pickled by name, or why it cannot be."""

    content: bytes | None
    why_not: str

    @classmethod
    def of(cls, value: Any) -> _Given:
        try:
            return cls(pickle.dumps(value, pickle.HIGHEST_PROTOCOL), "")
        except Exception as error:
            return cls(None, summary(error))

    def read(self, name: str, how: str) -> Any:
        why = self.why_not
        if self.content is not None:
            try:
                return pickle.loads(self.content)
            except Exception as error:
                why = summary(error)
        raise StateError(f"resume: the {name} of the checkpointed pool cannot be imported here ({why}): pass {how}")


@dataclass(frozen=True)
class MakeArguments:
    """What a pool was made with.

    Attributes:
        task: An id, a class, a factory, or a list of them.
        config: The envs' own configuration, for all of them.
        settings: All settings; those of ``MAY_DIFFER`` as the user gave them.
    """

    task: Any
    env_type: str
    env_config: Any
    config: Mapping[str, Any]
    settings: Mapping[str, Any]

    @classmethod
    def of(
        cls, task: Any, env_type: str, env_config: Any, config: Any, given: Any, settings: Settings
    ) -> MakeArguments:
        all_of_them = {name: getattr(settings, name) for name in SETTINGS}
        all_of_them |= {name: given[name] for name in MAY_DIFFER}
        return cls(task, env_type, env_config, config, all_of_them)

    def packed(self) -> dict[str, Any]:
        return {
            **{field.name: getattr(self, field.name) for field in fields(self)},
            **{name: _Given.of(getattr(self, name)) for name in ("task", "env_config", "config")},
        }


def arguments_for(packed: Mapping[str, Any], task: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of ``make`` for a pool that goes on, from those of the former one and those of ``resume``."""
    settings, own = dict(packed["settings"]), dict(given)
    backend = own.get("backend", settings["backend"])
    if (backend == "cuda") != (settings["backend"] == "cuda"):
        raise StateError(
            f"resume: backend={backend!r} was given, and the checkpoint is of a pool with "
            f"backend={settings['backend']!r}: what is saved of envs on a GPU, and of others, goes on there alone"
        )
    if "backend" in own:  # what was said about threads and workers was said about the other one
        settings |= {"num_threads": None, "num_workers": None}
    may_differ = (*MAY_DIFFER, "device") if backend == "cuda" else MAY_DIFFER  # another GPU does the same
    settings |= {name: own.pop(name) for name in may_differ if name in own}
    _refuse("env_type", packed["env_type"], own.pop("env_type", packed["env_type"]))
    for name in [name for name in own if name in SETTINGS]:
        value = own.pop(name)
        if name == "seed" and value is None:
            raise _differs("seed=None was given, which draws one", repr(list(settings[name])))
        _refuse(name, settings[name], _checked(name, value, settings))
    env_config = own.pop("env_config", None)
    if env_config is None or packed["env_config"].content is not None:
        known = packed["env_config"].read("env_config", "env_config=...")
        _refuse("env_config", known, known if env_config is None else env_config)
        env_config = known
    config = own
    if packed["config"].content is not None:
        config = packed["config"].read("configuration", "all of its keys, such as key=value")
        for name, value in own.items():
            if name not in config:
                raise _differs(f"{name}={value!r} was given", "no such argument")
            _refuse(name, config[name], value)
    if task is None:
        task = packed["task"].read("task", "it: stepmill.resume(path, task=...)")
    return {"task_id": task, "env_type": packed["env_type"], "env_config": env_config, **settings, **config}


def _checked(name: str, value: Any, settings: Mapping[str, Any]) -> Any:
    """A setting as ``make`` would understand it, beside those that it depends on."""
    beside = {key: settings[key] for key in ("num_envs", "output", "device")}
    return getattr(check_settings(reward_dtype="float64", **{**beside, name: value}), name)


def _refuse(name: str, mine: Any, given: Any) -> None:
    """Raises if something was given that is not what it was."""
    if name == "seed":
        mine, given = list(mine), list(given)
    if configuration_text({"": mine}) != configuration_text({"": given}):
        raise _differs(f"{name}={given!r} was given", repr(mine))


def _differs(given: str, mine: str) -> StateError:
    return StateError(f"resume: {given}, and the checkpoint has {mine}: only {', '.join(MAY_DIFFER)} may differ")


# ---- the file ------------------------------------------------------------------------------------


class Checkpoint(NamedTuple):
    """What a checkpoint holds.

    Attributes:
        arguments: What ``MakeArguments.packed`` returns.
        memory: Of the engine and its envs.
        rollouts: Of ``pool.rollout``; None if it was never called.
    """

    arguments: dict[str, Any]
    memory: PoolMemory
    rollouts: Any

    def write(self, to: Place) -> None:
        """Writes it to a file, complete or not at all, or into one that is open."""
        try:
            body = pickle.dumps(tuple(self), pickle.HIGHEST_PROTOCOL)
        except Exception as error:  # an object in an observation or info that waits
            raise StateError(f"checkpoint: what the pool holds cannot be pickled: {summary(error)}") from error
        head = f"stepmill checkpoint {FORMAT} {__version__} {len(body)} {zlib.crc32(body):08x}\n".encode()
        if not isinstance(to, str | os.PathLike):
            _check_file("checkpoint", to, "write")
            _write_all(to, head)
            _write_all(to, body)
            return
        path = os.fspath(to)
        try:
            _replace(path, head, body)
        except OSError as error:
            raise ResourceError(
                f"checkpoint: {path} could not be written: {summary(error)}. The file that was there, if any, is as it "
                "was",
                error.errno,
            ) from error

    @classmethod
    def read(cls, place: Place) -> Checkpoint:
        """Reads one. Only the pickle of a whole file of this version is looked at."""
        if isinstance(place, str | os.PathLike):
            with open(place, "rb") as file:
                return cls.read(file)
        _check_file("resume", place, "readline")
        name = getattr(place, "name", "the file")
        head = _HEAD.fullmatch(place.readline(_MOST_HEAD))
        if head is None:
            raise StateError(f"resume: {name} is no checkpoint of a pool, or ends too soon")
        form, version, size, checksum = head.groups()
        if int(form) != FORMAT or version.decode("ascii", "replace") != __version__:
            raise StateError(
                f"resume: {name} was written in format {int(form)} by stepmill {version.decode('ascii', 'replace')}: "
                f"expected format {FORMAT}, and the same version, {__version__}: install that one to resume it"
            )
        body = _read_all(place, int(size))
        if len(body) != int(size) or f"{zlib.crc32(body):08x}".encode() != checksum:
            raise StateError(f"resume: {name} is damaged: its checksum is that of other bytes, or it ends too soon")
        try:
            return cls(*pickle.loads(body))
        except StateError:
            raise
        except Exception as error:
            raise StateError(f"resume: {name} cannot be read here: {summary(error)}") from error


def _check_file(call: str, given: Any, method: str) -> None:
    if not hasattr(given, method):
        raise InputError(f"{call}: expected a path, as str or os.PathLike, or an open binary file, got {given!r:.200}")


def _write_all(file: BinaryIO, content: bytes) -> None:
    """A file without a buffer may take less than it is given, as when the disk is almost full."""
    while content:
        written = file.write(content)
        if not isinstance(file, io.RawIOBase):  # it takes all, and others than Python's own do not say so
            return
        if written is None:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        content = content[written:]


def _read_all(file: BinaryIO, size: int) -> bytes:
    """That many bytes, or what there is: a file without a buffer may give less at a time."""
    parts = []
    while size > 0 and (part := file.read(min(size, _MOST_READ))):
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def _alone(path: str) -> BinaryIO:
    """A new file for writing, which no other process that writes the same checkpoint has until it is closed."""
    while True:
        file: BinaryIO = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666), "wb")
        try:
            with contextlib.suppress(OSError):  # not every file system can do that
                fcntl.flock(file, fcntl.LOCK_EX)  # it ends with the process, however that ends
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(file.fileno()), os.stat(path)):  # or another one has renamed it meanwhile
                    file.truncate(0)
                    return file
        except BaseException:
            file.close()
            raise
        file.close()


def _replace(path: str, head: bytes, body: bytes) -> None:
    path = os.path.realpath(path)  # a link stays one
    if os.path.exists(path) and not os.path.isfile(path):  # a device or pipe would be no such thing any more
        raise OSError(errno.EINVAL, "Not a regular file", path)
    side = f"{path}.part"
    with _alone(side) as file:
        try:
            with contextlib.suppress(FileNotFoundError):  # whoever may read it may read the next one
                os.fchmod(file.fileno(), stat.S_IMODE(os.stat(path).st_mode))
            file.write(head)
            file.write(body)
            file.flush()
            os.fsync(file.fileno())
            os.replace(side, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(side)
            raise
    with contextlib.suppress(OSError):  # the new name; not every file system can do that
        folder = os.open(os.path.dirname(path) or ".", os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
