"""CartPole and Pendulum as ``BaseEnv``: Gymnasium's episodes, in the types of the contract."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import stepmill
from stepmill.envs.base_env import BaseEnv
from stepmill.errors import ActionError, ConfigError, UsageError
from stepmill.zoo.control import CartPoleEnv, PendulumEnv

BOTH = pytest.mark.parametrize(("make_env", "id"), [(CartPoleEnv, "CartPole-v1"), (PendulumEnv, "Pendulum-v1")])
Maker = Callable[..., BaseEnv]


def episode(env: BaseEnv, actions: list[Any]) -> list[np.ndarray]:
    return [env.reset(), *(env.step(action).obs for action in actions)]


@BOTH
def test_spaces_are_gymnasiums_and_nothing_is_built_for_them(
    make_env: Maker, id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    twin = gymnasium.make(id)
    monkeypatch.setattr(gymnasium, "make", None)  # whoever builds now fails
    env = make_env()
    assert (env.observation_space, env.action_space) == (twin.observation_space, twin.action_space)
    assert env.info().obs_space.shape == twin.observation_space.shape
    env.close()
    pickle.loads(pickle.dumps(env))
    with pytest.raises(TypeError):
        env.reset()


@BOTH
def test_an_episode_is_gymnasiums(make_env: Maker, id: str) -> None:
    env, twin = make_env({}), gymnasium.make(id)
    env.seed(5, dynamic_seed=False)
    np.testing.assert_array_equal(env.reset(), twin.reset(seed=5)[0])
    total, done = 0.0, False
    while not done:
        action = env.random_action()
        obs, reward, done, info = env.step(action)
        right = twin.step(action)
        np.testing.assert_array_equal(obs, right[0])
        assert (obs.dtype, reward.dtype, reward.shape) == (np.float32, np.float32, (1,))
        assert type(done) is bool
        assert done == (right[2] or right[3])
        assert reward[0] == np.float32(right[1])
        assert env.reward_space.contains(reward)
        total += float(right[1])
    assert info["eval_episode_return"] == info["final_eval_reward"] == total
    assert type(info["eval_episode_return"]) is float
    assert info["TimeLimit.truncated"] is right[3]
    env.close()


@BOTH
def test_static_seeds_repeat_episodes_and_dynamic_ones_repeat_runs(make_env: Maker, id: str) -> None:
    env, other = make_env(), make_env()
    actions = [env.random_action() for _ in range(3)]
    env.seed(1, dynamic_seed=False)
    np.testing.assert_array_equal(episode(env, actions), episode(env, actions))
    for one in (env, other):
        one.seed(1)
    first, second = episode(env, actions), episode(env, actions)
    assert not np.array_equal(first, second)
    np.testing.assert_array_equal([first, second], [episode(other, actions), episode(other, actions)])


def test_what_ends_by_the_clock_is_truncated_and_what_falls_is_not() -> None:
    env = CartPoleEnv({"max_episode_steps": 4})
    env.seed(0, dynamic_seed=False)
    env.reset()
    steps = [env.step(np.array(n % 2)) for n in range(4)]
    assert [step.done for step in steps] == [False, False, False, True]
    assert steps[-1].info == {"eval_episode_return": 4.0, "final_eval_reward": 4.0, "TimeLimit.truncated": True}
    fallen = CartPoleEnv()
    fallen.reset()
    while not (last := fallen.step(np.array(0))).done:
        assert last.info == {}
    assert last.info["TimeLimit.truncated"] is False


def test_observations_are_not_written_over() -> None:
    env = PendulumEnv()
    seen = episode(env, [np.ones(1, np.float32)] * 3)
    assert not any(np.shares_memory(one, other) for i, one in enumerate(seen) for other in seen[:i])
    assert len({one.tobytes() for one in seen}) == 4


def torques_of(cfg: dict[str, Any], actions: list[Any]) -> list[Any]:
    """What reaches the simulator."""
    env = PendulumEnv(cfg)
    env.reset()
    taken: list[Any] = []
    step = env._env.step
    env._env.step = lambda torque: (taken.append(torque), step(torque))[1]
    for action in actions:
        env.step(action)
    assert all(one.dtype == np.float32 and one.shape == (1,) for one in taken)
    return [one.item() for one in taken]


def test_torques() -> None:
    half = np.array([0.5], np.float32)
    assert torques_of({}, [half, [-2.0]]) == [0.5, -2.0]
    assert torques_of({"act_scale": True}, [half, [-1.0]]) == [1.0, -2.0]
    discrete = torques_of({"continuous": False}, [np.array(0), np.array([5]), 10, np.int64(6)])
    assert discrete == pytest.approx([-2.0, 0.0, 2.0, 0.4])


def test_the_action_space_follows_the_cfg() -> None:
    assert PendulumEnv({"act_scale": True}).action_space == spaces.Box(-1, 1, (1,), np.float32)
    assert PendulumEnv({"continuous": False}).action_space == spaces.Discrete(11)
    assert PendulumEnv({"continuous": False, "act_scale": True}).action_space == spaces.Discrete(11)
    assert PendulumEnv().action_space == spaces.Box(-2, 2, (1,), np.float32)


@pytest.mark.parametrize(
    ("env", "action"),
    [
        (CartPoleEnv(), 2),
        (CartPoleEnv(), np.array([0, 1])),
        (CartPoleEnv(), 0.5),
        (PendulumEnv(), np.zeros(2, np.float32)),
        (PendulumEnv(), np.array([np.nan])),
        (PendulumEnv({"continuous": False}), 11),
    ],
)
def test_an_action_that_cannot_be_names_the_env_and_what_it_takes(env: BaseEnv, action: Any) -> None:
    env.reset()
    with pytest.raises(ActionError, match=rf"{type(env).__name__}\(env_id=0\): action: expected (Discrete|Box).*, got"):
        env.step(action)


def test_wrong_use_is_an_error_that_says_so() -> None:
    with pytest.raises(UsageError, match=r"CartPoleEnv\(env_id=0\): step before reset"):
        CartPoleEnv().step(0)
    with pytest.raises(ConfigError, match="PendulumEnv: continuous: expected True or False, got 1"):
        PendulumEnv({"continuous": 1})
    with pytest.raises(ConfigError, match="CartPoleEnv: cfg: expected a dict, got 3"):
        CartPoleEnv(3)


@BOTH
def test_a_closed_env_can_be_reset(make_env: Maker, id: str) -> None:
    env = make_env()
    env.close()
    env.reset()
    env.close()
    env.close()
    assert env.observation_space.contains(env.reset())


def test_they_run_in_a_pool() -> None:
    with stepmill.make(lambda: CartPoleEnv({}), num_envs=3, backend="inline") as pool:
        obs, _ = pool.reset(seed=0)
        assert len(np.unique(obs[:, 0])) == 3
        *_, terminated, truncated, _ = pool.step(np.zeros(3, np.int64))
        assert not (terminated | truncated).any()


# ---- pictures ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("make_env", "size", "fps"), [(CartPoleEnv, (400, 600), 50), (PendulumEnv, (500, 500), 30)])
@pytest.mark.parametrize("asked_for", ["by cfg", "before reset", "after reset"])
def test_videos(tmp_path: Path, make_env: Maker, size: tuple[int, int], fps: int, asked_for: str) -> None:
    env = make_env({"max_episode_steps": 8, "replay_path": str(tmp_path) if asked_for == "by cfg" else None})
    if asked_for == "after reset":
        env.reset()
    if asked_for != "by cfg":
        env.enable_save_replay(str(tmp_path))
    env.seed(0, dynamic_seed=False)
    env.reset()
    while not env.step([1]).done:
        pass
    drawn = env.render()
    env.close()
    video = cv2.VideoCapture(str(tmp_path / "env_0_episode_0000.mp4"))
    assert video.get(cv2.CAP_PROP_FPS) == fps
    frames = [video.read()[1] for _ in range(9)]
    assert video.read()[1] is None
    video.release()
    assert drawn.shape == (*size, 3)
    first, last = ((np.abs(frames[i][..., ::-1].astype(int) - drawn) > 64).sum() for i in (0, -1))
    assert 10 * last < first  # the last frame is what was drawn last, but for the losses of the codec


def test_nothing_is_drawn_unless_asked_for() -> None:
    env = CartPoleEnv()
    env.reset()
    assert env._env.render_mode is None
    env.close()
