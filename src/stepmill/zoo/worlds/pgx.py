"""Pgx.

Keys: a reset gives its key to Pgx's ``init``, a step to its ``step``: dice, sticky actions and new tiles come from it.

What truncates: what Pgx says, which so far is nothing: Go, chess and shogi end after many moves as terminated.

Pgx's autoreset, ``pgx.experimental.auto_reset``, showed the first state of the next game with the last one's rewards.
The pool does as its ``autoreset`` says.

Most envs are games of two or three players in turns, and an env of a pool is played by one agent: it acts for the
player whose turn it is, and sees what that player sees. The reward is that of the player who has just moved: a move
that wins brings 1, and no reward says that the other has lost. ``info["rewards"]`` has those of all players.

An action that is not in ``info["legal_action_mask"]`` ends the game: the player gets -1, the others 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import pgx
from gymnasium import spaces

from stepmill.errors import UnsupportedError
from stepmill.registry.factories import check_keys, default_values
from stepmill.sources.jax_world import Begun, JaxWorld, Moved
from stepmill.zoo.worlds.adapting import KEY, boxes_of, id_of

# Games of so few moves that resetting all envs in every step costs less than looking for those that are over.
_BRIEF = {"tic_tac_toe", "kuhn_poker", "leduc_holdem"}
# What pgx.make gives to a class.
_SIZES = {"go_9x9": {"size": 9}, "go_19x19": {"size": 19}}


def names() -> list[str]:
    """Those that ``pgx.make`` makes."""
    return list(pgx.available_envs())


def world_of(task: str | pgx.Env, config: Mapping[str, Any]) -> JaxWorld:
    """Args: the name of an env, or one. ``config``: arguments of its class."""
    if task == "bridge_bidding":
        raise UnsupportedError(
            "pgx:bridge_bidding reads tables that one downloads, so Pgx does not make it by its name: pass "
            "pgx.bridge_bidding.BridgeBidding(...)"
        )
    id = id_of("pgx", task, names())
    env: Any = task
    arguments: dict[str, Any] = {}
    if isinstance(task, str):
        env = pgx.make(task)
        arguments = {**default_values(type(env)), **_SIZES.get(task, {})}
    check_keys(id, config, arguments)
    if config:
        env = type(env)(**{**arguments, **config})

    def reset(key: Any) -> Begun:
        state = env.init(key)
        return Begun(state, state.observation, _info(state))

    def step(key: Any, state: Any, action: Any) -> Moved:
        mover = state.current_player
        state = env.step(state, action, key)
        reward = state.rewards[mover]
        return Moved(state, state.observation, reward, state.terminated, state.truncated, _info(state))

    begun = jax.eval_shape(reset, KEY)
    return JaxWorld(
        id,
        boxes_of(begun.observation),
        spaces.Discrete(begun.info["legal_action_mask"].shape[0]),
        reset,
        step,
        config={**arguments, **config},
        resets_cheaply=env.id in _BRIEF,
    )


def _info(state: Any) -> dict[str, Any]:
    """What a player needs to know besides."""
    return {name: getattr(state, name) for name in ("rewards", "current_player", "legal_action_mask")}
