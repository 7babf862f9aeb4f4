"""MuJoCo tasks play Gymnasium's episodes bit for bit, on the same installed MuJoCo.

`make test` plays 1,000 steps of each id in each autoreset mode, with a short time limit so that episodes end;
`make test-mujoco` plays 20,000, with the limits that Gymnasium has.
"""

from __future__ import annotations

import itertools
import os
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

import stepmill
from stepmill import _native
from stepmill.errors import ActionError
from stepmill.registry.records import find, own_ids
from support.mujoco_models import centipede, changed, crawler, pendulum
from support.reference import Case
from support.replays import MODES, PROCESSES, WAYS, Recorder, Replay, make_pool

pytest.importorskip("mujoco", reason="needs mujoco")

STEPS = int(os.environ.get("STEPMILL_MUJOCO_STEPS", "1000"))
LONG = STEPS > 1000
IDS = [id for id in own_ids() if "mujoco" in (find(id).simulator or "")]


def defaults(id: str) -> Case:
    """Enough events for STEPS steps, also where every sixth event is a reset."""
    num_envs = 16 if LONG else 8
    return Case(
        id,
        num_envs=num_envs,
        events=STEPS * 6 // 5 // num_envs + 12,
        max_episode_steps=None if LONG else 45,
        beyond_bounds=1.5,
    )


def rotated(names: list[str]) -> list[Any]:
    """Each name in each autoreset mode, and over all names, each mode in each way of running."""
    ways = list(WAYS)
    return [
        pytest.param(name, mode, ways[(i + j) % len(ways)], id=f"{name}-{mode}-{ways[(i + j) % len(ways)]}")
        for (i, name), (j, mode) in itertools.product(enumerate(names), enumerate(MODES))
    ]


def play(case: Case, recording: Recorder, autoreset: str, way: str) -> int:
    """How many steps were compared."""
    with make_pool(case, autoreset, way) as pool:
        replay = Replay(pool, recording(case), autoreset)
        replay.run()
    return replay.steps


# ---- the ids as they are ----------------------------------------------------------------------------


@pytest.mark.parametrize(("id", "autoreset", "way"), rotated(IDS))
def test_a_pool_plays_the_episodes_of_gymnasium(recording: Recorder, id: str, autoreset: str, way: str) -> None:
    assert play(defaults(id), recording, autoreset, way) >= STEPS


# Random actions make these fall.
FALL = {"Hopper", "Walker2d", "Humanoid", "InvertedPendulum", "InvertedDoublePendulum"}


@pytest.mark.parametrize("id", IDS)
def test_the_recordings_hold_the_ends_that_an_env_has(recording: Recorder, id: str) -> None:
    tapes = recording(defaults(id))
    assert tapes.terminated.any() or id.partition("-")[0] not in FALL
    assert tapes.truncated.any() or id.partition("-")[0] in FALL


@pytest.mark.usefixtures("server")
@pytest.mark.parametrize(
    ("id", "autoreset", "way"),
    [
        ("Ant-v5", "next_step", "processes"),
        ("Hopper-v4", "same_step", "async processes"),
        ("Humanoid-v5", "disabled", "processes"),
        ("Reacher-v5", "same_step", "processes"),
    ],
)
def test_worker_processes_play_them_too(recording: Recorder, id: str, autoreset: str, way: str) -> None:
    assert way in PROCESSES
    assert play(defaults(id), recording, autoreset, way) >= STEPS


@pytest.mark.parametrize("autoreset", MODES)
def test_resets_by_hand_go_on_as_in_gymnasium(autoreset: str) -> None:
    """Seeds and masks, in the middle of episodes."""
    count, id = 3, "Hopper-v5"
    oracle = gymnasium.vector.SyncVectorEnv(
        [lambda: gymnasium.make(id, disable_env_checker=True)] * count,
        autoreset_mode=gymnasium.vector.AutoresetMode[autoreset.upper()],
    )
    with stepmill.make(id, num_envs=count, seed=3, autoreset=autoreset, num_threads=2) as pool:
        assert pool.is_native
        rng = np.random.default_rng(0)
        for seed, mask in [(3, None), (None, [True, False, True]), (8, None), ([4, None, 1], None)]:
            options = None if mask is None else {"reset_mask": np.array(mask)}
            got = pool.reset(seed=seed, options=options)
            expected = oracle.reset(seed=seed, options=options)
            assert got[0].tobytes() == expected[0].tobytes()
            for _ in range(8):
                action = rng.uniform(-1, 1, (count, 3)).astype(np.float32)
                for mine, theirs in zip(pool.step(action)[:4], oracle.step(action)[:4], strict=True):
                    assert mine.tobytes() == theirs.tobytes()
    oracle.close()


