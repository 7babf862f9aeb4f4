"""The NVIDIA driver, as the engine calls it. Tests put another one in its place, whose GPU is the host."""

from __future__ import annotations

LIBRARY = "libcuda.so.1"
MEMORY_KIND = 2  # of its memory, as DLPack has it
HOST = 1  # the kind that a GPU of tests has


def is_real() -> bool:
    """Whether its memory is a GPU's."""
    return MEMORY_KIND != HOST
