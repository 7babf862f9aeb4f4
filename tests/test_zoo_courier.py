"""Courier, the env made of elements: its world, its elements one by one, and the whole as a ``BaseEnv``."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest

from stepmill.envs import BaseEnv, EnvElement, EnvElementInfo
from stepmill.errors import (
    ActionError,
    ActionTypeError,
    ConfigError,
    NeedsResetError,
    ResetOptionError,
    UsageError,
)
from stepmill.zoo.courier import CourierConfig, CourierEnv
from stepmill.zoo.courier.action import CourierAction, CourierActionRunner
from stepmill.zoo.courier.drawing import draw
from stepmill.zoo.courier.observation import FeaturesObs, FeaturesObsRunner, MapObs, MapObsRunner
from stepmill.zoo.courier.reward import BatteryReward, CourierReward, EpisodeScore
from stepmill.zoo.courier.reward_runner import (
    BatteryRewardRunner,
    CourierRewardRunner,
    DeliveryRewardRunner,
    EpisodeScoreRunner,
    ProgressRewardRunner,
    StepCostRunner,
)
from stepmill.zoo.courier.town import Town
from stepmill.zoo.courier.world import Verb, World

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
        (1.0, ActionTypeError, "one whole number, got 1.0"),
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


# ---- the env -------------------------------------------------------------------------------------


def pilot(world: World) -> Verb:
    """Does the nearest delivery that the battery is enough for, and charges in full whenever it is at a charger."""
    if world.at_charger and world.battery < world.config.capacity:
        return CHARGE
    if world.carried is not None:
        ways = world.carried.to_address
    else:
        next_one = min(world.waiting, key=lambda package: package.to_origin[world.cell])
        need = next_one.to_origin[world.cell] + 2 + 2 * next_one.to_address[next_one.origin]
        enough = need + world.town.to_charger[next_one.address] <= world.battery
        ways = next_one.to_origin if enough else world.town.to_charger
    if ways[world.cell] == 0:
        return HANDLE
    return min((NORTH, EAST, SOUTH, WEST), key=lambda verb: ways[world.town.neighbours[world.cell][verb]])


def play(env: CourierEnv, policy: Any) -> tuple[list[Any], dict[str, Any]]:
    steps = [(env.reset(), None)]
    while True:
        step = env.step(policy(env.world))
        steps.append((step.obs, step.reward))
        if step.done:
            return steps, step.info


def seeded(seed: int = 0, dynamic_seed: bool = True, **cfg: Any) -> CourierEnv:
    env = CourierEnv(cfg)
    env.seed(seed, dynamic_seed)
    return env


def same(one: Any, other: Any) -> bool:
    return len(one) == len(other) and all(
        np.array_equal(a["features"], b["features"]) and np.array_equal(a["map"], b["map"])
        for (a, _), (b, _) in zip(one, other, strict=True)
    )


def test_types_and_spaces() -> None:
    env = seeded()
    assert isinstance(env, BaseEnv)
    first = env.reset()
    assert env.observation_space.contains(first)
    low, high = env.reward_space.low, env.reward_space.high
    done = False
    while not done:
        action = env.random_action()
        assert env.action_space.contains(action)
        obs, reward, done, info = env.step(action)
        assert env.observation_space.contains(obs)
        assert reward.shape == (1,)
        assert reward.dtype == np.float32
        assert low <= reward <= high
        assert type(done) is bool
        assert type(info) is dict


def test_it_builds_nothing_before_the_first_reset() -> None:
    env = CourierEnv()
    assert env.observation_space["map"].shape == (5, 7, 7)
    with pytest.raises(UsageError, match="call reset"):
        env.step(0)
    with pytest.raises(UsageError, match="call reset"):
        env.render()


def test_the_pilot_serves_every_town_and_chance_none() -> None:
    env = seeded(7)
    scores = [play(env, pilot)[1] for _ in range(20)]
    assert all(one["success"] and one["deliveries"] == 4 for one in scores)
    assert min(one["eval_episode_return"] for one in scores) > 3.2
    scores = [play(env, lambda _: env.random_action())[1] for _ in range(20)]
    assert max(one["eval_episode_return"] for one in scores) < 2


def test_the_end_says_how_it_went() -> None:
    env = seeded(is_train=False)
    steps, info = play(env, pilot)
    assert info["eval_episode_return"] == info["final_eval_reward"]
    assert type(info["eval_episode_return"]) is float
    assert info["eval_episode_return"] == pytest.approx(sum(float(reward[0]) for _, reward in steps[1:]), rel=1e-6)
    assert (info["success"], info["crashed"], info["TimeLimit.truncated"]) == (True, False, False)
    _, info = play(env, lambda _: NORTH)
    assert (info["success"], info["crashed"], info["TimeLimit.truncated"]) == (False, True, False)
    assert info["eval_episode_return"] == 0.0
    steps, info = play(env, lambda _: CHARGE)
    assert (info["success"], info["crashed"], info["TimeLimit.truncated"]) == (False, False, True)
    assert len(steps) == 1 + 250


def test_an_episode_that_is_over_wants_a_reset() -> None:
    env = seeded()
    play(env, pilot)
    with pytest.raises(NeedsResetError, match="call reset"):
        env.step(0)
    env.reset()
    env.step(0)


def test_a_closed_env_can_be_reset() -> None:
    env = seeded()
    env.reset()
    env.close()
    env.close()
    with pytest.raises(UsageError, match="call reset"):
        env.step(0)
    assert env.observation_space.contains(env.reset())


def test_static_seeds_repeat_the_episode_and_dynamic_ones_the_run() -> None:
    static = seeded(3, dynamic_seed=False)
    assert same(play(static, pilot)[0], play(static, pilot)[0])
    one, other = seeded(3), seeded(3)
    run = [play(one, pilot)[0] for _ in range(3)]
    assert all(same(episode, play(other, pilot)[0]) for episode in run)
    assert not same(run[0], run[1])
    assert not same(run[0], play(seeded(4), pilot)[0])


def test_the_global_generator_is_left_alone() -> None:
    before = copy.deepcopy(np.random.get_state()[1])
    play(seeded(), pilot)
    assert np.array_equal(before, np.random.get_state()[1])


def test_observations_are_the_callers_own() -> None:
    env = seeded()
    first = env.reset()
    kept = copy.deepcopy(first)
    for _ in range(5):
        env.step(env.random_action())
    assert same([(first, None)], [(kept, None)])


def test_info_has_the_functions_that_translate() -> None:
    info = CourierEnv().info()
    assert info.obs_space.shape == {"features": (26,), "map": (5, 7, 7)}
    assert info.act_space.shape == (6,)
    assert info.act_space.from_agent_processor(np.array(1)) is Verb.EAST
    assert info.rew_space.to_agent_processor([0.5, 0.25]).tolist() == [0.75]


def test_repr_says_which_it_is() -> None:
    env = CourierEnv({"size": 12})
    env.env_id = 3
    assert repr(env) == "CourierEnv(env_id=3, size=12, packages=4)"


def test_reset_takes_no_options() -> None:
    with pytest.raises(ResetOptionError, match="expected a reset without options, got town"):
        CourierEnv().reset(town="Ulm")


@pytest.mark.parametrize(
    ("cfg", "message"),
    [
        ({"size": 4}, r"size: expected a whole number in \[5, 32\], got 4"),
        ({"size": 9.0}, "size: expected a whole number, got 9.0"),
        ({"size": True}, "size: expected a whole number"),
        ({"buildings": 0.5}, "buildings: expected a finite number >= 0 and <= 0.3, got 0.5"),
        ({"chargers": 0}, r"chargers: expected a whole number in \[1, 4\], got 0"),
        ({"packages": 13}, r"packages: expected a whole number in \[1, 12\], got 13"),
        ({"capacity": 35}, r"capacity: expected a whole number in \[36, "),
        ({"charge": 0}, r"charge: expected a whole number in \[1, "),
        ({"max_steps": 207}, r"max_steps: expected a whole number in \[208, "),
        ({"is_train": "yes"}, "is_train: expected True or False, got 'yes'"),
        (7, "cfg: expected a dict, got 7"),
    ],
)
def test_a_wrong_configuration_is_named(cfg: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=f"^CourierEnv: {message}"):
        CourierEnv(cfg)


def test_keys_of_others_and_the_cfg_itself_are_left_alone() -> None:
    cfg = {"size": 9, "collector_env_num": 2, "policy": {"lr": 0.1}}
    kept = copy.deepcopy(cfg)
    env = CourierEnv(cfg)
    env.reset()
    assert cfg == kept
    assert [one["is_train"] for one in CourierEnv.create_collector_env_cfg(cfg)] == [True, True]


def test_numbers_of_numpy_make_no_others() -> None:
    env = seeded(size=np.array(9), capacity=np.int64(48), buildings=np.float32(0.25), is_train=np.bool_(False))
    env.reset()
    done = False
    while not done:
        _, _, done, info = env.step(NORTH)
        assert type(done) is bool
    assert type(info["crashed"]) is bool


def test_a_pickled_env_goes_on_where_it_was() -> None:
    env = seeded()
    env.reset()
    for _ in range(10):
        env.step(pilot(env.world))
    twin = pickle.loads(pickle.dumps(env))
    for _ in range(5):
        verb = pilot(env.world)
        one, other = env.step(verb), twin.step(verb)
        assert same([(one.obs, None)], [(other.obs, None)])
        assert one.reward == other.reward


# ---- the picture ---------------------------------------------------------------------------------


def cell_of(picture: np.ndarray, cell: int, size: int = 5, side: int = 48) -> np.ndarray:
    row, column = divmod(cell, size)
    return picture[row * side : (row + 1) * side, column * side : (column + 1) * side]


def draw_engine(engine: Engine, verb: Verb | None = None) -> np.ndarray:
    return draw(engine.world, np.zeros((5, 5)), verb)


def test_the_picture_is_an_image_that_videos_take() -> None:
    for cfg in ({}, {"size": 5, "packages": 2}, {"size": 13, "capacity": 60, "max_steps": 1000}):
        env = seeded(**cfg)
        env.reset()
        picture = env.render()
        assert picture.dtype == np.uint8
        assert picture.ndim == 3
        assert picture.shape[2] == 3
        assert picture.shape[0] % 2 == picture.shape[1] % 2 == 0


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


def test_an_env_draws_its_own_trail() -> None:
    env = seeded()
    env.reset()
    for _ in range(8):
        verb = pilot(env.world)
        env.step(verb)
    assert not np.array_equal(env.render(), draw(env.world, np.zeros((9, 9)), verb))
    env._map.trail[:] = 0
    assert np.array_equal(env.render(), draw(env.world, np.zeros((9, 9)), verb))
