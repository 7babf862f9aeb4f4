"""Files with the order in which an async pool's results were received: what such a file is of, and who may replay it.

A line of JSON says that; behind it are the words that the engine writes and reads (``cpp/bindings/order.h``).
"""

from __future__ import annotations

import json
import os
import zlib
from typing import Any

from stepmill import _native
from stepmill.errors import ResourceError, StateError, UnsupportedError
from stepmill.settings import Settings
from stepmill.spec import PoolSpec
from stepmill.values.saved_states import configuration_text

_FORMAT = "stepmill order 1"
_LONGEST_HEAD = 1 << 26  # the seeds of very many envs
_MOST_NARROW = 2**14 - 1  # envs whose numbers, with two bits besides, fit in words of two bytes


def record_order(engine: _native.Engine, spec: PoolSpec, settings: Settings, path: str | os.PathLike[str]) -> None:
    """See ``PoolView.record_order``."""
    _check_async("record_order", settings)
    engine.check_unused("record_order")
    head = json.dumps(_head(spec, settings)).encode() + b"\n"
    try:
        with open(path, "wb", buffering=0) as file:
            written = file.write(head)
            if written != len(head):
                raise OSError(f"the disk took {written} of {len(head)} bytes")
            engine.record_order(file.fileno(), len(head), _is_wide(settings), os.fspath(path))
    except OSError as error:
        raise ResourceError(f"record_order: {os.fspath(path)} cannot be written: {error.strerror or error}") from None


def replay_order(engine: _native.Engine, spec: PoolSpec, settings: Settings, path: str | os.PathLike[str]) -> None:
    """See ``PoolView.replay_order``."""
    _check_async("replay_order", settings)
    engine.check_unused("replay_order")
    name = os.fspath(path)
    with open(path, "rb") as file:
        head = file.readline(_LONGEST_HEAD)
        recorded = _read_head(head)
        if recorded is None:
            raise StateError(f"replay_order: {name} is no file that record_order() of this version of stepmill wrote")
        for key, its in json.loads(json.dumps(_head(spec, settings))).items():
            if recorded.get(key) != its:
                raise StateError(
                    f"replay_order: {name} was recorded with {key}={_short(recorded.get(key))}, and this pool has "
                    f"{key}={_short(its)}"
                )
        engine.replay_order(file.fileno(), len(head), _is_wide(settings), name)


def _check_async(what: str, settings: Settings) -> None:
    if not settings.is_async:
        raise UnsupportedError(
            f"{what}: this pool has batches of all {settings.num_envs} envs, which always come in the same order. Only "
            "those of async pools, with a smaller batch_size, do not"
        )


def _is_wide(settings: Settings) -> bool:
    return settings.num_envs > _MOST_NARROW


def _head(spec: PoolSpec, settings: Settings) -> dict[str, Any]:
    """What decides how the envs go on, given their actions."""
    seeds = list(settings.seed)
    configurations = list(map(configuration_text, spec.env_configs))
    if len(set(configurations)) > 1:
        checksum = zlib.crc32("\n".join(configurations).encode())
        configurations = [f"{len(set(configurations))} different ones, {checksum:08x}"]
    return {
        "format": _FORMAT,
        "task_id": spec.id,
        "num_envs": settings.num_envs,
        "batch_size": settings.batch_size,
        "seed": seeds[0] if seeds == list(range(seeds[0], seeds[0] + len(seeds))) else seeds,
        "autoreset": settings.autoreset,
        "max_episode_steps": spec.max_episode_steps,
        "action_bounds": settings.action_bounds,
        "configuration": configurations[0],
    }


def _read_head(line: bytes) -> dict[str, Any] | None:
    try:
        head = json.loads(line)
    except ValueError:
        return None
    is_ours = line.endswith(b"\n") and isinstance(head, dict) and head.get("format") == _FORMAT
    return head if is_ours else None


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
