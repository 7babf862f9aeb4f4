"""Adapters from any kind of env to any other. Each is one class, and this is the map.

::

    gymnasium.Env ────── DingEnvWrapper ──────► BaseEnv ──── AsGymnasium ────► gymnasium.Env ──► pools
    dm_env.Environment ─ DmAsGymnasium ─┘          ▲  └────── TeamAsGymnasium ──────────────────► pools
    pettingzoo.ParallelEnv ── ParallelAsBaseEnv ───┤
    │   ding.envs.BaseEnv ──── DingAsBaseEnv ──────┘
    └─────────────────── ParallelAsPlayers ─────────────────────────────────────────────────────► pools

A ``pettingzoo.AECEnv`` becomes a ``ParallelEnv`` first, by PettingZoo's own conversion.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any, NoReturn

import gymnasium

from stepmill.envs.adapters.as_gymnasium import gymnasium_of, player_space
from stepmill.envs.adapters.ding import is_ding_env
from stepmill.envs.base_env import BaseEnv
from stepmill.errors import ConfigError, UnsupportedError
from stepmill.registry.description import has_coroutines
from stepmill.registry.factories import close_quietly


def as_base_env(env: Any, cfg: Any = None) -> BaseEnv:
    """Any env as a ``BaseEnv``; a ``BaseEnv`` is returned unchanged. ``cfg`` configures the adapter."""
    if isinstance(env, BaseEnv):
        return env
    if is_ding_env(env):
        from stepmill.envs.adapters.ding import DingAsBaseEnv

        return DingAsBaseEnv(env)
    env = _from_aec(env)
    if _is_parallel(env):
        from stepmill.envs.adapters.parallel import ParallelAsBaseEnv

        return ParallelAsBaseEnv(env, cfg)
    from stepmill.envs.adapters.ding_env_wrapper import DingEnvWrapper

    return DingEnvWrapper(_checked("as_base_env", _from_dm(env)), cfg)


def as_gymnasium(env: Any) -> Any:
    """Any env as a ``gymnasium.Env``; a ``gymnasium.Env`` is returned unchanged."""
    env = _from_aec(env)
    if _is_parallel(env) or is_ding_env(env):
        env = as_base_env(env)
    return gymnasium_of(env) if isinstance(env, BaseEnv) else _checked("as_gymnasium", _from_dm(env))


def as_pool_env(env: Any, env_id: int) -> Any:
    """Any env as pools step it: like ``as_gymnasium``, but each of several agents is a player of the pool."""
    env = _from_aec(env)
    if _is_parallel(env) and len(getattr(env, "possible_agents", None) or ()) != 1:
        from stepmill.envs.adapters.parallel_players import ParallelAsPlayers

        try:
            return ParallelAsPlayers(env)
        except BaseException:
            close_quietly(env)
            raise
    if _is_parallel(env) or is_ding_env(env):
        env = as_base_env(env)
    if not isinstance(env, BaseEnv):
        return _from_dm(env)
    env.env_id = env_id
    agents = env.num_agents
    if agents > 1 and all(player_space(s, agents) is not None for s in (env.observation_space, env.action_space)):
        return gymnasium_of(env, is_team=True)
    return gymnasium_of(env)


def not_an_env(env: Any) -> str:
    """The error message for something that is none of these."""
    hint = (
        ", an AECEnv that is not parallelizable: in it each agent sees what the one before it did, so that they cannot "
        "act at the same time. pettingzoo.utils.conversions.turn_based_aec_to_parallel makes a ParallelEnv of a game "
        "in turns: only the action of the agent whose turn it is counts. If the state changes only when all have "
        "acted, set is_parallelizable=True in the metadata of the env"
    )
    return (
        "expected a gymnasium.Env, a BaseEnv, a dm_env.Environment, or a ParallelEnv or AECEnv of PettingZoo, got a "
        f"{type(env).__name__}{hint if hasattr(env, 'agent_iter') else ''}"
    )


def _checked(caller: str, env: Any) -> Any:
    if has_coroutines(env):
        refuse_coroutines(caller, env)
    if not isinstance(env, gymnasium.Env):
        raise ConfigError(f"{caller}: {not_an_env(env)}")
    return env


def refuse_coroutines(caller: str, env: Any) -> NoReturn:
    """Raises for an env whose methods are coroutines, where nothing awaits them."""
    raise UnsupportedError(
        f"{caller}: the reset or step of {type(env).__name__} is a coroutine, which only a pool awaits: give "
        "stepmill.make its class, or a function that makes it"
    )


def _pettingzoo(*names: str) -> tuple[type, ...]:
    """Its classes of envs, for ``isinstance``. If there is such an env, the package has been imported."""
    module = sys.modules.get("pettingzoo.utils.env")
    return () if module is None else tuple(getattr(module, name) for name in names)


def _is_parallel(env: Any) -> bool:
    return isinstance(env, _pettingzoo("ParallelEnv"))


def is_pettingzoo(env: Any) -> bool:
    """Whether it is an env of PettingZoo, of either kind."""
    return isinstance(env, _pettingzoo("ParallelEnv", "AECEnv"))


def _from_aec(env: Any) -> Any:
    """An ``AECEnv``, whose agents act one after another, as a ``ParallelEnv``; unchanged if PettingZoo refuses that."""
    if not isinstance(env, _pettingzoo("AECEnv")):
        return env
    conversions = importlib.import_module("pettingzoo.utils.conversions")
    was_parallel = isinstance(getattr(env, "env", None), conversions.parallel_to_aec_wrapper)
    is_parallelizable = (getattr(env, "metadata", None) or {}).get("is_parallelizable", False)
    return conversions.aec_to_parallel(env) if was_parallel or is_parallelizable else env


def _from_dm(env: Any) -> Any:
    module = sys.modules.get("dm_env")
    if module is None or not isinstance(env, module.Environment):
        return env
    from stepmill.envs.adapters.dm_adapter import DmAsGymnasium

    return DmAsGymnasium(env)
