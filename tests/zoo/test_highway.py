"""highway-env's intersection with several vehicles, whose rewards come one per vehicle."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest

import stepmill

pytestmark = [
    pytest.mark.zoo,
    pytest.mark.filterwarnings("ignore"),  # ids of the older version
]


@pytest.mark.parametrize("id", ["intersection-multi-agent-v1", "intersection-multi-agent-v2"])
def test_each_vehicle_is_a_player_with_the_rewards_of_the_original(id: str) -> None:
    gymnasium.register_envs(pytest.importorskip("highway_env"))
    twin = gymnasium.make(id, disable_env_checker=True)
    with stepmill.make(id, num_envs=2, seed=3, num_workers=1) as pool:
        obs, info = pool.reset()
        expected, _ = twin.reset(seed=3)
        assert info["players"]["env_id"].tolist() == [0, 0, 1, 1]
        generator = np.random.default_rng(0)
        was_rewarded = is_over = False
        while not is_over:
            np.testing.assert_array_equal(obs[:2], np.stack(expected))
            actions = generator.integers(0, 3, 4)
            obs, reward, terminated, truncated, info = pool.step(actions)
            expected, rewards, ends, is_cut, _ = twin.step(tuple(actions[:2]))
            assert reward[:2].tolist() == list(rewards)
            assert info["agents_terminated"][0] == ends
            assert truncated[0] == is_cut
            is_over = terminated[0] or truncated[0]
            was_rewarded |= rewards[0] != rewards[1]
        assert was_rewarded, "the vehicles are rewarded one by one"
