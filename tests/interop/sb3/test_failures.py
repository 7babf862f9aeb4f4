"""What the row of a failed env looks like to SB3, and how training goes on."""

from __future__ import annotations

import os
import signal
from typing import Any

import numpy as np
import pytest
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.evaluation import evaluate_policy

from stepmill.errors import EnvError
from stepmill.interop.sb3 import make_vec_env
from support.envs.talkative import CRASH, CRASH_IN_RESET, TalkativeEnv

pytestmark = pytest.mark.usefixtures("server", "deadline")

BACKENDS = pytest.mark.parametrize("backend", ["inline", "process"])


def make(backend: str, on_error: str = "restart", **settings: Any) -> Any:
    vec_env = make_vec_env(TalkativeEnv, 2, seed=3, backend=backend, on_error=on_error, **settings)
    vec_env.reset()
    return vec_env


@BACKENDS
def test_a_failed_step_ends_the_episode_and_the_next_one_has_begun(backend: str) -> None:
    vec_env = make(backend)
    before, *_ = vec_env.step([0, 0])
    observation, rewards, dones, infos = vec_env.step([0, CRASH])
    assert dones.tolist() == [False, True]
    assert rewards[1] == 0
    assert infos[1].keys() == {"TimeLimit.truncated", "abnormal", "terminal_observation"}
    assert infos[1]["TimeLimit.truncated"] is True
    assert infos[1]["abnormal"] is True
    assert "abnormal" not in infos[0]
    # The last good observation, and the first one of the next episode.
    last = infos[1]["terminal_observation"]
    np.testing.assert_array_equal(last["place"], before["place"][1])
    assert last["count"] == 1
    assert observation["count"].tolist() == [2, 0]
    assert vec_env.reset_infos[1] == {"episode_number": 2, "given": "None"}
    # Nothing else is lost: the next step is an ordinary one, in both envs.
    observation, rewards, dones, infos = vec_env.step([0, 0])
    assert observation["count"].tolist() == [0, 1]
    assert dones.tolist() == [True, False]
    np.testing.assert_allclose(rewards, [1, 1 / 3])
    vec_env.close()


@BACKENDS
def test_a_failed_reset_leaves_the_end_as_it_was(backend: str) -> None:
    """The episode counts: only the reset after it has failed, and is done again at once."""
    vec_env = make(backend)
    vec_env.step([0, CRASH_IN_RESET])
    vec_env.step([0, 0])
    observation, rewards, dones, infos = vec_env.step([0, 0])
    assert dones.tolist() == [True, True]
    assert [info["TimeLimit.truncated"] for info in infos] == [False, False]
    assert [info["terminal_observation"]["count"] for info in infos] == [3, 3]
    assert [info["episode"]["l"] for info in infos] == [3, 3]
    assert [info.get("abnormal", False) for info in infos] == [False, True]
    assert observation["count"].tolist() == [0, 0]
    assert rewards.tolist() == [1, 1]
    assert [info["episode_number"] for info in vec_env.reset_infos] == [2, 2]
    vec_env.close()


@BACKENDS
def test_by_default_an_error_carries_the_step(backend: str) -> None:
    vec_env = make(backend, "raise")
    vec_env.step([0, 0])
    with pytest.raises(EnvError, match=r"env 1 failed in step .*no step today") as caught:
        vec_env.step([0, CRASH])
    observation, _, dones, infos = caught.value.batch
    assert dones.tolist() == [False, True]
    assert infos[0]["t"] == 2
    assert infos[1]["abnormal"] is True
    assert observation["count"].tolist() == [2, 0]
    # The next step resets the failed env, whatever its action.
    observation, rewards, dones, _ = vec_env.step([0, CRASH])
    assert observation["count"].tolist() == [0, 0]
    assert rewards.tolist() == [1, 0]
    assert dones.tolist() == [True, False]
    vec_env.close()


def test_too_many_failures_in_a_row_are_an_error() -> None:
    vec_env = make("inline", max_restarts=2)
    vec_env.step([0, CRASH])
    with pytest.raises(EnvError, match="no step today") as caught:
        vec_env.step([0, CRASH])
    assert caught.value.batch[2].tolist() == [False, True]
    vec_env.close()


