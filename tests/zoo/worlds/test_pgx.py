"""Pgx's games beside its own functions."""

from __future__ import annotations

from typing import Any

import pytest

jax = pytest.importorskip("jax")
pgx = pytest.importorskip("pgx")

from gymnasium import spaces  # noqa: E402

from stepmill.errors import UnknownConfigError, UnknownEnvError, UnsupportedError  # noqa: E402
from stepmill.zoo.worlds.pgx import names, world_of  # noqa: E402
from support.worlds import compare_with_a_loop, follow  # noqa: E402

QUICK = {"connect_four", "tic_tac_toe", "kuhn_poker"}


def oracle(env: Any) -> tuple[Any, Any]:
    def reset(key: Any) -> tuple[Any, Any]:
        state = env.init(key)
        return state, state.observation

    def step(key: Any, state: Any, action: Any) -> Any:
        after = env.step(state, action, key)
        reward = jax.numpy.take(after.rewards, state.current_player)
        info = {"rewards": after.rewards, "legal_action_mask": after.legal_action_mask}
        return after, after.observation, reward, after.terminated, after.truncated, info

    return reset, step


@pytest.mark.parametrize(
    "name", [one if one in QUICK else pytest.param(one, marks=pytest.mark.slow) for one in names()]
)
def test_equal_to_the_suite(name: str) -> None:
    """Most actions are illegal in most games, and end them; those of 2048, poker and MinAtar are not."""
    follow(world_of(name, {}), *oracle(pgx.make(name)))


@pytest.mark.parametrize(
    "name",
    ["tic_tac_toe", *(pytest.param(one, marks=pytest.mark.slow) for one in ("connect_four", "kuhn_poker", "2048"))],
)
def test_beside_a_plain_loop(name: str) -> None:
    assert compare_with_a_loop(f"pgx:{name}", *oracle(pgx.make(name))) > 0


@pytest.mark.parametrize("name", ["connect_four", pytest.param("go_9x9", marks=pytest.mark.slow)])
def test_legal_games(name: str) -> None:
    """Games of legal moves alone, by the mask in the infos; the one who makes the last move of a won game gets 1."""
    world = world_of(name, {})
    reset, step = jax.jit(world.reset), jax.jit(world.step)
    begun = reset(jax.random.PRNGKey(2))
    state, mask, player = begun.state, begun.info["legal_action_mask"], int(begun.info["current_player"])
    for i in range(400):
        key = jax.random.PRNGKey(i)
        action = jax.random.categorical(key, jax.numpy.where(mask, 0.0, -jax.numpy.inf))
        moved = step(key, state, action)
        state, mask = moved.state, moved.info["legal_action_mask"]
        assert float(moved.reward) == float(moved.info["rewards"][player])
        if moved.terminated:
            break
        assert int(moved.info["current_player"]) == 1 - player
        player = 1 - player
    assert moved.terminated
    assert sorted(moved.info["rewards"].tolist()) == [-1, 1]


def test_an_illegal_action_ends_the_game() -> None:
    world = world_of("tic_tac_toe", {})
    state = world.reset(jax.random.PRNGKey(0)).state
    moved = world.step(jax.random.PRNGKey(0), state, 4)
    assert not moved.info["legal_action_mask"][4]
    mover = int(moved.info["current_player"])
    moved = world.step(jax.random.PRNGKey(0), moved.state, 4)
    assert (bool(moved.terminated), float(moved.reward), float(moved.info["rewards"][1 - mover])) == (True, -1, 1)


def test_arguments() -> None:
    """Those of the game's class, which ``pgx.make`` itself does not take."""
    assert world_of("minatar-breakout", {"use_minimal_action_set": False}).action_space == spaces.Discrete(6)
    assert world_of("go_9x9", {}).config["size"] == 9
    assert world_of("go_9x9", {"komi": 6.5}).observation_space.shape == (9, 9, 17)
    assert world_of("minatar-breakout", {"sticky_action_prob": 0.0}).config["sticky_action_prob"] == 0
    with pytest.raises(UnknownConfigError, match="no config key 'komy', did you mean 'komi'"):
        world_of("go_9x9", {"komy": 6.5})
    with pytest.raises(UnknownEnvError, match="unknown env id 'pgx:connectfour', did you mean pgx:connect_four"):
        world_of("connectfour", {})


def test_bridge_is_made_as_an_object() -> None:
    with pytest.raises(UnsupportedError, match=r"pgx:bridge_bidding reads tables .*: pass pgx.bridge_bidding.Bridge"):
        world_of("bridge_bidding", {})


def test_env_objects() -> None:
    world = world_of(pgx.make("tic_tac_toe"), {})
    assert (world.id, world.config) == ("pgx:TicTacToe", {})
