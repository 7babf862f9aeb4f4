"""The form of EnvPool 1.x's pools: types, spaces, settings, results, and what is refused."""

from __future__ import annotations

import copy
import gc
import types
from typing import Any

import dm_env
import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from stepmill import errors
from support.waiting import no_hang

KINDS = ["gym", "gymnasium", "dm"]


# ---- types, spaces, attributes -------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["gym", "gymnasium"])
def test_a_gym_pool_is_an_env_and_a_vector_env_with_the_spaces_of_one_env(envpool: Any, kind: str) -> None:
    env = envpool.make("CartPole-v1", env_type=kind, num_envs=3)
    assert isinstance(env, gymnasium.Env)
    assert isinstance(env, gymnasium.vector.VectorEnv)
    assert env.observation_space == env.single_observation_space == env.spec.observation_space
    assert env.observation_space.shape == (4,)
    assert env.action_space == env.single_action_space == spaces.Discrete(2)
    assert env.is_vector_env
    assert len(env) == env.num_envs == 3
    assert not env.is_async
    assert env.unwrapped is env
    assert env.all_env_ids.tolist() == [0, 1, 2]
    assert env.all_env_ids.dtype == np.int32
    assert env.metadata["autoreset_mode"] is gymnasium.vector.AutoresetMode.NEXT_STEP
    assert env.metadata["render_modes"] == ["rgb_array", "human"]
    assert env.render_mode is None


def test_a_dm_pool_is_an_environment(envpool: Any) -> None:
    env = envpool.make("CartPole-v1", "dm", num_envs=3)
    assert isinstance(env, dm_env.Environment)
    assert len(env) == 3
    assert env.reward_spec().dtype == np.float32
    assert env.discount_spec().maximum == 1


def test_attributes_can_be_set_from_outside(envpool: Any) -> None:
    env = envpool.make_gym("CartPole-v1", num_envs=3)
    env.num_envs = 3
    env.single_action_space = env.action_space
    env.is_vector_env = True
    env.spec.id = "another"
    assert env.spec.id == "another"


def test_the_configuration_is_a_dict_and_a_named_tuple(envpool: Any) -> None:
    env = envpool.make_gym("CartPole-v1", num_envs=3, seed=7, max_episode_steps=9)
    config = env.spec.config
    assert (config.num_envs, config.batch_size, config.seed, config.max_episode_steps) == (3, 3, 7, 9)
    assert config.reward_threshold == env.spec.reward_threshold == 475
    assert config.gym_reset_return_info
    assert env.config == config._asdict()
    assert config[0] == 3


def test_settings_have_envpools_names_and_defaults(envpool: Any) -> None:
    assert envpool.make_spec("CartPole-v1", num_envs=5, batch_size=0, num_threads=0).config.batch_size == 5
    assert envpool.make_spec("CartPole-v1", reward_threshold=10.0).reward_threshold == 10
    assert envpool.make_spec("Catch-v0").config.max_episode_steps == 2**31 - 1
    assert envpool.make_spec("Catch-v0").reward_threshold is None
    seeds = envpool.make_spec("CartPole-v1", num_envs=2, seed=[5, 9]).config
    assert (seeds.seed, seeds.env_seed) == (0, [5, 9])
    assert envpool.make_spec("CartPole-v1", num_envs=2, seed=3, env_seed=[5, 9]).config.env_seed == [5, 9]
    assert (
        envpool.make_spec("CartPole-v1", seed=3, env_seed=[], base_path="/", thread_affinity_offset=0).config.seed == 3
    )


def test_keys_of_envs_have_envpools_names_too(envpool: Any) -> None:
    assert envpool.make_spec("FrozenLake-v1", size=8).observation_space.n == 64
    assert envpool.make_spec("CliffWalking-v0").observation_space.n == 48
    assert envpool.make_spec("Catch-v0", height=7, width=3).observation_space.shape == (7, 3)
    pytest.importorskip("mujoco")
    ant = envpool.make_spec("Ant-v5", healthy_z_min=0.3, ctrl_cost_weight=0.1, use_contact_force=False)
    assert list(ant.config.healthy_z_range) == [0.3, 1.0]
    assert ant.config.ctrl_cost_weight == 0.1
    assert ant.observation_space.shape == (27,)
    both = envpool.make_spec("Hopper-v5", healthy_angle_min=-0.1, healthy_angle_max=0.1).config
    assert list(both.healthy_angle_range) == [-0.1, 0.1]
    assert envpool.make_spec("Reacher-v5", dist_cost_weight=2.0).config.reward_dist_weight == 2


