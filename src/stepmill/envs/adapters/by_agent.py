"""What a PettingZoo ``ParallelEnv`` returns, checked: dicts by agent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from stepmill.envs.results import step_parts
from stepmill.errors import EnvError
from stepmill.values.casting import description

__all__ = ["AgentStep", "check_by_agent", "own_infos", "step_by_agent"]


class AgentStep(NamedTuple):
    """The result of a step."""

    observations: Any  # not checked yet
    rewards: np.ndarray  # one per possible agent, 0 for those that got none
    terminated: Mapping[Any, Any]
    truncated: Mapping[Any, Any]
    infos: Mapping[Any, Any]

    @property
    def is_cut_off(self) -> bool:
        """Whether an agent was truncated, and not terminated as well."""
        return any(self.truncated[agent] and not self.terminated.get(agent) for agent in self.truncated)


def step_by_agent(owner: Any, agents: Sequence[Any], result: Any) -> AgentStep:
    """Reads what ``step`` returned; ``agents`` are all possible ones."""
    observations, rewards, terminated, truncated, infos = step_parts(owner, result)
    for name, part in (("rewards", rewards), ("terminated", terminated), ("truncated", truncated)):
        check_by_agent(owner, "step", name, part)
    paid = np.array([_number(owner, agent, rewards.get(agent, 0.0)) for agent in agents])
    return AgentStep(observations, paid, terminated, truncated, infos)


def check_by_agent(owner: Any, call: str, name: str, part: Any) -> None:
    """Raises if a part of the result of ``call`` is not a dict."""
    if not isinstance(part, Mapping):
        raise EnvError(f"{owner!r}: {call}: expected a dict by agent as {name}, got {description(part)}")


def own_infos(infos: Mapping[Any, Any]) -> dict[str, Any]:
    """The agents' infos as ``info["agents"]`` has them; empty if no agent has one."""
    own = {str(agent): info for agent, info in infos.items() if info}
    return {"agents": own} if own else {}


def _number(owner: Any, agent: Any, reward: Any) -> float:
    try:
        return float(reward)
    except (TypeError, ValueError):
        raise EnvError(
            f"{owner!r}: step: expected a number as reward of agent {agent!r}, got {description(reward)}"
        ) from None
