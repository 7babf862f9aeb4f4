"""Hints for unknown ids: only what really resembles them."""

from __future__ import annotations

import pytest

from stepmill.registry.hints import ids_like

KNOWN = ["CartPole-v0", "CartPole-v1", "Pong-v5", "ALE/Pong-v5", "MiniGrid-Empty-5x5-v0", "MiniGrid-Empty-8x8-v0"]
KNOWN += ["simple_spread_v3", "simple_tag_v3", "Humanoid-v5", "HumanoidStandup-v5", "dm_control/cheetah-run-v0"]


@pytest.mark.parametrize(
    ("id", "hints"),
    [
        ("CartPole-v7", ["CartPole-v1", "CartPole-v0"]),
        ("cartpole", ["CartPole-v1", "CartPole-v0"]),
        ("CratPole-v1", ["CartPole-v1", "CartPole-v0"]),
        ("Pnog-v5", ["Pong-v5"]),
        ("ALE/Pnog-v5", ["ALE/Pong-v5"]),
        ("minigrid-empty-8x8-v0", ["MiniGrid-Empty-8x8-v0"]),
        ("MiniGrid-Empty-9x9-v0", ["MiniGrid-Empty-8x8-v0", "MiniGrid-Empty-5x5-v0"]),
        ("simple_spread_v2", ["simple_spread_v3"]),
        ("Humanoid-v4", ["Humanoid-v5"]),
        ("dm_control/cheetah-rnu-v0", ["dm_control/cheetah-run-v0"]),
        (" CartPole-v1", ["CartPole-v1"]),
        ("Pong-v5\n", ["Pong-v5"]),
        (" pong ", ["Pong-v5"]),
        ("Doom-v1", []),
        ("v1", []),
        ("", []),
        ("no_such_module:Some-v0", []),
    ],
)
def test_only_what_resembles_an_id_is_a_hint(id: str, hints: list[str]) -> None:
    assert sorted(ids_like(id, KNOWN)) == sorted(hints)


def test_the_nearest_come_first_and_are_few() -> None:
    near = ids_like("Level-v0", [f"Level{k}-v0" for k in range(9)] + ["Level-v3"])
    assert near == ["Level-v3"]
    assert len(ids_like("Leve-v0", [f"Level{k}-v0" for k in range(9)])) == 4