def test_equal_pools_print_alike(envpool: Any) -> None:
    for kind in KINDS:
        first, second = (envpool.make("CartPole-v1", kind, num_envs=3) for _ in range(2))
        assert str(first) == str(second) == repr(first)
        assert "num_envs=3" in str(first)
    assert "num_envs=4" in str(envpool.make_spec("CartPole-v1", num_envs=4))


def test_specs_describe_every_array(envpool: Any) -> None:
    spec = envpool.make_spec("Taxi-v3")
    actions = spec.action_array_spec
    assert list(actions) == ["env_id", "players.env_id", "action"]
    assert (actions["action"].shape, actions["action"].dtype, actions["action"].maximum) == ([-1], np.int32, 5)
    states = spec.state_array_spec
    assert {"info:env_id", "elapsed_step", "done", "reward", "discount", "step_type", "trunc", "obs"} < states.keys()
    assert states["info:action_mask"].shape == [6]
    assert spec.action_spec() == dm_env.specs.DiscreteArray(6, np.int32, "action")
    assert spec.observation_spec().obs.num_values == 500
    assert spec.observation_spec().players.env_id.dtype == np.int32


def test_bounds_that_all_elements_share_are_one_number(envpool: Any) -> None:
    spec = envpool.make_spec("Pendulum-v1")
    assert spec.action_array_spec["action"].shape == [-1, 1]
    assert spec.action_array_spec["action"].maximum == 2
    assert spec.action_spec().minimum == -2
    np.testing.assert_array_equal(spec.observation_spec().obs.maximum, np.float32([1, 1, 8]))


def test_specs_of_dict_actions_and_observations() -> None:
    from stepmill.interop.envpool import make_spec

    keys = make_spec("Moving-v0").action_array_spec.keys() - {"env_id", "players.env_id"}
    assert len(keys) > 1
    states = make_spec(DictEnv).state_array_spec
    assert states["obs:near"].dtype == np.int32
    assert states["obs:far"].shape == [2]


# ---- results -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["gym", "gymnasium"])
def test_reset_gives_two_results_and_step_five(envpool: Any, kind: str) -> None:
    env = envpool.make("CartPole-v1", kind, num_envs=3)
    obs, info = env.reset()
    assert obs.shape == (3, 4)
    assert info["env_id"].dtype == info["players"]["env_id"].dtype == info["elapsed_step"].dtype == np.int32
    obs, reward, terminated, truncated, info = env.step(np.zeros(3, int))
    assert reward.dtype == np.float32
    assert terminated.dtype == truncated.dtype == np.bool_
    assert info["elapsed_step"].tolist() == [1, 1, 1]


def test_a_step_before_the_first_reset_resets_and_limits_truncate(envpool: Any) -> None:
    env = envpool.make_gymnasium("MountainCar-v0", num_envs=2, max_episode_steps=3)
    rows = [env.step(np.zeros(2, int)) for _ in range(5)]
    assert [row[4]["elapsed_step"][0] for row in rows] == [0, 1, 2, 3, 0]
    assert [row[1][0] for row in rows] == [0, -1, -1, -1, 0]
    assert [bool(row[3][0]) for row in rows] == [False, False, False, True, False]
    assert not any(row[2].any() for row in rows)


def test_ids_choose_envs(envpool: Any) -> None:
    env = envpool.make_gym("CartPole-v1", num_envs=4)
    env.reset()
    obs, info = env.reset(np.array([3, 1]))
    assert obs.shape == (2, 4)
    assert info["env_id"].tolist() == [3, 1]
    assert env.step(np.array([0, 1, 0]), np.array([3, 2, 0]))[-1]["env_id"].tolist() == [3, 2, 0]
    ids = np.arange(4, dtype=np.int32)
    action = {"action": np.ones(4, np.int32), "env_id": ids, "players.env_id": ids}
    assert env.step(action)[0].shape == (4, 4)
    assert env.step(np.ones(4))[0].shape == (4, 4)  # EnvPool takes whole-number floats for discrete actions


