"""Every id of every family is made and played, and plays the same episodes for the same seed: `make test-zoo`.

A test plays a share of a family's ids, so that several processes can play a large family.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.zoo import CASES, STEPS, fingerprint, ids_of, least, open_pool, play, sampled, where

pytestmark = [pytest.mark.zoo, pytest.mark.filterwarnings("ignore")]  # of packages, about their own older versions

SHARES = 6


@pytest.mark.parametrize("extra", CASES)
def test_no_id_of_a_family_got_lost(extra: str) -> None:
    where(extra)
    found = ids_of(extra)
    assert len(found) >= least(extra), f"{len(found)} ids: {found}"


@pytest.mark.parametrize("share", range(SHARES))
@pytest.mark.parametrize("extra", CASES)
def test_every_id_plays(extra: str, share: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    where(extra)
    monkeypatch.chdir(tmp_path)
    faults = {}
    for id in sampled(extra)[share::SHARES]:
        try:
            with open_pool(extra, id, num_envs=1 if CASES[extra].is_slow else 2, num_workers=1) as pool:
                for result in play(pool, STEPS):
                    check(pool, result)
        except Exception as error:  # all of them are told, not only the first
            faults[id] = f"{type(error).__name__}: {error}"[:500]
    assert faults == {}
    assert list(tmp_path.iterdir()) == [], "an env left files where it ran"


def check(pool: Any, result: tuple[Any, ...]) -> None:
    obs, *rest, info = result
    assert obs in pool.observation_space, f"an observation that does not fit: {obs}"
    assert isinstance(info, dict)
    if rest:
        reward, terminated, truncated = rest
        assert np.isfinite(reward).all()
        assert terminated.dtype == truncated.dtype == bool


@pytest.mark.parametrize("extra", CASES)
def test_a_seed_decides_the_episodes_on_any_number_of_workers(extra: str) -> None:
    where(extra)
    seeded = [id for id in sampled(extra) if id not in CASES[extra].unseeded]
    count, steps = (2, 5) if CASES[extra].is_slow else (4, 30)
    for id in seeded[:: max(1, len(seeded) // count)]:
        seen = set()
        for workers in (1, 1, 2, 7):
            with open_pool(extra, id, num_envs=7, num_workers=workers, seed=5) as pool:
                seen.add(fingerprint(pool, steps))
        assert len(seen) == 1, id
        with open_pool(extra, id, num_envs=7, num_workers=2, seed=50) as pool:
            other = fingerprint(pool, steps)
        assert other not in seen or id.startswith(CASES[extra].without_chance), f"{id} ignores its seed"
