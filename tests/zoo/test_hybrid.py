"""Moving and Sliding: how they move, what they pay, how they end, and how they look."""

from __future__ import annotations

import copy
import math
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.utils.env_checker import check_env

import stepmill
from stepmill.errors import ActionError, ActionTypeError, ConfigError, NeedsResetError, ResetOptionError
from stepmill.zoo.hybrid import HybridEnv, MovingEnv, SlidingEnv
from stepmill.zoo.hybrid.env import BRAKE_LIGHT, FAILURE, FIELD, FLAME, TARGET, draw
from stepmill.zoo.hybrid.world import (
    ACCELERATE,
    BRAKE,
    TURN,
    HybridAction,
    MovingWorld,
    Rules,
    SlidingWorld,
    Start,
    World,
    draw_start,
)

ENVS = [MovingEnv, SlidingEnv]
LEFT = 1.0  # a full turn action, a quarter of a circle


def accelerate(power: float) -> HybridAction:
    return HybridAction(ACCELERATE, power, 0.0)


def turn(angle: float) -> HybridAction:
    return HybridAction(TURN, 0.0, angle)


brake = HybridAction(BRAKE, 0.0, 0.0)


def world_of(kind: type[World], target: tuple[float, float] = (0.5, 0.0), **rules: Any) -> World:
    """The agent in the middle of the field, looking along x."""
    return kind(Start((0.0, 0.0), 0.0, target), Rules(**rules))


def assert_moves(world: World, steps: list[tuple[HybridAction, tuple[float, float], tuple[float, float]]]) -> None:
    for action, position, velocity in steps:
        world.step(action)
        assert world.position == pytest.approx(position), action
        assert world.velocity == pytest.approx(velocity), action


# ---- how they move --------------------------------------------------------------------------------


def test_moving_goes_where_it_looks() -> None:
    assert_moves(
        world_of(MovingWorld),
        [
            (accelerate(1.0), (0.01, 0.0), (0.1, 0.0)),
            (accelerate(1.0), (0.03, 0.0), (0.2, 0.0)),
            (accelerate(0.5), (0.055, 0.0), (0.25, 0.0)),
            (turn(LEFT), (0.055, 0.025), (0.0, 0.25)),
            (turn(-0.0), (0.055, 0.05), (0.0, 0.25)),  # nothing slows it down
            (brake, (0.055, 0.055), (0.0, 0.05)),
            (brake, (0.055, 0.055), (0.0, 0.0)),
        ],
    )


def test_sliding_goes_on_where_it_went_and_loses_speed() -> None:
    assert_moves(
        world_of(SlidingWorld),
        [
            (accelerate(1.0), (0.01, 0.0), (0.1, 0.0)),
            (turn(LEFT), (0.0195, 0.0), (0.095, 0.0)),
            (accelerate(1.0), (0.028525, 0.01), (0.09025, 0.1)),
            (turn(LEFT), (0.03709875, 0.0195), (0.0857375, 0.095)),
            (brake, (0.03709875, 0.0195), (0.0, 0.0)),
        ],
    )


def test_sliding_brakes_along_its_movement_and_not_its_heading() -> None:
    world = world_of(SlidingWorld)
    world.velocity = (0.6, 0.8)  # 1 at once, 0.95 after the drag, 0.75 after the brake
    assert_moves(world, [(brake, (0.045, 0.06), (0.45, 0.6))])


@pytest.mark.parametrize("kind", [MovingWorld, SlidingWorld])
def test_no_speed_beyond_the_limit(kind: type[World]) -> None:
    world = world_of(kind)
    world.velocity = (1.0, 0.0)
    assert_moves(world, [(accelerate(1.0), (0.1, 0.0), (1.0, 0.0))])


@pytest.mark.parametrize("kind", [MovingWorld, SlidingWorld])
@pytest.mark.parametrize("pushes", range(1, 10))
def test_the_brake_ends_in_exact_rest(kind: type[World], pushes: int) -> None:
    world = world_of(kind)
    world.heading = 1.1  # where sines and cosines are not round
    for _ in range(pushes):
        world.step(accelerate(1.0))
    for _ in range(math.ceil(pushes / 2)):  # a brake takes what two pushes gave
        world.step(brake)
    assert world.velocity == (0.0, 0.0)


# ---- what they pay, and how they end --------------------------------------------------------------