def test_reset_can_seed(envpool: Any) -> None:
    env = envpool.make_gym("CartPole-v1", num_envs=2, seed=1)
    first = env.reset(seed=5)[0]
    env.step(np.zeros(2, int))
    np.testing.assert_array_equal(first, env.reset(seed=5)[0])
    np.testing.assert_array_equal(first, envpool.make_gym("CartPole-v1", num_envs=2, seed=5).reset()[0])


def test_dm_timesteps_name_the_observation_and_the_infos(envpool: Any) -> None:
    env = envpool.make_dm("Taxi-v3", num_envs=3, max_episode_steps=2)
    first = env.reset()
    assert first.first().all()
    assert first.reward.dtype == first.discount.dtype == np.float32
    state = first.observation
    assert state._fields == env.observation_spec()._fields == ("env_id", "players", "obs", "action_mask", "prob")
    assert state.obs.dtype == np.int32
    assert state.env_id.tolist() == state.players.env_id.tolist() == [0, 1, 2]
    assert env.step(np.zeros(3, int)).mid().all()
    last = env.step(np.zeros(3, int))
    assert last.last().all()
    assert last.discount.tolist() == [1, 1, 1]  # a limit is no end
    assert env.step(np.zeros(3, int)).first().all()
    assert env.reset(np.array([2])).observation.env_id.tolist() == [2]


class DictEnv(gymnasium.Env):
    observation_space = spaces.Dict({"near": spaces.Discrete(3), "far": spaces.Box(0, 1, (2,), np.float32)})
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        return {"near": 2, "far": np.zeros(2, np.float32)}, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return {"near": 1, "far": np.ones(2, np.float32)}, 1.0, False, False, {}


def test_any_env_works_and_dict_observations_are_fields(envpool: Any) -> None:
    env = envpool.make_gym(DictEnv, num_envs=2, backend="inline")
    obs, _ = env.reset()
    assert obs["near"].dtype == np.int32
    assert obs["near"].tolist() == [2, 2]
    assert obs["far"].shape == (2, 2)
    state = envpool.make_dm(DictEnv, num_envs=2, backend="inline").reset().observation
    assert state._fields == ("env_id", "players", "far", "near")


class Wide(gymnasium.Env[Any, Any]):
    """Observes a number that int32 does not hold, if asked to beside one that it does."""

    action_space = spaces.Discrete(2)

    def __init__(self, kind: str) -> None:
        self.observation_space, self.seen = {
            "many": (spaces.Discrete(2**40), 2**39 + 7),
            "below": (spaces.Discrete(5, start=-(2**35)), 1 - 2**35),
            "pair": (spaces.Tuple([spaces.Discrete(2**40), spaces.Discrete(3)]), (2**39 + 7, 2)),
        }[kind]

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        return self.seen, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return self.seen, 1.0, False, False, {}


@pytest.mark.parametrize("kind", ["many", "below", "pair"])
def test_numbers_that_int32_does_not_hold_keep_their_type(envpool: Any, kind: str) -> None:
    env = envpool.make_gymnasium(Wide, num_envs=2, backend="inline", kind=kind)
    dm = envpool.make_dm(Wide, num_envs=2, backend="inline", kind=kind)
    for obs in (env.reset()[0], env.step(np.zeros(2, np.int32))[0], dm.reset().observation.obs):
        first = tuple(int(part[0]) for part in obs) if kind == "pair" else int(obs[0])
        assert first == Wide(kind).seen
    assert env.observation_space == Wide(kind).observation_space


def test_players_have_rows(envpool: Any) -> None:
    env = envpool.make_gym("TemplatePlayers-v0", num_envs=2, max_num_players=4, tiles=6)
    obs, info = env.reset()
    assert info["players"]["env_id"].tolist() == [0, 0, 1, 1]
    obs, reward, terminated, _, info = env.step(np.full(len(obs), 2))
    assert len(obs) == len(reward) == len(info["players"]["env_id"])
    assert terminated.shape == (2,)
    dm = envpool.make_dm("TemplatePlayers-v0", num_envs=2, max_num_players=4, tiles=6)
    state = dm.reset().observation
    assert state.players.env_id.tolist() == [0, 0, 1, 1]
    assert state.players.id.tolist() == [0, 1, 0, 1]


