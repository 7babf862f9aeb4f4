"""Every id of most families is made and played, and plays the same episodes for the same seed: `make test-zoo`.

Atari and ViZDoom have tests of their own. A test plays a share of a family's ids, so that several processes can play a
large family.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium.vector.utils import batch_space

from support.zoo import CASES, STEPS, fingerprint, ids_of, least, open_pool, play, where

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
    for id in ids_of(extra)[share::SHARES]:
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
    assert isinstance(info, dict)
    for space, rows in parts(pool, obs, info):
        assert rows in space, f"observations that do not fit {space}: {rows}"
    if rest:
        reward, terminated, truncated = rest
        assert np.isfinite(reward).all()
        assert terminated.dtype == truncated.dtype == bool


def parts(pool: Any, obs: Any, info: dict[str, Any]) -> list[tuple[Any, Any]]:
    """The rows and their space: of all envs, of the players that are there, or of those of each kind."""
    space, players = pool.single_observation_space, info.get("players")
    if players is None:
        return [(pool.observation_space, obs)]
    if "rows" not in players:
        return [(batch_space(space, len(players["id"])), obs)]
    assert obs.keys() == space.spaces.keys() == players["rows"].keys()
    assert sorted(np.concatenate([*players["rows"].values()])) == [*range(len(players["id"]))]
    return [(batch_space(space[kind], len(rows)), obs[kind]) for kind, rows in players["rows"].items()]


@pytest.mark.parametrize("extra", CASES)
def test_a_seed_decides_the_episodes_on_any_number_of_workers(extra: str) -> None:
    where(extra)
    seeded = [id for id in ids_of(extra) if id not in CASES[extra].unseeded]
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
