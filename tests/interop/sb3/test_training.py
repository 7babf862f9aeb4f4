"""SB3's algorithms train on a pool, and end with the weights that they have on Gymnasium's own envs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from stable_baselines3 import A2C, DQN, PPO, SAC
from stable_baselines3.common.env_util import make_vec_env as sb3_make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.vec_env import VecNormalize

from stepmill.interop.sb3 import StepmillVecEnv, make_vec_env
from support.envs.talkative import TalkativeEnv

PPO_SMALL: dict[str, Any] = {"n_steps": 64, "batch_size": 64, "n_epochs": 2}
CASES = [
    pytest.param(PPO, "CartPole-v1", 600, PPO_SMALL, id="ppo"),
    pytest.param(A2C, "CartPole-v1", 300, {}, id="a2c"),
    pytest.param(DQN, "CartPole-v1", 300, {"learning_starts": 50, "target_update_interval": 50}, id="dqn"),
    pytest.param(SAC, "Pendulum-v1", 840, {"learning_starts": 790, "train_freq": 8}, id="sac"),
]


@pytest.fixture(autouse=True)
def _one_thread() -> Any:
    """The networks are small."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def weights(model: Any) -> dict[str, torch.Tensor]:
    return {name: one.detach().clone() for name, one in model.policy.state_dict().items()}


def assert_same(ours: Any, theirs: Any) -> None:
    assert ours.keys() == theirs.keys()
    for name in theirs:
        assert torch.equal(ours[name], theirs[name]), name


@pytest.mark.parametrize(("algorithm", "env_id", "steps", "arguments"), CASES)
def test_the_weights_are_those_of_gymnasiums_envs(
    algorithm: Any, env_id: str, steps: int, arguments: dict[str, Any]
) -> None:
    trained = []
    for make in (make_vec_env, sb3_make_vec_env):
        vec_env = make(env_id, n_envs=4, seed=2)
        model = algorithm("MlpPolicy", vec_env, seed=9, device="cpu", **arguments)
        before = weights(model)
        model.learn(steps)
        assert any(not torch.equal(before[name], after) for name, after in weights(model).items())
        trained.append((weights(model), [(one["r"], one["l"]) for one in model.ep_info_buffer]))
        vec_env.close()
    assert_same(trained[0][0], trained[1][0])
    assert trained[0][1] == trained[1][1]
    assert trained[0][1] != []


def test_a_limit_is_bootstrapped_alike() -> None:
    """Episodes that a limit cuts off: the value of their last observation goes into the return."""
    trained = []
    for envs in (
        make_vec_env("CartPole-v1", 4, seed=2, max_episode_steps=9),
        sb3_make_vec_env("CartPole-v1", 4, seed=2, env_kwargs={"max_episode_steps": 9}),
        make_vec_env("gymnasium:CartPole-v1", 4, seed=2, max_episode_steps=9, backend="inline"),
        sb3_make_vec_env(
            "CartPole-v1",
            4,
            seed=2,
            env_kwargs={"max_episode_steps": 9},
            vec_env_cls=StepmillVecEnv,
            vec_env_kwargs={"backend": "process"},
        ),
    ):
        model = PPO("MlpPolicy", VecNormalize(envs), seed=9, device="cpu", **PPO_SMALL).learn(512)
        trained.append(weights(model))
        envs.close()
    for one in trained[1:]:
        assert_same(trained[0], one)


def test_dict_observations() -> None:
    vec_env = make_vec_env(TalkativeEnv, 2, seed=2, backend="inline", on_error="restart", max_restarts=None)
    PPO("MultiInputPolicy", vec_env, seed=9, device="cpu", **PPO_SMALL).learn(128)
    vec_env.close()


def test_evaluation_counts_whole_episodes() -> None:
    """Without SB3's warning that there is no Monitor: warnings are errors here."""
    vec_env = make_vec_env("CartPole-v1", 3, seed=2, max_episode_steps=20)
    model = PPO("MlpPolicy", vec_env, seed=9, device="cpu", **PPO_SMALL)
    returns, lengths = evaluate_policy(model, vec_env, n_eval_episodes=7, return_episode_rewards=True)
    assert len(returns) == 7
    assert returns == [float(length) for length in lengths]
    vec_env.close()


def test_a_model_is_saved_without_its_envs_and_goes_on_with_new_ones(tmp_path: Path) -> None:
    vec_env = make_vec_env("CartPole-v1", 2, seed=2)
    model = PPO("MlpPolicy", vec_env, seed=9, device="cpu", **PPO_SMALL).learn(128)
    model.save(tmp_path / "model")
    vec_env.close()
    other = make_vec_env("CartPole-v1", 2, seed=3)
    loaded = PPO.load(tmp_path / "model", env=other, device="cpu")
    assert_same(weights(loaded), weights(model))
    loaded.learn(128)
    loaded.set_env(make_vec_env("CartPole-v1", 2, seed=4))
    loaded.learn(128)
    loaded.get_env().close()
    other.close()


def test_normalisation_is_saved_without_the_envs(tmp_path: Path) -> None:
    vec_env = VecNormalize(make_vec_env("CartPole-v1", 2, seed=2))
    vec_env.reset()
    for _ in range(5):
        vec_env.step(np.array([0, 1]))
    vec_env.save(str(tmp_path / "normalisation"))
    loaded = VecNormalize.load(str(tmp_path / "normalisation"), make_vec_env("CartPole-v1", 2, seed=2))
    np.testing.assert_array_equal(loaded.obs_rms.mean, vec_env.obs_rms.mean)
    loaded.reset()
    loaded.close()
    vec_env.close()
