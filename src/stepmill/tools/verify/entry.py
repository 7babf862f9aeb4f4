"""``verify``: plays native envs and Gymnasium's own side by side, and finds the first difference.

Each env of the pool has a twin, a single env: one that ``gymnasium.make`` made, or our own where an id is both native
and in Python. What the pool returns for an env is compared with what its twin returns, and not with a vector env of
Gymnasium: there, a column of the info takes the type of the first env in the batch, and if that is an int, the
fractions of the others are cut off.
"""

from __future__ import annotations

import contextlib
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any, overload

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode

from stepmill.envs.adapters import refuse_coroutines
from stepmill.errors import ConfigError, EnvError, MissingPackageError, StepmillError, UnsupportedError, summary
from stepmill.make import make
from stepmill.registry.description import has_coroutines
from stepmill.registry.factories import close_quietly
from stepmill.registry.records import GymnasiumFactory, find, own_ids, registered
from stepmill.settings import SETTINGS, AutoresetWord, Backend, Ray, check_settings
from stepmill.sources.files.env_library import EnvLibrary
from stepmill.sources.files.task_file import is_file_task
from stepmill.sources.jit.jit_class import JitClass
from stepmill.sources.models.env_model import ModelConfig
from stepmill.sources.models.python_env import PythonModel
from stepmill.system.optional import MUJOCO
from stepmill.tools.verify.results import Difference, Verification, Verifications
from stepmill.tools.verify.side_by_side import NOTHING, Twin, Twins
from stepmill.values.arguments import whole_number

Progress = Callable[[int], None]


@overload
def verify(task_id: str | EnvLibrary | JitClass, **arguments: Any) -> Verification: ...
@overload
def verify(task_id: None = None, **arguments: Any) -> Verifications: ...
def verify(
    task_id: str | EnvLibrary | JitClass | None = None,
    *,
    reference: Callable[..., Any] | str | None = None,
    steps: int = 10_000,
    num_envs: int = 8,
    batch_size: int | None = None,
    num_threads: int | None = None,
    seed: int | Sequence[int] = 42,
    backend: Backend | Ray = "auto",
    autoreset: AutoresetWord | AutoresetMode = "next_step",
    max_episode_steps: int | None = None,
    **config: Any,
) -> Verification | Verifications:
    """Plays native envs and Gymnasium's own side by side, and says whether they are equal, bit for bit.

    Both get the same seeds, actions and configuration. Observations, rewards, terminations, truncations and infos are
    compared, at every step and every reset, up to the first difference.

    Actions are drawn from the action space by a seeded generator. Every second env repeats its action for some ten
    steps, so that it gets to other places. One in eight Box actions goes up to twice as far as the bounds allow.

    Args:
        task_id: A native id that Gymnasium has too, or that stepmill has in Python too (``Moving-v0``, ``Sliding-v0``);
            without one, all of these. With a ``reference``, any native env: an id, a file or what ``stepmill.compile``
            or ``stepmill.jit`` returned. Without a ``reference``, a ``stepmill.jit`` class is compared with itself in
            Python.
        reference: What to compare it with: an env class, a function that makes an env, or an id of Gymnasium.
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
    arguments = {
        "num_envs": num_envs,
        "batch_size": batch_size,
        "num_threads": num_threads,
        "seed": seed,
        "backend": backend,
        "autoreset": autoreset,
        "max_episode_steps": max_episode_steps,
    }
    comparison = Comparison(steps, arguments, config, reference=reference)
    if task_id is None:
        if reference is not None:
            raise ConfigError("verify: expected an env to compare with the reference, got only the reference")
        if config:
            raise ConfigError(f"verify: expected an id with the configuration of an env, got only {config}")
        return comparison.of_all()
    if not isinstance(task_id, str | EnvLibrary | JitClass):
        raise ConfigError(f"verify: expected an id such as 'CartPole-v1', or None for all, got {task_id!r}")
    if reference is None and isinstance(task_id, EnvLibrary):
        raise ConfigError(f"verify({task_id.task!r}): expected reference=..., the env to compare it with")
    if reference is None and isinstance(task_id, str):
        why = why_incomparable(task_id)
        if why is not None:
            raise UnsupportedError(f"verify({task_id!r}): {task_id} {why}")
    return comparison.of(task_id)


def why_incomparable(id: str) -> str | None:
    """What an id lacks to be compared; None if it can be. Raises if it is unknown, or if its package is missing."""
    if registered(id) is None and is_file_task(id):
        return "is a file: say what to compare it with (reference=...), such as the env that it is a port of"
    record = find(id)
    if record.native is None and not isinstance(record.factory, JitClass):
        return "has no native version to compare with Gymnasium's"
    if record.factory is None and id not in gymnasium.registry:
        return f"is not in Gymnasium {gymnasium.__version__}, so there is nothing to compare with"
    return None


class Comparison:
    """Compares ids, one after the other.

    Args:
        steps: As ``verify`` has it.
        arguments: Of ``make``.
        config: The env's own configuration.
        progress: Called with the number of steps that were compared since the last call.
        reference: As ``verify`` has it.
    """

    def __init__(
        self,
        steps: int,
        arguments: Mapping[str, Any],
        config: Mapping[str, Any],
        progress: Progress = lambda steps: None,
        reference: Callable[..., Any] | str | None = None,
    ) -> None:
        self._steps = whole_number("steps", steps, 1)
        self._settings = check_settings(**arguments, reward_dtype="float64")
        self._arguments = arguments
        self._config = config
        self._progress = progress
        self._reference = reference
        for name in config:
            if name in SETTINGS or name in ("env_type", "env_config"):
                raise ConfigError(f"verify: {name!r} is an argument of make that verify does not take")

    def of_all(self) -> Verifications:
        """All native ids that have a counterpart here."""
        outcomes = {id: self.attempt(id) for id in own_ids() if why_incomparable(id) is None}
        results = tuple(one for one in outcomes.values() if isinstance(one, Verification))
        return Verifications(results, {id: one for id, one in outcomes.items() if isinstance(one, str)})

    def attempt(self, id: str) -> Verification | str:
        """The result, or why there is none. An id that cannot be compared does not keep the others from it."""
        try:
            return self.of(id)
        except (MissingPackageError, UnsupportedError) as error:
            return str(error)
        except StepmillError as error:
            both_failed = isinstance(error, EnvError) and error.batch is not None
            if both_failed or _is_refused_by_gymnasium(id):
                return str(error)
            difference = _before_reset("exception", summary(error), NOTHING)
            return Verification(id, self._settings.num_envs, 0, 0, self._settings.backend, {}, difference)

    def of(self, task: str | EnvLibrary | JitClass) -> Verification:
        """The result for one id, or for an env of one's own."""
        settings = self._settings
        reference = task if self._reference is None else self._reference
        with contextlib.ExitStack() as opened:
            pool: Any = opened.enter_context(make(task, **self._arguments, **self._config))
            id = pool.spec.id
            if not pool.is_native:
                raise UnsupportedError(f"verify({id!r}): no native env ran, but Gymnasium's own on {pool.backend!r}")
            limit = {} if settings.max_episode_steps is None else {"max_episode_steps": settings.max_episode_steps}
            twins: list[Twin] = []
            difference = None
            try:
                for env_id in range(settings.num_envs):
                    env = _make_official(reference, {**limit, **self._config})
                    opened.callback(close_quietly, env)
                    twins.append(Twin(env, env_id, settings))
            except gymnasium.error.DependencyNotInstalled as error:
                raise MissingPackageError(f"verify({id!r}): Gymnasium's env cannot be made: {error}") from error
            except Exception as error:  # whatever it raises, ours did not
                difference = _before_reset("exception", NOTHING, summary(error))
            if difference is None:
                difference = _space_difference(pool, twins[0].env)
            if difference is None:
                difference = Twins(twins, settings).play(pool, self._steps, self._progress)
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