# ---- arguments of the constructors ------------------------------------------------------------------

# Every argument of every id that changes an episode, with another value than its default.
VARIANTS: dict[str, list[dict[str, Any]]] = {
    "Ant-v4": [
        {
            "ctrl_cost_weight": 0.3,
            "contact_cost_weight": 1e-3,
            "healthy_reward": 0.7,
            "terminate_when_unhealthy": False,
            "healthy_z_range": (0.4, 0.9),
            "contact_force_range": (-0.5, 0.8),
            "reset_noise_scale": 0.2,
            "exclude_current_positions_from_observation": False,
            "use_contact_forces": True,
        },
        {"use_contact_forces": True, "healthy_z_range": (0.5, 0.8)},
    ],
    "Ant-v5": [
        {
            "frame_skip": 3,
            "forward_reward_weight": 1.3,
            "ctrl_cost_weight": 0.3,
            "contact_cost_weight": 1e-3,
            "healthy_reward": 0.7,
            "main_body": "front_left_leg",
            "terminate_when_unhealthy": False,
            "healthy_z_range": (0.4, 0.9),
            "contact_force_range": (-0.5, 0.8),
            "reset_noise_scale": 0.2,
            "exclude_current_positions_from_observation": False,
            "include_cfrc_ext_in_observation": False,
        },
        {"main_body": 4, "healthy_z_range": (0.5, 0.8)},
    ],
    "HalfCheetah-v4": [
        {
            "forward_reward_weight": 0.7,
            "ctrl_cost_weight": 0.3,
            "reset_noise_scale": 0.05,
            "exclude_current_positions_from_observation": False,
        }
    ],
    "HalfCheetah-v5": [
        {
            "frame_skip": 2,
            "forward_reward_weight": 0.7,
            "ctrl_cost_weight": 0.3,
            "reset_noise_scale": 0.0,
            "exclude_current_positions_from_observation": False,
        }
    ],
    "Hopper-v4": [
        {
            "forward_reward_weight": 0.7,
            "ctrl_cost_weight": 0.01,
            "healthy_reward": 1.7,
            "terminate_when_unhealthy": False,
            "healthy_state_range": (-3.0, 3.0),
            "healthy_z_range": (0.9, 2.0),
            "healthy_angle_range": (-0.1, 0.15),
            "reset_noise_scale": 0.01,
            "exclude_current_positions_from_observation": False,
        },
        {"healthy_state_range": (-2.0, 2.0), "healthy_angle_range": (-0.5, 0.5)},
    ],
    "Hopper-v5": [
        {
            "frame_skip": 2,
            "forward_reward_weight": 0.7,
            "ctrl_cost_weight": 0.01,
            "healthy_reward": 1.7,
            "terminate_when_unhealthy": False,
            "healthy_state_range": (-3.0, 3.0),
            "healthy_z_range": (0.9, 2.0),
            "healthy_angle_range": (-0.1, 0.15),
            "reset_noise_scale": 0.01,
            "exclude_current_positions_from_observation": False,
        },
        {"healthy_state_range": (-2.0, 2.0), "healthy_angle_range": (-0.5, 0.5)},
    ],
    "Humanoid-v4": [
        {
            "forward_reward_weight": 1.1,
            "ctrl_cost_weight": 0.3,
            "healthy_reward": 4.3,
            "terminate_when_unhealthy": False,
            "healthy_z_range": (1.2, 1.9),
            "reset_noise_scale": 0.05,
            "exclude_current_positions_from_observation": False,
        }
    ],
    "Humanoid-v5": [
        {
            "frame_skip": 3,
            "forward_reward_weight": 1.1,
            "ctrl_cost_weight": 0.3,
            "contact_cost_weight": 1e-5,
            "contact_cost_range": (0.01, 0.5),
            "healthy_reward": 4.3,
            "terminate_when_unhealthy": False,
            "healthy_z_range": (1.2, 1.9),
            "reset_noise_scale": 0.05,
            "exclude_current_positions_from_observation": False,
            "include_cinert_in_observation": False,
            "include_qfrc_actuator_in_observation": False,
        },
        {"include_cvel_in_observation": False, "include_cfrc_ext_in_observation": False},
    ],
    "HumanoidStandup-v5": [
        {
            "frame_skip": 3,
            "uph_cost_weight": 2.0,
            "ctrl_cost_weight": 0.3,
            "impact_cost_weight": 1e-4,
            "impact_cost_range": (0.5, 3.0),
            "reset_noise_scale": 0.05,
            "exclude_current_positions_from_observation": False,
            "include_cvel_in_observation": False,
            "include_cfrc_ext_in_observation": False,
        },
        {
            "include_cinert_in_observation": False,
            "include_qfrc_actuator_in_observation": False,
            "impact_cost_range": (3.0, 1.0),  # numpy's clip gives the upper bound
        },
    ],
    "InvertedDoublePendulum-v5": [{"frame_skip": 2, "healthy_reward": 7.5, "reset_noise_scale": 0.02}],
    "InvertedPendulum-v5": [{"frame_skip": 3, "reset_noise_scale": 0.15}],
    "Pusher-v5": [
        {"frame_skip": 2, "reward_near_weight": 0.3, "reward_dist_weight": 1.3, "reward_control_weight": 0.7}
    ],
    "Reacher-v5": [{"frame_skip": 3, "reward_dist_weight": 1.3, "reward_control_weight": 0.7}],
    "Swimmer-v4": [
        {
            "forward_reward_weight": 0.7,
            "ctrl_cost_weight": 0.3,
            "reset_noise_scale": 0.3,
            "exclude_current_positions_from_observation": False,
        }
    ],
    "Swimmer-v5": [
        {
            "frame_skip": 3,
            "forward_reward_weight": 0.7,
            "ctrl_cost_weight": 0.3,
            "reset_noise_scale": 0.3,
            "exclude_current_positions_from_observation": False,
        }
    ],
    "Walker2d-v4": [
        {
            "forward_reward_weight": 0.7,
            "ctrl_cost_weight": 0.01,
            "healthy_reward": 1.7,
            "terminate_when_unhealthy": False,
            "healthy_z_range": (1.1, 1.9),
            "healthy_angle_range": (-0.1, 0.15),
            "reset_noise_scale": 0.01,
            "exclude_current_positions_from_observation": False,
        }
    ],
    "Walker2d-v5": [
        {
            "frame_skip": 2,
            "forward_reward_weight": 0.7,
            "ctrl_cost_weight": 0.01,
            "healthy_reward": 1.7,
            "terminate_when_unhealthy": False,
            "healthy_z_range": (1.1, 1.9),
            "healthy_angle_range": (-0.1, 0.15),
            "reset_noise_scale": 0.01,
            "exclude_current_positions_from_observation": False,
        },
        {"xml_file": "walker2d.xml", "healthy_angle_range": (-0.3, 0.3)},
    ],
}