def test_the_reward_is_the_way_gained_less_the_penalty() -> None:
    world = world_of(MovingWorld, penalty=0.25)
    assert world.step(accelerate(1.0)) == pytest.approx(0.01 - 0.25)
    assert world.step(turn(2 * LEFT)) == pytest.approx(-0.01 - 0.25), "and lost, when it goes back"


def test_to_stop_in_the_target_is_what_counts() -> None:
    world = world_of(MovingWorld, target=(0.15, 0.0))
    rewards = [world.step(accelerate(1.0)) for _ in range(3)]
    assert world.inside
    assert (world.succeeded, world.over) == (False, False), "it is still moving"
    rewards += [world.step(brake), world.step(brake)]
    assert rewards == pytest.approx([0.009, 0.019, 0.029, 0.009, 0.999])
    assert (world.succeeded, world.outside, world.over) == (True, False, True)


def test_to_stop_elsewhere_is_nothing() -> None:
    world = world_of(MovingWorld)
    assert world.step(brake) == pytest.approx(-0.001)
    assert not world.over


def test_to_leave_the_field_costs_one_and_ends_the_episode() -> None:
    world = MovingWorld(Start((0.985, 0.0), 0.0, (0.5, 0.0)), Rules())
    world.step(accelerate(1.0))
    assert (world.outside, world.over) == (False, False)
    assert world.step(accelerate(1.0)) == pytest.approx(-0.02 - 0.001 - 1)
    assert (world.outside, world.over, world.succeeded) == (True, True, False)


def run(env: Any, *actions: Any) -> list[Any]:
    return [env.step(action) for action in actions]


@pytest.mark.parametrize("env_class", ENVS)
def test_the_time_limit_truncates(env_class: Any) -> None:
    env = env_class(time_limit=2)
    env.reset(seed=0)
    first, last = run(env, (BRAKE, [0.0], [0.0]), (BRAKE, [0.0], [0.0]))
    assert first[2:] == (False, False, {"is_success": False})
    assert last[2:] == (False, True, {"is_success": False})
    assert (first[0][-1], last[0][-1]) == (0.5, 0.0), "time left"
    with pytest.raises(NeedsResetError, match="the episode is over"):
        env.step((BRAKE, [0.0], [0.0]))


def test_an_end_in_the_last_step_is_both(monkeypatch: pytest.MonkeyPatch) -> None:
    env = MovingEnv(time_limit=4)
    monkeypatch.setattr("stepmill.zoo.hybrid.env.draw_start", lambda *_: Start((0.0, 0.0), 0.0, (0.12, 0.0)))
    env.reset()
    last = run(env, (0, [1.0], [0.0]), (0, [1.0], [0.0]), (1, [0.0], [0.0]), (2, [0.0], [0.0]))[-1]
    assert last[2:] == (True, True, {"is_success": True})


# ---- as gymnasium envs ----------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["tuple", "dict"])
@pytest.mark.parametrize("env_class", ENVS)
def test_gymnasiums_own_checks_pass(env_class: Any, form: str) -> None:
    check_env(env_class("rgb_array", action_form=form), skip_render_check=True)


def test_the_observation_in_its_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stepmill.zoo.hybrid.env.draw_start", lambda *_: Start((-0.2, 0.4), math.pi / 6, (0.1, 0.8)))
    observation, _ = MovingEnv().reset()
    sine, cosine = 0.5, math.sqrt(3) / 2
    assert observation == pytest.approx([-0.2, 0.4, 0, 0, sine, cosine, 0.1, 0.8, 0.5, 0, 1])
    env = MovingEnv(target_radius=0.495)
    env.reset()
    observation, *_ = env.step((ACCELERATE, [1.0], [0.0]))
    assert observation[2:4] == pytest.approx([0.1 * cosine, 0.1 * sine])
    assert observation[9] == 1, "inside"


@pytest.mark.parametrize("env_class", ENVS)
def test_every_observation_is_in_the_space(env_class: Any) -> None:
    env = env_class(action_form="dict")
    env.action_space.seed(1)
    for seed in range(30):
        seen = [env.reset(seed=seed)[0]]
        over = False
        while not over:
            observation, _, terminated, truncated, _ = env.step(env.action_space.sample())
            seen.append(observation)
            over = terminated or truncated
        for one in seen:
            assert one.dtype == np.float32
            assert env.observation_space.contains(one), one


