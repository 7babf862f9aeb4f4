"""The random generators of a pool's envs: their seeds, and copies of generators that live elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from stepmill import _native

UNKNOWN = -1  # Gymnasium's value for a seed that the env does not know

# The state of numpy's PCG64: state and increment as (high word, low word), has_uint32, uinteger.
RandomState = tuple[tuple[int, int], tuple[int, int], int, int]


def seeds_of(engine: _native.Engine, env_ids: Sequence[int]) -> list[int]:
    """The seed of each env: the last one it was given, or the one it reports. A seed that waits for a reset counts."""
    given = engine.seeds(env_ids)
    if engine.host.is_native:
        return [seed for seed, _ in given]
    own = _ask_seeded(engine, _own_seed, env_ids, given)
    return [own.get(i, seed) for i, (seed, _) in zip(env_ids, given, strict=True)]


def generators_of(engine: _native.Engine, env_ids: Sequence[int]) -> list[Any]:
    """The generator of each env: the object itself for a Python env in this process, otherwise a copy."""
    given = engine.seeds(env_ids)
    if engine.host.is_native:
        own = dict.fromkeys(i for i, (_, waits) in zip(env_ids, given, strict=True) if not waits)
        own = {i: _at(state) for i, state in zip(own, engine.use(engine.host.random_states, list(own)), strict=True)}
    else:
        own = _ask_seeded(engine, _own_generator, env_ids, given)
    return [own[i] if i in own else _seeded(seed) for i, (seed, _) in zip(env_ids, given, strict=True)]


def _ask_seeded(
    engine: _native.Engine, question: Any, env_ids: Sequence[int], given: Sequence[tuple[int, bool]]
) -> dict[int, Any]:
    """The answers of the envs that no seed waits for: a waiting seed is about to replace what an env would answer."""
    asked = list(dict.fromkeys(i for i, (_, waits) in zip(env_ids, given, strict=True) if not waits))
    if not asked:
        return {}
    return dict(zip(asked, engine.use(engine.host.apply, question, asked), strict=True))


def _own_seed(env: Any) -> int:
    seed = getattr(env, "np_random_seed", None)
    return UNKNOWN if seed is None else seed


def _own_generator(env: Any) -> Any:
    return getattr(env, "np_random", None)


def _seeded(seed: int) -> np.random.Generator:
    """The generator that a reset with this seed gives an env."""
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed)))


def _at(state: RandomState) -> np.random.Generator:
    """A generator in the same state as that of a native env."""
    (high, low), (increment_high, increment_low), has_uint32, uinteger = state
    bits = np.random.PCG64(0)
    bits.state = {
        "bit_generator": "PCG64",
        "state": {"state": high << 64 | low, "inc": increment_high << 64 | increment_low},
        "has_uint32": has_uint32,
        "uinteger": uinteger,
    }
    return np.random.Generator(bits)