def short(id: str, config: dict[str, Any], **how: Any) -> Case:
    return Case(id, config, num_envs=4, events=60, max_episode_steps=25, beyond_bounds=1.2, **how)


@pytest.mark.parametrize("id", IDS)
def test_every_argument_is_varied(id: str) -> None:
    varied = {key for config in VARIANTS.get(id, []) for key in config}
    assert varied >= set(_native.default_config(id))


@pytest.mark.parametrize(
    ("case", "autoreset", "way"),
    [
        pytest.param(short(id, config), mode, way, id=f"{id}-{number}-{mode}-{way}")
        for (id, number, config), mode, way in zip(
            ((id, number, config) for id, configs in VARIANTS.items() for number, config in enumerate(configs)),
            itertools.cycle(MODES),
            itertools.cycle(WAYS),
        )
    ],
)
def test_arguments_play_as_in_gymnasium(recording: Recorder, case: Case, autoreset: str, way: str) -> None:
    assert play(case, recording, autoreset, way) >= 150


def test_each_env_may_have_its_own_arguments() -> None:
    configs = [{"ctrl_cost_weight": 0.5}, {"frame_skip": 3}, {}]
    oracles = [gymnasium.make("Swimmer-v5", **config) for config in configs]
    with stepmill.make("Swimmer-v5", env_config=configs, num_envs=3, seed=1) as pool:
        assert pool.is_native
        observation, _ = pool.reset()
        for i, oracle in enumerate(oracles):
            assert observation[i].tobytes() == oracle.reset(seed=1 + i)[0].tobytes()
        action = np.array([[0.5, -0.5]] * 3, np.float32)
        for _ in range(10):
            observation, reward, *_ = pool.step(action)
            for i, oracle in enumerate(oracles):
                expected = oracle.step(action[i])
                assert observation[i].tobytes() == expected[0].tobytes()
                assert reward[i] == expected[1]
    for oracle in oracles:
        oracle.close()