def test_an_info_that_all_rows_lack_is_there_as_zeros(envpool: Any) -> None:
    """At a limit all envs begin an episode at once, and a reset of MuJoCo tasks tells less than a step."""
    pytest.importorskip("mujoco")
    env = envpool.make_gym("Reacher-v5", num_envs=2, max_episode_steps=2)
    _, info = env.reset()
    assert info["reward_dist"].tolist() == [0, 0]
    rows = [env.step(np.zeros((2, 2)))[-1] for _ in range(3)]
    assert rows[1]["reward_dist"].all()
    assert rows[2]["elapsed_step"].tolist() == [0, 0]
    assert rows[2]["reward_dist"].tolist() == [0, 0]
    assert rows[2]["reward_dist"].dtype == rows[1]["reward_dist"].dtype


# ---- async ---------------------------------------------------------------------------------------


def test_an_async_reset_gives_the_rows_that_are_ready_first(envpool: Any) -> None:
    env = envpool.make_gym("CartPole-v1", num_envs=8, batch_size=3)
    assert env.is_async
    seen = []
    with no_hang():
        obs, info = env.reset()
        seen += info["env_id"].tolist()
        for _ in range(50):
            assert obs.shape == (3, 4)
            obs, _, _, _, info = env.step(np.zeros(3, int), info["env_id"])
            seen += info["env_id"].tolist()
        obs, info = env.reset()  # while others are in flight
        assert obs.shape == (3, 4)
        assert not info["elapsed_step"].any()
        assert len(env.recv()) == 5
    assert set(seen) == set(range(8))


def test_recv_can_have_the_form_of_a_reset(envpool: Any) -> None:
    env = envpool.make_gym("CartPole-v1", num_envs=4, batch_size=2)
    env.async_reset()
    assert [len(env.recv(reset=True)), len(env.recv())] == [2, 5]
    sync = envpool.make_gym("CartPole-v1", num_envs=2)
    sync.async_reset()
    assert len(sync.recv(True)) == 2
    assert len(sync.step(np.zeros(2, int))) == 5


def test_dm_async(envpool: Any) -> None:
    env = envpool.make_dm("CartPole-v1", num_envs=6, batch_size=2)
    timestep = env.reset()
    for _ in range(20):
        assert timestep.observation.obs.shape == (2, 4)
        timestep = env.step(np.ones(2, int), timestep.observation.env_id)


# ---- pictures ------------------------------------------------------------------------------------


