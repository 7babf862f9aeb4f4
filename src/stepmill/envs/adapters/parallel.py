"""A PettingZoo ``ParallelEnv`` as a ``BaseEnv`` with many agents."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from stepmill.envs.base_env import MOST_SEED_BITS, SEED_BITS, EnvHolder
from stepmill.envs.configs import read_cfg
from stepmill.envs.conform import Conversion, action_reader, conform
from stepmill.envs.results import check_by_agent, own_infos, reset_parts, step_by_agent
from stepmill.envs.timestep import BaseEnvTimestep
from stepmill.errors import ActionError, ConfigError, ObservationError, SpaceError, UsageError
from stepmill.registry.factories import close_quietly
from stepmill.values.arguments import true_or_false, whole_number
from stepmill.values.fitting import Fitter, Misfit, as_numbers, fit
from stepmill.values.trees import map_tree, map_trees, tree_of

_DEFAULTS: dict[str, Any] = {"shared_reward": False, "pad": False, "seed_bits": SEED_BITS}


class ParallelAsBaseEnv(EnvHolder):
    """Observation and action have one row for each of ``possible_agents``, in that order.

    The episode is over when no agent is left. An agent that left earlier has zeros as observation and reward, and its
    action is ignored; ``info["alive"]`` marks the agents that are left. ``info["agents"]`` has the agents' own infos.
    Both are in ``reset_info`` too.

    Args:
        env: A ``ParallelEnv``, or a function that makes one.
        cfg: ``shared_reward``: True gives one reward for all, the sum of the agents' own. ``pad``: True allows agents
            with different spaces: it pads shorter observations with zeros and uses the largest number of actions;
            without it that is an error. ``seed_bits``: seeds of episodes are below ``2**seed_bits`` (31); up to
            63.
    """

    _state_names: tuple[str, ...] = (*EnvHolder._state_names, "_score")

    def __init__(self, env: Any, cfg: Any = None) -> None:
        super().__init__({} if cfg is None else cfg)
        given = read_cfg("ParallelAsBaseEnv", self._cfg, (), _DEFAULTS)
        is_env = hasattr(env, "possible_agents") and not isinstance(env, type)
        if not is_env and not callable(env):
            raise ConfigError(f"ParallelAsBaseEnv: env: expected a ParallelEnv or a function, got {env!r}")
        self._make: Callable[[], Any] | None = None if is_env else env
        self._env: Any = env if is_env else None
        self._shares = true_or_false("ParallelAsBaseEnv: shared_reward", given["shared_reward"])
        self._pads = true_or_false("ParallelAsBaseEnv: pad", given["pad"])
        self._seed_bits = whole_number("ParallelAsBaseEnv: seed_bits", given["seed_bits"], 1, MOST_SEED_BITS)
        self._score = np.zeros(0)

    # ---- building ----------------------------------------------------------------------------

    def _open(self) -> Any:
        if self._is_open:
            return self._env
        env = self._env
        if self._make is not None:
            env = self._make()
        elif env is None:
            raise UsageError(f"{self!r} is closed: give it a function, so that it can build the env again")
        try:
            self._read_spaces(env)
        except BaseException:
            if self._make is not None:  # an existing env stays open
                close_quietly(env)
            raise
        self._env, self._is_open = env, True
        return env

    def _read_spaces(self, env: Any) -> None:
        self._agents = list(env.possible_agents)
        self._own_actions = [env.action_space(agent) for agent in self._agents]
        self._readers = {
            agent: action_reader(space, repr(self), f"action of agent {agent!r}")
            for agent, space in zip(self._agents, self._own_actions, strict=True)
        }
        self._seen = {
            agent: conform(env.observation_space(agent), repr(self), f"observation of agent {agent!r}")
            for agent in self._agents
        }
        taken = [conform(one, repr(self)).space for one in self._own_actions]
        seen = [one.space for one in self._seen.values()]
        # An agent that has left has zeros as its observation.
        self._observation_space = stack_spaces(f"{self!r}: observation_space", seen, self._pads, holds_zero=True)
        self._action_space = stack_spaces(f"{self!r}: action_space", taken, self._pads)

    _agents: list[Any]
    _own_actions: list[spaces.Space[Any]]
    _readers: dict[Any, Fitter]
    _seen: dict[Any, Conversion]

    @property
    def reward_space(self) -> spaces.Space[Any]:  # type: ignore[override]
        width = 1 if self._shares else self.num_agents
        return spaces.Box(-np.inf, np.inf, (width,), np.float32)

    @property
    def num_agents(self) -> int:  # type: ignore[override]
        self._open()
        return len(self._agents)

    # ---- an episode --------------------------------------------------------------------------

    def reset(self, **kwargs: Any) -> Any:
        env = self._open()
        seed = self._next_seed()
        result = env.reset(seed=seed, options=kwargs or None)
        observations, infos = reset_parts(self, result)
        self._score, self._has_begun = np.zeros(self.num_agents), True
        self.reset_info = self._told(infos)
        return self._rows("reset", observations)

    def _rows(self, call: str, observations: Any) -> Any:
        check_by_agent(self, call, "observations", observations)
        missing = [agent for agent in self._env.agents if agent not in observations]
        if missing:
            raise ObservationError(
                f"{self!r}: {call}: expected an observation for each living agent, got none for {missing}"
            )
        present = [
            None if agent not in observations else seen.convert(observations[agent])
            for agent, seen in self._seen.items()
        ]
        return stack_rows(self._observation_space, present)

    def _told(self, infos: Mapping[Any, Any]) -> dict[str, Any]:
        return {"alive": np.array([agent in self._env.agents for agent in self._agents]), **own_infos(infos)}

    def step(self, action: Any) -> BaseEnvTimestep:
        if not self._has_begun:
            raise UsageError(f"{self!r}: step before reset")
        env = self._env
        acting = set(env.agents)
        if not acting:
            raise UsageError(f"{self!r}: step: the episode is over, call reset first")
        rows = split_rows(repr(self), self._action_space, action, self._own_actions)
        given = {
            agent: self._readers[agent](row) for agent, row in zip(self._agents, rows, strict=True) if agent in acting
        }
        played = step_by_agent(self, self._agents, env.step(given))
        paid = played.rewards
        self._score += paid
        done = not env.agents
        info = self._told(played.infos)
        if done:
            info["TimeLimit.truncated"] = played.is_cut_off
            info["eval_episode_return"] = info["final_eval_reward"] = float(self._score.sum())
            info["eval_episode_return_agents"] = self._score.astype(np.float32)
        reward = np.array([paid.sum()], np.float32) if self._shares else paid.astype(np.float32)
        return BaseEnvTimestep(self._rows("step", played.observations), reward, done, info)

    def __repr__(self) -> str:
        """Names the env inside."""
        return f"ParallelAsBaseEnv({self._env if self._env is not None else getattr(self._make, '__name__', '')})"


# ---- rows of agents ------------------------------------------------------------------------------
# If the agents' spaces differ, they can be padded: vectors with zeros to the longest, Discrete spaces to the largest.


def stack_spaces(
    name: str, own: Sequence[spaces.Space[Any]], pad: bool, *, holds_zero: bool = False
) -> spaces.Space[Any]:
    """The space of the rows. ``holds_zero`` widens the bounds so that a row of zeros is inside."""
    first = own[0]
    if isinstance(first, spaces.Dict) and all(
        isinstance(one, spaces.Dict) and one.keys() == first.keys() for one in own
    ):
        parts = {
            key: stack_spaces(f"{name}[{key!r}]", [one[key] for one in own], pad, holds_zero=holds_zero)  # type: ignore[index]
            for key in first
        }
        return spaces.Dict(parts)
    kind = next((k for k in (spaces.Box, spaces.Discrete, spaces.MultiDiscrete) if isinstance(first, k)), None)
    if kind is None or any(not isinstance(one, kind) or one.dtype != first.dtype for one in own):
        raise SpaceError(
            f"{name}: expected agents whose spaces are all Box, all Discrete, all MultiDiscrete, or Dicts of these "
            f"with the same keys, got {list(own)}"
        )
    if any(one != first for one in own):
        if not pad:
            raise SpaceError(
                f"{name}: expected agents with equal spaces, got {list(own)}. "
                "ParallelAsBaseEnv(env, cfg={'pad': True}) pads the smaller ones"
            )
        if any(len(one.shape or ()) > 1 for one in own):
            raise SpaceError(f"{name}: pad: expected vectors or numbers, got {list(own)}")
    low, high = _common_bounds(own)
    if holds_zero:
        low, high = np.minimum(low, 0), np.maximum(high, 0)
    low, high = (np.repeat(bound[None], len(own), axis=0) for bound in (low, high))
    if kind is spaces.Box:
        return spaces.Box(low, high, dtype=first.dtype.type)  # type: ignore[union-attr]
    return spaces.MultiDiscrete(high - low + 1, start=low)


def _common_bounds(own: Sequence[Any]) -> tuple[np.ndarray, np.ndarray]:
    """The minimum and the maximum over all agents, elementwise."""
    bounds = [_bounds(one) for one in own]
    longest = max((low.shape for low, _ in bounds), key=lambda shape: shape[0] if shape else 0)
    lows = [_filled(low, longest) for low, _ in bounds]
    highs = [_filled(high, longest) for _, high in bounds]
    return np.min(lows, axis=0), np.max(highs, axis=0)


def _bounds(space: Any) -> tuple[np.ndarray, np.ndarray]:
    if isinstance(space, spaces.Box):
        return space.low, space.high
    if isinstance(space, spaces.Discrete):
        return np.asarray(space.start, np.int64), np.asarray(space.start + space.n - 1, np.int64)
    return np.asarray(space.start, np.int64), np.asarray(space.start + space.nvec - 1, np.int64)


def _filled(array: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    out = np.zeros(shape, array.dtype)
    out[tuple(map(slice, array.shape))] = array
    return out


def stack_rows(space: spaces.Space[Any], values: Sequence[Any]) -> Any:
    """One row per value, which has the form of its agent's space; zeros for None."""
    rows = map_tree(lambda part: np.zeros(part.shape or (), part.dtype), tree_of(space))
    for row, value in enumerate(values):
        if value is not None:
            map_trees(functools.partial(_put, row), rows, value)
    return rows


def _put(row: int, rows: np.ndarray, value: np.ndarray) -> None:
    rows[_place(row, value.shape)] = value


def split_rows(owner: str, space: spaces.Space[Any], action: Any, own: Sequence[spaces.Space[Any]]) -> list[Any]:
    """The rows of an action, each in the shape of its agent's own space. The numbers are not checked."""
    try:
        parts = fit(_rows, tree_of(space), action)
    except Misfit as misfit:
        raise ActionError(f"{owner}: {misfit.message('action')}") from None
    return [map_trees(functools.partial(_take, row), parts, tree_of(one)) for row, one in enumerate(own)]


def _rows(space: spaces.Space[Any], value: Any) -> np.ndarray:
    array = as_numbers(value)
    if array is None or array.shape != space.shape:
        raise Misfit(f"one row per agent, shape {space.shape}", value)
    return array


def _take(row: int, rows: np.ndarray, space: spaces.Space[Any]) -> Any:
    return rows[_place(row, space.shape or ())]


def _place(row: int, shape: tuple[int, ...]) -> tuple[Any, ...]:
    """Where an agent's own values are in its row: at the start, before the padding."""
    return (row, *map(slice, shape))