# ---- models of the user -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("id", "config"),
    [
        ("Ant-v5", {"main_body": "hand", "healthy_z_range": (0.05, 1.0)}),
        ("HalfCheetah-v5", {}),
        ("Humanoid-v5", {"healthy_z_range": (0.05, 1.0)}),
        ("HumanoidStandup-v5", {}),
        ("Swimmer-v5", {"exclude_current_positions_from_observation": False}),
        ("Walker2d-v5", {"healthy_z_range": (-1.0, 1.0)}),
    ],
)
def test_a_model_of_the_user(recording: Recorder, tmp_path: Path, id: str, config: dict[str, Any]) -> None:
    case = short(id, {"xml_file": crawler(tmp_path), **config})
    assert play(case, recording, "next_step", "three threads") >= 150


@pytest.mark.parametrize("links", [12, 140])
@pytest.mark.parametrize("id", ["Ant-v5", "Humanoid-v5"])
def test_models_with_many_bodies_and_actuators(recording: Recorder, tmp_path: Path, id: str, links: int) -> None:
    """The order in which numpy sums depends on how many numbers there are."""
    config = {"xml_file": centipede(tmp_path, links), "frame_skip": 1, "terminate_when_unhealthy": False}
    case = Case(id, config, num_envs=2, events=25, max_episode_steps=20)
    assert play(case, recording, "next_step", "three threads") >= 40


def test_a_model_without_actuators(recording: Recorder, tmp_path: Path) -> None:
    """Its actions have no numbers, and the sum of none is 0.0."""
    case = short("HalfCheetah-v5", {"xml_file": pendulum(tmp_path)})
    assert play(case, recording, "next_step", "three threads") >= 150


@pytest.mark.parametrize(
    ("id", "asset", "change"),
    [
        ("Ant-v4", "ant.xml", ('gear="150"', 'gear="90"')),
        ("Hopper-v5", "hopper.xml", ('timestep="0.002"', 'timestep="0.003"')),
        ("InvertedPendulum-v5", "inverted_pendulum.xml", ('ctrlrange="-3 3"', 'ctrlrange="-2 1"')),
        ("Reacher-v5", "reacher.xml", ('gear="200.0"', 'gear="100.0"')),
        ("Pusher-v5", "pusher_v5.xml", ('timestep="0.01"', 'timestep="0.02"')),
    ],
)
def test_a_changed_copy_of_a_model(
    recording: Recorder, tmp_path: Path, id: str, asset: str, change: tuple[str, str]
) -> None:
    case = short(id, {"xml_file": changed(tmp_path, asset, change)})
    assert play(case, recording, "same_step", "async") >= 150


# ---- actions outside of the space -------------------------------------------------------------------


def infinite(observation: Any, info: dict[str, Any], rng: np.random.Generator) -> np.ndarray:
    """For tasks with three actuators."""
    return rng.choice([-np.inf, np.inf, 0.5, -1e30, 3e38], 3).astype(np.float32)


def test_infinities_do_what_they_do_in_gymnasium(recording: Recorder) -> None:
    with np.errstate(all="ignore"):
        case = short("Hopper-v5", {"terminate_when_unhealthy": False}, policy=infinite)
        tapes = recording(case)
    assert np.isinf(tapes.reward).any()
    assert play(case, recording, "next_step", "three threads") >= 150


def test_nan_is_refused_and_the_pool_goes_on() -> None:
    with stepmill.make("Hopper-v5", num_envs=2) as pool:
        pool.reset()
        action = np.zeros((2, 3), np.float32)
        action[1, 2] = np.nan
        with pytest.raises(ActionError, match="nan"):
            pool.send(action)
        assert pool.step(np.zeros((2, 3), np.float32))[4]["elapsed_step"].tolist() == [1, 1]