def test_pictures_come_in_batches(envpool: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pygame")
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    env = envpool.make_gym("CartPole-v1", num_envs=4, render_mode="rgb_array", render_env_id=2)
    assert env.render_mode == "rgb_array"
    env.reset()
    whole = env.render(env_ids=[0, 1, 2, 3])
    assert whole.shape == (4, 400, 600, 3)
    assert whole.dtype == np.uint8
    np.testing.assert_array_equal(env.render(), whole[2:3])
    np.testing.assert_array_equal(env.render(env_ids=1), whole[1:2])
    np.testing.assert_array_equal(env.render(np.array([3, 0])), whole[[3, 0]])
    with pytest.raises(errors.EnvIdError):
        env.render(4)
    with pytest.raises(errors.UnsupportedError, match="render_camera_id"):
        env.render(camera_id=0)


def test_pictures_have_the_size_that_was_asked_for(envpool: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pygame")
    pytest.importorskip("cv2")
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    env = envpool.make_dm("CartPole-v1", render_mode="rgb_array", render_width=100, render_height=80)
    env.reset()
    assert env.render().shape == (1, 80, 100, 3)


def test_a_mujoco_env_draws_in_that_size_itself() -> None:
    pytest.importorskip("mujoco")
    from stepmill.interop.envpool.arguments import read

    asked = {"render_mode": "rgb_array", "render_width": 96, "render_height": 64, "render_camera_id": 1}
    ours, extras = read("Ant-v5", asked)
    assert {key: ours[key] for key in ("width", "height", "camera_id")} == {"width": 96, "height": 64, "camera_id": 1}
    assert extras.render_size is None


def test_a_window_shows_one_env(envpool: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pygame")
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    shown = []

    def imshow(title: str, frame: np.ndarray) -> None:
        shown.append((title, frame))
        if len(shown) > 1:
            raise RuntimeError("no display")

    window = types.SimpleNamespace(imshow=imshow, waitKey=lambda _: None, error=RuntimeError)
    monkeypatch.setitem(__import__("sys").modules, "cv2", window)
    env = envpool.make_gym("CartPole-v1", num_envs=2, render_mode="human")
    env.reset()
    assert env.render_mode == "human"
    assert env.render(1) is None
    ((title, frame),) = shown
    assert title == "CartPole-v1, env 1"
    assert frame.shape == (400, 600, 3)
    with pytest.raises(errors.EnvIdError, match="one env"):
        env.render([0, 1])
    with pytest.raises(errors.UnsupportedError, match="no display"):
        env.render(0)


# ---- what is refused -----------------------------------------------------------------------------


def test_results_are_numpy_arrays_as_envpools(envpool: Any) -> None:
    with pytest.raises(errors.ConfigError, match="numpy arrays"):
        envpool.make_gymnasium("CartPole-v1", output="torch")
    with pytest.raises(errors.ConfigError, match="device: EnvPool's pools hand out numpy arrays"):
        envpool.make_gymnasium("CartPole-v1", device="cuda")


def test_what_is_not_there_says_so(envpool: Any) -> None:
    env = envpool.make_gym("CartPole-v1")
    with pytest.warns(UserWarning, match="no effect"):
        env.seed(3)
    with pytest.raises(RuntimeError, match="render_mode"):
        env.render()
    with pytest.raises(errors.UnsupportedError, match=r"stepmill\.register"):
        envpool.register("A-v0", "a", "ASpec", "ADM", "AGymnasium")


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"task_id": "CartPole-v1", "env_type": "tf"}, errors.ConfigError),
        ({"task_id": "CartPolee-v1"}, errors.UnknownEnvError),
        ({"foo": 3}, errors.UnknownConfigError),
        ({"num_envs": 2, "batch_size": 3}, ValueError),
        ({"num_envs": 0}, ValueError),
        ({"gym_reset_return_info": False}, ValueError),
        ({"from_pixels": True}, errors.UnsupportedError),
        ({"render_mode": "ansi"}, ValueError),
        ({"render_mode": "rgb_array", "render_camera_id": 1}, errors.UnsupportedError),
        ({"render_mode": "rgb_array", "render_width": 8}, ValueError),
        ({"render_env_id": -1}, ValueError),
        ({"env_seed": 3}, errors.ConfigError),
        ({"env_seed": "12"}, errors.ConfigError),
    ],
)
def test_bad_arguments_are_errors_of_ours(envpool: Any, arguments: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error) as raised:
        envpool.make(**{"task_id": "CartPole-v1", "env_type": "gym", **arguments})
    assert isinstance(raised.value, errors.StepmillError)


def test_too_few_actions_are_an_error_and_not_the_end_of_the_process(envpool: Any) -> None:
    env = envpool.make_gym("CartPole-v1", num_envs=4)
    env.reset()
    with pytest.raises(errors.ActionError):
        env.step(np.ones(3, int))
    assert env.step(np.ones(4, int))[0].shape == (4, 4)


# ---- lifetime ------------------------------------------------------------------------------------


def test_a_pool_closes_once_or_often_and_as_a_context(envpool: Any) -> None:
    with envpool.make_gym("CartPole-v1") as env:
        env.reset()
    env.close()
    assert env.closed
    with pytest.raises(errors.ClosedError):
        env.step(np.zeros(1, int))
    with pytest.raises(errors.CopyError):
        copy.copy(env)


@pytest.mark.parametrize("kind", ["gym", "dm"])
def test_a_pool_ends_when_its_last_user_is_gone(kind: str) -> None:
    """No cycle holds it: memory and threads are free at once."""
    from weakref import ref

    from stepmill.interop.envpool import make

    gc.disable()
    try:
        env = make("CartPole-v1", kind)
        engine = ref(env._engine)
        env.reset()
        del env
        assert engine() is None
    finally:
        gc.enable()
