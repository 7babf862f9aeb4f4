"""Envs of many players: rows per player in observation, reward and action, ends per env.

``Template-v0`` lets one more player enter at every step, up to ``max_num_players``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import stepmill
from stepmill import errors
from stepmill.errors import ActionError, ConfigError, EnvIdError, UnsupportedError
from support.envs.adapted import Two


def make(view: str = "gymnasium", **arguments: Any) -> Any:
    return stepmill.make("Template-v0", view, slip=0.0, max_num_players=3, **arguments)


def forward(info: dict[str, Any]) -> dict[str, Any]:
    """Every player of the last batch goes forward."""
    owners = info["players"]["env_id"]
    return {"action": np.ones(len(owners), np.int64), "env_id": info["env_id"], "players.env_id": owners}


def test_rows_are_players_and_ends_are_envs() -> None:
    with make(num_envs=2, length=10) as pool:
        obs, info = pool.reset()
        assert info["players"]["env_id"].tolist() == [0, 1]
        assert obs.tolist() == [[0, 0], [0, 0]]
        obs, reward, terminated, truncated, info = pool.step(forward(info))
        assert info["players"]["env_id"].tolist() == [0, 0, 1, 1]
        assert obs.tolist() == [[1, 0], [0, 1], [1, 0], [0, 1]]
        assert reward.tolist() == [-0.01, 0, -0.01, 0]
        assert terminated.shape == truncated.shape == info["env_id"].shape == (2,)
        obs, reward, terminated, truncated, info = pool.step(forward(info))
        assert info["players"]["env_id"].tolist() == [0, 0, 0, 1, 1, 1]
        assert obs[:, 0].tolist() == [2, 1, 0, 2, 1, 0]


def test_envs_may_have_different_numbers_of_players() -> None:
    with make(num_envs=3, length=10) as pool:
        _, info = pool.reset()
        one = {"action": [1], "env_id": [1], "players.env_id": [1]}
        obs, _, _, _, info = pool.step(one)
        assert info["players"]["env_id"].tolist() == [1, 1]
        actions = {"action": [1, 0, 1, 1], "env_id": [0, 1, 2], "players.env_id": [0, 1, 1, 2]}
        obs, reward, _, _, info = pool.step(actions)
        assert info["players"]["env_id"].tolist() == [0, 0, 1, 1, 1, 2, 2]
        assert obs[:, 0].tolist() == [1, 0, 0, 1, 0, 1, 0]
        assert len(reward) == 7


def test_without_a_map_the_rows_are_those_of_the_last_batch() -> None:
    with make(num_envs=2, length=10) as pool:
        pool.reset()
        obs, *_ = pool.step(np.ones(2, np.int64))
        assert obs[:, 0].tolist() == [1, 0, 1, 0]
        obs, *_ = pool.step([1, 0, 0, 1])
        assert obs[:, 0].tolist() == [2, 0, 0, 0, 1, 0]
        with pytest.raises(ActionError, match=r"\(6,\)"):
            pool.step(np.ones(4, np.int64))


def test_an_action_may_have_a_row_for_every_player_that_there_may_be() -> None:
    with make(num_envs=2, length=10) as pool:
        pool.reset()
        obs, *_ = pool.step(np.ones(6, np.int64))
        assert obs[:, 0].tolist() == [1, 0, 1, 0]
        obs, *_ = pool.step([1, 0, 1, 0, 1, 1])
        assert obs[:, 0].tolist() == [2, 0, 0, 0, 1, 0]


def test_the_statistics_add_the_rewards_of_all_players() -> None:
    with make(num_envs=1, length=4) as pool:
        _, info = pool.reset()
        rewards = 0.0
        ended = False
        while not ended:
            _, reward, terminated, _, info = pool.step(forward(info))
            rewards += reward.sum()
            ended = bool(terminated[0])
        assert info["episode_return"][0] == pytest.approx(rewards)
        assert info["episode_length"].tolist() == [3]


def test_same_step_is_refused() -> None:
    """The row of an end would need the rewards of some players and the observations of others."""
    with pytest.raises(UnsupportedError, match="same_step"):
        make(num_envs=1, autoreset="same_step")


@pytest.mark.parametrize("view", ["gym", "dm"])
def test_the_other_views_have_rows_per_player_too(view: str) -> None:
    with make(view, num_envs=2, length=10) as pool:
        pool.reset()
        result = pool.step(np.ones(6, np.int64))
        if view == "gym":
            obs, reward, done, _ = result
            assert (len(obs), len(reward), len(done)) == (4, 4, 2)
        else:
            assert (len(result.observation.obs), len(result.reward), len(result.step_type)) == (4, 4, 2)
            assert result.observation.players.env_id.tolist() == [0, 0, 1, 1]


@pytest.mark.parametrize(
    ("actions", "error", "message"),
    [
        (
            {"action": [1] * 4, "env_id": [0], "players.env_id": [0] * 4},
            ActionError,
            "env 0: expected 1 actions, one per",
        ),
        ({"action": [1, 1], "env_id": [0], "players.env_id": [0, 1]}, EnvIdError, "names env 1"),
        ({"action": [1], "env_id": [0], "players.env_id": [7]}, EnvIdError, "out of range"),
        ({"action": [1, 1], "env_id": [0], "players.env_id": [0]}, ActionError, r"\(1,\)"),
        ({"action": [1, 5], "env_id": [0, 1], "players.env_id": [0, 1]}, ActionError, "env 1, player 0"),
    ],
)
def test_wrong_players_are_refused(actions: dict[str, Any], error: type[Exception], message: str) -> None:
    with make(num_envs=2) as pool:
        pool.reset()
        with pytest.raises(error, match=message):
            pool.send(actions)
        assert pool.stats()["in_flight"] == 0
        pool.step(np.ones(6, np.int64))


def test_an_env_of_one_player_has_one() -> None:
    with pytest.raises(ConfigError, match="one player"):
        stepmill.make("CartPole-v1", max_num_players=2)


def test_one_player_can_be_asked_for_where_the_id_has_more() -> None:
    assert stepmill.make_spec("TemplatePlayers-v0").config["max_num_players"] == 4
    assert stepmill.make_spec("TemplatePlayers-v0", max_num_players=1).config["max_num_players"] == 1
    with stepmill.make("TemplatePlayers-v0", num_envs=2, max_num_players=1) as pool:
        pool.reset()
        assert len(pool.step(np.zeros(2, int))[0]) == 2


@pytest.mark.parametrize("backend", ["inline", "process"])
def test_a_python_env_has_as_many_players_as_it_says(backend: str) -> None:
    for make in (stepmill.make, stepmill.make_spec):
        with pytest.raises(ConfigError, match=r"max_num_players: these envs have up to 2 players each, got 1"):
            make(Two, backend=backend, max_num_players=1)
    with stepmill.make(Two, backend=backend) as pool:
        assert pool.config["max_num_players"] == 2


def test_ids_of_players_are_consecutive_integers() -> None:
    with stepmill.make("Template-v0", num_envs=2, max_num_players=3) as pool:
        pool.reset()
        for ids in ([[0, 1]], [False, True], [0.0, 1.0], 0, "01"):
            with pytest.raises(errors.EnvIdError, match=r"players\.env_id"):
                pool.step({"action": np.ones(2, int), "env_id": [0, 1], "players.env_id": ids})
        with pytest.raises(errors.ActionError, match="one row per player"):
            pool.step(np.ones(3, int))
        pool.step({"action": np.ones(2, int), "env_id": [0, 1], "players.env_id": [0, 1]})
