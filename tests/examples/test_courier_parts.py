"""The parts of Courier, one by one: its world and its towns, its elements and runners, its picture."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from courier import CourierConfig, CourierEnv
from courier.action import CourierAction, CourierActionRunner
from courier.observation import FeaturesObs, FeaturesObsRunner, MapObs, MapObsRunner
from courier.picture import draw
from courier.reward import (
    BatteryReward,
    BatteryRewardRunner,
    CourierReward,
    CourierRewardRunner,
    DeliveryRewardRunner,
    EpisodeScore,
    EpisodeScoreRunner,
    ProgressRewardRunner,
    StepCostRunner,
)
from courier.town import Town
from courier.world import Verb, World

from stepmill.envs import EnvElement, EnvElementInfo
from stepmill.errors import (
    ActionError,
    ActionTypeError,
)

NORTH, EAST, SOUTH, WEST, HANDLE, CHARGE = Verb

# C is the charger, 1 and 2 are packages, a and b their addresses, # a building.
#         columns 0..4
STREETS = """
C1a..
.##..
.2#..
..#b.
.....
"""


def town_of(streets: str) -> Town:
    rows = streets.split()
    places = {letter: row * len(rows) + column for row, line in enumerate(rows) for column, letter in enumerate(line)}
    errands = [(places[number], places["ab"[int(number) - 1]]) for number in "12" if number in places]
    return Town.plan(len(rows), [letter == "#" for letter in "".join(rows)], [places["C"]], errands)


class Engine:
    """What runners see of an env."""

    def __init__(self, streets: str = STREETS, **config: Any) -> None:
        self.world = World(CourierConfig(**{"size": 5, "packages": 2, "capacity": 20, **config}), town_of(streets))
        self.agent_action: Any = 0

    def do(self, *verbs: Verb) -> World:
        for verb in verbs:
            self.world.tick(verb)
        return self.world


# ---- the world -----------------------------------------------------------------------------------


def test_the_drone_starts_full_on_its_charger() -> None:
    world = Engine().world
    assert (world.cell, world.battery, world.steps, world.delivered) == (0, 20, 0, 0)
    assert world.at_charger
    assert (world.crashed, world.finished, world.late) == (False, False, False)


def test_a_cell_costs_one_and_a_loaded_one_two() -> None:
    engine = Engine()
    seen = [(engine.do(verb).cell, engine.world.battery) for verb in (EAST, HANDLE, EAST, HANDLE, EAST)]
    assert seen == [(1, 19), (1, 18), (2, 16), (2, 15), (3, 14)]
    assert engine.world.delivered == 1
    assert engine.world.carried is None


@pytest.mark.parametrize(
    ("before", "verb"),
    [
        ((), NORTH),  # out of town
        ((), WEST),
        ((EAST,), SOUTH),  # into a building
        ((), HANDLE),  # nothing here
        ((EAST,), CHARGE),  # no charger here
        ((EAST, HANDLE), HANDLE),  # not the address
        ((EAST, HANDLE), SOUTH),  # against a wall with a package: no cell was flown
    ],
)
def test_what_cannot_be_done_is_hovering(before: tuple[Verb, ...], verb: Verb) -> None:
    engine = Engine()
    world = engine.do(*before)
    was = (world.cell, world.battery, len(world.waiting), world.carried, world.delivered)
    engine.do(verb)
    assert (world.cell, world.battery, len(world.waiting), world.carried, world.delivered) == (
        was[0],
        was[1] - 1,
        *was[2:],
    )


def test_charging_stops_at_full() -> None:
    engine = Engine(charge=12)
    assert engine.do(*[WEST] * 15).battery == 5
    assert engine.do(CHARGE).battery == 17
    assert engine.do(CHARGE).battery == 20
    assert engine.do(CHARGE).battery == 20


def test_an_empty_battery_is_a_crash_but_on_a_charger() -> None:
    engine = Engine()
    engine.do(*[WEST] * 20)
    assert (engine.world.battery, engine.world.crashed) == (0, False)
    away = Engine()
    away.do(EAST, *[NORTH] * 18)
    assert (away.world.battery, away.world.crashed) == (1, False)
    assert away.do(NORTH).crashed
    assert away.world.battery == 0


def test_a_delivery_with_the_last_of_the_battery_counts() -> None:
    engine = Engine()
    world = engine.do(EAST, HANDLE, EAST)  # 4 of 20 are gone
    engine.do(*[NORTH] * 15, HANDLE)
    assert (world.delivered, world.battery, world.crashed) == (1, 0, True)


def test_all_delivered_is_the_end() -> None:
    engine = Engine(capacity=40)
    engine.do(EAST, HANDLE, EAST, HANDLE)
    assert not engine.world.finished
    engine.do(WEST, WEST, SOUTH, SOUTH, EAST, HANDLE)
    assert not engine.world.finished  # the last one is in the air
    engine.do(SOUTH, SOUTH, EAST, EAST, NORTH)
    assert not engine.world.finished
    assert engine.do(HANDLE).finished
    assert engine.world.delivered == 2


def test_the_target_is_the_nearest_package_by_the_streets_then_its_address() -> None:
    engine = Engine()
    world = engine.world
    assert (world.target, world.way) == (1, 1)
    engine.do(SOUTH, SOUTH)
    assert (world.target, world.way) == (11, 1)
    engine.do(EAST, HANDLE)
    assert (world.target, world.way) == (18, 5)  # around the building: 2 cells as the crow flies are 5
    assert world.reserve == 20 - 4 - 2 * 3  # the way back, with a package


# ---- the town ------------------------------------------------------------------------------------


def test_ways_lead_around_buildings() -> None:
    town = town_of(STREETS)
    far = 1 << 20
    assert np.reshape(town.to_charger, (5, 5)).tolist() == [
        [0, 1, 2, 3, 4],
        [1, far, far, 4, 5],
        [2, 3, far, 5, 6],
        [3, 4, far, 6, 7],
        [4, 5, 6, 7, 8],
    ]
    assert town.neighbours[0] == (0, 1, 5, 0)
    assert town.neighbours[1] == (1, 2, 1, 0)


def test_a_round_trip_is_what_the_battery_must_hold() -> None:
    town = town_of(STREETS)
    # Fetch 1, lift 1, one loaded cell 2, hand over 1, back 2; and 3 + 1 + 2 * 5 + 1 + 6.
    assert [town.round_trip(package) for package in town.packages] == [7, 21]


@pytest.mark.parametrize(
    "cfg",
    [
        {},
        {"size": 5, "packages": 3, "capacity": 20, "buildings": 0.3},
        {"size": 12, "chargers": 4, "packages": 20, "max_steps": 2000},
        {"size": 32, "chargers": 1, "packages": 100, "capacity": 128, "max_steps": 20000},
    ],
)
def test_every_town_that_is_drawn_can_be_served(cfg: dict[str, Any]) -> None:
    config = CourierConfig.of(cfg)
    for seed in range(20 if config.size < 20 else 2):
        town = Town.draw(config, np.random.default_rng(seed))
        assert max(town.round_trip(package) for package in town.packages) <= config.capacity
        places = [*town.chargers, *(cell for one in town.packages for cell in (one.origin, one.address))]
        assert len(set(places)) == len(places) == config.chargers + 2 * config.packages
        assert not any(town.blocked[cell] for cell in places)
        assert all((way < 1 << 20) != is_blocked for way, is_blocked in zip(town.to_charger, town.blocked, strict=True))


# ---- elements and runners ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "element",
    [CourierAction, FeaturesObs, MapObs, CourierReward, BatteryReward, EpisodeScore],
    ids=lambda e: e.__name__,
)
def test_elements_describe_themselves(element: type[EnvElement]) -> None:
    assert element() is element()
    assert repr(element()).startswith(f"{element.__name__}: ")
    assert isinstance(element().info, EnvElementInfo)


@pytest.mark.parametrize("action", [4, np.int64(4), np.array(4), np.array([4]), np.array([4], np.int32)])
def test_an_action_is_one_whole_number(action: Any) -> None:
    engine, runner = Engine(), CourierActionRunner()
    engine.agent_action = action
    assert runner.get(engine) is Verb.HANDLE
    assert runner.last is Verb.HANDLE
    runner.reset()
    assert runner.last is None
    assert CourierAction().info.from_agent_processor(action) is Verb.HANDLE


@pytest.mark.parametrize(
    ("action", "error", "message"),
    [
        (6, ActionError, "from 0 to 5, got 6"),
        (np.array(-1), ActionError, "from 0 to 5, got -1"),
        (1.0, ActionTypeError, "one whole number as action, got 1.0"),
        (np.array([1, 2]), ActionTypeError, r"got array\(\[1, 2\]\)"),
        (True, ActionTypeError, "got True"),
        (None, ActionTypeError, "got None"),
        ("east", ActionTypeError, "got 'east'"),
    ],
)
def test_what_is_no_action_is_refused_and_changes_nothing(action: Any, error: type[Exception], message: str) -> None:
    env = CourierEnv()
    env.seed(0)
    env.reset()
    with pytest.raises(error, match=message):
        env.step(action)
    assert env.world.steps == 0


def test_features_by_hand() -> None:
    engine = Engine(max_steps=100, chargers=1)
    engine.do(SOUTH, SOUTH)
    features = FeaturesObsRunner().get(engine)
    assert features.dtype == np.float32
    # At row 2, column 0: package 2 is one to the right, the charger two up; 18 of 20 left, 16 of them at the charger.
    np.testing.assert_allclose(features[:9], [0, 0, 0.25, 0.1, -0.5, 0, 0.2, 0.8, 0.98], rtol=1e-6)
    assert features[9:20].tolist() == [0] * 9 + [1, 0]  # 90 percent
    assert features[20:].tolist() == [0, 0, 1, 0, 0, 0]  # two to deliver
    engine.do(EAST, HANDLE)
    features = FeaturesObsRunner().get(engine)
    # With package 2, at row 2, column 1: its address is one down and two right; 16 left, 6 of them for the way back.
    np.testing.assert_allclose(features[:9], [1, 0.25, 0.5, 0.5, -0.5, -0.25, 0.3, 0.5, 0.96], rtol=1e-6)
    assert features[9:20].tolist() == [0] * 8 + [1, 0, 0]


def test_the_map_shows_what_is_around_the_drone() -> None:
    engine, runner = Engine(), MapObsRunner()
    view = runner.get(engine)
    assert view.shape == (5, 7, 7)
    # The drone is in the middle, at [3, 3]; it stands in the upper left corner of the town.
    assert view[MapObs.BUILDINGS].tolist() == [
        [1, 1, 1, 1, 1, 1, 1],
        [1, 1, 1, 1, 1, 1, 1],
        [1, 1, 1, 1, 1, 1, 1],
        [1, 1, 1, 0, 0, 0, 0],
        [1, 1, 1, 0, 1, 1, 0],
        [1, 1, 1, 0, 0, 1, 0],
        [1, 1, 1, 0, 0, 1, 0],
    ]
    assert np.argwhere(view[MapObs.PACKAGES]).tolist() == [[3, 4], [5, 4]]
    assert np.argwhere(view[MapObs.CHARGERS]).tolist() == [[3, 3]]
    assert not view[MapObs.ADDRESS].any()
    assert np.argwhere(view[MapObs.TRAIL]).tolist() == [[3, 3]]


def test_the_map_follows_the_drone_and_its_package() -> None:
    engine, runner = Engine(), MapObsRunner()
    first = runner.get(engine)
    engine.do(EAST)
    runner.get(engine)
    engine.do(HANDLE)
    view = runner.get(engine)
    assert np.argwhere(view[MapObs.PACKAGES]).tolist() == [[5, 3]]
    assert np.argwhere(view[MapObs.ADDRESS]).tolist() == [[3, 4]]
    assert np.argwhere(view[MapObs.CHARGERS]).tolist() == [[3, 2]]
    assert view[MapObs.TRAIL, 3, 3] == 1
    assert view[MapObs.TRAIL, 3, 2] == pytest.approx(0.64)  # two steps ago
    engine.do(EAST, HANDLE)
    assert not runner.get(engine)[MapObs.ADDRESS].any()
    assert np.argwhere(first[MapObs.TRAIL]).tolist() == [[3, 3]]  # what was handed out stays as it was


def test_a_reset_map_forgets_town_and_trail() -> None:
    runner = MapObsRunner()
    runner.get(Engine())
    runner.reset()
    assert runner.trail is None
    other = Engine("...2b\n.....\n..C..\n.....\n.....")
    view = runner.get(other)
    assert np.argwhere(view[MapObs.TRAIL]).tolist() == [[3, 3]]
    assert np.argwhere(view[MapObs.PACKAGES]).tolist() == [[1, 4]]


def paid(runner: Any, *verbs: Verb, **config: Any) -> list[float]:
    engine = Engine(**config)
    runner.reset(engine)
    out = []
    for verb in verbs:
        engine.do(verb)
        out.append(runner.get(engine))
    return out


def test_a_delivery_is_worth_less_the_later_it_comes() -> None:
    assert paid(DeliveryRewardRunner(), EAST, HANDLE, EAST, HANDLE, WEST, max_steps=8) == [0, 0, 0, 0.75, 0]


def test_progress_is_paid_by_the_cell_and_for_lifting() -> None:
    # Nearer, against a wall, back, nearer, lifted, nearer, delivered (which others pay), and on to package 2: 5 cells.
    verbs = (EAST, NORTH, WEST, EAST, HANDLE, EAST, HANDLE, WEST)
    assert paid(ProgressRewardRunner(), *verbs) == pytest.approx([0.02, 0, -0.02, 0.02, 0.2, 0.02, 0, 0.02])


def test_the_battery_term_returns_what_it_took() -> None:
    # Two cells from the charger, hovering: with 2 left it is within reach, with 1 it is not.
    verbs = (SOUTH, SOUTH, *[WEST] * 16, WEST)
    assert paid(BatteryRewardRunner(), *verbs) == pytest.approx([0] * 18 + [-0.2])
    # A package makes the way back dearer; without it the charger is in reach again.
    engine, runner = Engine(), BatteryRewardRunner()
    engine.do(EAST, HANDLE, EAST, *[NORTH] * 12)  # 4 left, 4 for the way back
    runner.reset(engine)
    engine.do(NORTH)
    assert runner.get(engine) == pytest.approx(-0.2)
    engine.do(HANDLE)  # 2 left, 2 for the way back
    assert runner.get(engine) == pytest.approx(0.2)


def test_a_crash_costs_one() -> None:
    assert paid(BatteryRewardRunner(), EAST, *[NORTH] * 19)[-2:] == pytest.approx([0, -1.2])


def test_the_terms_are_added_in_training_only() -> None:
    verbs = (EAST, HANDLE, EAST, HANDLE)
    assert paid(StepCostRunner(), EAST, EAST) == [-0.002, -0.002]
    training = paid(CourierRewardRunner(True), *verbs, max_steps=8)
    assert all(reward.shape == (1,) and reward.dtype == np.float32 for reward in training)
    assert np.concatenate(training) == pytest.approx([0.018, 0.198, 0.018, 0.748])
    evaluation = paid(CourierRewardRunner(False), *verbs, max_steps=8)
    assert np.concatenate(evaluation).tolist() == [0, 0, 0, 0.75]


def test_the_score_adds_up_and_is_forgotten() -> None:
    runner = EpisodeScoreRunner()
    assert paid(runner, EAST, HANDLE, EAST, HANDLE, WEST, max_steps=8) == [0, 0, 0, 0.75, 0.75]
    assert paid(runner, EAST) == [0]


# ---- the picture ---------------------------------------------------------------------------------


def cell_of(picture: np.ndarray, cell: int, size: int = 5, side: int = 48) -> np.ndarray:
    row, column = divmod(cell, size)
    return picture[row * side : (row + 1) * side, column * side : (column + 1) * side]


def draw_engine(engine: Engine, verb: Verb | None = None) -> np.ndarray:
    return draw(engine.world, np.zeros((5, 5)), verb)


def test_the_picture_shows_what_changes_and_only_that() -> None:
    engine = Engine()
    before = draw_engine(engine)
    after = draw_engine(Engine())
    assert np.array_equal(before, after)
    engine.do(EAST)
    after = draw_engine(engine)
    changed = {cell for cell in range(25) if not np.array_equal(cell_of(before, cell), cell_of(after, cell))}
    assert changed == {0, 1}
    engine.do(HANDLE)
    lifted = draw_engine(engine)
    changed = {cell for cell in range(25) if not np.array_equal(cell_of(after, cell), cell_of(lifted, cell))}
    assert changed == {1, 2}  # the package hangs at the drone, its address shines


def test_the_caption_tells_verb_battery_and_crash() -> None:
    engine = Engine()
    quiet, north = draw_engine(engine), draw_engine(engine, NORTH)
    assert np.array_equal(quiet[:-60], north[:-60])
    assert not np.array_equal(quiet[-60:], north[-60:])

    def green(picture: np.ndarray) -> int:
        return int((picture[-60:] == (88, 184, 112)).all(axis=-1).sum())

    full = green(quiet)
    engine.do(*[WEST] * 10)
    assert green(draw_engine(engine)) == pytest.approx(full / 2, rel=0.05)
    engine.do(EAST, *[NORTH] * 9)
    assert engine.world.crashed
    assert green(draw_engine(engine)) == 0
    assert (draw_engine(engine)[-60:] == (222, 84, 72)).all(axis=-1).any()


def test_the_trail_is_seen_and_fades() -> None:
    world = Engine().world
    trail = np.zeros((5, 5), np.float32)
    bare = draw(world, trail, None)
    trail[4, 4], trail[3, 4] = 1.0, 0.5  # cells 24 and 19 are empty streets
    marked = draw(world, trail, None)
    far = {cell: int(np.abs(cell_of(bare, cell) - cell_of(marked, cell).astype(int)).max()) for cell in range(25)}
    assert {cell for cell, difference in far.items() if difference} == {24, 19}
    assert far[24] > far[19]
