"""EnvPool's README and its examples, in our words: what they do works with the import changed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from support.waiting import no_hang

pytestmark = pytest.mark.usefixtures("deadline")


@pytest.fixture
def pong() -> str:
    pytest.importorskip("ale_py")
    pytest.importorskip("cv2")
    return "Pong-v5"


# ---- the README ----------------------------------------------------------------------------------


def test_readme_sync(envpool: Any, pong: str) -> None:
    env = envpool.make(pong, env_type="gymnasium", num_envs=5, backend="inline")
    obs, _ = env.reset()
    assert obs.shape == (5, 4, 84, 84)
    act = np.zeros(5, dtype=int)
    obs, rew, term, trunc, info = env.step(act)
    assert obs.dtype == np.uint8
    assert rew.dtype == np.float32
    assert not term.any()
    assert not trunc.any()
    assert {"env_id", "players", "lives", "reward", "terminated", "ram", "elapsed_step"} <= info.keys()


def test_readme_async(envpool: Any) -> None:
    num_envs, batch_size = 64, 16
    env = envpool.make("CartPole-v1", env_type="gymnasium", num_envs=num_envs, batch_size=batch_size)
    action_num = env.action_space.n
    env.async_reset()
    seen: set[int] = set()
    with no_hang():
        while len(seen) < num_envs:
            obs, _rew, _term, _trunc, info = env.recv()
            env_id = info["env_id"]
            assert len(obs) == batch_size
            seen.update(env_id.tolist())
            action = np.random.randint(action_num, size=batch_size)
            env.send(action, env_id)


def test_readme_rendering(envpool: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """With CartPole: pictures of Ant need OpenGL, and tests/zoo/mujoco has these."""
    pytest.importorskip("pygame")
    pytest.importorskip("cv2")
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    env = envpool.make(
        "CartPole-v1",
        env_type="gymnasium",
        num_envs=4,
        render_mode="rgb_array",
        render_width=480,
        render_height=480,
    )
    env.reset()
    frames = env.render(env_ids=[0, 2])
    assert frames.shape == (2, 480, 480, 3)
    assert env.render().shape == (1, 480, 480, 3)


def test_the_version_is_that_of_the_interface(envpool: Any) -> None:
    assert envpool.__version__.startswith("1.")


# ---- the examples --------------------------------------------------------------------------------


def test_example_that_makes_envs_and_specs(envpool: Any, pong: str) -> None:
    gym, gym_too = envpool.make(pong, env_type="gym", backend="inline"), envpool.make_gym(pong, backend="inline")
    assert str(gym) == str(gym_too)
    spec = envpool.make_spec(pong, num_envs=4)
    np.testing.assert_allclose(spec.observation_space.high, 255)
    assert spec.action_space.n == 6
    assert spec.action_array_spec["action"].maximum + 1 == 6
    assert spec.observation_spec().obs.maximum == 255
    assert spec.action_spec().num_values == 6
    assert pong in envpool.list_all_envs()
    pytest.importorskip("mujoco")
    ant = envpool.make_gym("Ant-v4")
    info = ant.step(np.array([ant.action_space.sample()]), np.array([0]))[-1]
    assert "qpos0" not in info
    assert "x_position" in info


def test_example_that_steps_games_in_sync(envpool: Any, pong: str) -> None:
    env = envpool.make_gym(pong, num_envs=4, backend="inline")
    obs, _ = env.reset()
    for _ in range(10):
        obs = env.step(np.random.randint(env.action_space.n, size=4))[0]
    obs, _ = env.reset(np.array([1, 3]))
    assert obs.shape == (2, 4, 84, 84)
    env_id = np.array([3, 2, 0])
    result = env.step(np.array([0, 0, 2]), env_id)
    np.testing.assert_array_equal(result[-1]["env_id"], env_id)
    assert result[0].shape == (3, 4, 84, 84)


def test_example_that_steps_games_in_dm(envpool: Any, pong: str) -> None:
    env = envpool.make_dm(pong, num_envs=2, backend="inline")
    timestep = env.reset()
    state = timestep.observation
    assert state.obs.shape == (2, 4, 84, 84)
    assert state.lives.dtype == np.int32
    assert state.ram.shape == (2, 128)
    timestep = env.step(np.random.randint(env.action_spec().num_values, size=2))
    assert timestep.mid().all()
    assert env.step(np.array([1]), np.array([1])).observation.env_id.tolist() == [1]


@pytest.mark.parametrize("kind", ["gym", "dm"])
def test_example_that_steps_in_async(envpool: Any, kind: str) -> None:
    num_envs, batch_size = 8, 4
    env = envpool.make("CartPole-v1", kind, num_envs=num_envs, batch_size=batch_size)
    result = env.reset()
    for _ in range(100):
        env_id = result.observation.env_id if kind == "dm" else result[-1]["env_id"]
        assert len(env_id) == batch_size
        result = env.step(np.random.randint(2, size=batch_size), env_id)


def test_example_that_adapts_a_pool_to_stable_baselines(envpool: Any) -> None:
    """The loop of EnvPool's adapter: it reads ``spec.config``, sets attributes, splits infos and resets ended envs."""
    env = envpool.make("Pendulum-v1", env_type="gym", num_envs=4, seed=0, max_episode_steps=5)
    env.spec.id = "Pendulum-v1"
    env.num_envs = env.spec.config.num_envs
    env.reset()
    ends = 0
    for _ in range(12):
        obs, rewards, terminated, truncated, info = env.step(np.zeros((4, 1), np.float32))
        dones = terminated + truncated
        infos = [{key: info[key][i] for key in info if isinstance(info[key], np.ndarray)} for i in range(4)]
        assert [one["env_id"] for one in infos] == [0, 1, 2, 3]
        for i in np.flatnonzero(dones):
            ends += 1
            obs[i] = env.reset(np.array([i]))[0]  # results are the caller's to write
        assert rewards.shape == (4,)
    assert ends == 8


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore")
def test_example_that_trains_with_stable_baselines(envpool: Any) -> None:
    stable_baselines3 = pytest.importorskip("stable_baselines3")
    from stable_baselines3.common.vec_env import VecEnvWrapper, VecMonitor

    class Adapter(VecEnvWrapper):
        def __init__(self, venv: Any) -> None:
            venv.num_envs = venv.spec.config.num_envs
            super().__init__(venv=venv)

        def step_async(self, actions: np.ndarray) -> None:
            self.actions = actions

        def reset(self) -> Any:
            return self.venv.reset()[0]

        def seed(self, seed: int | None = None) -> Any:
            return None

        def step_wait(self) -> Any:
            obs, rewards, terminated, truncated, info = self.venv.step(self.actions)
            dones = terminated + truncated
            arrays = {key: value for key, value in info.items() if isinstance(value, np.ndarray)}
            infos: list[dict[str, Any]] = [{key: one[i] for key, one in arrays.items()} for i in range(self.num_envs)]
            for i in np.flatnonzero(dones):
                infos[i]["terminal_observation"] = obs[i].copy()
                obs[i] = self.venv.reset(np.array([i]))[0][0]
            return obs, rewards, dones, infos

    env = VecMonitor(Adapter(envpool.make("CartPole-v1", env_type="gym", num_envs=4, seed=0)))
    model = stable_baselines3.PPO("MlpPolicy", env, n_steps=64, seed=0, device="cpu")
    model.learn(512)
    assert len(model.ep_info_buffer) > 0
    assert model.num_timesteps == 512
