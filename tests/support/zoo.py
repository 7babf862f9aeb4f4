"""Every id of every family: where it runs, how it is made, and how it is played."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stepmill
from stepmill.registry.listing import EnvList
from stepmill.registry.records import families

ROOT = Path(__file__).parent.parent.parent
STEPS = 200


@dataclass(frozen=True)
class Case:
    """One extra, and what is particular about its ids."""

    island: str | None = None  # the environment that `make islands` builds, if it excludes other families
    arguments: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # by id: what it cannot be made without
    unseeded: tuple[str, ...] = ()  # ids that cannot be seeded
    without_chance: tuple[str, ...] = ()  # beginnings of ids that play the same with any seed
    is_slow: bool = False  # tenths of a second per step
    machines: tuple[str, ...] = ()  # where there are wheels; empty if everywhere


CASES = {
    "minigrid": Case(),
    "pettingzoo": Case(without_chance=("chess", "connect_four", "go", "rps", "tictactoe")),
    "highway": Case(is_slow=True),
    "box2d": Case(machines=("x86_64",)),
    "metaworld": Case(
        island="metaworld",
        is_slow=True,
        arguments={
            f"Meta-World/{name}": {"env_name": "reach-v3"} for name in ("MT1", "goal_hidden", "goal_observable")
        },
    ),
    "nethack": Case(island="nle", unseeded=("NetHackChallenge-v0",)),
}


def where(extra: str) -> dict[str, Any]:
    """The ``python=`` of a family: none where its package is installed here. Skips where there is no wheel for it."""
    case = CASES[extra]
    if extra not in stepmill_ids().missing:
        return {}
    if case.island is not None:
        island = ROOT / f".venv-island-{case.island}"
        assert island.is_dir(), f"{extra}: build its island first, with `make islands`"
        return {"python": str(island)}
    if case.machines and platform.machine() not in case.machines:
        pytest.skip(f"no wheel of {extra} for {platform.machine()}, and it was not built here")
    raise AssertionError(f"{extra} is not installed: pip install 'stepmill[{extra}]'")


@cache
def stepmill_ids(python: str | None = None) -> EnvList:
    """What can be made here, or in an island."""
    ids = stepmill.list_all_envs() if python is None else stepmill.list_all_envs(python=python)  # type: ignore[call-arg]
    assert isinstance(ids, EnvList)
    return ids


def ids_of(extra: str) -> list[str]:
    """All ids of a family."""
    return list(stepmill_ids(**where(extra)).families[extra])


def least(extra: str) -> int:
    """How many ids it has, at least."""
    return sum(one.at_least for one in families() if one.package.extra == extra)


def open_pool(extra: str, id: str, **settings: Any) -> Any:
    """A pool of worker processes."""
    config = CASES[extra].arguments.get(id, {})
    return stepmill.make(id, backend="process", start_timeout=300, **where(extra), **config, **settings)


def play(pool: Any, steps: int) -> Iterator[tuple[Any, ...]]:
    """Resets, then steps with random actions; yields what each call returned."""
    space = pool.action_space
    space.seed(0)
    yield pool.reset()
    for _ in range(steps):
        yield pool.step(space.sample())


def fingerprint(pool: Any, steps: int) -> str:
    """A digest of everything that a pool returns."""
    digest = hashlib.sha256()
    for result in play(pool, steps):
        _add(digest, result)
    return digest.hexdigest()


def _add(digest: Any, value: Any) -> None:
    if isinstance(value, Mapping):
        for key in sorted(value, key=str):
            digest.update(str(key).encode())
            _add(digest, value[key])
    elif isinstance(value, tuple | list):
        for one in value:
            _add(digest, one)
    elif isinstance(value, np.ndarray) and value.dtype != object:
        digest.update(f"{value.dtype}{value.shape}".encode())
        digest.update(np.ascontiguousarray(value).tobytes())
    elif isinstance(value, np.ndarray):
        _add(digest, value.tolist())
    else:
        digest.update(repr(value).encode())
