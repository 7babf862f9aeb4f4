"""TorchRL's own ``GymWrapper`` takes a pool, and makes of it what it makes of Gymnasium's vector env."""

from __future__ import annotations

from typing import Any

import gymnasium
import pytest
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from torchrl.envs import GymWrapper
from torchrl.envs.utils import check_env_specs

import stepmill

pytestmark = pytest.mark.filterwarnings("ignore")  # TorchRL warns of many things

MODES = pytest.mark.parametrize("mode", ["same_step", "disabled"])
OWN_KEYS = {"env_id", "elapsed_step"}  # of a pool's info, which the wrapper shows in same_step


def wrapped(task: str, mode: str, pool: bool, **arguments: Any) -> Any:
    if pool:
        return GymWrapper(stepmill.make(task, num_envs=3, autoreset=mode, max_episode_steps=11), **arguments)
    envs = [lambda: gymnasium.make(task, max_episode_steps=11)] * 3
    autoreset = {"same_step": AutoresetMode.SAME_STEP, "disabled": AutoresetMode.DISABLED}[mode]
    return GymWrapper(SyncVectorEnv(envs, autoreset_mode=autoreset), **arguments)


@MODES
@pytest.mark.parametrize(
    ("task", "categorical"), [("CartPole-v1", False), ("CartPole-v1", True), ("Pendulum-v1", False), ("Taxi-v4", True)]
)
def test_the_same_as_over_gymnasiums_vector_env(task: str, categorical: bool, mode: str) -> None:
    rollouts = []
    for pool in (True, False):
        env = wrapped(task, mode, pool, categorical_action_encoding=categorical)
        check_env_specs(env)
        env.set_seed(5)
        torch.manual_seed(5)
        rollouts.append(env.rollout(40, break_when_any_done=False))
        env.close()
    ours, theirs = rollouts
    keys = set(theirs.keys(True, True))
    assert {key if isinstance(key, str) else key[-1] for key in set(ours.keys(True, True)) - keys} <= OWN_KEYS
    for key in keys:
        assert torch.equal(ours[key], theirs[key]), key
    assert ours["next", "done"].sum() >= 9


@MODES
def test_the_last_observation_of_an_episode_is_in_next(mode: str) -> None:
    env = wrapped("Pendulum-v1", mode, True)
    data = env.rollout(30, break_when_any_done=False)
    done = data["next", "done"].squeeze(-1)
    assert done.nonzero().tolist() == [[env_id, step] for env_id in range(3) for step in (10, 21)]
    follows = (data["next", "observation"][:, :-1] == data["observation"][:, 1:]).all(-1)
    assert torch.equal(follows, ~done[:, :-1])
    assert torch.equal(data["next", "truncated"], data["next", "done"])
    assert not data["next", "terminated"].any()
    env.close()


def test_it_refuses_next_step_itself() -> None:
    with stepmill.make("CartPole-v1") as pool, pytest.raises(RuntimeError, match="SAME_STEP or DISABLED"):
        GymWrapper(pool)
