"""Ten thousand steps of every id that can be saved, with saves and restores at random moments.

All ids of our native families, and one of every other family: those whose envs cannot be saved are skipped, with the
reason, so that a kind of states that is new is asked here at once.
"""

from __future__ import annotations

import functools
from typing import Any

import pytest

import stepmill
from stepmill.errors import MissingPackageError, StateError, UnsupportedError
from support.journeys import travel_far
from support.zoo import stepmill_ids

pytestmark = pytest.mark.long

STEPS = 10_000
NATIVE = ("stepmill", "mujoco")
PLACES: tuple[dict[str, Any], ...] = (  # the first where they can be saved
    {"backend": "inline"},
    {"backend": "process", "num_workers": 2},
)


def cases() -> list[tuple[str, str | None]]:
    """Ids, and by which way they are saved: by the usual one, and Python envs also if the user asks for it."""
    families = stepmill_ids().families
    native = [(id, None) for name in NATIVE for id in families[name]]
    others = [some[0] for name, some in families.items() if name not in NATIVE]
    return native + [(id, by) for id in others for by in (None, "pickle")]


def opened(id: str, by: str | None) -> Any:
    """Makes pools of two such envs, where they can be saved in that way."""
    why = ""
    for place in PLACES:
        make = functools.partial(stepmill.make, id, num_envs=2, start_timeout=300, **place)
        try:
            pool = make()
        except MissingPackageError as error:  # of one env among many
            pytest.skip(str(error))
        with pool:
            _, info = pool.reset()
            if "players" in info:
                pytest.skip("rows of players: see tests/hosts/test_saving_long.py")
            try:
                pool.save(by=by)
                return make
            except (UnsupportedError, StateError) as error:  # the latter: a process with threads cannot be forked
                why = str(error)
    pytest.skip(why)


@pytest.mark.parametrize(("id", "by"), cases())
def test_every_id_that_can_be_saved_travels_far(id: str, by: str | None) -> None:
    travel_far(opened(id, by), STEPS, by)
