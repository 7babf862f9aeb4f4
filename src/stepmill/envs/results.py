"""Checks what an env returned before it is used. An error names the env, what was expected, and what came.

``wrong_result`` and ``wrong_reset`` are called by ``cpp/bindings/hosts/python_env.cpp`` too.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from stepmill.errors import EnvError
from stepmill.values.fitting import cast, description

_FORMS = {
    "reset": ("observation", "info"),
    "step": ("observation", "reward", "terminated", "truncated", "info"),
}
_MOST_LAYERS = 100  # of wrappers: one of them may name itself as the env inside it
_BOOL, _FLOAT = np.dtype(np.bool_), np.dtype(np.float64)


def reset_parts(owner: Any, result: Any) -> tuple[Any, Any]:
    """The observation and the info. An observation of two numbers is not mistaken for the pair."""
    _check(owner, "reset", result)
    return result[0], result[1]


def step_parts(owner: Any, result: Any) -> tuple[Any, Any, Any, Any, Any]:
    """The five results of Gymnasium's ``step``."""
    _check(owner, "step", result)
    return result[0], result[1], result[2], result[3], result[4]


def _check(owner: Any, call: str, result: Any) -> None:
    if not isinstance(result, tuple | list) or len(result) != len(_FORMS[call]):
        raise EnvError(f"{owner}: {wrong_result(call, result)}")
    if not isinstance(result[-1], Mapping):
        raise EnvError(f"{owner}: {_expected(call)} with a dict as info, got {description(result[-1])} as info")


def _expected(call: str) -> str:
    return f"{call}: expected ({', '.join(_FORMS[call])})"


def wrong_result(call: str, result: Any) -> str:
    """What to say about a result of the wrong form, from ``"reset"`` or ``"step"``."""
    is_sequence = isinstance(result, tuple | list)
    got = f"a {type(result).__name__} of {len(result)}" if is_sequence else description(result)
    return f"{_expected(call)}, got {got}{_advice(call, result)}"


def _advice(call: str, result: Any) -> str:
    """For envs that were written for Gym before version 0.26."""
    wrap = "An env of Gym itself can be wrapped in shimmy's GymV21CompatibilityV0"
    if call == "step" and isinstance(result, tuple) and len(result) == 4 and isinstance(result[-1], Mapping):
        return (
            ". Old Gym's step returned (observation, reward, done, info): return terminated (it really ended) and "
            f"truncated (a limit cut it off) instead of done. {wrap}"
        )
    if call == "reset" and not isinstance(result, tuple):
        return f". Old Gym's reset returned the observation alone: return (observation, {{}}). {wrap}"
    return ""


def wrong_reset(env: Any) -> str | None:
    """What to say if the ``reset`` of an env, or of one inside it, does not take what it is called with."""
    try:
        for _ in range(_MOST_LAYERS):
            missing = _missing_arguments(env.reset)
            if missing:
                return (
                    f"{type(env).__name__}.reset: expected the arguments of Gymnasium's, reset(self, *, seed=None, "
                    f"options=None), got one without {' and '.join(map(repr, missing))}"
                )
            env = env.env
    except Exception:  # there is no further env inside, or one that does not show its signature
        pass
    return None


def _missing_arguments(reset: Any) -> list[str]:
    parameters = inspect.signature(reset).parameters.values()
    if any(one.kind is one.VAR_KEYWORD for one in parameters):
        return []
    names = {one.name for one in parameters if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)}
    return [name for name in ("seed", "options") if name not in names]


def rewards_of(owner: Any, reward: Any) -> np.ndarray:
    """One reward or several, as a float64 vector."""
    rewards = cast(reward, _FLOAT)
    if rewards is None or rewards.size == 0:
        raise EnvError(f"{owner}: step: expected one or more numbers as reward, got {description(reward)}")
    return rewards.reshape(-1)


def truth(owner: Any, name: str, value: Any) -> bool:
    """A flag of ``step``. Numbers and arrays of 0 or 1 are accepted."""
    if isinstance(value, bool | np.bool_):
        return bool(value)
    flag = cast(value, _BOOL)
    if flag is None or flag.size != 1:
        raise EnvError(f"{owner}: step: expected True or False as {name}, got {description(value)}")
    return bool(flag.item())


# ---- by agent ------------------------------------------------------------------------------------


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