def test_starts_have_the_agent_clear_of_a_target_that_is_whole() -> None:
    rules = Rules(target_radius=0.5)
    generator = np.random.default_rng(0)
    starts = [draw_start(generator, rules) for _ in range(200)]
    assert len(set(starts)) == 200
    for start in starts:
        assert math.dist(start.position, start.target) > 1.0
        assert max(map(abs, start.target)) <= 0.5
        assert max(map(abs, start.position)) <= 0.9


@pytest.mark.parametrize("env_class", ENVS)
def test_both_action_forms_mean_the_same(env_class: Any) -> None:
    one, other = env_class(), env_class(action_form="dict")
    assert np.array_equal(one.reset(seed=3)[0], other.reset(seed=3)[0])
    for kind, power, angle in [(0, 0.7, 0.1), (1, 0.2, -0.3), (0, 1.0, 0.0), (2, 0.4, 0.4)]:
        arrays = (np.int64(kind), np.array([power], np.float32), np.array([angle], np.float32))
        got = one.step(arrays)
        expected = other.step({"action_type": np.array(kind), "action_args": np.array([power, angle], np.float32)})
        assert np.array_equal(got[0], expected[0])
        assert got[1:] == expected[1:]


def test_numbers_beyond_the_bounds_count_as_the_bounds() -> None:
    wild, tame = MovingEnv(), MovingEnv()
    wild.reset(seed=5), tame.reset(seed=5)
    for beyond, bound in [((0, [7.0], [0.0]), (0, [1.0], [0.0])), ((0, [-3.0], [0.0]), (0, [0.0], [0.0]))]:
        assert np.array_equal(wild.step(beyond)[0], tame.step(bound)[0])
    assert np.array_equal(wild.step((1, [0.0], [-2.0]))[0], tame.step((1, [0.0], [-1.0]))[0])


NAN = float("nan")


