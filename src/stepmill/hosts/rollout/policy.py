"""A policy: ``policy(observations, env_ids, generators)`` returns actions, one per row.

It is the same wherever envs are played: ``pool.rollout``, ``pool.play``, the command line, data sets. A policy that
remembers something about an episode has a method ``begin(env_ids)``, which is called when episodes of these envs start.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, overload

import numpy as np
from gymnasium import spaces

from stepmill import _native
from stepmill.errors import ActionError, ActionTypeError, InputError
from stepmill.values.trees import map_tree

Policy = Callable[[Any, np.ndarray, Sequence[np.random.Generator]], Any]

_FORM = "policy(observations, env_ids, generators)"


def per_env(function: Callable[[Any, np.random.Generator], Any]) -> Policy:
    """Makes a policy of a function that chooses the action of one env: ``function(observation, generator)``.

    It may be used as a decorator.

    Args:
        function: Gets the observation of one env and a ``numpy.random.Generator``, and returns one action.

    Returns:
        A policy as ``pool.rollout``, ``pool.play``, ``collect`` and ``--policy`` take it.

    Example:
        >>> @stepmill.per_env
        ... def lean(observation, generator):
        ...     return int(observation[2] > 0)
        >>> pool = stepmill.make("CartPole-v1", num_envs=4)
        >>> pool.rollout(lean, 100).actions.shape
        (100, 4)
    """
    if (problem := _shape_problem(function, 2)) is not None:
        raise InputError(f"per_env: expected a function of one env's observation and a generator, got {problem}")
    return _PerEnv(function)


class _PerEnv:
    def __init__(self, function: Callable[[Any, np.random.Generator], Any]) -> None:
        self._function = function
        self.__name__, self.__doc__ = getattr(function, "__name__", type(function).__name__), function.__doc__

    def __call__(self, observations: Any, env_ids: np.ndarray, generators: Sequence[np.random.Generator]) -> Any:
        actions = [
            self._function(map_tree(lambda leaf, row=row: leaf[row], observations), generators[row])  # type: ignore[misc]
            for row in range(len(env_ids))
        ]
        return (_stacked(actions),)  # in a tuple, so that the action of a Tuple space can be told from extras

    def __repr__(self) -> str:
        return f"per_env({self._function!r})"


def _stacked(actions: Sequence[Any]) -> Any:
    """One batch of them: arrays where they are numbers, in the structure of the first."""
    first = actions[0]
    if isinstance(first, Mapping) and all(isinstance(one, Mapping) and one.keys() == first.keys() for one in actions):
        return {key: _stacked([one[key] for one in actions]) for key in first}
    if isinstance(first, tuple) and all(isinstance(one, tuple) and len(one) == len(first) for one in actions):
        return tuple(map(_stacked, zip(*actions, strict=True)))
    arrays = [np.asarray(_native.without_torch(one)) for one in actions]
    if any(one.shape != arrays[0].shape or one.dtype.kind not in "biuf" for one in arrays):
        return list(actions)  # texts, or what does not fit: the engine says so
    return np.stack(arrays)


def check_policy(policy: Any, user: str) -> None:
    """Raises InputError if it cannot be called as a policy."""
    if not callable(getattr(policy, "begin", print)):
        raise InputError(f"{user}: expected a method begin(env_ids), got begin = {policy.begin!r}")
    if (problem := _shape_problem(policy, 3)) is None:
        return
    advice = ""
    if any(_shape_problem(policy, count) is None for count in (1, 2)):  # the generator is easily forgotten
        advice = "; for a function of one env's observation and a generator, write stepmill.per_env(function)"
    raise InputError(f"{user}: expected a function {_FORM}, got {problem}{advice}")


def _shape_problem(function: Any, arguments: int) -> str | None:
    """What it is instead of a function of that many arguments; None if it may be one."""
    if not callable(function):
        return repr(function)
    code = getattr(function, "__code__", None)
    if (
        code is not None
        and (code.co_argcount, code.co_kwonlyargcount) == (arguments, 0)
        and inspect.isfunction(function)
    ):
        return (
            None  # a plain function, as nearly always: to read its signature takes longer than a short rollout's step
        )
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # of a compiled function
        return None
    try:
        signature.bind(*[None] * arguments)
    except TypeError:
        return f"{getattr(function, '__name__', type(function).__name__)}{signature}"
    return None


# ---- random generators -----------------------------------------------------------------------------


class Generators:
    """A random generator per env, from a seed and its id: the same wherever the env lives.

    Made when it is first used: many policies draw nothing, and a generator costs more than a step.
    """

    def __init__(self, seed: int, begin: int = 0) -> None:
        """``begin``: see ``Plan``. Those that begin later must not draw the numbers of the first steps once more."""
        self._seed = seed
        self._begin = (begin,) if begin else ()
        self._made: dict[int, np.random.Generator] = {}

    def of(self, env_id: int) -> np.random.Generator:
        made = self._made.get(env_id)
        if made is None:
            made = self._made[env_id] = np.random.default_rng((self._seed, env_id, *self._begin))
        return made

    def renew(self, env_id: int, number: int) -> None:
        """From now on the env has the generator of this number, instead of that of its id."""
        self._made[env_id] = np.random.default_rng((self._seed, number))


class _Rows(Sequence[np.random.Generator]):
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


# ---- calling ---------------------------------------------------------------------------------------


class PolicyCaller:
    """Calls a policy, and takes what it returns apart.

    Attributes:
        begin: The policy's own; None if it has none.
    """

    def __init__(self, policy: Policy, action_space: spaces.Space[Any], generators: Generators) -> None:
        self._policy = policy
        self._generators = generators
        self._is_tuple = isinstance(action_space, spaces.Tuple)
        self._is_dict = isinstance(action_space, spaces.Dict)
        self.begin: Callable[[np.ndarray], None] | None = getattr(policy, "begin", None)
        self._ids: np.ndarray | None = None  # of the last call; in a sync pool they are always the same
        self._rows: Sequence[np.random.Generator] = ()

    def __call__(self, observation: Any, env_ids: np.ndarray) -> tuple[Any, list[np.ndarray]]:
        """Actions, and what else it returned; each has a row per env. Actions are left to the engine to check."""
        if self._ids is not env_ids:
            self._ids, self._rows = env_ids, _Rows(self._generators, env_ids)
        result = self._policy(observation, env_ids, self._rows)
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
