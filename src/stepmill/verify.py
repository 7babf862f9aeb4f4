"""``verify``: plays native envs and Gymnasium's own side by side, and finds the first difference.

Each env of the pool has a twin, a single env that ``gymnasium.make`` made. What the pool returns for an env is compared
with what its twin returns, and not with a vector env of Gymnasium: there, an info that is 1 at the first reset makes a
column of whole numbers, which cuts off the fractions that come later.
"""

from __future__ import annotations

import contextlib
import copy
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import ModuleType
from typing import Any, NamedTuple, overload

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import concatenate, create_empty_array

from stepmill.arguments import whole_number
from stepmill.comparing import NOTHING, Mismatch, column_mismatch, info_mismatch
from stepmill.errors import ConfigError, EnvError, MissingPackageError, StepmillError, UnsupportedError, summary
from stepmill.factories import close_quietly
from stepmill.make import make
from stepmill.pool.infos import engine_keys
from stepmill.pool.settings import SETTINGS, Settings, check_settings
from stepmill.registry import GymnasiumFactory, find, list_all_envs
from stepmill.trees import map_trees, tree_of
from stepmill.verification import Difference, Verification, Verifications

__all__ = ["verify"]


@overload
def verify(task_id: str, **arguments: Any) -> Verification: ...
@overload
def verify(task_id: None = None, **arguments: Any) -> Verifications: ...
def verify(
    task_id: str | None = None,
    *,
    steps: int = 10_000,
    num_envs: int = 8,
    batch_size: int | None = None,
    num_threads: int | None = None,
    seed: int | Sequence[int] = 42,
    backend: str = "auto",
    autoreset: str | AutoresetMode = "next_step",
    max_episode_steps: int | None = None,
    **config: Any,
) -> Verification | Verifications:
    """Plays native envs and Gymnasium's own side by side, and says whether they are equal, bit for bit.

    Both get the same seeds, actions and configuration. Observations, rewards, terminations, truncations and infos are
    compared, at every step and every reset, up to the first difference.

    Actions are drawn from the action space by a seeded generator. Every second env repeats its action for some ten
    steps, so that it gets to other places. One in eight Box actions goes up to twice as far as the bounds allow.

    Args:
        task_id: A native id that Gymnasium has too; without one, all of these.
        steps: How many steps to compare at least, of all envs together.
        num_envs: How many envs to play.
        batch_size: As for ``make``: fewer than ``num_envs`` is async mode.
        num_threads: As for ``make``.
        seed: As for ``make``. The actions follow from it too.
        backend: As for ``make``.
        autoreset: As for ``make``.
        max_episode_steps: As for ``make``.
        **config: The env's own configuration, for both.

    Returns:
        The result, which is true if all is equal, and prints as one line. Without an id: a sequence of results, which
        prints as a table and says which ids were skipped and why.
    """
    arguments = {name: value for name, value in locals().items() if name in SETTINGS}
    steps = whole_number("steps", steps, 1)
    settings = check_settings(**arguments, reward_dtype="float64")
    for name in config:
        if name in SETTINGS or name in ("env_type", "env_config"):
            raise ConfigError(f"verify: expected configuration of the env, got {name!r}, which make has and verify not")
    if task_id is None:
        if config:
            raise ConfigError(f"verify: expected an id beside the configuration {config}, got none: each env has other")
        return _verify_all(steps, settings, arguments)
    _check_comparable(task_id)
    return _verify_one(task_id, steps, settings, arguments, config)


def _check_comparable(id: Any) -> None:
    if not isinstance(id, str):
        raise ConfigError(f"verify: expected an id such as 'CartPole-v1', or None for all, got {id!r}")
    if find(id).native is None:
        raise UnsupportedError(f"verify({id!r}): {id} has no native version to compare with Gymnasium's")
    if id not in gymnasium.registry:
        raise UnsupportedError(f"verify({id!r}): Gymnasium {gymnasium.__version__} has no {id} to compare with")


def _verify_all(steps: int, settings: Settings, arguments: Mapping[str, Any]) -> Verifications:
    results: list[Verification] = []
    skipped: dict[str, str] = {}
    for id in list_all_envs():
        if find(id).native is None or id not in gymnasium.registry:
            continue
        try:
            results.append(_verify_one(id, steps, settings, arguments, {}))
        except (MissingPackageError, UnsupportedError) as error:
            skipped[id] = str(error)
        except StepmillError as error:
            if _is_refused_by_gymnasium(id):
                skipped[id] = str(error)
            else:  # the other ids are worth their results
                difference = _before_reset("exception", summary(error), NOTHING)
                results.append(Verification(id, settings.num_envs, 0, 0, settings.backend, {}, difference))
    return Verifications(tuple(results), skipped)


