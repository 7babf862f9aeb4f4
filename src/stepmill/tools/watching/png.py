"""PNG files, without a package for pictures."""

from __future__ import annotations

import struct
import zlib

import numpy as np

__all__ = ["png_of"]

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_FASTEST = 1


def png_of(picture: np.ndarray) -> bytes:
    """The file of a picture (height, width, 3) of uint8."""
    height, width, _ = picture.shape
    # Each byte minus the one above it (the filter "up"): drawings then are mostly zeros.
    rows = np.empty((height, 1 + width * 3), np.uint8)
    rows[:, 0] = 2
    flat = picture.reshape(height, width * 3)
    rows[0, 1:] = flat[0]
    np.subtract(flat[1:], flat[:-1], out=rows[1:, 1:])
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"".join(
        [
            _SIGNATURE,
            _chunk(b"IHDR", header),
            _chunk(b"IDAT", zlib.compress(rows.data, _FASTEST)),
            _chunk(b"IEND", b""),
        ]
    )


def _chunk(name: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))
