"""A PettingZoo ``ParallelEnv`` as a ``BaseEnv`` of many agents."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium import spaces

from stepmill.envs.agent_rows import split_rows, stack_rows, stack_spaces
from stepmill.envs.base_env import BaseEnv
from stepmill.envs.conform import conform
from stepmill.envs.timestep import BaseEnvTimestep
from stepmill.errors import ActionError, ConfigError, UsageError

__all__ = ["ParallelAsBaseEnv"]


class ParallelAsBaseEnv(BaseEnv):
    """Observation and action have a row for each of ``possible_agents``, in that order.

    The episode is over when no agent is left. An agent that has left before has zeros as observation and reward,
    and its action is not used; ``info["alive"]`` says who is there. ``info["agents"]`` has the agents' own infos.

    Args:
        env: A ``ParallelEnv``, or a function that makes one.
        cfg: ``shared_reward``: True gives one reward for all, the sum of the agents' own. ``pad``: True fills
            observations of different lengths with zeros, and takes the largest of different numbers of actions, where
            agents differ; without it that is an error.
    """

    def __init__(self, env: Any, cfg: Any = None) -> None:
        super().__init__({} if cfg is None else cfg)
        is_env = hasattr(env, "possible_agents") and not isinstance(env, type)
        if not is_env and not callable(env):
            raise ConfigError(f"ParallelAsBaseEnv: env: expected a ParallelEnv or a function, got {env!r}")
        self._make: Callable[[], Any] | None = None if is_env else env
        self._env: Any = env if is_env else None
        self._is_open = False
        self._shares = bool(self._cfg.get("shared_reward", False))
        self._score = np.zeros(0)

    # ---- building ----------------------------------------------------------------------------

    def _open(self) -> Any:
        if self._is_open:
            return self._env
        if self._make is not None:
            self._env = self._make()
        elif self._env is None:
            raise UsageError(f"{self!r} is closed: give it a function, and it can build the env again")
        self._agents = list(self._env.possible_agents)
        pad = bool(self._cfg.get("pad", False))
        seen = [conform(self._env.observation_space(agent)).space for agent in self._agents]
        self._own_actions = [self._env.action_space(agent) for agent in self._agents]
        taken = [conform(one).space for one in self._own_actions]
        # Who has left shows zeros.
        self._observation_space = stack_spaces(f"{self!r}: observation_space", seen, pad, holds_zero=True)
        self._action_space = stack_spaces(f"{self!r}: action_space", taken, pad)
        self._is_open = True
        return self._env

    _agents: list[Any]
    _observation_space: spaces.Space[Any]
    _action_space: spaces.Space[Any]
    _own_actions: list[spaces.Space[Any]]

    @property
    def observation_space(self) -> spaces.Space[Any]:  # type: ignore[override]
        self._open()
        return self._observation_space

    @property
    def action_space(self) -> spaces.Space[Any]:  # type: ignore[override]
        self._open()
        return self._action_space

    @property
    def reward_space(self) -> spaces.Space[Any]:  # type: ignore[override]
        width = 1 if self._shares else self.num_agents
        return spaces.Box(-np.inf, np.inf, (width,), np.float32)

    @property
    def num_agents(self) -> int:  # type: ignore[override]
        self._open()
        return len(self._agents)

    @property
    def metadata(self) -> Any:  # type: ignore[override]
        return self._open().metadata

    # ---- an episode --------------------------------------------------------------------------

    def reset(self, **kwargs: Any) -> Any:
        env = self._open()
        observations, _ = env.reset(seed=self._next_seed(), options=kwargs or None)
        self._score = np.zeros(self.num_agents)
        return self._rows(observations)

    def _rows(self, observations: dict[Any, Any]) -> Any:
        return stack_rows(self._observation_space, [observations.get(agent) for agent in self._agents])

    def step(self, action: Any) -> BaseEnvTimestep:
        env = self._open()
        acting = set(env.agents)
        if not acting:
            raise UsageError(f"{self!r}: step without a living agent: call reset")
        rows = split_rows(f"{self!r}: action", self._action_space, action, self._own_actions)
        given = {agent: row for agent, row in zip(self._agents, rows, strict=True) if agent in acting}
        for agent, row in given.items():
            self._check_action(agent, row)
        observations, rewards, terminated, truncated, infos = env.step(given)
        paid = np.array([float(rewards.get(agent, 0.0)) for agent in self._agents])
        self._score += paid
        done = not env.agents
        info: dict[str, Any] = {
            "alive": np.array([agent in env.agents for agent in self._agents]),
            "agents": {str(agent): info for agent, info in infos.items() if info},
        }
        if not info["agents"]:
            del info["agents"]
        if done:
            info["TimeLimit.truncated"] = any(truncated[agent] and not terminated[agent] for agent in truncated)
            info["eval_episode_return"] = info["final_eval_reward"] = float(self._score.sum())
            info["eval_episode_return_agents"] = self._score.astype(np.float32)
        reward = np.array([paid.sum()], np.float32) if self._shares else paid.astype(np.float32)
        return BaseEnvTimestep(self._rows(observations), reward, done, info)

    def _check_action(self, agent: Any, action: Any) -> None:
        space = self._own_actions[self._agents.index(agent)]
        if not isinstance(space, spaces.Box) and not space.contains(action):
            raise ActionError(f"{self!r}: action of agent {agent!r}: expected {space}, got {action!r}")

    def render(self) -> Any:
        return self._open().render()

    def close(self) -> None:
        if self._env is not None:
            self._env.close()
        self._env = None
        self._is_open = False

    def __repr__(self) -> str:
        """The env that is inside."""
        return f"ParallelAsBaseEnv({self._env if self._env is not None else getattr(self._make, '__name__', '')})"