def _verify_one(
    id: str, steps: int, settings: Settings, arguments: Mapping[str, Any], config: Mapping[str, Any]
) -> Verification:
    with contextlib.ExitStack() as opened:
        pool: Any = opened.enter_context(make(id, **arguments, **config))
        if not pool.is_native:
            raise UnsupportedError(f"verify({id!r}): no native env ran, but Gymnasium's own on {pool.backend!r}")
        limit = {} if settings.max_episode_steps is None else {"max_episode_steps": settings.max_episode_steps}
        twins: list[_Twin] = []
        difference = None
        try:
            for env_id in range(settings.num_envs):
                env = _make_official(id, {**limit, **config})
                opened.callback(close_quietly, env)
                twins.append(_Twin(env, env_id, settings))
        except gymnasium.error.DependencyNotInstalled as error:
            raise MissingPackageError(f"verify({id!r}): Gymnasium's env cannot be made: {error}") from error
        except Exception as error:  # whatever it raises, ours did not
            difference = _before_reset("exception", NOTHING, summary(error))
        if difference is None:
            difference = _space_difference(pool, twins[0].env) or _Run(pool, twins, settings).play(steps)
        return Verification(
            id=id,
            num_envs=settings.num_envs,
            steps=sum(twin.steps for twin in twins),
            episodes=sum(twin.episodes_ended for twin in twins),
            backend=pool.backend,
            versions=_versions(twins[0].env if twins else None),
            difference=difference,
        )


# ---- Gymnasium's envs ----------------------------------------------------------------------------