def test_a_reset_that_raises_after_a_failed_step_carries_the_step() -> None:
    vec_env = make("inline", max_restarts=2)
    vec_env.set_attr("crashes", True, 1)
    with pytest.raises(EnvError, match="no reset today") as caught:
        vec_env.step([0, CRASH])
    _, _, dones, infos = caught.value.batch
    assert dones.tolist() == [False, True]
    assert infos[1]["abnormal"] is True
    vec_env.close()


def test_a_killed_worker_is_a_failure_like_any_other() -> None:
    """The other env has a worker of its own, and notices nothing."""
    vec_env = make("process", num_workers=2)
    vec_env.step([0, 0])
    os.kill(vec_env.env_method("process_id")[1], signal.SIGKILL)
    _, _, dones, infos = vec_env.step([0, 0])
    assert dones.tolist() == [False, True]
    assert infos[1]["abnormal"] is True
    assert infos[1]["terminal_observation"]["count"] == 1
    observation, _, dones, infos = vec_env.step([0, 0])
    assert observation["count"].tolist() == [0, 1]
    assert not any("abnormal" in info for info in infos)
    vec_env.close()


@BACKENDS
def test_the_first_reset_is_done_again_until_it_succeeds(backend: str) -> None:
    """To SB3 every reset is a good one: the row would be zeros, and the real reset a step that nobody asked for."""
    whole = make(backend)
    whole.seed(7)
    expected = whole.reset()
    whole.close()
    vec_env = make(backend)
    vec_env.set_attr("crashes", True, 1)
    vec_env.seed(7)
    vec_env.set_options({"colour": 1})
    observation = vec_env.reset()
    np.testing.assert_array_equal(observation["place"], expected["place"])  # the seed is not lost
    assert vec_env.reset_infos == [{"episode_number": 2, "given": "{'colour': 1}"}] * 2
    observation, rewards, dones, infos = vec_env.step([0, 0])
    assert observation["count"].tolist() == [1, 1]
    assert not dones.any()
    np.testing.assert_allclose(rewards, [1 / 3, 1 / 3])
    assert not any("abnormal" in info for info in infos)
    vec_env.close()


@BACKENDS
def test_a_reset_that_fails_twice_is_done_a_third_time(backend: str) -> None:
    vec_env = make(backend, max_restarts=None)
    vec_env.step([0, CRASH_IN_RESET])
    vec_env.set_attr("crashes", 2, 1)
    vec_env.step([0, 0])
    observation, _, dones, infos = vec_env.step([0, 0])
    assert dones.tolist() == [True, True]
    assert infos[1]["abnormal"] is True
    assert infos[1]["episode"]["l"] == 3
    assert vec_env.reset_infos[1] == {"episode_number": 2, "given": "None"}
    observation, rewards, *_ = vec_env.step([0, 0])
    assert observation["count"].tolist() == [1, 1]
    np.testing.assert_allclose(rewards, [1 / 3, 1 / 3])
    vec_env.close()


def test_a_reset_that_fails_too_often_raises() -> None:
    vec_env = make("inline", max_restarts=2)
    vec_env.set_attr("crashes", 2, 1)
    with pytest.raises(EnvError, match="no reset today"):
        vec_env.reset()
    vec_env.close()


class CountFailures(BaseCallback):
    """As in docs/stable-baselines3.md."""

    failures = 0

    def _on_step(self) -> bool:
        self.failures += sum(info.get("abnormal", False) for info in self.locals["infos"])
        return True


def test_training_and_evaluation_survive_failures() -> None:
    """Random actions crash an env in a third of its steps. Broken episodes count nowhere."""
    vec_env = make("inline", max_restarts=None)
    count = CountFailures()
    model = PPO("MultiInputPolicy", vec_env, n_steps=32, batch_size=32, n_epochs=1, seed=0, device="cpu")
    model.learn(64, callback=count)
    assert count.failures > 5
    assert all(episode["l"] == 3 for episode in model.ep_info_buffer)
    returns, lengths = evaluate_policy(
        model, vec_env, n_eval_episodes=4, deterministic=False, return_episode_rewards=True
    )
    assert lengths == [3] * len(returns)
    vec_env.close()
