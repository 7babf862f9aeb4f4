"""Looks into WADs, the files that hold Doom's maps: the game ignores a broken one, or crashes."""

from __future__ import annotations

import itertools
import os
import struct
import zipfile

from stepmill.errors import ConfigError

__all__ = ["maps_in"]

_HEADER = struct.Struct("<4sii")  # kind, number of entries, where they are
_ENTRY = struct.Struct("<ii8s")  # where it is, its size, its name
_FIRST_OF_A_MAP = (b"THINGS", b"TEXTMAP")  # what follows the entry that has a map's name


def maps_in(user: str, what: str, path: str) -> set[str] | None:
    """The names of the maps in a WAD; None if it is an archive, which the game reads too.

    Args:
        user: The env that needs it, for messages.
        what: What it is there, for messages.
        path: The file.
    """
    try:
        with open(path, "rb") as file:
            data = file.read(_HEADER.size)
            size = os.fstat(file.fileno()).st_size
            if data[:2] == b"PK" and zipfile.is_zipfile(file):
                return None
            kind, count, place = _HEADER.unpack(data) if len(data) == _HEADER.size else (b"", 0, 0)
            if kind not in (b"PWAD", b"IWAD"):
                raise ConfigError(f"{user}: {what}: expected a WAD, got {path!r}, which is none")
            file.seek(max(place, 0))
            table = file.read(max(count, 0) * _ENTRY.size)
    except OSError as error:
        raise ConfigError(
            f"{user}: {what}: expected a file that can be read, got {path!r}: {error.strerror}"
        ) from error
    if count < 1 or place < _HEADER.size or len(table) < count * _ENTRY.size:
        raise ConfigError(f"{user}: {what}: {path!r} is broken: its list of {count} entries is not in the file")
    entries = [(begin, length, name.rstrip(b"\0")) for begin, length, name in _ENTRY.iter_unpack(table)]
    for begin, length, name in entries:
        if length < 0 or (length > 0 and not 0 <= begin <= size - length):
            raise ConfigError(f"{user}: {what}: {path!r} is broken: entry {name!r} is not in the file")
    names = [name.upper() for *_, name in entries]
    following = itertools.pairwise(names)
    return {name.decode("ascii", "replace") for name, after in following if after in _FIRST_OF_A_MAP}