@pytest.mark.parametrize(
    ("form", "action", "error", "says"),
    [
        ("tuple", 1, ActionError, r"expected \(kind, power, angle\), got 1"),
        ("tuple", (0, [0.5]), ActionError, r"expected \(kind, power, angle\)"),
        ("tuple", (3, [0.5], [0.0]), ActionError, r"0 \(accelerate\), 1 \(turn\) or 2 \(brake\), got 3"),
        ("tuple", (0.0, [0.5], [0.0]), ActionTypeError, "one whole number as its kind, got 0.0"),
        ("tuple", (0, [NAN], [0.0]), ActionError, "two finite numbers"),
        ("tuple", (0, [0.5, 0.5], [0.0]), ActionTypeError, "a power and an angle"),
        ("tuple", (0, ["fast"], [0.0]), ActionTypeError, "a power and an angle"),
        ("dict", (0, [0.5], [0.0]), ActionError, "a dict with action_type and action_args"),
        ("dict", {"action_type": 0}, ActionError, "a dict with action_type and action_args"),
        ("dict", {"action_type": 0, "action_args": [0.5]}, ActionError, "two finite numbers"),
        ("dict", {"action_type": [0, 1], "action_args": [0.5, 0.0]}, ActionTypeError, "one whole number"),
    ],
)
def test_a_bad_action_is_an_error_that_changes_nothing(
    form: str, action: Any, error: type[Exception], says: str
) -> None:
    env = MovingEnv(action_form=form)
    observation, _ = env.reset(seed=0)
    with pytest.raises(error, match=f"MovingEnv: action: .*{says}"):
        env.step(action)
    assert np.array_equal(env._running("test").observe(), observation)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"render_mode": "human"}, "MovingEnv: render_mode: expected None or 'rgb_array', got 'human'"),
        ({"action_form": "list"}, "MovingEnv: action_form: expected one of 'tuple', 'dict', got 'list'"),
        ({"time_limit": 0}, "time_limit: expected a whole number >= 1, got 0"),
        ({"time_limit": 2.5}, "time_limit: expected a whole number, got 2.5"),
        ({"target_radius": 0.6}, "target_radius: expected a finite number >= 0.01 and <= 0.5, got 0.6"),
        ({"penalty": "much"}, "penalty: expected a finite number >= 0 and <= 1, got 'much'"),
        ({"penalty": NAN}, "penalty: expected a finite number"),
    ],
)
def test_a_bad_argument_is_an_error(arguments: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        MovingEnv(**arguments)


@pytest.mark.parametrize("call", ["step", "render"])
def test_a_call_before_reset_is_an_error(call: str) -> None:
    arguments = [(0, [0.0], [0.0])] if call == "step" else []
    for env in (SlidingEnv("rgb_array"), HybridEnv({"env_id": "Sliding"})):
        with pytest.raises(NeedsResetError, match=f"{call}: call reset first"):
            getattr(env, call)(*arguments)


def test_a_copy_of_an_env_goes_on_as_the_env_does() -> None:
    env = SlidingEnv()
    env.reset(seed=2)
    env.step((0, [1.0], [0.0]))
    for twin in (copy.deepcopy(env), pickle.loads(pickle.dumps(env))):
        original = copy.deepcopy(env)
        assert np.array_equal(twin.step((1, [0.0], [0.5]))[0], original.step((1, [0.0], [0.5]))[0])
        assert np.array_equal(twin.reset()[0], original.reset()[0]), "its chances too"


# ---- as a BaseEnv ---------------------------------------------------------------------------------


def test_the_spaces_are_there_before_anything_is_built() -> None:
    env = HybridEnv({"env_id": "Moving"})
    assert env.action_space == spaces.Dict(
        {
            "action_type": spaces.Discrete(3),
            "action_args": spaces.Box(np.array([0, -1], np.float32), np.array([1, 1], np.float32)),
        }
    )
    pair = HybridEnv({"env_id": "Moving", "action_form": "tuple"}).action_space
    assert pair == spaces.Tuple((spaces.Discrete(3), spaces.Box(0, 1, (1,)), spaces.Box(-1, 1, (1,))))
    assert env.observation_space.shape == (11,)
    assert env._env is None
    assert env.info().act_space.shape == {"action_args": (2,), "action_type": (3,)}
    assert repr(env) == "HybridEnv(Moving, env_id=0)"


@pytest.mark.parametrize(
    ("cfg", "says"),
    [
        ({}, "HybridEnv: expected a cfg with the key env_id, got one with nothing"),
        (None, "HybridEnv: cfg: expected a dict, got None"),
        ({"env_id": "Flying"}, "HybridEnv: env_id: expected one of 'Moving', 'Sliding', got 'Flying'"),
        ({"env_id": "Moving", "action_form": 3}, "HybridEnv: action_form: expected one of 'tuple', 'dict', got 3"),
        ({"env_id": "Moving", "time_limit": -1}, "time_limit: expected a whole number >= 1, got -1"),
    ],
)
def test_a_bad_cfg_is_an_error_when_the_env_is_made(cfg: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        HybridEnv(cfg)


def test_reset_takes_no_arguments() -> None:
    with pytest.raises(ResetOptionError, match="HybridEnv: reset: expected no arguments, got speed"):
        HybridEnv({"env_id": "Moving"}).reset(speed=3)


def play(env: HybridEnv, policy: Any) -> tuple[list[Any], dict[str, Any]]:
    """One episode: its timesteps, and the info of its end."""
    observation, done, steps = env.reset(), False, []
    while not done:
        steps.append(env.step(policy(observation)))
        observation, _, done, info = steps[-1]
    return steps, info


def test_the_types_of_a_timestep_and_of_an_end() -> None:
    env = HybridEnv({"env_id": "Sliding", "time_limit": 20})
    env.seed(0)
    steps, info = play(env, lambda _: env.random_action())
    for step in steps:
        assert (step.obs.dtype, step.obs.shape) == (np.float32, (11,))
        assert (step.reward.dtype, step.reward.shape) == (np.float32, (1,))
        assert type(step.done) is bool
        assert type(step.info["is_success"]) is bool
    assert [set(step.info) for step in steps[:-1]] == [{"is_success"}] * (len(steps) - 1)
    assert type(info["eval_episode_return"]) is float
    assert info["eval_episode_return"] == info["final_eval_reward"]
    assert info["eval_episode_return"] == pytest.approx(sum(step.reward.item() for step in steps), abs=1e-5)
    assert info["TimeLimit.truncated"] is (len(steps) == 20)


def test_an_episode_that_ends_by_itself_is_not_truncated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stepmill.zoo.hybrid.env.draw_start", lambda *_: Start((0.99, 0.0), 0.0, (0.5, 0.0)))
    env = HybridEnv({"env_id": "Moving", "action_form": "tuple"})
    steps, info = play(env, lambda _: (0, np.ones(1, np.float32), np.zeros(1, np.float32)))
    assert len(steps) == 2
    assert info == {
        "is_success": False,
        "TimeLimit.truncated": False,
        "eval_episode_return": pytest.approx(-0.03 - 2 * 0.001 - 1),
        "final_eval_reward": info["eval_episode_return"],
    }


def test_the_limit_alone_is_what_a_base_env_calls_truncated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stepmill.zoo.hybrid.env.draw_start", lambda *_: Start((0.99, 0.0), 0.0, (0.5, 0.0)))
    forward = (0, np.ones(1, np.float32), np.zeros(1, np.float32))
    for limit, alone in ((2, False), (1, True)):  # the second step leaves the field
        env = HybridEnv({"env_id": "Moving", "action_form": "tuple", "time_limit": limit})
        steps, info = play(env, lambda _: forward)
        assert (len(steps), info["TimeLimit.truncated"]) == (limit, alone)


def starts_of(env: HybridEnv, count: int) -> list[list[float]]:
    return [env.reset().tolist() for _ in range(count)]


@pytest.mark.parametrize("kind", ["Moving", "Sliding"])
def test_seeds(kind: str) -> None:
    def fresh(seed: int, dynamic_seed: bool) -> HybridEnv:
        env = HybridEnv({"env_id": kind})
        env.seed(seed, dynamic_seed)
        return env

    first, *others = starts_of(fresh(4, False), 3)
    assert others == [first, first], "static: every episode is the same one"
    run_of_starts = starts_of(fresh(4, True), 5)
    assert len(set(map(tuple, run_of_starts))) == 5, "dynamic: every episode is another one"
    assert run_of_starts == starts_of(fresh(4, True), 5), "and the run repeats"
    assert run_of_starts[0] != starts_of(fresh(5, True), 1)[0]


def test_a_closed_env_can_be_reset_and_goes_on_in_its_seeds() -> None:
    one, other = HybridEnv({"env_id": "Moving"}), HybridEnv({"env_id": "Moving"})
    one.seed(9), other.seed(9)
    expected = starts_of(one, 2)
    got = starts_of(other, 1)
    other.close()
    other.close()
    assert got + starts_of(other, 1) == expected


@pytest.mark.parametrize("form", ["dict", "tuple"])
def test_a_pool_of_them(form: str) -> None:
    actions: Any = {"action_type": np.array([0, 1]), "action_args": np.array([[1.0, 0.0], [0.0, 0.5]], np.float32)}
    if form == "tuple":
        arguments = actions["action_args"]
        actions = (actions["action_type"], arguments[:, :1], arguments[:, 1:])
    cfg = {"env_id": "Sliding", "action_form": form, "time_limit": 5}
    pool = stepmill.make(HybridEnv, cfg=cfg, num_envs=2, backend="inline")
    first, _ = pool.reset()
    assert first.shape == (2, 11)
    for _ in range(5):
        observation, _, terminated, truncated, info = pool.step(actions)
    assert observation[0, 2:4] == pytest.approx(0.1 * (1 - 0.95**5) / 0.05 * first[0, [5, 4]], rel=1e-4)
    assert (observation[1, :4] == first[1, :4]).all(), "it only turned"
    assert (truncated | terminated).tolist() == [True, True]
    assert info["eval_episode_return"] == pytest.approx(first[:, 8] - observation[:, 8] - 0.005, abs=1e-5)
    pool.close()


def test_a_cfg_can_ask_for_videos(tmp_path: Path) -> None:
    pytest.importorskip("imageio_ffmpeg")
    env = HybridEnv({"env_id": "Moving", "time_limit": 3, "replay_path": str(tmp_path)})
    env.seed(0)
    play(env, lambda _: env.random_action())
    env.close()
    assert [path.suffix for path in tmp_path.iterdir()] == [".mp4"]


# ---- policies -------------------------------------------------------------------------------------


def drive_to_the_target(observation: np.ndarray) -> dict[str, Any]:
    """Looks at the target, drives, and brakes in time; one that slides past it stops first."""
    x, y, vx, vy, sine, cosine, target_x, target_y, distance, inside, _ = observation.tolist()
    bearing = math.atan2(target_y - y, target_x - x)
    error = math.remainder(bearing - math.atan2(sine, cosine), math.tau)
    towards = vx * math.cos(bearing) + vy * math.sin(bearing)
    astray = abs(vy * math.cos(bearing) - vx * math.sin(bearing))
    too_fast = towards > 0 and towards**2 / 4 + 0.1 * towards >= distance
    if inside or too_fast or towards < -1e-6 or astray > 0.08:
        kind, angle = BRAKE, 0.0
    elif abs(error) > 0.05:
        kind, angle = TURN, error / (math.pi / 2)
    else:
        kind, angle = ACCELERATE, 0.0
    return {"action_type": np.array(kind), "action_args": np.array([1.0, angle], np.float32)}


@pytest.mark.parametrize("kind", ["Moving", "Sliding"])
def test_a_policy_that_drives_well_succeeds_and_a_random_one_does_not(kind: str) -> None:
    env = HybridEnv({"env_id": kind})
    env.seed(0)
    ends = [play(env, drive_to_the_target)[1] for _ in range(30)]
    assert all(end["is_success"] for end in ends)
    driven = np.mean([end["eval_episode_return"] for end in ends])
    env.seed(0)
    ends = [play(env, lambda _: env.random_action())[1] for _ in range(30)]
    assert sum(end["is_success"] for end in ends) <= 6
    assert driven > 1.5
    assert np.mean([end["eval_episode_return"] for end in ends]) < 0.2


# ---- pictures -------------------------------------------------------------------------------------


def pixel_at(picture: np.ndarray, x: float, y: float) -> np.ndarray:
    """The pixel of a place in the world: the picture is 400 wide and shows 1.16 on all sides."""
    return picture[int((1.16 - y) / 2.32 * 400), int((x + 1.16) / 2.32 * 400)].astype(int)


def count(picture: np.ndarray, colour: tuple[int, int, int]) -> int:
    return int((picture == np.array(colour, np.uint8)).all(axis=-1).sum())


def test_a_picture_has_the_target_and_the_agent_where_they_are() -> None:
    picture = draw(MovingWorld(Start((-0.6, -0.4), 0.0, (0.5, 0.6)), Rules()))
    assert (picture.shape, picture.dtype) == ((400, 400, 3), np.uint8)
    assert pixel_at(picture, 0.5, 0.6).tolist() == list(TARGET), "the dot in its middle"
    red, green, blue = pixel_at(picture, 0.5, 0.65)
    assert green > red
    assert green > blue
    red, green, blue = pixel_at(picture, -0.57, -0.4)
    assert blue > red + 80
    assert pixel_at(picture, 0.1, 0.1).tolist() == list(FIELD)
    mirrored = draw(MovingWorld(Start((0.6, -0.4), math.pi, (-0.5, 0.6)), Rules()))
    assert pixel_at(mirrored, -0.5, 0.6).tolist() == list(TARGET)


def test_edges_are_smooth() -> None:
    picture = draw(MovingWorld(Start((0.0, 0.0), 0.0, (0.5, 0.5)), Rules()))
    assert len(np.unique(picture.reshape(-1, 3), axis=0)) > 100


def test_a_picture_shows_power_brake_and_movement() -> None:
    world = world_of(MovingWorld)
    still = draw(world)
    assert count(still, FLAME) == count(still, BRAKE_LIGHT) == 0
    world.step(accelerate(0.3))
    weak = count(draw(world), FLAME)
    world.step(accelerate(1.0))
    assert count(draw(world), FLAME) > weak > 0
    world.step(brake)
    picture = draw(world)
    assert count(picture, BRAKE_LIGHT) > 0
    assert count(picture, FLAME) == 0


def test_a_picture_shows_success_failure_and_time() -> None:
    world = world_of(MovingWorld, target=(0.15, 0.0), time_limit=10)
    clocks = []
    for action in (*[accelerate(1.0)] * 3, brake):
        world.step(action)
        clocks.append(int(draw(world)[int((1.16 + 1.08) / 2.32 * 400), :, 0].astype(int).sum()))
    assert clocks == sorted(clocks), "the dark bar grows shorter"
    assert len(set(clocks)) == 4
    before = pixel_at(draw(world), 0.22, 0.0)
    world.step(brake)
    assert world.succeeded
    assert np.abs(pixel_at(draw(world), 0.22, 0.0) - TARGET).sum() < np.abs(before - TARGET).sum()
    gone = MovingWorld(Start((0.995, 0.0), 0.0, (0.5, 0.0)), Rules())
    assert count(draw(gone), FAILURE) == 0
    gone.step(accelerate(1.0))
    assert count(draw(gone), FAILURE) > 1000


def test_render_gives_a_new_array_every_time_and_none_without_a_mode() -> None:
    env = HybridEnv({"env_id": "Moving"})
    env.reset()
    one, other = env.render(), env.render()
    assert np.array_equal(one, other)
    one[:] = 0
    assert np.array_equal(env.render(), other)
    silent = MovingEnv()
    silent.reset()
    assert silent.render() is None
