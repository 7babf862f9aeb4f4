"""A pool as the vector env of RLlib's env runners: nothing is written for it, and it works."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import ray.tune
import torch
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.env.single_agent_env_runner import SingleAgentEnvRunner

import stepmill

pytestmark = pytest.mark.filterwarnings("ignore")  # Ray warns of many things

PAGE = Path(__file__).resolve().parents[3] / "docs" / "rllib.md"


def sampled(env: str, mode: str = "vector_entry_point", **env_config: Any) -> list[Any]:
    """The episodes that an env runner samples."""
    config = (
        PPOConfig()
        .environment(env, env_config=env_config)
        .env_runners(gym_env_vectorize_mode=mode, num_envs_per_env_runner=3)
        .debugging(seed=3)
    )
    runner = SingleAgentEnvRunner(config=config)
    torch.manual_seed(0)
    for weights in runner.module.parameters():
        torch.nn.init.normal_(weights, std=0.3)
    episodes = runner.sample(num_timesteps=300)
    runner.stop()
    return list(episodes)


@pytest.mark.parametrize("task", ["CartPole-v1", "Pendulum-v1"])
@pytest.mark.parametrize("settings", [{"backend": "thread"}, {"backend": "process", "num_workers": 2}], ids=str)
def test_the_episodes_are_those_of_gymnasiums_vector_env(task: str, settings: Any) -> None:
    ours, theirs = sampled(f"stepmill:stepmill/{task}", **settings), sampled(task, "sync")
    assert len(ours) == len(theirs) >= 3
    for mine, their in zip(ours, theirs, strict=True):
        for part in ("observations", "actions", "rewards"):
            np.testing.assert_array_equal(getattr(mine, f"get_{part}")(), getattr(their, f"get_{part}")())
        assert (mine.is_terminated, mine.is_truncated) == (their.is_terminated, their.is_truncated)


def test_another_autoreset_mode_is_taken_for_next_step() -> None:
    """RLlib does not look, and the page says so: from the second episode on, it takes a step for a reset."""
    for mode, is_right in (("next_step", True), ("same_step", False)):
        first = [one.get_observations()[0] for one in sampled("stepmill:stepmill/CartPole-v1", autoreset=mode)]
        assert all(np.abs(observation).max() <= 0.05 for observation in first) is is_right


@pytest.mark.usefixtures("cluster")
def test_the_page_trains_ppo(capsys: pytest.CaptureFixture[str]) -> None:
    namespace: dict[str, Any] = {"__name__": "__example__"}
    results = []
    for block in re.findall(r"^```py\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE):
        exec(compile(block, str(PAGE), "exec"), namespace)
        results.append(namespace["result"])
    cartpole, walk = results
    assert 8 < cartpole["env_runners"]["episode_return_mean"] < 100
    assert walk["env_runners"]["episode_len_max"] <= 50
    for result in results:
        assert result["env_runners"]["num_env_steps_sampled"] >= 512
        assert np.isfinite(result["learners"]["default_policy"]["total_loss"])


@pytest.mark.usefixtures("cluster")
def test_env_runners_in_processes_of_their_own() -> None:
    config = (
        PPOConfig()
        .environment("stepmill:stepmill/CartPole-v1")
        .env_runners(gym_env_vectorize_mode="vector_entry_point", num_env_runners=1, num_envs_per_env_runner=4)
        .training(train_batch_size_per_learner=256, minibatch_size=64, num_epochs=1)
    )
    algo = config.build_algo()
    result = algo.train()
    algo.stop()
    assert result["env_runners"]["num_env_steps_sampled"] >= 256


class Fragile(gymnasium.Env):
    """Fails in its fifth step, now and then."""

    observation_space = gymnasium.spaces.Box(0.0, 99.0, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)
    episodes = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.at, self.episodes = 0, self.episodes + 1
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        self.at += 1
        if self.at == 5 and self.episodes % 2:
            raise ValueError("it broke")
        return np.array([self.at], np.float32), 1.0, self.at == 8, False, {}


def test_an_episode_in_which_an_env_failed_is_truncated() -> None:
    ray.tune.register_env(
        "fragile",
        lambda config: stepmill.make(Fragile, num_envs=config["num_envs"], backend="inline", on_error="restart"),
    )
    ended = [one for one in sampled("fragile") if one.is_done]
    failed = [one for one in ended if one.get_infos(-1).get("abnormal")]
    assert 0 < len(failed) < len(ended)
    for one in ended:
        is_failed = one in failed
        assert (one.is_truncated, one.is_terminated, len(one)) == ((True, False, 5) if is_failed else (False, True, 8))
        seen = [*range(5), 4] if is_failed else [*range(9)]  # the last good observation
        assert one.get_observations().ravel().tolist() == seen
        assert one.get_return() == (4 if is_failed else 8)