def _make_official(id: str, config: Mapping[str, Any]) -> gymnasium.Env[Any, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # an older version of an env is still that env
        env: gymnasium.Env[Any, Any] = GymnasiumFactory(id)(**config)
    return env


def _is_refused_by_gymnasium(id: str) -> bool:
    try:
        close_quietly(_make_official(id, {}))
    except Exception:
        return True
    return False


def _versions(env: gymnasium.Env[Any, Any] | None) -> dict[str, str]:
    """The versions of Gymnasium, numpy, and what the modules of the env's classes import, such as a simulator."""
    modules: list[ModuleType] = [gymnasium, np]
    for cls in type(env.unwrapped).__mro__ if env is not None else ():
        modules += [thing for thing in vars(sys.modules[cls.__module__]).values() if isinstance(thing, ModuleType)]
    packages = dict.fromkeys(module.__name__.partition(".")[0] for module in modules)
    versions = {name: getattr(sys.modules[name], "__version__", None) for name in packages if name in sys.modules}
    return {
        name: version
        for name, version in versions.items()
        if isinstance(version, str) and name not in sys.stdlib_module_names
    }


class _Row(NamedTuple):
    """What a twin returned: the fields by name, and the info, with the end of the last episode if it was reset."""

    fields: dict[str, Any]
    info: dict[Any, Any]


class _Twin:
    """A single env of Gymnasium, which is played as the autoreset mode says. It knows how far it has got."""

    def __init__(self, env: gymnasium.Env[Any, Any], env_id: int, settings: Settings) -> None:
        self.env = env
        self.env_id = env_id
        self.steps = self.episode = self.episode_step = self.episodes_ended = 0
        self.ended = False
        self._seed: int | None = settings.seed[env_id]
        self._autoreset = settings.autoreset
        self._actor = _Actor(env.action_space, settings.seed[env_id], holds=env_id % 2 == 1)
        self._action: Any = None

    def choose_action(self) -> Any:
        """Draws the action of the next step, and keeps it until the pool has done that step."""
        self._action = self._actor.draw()
        return self._action

    def reset(self) -> _Row:
        """The first reset has a seed, the others have none."""
        self._begin_episode()
        seed, self._seed = self._seed, None
        obs, info = self.env.reset(seed=seed)
        return _Row({"obs": obs, "reward": np.float64(0), "terminated": np.False_, "truncated": np.False_}, info)

    def step(self) -> _Row:
        if self.ended and self._autoreset == "next_step":
            return self.reset()
        if self.ended:  # under same_step: what begins now was reset at the end of the last episode
            self._begin_episode()
        self.steps += 1
        self.episode_step += 1
        obs, reward, terminated, truncated, info = self.env.step(copy.deepcopy(self._action))
        self.ended = bool(terminated or truncated)
        self.episodes_ended += self.ended
        if self.ended and self._autoreset == "same_step":
            final = {"final_obs": obs, "final_info": info}
            obs, info = self.env.reset()
            info = {**info, **final}
        # A pool has rewards as float64 and ends as bools, as Gymnasium's vector envs do.
        outcome = {"reward": np.asarray(reward, np.float64), "terminated": bool(terminated)}
        return _Row({"obs": obs, **outcome, "truncated": bool(truncated)}, info)

    def _begin_episode(self) -> None:
        self.episode += 1
        self.episode_step = 0
        self.ended = False

    def difference(self, found: Mismatch) -> Difference:
        """What was found in the last row."""
        return Difference(self.env_id, self.steps, self.episode, self.episode_step, *found)


def _before_reset(field: str, ours: Any, theirs: Any) -> Difference:
    return Difference(0, 0, 0, 0, field, ours, theirs)


# ---- actions -------------------------------------------------------------------------------------

_HOLD = 0.9  # how often an env that repeats its actions does so
_BEYOND = 1 / 8  # how often an action is stretched


class _Actor:
    """Draws the actions of one env, the same ones for the same seed."""

    def __init__(self, space: spaces.Space[Any], seed: int, *, holds: bool) -> None:
        self._space = copy.deepcopy(space)
        self._space.seed(seed)
        self._random = np.random.default_rng(seed)
        self._hold = _HOLD if holds else 0.0
        self._action: Any = None

    def draw(self) -> Any:
        if self._action is None or self._random.random() >= self._hold:
            self._action = self._space.sample()
            if self._random.random() < _BEYOND:
                self._action = map_trees(_stretched, tree_of(self._space), self._action)
        return self._action


def _stretched(space: spaces.Space[Any], action: Any) -> Any:
    """A Box action twice as far from the middle of its bounds, so that about half of its numbers are beyond them."""
    if not isinstance(space, spaces.Box) or space.dtype is None or space.dtype.kind != "f":
        return action
    bounded = np.isfinite(space.low) & np.isfinite(space.high)
    middle = np.where(bounded, space.low / 2 + space.high / 2, action)
    return (action + (action - middle)).astype(space.dtype)


# ---- side by side --------------------------------------------------------------------------------


def _space_difference(pool: Any, env: gymnasium.Env[Any, Any]) -> Difference | None:
    for name in ("observation_space", "action_space"):
        ours, theirs = getattr(pool, f"single_{name}"), getattr(env, name)
        if ours != theirs:
            return _before_reset(name, ours, theirs)
    return None


class _Run:
    """Plays a pool and its twins, and compares them batch by batch."""

    def __init__(self, pool: Any, twins: Sequence[_Twin], settings: Settings) -> None:
        self._pool = pool
        self._twins = twins
        self._autoreset = settings.autoreset
        # What the engine adds has no counterpart in a single env, except the end of an episode that it has reset.
        finals = {"final_obs", "_final_obs", "final_info", "_final_info"}
        self._left_out = engine_keys(settings.autoreset) - finals

    def play(self, steps: int) -> Difference | None:
        """Until so many steps are compared, or something differs."""
        ready: Sequence[int] = range(len(self._twins))
        difference = self._reset(ready)
        while difference is None and sum(twin.steps for twin in self._twins) < steps:
            self._pool.send(self._actions(ready), np.array(ready))
            ready, difference = self._receive()
            if difference is None and self._autoreset == "disabled":
                difference = self._reset([env_id for env_id in ready if self._twins[env_id].ended])
        return difference

    def _actions(self, env_ids: Sequence[int]) -> Any:
        space = self._pool.single_action_space
        actions = [self._twins[env_id].choose_action() for env_id in env_ids]
        empty: Any = create_empty_array(space, len(actions))
        return concatenate(space, actions, empty)

    def _reset(self, env_ids: Sequence[int]) -> Difference | None:
        if not env_ids:
            return None
        (obs, info), failures = _outcome(lambda: self._pool.reset(np.array(env_ids)))
        rows = ((row, self._twins[env_id], self._twins[env_id].reset) for row, env_id in enumerate(env_ids))
        return self._first_difference(rows, {"obs": obs}, info, failures)

    def _receive(self) -> tuple[list[int], Difference | None]:
        (*columns, info), failures = _outcome(self._pool.recv)
        fields = dict(zip(("obs", "reward", "terminated", "truncated"), columns, strict=True))
        env_ids: list[int] = info["env_id"].tolist()
        rows = sorted((env_id, row) for row, env_id in enumerate(env_ids))  # in async mode they come in any order
        played = ((row, self._twins[env_id], self._twins[env_id].step) for env_id, row in rows)
        return env_ids, self._first_difference(played, fields, info, failures)

    def _first_difference(
        self,
        rows: Iterable[tuple[int, _Twin, Callable[[], _Row]]],
        fields: Mapping[str, Any],
        info: Mapping[Any, Any],
        failures: Mapping[int, EnvError],
    ) -> Difference | None:
        """Plays the twins of these rows until one differs."""
        for row, twin, play in rows:
            found = self._row_mismatch(row, play, fields, info, failures.get(twin.env_id))
            if found is not None:
                return twin.difference(found)
        return None

    def _row_mismatch(
        self,
        row: int,
        play: Callable[[], _Row],
        fields: Mapping[str, Any],
        info: Mapping[Any, Any],
        failure: EnvError | None,
    ) -> Mismatch | None:
        try:
            theirs = play()
        except Exception as error:
            if failure is not None:  # both failed, so there is nothing to compare
                raise failure from error
            return Mismatch("exception", NOTHING, summary(error))
        if failure is not None:
            return Mismatch("exception", summary(failure), NOTHING)
        for name, columns in fields.items():
            found = column_mismatch(name, columns, row, theirs.fields[name])
            if found is not None:
                return found
        return info_mismatch("info", info, row, theirs.info, self._left_out)


def _outcome(call: Callable[[], Any]) -> tuple[Any, dict[int, EnvError]]:
    """What a call to the pool returned, and the errors of the envs that failed in it."""
    try:
        return call(), {}
    except EnvError as error:
        if error.batch is None:
            raise
        return error.batch, {one.env_id: one for one in error.errors if one.env_id is not None}