def _make_official(reference: Any, config: Mapping[str, Any]) -> gymnasium.Env[Any, Any]:
    """An env of Gymnasium, or of what a user compares with: an id, a class or a function."""
    with warnings.catch_warnings(), _quiet_simulator():
        warnings.simplefilter("ignore", DeprecationWarning)  # an older version of an env is still that env
        rest, model = ModelConfig.take(dict(config))
        env: gymnasium.Env[Any, Any] = _own_twin(reference, rest) or GymnasiumFactory(reference)(**rest)
    if has_coroutines(env):
        refuse_coroutines("verify", env.unwrapped)
    if model is not None:
        changed = PythonModel(env)
        model.put_into(changed, 0)
        changed.apply()
    return env


def _own_twin(reference: Any, config: Mapping[str, Any]) -> gymnasium.Env[Any, Any] | None:
    """The env that a class or function makes, or our own Python env of a native id, if it has one."""
    factory = find(reference).factory if isinstance(reference, str) else reference
    if factory is None:
        return None
    limit = config.get("max_episode_steps")
    env: gymnasium.Env[Any, Any] = factory(**{key: one for key, one in config.items() if key != "max_episode_steps"})
    return env if limit is None else gymnasium.wrappers.TimeLimit(env, limit)


def _quiet_simulator() -> contextlib.AbstractContextManager[None]:
    """MuJoCo writes what it warns of into a file in the working directory. Our own envs have logged it already."""
    if MUJOCO.module not in sys.modules:
        return contextlib.nullcontext()
    from stepmill.zoo.mujoco.installed import WarningLog

    return WarningLog("verify", is_silent=True).listening()


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
        module = sys.modules.get(cls.__module__)  # none if its file was run, and not imported
        modules += [thing for thing in vars(module or cls).values() if isinstance(thing, ModuleType)]
    packages = dict.fromkeys(module.__name__.partition(".")[0] for module in modules)
    versions = {name: getattr(sys.modules[name], "__version__", None) for name in packages if name in sys.modules}
    return {
        name: version
        for name, version in versions.items()
        if isinstance(version, str) and name not in sys.stdlib_module_names
    }


def _space_difference(pool: Any, env: gymnasium.Env[Any, Any]) -> Difference | None:
    for name in ("observation_space", "action_space"):
        ours, theirs = getattr(pool, f"single_{name}"), getattr(env, name)
        if ours != theirs:
            return _before_reset(name, ours, theirs)
    return None


def _before_reset(field: str, ours: Any, theirs: Any) -> Difference:
    return Difference(0, 0, 0, 0, field, ours, theirs)
