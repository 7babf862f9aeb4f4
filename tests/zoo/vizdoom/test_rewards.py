"""Rewards from game variables, without a game."""

from __future__ import annotations

import pytest

from stepmill.errors import ConfigError
from stepmill.zoo.vizdoom.env import DEFAULT_REWARDS, GameReward
from stepmill.zoo.vizdoom.options import read_rewards, read_weapons

NAMES = ("HEALTH", "KILLCOUNT", "HITCOUNT", "DAMAGECOUNT", "SELECTED_WEAPON", "SELECTED_WEAPON_AMMO")
REWARDS = {"HEALTH": (1.0, -2.0), "KILLCOUNT": (10.0, 0.0), "HITCOUNT": (1.0, -1.0), "DAMAGECOUNT": (1.0, -1.0)}


def begun(weapons: dict[int, float] | None = None, duration: int = 5, **values: float) -> GameReward:
    reward = GameReward(NAMES, REWARDS, weapons or {}, duration)
    reward.begin(values_of(**values))
    return reward


def values_of(**values: float) -> list[float]:
    given = {**dict.fromkeys(NAMES, 0.0), "HEALTH": 100.0, **values}
    return [given[name] for name in NAMES]


def test_a_rise_and_a_fall_have_factors_of_their_own() -> None:
    reward = begun()
    assert reward.step(values_of(HEALTH=110)) == 10
    assert reward.step(values_of(HEALTH=107)) == -6  # 3 * -2
    assert reward.step(values_of(HEALTH=107, KILLCOUNT=2)) == 20
    assert reward.step(values_of(HEALTH=107)) == 0  # a kill less costs nothing


def test_counts_begin_with_the_episode() -> None:
    reward = begun(HITCOUNT=7)
    assert reward.values["HITCOUNT"] == 0
    assert reward.step(values_of(HITCOUNT=9)) == 2
    assert reward.values["HITCOUNT"] == 2


def test_much_at_once_counts_as_less() -> None:
    reward = begun()
    assert reward.step(values_of(DAMAGECOUNT=500)) == 200
    assert reward.step(values_of(DAMAGECOUNT=500, HITCOUNT=30)) == 5


def test_a_health_that_is_none_does_not_count() -> None:
    reward = begun(HEALTH=-999900)
    assert reward.values["HEALTH"] == 100
    assert reward.step(values_of(HEALTH=90)) == -20
    assert reward.step(values_of(HEALTH=-999900)) == 0
    assert reward.step(values_of(HEALTH=95)) == 5


def test_a_weapon_pays_while_it_is_held_and_loaded() -> None:
    reward = begun({2: 0.5, 3: 0.25}, 3, SELECTED_WEAPON=2, SELECTED_WEAPON_AMMO=9)
    pistol, shotgun = values_of(SELECTED_WEAPON=2, SELECTED_WEAPON_AMMO=9), values_of(SELECTED_WEAPON=3)
    assert [reward.step(pistol) for _ in range(3)] == [0, 0.5, 0.5]
    assert [reward.step(shotgun) for _ in range(4)] == [0, 0, 0, 0]  # no ammunition
    assert reward.step(values_of(SELECTED_WEAPON=3, SELECTED_WEAPON_AMMO=1)) == 0.25


def test_the_default_is_envpools() -> None:
    assert len(DEFAULT_REWARDS) == 7 + 8 + 8
    assert DEFAULT_REWARDS["WEAPON5"] == (0.1, -0.05)
    assert DEFAULT_REWARDS["AMMO6"] == (0.002, -0.001)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"HEALHT": (1, 1)}, "game variables, such as 'HEALTH', got 'HEALHT'"),
        ({"HEALTH": 1}, "expected \\(rise, fall\\)"),
        ({"HEALTH": (1, float("nan"))}, "finite number"),
        ("much", "expected a dict"),
    ],
)
def test_a_reward_config_that_makes_no_sense(given: object, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read_rewards("reward_config", given)


@pytest.mark.parametrize("given", [{"2": 1.0}, {10: 1.0}, 3, {2: "a"}])
def test_weapons_that_make_no_sense(given: object) -> None:
    with pytest.raises(ConfigError, match="selected_weapon_reward_config"):
        read_weapons(given)
