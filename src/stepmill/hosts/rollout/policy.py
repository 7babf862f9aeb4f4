"""How a policy is called, and what it may return."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, overload

import numpy as np
from gymnasium import spaces

from stepmill import _native
from stepmill.errors import ActionError, ActionTypeError, InputError

__all__ = ["Generators", "Policy", "PolicyCaller", "Rows"]

Policy = Callable[[Any, np.ndarray, Sequence[np.random.Generator]], Any]


class Generators:
    """A random generator per env, from a seed and its id: the same wherever the env lives.

    Made when it is first used: many policies draw nothing, and a generator costs more than a step.
    """

    def __init__(self, seed: int, begin: int) -> None:
        """``begin``: see ``Plan``. Those that begin later must not draw the numbers of the first steps once more."""
        self._seed = seed
        self._begin = (begin,) if begin else ()
        self._made: dict[int, np.random.Generator] = {}

    def of(self, env_id: int) -> np.random.Generator:
        made = self._made.get(env_id)
        if made is None:
            made = self._made[env_id] = np.random.default_rng((self._seed, env_id, *self._begin))
        return made


class Rows(Sequence[np.random.Generator]):
    """The generators of some envs, one per row of an observation."""

    def __init__(self, generators: Generators, env_ids: np.ndarray) -> None:
        self._generators = generators
        self._ids: list[int] = env_ids.tolist()

    def __len__(self) -> int:
        return len(self._ids)

    @overload
    def __getitem__(self, row: int) -> np.random.Generator: ...
    @overload
    def __getitem__(self, row: slice) -> list[np.random.Generator]: ...
    def __getitem__(self, row: int | slice) -> np.random.Generator | list[np.random.Generator]:
        if isinstance(row, slice):
            return [self._generators.of(one) for one in self._ids[row]]
        return self._generators.of(self._ids[row])


class PolicyCaller:
    """Calls a policy, and takes what it returns apart."""

    def __init__(self, policy: Policy, action_space: spaces.Space[Any]) -> None:
        self._policy = policy
        self._is_tuple = isinstance(action_space, spaces.Tuple)
        self._is_dict = isinstance(action_space, spaces.Dict)

    def __call__(self, observation: Any, env_ids: np.ndarray, rngs: Rows) -> tuple[Any, list[np.ndarray]]:
        """Actions, and what else it returned; each has a row per env. Actions are left to the engine to check."""
        result = self._policy(observation, env_ids, rngs)
        if type(result) is np.ndarray and not self._is_tuple:  # nearly always
            return result, []
        extras: Sequence[Any] = ()
        if isinstance(result, tuple):
            if not result:
                raise ActionError("policy: expected actions, or a tuple that begins with them, got an empty tuple")
            result, extras = result[0], result[1:]
        if self._is_tuple and not isinstance(result, tuple):
            raise ActionError(
                "policy: the action space is a Tuple, so a policy returns (actions,) or (actions, extra, ...), where "
                f"actions is a tuple with one part per space; got {type(result).__name__} for actions"
            )
        if result is None:
            raise ActionTypeError(f"policy: expected one action for each of {len(env_ids)} envs, got None")
        if isinstance(result, Mapping) and not self._is_dict:
            raise ActionTypeError("policy: expected an array of actions, got a dict; its action space is no Dict")
        return result, [_extra(one, number, len(env_ids)) for number, one in enumerate(extras, 1)]

    @staticmethod
    def blamed(error: InputError) -> InputError:
        """The engine's error about actions, with the name of who chose them."""
        return type(error)(f"policy: {error}")


def _extra(value: Any, number: int, rows: int) -> np.ndarray:
    array = value if type(value) is np.ndarray else np.asarray(_native.without_torch(value))
    if array.dtype.hasobject or array.ndim == 0 or len(array) != rows:
        got = f"an array of {array.dtype} and shape {array.shape}" if array.ndim else repr(value)
        raise InputError(
            f"policy: part {number} of what it returns beside actions: expected {rows} rows of numbers, got {got}"
        )
    return array
