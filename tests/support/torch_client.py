"""As ``numpy_client.py``, for tensors."""

from typing import Any, assert_type

import torch

import stepmill
from stepmill.views.dm import DmPool
from stepmill.views.gym import GymPool
from stepmill.views.gymnasium import GymnasiumPool


def advantage(num_envs: int) -> torch.Tensor:
    with stepmill.make("CartPole-v1", num_envs=num_envs, output="torch", backend="thread") as pool:
        assert_type(pool, GymnasiumPool[torch.Tensor])
        obs, info = pool.reset()
        _, reward, terminated, truncated, info = pool.step((obs[:, 2] > 0).long())
        assert_type(reward, torch.Tensor)
        assert_type(info, dict[str, Any])
        return reward.float() * ~(terminated | truncated)


def done_of(pool: GymPool[torch.Tensor]) -> torch.Tensor:
    pool.reset()
    return pool.step(torch.zeros(len(pool), dtype=torch.int64))[2]


def discount_of(pool: DmPool[torch.Tensor]) -> torch.Tensor:
    pool.reset()
    return pool.step(torch.zeros(len(pool), dtype=torch.int64)).discount


def devices() -> None:
    """Never called."""
    assert_type(stepmill.make("CartPole-v1", output="torch", device="cuda"), GymnasiumPool[torch.Tensor])
    assert_type(stepmill.make_gym("CartPole-v1", output="torch", device=torch.device("cuda", 1)), GymPool[torch.Tensor])


def mistakes() -> None:
    """Never called."""
    done_of(stepmill.make("CartPole-v1", output="torch"))  # mypy: expected "GymPool[Tensor]" pyright: "GymPool[Tensor]"
    done_of(stepmill.make_gym("CartPole-v1"))  # mypy: expected "GymPool[Tensor]" pyright: "GymPool[Tensor]"


def main() -> None:
    assert advantage(3).tolist() == [1.0, 1.0, 1.0]
    with stepmill.make_gym("CartPole-v1", num_envs=2, output="torch") as pool:
        assert isinstance(done_of(pool), torch.Tensor)
    with stepmill.make_dm("CartPole-v1", num_envs=2, output="torch") as dm_pool:
        assert isinstance(discount_of(dm_pool), torch.Tensor)


if __name__ == "__main__":
    main()
